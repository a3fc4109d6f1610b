# Makes the boots of a machine quick on an emulated processor. $1: the root. What it leaves out, no test looks at: file systems of
# the kernel that nobody uses, the modules for them, records of logins.
set -eu
for unit in dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount modprobe@configfs.service modprobe@dm_mod.service \
    modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service modprobe@loop.service kmod-static-nodes.service \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-ask-password-console.path \
    systemd-ask-password-wall.path; do
    ln -sf /dev/null "$1/etc/systemd/system/$unit"
done
# udev asks for a module for each of four hundred devices, mostly features of the processor: half of a boot. Disks and network
# are enough.
mkdir -p "$1/etc/systemd/system/systemd-udev-trigger.service.d"
cat >"$1/etc/systemd/system/systemd-udev-trigger.service.d/lab.conf" <<'END'
[Service]
ExecStart=
ExecStart=-udevadm trigger --action=add --subsystem-match=block --subsystem-match=net --subsystem-match=virtio --subsystem-match=nvme
ExecStart=-udevadm trigger --action=add --subsystem-match=pci --attr-match=vendor=0x1af4
END
# One key of the ssh server: it reads all that it has for each connection.
echo 'HostKey /etc/ssh/ssh_host_ed25519_key' >>"$1/etc/ssh/sshd_config.d/lab.conf"
# An emulated machine beside builds has seen its disk's names after two minutes. systemd gives up after one and a half.
mkdir -p "$1/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultDeviceTimeoutSec=15min\nDefaultTimeoutStartSec=15min\n' >"$1/etc/systemd/system.conf.d/20-slow.conf"

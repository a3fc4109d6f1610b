# Customises the root of an ordinary machine. $1: the root; $2: the line for authorized_keys.
# A static address of qemu's user network, ssh for root with the lab's key, and no services that only slow the boot down.
set -eu
root=$1 key=$2
printf '[Match]\nName=en*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n' >"$root/etc/systemd/network/10-lab.network"
mkdir -p "$root/etc/ssh/sshd_config.d"
printf '%s\n' "$key" >"$root/etc/ssh/lab_keys"
printf 'PermitRootLogin prohibit-password\nAuthorizedKeysFile /etc/ssh/lab_keys\nUseDNS no\nUsePAM no\n' \
    >"$root/etc/ssh/sshd_config.d/lab.conf"
echo lab >"$root/etc/hostname"
printf '127.0.0.1 localhost lab\n' >"$root/etc/hosts"
: >"$root/etc/machine-id"
rm -f "$root/etc/resolv.conf"
mkdir -p "$root/etc/systemd/system.conf.d" "$root/var/log/journal"
printf '[Manager]\nDefaultTimeoutStopSec=10s\n' >"$root/etc/systemd/system.conf.d/10-lab.conf"
units=$root/etc/systemd/system
mkdir -p "$units/multi-user.target.wants"
ln -sf /lib/systemd/system/systemd-networkd.service "$units/multi-user.target.wants/"
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    systemd-networkd-wait-online.service getty@tty1.service serial-getty@ttyS0.service grub-common.service \
    systemd-pstore.service systemd-resolved.service systemd-timesyncd.service; do
    ln -sf /dev/null "$units/$unit"
done

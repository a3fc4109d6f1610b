# Runs in the machine at its first boot, from a kernel that qemu has loaded: from now on GRUB boots it.
set -eu
# Without an initramfs that does something, the kernel knows the root by its device only.
sed -i 's/^GRUB_CMDLINE_LINUX=.*/GRUB_CMDLINE_LINUX="console=ttyS0 mitigations=off no_timer_check tsc=reliable cryptomgr.notests"/' \
    /etc/default/grub.d/00-lab.cfg
echo GRUB_DISABLE_LINUX_UUID=true >>/etc/default/grub.d/00-lab.cfg
# Other systems, Xen and firmware: a second each on an emulated processor, whenever the configuration is made.
chmod -x /etc/grub.d/05_debian_theme /etc/grub.d/20_linux_xen /etc/grub.d/30_os-prober /etc/grub.d/30_uefi-firmware
grub-install --target=i386-pc /dev/nvme0n1
update-grub
grep -q 'root=/dev/nvme0n1p2.*console=ttyS0' /boot/grub/grub.cfg

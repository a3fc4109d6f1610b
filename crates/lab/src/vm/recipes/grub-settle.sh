# Runs in the machine at its first boot, from a kernel that qemu has loaded: from now on GRUB boots it.
set -eu
grub-install --target=i386-pc /dev/vda
update-grub
grep -q console=ttyS0 /boot/grub/grub.cfg

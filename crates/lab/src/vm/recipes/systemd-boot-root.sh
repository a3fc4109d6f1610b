# What a machine with systemd-boot and UEFI has beside `machine.sh`. $1: the root.
set -eu
printf 'LABEL=root / ext4 defaults,errors=remount-ro 0 1\nLABEL=ESP /boot/efi vfat umask=0077 0 2\n' >"$1/etc/fstab"
mkdir -p "$1/boot/efi"
echo 'root=LABEL=root ro console=ttyS0 quiet' >"$1/etc/kernel/cmdline"

# What a machine with GRUB and BIOS has beside `machine.sh`. $1: the root.
set -eu
echo 'LABEL=root / ext4 defaults,errors=remount-ro 0 1' >"$1/etc/fstab"
mkdir -p "$1/etc/default/grub.d"
cat >"$1/etc/default/grub.d/00-lab.cfg" <<'END'
GRUB_TIMEOUT=0
GRUB_RECORDFAIL_TIMEOUT=0
GRUB_TERMINAL=serial
GRUB_SERIAL_COMMAND="serial --speed=115200"
GRUB_CMDLINE_LINUX="console=ttyS0"
GRUB_DISABLE_OS_PROBER=true
END

# Makes GRUB's two stages. $1: the folder for `boot.img` and `core.img`. The module blsuki has the command `blscfg`, from 2.14 on.
set -eu
printf 'search --no-floppy --label boot --set=root\nset prefix=($root)/grub\nconfigfile ($root)/grub/grub.cfg\n' >"$1/early.cfg"
grub-mkimage -O i386-pc -c "$1/early.cfg" -p /grub -o "$1/core.img" \
    biosdisk part_gpt ext2 search search_label normal configfile blsuki linux serial terminal echo test sleep reboot
cp /usr/lib/grub/i386-pc/boot.img "$1/boot.img"

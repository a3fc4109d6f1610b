# Makes the disk of an OSTree machine: a partition for GRUB's second stage, /boot, and the root. $1: the system root; $2: the disk.
set -eu
mib=1048576
truncate -s 3330M "$2"
printf 'label: gpt\nstart=2048, size=1MiB, type=21686148-6449-6E6F-744E-656564454649\nstart=2MiB, size=256MiB\nstart=258MiB, size=3070MiB\n' |
    sfdisk --quiet "$2"
mkfs.ext4 -q -F -L boot -E "offset=$((2 * mib))" -d "$1/boot" "$2" 256M
mv "$1/boot" "$1.boot"
mkdir "$1/boot"
mkfs.ext4 -q -F -L root -E "offset=$((258 * mib)),lazy_itable_init=1,lazy_journal_init=1" -d "$1" "$2" 3070M

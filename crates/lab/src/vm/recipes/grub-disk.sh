# Makes the disk of a machine with BIOS: a partition for GRUB's second stage, and the root. $1: the root; $2: the disk.
set -eu
mib=1048576
truncate -s 2050M "$2"
printf 'label: gpt\nstart=2048, size=1MiB, type=21686148-6449-6E6F-744E-656564454649\nstart=2MiB, size=2047MiB\n' |
    sfdisk --quiet "$2"
mkfs.ext4 -q -F -L root -E "offset=$((2 * mib)),lazy_itable_init=1,lazy_journal_init=1" -d "$1" "$2" 2047M

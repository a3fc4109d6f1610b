# Makes the disk of a machine with UEFI: the EFI system partition, and the root. $1: the root; $2: the disk.
set -eu
mib=1048576
truncate -s 2178M "$2"
printf 'label: gpt\nstart=1MiB, size=128MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B\nstart=129MiB, size=2048MiB\n' |
    sfdisk --quiet "$2"
# One sector to a cluster: UEFI takes a file system with fewer than 65525 clusters for FAT16.
mkfs.vfat -n ESP -F 32 -s 1 --offset=2048 "$2" $((128 * 1024)) >/dev/null
mkfs.ext4 -q -F -L root -E "offset=$((129 * mib)),lazy_itable_init=1,lazy_journal_init=1" -d "$1" "$2" 2048M

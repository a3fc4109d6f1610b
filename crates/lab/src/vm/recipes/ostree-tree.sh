# Makes the tree of an OSTree commit from a root of Debian: `/etc` → `/usr/etc`, `/var` empty, the folders of people and
# programs links into `/var`, dpkg's database below `/usr`, kernel and initramfs in `/usr/lib/modules`.
# $1: the root, left as it is; $2: the tree, made; $3: the program `ostree-container`.
set -eu
cp -a "$1" "$2"
tree=$2
kernel=$(ls "$tree/usr/lib/modules")
# Where `ostree container` looks for it.
mkdir -p "$tree/usr/libexec/libostree/ext"
cp "$3" "$tree/usr/libexec/libostree/ext/ostree-container"
echo 'LABEL=boot /boot ext4 defaults 0 2' >"$tree/etc/fstab"
mkdir -p "$tree/usr/lib/ostree" "$tree/usr/share/lab"
printf '[sysroot]\nreadonly=true\n' >"$tree/usr/lib/ostree/prepare-root.conf"
# What the agent takes for the kubelet: a unit of that name, with a program of the image.
printf '#!/bin/sh\nexec sleep infinity\n' >"$tree/usr/bin/kubelet"
chmod 755 "$tree/usr/bin/kubelet"
printf '[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\nRestartSec=5\n' >"$tree/etc/systemd/system/kubelet.service"
ln -s /etc/systemd/system/kubelet.service "$tree/etc/systemd/system/multi-user.target.wants/kubelet.service"
for unit in systemd-binfmt.service ldconfig.service systemd-hwdb-update.service systemd-firstboot.service \
    systemd-journal-catalog-update.service; do
    ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done
cat >"$tree/usr/lib/tmpfiles.d/lab-ostree.conf" <<'END'
d /var/roothome 0700 root root -
d /var/home 0755 root root -
d /var/opt 0755 root root -
d /var/srv 0755 root root -
d /var/mnt 0755 root root -
d /var/usrlocal 0755 root root -
d /var/usrlocal/bin 0755 root root -
d /var/log/journal 0755 root root -
d /run/media 0755 root root -
L /var/lib/dpkg - - - - ../../usr/lib/sysimage/dpkg
END
cp "$tree/boot/vmlinuz-$kernel" "$tree/usr/lib/modules/$kernel/vmlinuz"
rm -rf "$tree"/boot/* "$tree"/vmlinuz* "$tree"/initrd.img*
# The mounts are in a namespace that ends with dracut: nothing of this computer is below the tree when it is changed.
# shellcheck disable=SC2016
unshare --mount --propagation unchanged sh -euc '
    mount --rbind /dev "$1/dev"
    mount -t proc proc "$1/proc"
    exec chroot "$1" dracut --quiet --force --no-hostonly --no-hostonly-cmdline --reproducible --gzip --kver "$2" \
        --add "ostree systemd" \
        --omit "network network-legacy systemd-networkd kernel-network-modules nfs iscsi nbd cifs lvm mdraid dm crypt multipath
                btrfs plymouth i18n resume hwdb tpm2-tss bluetooth systemd-cryptsetup systemd-pcrphase systemd-sysext" \
        --drivers "virtio virtio_ring virtio_pci virtio_blk ext4" --filesystems ext4 \
        --force-drivers "virtio_blk virtio_pci ext4" "/usr/lib/modules/$2/initramfs.img"
' sh "$tree" "$kernel"
chmod 644 "$tree/usr/lib/modules/$kernel/initramfs.img" "$tree/usr/lib/modules/$kernel/vmlinuz"
mkdir -p "$tree/usr/lib/sysimage"
mv "$tree/var/lib/dpkg" "$tree/usr/lib/sysimage/dpkg"
for folder in var dev run proc sys tmp; do
    rm -rf "${tree:?}/$folder"
    mkdir "$tree/$folder"
done
chmod 1777 "$tree/tmp"
mkdir -p "$tree/sysroot" "$tree/boot"
for folder in home opt srv mnt; do
    rm -rf "${tree:?}/$folder"
    ln -s "var/$folder" "$tree/$folder"
done
rm -rf "$tree/root" "$tree/media" "$tree/usr/local"
ln -s var/roothome "$tree/root"
ln -s run/media "$tree/media"
ln -s ../var/usrlocal "$tree/usr/local"
ln -s sysroot/ostree "$tree/ostree"
mv "$tree/etc" "$tree/usr/etc"

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
# An initramfs of a few programs. That of dracut has a systemd of its own, which is 40 % of a boot on an emulated processor.
initramfs=$tree/tmp/initramfs
for folder in bin dev proc sys run sysroot modules usr/lib/ostree; do
    mkdir -p "$initramfs/$folder"
done
cp "$tree/usr/lib/ostree/prepare-root.conf" "$tree/usr/lib/ostree/ostree-prepare-root" "$initramfs/usr/lib/ostree/"
for program in sh cat sleep mount insmod switch_root; do
    found=$(chroot "$tree" sh -c "command -v $program")
    cp -L "$tree$found" "$initramfs/bin/$program"
    chroot "$tree" ldd "$found"
done >"$initramfs/libraries"
chroot "$tree" ldd /usr/lib/ostree/ostree-prepare-root >>"$initramfs/libraries"
# `insmod` loads what unpacks modules when it needs it.
chroot "$tree" find /usr/lib -name 'liblzma.so.5' -o -name 'libzstd.so.1' >>"$initramfs/libraries"
grep -o '/[^ ]*' "$initramfs/libraries" | sort -u | while read -r library; do
    mkdir -p "$initramfs${library%/*}"
    cp -L "$tree$library" "$initramfs$library"
done
for module in virtio_pci virtio_blk crc32c_generic ext4; do
    chroot "$tree" modprobe --set-version="$kernel" --show-depends "$module" || :
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
    cp "$tree$module" "$initramfs/modules/"
    echo "/modules/${module##*/}" >>"$initramfs/order"
done
cat >"$initramfs/init" <<'END'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs /run
exec </dev/console >/dev/console 2>&1
for module in $(cat /order); do
    insmod "$module"
done
until mount -t ext4 LABEL=root /sysroot 2>/dev/null; do
    sleep 0.1
done
/usr/lib/ostree/ostree-prepare-root /sysroot
exec switch_root /sysroot /sbin/init
END
chmod 755 "$initramfs/init"
chroot "$tree" sh -c 'cd /tmp/initramfs && find . | cpio --quiet -o -H newc' | gzip -1 >"$tree/usr/lib/modules/$kernel/initramfs.img"
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

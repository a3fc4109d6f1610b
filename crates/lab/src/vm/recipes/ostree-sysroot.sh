# Deploys image A into a new OSTree system root. $1: the folder with `oci`; $2: the system root, made; $3: the program
# `ostree-container`.
set -eu
mkdir "$2"
ostree admin init-fs --modern "$2"
ostree admin --sysroot="$2" os-init debian
# GRUB reads the Boot Loader Specification entries by itself.
ostree config --repo="$2/ostree/repo" set sysroot.bootloader none
ostree config --repo="$2/ostree/repo" set sysroot.readonly true
"$3" container image deploy --sysroot "$2" --stateroot debian --imgref "ostree-unverified-image:oci:$1/oci:a" \
    --target-imgref ostree-unverified-registry:10.0.2.2/lab/os:a --karg=root=LABEL=root --karg=rw --karg=console=ttyS0 \
    --karg=no_timer_check --karg=tsc=reliable --karg=mitigations=off --karg=cryptomgr.notests --karg=systemd.status_unit_format=name \
    >/dev/null
mkdir -p "$2/boot/grub"
cat >"$2/boot/grub/grub.cfg" <<'END'
serial --speed=115200
terminal_input serial
terminal_output serial
search --no-floppy --label boot --set=root
set timeout=0
set default=0
blscfg
END

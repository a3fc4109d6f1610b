# What an OSTree machine has beside `machine.sh`, and a package for its second image. $1: the root.
set -eu
mkdir -p "$1/etc/containers/registries.conf.d"
# qemu's user network: this computer, on whichever port the registry listens.
printf '[[registry]]\nprefix = "10.0.2.2"\nlocation = "10.0.2.2"\ninsecure = true\n' \
    >"$1/etc/containers/registries.conf.d/10-lab.conf"
(cd "$1/usr/src" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -qq download hello && mv hello_*.deb hello.deb)

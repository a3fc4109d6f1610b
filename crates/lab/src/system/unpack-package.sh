# Unpacks the Debian package $1 into the folder $2 without installing it. If the machine has no package lists yet, it downloads
# its own into that folder: that needs no root and waits for no lock.
set -e
cd "$2"
apt-get download -q "$1" || {
    mkdir -p lists/partial cache/archives/partial
    own="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache -o APT::Sandbox::User="
    apt-get -qq $own update
    apt-get -q $own download "$1"
}
dpkg-deb -x "$1"_*.deb .

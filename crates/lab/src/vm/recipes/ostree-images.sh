# Makes the images A, B and C and puts them into the storage of a registry. B is A with another version, one more file, one
# more package, and a file of 12 MB that cannot be compressed: a pull takes long enough to be cut. C is B with a kubelet that
# cannot start. What all have is in layers of its own, and so is what B and C share: a machine pulls only what it has not.
# $1: the tree of A, which becomes that of C; $2: the folder for `registry` and `oci`; $3: a free port.
set -eu
tree=$1 out=$2 port=$3
scratch=$out/scratch
program=$tree/usr/libexec/libostree/ext/ostree-container
mkdir "$scratch"
ostree --repo="$scratch/repo" init --mode=archive
commit() {
    # What dpkg keeps of the state before would be a file of A at another path of B: the layer of what all have would not be the
    # same, and a machine would pull all of it.
    rm -f "$tree"/usr/lib/sysimage/dpkg/*-old
    echo "$1" | tr a-z A-Z >"$tree/usr/share/lab/version"
    ostree --repo="$scratch/repo" commit --branch="lab/$1" --tree=dir="$tree" --bootable --no-xattrs \
        --add-metadata-string=version="$1" >/dev/null
    ostree --repo="$scratch/repo" ls -R -C "lab/$1" / | awk '$1 !~ /^d/ { print $5 }' | sort -u >"$scratch/objects-$1"
}
commit a
echo 'only in B' >"$tree/usr/share/lab/b"
head -c 12000000 /dev/urandom >"$tree/usr/share/lab/large"
# dpkg knows the system's groups by /etc.
mv "$tree/usr/etc" "$tree/etc"
dpkg --root="$tree" --admindir="$tree/usr/lib/sysimage/dpkg" -i "$tree/usr/src/hello.deb" >/dev/null
mv "$tree/etc" "$tree/usr/etc"
commit b
printf '#!/bin/sh\necho "this kubelet does not run on this machine" >&2\nexit 1\n' >"$tree/usr/bin/kubelet"
commit c
for image in a b c; do
    # Which object is in which layer, as rpm-ostree writes it for its own images.
    awk -v a="$scratch/objects-a" -v b="$scratch/objects-b" -v c="$scratch/objects-c" '
        function read(file, into) { while ((getline object < file) > 0) into[object] = 1 }
        function layer(object) {
            # Two halves: with fewer than three layers `encapsulate` fails.
            if ((object in of_a) && (object in of_b) && (object in of_c)) return object ~ /^[0-7]/ ? "all-0" : "all-8"
            return (object in of_b) && (object in of_c) ? "later" : "unpackaged"
        }
        BEGIN { read(a, of_a); read(b, of_b); read(c, of_c) }
        {
            name = layer($1)
            if (!(name in seen)) names = names (names ? "," : "") "\"" name "\":\"" name "\""
            seen[name] = 1
            mapping[NR] = "\"" $1 "\":\"" name "\""
        }
        END {
            printf "{\"version\":1,\"layers\":{%s},\"mapping\":{", names
            for (i = 1; i <= NR; i++) printf "%s%s", (i > 1 ? "," : ""), mapping[i]
            printf "}}"
        }' \
        "$scratch/objects-$image" >"$scratch/layers-$image"
    "$program" container encapsulate --repo="$scratch/repo" --contentmeta "$scratch/layers-$image" --compression-fast \
        "lab/$image" "oci:$out/oci:$image" >/dev/null
done
large=$(find "$out/oci/blobs" -size +20M | wc -l)
[ "$large" = 2 ] || { echo "the two layers of what all have are $large" >&2; exit 1; }
cat >"$scratch/config.yml" <<END
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $out/registry}}
http: {addr: "127.0.0.1:$port"}
END
docker-registry serve "$scratch/config.yml" 2>"$scratch/log" &
registry=$!
trap 'kill $registry' EXIT
for image in a b c; do
    skopeo copy --quiet --insecure-policy --retry-times 5 --dest-tls-verify=false "oci:$out/oci:$image" \
        "docker://127.0.0.1:$port/lab/os:$image" || { cat "$scratch/log" >&2; exit 1; }
done
rm -rf "$scratch"

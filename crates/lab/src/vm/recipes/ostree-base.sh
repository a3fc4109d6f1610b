# Makes the base of images that are built in a cluster: image A, and a layer with what a build needs and Debian's image has not: jq
# and Ignition. $1: the folder in OCI's layout with `a`; $2: the folder for `oci`, with the image `base`.
#
# Debian's Ignition knows no spec after 3.3, and rendered configs are of a later one: the file with its name says an older version
# and runs it. What the tests' configs ask for is in both.
set -eu
in=$1 out=$2 files=$2/files oci=$2/oci
library=usr/lib/x86_64-linux-gnu
ignition=usr/lib/dracut/modules.d/30ignition
mkdir -p "$files/usr/bin" "$files/$library" "$files/$ignition" "$oci/blobs/sha256"
cp /usr/bin/jq "$files/usr/bin/"
cp -L "/$library/libjq.so.1" "/$library/libonig.so.5" "$files/$library/"
cp "/$ignition/ignition" "$files/$ignition/ignition.debian"
cat >"$files/$ignition/ignition" <<'END'
#!/bin/bash
for config; do :; done
sed -i 's/"version": *"3\.[0-9]*\.[0-9]*"/"version": "3.3.0"/' "$config"
exec -a ignition-apply "$0.debian" "$@"
END
chmod 755 "$files/$ignition/ignition"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$files" -cf "$out/layer" usr
sum() { sha256sum "$1" | cut -d ' ' -f 1; }
inside=$(sum "$out/layer")
gzip -n "$out/layer"
# Takes a file as a blob; prints its digest and size.
blob() {
    digest=$(sum "$1") size=$(stat -c %s "$1")
    mv "$1" "$oci/blobs/sha256/$digest"
    echo "{\"digest\":\"sha256:$digest\",\"size\":$size}"
}
of_a=$(jq -r '.manifests[] | select(.annotations["org.opencontainers.image.ref.name"] == "a").digest | split(":")[1]' "$in/index.json")
jq -r '.config.digest, .layers[].digest | split(":")[1]' "$in/blobs/sha256/$of_a" | while read -r digest; do
    cp "$in/blobs/sha256/$digest" "$oci/blobs/sha256/"
done
layer=$(blob "$out/layer.gz")
config=$(jq -r '.config.digest | split(":")[1]' "$in/blobs/sha256/$of_a")
jq -c --arg inside "sha256:$inside" '.rootfs.diff_ids += [$inside] | .history += [{"created_by": "jq and Ignition"}]' \
    "$in/blobs/sha256/$config" >"$out/config"
config=$(blob "$out/config")
jq -c --argjson layer "$layer" --argjson config "$config" \
    '.config += $config | .layers += [$layer + {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}]' \
    "$in/blobs/sha256/$of_a" >"$out/manifest"
manifest=$(blob "$out/manifest")
jq -n -c --argjson manifest "$manifest" '{"schemaVersion": 2, "manifests": [$manifest + {
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "annotations": {"org.opencontainers.image.ref.name": "base"}}]}' >"$oci/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$oci/oci-layout"
rm -rf "$files"

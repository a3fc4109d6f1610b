# What the pod of a build runs, in bash: pulls the base, builds, pushes, asks the registry for what was pushed, signs it if that is
# wanted, and reports the digest. It ends with 64 if another try would end the same way, and with 65 if its time is over.
#
# A refusal does not say "Secret NAME": the filter for secrets would take the name for one, and hide the line.
#
# Where the image has a user `build` who may map users, that user builds, and root does not. What needs root comes before.
set -euo pipefail
remedy="then set the annotation machineconfiguration.openshift.io/rebuild on the MachineOSConfig"
refuse() { echo "$1" >&2; exit 64; }
credentials() {
  if [ -s "$1/.dockerconfigjson" ]; then
    cp "$1/.dockerconfigjson" "$2"
  elif [ -s "$1/.dockercfg" ]; then
    { printf '{"auths":'; cat "$1/.dockercfg"; printf '}'; } > "$2"
  else
    return 1
  fi
}
credentials /tmp/secrets/push "$FINAL_IMAGE_PUSH_CREDS" ||
  refuse "cannot push: $BUILD_NAMESPACE/$PUSH_SECRET is not there, or has neither .dockerconfigjson nor .dockercfg; create it, $remedy"
key=/tmp/secrets/signing/cosign.key
if [ -n "${SIGNING_SECRET:-}" ]; then
  [ -s "$key" ] ||
    refuse "cannot sign the image: $BUILD_NAMESPACE/$SIGNING_SECRET is not there, or has no cosign.key; create it, $remedy"
  command -v skopeo >/dev/null ||
    refuse "cannot sign the image: the builder's image has no skopeo; use one that has, as the project's own, $remedy"
fi
pull=()
if credentials /tmp/secrets/pull "$BASE_IMAGE_PULL_CREDS"; then
  pull=(--authfile "$BASE_IMAGE_PULL_CREDS")
elif [ -n "${PULL_SECRET_REQUIRED:-}" ]; then
  refuse "cannot pull the base image: $BUILD_NAMESPACE/$PULL_SECRET_REQUIRED is not there, or has neither .dockerconfigjson nor .dockercfg; create it, $remedy"
fi
certificates=()
if [ -s /tmp/service-ca/service-ca.crt ]; then
  mkdir -p "$HOME/certificates"
  cp /tmp/service-ca/service-ca.crt "$HOME/certificates/"
  # buildah looks into one folder only.
  for registry in /etc/docker/certs.d/*/; do
    if [ -s "$registry/ca.crt" ]; then cp -L "$registry/ca.crt" "$HOME/certificates/$(basename "$registry").crt"; fi
  done
  certificates=(--cert-dir "$HOME/certificates")
fi
# Layers of earlier builds. They are pushed with the push secret, and buildah takes one file for all that it pulls and pushes.
cache=()
if [ -n "${LAYER_CACHE:-}" ] && ! command -v jq >/dev/null; then
  echo "no layer is cached in $LAYER_CACHE: the builder's image has no jq" >&2
elif [ -n "${LAYER_CACHE:-}" ]; then
  if [ "${#pull[@]}" = 0 ]; then echo '{}' > "$BASE_IMAGE_PULL_CREDS"; fi
  both=$(jq --arg at "$LAYER_CACHE" --slurpfile push "$FINAL_IMAGE_PUSH_CREDS" '
    def name: sub("^https?://"; "") | sub("/(v[12]/?)?$"; "") | if . == "index.docker.io" then "docker.io" else . end;
    ($at | split("/")) as $path
    | ($push[0].auths // {} | with_entries(.key |= name)) as $known
    | first(range($path | length; 0; -1) | $path[:.] | join("/") | $known[.] // empty) as $entry
    | .auths[$at] = $entry' "$BASE_IMAGE_PULL_CREDS")
  if [ -n "$both" ]; then printf '%s' "$both" > "$BASE_IMAGE_PULL_CREDS"; fi
  pull=(--authfile "$BASE_IMAGE_PULL_CREDS")
  cache=(--cache-to "$LAYER_CACHE")
  # Older layers lack what has been mended in their packages since.
  if [ -z "${FRESH_LAYERS:-}" ]; then cache+=(--cache-from "$LAYER_CACHE" --cache-ttl 168h); fi
fi
context=$HOME/context
mkdir -p "$context"
cp /tmp/containerfile/Containerfile /tmp/machineconfig/machineconfig.json.gz "$context/"
if [ -s /etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt ]; then
  cp /etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt "$context/"
  if ! command -v update-ca-trust >/dev/null; then
    # Debian's way, with a folder of its own.
    update-ca-trust() { cp "$context/openshift-config-user-ca-bundle.crt" /usr/local/share/ca-certificates/cluster.crt && update-ca-certificates; }
  fi
  update-ca-trust || echo "the cluster's certificate authorities could not be added to this pod's" >&2
fi
volumes=()
for folder in /etc/pki/entitlement /etc/yum.repos.d /etc/pki/rpm-gpg; do
  # A volume of a Secret that is not there has entries too, whose names begin with dots.
  if compgen -G "/tmp/optional$folder/*" >/dev/null; then
    mkdir -p "$HOME/volumes$folder"
    cp -L "/tmp/optional$folder"/* "$HOME/volumes$folder/"
    volumes+=(--volume "$HOME/volumes$folder:$folder:z,rw")
  fi
done
arguments=()
for name in HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  if [ -n "${!name:-}" ]; then arguments+=(--build-arg "$name=${!name}"); fi
done
# What was built here needs no signature to leave; what is pulled needs those that the nodes' policy asks for.
printf '{"default":[{"type":"insecureAcceptAnything"}]}' > "$HOME/built-here.json"

# Without a whole map of users buildah goes on with one user, and fails at the first file of another one.
as=()
maps() { "${as[@]}" buildah unshare bash -c 'n=0; while read -r _ _ count; do n=$((n + count)); done < /proc/self/uid_map; [ "$n" -gt 65000 ]' >/dev/null 2>&1; }
if [ "$(id -u)" = 0 ] && id build >/dev/null 2>&1 && command -v setpriv >/dev/null; then
  as=(setpriv --reuid build --regid build --init-groups)
  chown -R build:build "$HOME" /tmp/done "${BASE_IMAGE_PULL_CREDS%/*}" "${FINAL_IMAGE_PUSH_CREDS%/*}"
  if ! maps; then
    as=()
    chown -R "$(id -u):$(id -g)" "$HOME" /tmp/done "${BASE_IMAGE_PULL_CREDS%/*}" "${FINAL_IMAGE_PUSH_CREDS%/*}"
  fi
fi
if [ "${#as[@]}" = 0 ] && ! maps; then
  echo "node ${NODE_NAME:-} lets this pod make no user namespaces, without which nothing can be built: see its settings user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns, and the seccomp and AppArmor profiles of its runtime" >&2
  exit 1
fi
# A layer of overlay holds what has changed, one of vfs a copy of everything below it.
export STORAGE_DRIVER=vfs
if STORAGE_DRIVER=overlay "${as[@]}" buildah info >/dev/null 2>&1; then STORAGE_DRIVER=overlay; fi
echo "building as user $("${as[@]}" id -u), layers with $STORAGE_DRIVER" >&2

# Under what is left of the build's time, whichever of its pods this is: the last lines of a log are lost when the Job's own deadline
# deletes the pod. A clock that is behind gives no pod more than all of it.
end=$(($END_SECONDS - $(date +%s) + SECONDS))
if [ "$end" -gt "$LIMIT_SECONDS" ]; then end=$LIMIT_SECONDS; fi
limited() {
  local left=$((end - SECONDS)) code=0
  timeout --kill-after=10 "$((left > 1 ? left : 1))" "${as[@]}" "$@" || code=$?
  if [ "$code" = 124 ] || [ "$code" = 137 ] && [ "$SECONDS" -ge "$end" ]; then
    echo "$1 $2 did not end within $((LIMIT_SECONDS / 60)) minutes of the build's start; look for a registry or a command that hangs, $remedy" >&2
    exit 65
  fi
  return "$code"
}
# A pod of this build that came before has found out what the tag names: the same image for all of them.
named=$BASE_OS_IMAGE_PULLSPEC
if [ -s /tmp/base/image ]; then BASE_OS_IMAGE_PULLSPEC=$(cat /tmp/base/image); fi
limited buildah pull --quiet --policy missing "${pull[@]}" "${certificates[@]}" "$BASE_OS_IMAGE_PULLSPEC" >/dev/null ||
  { echo "the base image could not be pulled from $BASE_OS_IMAGE_PULLSPEC" >&2; exit 1; }
lacks=$("${as[@]}" buildah unshare bash -c '
  set -e
  container=$(buildah from --quiet --pull-never "$BASE_OS_IMAGE_PULLSPEC")
  root=$(buildah mount "$container")
  has() { local path; for path in "$root"/$1; do if [ -e "$path" ] || [ -L "$path" ]; then return; fi; done; printf ", %s" "${1/\*/VERSION}"; }
  has usr/lib/modules/*/vmlinuz
  has usr/bin/ostree
  has usr/bin/jq
  has usr/lib/dracut/modules.d/30ignition/ignition
  buildah umount "$container" >/dev/null
  buildah rm "$container" >/dev/null')
[ -z "$lacks" ] ||
  refuse "the base image $BASE_OS_IMAGE_PULLSPEC is no OS image that a node can boot: it has no ${lacks#, }; set osImageURL to one that has, as CoreOS images have"
# A tag may name another image by the time that a later stage begins.
case $named in
  *@*) ;;
  *)
    base=$BASE_OS_IMAGE_PULLSPEC
    if [ "$base" = "$named" ]; then
      base=$BASE_NAME@$("${as[@]}" buildah inspect --type image --format '{{.FromImageDigest}}' "$named")
    fi
    sed -i "s|^FROM $named AS |FROM $base AS |; s|^LABEL baseOSContainerImage=.*|LABEL baseOSContainerImage=$base|" \
      "$context/Containerfile"
    echo "$BUILT_FROM $base" >&2
    # The last line of a pod that fails: the controller gives it to the next one.
    trap 'code=$?; if [ "$code" != 0 ]; then echo "$BUILT_FROM $base" >&2; fi; exit "$code"' EXIT
    ;;
esac
limited buildah bud --layers "${cache[@]}" "${pull[@]}" "${certificates[@]}" "${volumes[@]}" "${arguments[@]}" \
  --tag "$TAG" --file "$context/Containerfile" "$context"
push=(--authfile "$FINAL_IMAGE_PUSH_CREDS" "${certificates[@]}" --signature-policy "$HOME/built-here.json")
limited buildah push "${push[@]}" --digestfile /tmp/done/digestfile "$TAG" || { echo "$NOT_PUSHED $TAG" >&2; exit 1; }
digest=$(cat /tmp/done/digestfile)
# What nodes will ask for. It is refused if its bytes are not those of the digest; layers that are here are not pulled.
there=$(limited buildah pull --quiet --policy always "${push[@]}" "${TAG%:*}@$digest") || {
  # `exit` in a substitution ends only that.
  if [ "$?" = 65 ]; then exit 65; fi
  echo "the registry took the image, and does not give it back by its digest $digest" >&2
  echo "$NOT_PUSHED $TAG" >&2
  exit 1
}
built=$("${as[@]}" buildah inspect --type image --format '{{.FromImageID}}' "$TAG")
[ "$there" = "$built" ] ||
  { echo "the registry has another image under $digest than was built: $there, not $built" >&2; echo "$NOT_PUSHED $TAG" >&2; exit 1; }
if [ -n "${SIGNING_SECRET:-}" ]; then
  # Not as the user who builds: what a Containerfile runs cannot read the key.
  as=()
  mkdir -p "$HOME/registries.d"
  printf 'default-docker:\n  use-sigstore-attachments: true\n' > "$HOME/registries.d/attach.yaml"
  umask 077
  cat /tmp/secrets/signing/cosign.password > /tmp/done/passphrase 2>/dev/null || : > /tmp/done/passphrase
  certificates=("${certificates[@]/#--cert-dir/--src-cert-dir}" "${certificates[@]/#--cert-dir/--dest-cert-dir}")
  limited skopeo copy --quiet --policy "$HOME/built-here.json" --registries.d "$HOME/registries.d" --preserve-digests \
    --authfile "$FINAL_IMAGE_PUSH_CREDS" "${certificates[@]}" --sign-by-sigstore-private-key "$key" \
    --sign-passphrase-file /tmp/done/passphrase "docker://${TAG%:*}@$digest" "docker://$TAG" ||
    { echo "$NOT_SIGNED $BUILD_NAMESPACE/$SIGNING_SECRET" >&2; exit 1; }
  rm -f /tmp/done/passphrase
  echo "signed $TAG" >&2
fi
printf '%s%s' "$DIGEST_PREFIX" "$digest" > /dev/termination-log

# What the pod of a build runs, in bash: pulls the base, builds, pushes, asks the registry for what was pushed, and reports the
# digest. It ends with 64 if another try would end the same way, and with 65 if its time is over.
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

# Under what is left of the time: the last lines of a log are lost when the Job's own deadline deletes the pod.
limited() {
  local left=$((LIMIT_SECONDS - SECONDS)) code=0
  timeout --kill-after=10 "$((left > 1 ? left : 1))" "${as[@]}" "$@" || code=$?
  if [ "$code" = 124 ] || [ "$code" = 137 ] && [ "$SECONDS" -ge "$LIMIT_SECONDS" ]; then
    echo "buildah $2 did not end within $((LIMIT_SECONDS / 60)) minutes of this pod's start; look for a registry or a command that hangs, $remedy" >&2
    exit 65
  fi
  return "$code"
}
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
limited buildah bud --layers "${pull[@]}" "${certificates[@]}" "${volumes[@]}" "${arguments[@]}" \
  --tag "$TAG" --file "$context/Containerfile" "$context"
push=(--authfile "$FINAL_IMAGE_PUSH_CREDS" "${certificates[@]}" --signature-policy "$HOME/built-here.json")
limited buildah push "${push[@]}" --digestfile /tmp/done/digestfile "$TAG" || { echo "$NOT_PUSHED $TAG" >&2; exit 1; }
digest=$(cat /tmp/done/digestfile)
# What nodes will ask for. It is refused if its bytes are not those of the digest; layers that are here are not pulled.
there=$(limited buildah pull --quiet --policy always "${push[@]}" "${TAG%:*}@$digest") ||
  { echo "the registry took the image, and does not give it back by its digest $digest" >&2; echo "$NOT_PUSHED $TAG" >&2; exit 1; }
built=$("${as[@]}" buildah inspect --type image --format '{{.FromImageID}}' "$TAG")
[ "$there" = "$built" ] ||
  { echo "the registry has another image under $digest than was built: $there, not $built" >&2; echo "$NOT_PUSHED $TAG" >&2; exit 1; }
printf '%s%s' "$DIGEST_PREFIX" "$digest" > /dev/termination-log

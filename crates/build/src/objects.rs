//! The objects of a build: its ConfigMaps, and the Job whose pod runs buildah.
//!
//! The pod has no credentials for the API server: what a user's Containerfile runs cannot use any. It reports the digest in
//! its termination message. The Secrets to pull and push with are mounted, not copied, so the controller needs no right to
//! read them; a missing one fails the build at once, with its name.
//!
//! What it is not: when a build is started (see `plan`).

use crate::containerfile::{self, ContainerfileError};
use crate::names;
use crate::report::{CONTAINER, DIGEST, NOT_PUSHED};
use api::k8s::ConfigMap;
use api::names::{BUILDER_ACCOUNT, NAMESPACE, SERVICE_CA, annotation};
use api::v1::{ControllerConfigSpec, MachineConfig, MachineOSBuild, MachineOSConfig};
use base64::Engine as _;
use ignition::Resource;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;

/// How long a build may take, in seconds. Large images on slow registries take half an hour; what takes four times as long
/// hangs.
pub const DEADLINE_SECONDS: i64 = 2 * 60 * 60;
/// The exit code of a build that must not be tried again: its input is wrong.
pub const BAD_INPUT: i32 = 64;
/// The most bytes of a packed MachineConfig: etcd's limit for a ConfigMap is 1 MiB, with its metadata.
const MAX_PACKED: usize = 1_000_000;
/// The rendered MachineConfig in a build's context.
pub const MACHINE_CONFIG: &str = "machineconfig.json.gz";
/// The cluster's own certificate authorities in a build's context.
pub const BUNDLE: &str = "openshift-config-user-ca-bundle.crt";

/// Why a build's objects cannot be made. Trying again does not help.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The Containerfile.
    #[error(transparent)]
    Containerfile(#[from] ContainerfileError),
    /// Too large for a ConfigMap.
    #[error(
        "rendered MachineConfig {name} is too large for an image build: {size} bytes packed, and a ConfigMap holds \
         {MAX_PACKED}; put large files into the Containerfile"
    )]
    TooLarge {
        /// The rendered MachineConfig.
        name: String,
        /// Its packed size.
        size: usize,
    },
    /// It cannot be written as JSON, or packed.
    #[error("rendered MachineConfig {name} cannot be packed: {why}")]
    Pack {
        /// The rendered MachineConfig.
        name: String,
        /// Why.
        why: String,
    },
}

/// What the objects are made from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The build.
    pub build: &'a MachineOSBuild,
    /// The MachineOSConfig that asked for it.
    pub config: &'a MachineOSConfig,
    /// The rendered MachineConfig, complete.
    pub rendered: &'a MachineConfig,
    /// The cluster's proxy and certificate authorities.
    pub cluster: Option<&'a ControllerConfigSpec>,
    /// The image that holds bash and buildah.
    pub builder: &'a str,
}

/// What an image is built from: the files that buildah's context has, and those of `/etc/containers` that it reads. The same in a
/// Job and on a laptop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The Containerfile.
    pub containerfile: String,
    /// [`MACHINE_CONFIG`]: the rendered MachineConfig, packed.
    pub machine_config: String,
    /// [`BUNDLE`]: the cluster's own certificate authorities.
    pub trust_bundle: Option<Vec<u8>>,
    /// `policy.json` of the nodes: which signatures an image must have.
    pub policy: Option<String>,
    /// `registries.conf` of the nodes: mirrors.
    pub registries: Option<String>,
}

/// The context of a build for a pool. `user`: the Containerfile of the MachineOSConfig.
///
/// # Errors
/// An input that cannot be built, however often it is tried.
pub fn context(
    pool: &str,
    user: &str,
    rendered: &MachineConfig,
    cluster: Option<&ControllerConfigSpec>,
) -> Result<Context, ObjectsError> {
    let bundle = cluster.and_then(|c| c.additional_trust_bundle.as_ref());
    let trust_bundle = bundle.map(|b| b.0.clone()).filter(|b| !b.is_empty());
    let rendered_name = rendered.metadata.name.as_deref().unwrap_or_default();
    let containerfile = containerfile::render(containerfile::Inputs {
        pool,
        rendered: rendered_name,
        spec: &rendered.spec,
        trust_bundle: trust_bundle.is_some(),
        user,
    })?;
    Ok(Context {
        containerfile,
        machine_config: pack(rendered)?,
        trust_bundle,
        policy: file(rendered, "/etc/containers/policy.json"),
        registries: file(rendered, "/etc/containers/registries.conf"),
    })
}

/// The objects, in the order in which they are created.
#[derive(Debug, Clone)]
pub struct Objects {
    /// The ConfigMaps.
    pub config_maps: Vec<ConfigMap>,
    /// The Job.
    pub job: Value,
}

/// The objects of a build.
///
/// # Errors
/// An input that cannot be built, however often it is tried.
pub fn of(inputs: Inputs<'_>) -> Result<Objects, ObjectsError> {
    let Inputs { pool, build, config, rendered, cluster, builder: _ } = inputs;
    let name = build.metadata.name.clone().unwrap_or_default();
    let Context { containerfile, machine_config, trust_bundle, policy, registries } =
        context(pool, config.spec.containerfile(), rendered, cluster)?;
    let map = |map_name: String, data: BTreeMap<&str, String>| {
        let data: BTreeMap<String, String> = data.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        ConfigMap { metadata: metadata(pool, build, &map_name), data: Some(data), ..ConfigMap::default() }
    };
    let one = |key, value| BTreeMap::from([(key, value)]);
    let mut config_maps = vec![
        map(names::containerfile(&name), one("Containerfile", containerfile)),
        map(names::machine_config(&name), one(MACHINE_CONFIG, machine_config)),
    ];
    if let Some(bundle) = trust_bundle {
        let mut one = map(names::trust_bundle(&name), BTreeMap::new());
        let bundle = api::k8s::ByteString(bundle);
        one.data = None;
        one.binary_data = Some(BTreeMap::from([(BUNDLE.to_owned(), bundle)]));
        config_maps.push(one);
    }
    for (content, map_name, key) in [
        (policy, names::policy(&name), "policy.json"),
        (registries, names::registries(&name), "registries.conf"),
    ] {
        if let Some(content) = content {
            config_maps.push(map(map_name, one(key, content)));
        }
    }
    let there = |map: String| config_maps.iter().any(|m| m.metadata.name.as_deref() == Some(&map));
    let files = [
        (there(names::policy(&name)), "etc-policy", names::policy(&name), "policy.json"),
        (there(names::registries(&name)), "etc-registries", names::registries(&name), "registries.conf"),
    ];
    let job =
        job(inputs, &files.into_iter().filter(|f| f.0).map(|(_, v, m, k)| (v, m, k)).collect::<Vec<_>>());
    Ok(Objects { config_maps, job })
}

/// An object that was there before it was to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOver {
    /// Of this build.
    SameBuild,
    /// Of an earlier build of the same name: it may hold another config.
    EarlierBuild {
        /// The object's own uid.
        uid: String,
    },
    /// Of something else.
    Foreign,
}

/// Whose an object is that has the name of one of a build's own.
pub fn left_over(build: &MachineOSBuild, found: &api::k8s::ObjectMeta) -> LeftOver {
    let owner = found.owner_references.iter().flatten().find(|o| o.kind == "MachineOSBuild");
    match owner {
        Some(o) if Some(&o.uid) == build.metadata.uid.as_ref() => LeftOver::SameBuild,
        Some(o) if Some(&o.name) == build.metadata.name.as_ref() => {
            LeftOver::EarlierBuild { uid: found.uid.clone().unwrap_or_default() }
        }
        _ => LeftOver::Foreign,
    }
}

fn metadata(pool: &str, build: &MachineOSBuild, name: &str) -> api::k8s::ObjectMeta {
    let owner = api::k8s::OwnerReference {
        api_version: format!("{}/v1", api::names::GROUP),
        kind: "MachineOSBuild".to_owned(),
        name: build.metadata.name.clone().unwrap_or_default(),
        uid: build.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let notes = [
        (names::OS_CONFIG, build.spec.machine_os_config.name.clone()),
        (names::OS_BUILD, build.metadata.name.clone().unwrap_or_default()),
    ];
    api::k8s::ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some(names::object_labels(pool, build)),
        annotations: Some(notes.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        owner_references: Some(vec![owner]),
        ..api::k8s::ObjectMeta::default()
    }
}

/// A MachineConfig as base64 of gzip of JSON.
fn pack(rendered: &MachineConfig) -> Result<String, ObjectsError> {
    let name = rendered.metadata.name.clone().unwrap_or_default();
    let mut object = rendered.clone();
    object.metadata.managed_fields = None;
    if let Some(notes) = &mut object.metadata.annotations {
        notes.remove(annotation::PROVENANCE);
    }
    let why = |e: std::io::Error| ObjectsError::Pack { name: name.clone(), why: e.to_string() };
    let json = serde_json::to_vec(&object)
        .map_err(|e| ObjectsError::Pack { name: name.clone(), why: e.to_string() })?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&json).map_err(why)?;
    let packed = base64::engine::general_purpose::STANDARD.encode(gzip.finish().map_err(why)?);
    if packed.len() > MAX_PACKED {
        return Err(ObjectsError::TooLarge { name, size: packed.len() });
    }
    Ok(packed)
}

/// The text of a file of a MachineConfig; `None` if it has no such file, or one that cannot be read here.
pub fn file(rendered: &MachineConfig, path: &str) -> Option<String> {
    let files = rendered.spec.config.as_ref()?.pointer("/storage/files")?.as_array()?;
    let contents = files.iter().rev().find(|f| f["path"] == path)?.get("contents")?;
    let bytes = Resource::deserialize(contents).ok()?.decode().ok()?;
    String::from_utf8(bytes).ok()
}

/// What the pod runs. It ends with [`BAD_INPUT`] if another try would end the same way. A refusal does not say "Secret NAME":
/// the filter for secrets would take the name for one, and hide the line.
///
/// Where the image has a user `build` who may make user namespaces, he builds, and root does not. What needs root comes before.
const SCRIPT: &str = r#"set -euo pipefail
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
  refuse "cannot push: $BUILD_NAMESPACE/$PUSH_SECRET is not there, or has neither .dockerconfigjson nor .dockercfg; create it, then set the annotation machineconfiguration.openshift.io/rebuild on the MachineOSConfig"
pull=()
if credentials /tmp/secrets/pull "$BASE_IMAGE_PULL_CREDS"; then
  pull=(--authfile "$BASE_IMAGE_PULL_CREDS")
elif [ -n "${PULL_SECRET_REQUIRED:-}" ]; then
  refuse "cannot pull the base image: $BUILD_NAMESPACE/$PULL_SECRET_REQUIRED is not there, or has neither .dockerconfigjson nor .dockercfg; create it, then set the annotation machineconfiguration.openshift.io/rebuild on the MachineOSConfig"
fi
certificates=()
if [ -s /tmp/service-ca/service-ca.crt ]; then
  mkdir -p "$HOME/certificates"
  cp /tmp/service-ca/service-ca.crt "$HOME/certificates/"
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
  if [ -n "$(ls -A "/tmp/optional$folder" 2>/dev/null)" ]; then
    mkdir -p "$HOME/volumes$folder"
    cp -L "/tmp/optional$folder"/* "$HOME/volumes$folder/"
    volumes+=(--volume "$HOME/volumes$folder:$folder:z,rw")
  fi
done
arguments=()
for name in HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  if [ -n "${!name:-}" ]; then arguments+=(--build-arg "$name=${!name}"); fi
done
as=()
if [ "$(id -u)" = 0 ] && id build >/dev/null 2>&1 && command -v setpriv >/dev/null; then
  user=(setpriv --reuid build --regid build --init-groups)
  if "${user[@]}" buildah unshare true >/dev/null 2>&1; then
    as=("${user[@]}")
    chown -R build:build "$HOME" /tmp/done "${BASE_IMAGE_PULL_CREDS%/*}" "${FINAL_IMAGE_PUSH_CREDS%/*}"
  fi
fi
echo "building as user $("${as[@]}" id -u)" >&2
"${as[@]}" buildah bud --storage-driver vfs --layers "${pull[@]}" "${certificates[@]}" "${volumes[@]}" "${arguments[@]}" \
  --tag "$TAG" --file "$context/Containerfile" "$context"
"${as[@]}" buildah push --storage-driver vfs --authfile "$FINAL_IMAGE_PUSH_CREDS" "${certificates[@]}" \
  --digestfile /tmp/done/digestfile "$TAG" || { echo "$NOT_PUSHED $TAG" >&2; exit 1; }
printf '%s%s' "$DIGEST_PREFIX" "$(cat /tmp/done/digestfile)" > /dev/termination-log
"#;

/// The Job. `files`: volume, ConfigMap and key of each file that is put into `/etc/containers` of the pod.
fn job(inputs: Inputs<'_>, files: &[(&str, String, &str)]) -> Value {
    let Inputs { pool, build, config, rendered, cluster, builder } = inputs;
    let name = build.metadata.name.clone().unwrap_or_default();
    let labels = names::object_labels(pool, build);
    let push = &config.spec.rendered_image_push_secret.name;
    let pull = config.spec.base_image_pull_secret.as_ref().map(|s| s.name.as_str());
    let mut env = vec![
        ("HOME", "/home/build"),
        ("TAG", build.spec.rendered_image_push_spec.as_str()),
        ("BASE_IMAGE_PULL_CREDS", "/tmp/base-image-pull-creds/config.json"),
        ("FINAL_IMAGE_PUSH_CREDS", "/tmp/final-image-push-creds/config.json"),
        ("BUILDAH_ISOLATION", "chroot"),
        ("BASE_OS_IMAGE_PULLSPEC", rendered.spec.os_image_url.as_str()),
        ("BUILD_NAMESPACE", NAMESPACE),
        ("PUSH_SECRET", push),
        ("DIGEST_PREFIX", DIGEST),
        ("NOT_PUSHED", NOT_PUSHED),
    ];
    env.extend(pull.map(|pull| ("PULL_SECRET_REQUIRED", pull)));
    if let Some(proxy) = cluster.and_then(|c| c.proxy.as_ref()) {
        let all = [
            ("HTTP_PROXY", &proxy.http_proxy),
            ("HTTPS_PROXY", &proxy.https_proxy),
            ("NO_PROXY", &proxy.no_proxy),
        ];
        env.extend(all.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k, v.as_str())));
    }
    let env: Vec<Value> = env.into_iter().map(|(k, v)| json!({"name": k, "value": v})).collect();
    let secret =
        |volume: &str, name: &str| json!({"name": volume, "secret": {"secretName": name, "optional": true}});
    let map = |volume: &str, name: String, optional| json!({"name": volume, "configMap": {"name": name, "optional": optional}});
    let memory = |volume: &str| json!({"name": volume, "emptyDir": {"medium": "Memory"}});
    let disk = |volume: &str| json!({"name": volume, "emptyDir": {}});
    let at = |volume: &str, path: &str| json!({"name": volume, "mountPath": path});
    let file =
        |volume: &str, path: &str, key: &str| json!({"name": volume, "mountPath": path, "subPath": key});
    let mut mounts = vec![
        at("containerfile", "/tmp/containerfile"),
        at("machineconfig", "/tmp/machineconfig"),
        at("additional-trust-bundle", "/etc/pki/ca-trust/source/anchors"),
        at("pull-secret", "/tmp/secrets/pull"),
        at("push-secret", "/tmp/secrets/push"),
        at("base-image-pull-creds", "/tmp/base-image-pull-creds"),
        at("final-image-push-creds", "/tmp/final-image-push-creds"),
        at("done", "/tmp/done"),
        at("home", "/home/build"),
        at("buildah-cache", "/home/build/.local/share/containers"),
        at("entitlement", "/tmp/optional/etc/pki/entitlement"),
        at("rpm-gpg", "/tmp/optional/etc/pki/rpm-gpg"),
        at("yum-repos", "/tmp/optional/etc/yum.repos.d"),
        at("service-ca", "/tmp/service-ca"),
    ];
    let mut volumes = vec![
        map("containerfile", names::containerfile(&name), false),
        map("machineconfig", names::machine_config(&name), false),
        map("additional-trust-bundle", names::trust_bundle(&name), true),
        secret("pull-secret", pull.unwrap_or(names::DEFAULT_PULL_SECRET)),
        secret("push-secret", push),
        memory("base-image-pull-creds"),
        memory("final-image-push-creds"),
        memory("done"),
        disk("home"),
        disk("buildah-cache"),
        secret("entitlement", &format!("etc-pki-entitlement-{pool}")),
        secret("rpm-gpg", "etc-pki-rpm-gpg"),
        map("yum-repos", "etc-yum-repos-d".to_owned(), true),
        map("service-ca", SERVICE_CA.to_owned(), true),
    ];
    // Only where there is such a ConfigMap: without it the mount would be an empty folder in the file's place.
    for (volume, map_name, key) in files {
        volumes.push(map(volume, map_name.clone(), false));
        mounts.push(file(volume, &format!("/etc/containers/{key}"), key));
    }
    let pod = json!({
        // On OpenShift: root in the pod, and nothing of the host.
        "metadata": {"labels": labels, "annotations": {"openshift.io/required-scc": "anyuid"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": BUILDER_ACCOUNT,
            "terminationGracePeriodSeconds": 10,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{
                "name": CONTAINER,
                "image": builder,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/bash", "-c", SCRIPT],
                "env": env,
                "volumeMounts": mounts,
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }],
            "volumes": volumes,
        },
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(pool, build, &names::job(&name)),
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": crate::job::RETRIES,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "podFailurePolicy": {"rules": [{
                "action": "FailJob",
                "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [BAD_INPUT]},
            }]},
            "template": pod,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_objects_of_a_build_hold_its_input_and_no_credentials_of_the_cluster() {
        let rendered: MachineConfig = serde_json::from_value(json!({
            "metadata": {"name": "rendered-infra-1", "annotations": {annotation::PROVENANCE: "packed"}},
            "spec": {
                "osImageURL": "r.example.com/base@sha256:1",
                "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                    {"path": "/etc/containers/registries.conf", "contents": {"source": "data:,short-name-mode%20%3D%20%22enforcing%22"}},
                ]}},
            },
        }))
        .unwrap();
        let build: MachineOSBuild = serde_json::from_value(json!({
            "metadata": {"name": "infra-0", "uid": "u"},
            "spec": {
                "machineConfig": {"name": "rendered-infra-1"}, "machineOSConfig": {"name": "infra"},
                "renderedImagePushSpec": "r.example.com/os:infra-0",
            },
        }))
        .unwrap();
        let config: MachineOSConfig = serde_json::from_value(json!({
            "metadata": {"name": "infra"},
            "spec": {"renderedImagePushSecret": {"name": "push"}, "baseImagePullSecret": {"name": "pull"}},
        }))
        .unwrap();
        let cluster: ControllerConfigSpec = serde_json::from_value(json!({
            "additionalTrustBundle": "UEVN", "proxy": {"httpProxy": "http://proxy:3128", "httpsProxy": "", "noProxy": ""},
        }))
        .unwrap();
        let inputs = Inputs {
            pool: "infra",
            build: &build,
            config: &config,
            rendered: &rendered,
            cluster: Some(&cluster),
            builder: "buildah",
        };
        let Objects { config_maps, job } = of(inputs).unwrap();
        let names: Vec<_> = config_maps.iter().filter_map(|m| m.metadata.name.as_deref()).collect();
        assert_eq!(
            names,
            [
                "containerfile-infra-0",
                "mc-infra-0",
                "additionaltrustbundle-infra-0",
                "etc-registries-infra-0"
            ]
        );
        let data = config_maps[1].data.as_ref().unwrap();
        let packed =
            base64::engine::general_purpose::STANDARD.decode(&data["machineconfig.json.gz"]).unwrap();
        let mut json = String::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut json).unwrap();
        assert!(json.contains("registries.conf") && !json.contains("packed"), "{json}");
        assert_eq!(job["metadata"]["name"], "build-infra-0");
        assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "u");
        // Objects of these names that are there already.
        let found = |uid: &str| {
            let mut found = config_maps[0].metadata.clone();
            found.uid = Some("its own".to_owned());
            found.owner_references.as_mut().unwrap()[0].uid = uid.to_owned();
            found
        };
        assert_eq!(left_over(&build, &found("u")), LeftOver::SameBuild);
        let earlier = LeftOver::EarlierBuild { uid: "its own".to_owned() };
        assert_eq!(left_over(&build, &found("earlier")), earlier);
        assert_eq!(left_over(&build, &api::k8s::ObjectMeta::default()), LeftOver::Foreign);
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        // What OpenShift needs to let it run as root, and to trust the cluster's own registry.
        assert_eq!(pod["serviceAccountName"], "machine-os-builder");
        assert_eq!(job["spec"]["template"]["metadata"]["annotations"]["openshift.io/required-scc"], "anyuid");
        let authority = json!({"name": "openshift-service-ca.crt", "optional": true});
        assert!(pod["volumes"].as_array().unwrap().iter().any(|v| v["configMap"] == authority));
        let volumes = pod["volumes"].as_array().unwrap();
        let secret = |name: &str| volumes.iter().find(|v| v["secret"]["secretName"] == name).unwrap();
        assert!(secret("push")["secret"]["optional"] == true && secret("pull")["secret"]["optional"] == true);
        let mounted =
            volumes.iter().map(|v| v["name"].as_str().unwrap()).collect::<std::collections::BTreeSet<_>>();
        let container = &pod["containers"][0];
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert_eq!(
            mounts.iter().map(|m| m["name"].as_str().unwrap()).collect::<std::collections::BTreeSet<_>>(),
            mounted
        );
        let set =
            |name: &str| container["env"].as_array().unwrap().iter().find(|e| e["name"] == name).cloned();
        assert_eq!(set("HTTP_PROXY").unwrap()["value"], "http://proxy:3128");
        assert_eq!(set("HTTPS_PROXY"), None);
        // Every variable that the script reads without a default is set.
        for name in [
            "FINAL_IMAGE_PUSH_CREDS",
            "BASE_IMAGE_PULL_CREDS",
            "PUSH_SECRET",
            "BUILD_NAMESPACE",
            "HOME",
            "TAG",
            "DIGEST_PREFIX",
            "NOT_PUSHED",
        ] {
            assert!(SCRIPT.contains(&format!("${name}")) && set(name).is_some(), "{name}");
        }
        let deadline = job["spec"]["activeDeadlineSeconds"].as_i64();
        assert_eq!(deadline, Some(DEADLINE_SECONDS));
    }
}

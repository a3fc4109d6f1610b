//! The objects of a build: its ConfigMaps, and the Job whose pod runs buildah ([`pod`]).
//!
//! What it is not: what the image is built from (see `context`), or when a build is started (see `plan`).

mod context;
mod pod;

pub use context::{BUNDLE, Context, MACHINE_CONFIG, ObjectsError, context, file};

use crate::names;
use api::k8s::{ConfigMap, Time};
use api::names::NAMESPACE;
use api::v1::{ControllerConfigSpec, MachineConfig, MachineOSBuild, MachineOSConfig};
use serde_json::Value;
use std::collections::BTreeMap;

/// How long a build may take, in seconds. Large images on slow registries take half an hour; what takes four times as long
/// hangs.
pub const DEADLINE_SECONDS: i64 = 2 * 60 * 60;
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
    /// When the build begins: its time counts from then, whichever of its pods runs.
    pub now: &'a Time,
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
    let Inputs { pool, build, config, rendered, cluster, builder: _, now: _ } = inputs;
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
    let authorities = cluster.map(registry_authorities).unwrap_or_default();
    if !authorities.is_empty() {
        let mut one = map(names::registry_authorities(&name), BTreeMap::new());
        let data = authorities.values().map(|(key, pem)| (key.clone(), api::k8s::ByteString(pem.clone())));
        (one.data, one.binary_data) = (None, Some(data.collect()));
        config_maps.push(one);
    }
    let there = |map: String| config_maps.iter().any(|m| m.metadata.name.as_deref() == Some(&map));
    let files = [
        (there(names::policy(&name)), "etc-policy", names::policy(&name), "policy.json"),
        (there(names::registries(&name)), "etc-registries", names::registries(&name), "registries.conf"),
    ];
    let files: Vec<_> = files.into_iter().filter(|f| f.0).map(|(_, v, m, k)| (v, m, k)).collect();
    let keys: Vec<_> =
        authorities.iter().map(|(registry, (key, _))| (key.as_str(), registry.as_str())).collect();
    let job = pod::job(inputs, &files, &keys);
    Ok(Objects { config_maps, job })
}

/// The key in the ConfigMap of a base image.
const BASE: &str = "image";

/// The ConfigMap with the base image for all further pods of a build.
pub fn base_map(pool: &str, build: &MachineOSBuild, image: &str) -> ConfigMap {
    let name = names::base(build.metadata.name.as_deref().unwrap_or_default());
    let data = BTreeMap::from([(BASE.to_owned(), image.to_owned())]);
    ConfigMap { metadata: metadata(pool, build, &name), data: Some(data), ..ConfigMap::default() }
}

/// The certificate authorities of registries: by the registry's name the key of a ConfigMap, and the certificates. The user's come
/// last and override the others, as on nodes.
fn registry_authorities(cluster: &ControllerConfigSpec) -> BTreeMap<String, (String, Vec<u8>)> {
    let bundles = [&cluster.image_registry_bundle_data, &cluster.image_registry_bundle_user_data];
    let all = bundles.into_iter().flatten().flatten().filter_map(|bundle| {
        // A key of a ConfigMap has no colon: that of a port is written as `..`.
        let registry = bundle.file.replace("..", ":");
        let is_key = bundle.file.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let is_name = is_key && !registry.is_empty() && !registry.starts_with(['.', ':']);
        is_name.then(|| (registry, (bundle.file.clone(), bundle.data.0.clone())))
    });
    all.collect()
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

#[cfg(test)]
mod tests {
    use super::pod::SCRIPT;
    use super::*;
    use api::images::os_image::OsImage;
    use api::names::annotation;
    use base64::Engine as _;
    use serde_json::json;
    use std::io::Read as _;

    #[test]
    fn the_objects_of_a_build_hold_its_input_and_no_credentials_of_the_cluster() {
        let by_digest = format!("r.example.com/base@sha256:{}", "0a".repeat(32));
        let found =
            OsImage { of: "r.example.com/base:9".to_owned(), image: by_digest.clone(), ..OsImage::default() };
        let rendered: MachineConfig = serde_json::from_value(json!({
            "metadata": {"name": "rendered-infra-1", "annotations": {
                annotation::PROVENANCE: "packed", api::names::own::OS_IMAGE: found.text(),
            }},
            "spec": {
                "osImageURL": "r.example.com/base:9",
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
            "spec": {
                "renderedImagePushSecret": {"name": "push"}, "baseImagePullSecret": {"name": "pull"},
                "renderedImagePushSpec": "r.example.com/os:latest",
            },
        }))
        .unwrap();
        let cluster: ControllerConfigSpec = serde_json::from_value(json!({
            "additionalTrustBundle": "UEVN", "proxy": {"httpProxy": "http://proxy:3128", "httpsProxy": "", "noProxy": ""},
            "imageRegistryBundleUserData": [{"file": "r.example.com..5000", "data": "UEVN"}, {"file": "../etc", "data": ""}],
        }))
        .unwrap();
        let now = Time(jiff::Timestamp::from_second(1_767_225_600).unwrap());
        let inputs = Inputs {
            pool: "infra",
            build: &build,
            config: &config,
            rendered: &rendered,
            cluster: Some(&cluster),
            builder: "buildah",
            now: &now,
        };
        let Objects { config_maps, job } = of(inputs).unwrap();
        let names: Vec<_> = config_maps.iter().filter_map(|m| m.metadata.name.as_deref()).collect();
        assert_eq!(
            names,
            [
                "containerfile-infra-0",
                "mc-infra-0",
                "additionaltrustbundle-infra-0",
                "etc-registries-infra-0",
                "registry-cas-infra-0"
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
        // By a digest it needs no ConfigMap of a base; by a tag its pod takes the one that an earlier pod has found.
        assert!(!pod["volumes"].to_string().contains("base-infra-0"));
        let mut by_tag = rendered.clone();
        by_tag.metadata.annotations = None;
        let tagged = of(Inputs { rendered: &by_tag, ..inputs }).unwrap().job;
        let volume = json!({"name": "base", "configMap": {"name": "base-infra-0", "optional": true}});
        let tagged = &tagged["spec"]["template"]["spec"];
        assert!(tagged["volumes"].as_array().unwrap().contains(&volume));
        let mount = json!({"name": "base", "mountPath": "/tmp/base"});
        assert!(tagged["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount));
        let map = base_map("infra", &build, &by_digest);
        assert_eq!(map.metadata.name.as_deref(), Some("base-infra-0"));
        assert!(SCRIPT.contains("/tmp/base/image") && map.data.unwrap()["image"] == by_digest);
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
            "NOT_SIGNED",
            "BASE_OS_IMAGE_PULLSPEC",
            "BASE_NAME",
            "BUILT_FROM",
            "LIMIT_SECONDS",
            "END_SECONDS",
        ] {
            assert!(SCRIPT.contains(&format!("${name}")) && set(name).is_some(), "{name}");
        }
        // One base for all stages and tries, though its tag may move.
        let containerfile = &config_maps[0].data.as_ref().unwrap()["Containerfile"];
        let from = format!("FROM {by_digest} AS ");
        assert_eq!(containerfile.matches(&from).count(), 2, "{containerfile}");
        assert_eq!(set("BASE_OS_IMAGE_PULLSPEC").unwrap()["value"], by_digest);
        // Layers are kept beside the image, and taken from there unless somebody wants to build anew.
        assert_eq!(set("LAYER_CACHE").unwrap()["value"], "r.example.com/os");
        assert_eq!((set("FRESH_LAYERS"), set("SIGNING_SECRET")), (None, None));
        assert!(!volumes.iter().any(|v| v["name"] == "signing-secret"));
        let mut asked = (build.clone(), config.clone());
        asked.0.metadata.annotations = Some(BTreeMap::from([(names::FRESH.to_owned(), "true".to_owned())]));
        let notes = [(names::LAYER_CACHE, "none"), (names::SIGNING_SECRET, "os-signing")];
        asked.1.metadata.annotations =
            Some(notes.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
        let signed = of(Inputs { build: &asked.0, config: &asked.1, ..inputs }).unwrap().job;
        let pod = &signed["spec"]["template"]["spec"];
        let env = pod["containers"][0]["env"].as_array().unwrap();
        let of_signed = |name: &str| env.iter().find(|e| e["name"] == name).map(|e| e["value"].clone());
        assert_eq!(of_signed("SIGNING_SECRET"), Some(json!("os-signing")));
        assert_eq!((of_signed("FRESH_LAYERS"), of_signed("LAYER_CACHE")), (Some(json!("1")), None));
        let volumes_of_signed = pod["volumes"].as_array().unwrap();
        let key = volumes_of_signed.iter().find(|v| v["name"] == "signing-secret").unwrap();
        let only_root = json!({"secretName": "os-signing", "optional": true, "defaultMode": 0o400});
        assert_eq!(key["secret"], only_root, "what a Containerfile runs cannot read it");
        // Certificates of registries, where buildah looks for them.
        let authorities = volumes.iter().find(|v| v["configMap"]["name"] == "registry-cas-infra-0").unwrap();
        let item = json!([{"key": "r.example.com..5000", "path": "r.example.com:5000/ca.crt"}]);
        assert_eq!(authorities["configMap"]["items"], item);
        // On plain Kubernetes it may make user namespaces; on OpenShift the SCC says what it may.
        assert_eq!(container["securityContext"]["seccompProfile"]["type"], "Unconfined");
        let infra = Some(json!({"kind": "Infrastructure", "status": {"platform": "None"}}));
        let described = ControllerConfigSpec { infra, ..cluster.clone() };
        let plain = of(Inputs { cluster: Some(&described), ..inputs }).unwrap().job;
        assert_eq!(
            plain["spec"]["template"]["spec"]["containers"][0]["securityContext"],
            container["securityContext"],
            "the operator describes plain clusters, too"
        );
        let openshift =
            ControllerConfigSpec { release_image: "r.example.com/release".to_owned(), ..described };
        let there = of(Inputs { cluster: Some(&openshift), ..inputs }).unwrap().job;
        assert!(there["spec"]["template"]["spec"]["containers"][0]["securityContext"].is_null());
        let limit = set("LIMIT_SECONDS").unwrap()["value"].as_str().unwrap().parse::<i64>().unwrap();
        assert!(limit < DEADLINE_SECONDS, "what it wrote last is there when the deadline comes");
        let deadline = job["spec"]["activeDeadlineSeconds"].as_i64();
        assert_eq!(deadline, Some(DEADLINE_SECONDS));
        let end = set("END_SECONDS").unwrap()["value"].as_str().unwrap().parse::<i64>().unwrap();
        assert_eq!(end, 1_767_225_600 + limit, "the same for every pod of the build");
    }
}

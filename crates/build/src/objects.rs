//! The objects of a build: its ConfigMaps, and the Job whose pod runs buildah ([`pod`]).
//!
//! What it is not: when a build is started (see `plan`).

mod pod;

use crate::containerfile::{self, ContainerfileError};
use crate::names;
use api::k8s::{ConfigMap, Time};
use api::names::{NAMESPACE, annotation};
use api::os_image::OsImage;
use api::v1::{ControllerConfigSpec, MachineConfig, MachineOSBuild, MachineOSConfig};
use base64::Engine as _;
use ignition::Resource;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;

/// How long a build may take, in seconds. Large images on slow registries take half an hour; what takes four times as long
/// hangs.
pub const DEADLINE_SECONDS: i64 = 2 * 60 * 60;
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
    /// When the build begins: its time counts from then, whichever of its pods runs.
    pub now: &'a Time,
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
        base: &base(rendered),
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

/// The base image: by the digest that was found out for all nodes of the pool, where one is known.
fn base(rendered: &MachineConfig) -> String {
    let url = &rendered.spec.os_image_url;
    let found = OsImage::read(rendered.metadata.annotations.as_ref(), url);
    found.as_ref().and_then(OsImage::by_digest).unwrap_or(url).to_owned()
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

#[cfg(test)]
mod tests;

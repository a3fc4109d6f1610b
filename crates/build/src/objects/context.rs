//! What an image is built from: the files of buildah's context. The same for a Job in a cluster and on a laptop. Pure.
//!
//! What it is not: the objects that bring these files into a Job (see the module above).
//!
//! Source: Containerfile(5).

use crate::containerfile::{self, ContainerfileError};
use api::images::os_image::OsImage;
use api::names::annotation;
use api::v1::{ControllerConfigSpec, MachineConfig};
use base64::Engine as _;
use ignition::Resource;
use serde::Deserialize as _;
use std::io::Write as _;

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
        registries: file(rendered, api::paths::REGISTRIES_CONF),
    })
}

/// The base image: by the digest that was found out for all nodes of the pool, where one is known.
pub(super) fn base(rendered: &MachineConfig) -> String {
    let url = &rendered.spec.os_image_url;
    let found = OsImage::read(rendered.metadata.annotations.as_ref(), url);
    found.as_ref().and_then(OsImage::by_digest).unwrap_or(url).to_owned()
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

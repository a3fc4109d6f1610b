//! From a rendered MachineConfig to the bytes that a booting machine gets, for one Ignition version. Pure.
//!
//! Flow: parse and check the config → add the current CA bundles → move kernel arguments to the MachineConfig if the
//! Ignition version has none → add the files that the first boot needs (node annotations, kubeconfig, the MachineConfig
//! itself) → convert to the version → bytes, ETag, gzip.
//!
//! What it is not: the choice of the config (see `source`) and of the version (see `accept_header`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfigServer.md>.

use crate::prepared::document;
use crate::refusal::SERVED;
use crate::refusal::{Refusal, UnsupportedPart};
use api::formats::text::hex;
use api::names::annotation;
use api::node_state::NodeState;
use api::v1::MachineConfig;
use ignition::{Config, File, Resource, Version};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::io::{Read as _, Write as _};
use std::sync::Arc;

/// Where the kubelet reads the CA of the API server's clients.
pub const KUBELET_CA: &str = api::paths::KUBELET_CA;
/// The path of the cloud provider's CA.
pub const CLOUD_CA: &str = api::paths::CLOUD_CA;
/// The annotations that the node gets when it joins.
pub const NODE_ANNOTATIONS: &str = api::paths::NODE_ANNOTATIONS;
/// The kubelet's first kubeconfig.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
/// The whole MachineConfig that was served.
pub const SERVED_CONFIG: &str = api::paths::SERVED_CONFIG;
/// The MachineConfig without its Ignition part, which the daemon applies at first boot.
pub const ENCAPSULATED: &str = api::paths::ENCAPSULATED;
/// The annotation of a rendered MachineConfig that names the image to boot into directly.
pub const PRE_BUILT_IMAGE: &str = api::names::annotation::PRE_BUILT_IMAGE;
/// The mode of every file that is added.
const MODE: i64 = 0o644;
/// Smaller bodies are not compressed: it would save less than the headers cost.
const MIN_GZIP: usize = 1024;

/// Which of the two servers answers. They differ in a few points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// From a directory, before there is a cluster.
    Bootstrap,
    /// From the cluster.
    Cluster,
}

/// A rendered MachineConfig. Its Ignition part is kept compressed: it is needed only to prepare an answer, once for each
/// version, and would take most of the memory of a server with many pools.
#[derive(Clone)]
pub struct Rendered {
    /// The object without its Ignition part.
    head: MachineConfig,
    /// The Ignition part: gzip of JSON.
    packed: Vec<u8>,
    /// The uncompressed length of the Ignition part.
    length: usize,
    /// A hash of the object.
    fingerprint: String,
}

impl std::fmt::Debug for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rendered({})", self.name())
    }
}

impl Rendered {
    /// Takes an object, and drops its managed fields: machines do not need them.
    pub fn new(mut config: MachineConfig) -> Self {
        config.metadata.managed_fields = None;
        let fingerprint = hex(&Sha256::digest(serde_json::to_vec(&config).unwrap_or_default()));
        let ignition = config.spec.config.take().unwrap_or_default();
        let json = serde_json::to_vec(&ignition).unwrap_or_default();
        let packed = pack(&json).unwrap_or_default();
        Self { head: config, packed, length: json.len(), fingerprint }
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.head.metadata.name.as_deref().unwrap_or_default()
    }

    /// The whole object, unpacked.
    ///
    /// # Errors
    /// None is known: what was compressed is JSON.
    pub fn unpacked_object(&self) -> Result<MachineConfig, String> {
        let lost = |_| format!("{}: spec.config could not be unpacked", self.name());
        let json = unpack(&self.packed, self.length).map_err(lost)?;
        let ignition: Value = serde_json::from_slice(&json).map_err(|e| lost(e.into()))?;
        let mut whole = self.head.clone();
        whole.spec.config = (!ignition.is_null()).then_some(ignition);
        Ok(whole)
    }

    /// Its Ignition config, checked.
    ///
    /// # Errors
    /// What is wrong with it, with its JSON path.
    pub fn ignition(&self) -> Result<Config, String> {
        self.read(&self.unpacked_object()?)
    }

    fn read(&self, whole: &MachineConfig) -> Result<Config, String> {
        let broken = |why: String| format!("{}: spec.config: {why}", self.name());
        let config = desired::ignition_config(&whole.spec).map_err(|e| broken(e.to_string()))?;
        ignition::validate(&config).map_err(|e| broken(e.to_string()))?;
        Ok(config)
    }
}

/// Everything that an answer is made of. It holds secrets, so its debug form shows only the config's name.
#[derive(Clone)]
pub struct Source {
    /// The pool.
    pub pool: String,
    /// The rendered config to serve.
    pub rendered: Arc<Rendered>,
    /// Which server answers.
    pub mode: Mode,
    /// PEM; empty: none.
    pub kubelet_ca: Vec<u8>,
    /// PEM; empty: none.
    pub cloud_ca: Vec<u8>,
    /// The kubelet's first kubeconfig.
    pub kubeconfig: Vec<u8>,
    /// CA certificates of image registries, by registry.
    pub registry_certificates: Vec<(String, Vec<u8>)>,
    /// The layered OS image that was built for this config, if there is one.
    pub layered_image: Option<String>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({}: {})", self.pool, self.rendered.name())
    }
}

impl Source {
    /// A short text that is equal for sources with equal answers.
    pub fn fingerprint(&self) -> String {
        let Self {
            pool,
            rendered,
            mode,
            kubelet_ca,
            cloud_ca,
            kubeconfig,
            registry_certificates,
            layered_image,
        } = self;
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(bytes);
        };
        add(pool.as_bytes());
        add(rendered.fingerprint.as_bytes());
        add(if *mode == Mode::Cluster { b"c" } else { b"b" });
        add(kubelet_ca);
        add(cloud_ca);
        add(kubeconfig);
        for (name, bytes) in registry_certificates {
            add(name.as_bytes());
            add(bytes);
        }
        add(layered_image.as_deref().unwrap_or_default().as_bytes());
        hex(&hash.finalize())
    }
}

/// An answer, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The version that it is written in.
    pub version: Version,
    /// The config as JSON.
    pub body: Vec<u8>,
    /// The same, compressed; absent if that saves nothing.
    pub gzip: Option<Vec<u8>>,
    /// The plain body's entity tag, with its quotes.
    pub etag: String,
    /// The compressed body's entity tag.
    pub gzip_etag: String,
    /// What was left out because the version cannot express it. The reference leaves it out too.
    pub dropped: Vec<UnsupportedPart>,
}

/// Prepares the answer of a source in a version.
///
/// # Errors
/// [`Refusal::Inexpressible`] if the version cannot express the config, [`Refusal::Broken`] if the stored config is not
/// valid.
pub fn prepare(source: &Source, version: Version) -> Result<Prepared, Refusal> {
    let inexpressible =
        |places: Vec<UnsupportedPart>| Refusal::Inexpressible { pool: source.pool.clone(), version, places };
    if !SERVED.contains(&version) {
        let message = "this version is not served; ask for 3.1 or newer";
        return Err(inexpressible(vec![UnsupportedPart {
            path: "ignition.version".to_owned(),
            message: message.to_owned(),
        }]));
    }
    let broken = |why: String| Refusal::Broken { pool: source.pool.clone(), why };
    let name = source.rendered.name();
    let mut machine_config = source.rendered.unpacked_object().map_err(&broken)?;
    let mut config = source.rendered.read(&machine_config).map_err(&broken)?;

    for (path, data) in [(KUBELET_CA, &source.kubelet_ca), (CLOUD_CA, &source.cloud_ca)] {
        if !data.is_empty() {
            set_contents(&mut config, path, data);
        }
    }
    let image = layered_image(source);
    if let Some(url) = &source.layered_image {
        url.clone_into(&mut machine_config.spec.os_image_url);
    }
    if source.mode == Mode::Cluster && version < Version::V3_3 {
        migrate_kernel_arguments(&mut config, &mut machine_config).map_err(&inexpressible)?;
    }
    let added = added_files(source, version, name, image, &machine_config)
        .map_err(|e| broken(format!("{name}: {e}")))?;
    // Each step's input is some hundred KB. Together they would make the allocator keep a megabyte for good.
    drop(machine_config);
    for (path, bytes) in added {
        // A file of the config at one of these paths would replace the one that the first boot needs.
        config.storage.files.retain(|f| f.path != path);
        config.storage.files.push(file(path, &bytes));
    }
    let dropped = drop_silently(&mut config, version);
    let value = ignition::translate(&config, version).map_err(|e| {
        inexpressible(
            e.places.into_iter().map(|p| UnsupportedPart { path: p.path, message: p.message }).collect(),
        )
    })?;
    drop(config);
    finish(value, version, dropped).map_err(|e| broken(format!("{name}: {e}")))
}

/// The bytes of a config.
///
/// # Errors
/// A config that cannot be written as JSON, which cannot happen.
pub fn finish(config: Value, version: Version, dropped: Vec<UnsupportedPart>) -> std::io::Result<Prepared> {
    let body = serde_json::to_vec(&config)?;
    drop(config);
    let gzip = if body.len() < MIN_GZIP { None } else { Some(pack(&body)?) };
    let hash: String = hex(&Sha256::digest(&body)).chars().take(32).collect();
    Ok(Prepared {
        version,
        body,
        gzip,
        etag: format!("\"{hash}\""),
        gzip_etag: format!("\"{hash}-gzip\""),
        dropped,
    })
}

/// Gzip without a timestamp, so that equal bodies are equal when compressed.
fn pack(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut w =
        flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 4), flate2::Compression::default());
    w.write_all(body)?;
    let mut packed = w.finish()?;
    packed.shrink_to_fit();
    Ok(packed)
}

/// Unpacks a compressed body of `length` bytes.
///
/// # Errors
/// Bytes that are not gzip.
pub(crate) fn unpack(packed: &[u8], length: usize) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::with_capacity(length);
    flate2::read::GzDecoder::new(packed).read_to_end(&mut plain)?;
    Ok(plain)
}

/// The image to boot into. The one in the config's annotation takes precedence over the layered image.
fn layered_image(source: &Source) -> Option<String> {
    let on_config = source.rendered.head.metadata.annotations.as_ref().and_then(|a| a.get(PRE_BUILT_IMAGE));
    on_config.filter(|i| !i.is_empty()).or(source.layered_image.as_ref()).cloned()
}

/// Sets a file's contents. An existing file keeps its other fields.
fn set_contents(config: &mut Config, path: &str, bytes: &[u8]) {
    match config.storage.files.iter_mut().find(|f| f.path == path) {
        Some(existing) => existing.contents = contents(bytes),
        None => config.storage.files.push(file(path.to_owned(), bytes)),
    }
}

fn contents(bytes: &[u8]) -> Resource {
    Resource { source: Some(ignition::data_url::encode(bytes)), ..Resource::default() }
}

fn file(path: String, bytes: &[u8]) -> File {
    File { path, contents: contents(bytes), mode: Some(MODE), overwrite: Some(true), ..File::default() }
}

/// Ignition before 3.3 has no kernel arguments, so the daemon adds them at first boot. It cannot remove any that way.
fn migrate_kernel_arguments(config: &mut Config, to: &mut MachineConfig) -> Result<(), Vec<UnsupportedPart>> {
    if !config.kernel_arguments.should_not_exist.is_empty() {
        let message =
            "came with 3.3, and the first boot cannot remove kernel arguments in its place".to_owned();
        return Err(vec![UnsupportedPart { path: "kernelArguments.shouldNotExist".to_owned(), message }]);
    }
    let moved = std::mem::take(&mut config.kernel_arguments.should_exist);
    if !moved.is_empty() {
        to.spec.kernel_arguments.get_or_insert_default().extend(moved);
    }
    Ok(())
}

/// Drops what the reference drops silently because the version cannot express it. We do the same, because machines boot
/// with such configs today.
fn drop_silently(config: &mut Config, version: Version) -> Vec<UnsupportedPart> {
    let mut dropped = Vec::new();
    if version >= Version::V3_5 {
        return dropped;
    }
    for (i, luks) in config.storage.luks.iter_mut().enumerate() {
        let had = std::mem::take(&mut luks.cex);
        if had.enabled.is_some() {
            let path = format!("storage.luks[{i}].cex");
            dropped.push(UnsupportedPart {
                path,
                message: format!("came with 3.5 and is left out in {version}"),
            });
        }
    }
    dropped
}

/// The files that the first boot needs, in the reference's order.
fn added_files(
    source: &Source,
    version: Version,
    name: &str,
    image: Option<String>,
    machine_config: &MachineConfig,
) -> Result<Vec<(String, Vec<u8>)>, serde_json::Error> {
    let mut files = vec![
        (NODE_ANNOTATIONS.to_owned(), node_annotations(name, image)?),
        (KUBECONFIG.to_owned(), source.kubeconfig.clone()),
        (SERVED_CONFIG.to_owned(), document::indented(machine_config)?.into_bytes()),
    ];
    for (registry, certificate) in &source.registry_certificates {
        files.push((format!("{}/{registry}/ca.crt", api::paths::REGISTRY_CERTIFICATES), certificate.clone()));
    }
    let inner = match source.mode {
        Mode::Bootstrap => Version::V3_5,
        // Agents read versions up to 3.5.
        Mode::Cluster => version.min(Version::V3_5),
    };
    files.push((ENCAPSULATED.to_owned(), encapsulated(machine_config, inner)?.into_bytes()));
    Ok(files)
}

/// The MachineConfig with an empty Ignition config that has only a version.
///
/// # Errors
/// None that is known; the types allow it.
pub fn encapsulated(machine_config: &MachineConfig, version: Version) -> Result<String, serde_json::Error> {
    let mut inner = machine_config.clone();
    inner.spec.config = Some(json!({"ignition": {"version": version.as_str()}}));
    document::line(&inner)
}

fn node_annotations(name: &str, image: Option<String>) -> Result<Vec<u8>, serde_json::Error> {
    let mut map = Map::new();
    for key in [annotation::CURRENT_CONFIG, annotation::DESIRED_CONFIG, annotation::FIRST_PIVOT_CONFIG] {
        map.insert(key.to_owned(), name.into());
    }
    map.insert(annotation::STATE.to_owned(), NodeState::Done.text().into());
    if let Some(image) = image {
        for key in [annotation::CURRENT_IMAGE, annotation::DESIRED_IMAGE] {
            map.insert(key.to_owned(), image.clone().into());
        }
    }
    serde_json::to_vec(&Value::Object(map))
}

#[cfg(test)]
mod tests;

//! OS image streams: which images a pool's machines run if no MachineConfig says otherwise, and which container runtime
//! these images lack. Pure.
//!
//! What it is not: the making of streams. Whoever ships OS images writes the OSImageStream `cluster`; nothing here
//! looks into an image.
//!
//! Source: <https://github.com/openshift/api/tree/HEAD/machineconfiguration/v1>.

use crate::config::merge::OsImages;
use crate::config::provenance::Provenance;
use crate::error::{Finding, RENDERED, Rule};
use crate::version::{Mode, Versions};
use api::k8s::ResourceExt as _;
use api::names::{ARBITER, MASTER, WORKER, annotation};
use api::v1::MachineConfigPool;
use ignition::Config;
use serde_json::Value;

/// A stream that a pool follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Its images.
    pub images: OsImages,
}

/// OpenShift's feature gate for streams.
pub(crate) const GATE: &str = "OSStreams";

/// The object that lists streams.
const OBJECT: &str = "OSImageStream cluster";

/// Where CRI-O reads drop-ins from; the last name wins (crio.conf.d(5)).
const CRIO: &str = "/etc/crio/crio.conf.d/";

/// Streams whose images have no runc.
const WITHOUT_RUNC: [&str; 2] = ["rhel-10", "centos-10"];

/// The stream that a pool follows: its own; else, for a custom pool, that of `worker`; else the default. Without the
/// object `OSImageStream cluster` there are no streams.
///
/// # Errors
/// A stream that does not exist; in a cluster, a list of streams from another release.
pub fn stream(
    pool: &MachineConfigPool,
    worker: Option<&MachineConfigPool>,
    object: Option<&Value>,
    versions: &Versions,
    mode: Mode,
) -> Result<Option<Stream>, Finding> {
    let own = |p: &MachineConfigPool| {
        p.spec.os_image_stream.as_ref().map(|s| s.name.clone()).filter(|n| !n.is_empty())
    };
    let pool_name = pool.name_any();
    let custom = ![MASTER, WORKER, ARBITER].contains(&pool_name.as_str());
    let named = own(pool).map(|name| (name, pool_name.clone()));
    let named =
        named.or_else(|| worker.filter(|_| custom).and_then(own).map(|name| (name, WORKER.to_owned())));
    let at_pool = |pool: &str, message: String, remedy: &str| {
        Finding::on_pool(Rule::OsImageStream, pool, "spec.osImageStream.name", message).with_remedy(remedy)
    };
    let at_list = |path: &str, message: String, remedy: &str| {
        Finding::new(Rule::OsImageStream, OBJECT, path, message).with_remedy(remedy)
    };
    let Some(object) = object else {
        return match named {
            Some((name, pool)) => {
                let message = format!("is {name:?}, but there is no {OBJECT} that lists it");
                Err(at_pool(&pool, message, "create one, or remove this"))
            }
            None => Ok(None),
        };
    };
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let by = object
        .pointer("/metadata/annotations")
        .and_then(|a| a.get(annotation::RELEASE_IMAGE_VERSION)?.as_str());
    if let Some(by) = by.filter(|by| mode == Mode::Cluster && *by != versions.hash) {
        let message = format!("is {by:?}, this controller is {:?}", versions.hash);
        let path = format!("metadata.annotations[{}]", annotation::RELEASE_IMAGE_VERSION);
        return Err(at_list(&path, message, "waiting for it to be updated"));
    }
    let all = object.pointer("/status/availableStreams").and_then(Value::as_array);
    let all: Vec<&Value> = all.into_iter().flatten().collect();
    let name_of = |s: &Value| s.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let default = text("/status/defaultStream").to_owned();
    let name = named.as_ref().map_or(&default, |(name, _)| name);
    let Some(found) = all.iter().find(|s| !name.is_empty() && name_of(s) == *name) else {
        let known: Vec<String> = all.iter().map(|s| name_of(s)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(match named {
            Some((name, pool)) => at_pool(
                &pool,
                format!("is {name:?}, which {OBJECT} does not list; it lists: {known}"),
                "use one of those",
            ),
            None => {
                let message =
                    format!("is {default:?}, which status.availableStreams does not list; it lists: {known}");
                at_list("status.defaultStream", message, "name one of those")
            }
        });
    };
    let image = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let images = OsImages { os: image("osImage"), extensions: image("osExtensionsImage") };
    if images.os.is_empty() {
        let message = format!("stream {name:?} has no osImage");
        return Err(at_list("status.availableStreams", message, "write its pull spec"));
    }
    Ok(Some(Stream { name: name.clone(), images }))
}

/// Whether a FeatureGate turns streams off.
pub fn switched_off(feature_gate: Option<&Value>) -> bool {
    let Some(feature_gate) = feature_gate else { return false };
    let lists = feature_gate.pointer("/status/featureGates").and_then(Value::as_array);
    let named = |list: Option<&Value>| {
        let list = list.and_then(Value::as_array);
        list.is_some_and(|l| l.iter().any(|g| g.get("name").unwrap_or(g).as_str() == Some(GATE)))
    };
    // If a list of gates does not contain this one, the release has no streams.
    match lists.filter(|l| !l.is_empty()) {
        Some(lists) => !lists.iter().any(|entry| named(entry.get("enabled"))),
        None => named(feature_gate.pointer("/spec/customNoUpgrade/disabled")),
    }
}

/// The container runtime that CRI-O is configured to use is missing from the stream's images, so no pod would start.
pub(crate) fn missing_runtime(stream: &Stream, config: &Config, provenance: &Provenance) -> Option<Finding> {
    if !WITHOUT_RUNC.contains(&stream.name.as_str()) {
        return None;
    }
    let mut files: Vec<_> = config.storage.files.iter().filter(|f| f.path.starts_with(CRIO)).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let sets = |bytes: Vec<u8>| -> Option<String> {
        let table: toml::Table = String::from_utf8(bytes).ok()?.parse().ok()?;
        let runtime = table.get("crio")?.get("runtime")?.get("default_runtime")?.as_str()?;
        Some(runtime.to_owned())
    };
    // Contents that cannot be read are the finding of another rule.
    let last = files.iter().rev().find_map(|f| Some((f, sets(f.contents.decode().ok()?)?)));
    let (file, _) = last.filter(|(_, runtime)| runtime == "runc")?;
    let by = provenance.of(&file.path).find(|o| o.field == "contents").map(|o| o.set_by.clone());
    let message = format!(
        "{} sets default_runtime to runc, which images of stream {} do not contain",
        file.path, stream.name
    );
    let i = config.storage.files.iter().position(|f| f.path == file.path).unwrap_or_default();
    let path = format!("spec.config.storage.files[{i}].contents");
    let object = by.map_or_else(|| RENDERED.to_owned(), |name| format!("MachineConfig {name}"));
    let remedy = "write crun, or have the pool follow another stream";
    Some(Finding::new(Rule::OsImageStream, object, path, message).with_remedy(remedy))
}

#[cfg(test)]
mod tests;

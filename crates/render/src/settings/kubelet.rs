//! The kubelet's config that every pool gets: from the templates, with the cluster's feature gates and its Node
//! settings. Makes `97-POOL-generated-kubelet` and `98-POOL-generated-kubelet`. Pure.
//!
//! What it is not: KubeletConfig objects, which add to it for some pools.
//!
//! Source: <https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>.

use crate::go_yaml;
use crate::settings::durations::normalise_durations;
use crate::template::RenderedTemplate;
use crate::version::Versions;
use api::names::{WORKER, annotation, label};
use api::v1::{MachineConfig, MachineConfigSpec};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The path of the kubelet's config on a host.
pub const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";

/// Its path on a host whose kubelet was set up by others (kubeadm keeps the kubelet's credentials in [`KUBELET_CONF`]):
/// a drop-in over their config, which contains only the differences (kubelet option `--config-dir`).
pub const KUBELET_DROP_IN: &str = "/etc/kubernetes/kubelet.conf.d/50-mco.conf";

/// Kernel arguments for control groups v2, the only version that is supported.
const CGROUPS_V2: [&str; 2] = ["systemd.unified_cgroup_hierarchy=1", "cgroup_no_v1=\"all\""];

/// Settings that cannot be turned into a kubelet config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// The template is not a KubeletConfiguration.
    #[error("template of the kubelet's config for pool {pool}: {message}")]
    Template {
        /// The pool.
        pool: String,
        /// What is wrong.
        message: String,
    },
    /// A setting of the Node object.
    #[error("Node cluster: {path}: {message}")]
    Node {
        /// The field's path.
        path: &'static str,
        /// What is wrong, and the remedy.
        message: String,
    },
}

/// A kubelet's config in the templates of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The kubelet's only config, complete: unset fields are written too, as Go writes them.
    Whole,
    /// A drop-in over somebody else's config: it may contain only what is set.
    DropIn,
}

impl Form {
    /// Its path on a host.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Whole => KUBELET_CONF,
            Self::DropIn => KUBELET_DROP_IN,
        }
    }
}

/// The text and the form of the kubelet's config in the MachineConfigs of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Original {
    pub(crate) form: Form,
    pub(crate) text: String,
}

/// The kubelet's config in the templates of a role; `None` if there is none and it is left to others.
pub(crate) fn original(of_role: &[RenderedTemplate]) -> Option<Original> {
    [Form::Whole, Form::DropIn]
        .into_iter()
        .find_map(|form| Some(Original { form, text: template_file(of_role, form.path())? }))
}

/// The text of a file in the templates of a role; the last one counts.
pub(crate) fn template_file(of_role: &[RenderedTemplate], path: &str) -> Option<String> {
    let mut files = of_role.iter().rev().flat_map(|part| &part.config.storage.files);
    let file = files.find(|f| f.path == path)?;
    file.contents.decode().ok().and_then(|b| String::from_utf8(b).ok())
}

/// Makes `97-POOL-generated-kubelet`, the template with the cluster's Node settings and, if `cgroups` is set, kernel
/// arguments for cgroups; and `98-POOL-generated-kubelet`, the same with the cluster's feature gates. Also returns the
/// config of the latter, for whatever is laid over it.
pub(crate) fn configs(
    pool: &str,
    original: &Original,
    gates: &BTreeMap<String, bool>,
    node: Option<&Value>,
    cgroups: bool,
    versions: &Versions,
) -> Result<([MachineConfig; 2], Map<String, Value>), KubeletError> {
    let mut config = read(pool, original)?;
    let mode = setting(node, "cgroupMode");
    if !matches!(mode, "" | "v2") {
        let message = format!("{mode:?} is not supported; remove it or write v2");
        return Err(KubeletError::Node { path: "spec.cgroupMode", message });
    }
    latency_profile(pool, &mut config, node)?;
    let named = |number: &str, config: &Map<String, Value>| {
        machine_config(&format!("{number}-{pool}-generated-kubelet"), pool, original.form, config, versions)
    };
    let mut of_node = named("97", &config);
    if cgroups {
        of_node.spec.kernel_arguments = Some(CGROUPS_V2.iter().map(|a| (*a).to_owned()).collect());
    }
    if !gates.is_empty() {
        let all = config.entry("featureGates").or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.extend(gates.iter().map(|(gate, on)| (gate.clone(), Value::Bool(*on))));
        }
    }
    Ok(([of_node, named("98", &config)], config))
}

fn setting<'a>(node: Option<&'a Value>, key: &str) -> &'a str {
    node.and_then(|n| n.get("spec")?.get(key)?.as_str()).unwrap_or_default()
}

/// How often workers report their status, for clusters whose workers are far away.
fn latency_profile(
    pool: &str,
    config: &mut Map<String, Value>,
    node: Option<&Value>,
) -> Result<(), KubeletError> {
    if pool != WORKER {
        return Ok(());
    }
    let frequency = match setting(node, "workerLatencyProfile") {
        "" => return Ok(()),
        "Default" => "10s",
        "MediumUpdateAverageReaction" => "20s",
        "LowUpdateSlowReaction" => "1m0s",
        other => {
            let message =
                format!("{other:?} is not Default, MediumUpdateAverageReaction or LowUpdateSlowReaction");
            return Err(KubeletError::Node { path: "spec.workerLatencyProfile", message });
        }
    };
    config.insert("nodeStatusUpdateFrequency".to_owned(), Value::from(frequency));
    Ok(())
}

/// Reads a KubeletConfiguration and converts it to the form in which Go programs write it, so that equal settings make
/// equal bytes, and so equal names.
fn read(pool: &str, original: &Original) -> Result<Map<String, Value>, KubeletError> {
    let Original { form, text } = original;
    let bad = |message: String| KubeletError::Template { pool: pool.to_owned(), message };
    let config: Map<String, Value> = api::formats::yaml::from_str(text).map_err(|e| bad(e.to_string()))?;
    let kind = config.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind != "KubeletConfiguration" {
        return Err(bad("its kind is not KubeletConfiguration".to_owned()));
    }
    let mut written = match form {
        Form::Whole => always_written(),
        // A zero would override what others have set, and the kubelet would treat it as its default.
        Form::DropIn => json!({}),
    };
    overlay(&mut written, Value::Object(config));
    normalise_durations(&mut written);
    match written {
        Value::Object(map) => Ok(map),
        _ => Err(bad("not an object".to_owned())),
    }
}

/// Fields that Go writes even if they are not set.
fn always_written() -> Value {
    json!({
        "authentication": {"anonymous": {}, "webhook": {"cacheTTL": "0s"}, "x509": {}},
        "authorization": {"webhook": {"cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "0s"}},
        "containerRuntimeEndpoint": "",
        "cpuManagerReconcilePeriod": "0s",
        "crashLoopBackOff": {},
        "evictionPressureTransitionPeriod": "0s",
        "fileCheckFrequency": "0s",
        "httpCheckFrequency": "0s",
        "imageMaximumGCAge": "0s",
        "imageMinimumGCAge": "0s",
        "logging": {
            "flushFrequency": 0,
            "options": {"json": {"infoBufferSize": "0"}, "text": {"infoBufferSize": "0"}},
            "verbosity": 0,
        },
        "memorySwap": {},
        "nodeStatusReportFrequency": "0s",
        "nodeStatusUpdateFrequency": "0s",
        "runtimeRequestTimeout": "0s",
        "shutdownGracePeriod": "0s",
        "shutdownGracePeriodCriticalPods": "0s",
        "streamingConnectionIdleTimeout": "0s",
        "syncFrequency": "0s",
        "volumeStatsAggPeriod": "0s",
    })
}

/// Lays what a file says over what Go writes anyway, objects key by key, as Go reads a file: null leaves what is there, and every
/// other value counts, zeros too.
///
/// Not the rule of `kubelet_config::lay_over`, by which a zero sets nothing.
fn overlay(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                match under.get_mut(&key) {
                    Some(slot) => overlay(slot, value),
                    None => {
                        under.insert(key, value);
                    }
                }
            }
        }
        (_, Value::Null) => {}
        (under, over) => *under = over,
    }
}

/// A file as generated MachineConfigs carry it.
pub(crate) fn file(path: &str, bytes: &[u8]) -> Value {
    json!({
        "contents": {"compression": "", "source": ignition::data_url::encode_base64("text/plain;charset=utf-8", bytes)},
        "mode": 0o644,
        "overwrite": true,
        "path": path,
    })
}

fn machine_config(
    name: &str,
    pool: &str,
    form: Form,
    config: &Map<String, Value>,
    versions: &Versions,
) -> MachineConfig {
    let text = go_yaml::emit(&Value::Object(config.clone()));
    generated(name, pool, &[file(form.path(), text.as_bytes())], Some(versions))
}

/// A generated MachineConfig of a pool with these files.
pub(crate) fn generated(
    name: &str,
    pool: &str,
    files: &[Value],
    versions: Option<&Versions>,
) -> MachineConfig {
    let mut config = json!({"ignition": {"version": ignition::VERSION}});
    if let Some(map) = config.as_object_mut().filter(|_| !files.is_empty()) {
        map.insert("storage".to_owned(), json!({ "files": files }));
    }
    let spec = MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() };
    let mut mc = MachineConfig::new(name, spec);
    mc.metadata.labels = Some(BTreeMap::from([(label::ROLE.to_owned(), pool.to_owned())]));
    mc.metadata.annotations =
        versions.map(|v| BTreeMap::from([(annotation::GENERATED_BY_CONTROLLER.to_owned(), v.hash.clone())]));
    mc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_fields_appear_with_their_zero_values() {
        let text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 7\n\
                    nodeStatusReportFrequency: 5m\nmemorySwap: {swapBehavior: NoSwap}\n";
        let whole = |text: &str| Original { form: Form::Whole, text: text.to_owned() };
        let config = read("p", &whole(text)).unwrap();
        assert_eq!(config.get("maxPods"), Some(&json!(7)));
        assert_eq!(config.get("nodeStatusReportFrequency"), Some(&json!("5m0s")));
        assert_eq!(config.get("memorySwap"), Some(&json!({"swapBehavior": "NoSwap"})));
        assert_eq!(config.get("syncFrequency"), Some(&json!("0s")));
        assert!(read("p", &whole("kind: Pod\n")).is_err());
        let drop_in = Original { form: Form::DropIn, text: text.to_owned() };
        assert_eq!(
            read("p", &drop_in).unwrap().keys().filter(|k| *k != "kind" && *k != "apiVersion").count(),
            3
        );
    }
}

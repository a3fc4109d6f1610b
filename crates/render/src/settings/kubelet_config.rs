//! KubeletConfig objects: what they may set, and how they are laid over a pool's kubelet config. Makes
//! `99-POOL-generated-kubelet`. Pure; the objects are read as JSON.
//!
//! What it is not: the config that every pool has without such an object (see `kubelet`).
//!
//! Sources: <https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>
//! and <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/KubeletConfigDesign.md>.

use crate::go_yaml;
use crate::settings::durations;
use crate::settings::kubelet::{self, Form, KubeletError};
use crate::settings::kubelet_fields;
use crate::tls::TlsProfile;
use crate::version::Versions;
use api::k8s::{LabelSelector, ResourceExt as _};
use api::names::{ARBITER, MASTER, label};
use api::v1::{MachineConfig, MachineConfigPool};
use serde_json::{Map, Value, json};

/// The path of the kubelet's log level on a host.
const LOGGING_CONF: &str = "/etc/systemd/system/kubelet.service.d/20-logging.conf";
/// The path of the settings of automatic sizing on a host.
const SIZING_ENV: &str = "/etc/node-sizing-enabled.env";
/// The largest log level of a kubelet.
const LOG_LEVEL_MAX: i64 = 10;
/// Resources that automatic sizing reserves, with their defaults.
const SIZED: [(&str, &str, &str); 3] = [
    ("memory", "SYSTEM_RESERVED_MEMORY", "1Gi"),
    ("cpu", "SYSTEM_RESERVED_CPU", "500m"),
    ("ephemeral-storage", "SYSTEM_RESERVED_ES", "1Gi"),
];

/// A KubeletConfig that cannot be rendered. The messages name fields and expected values, and quote no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeletConfigError {
    /// A field that is not allowed or has a wrong value.
    #[error("KubeletConfig {name}: {path}: {message}")]
    Field {
        /// The object.
        name: String,
        /// The field's path.
        path: String,
        /// The rule.
        message: String,
    },
    /// The config that it is laid over.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
}

/// One object, parsed.
#[derive(Debug, Clone)]
pub(crate) struct KubeletConfig<'a> {
    name: &'a str,
    spec: &'a Value,
    user: Map<String, Value>,
    /// Paths of the user's fields that are unknown to kubelets of the release that this was built for.
    unknown: Vec<String>,
}

fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl<'a> KubeletConfig<'a> {
    fn field(name: &str, path: &str, message: impl Into<String>) -> KubeletConfigError {
        KubeletConfigError::Field { name: name.to_owned(), path: path.to_owned(), message: message.into() }
    }

    /// Reads and checks an object.
    pub(crate) fn read(object: &'a Value) -> Result<Self, KubeletConfigError> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let bad = |path: &str, message: String| Self::field(name, path, message);
        let spec = object.get("spec").unwrap_or(&Value::Null);
        if let Some(selector) = spec.get("machineConfigPoolSelector") {
            api::formats::shape::read::<Option<LabelSelector>>(selector)
                .map_err(|e| bad("spec.machineConfigPoolSelector", e.to_string()))?;
        }
        if let Some(level) = spec.get("logLevel").filter(|l| !l.is_null()) {
            let fits = level.as_i64().is_some_and(|l| (0..=LOG_LEVEL_MAX).contains(&l));
            if !fits {
                return Err(bad("spec.logLevel", format!("must be a number from 0 to {LOG_LEVEL_MAX}")));
            }
        }
        let user = match spec.get("kubeletConfig") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(Value::String(yaml)) => {
                api::formats::yaml::from_str(yaml).map_err(|e| bad("spec.kubeletConfig", e.to_string()))?
            }
            Some(_) => return Err(bad("spec.kubeletConfig", "must be a KubeletConfiguration".to_owned())),
        };
        let mut user = user;
        let unknown = kubelet_fields::correct_spelling(&mut user).map_err(|wrong| {
            bad(&format!("spec.kubeletConfig.{}", wrong.path), format!("must be {}", wrong.expected))
        })?;
        let config = Self { name, spec, user, unknown };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), KubeletConfigError> {
        let bad = |key: &str, message: String| {
            Err(Self::field(self.name, &format!("spec.kubeletConfig.{key}"), message))
        };
        let set = |key: &str| self.user.get(key).filter(|v| !is_zero(v));
        for key in ["cgroupDriver", "clusterDNS", "clusterDomain", "featureGates"] {
            if set(key).is_some() {
                return bad(
                    key,
                    "cannot be set here: the cluster sets it for all nodes; remove it".to_owned(),
                );
            }
        }
        if self.user.get("failSwapOn").is_some_and(|v| !v.is_null()) {
            return bad("failSwapOn", "cannot be set here; remove it".to_owned());
        }
        if set("memorySwap").is_some_and(|m| !text(m, "swapBehavior").is_empty()) {
            return bad("memorySwap.swapBehavior", "cannot be set here; remove it".to_owned());
        }
        if set("systemReserved").is_some() && self.auto_sizing() == Some(true) {
            return bad("systemReserved", "excludes autoSizingReserved: true; remove one of them".to_owned());
        }
        if let (Some(reserved), Some(system)) = (set("systemReservedCgroup"), set("systemCgroups"))
            && reserved != system
        {
            return bad("systemReservedCgroup", "must equal systemCgroups".to_owned());
        }
        Ok(())
    }

    fn auto_sizing(&self) -> Option<bool> {
        self.spec.get("autoSizingReserved").and_then(Value::as_bool)
    }

    /// The object's name.
    pub(crate) fn name(&self) -> &str {
        self.name
    }

    /// Paths of fields that have no effect if the whole config is ours.
    pub(crate) fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Makes `99-POOL-generated-kubelet` over the pool's config with feature gates.
    pub(crate) fn machine_config(
        &self,
        pool: &MachineConfigPool,
        base: Map<String, Value>,
        form: Form,
        versions: &Versions,
    ) -> Result<MachineConfig, KubeletConfigError> {
        self.static_pods(pool)?;
        let mut files = Vec::new();
        let mut user = self.user.clone();
        let mut config = base;
        let level = self.spec.get("logLevel").and_then(Value::as_i64);
        match form {
            Form::Whole => {
                // A drop-in is read by a kubelet that others have chosen. It may be newer and know more fields.
                self.unknown.iter().for_each(|path| kubelet_fields::remove(&mut user, path));
                if let Some(env) = self.sizing(&mut user) {
                    files.push(kubelet::file(SIZING_ENV, env.as_bytes()));
                }
                if let Some(level) = level {
                    let text = format!("[Service]\nEnvironment=\"KUBELET_LOG_LEVEL={level}\"\n");
                    files.push(kubelet::file(LOGGING_CONF, text.as_bytes()));
                }
            }
            // Units of others know neither the sizing service nor the variable, so everything goes into the kubelet's
            // config.
            Form::DropIn => {
                if self.auto_sizing() == Some(true) {
                    let message = "needs the template layer `kubelet`; on hosts whose kubelet others set up, write \
                                   spec.kubeletConfig.systemReserved";
                    return Err(Self::field(self.name, "spec.autoSizingReserved", message));
                }
                if let Some(level) = level {
                    let logging = config.entry("logging").or_insert_with(|| json!({}));
                    if let Some(logging) = logging.as_object_mut() {
                        logging.insert("verbosity".to_owned(), Value::from(level));
                    }
                }
            }
        }
        if let Some(profile) = self.spec.get("tlsSecurityProfile").filter(|p| p.is_object()) {
            let TlsProfile { min_version, cipher_suites } = TlsProfile::from_value(profile);
            config.insert("tlsMinVersion".to_owned(), Value::from(min_version));
            config.insert("tlsCipherSuites".to_owned(), Value::from(cipher_suites));
        }
        let mut merged = self.merge(config, user)?;
        if form == Form::DropIn && self.user.get("protectKernelDefaults") == Some(&Value::Bool(false)) {
            merged.insert("protectKernelDefaults".to_owned(), Value::Bool(false));
        }
        files.push(kubelet::file(form.path(), go_yaml::emit(&Value::Object(merged)).as_bytes()));
        let name = pool.name_any();
        Ok(kubelet::generated(&format!("99-{name}-generated-kubelet"), &name, &files, Some(versions)))
    }

    /// Control planes run from static pods. On other nodes, a folder of one's own would only lose the existing static
    /// pods.
    fn static_pods(&self, pool: &MachineConfigPool) -> Result<(), KubeletConfigError> {
        let Some(path) = self.user.get("staticPodPath") else { return Ok(()) };
        if is_control_plane(pool) || path.as_str().is_some_and(|p| !p.is_empty()) {
            let message = format!("cannot be set for pool {}; remove it", pool.name_any());
            return Err(Self::field(self.name, "spec.kubeletConfig.staticPodPath", message));
        }
        Ok(())
    }

    /// The file that turns automatic sizing on or off. Removes the values that it holds from the user's reservations.
    fn sizing(&self, user: &mut Map<String, Value>) -> Option<String> {
        let reserved = user.get_mut("systemReserved").and_then(Value::as_object_mut);
        let mut given = std::collections::BTreeMap::new();
        if let Some(reserved) = reserved {
            for (resource, ..) in SIZED {
                if let Some(Value::String(quantity)) = reserved.remove(resource) {
                    given.insert(resource, quantity);
                }
            }
        }
        let enabled = if given.is_empty() { self.auto_sizing()? } else { false };
        let mut env = format!("NODE_SIZING_ENABLED={enabled}\n");
        for (resource, variable, default) in SIZED {
            let value = given.get(resource).map_or(default, String::as_str);
            env.push_str(&format!("{variable}={value}\n"));
        }
        Some(env)
    }

    fn merge(
        &self,
        base: Map<String, Value>,
        mut user: Map<String, Value>,
    ) -> Result<Map<String, Value>, KubeletConfigError> {
        let unprotected = user.get("protectKernelDefaults") == Some(&Value::Bool(false));
        let no_cgroup = user.get("systemReservedCgroup").is_none_or(is_zero);
        let enforce = user.get("enforceNodeAllocatable").and_then(Value::as_array).cloned();
        ["kind", "apiVersion"].into_iter().for_each(|k| drop(user.remove(k)));
        let mut user = Value::Object(user);
        durations::normalise_durations(&mut user);
        let mut merged = Value::Object(base);
        lay_over(&mut merged, user);
        let Value::Object(mut merged) = merged else { return Ok(Map::new()) };
        if unprotected {
            merged.remove("protectKernelDefaults");
        }
        let reserves =
            |v: &Value| matches!(v.as_str(), Some("system-reserved" | "system-reserved-compressible"));
        if no_cgroup && enforce.is_some_and(|e| !e.is_empty() && !e.iter().any(reserves)) {
            merged.remove("systemReservedCgroup");
        }
        if merged.get("reservedSystemCPUs").is_some_and(|v| !is_zero(v)) {
            merged.remove("systemReservedCgroup");
            let list = merged.entry("enforceNodeAllocatable").or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.retain(|v| !reserves(v));
                if !list.iter().any(|v| v == "pods") {
                    list.insert(0, Value::from("pods"));
                }
            }
        }
        if let (Some(reserved), Some(system)) =
            (merged.get("systemReservedCgroup"), merged.get("systemCgroups"))
            && reserved != system
        {
            let message = "would differ from systemReservedCgroup of the nodes; leave it out";
            return Err(Self::field(self.name, "spec.kubeletConfig.systemCgroups", message));
        }
        Ok(merged)
    }
}

/// Whether the pool belongs to the control plane.
fn is_control_plane(pool: &MachineConfigPool) -> bool {
    let name = pool.name_any();
    if name == MASTER || name == ARBITER {
        return true;
    }
    let key = format!("{}{MASTER}", label::NODE_ROLE_PREFIX);
    let Some(selector) = &pool.spec.node_selector else { return false };
    let labelled = selector.match_labels.as_ref().is_some_and(|l| l.contains_key(&key));
    let mut expressions = selector.match_expressions.iter().flatten();
    labelled || expressions.any(|e| e.key == key && matches!(e.operator.as_str(), "Exists" | "In"))
}

fn is_zero(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Lays a user's settings over those of the nodes, objects key by key. A zero value sets nothing, as in the reference: there, a field
/// that the user does not set is a zero.
///
/// Not the rule of `kubelet::overlay`, which reads a file, where zeros are meant.
fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (_, over) if is_zero(&over) => {}
        (Value::Object(under), Value::Object(over)) => {
            // A grace period of `0s` in a map is meant.
            let no_time = |key: &str, v: &Value| v == "0s" && durations::DURATIONS.contains(&key);
            for (key, value) in over.into_iter().filter(|(k, v)| !is_zero(v) && !no_time(k, v)) {
                match under.get_mut(&key) {
                    Some(slot) => lay_over(slot, value),
                    None => drop(under.insert(key, value)),
                }
            }
        }
        (under, over) => *under = over,
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better where they stand")]
mod tests;

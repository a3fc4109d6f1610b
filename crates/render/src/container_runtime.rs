//! ContainerRuntimeConfig objects: drop-ins for CRI-O and the size of containers' file systems. Makes
//! `99-POOL-generated-containerruntime`. Pure; the objects are read as JSON.

use crate::Versions;
use crate::kubelet;
use api::k8s::{LabelSelector, ResourceExt as _};
use api::v1::{MachineConfig, MachineConfigPool};
use serde_json::Value;

/// Where the settings of container storage stand on a host.
pub(crate) const STORAGE_CONF: &str = "/etc/containers/storage.conf";
/// Fewer processes than this do not let a container start.
const PIDS_MIN: i64 = 20;
/// Log files of this size or less are smaller than what the runtime reads at once.
const LOG_SIZE_MIN: i64 = 8192;

/// A ContainerRuntimeConfig that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ContainerRuntimeConfig {name}: {path}: {message}")]
pub struct ContainerRuntimeError {
    /// The object.
    pub name: String,
    /// Where.
    pub path: String,
    /// The rule.
    pub message: String,
}

/// One object, read.
#[derive(Debug, Clone)]
pub(crate) struct ContainerRuntimeConfig {
    name: String,
    log_level: String,
    pids_limit: Option<i64>,
    log_size_max: i64,
    overlay_size: Option<String>,
    default_runtime: String,
}

impl ContainerRuntimeConfig {
    /// Reads and checks an object.
    pub(crate) fn read(object: &Value) -> Result<Self, ContainerRuntimeError> {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let bad = |path: &str, message: &str| ContainerRuntimeError {
            name: name.clone(),
            path: format!("spec.{path}"),
            message: message.to_owned(),
        };
        if let Some(selector) = object.pointer("/spec/machineConfigPoolSelector") {
            serde_json::from_value::<Option<LabelSelector>>(selector.clone())
                .map_err(|e| bad("machineConfigPoolSelector", &e.to_string()))?;
        }
        let config = object.pointer("/spec/containerRuntimeConfig").unwrap_or(&Value::Null);
        let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (log_level, default_runtime) = (text("logLevel"), text("defaultRuntime"));
        if !["", "error", "fatal", "panic", "warn", "info", "debug", "trace"].contains(&log_level.as_str()) {
            let message = "must be error, fatal, panic, warn, info, debug or trace";
            return Err(bad("containerRuntimeConfig.logLevel", message));
        }
        if !["", "crun", "runc"].contains(&default_runtime.as_str()) {
            return Err(bad("containerRuntimeConfig.defaultRuntime", "must be crun or runc"));
        }
        let pids_limit = config.get("pidsLimit").and_then(Value::as_i64);
        if pids_limit.is_some_and(|p| p != 0 && p < PIDS_MIN) {
            return Err(bad("containerRuntimeConfig.pidsLimit", "must be 0 (no limit) or at least 20"));
        }
        let log_size_max = size(config.get("logSizeMax"))
            .ok_or_else(|| bad("containerRuntimeConfig.logSizeMax", "must be a quantity such as 10M"))?;
        if log_size_max > 0 && log_size_max <= LOG_SIZE_MIN {
            return Err(bad("containerRuntimeConfig.logSizeMax", "must be more than 8192 bytes"));
        }
        let overlay = config.get("overlaySize");
        let overlay_bytes = size(overlay)
            .ok_or_else(|| bad("containerRuntimeConfig.overlaySize", "must be a quantity such as 10G"))?;
        if overlay_bytes < 0 {
            return Err(bad("containerRuntimeConfig.overlaySize", "must not be negative"));
        }
        let overlay_size = overlay.filter(|_| overlay_bytes > 0).and_then(Value::as_str).map(str::to_owned);
        Ok(Self { name, log_level, pids_limit, log_size_max, overlay_size, default_runtime })
    }

    fn error(&self, path: &str, message: String) -> ContainerRuntimeError {
        ContainerRuntimeError { name: self.name.clone(), path: path.to_owned(), message }
    }

    /// `99-POOL-generated-containerruntime`.
    pub(crate) fn machine_config(
        &self,
        pool: &MachineConfigPool,
        storage_template: Option<&str>,
        versions: &Versions,
    ) -> Result<MachineConfig, ContainerRuntimeError> {
        let mut files = Vec::new();
        if let Some(size) = &self.overlay_size {
            let path = "spec.containerRuntimeConfig.overlaySize";
            let mut storage: toml_edit::DocumentMut =
                storage_template.unwrap_or_default().parse().map_err(|e: toml_edit::TomlError| {
                    self.error(path, format!("template of {STORAGE_CONF}: {e}"))
                })?;
            let table = || toml_edit::Item::Table(toml_edit::Table::new());
            let section = storage.entry("storage").or_insert_with(table);
            let options = section.as_table_like_mut().map(|s| s.entry("options").or_insert_with(table));
            if let Some(options) = options.and_then(toml_edit::Item::as_table_like_mut) {
                options.insert("size", toml_edit::value(size.as_str()));
            }
            files.push(kubelet::file(STORAGE_CONF, storage.to_string().as_bytes()));
        }
        let quoted = |s: &str| toml::Value::String(s.to_owned()).to_string();
        let level = (!self.log_level.is_empty()).then(|| format!("log_level = {}", quoted(&self.log_level)));
        let pids = self.pids_limit.map(|p| if p == 0 { String::new() } else { format!("pids_limit = {p}") });
        let size = (self.log_size_max != 0).then(|| format!("log_size_max = {}", self.log_size_max));
        let runtime = &self.default_runtime;
        let runtime = (!runtime.is_empty()).then(|| format!("default_runtime = {}", quoted(runtime)));
        for (field, line) in
            [("logLevel", level), ("pidsLimit", pids), ("logSizeMax", size), ("defaultRuntime", runtime)]
        {
            let Some(line) = line else { continue };
            let line = if line.is_empty() { line } else { format!("    {line}\n") };
            let path = format!("/etc/crio/crio.conf.d/01-ctrcfg-{field}");
            files.push(kubelet::file(&path, format!("[crio]\n  [crio.runtime]\n{line}").as_bytes()));
        }
        let name = pool.name_any();
        let mc_name = format!("99-{name}-generated-containerruntime");
        Ok(kubelet::generated(&mc_name, &name, &files, Some(versions)))
    }
}

/// A quantity in bytes; absent is 0.
fn size(quantity: Option<&Value>) -> Option<i64> {
    let text = match quantity {
        None | Some(Value::Null) => return Some(0),
        Some(Value::Number(n)) => return n.as_i64(),
        Some(Value::String(s)) if s.is_empty() => return Some(0),
        Some(Value::String(s)) => s.as_str(),
        Some(_) => return None,
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+')).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let scale: i64 = match suffix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "json! values read better where they stand")]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: Value) -> Result<ContainerRuntimeConfig, ContainerRuntimeError> {
        let object = json!({"metadata": {"name": "c"}, "spec": {"containerRuntimeConfig": config}});
        ContainerRuntimeConfig::read(&object)
    }

    #[test]
    fn limits_are_checked() {
        let rows = [
            (json!({"pidsLimit": 10}), false),
            (json!({"pidsLimit": -10}), false),
            (json!({"pidsLimit": 0}), true),
            (json!({"pidsLimit": 2048}), true),
            (json!({"logSizeMax": "3k"}), false),
            (json!({"logSizeMax": 8192}), false),
            (json!({"logSizeMax": "10k"}), true),
            (json!({"logSizeMax": "much"}), false),
            (json!({"logLevel": "loud"}), false),
            (json!({"defaultRuntime": "kata"}), false),
            (json!({"overlaySize": "-1G"}), false),
            (json!({}), true),
        ];
        for (config, fits) in rows {
            assert_eq!(read(config.clone()).is_ok(), fits, "{config}");
        }
    }

    #[test]
    fn sizes_become_bytes_and_overlay_size_goes_into_the_template() {
        let config = read(json!({"logSizeMax": "10G", "overlaySize": "3G"})).unwrap();
        let pool = MachineConfigPool::default();
        let template = "[storage]\ndriver = \"overlay\"\n[storage.options]\nsize = \"\"\n";
        let mc = config.machine_config(&pool, Some(template), &Versions::unknown()).unwrap();
        let parsed = ignition::parse_value(mc.spec.config.as_ref().unwrap()).unwrap().config;
        let texts: Vec<String> = parsed
            .storage
            .files
            .iter()
            .map(|f| String::from_utf8(f.contents.decode().unwrap()).unwrap())
            .collect();
        assert_eq!(
            texts,
            [
                "[storage]\ndriver = \"overlay\"\n[storage.options]\nsize = \"3G\"\n",
                "[crio]\n  [crio.runtime]\n    log_size_max = 10000000000\n"
            ]
        );
    }
}

//! ContainerRuntimeConfig objects: drop-ins for CRI-O, and the size of containers' file systems. Makes
//! `99-POOL-generated-containerruntime`. Pure; the objects are read as JSON.
//!
//! Sources: crio.conf(5), containers-storage.conf(5),
//! <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/ContainerRuntimeConfigDesign.md>.

use crate::settings::kubelet;
use crate::settings::quantity::Quantity;
use crate::version::Versions;
use api::k8s::{LabelSelector, ResourceExt as _};
use api::v1::{MachineConfig, MachineConfigPool};
use serde_json::Value;

/// The path of the settings of container storage on a host (containers-storage.conf(5)).
pub(crate) const STORAGE_CONF: &str = "/etc/containers/storage.conf";
/// With fewer processes than this a container does not start.
const PIDS_MIN: i64 = 20;
/// Log files of this size or less are smaller than the runtime's read buffer.
const LOG_SIZE_MIN: i64 = 8192;

/// A ContainerRuntimeConfig that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ContainerRuntimeConfig {name}: {path}: {message}")]
pub struct ContainerRuntimeError {
    /// The object.
    pub name: String,
    /// The field's path.
    pub path: String,
    /// The rule.
    pub message: String,
}

/// One object, parsed.
#[derive(Debug, Clone)]
pub(crate) struct ContainerRuntimeConfig {
    name: String,
    log_level: String,
    pids_limit: Option<i64>,
    log_size_max: i64,
    overlay_size: Option<String>,
    default_runtime: String,
    layer_stores: Vec<String>,
    image_stores: Vec<String>,
    artifact_stores: Vec<String>,
}

/// Folders with images that others have put on the host, as the object lists them under this field; else the path of one that
/// cannot be used, and the rule.
fn stores(config: &Value, field: &str) -> Result<Vec<String>, (String, String)> {
    let all = config.get(field).and_then(Value::as_array);
    let mut paths = Vec::new();
    for (i, store) in all.into_iter().flatten().enumerate() {
        let path = store.get("path").and_then(Value::as_str).unwrap_or_default();
        let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        if !path.starts_with('/') || path.len() < 2 || !plain || path.contains("//") {
            let rule =
                format!("{path:?} is not an absolute path of letters, digits, dots, hyphens and underscores");
            return Err((format!("{field}[{i}].path"), rule));
        }
        paths.push(path.to_owned());
    }
    Ok(paths)
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
            api::formats::shape::read::<Option<LabelSelector>>(selector)
                .map_err(|e| bad("machineConfigPoolSelector", &e.to_string()))?;
        }
        let config = object.pointer("/spec/containerRuntimeConfig").unwrap_or(&Value::Null);
        let given = |key: &str| config.get(key).filter(|v| !v.is_null());
        let text = |key: &str| match given(key) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(bad(&format!("containerRuntimeConfig.{key}"), "must be a string")),
        };
        if !config.is_null() && !config.is_object() {
            return Err(bad("containerRuntimeConfig", "must be an object"));
        }
        let (log_level, default_runtime) = (text("logLevel")?, text("defaultRuntime")?);
        if !["", "error", "fatal", "panic", "warn", "info", "debug", "trace"].contains(&log_level.as_str()) {
            let message = "must be error, fatal, panic, warn, info, debug or trace";
            return Err(bad("containerRuntimeConfig.logLevel", message));
        }
        if !["", "crun", "runc"].contains(&default_runtime.as_str()) {
            return Err(bad("containerRuntimeConfig.defaultRuntime", "must be crun or runc"));
        }
        let pids_limit = given("pidsLimit")
            .map(|v| {
                v.as_i64().ok_or_else(|| bad("containerRuntimeConfig.pidsLimit", "must be a whole number"))
            })
            .transpose()?;
        if pids_limit.is_some_and(|p| p != 0 && p < PIDS_MIN) {
            return Err(bad("containerRuntimeConfig.pidsLimit", "must be 0 (no limit) or at least 20"));
        }
        let size = |key: &str, like: &str| -> Result<(i64, String), ContainerRuntimeError> {
            let Some(value) = given(key) else { return Ok((0, String::new())) };
            let read = Quantity::read(value).and_then(|q| Some((q.bytes()?, q.canonical())));
            read.ok_or_else(|| {
                bad(&format!("containerRuntimeConfig.{key}"), &format!("must be a quantity such as {like}"))
            })
        };
        let (log_size_max, _) = size("logSizeMax", "10M")?;
        if log_size_max > 0 && log_size_max <= LOG_SIZE_MIN {
            return Err(bad("containerRuntimeConfig.logSizeMax", "must be more than 8192 bytes"));
        }
        let (overlay_bytes, overlay) = size("overlaySize", "10G")?;
        if overlay_bytes < 0 {
            return Err(bad("containerRuntimeConfig.overlaySize", "must not be negative"));
        }
        let overlay_size = (overlay_bytes > 0).then_some(overlay);
        let mut found = Vec::new();
        for field in ["additionalLayerStores", "additionalImageStores", "additionalArtifactStores"] {
            let paths = stores(config, field);
            found.push(paths.map_err(|(at, rule)| bad(&format!("containerRuntimeConfig.{at}"), &rule))?);
        }
        let mut found = found.into_iter();
        let mut next = || found.next().unwrap_or_default();
        let (layer_stores, image_stores, artifact_stores) = (next(), next(), next());
        Ok(Self {
            name,
            log_level,
            pids_limit,
            log_size_max,
            overlay_size,
            default_runtime,
            layer_stores,
            image_stores,
            artifact_stores,
        })
    }

    fn error(&self, path: &str, message: String) -> ContainerRuntimeError {
        ContainerRuntimeError { name: self.name.clone(), path: path.to_owned(), message }
    }

    /// The new `storage.conf`, if this object changes it.
    fn storage(&self, template: Option<&str>, stores: bool) -> Result<Option<String>, ContainerRuntimeError> {
        let list = |all: &[String], suffix: &str| -> Option<toml_edit::Value> {
            let with = |p: &String| if p.ends_with(suffix) { p.clone() } else { format!("{p}{suffix}") };
            (stores && !all.is_empty()).then(|| all.iter().map(with).collect::<toml_edit::Array>().into())
        };
        let changes = [
            ("overlaySize", "size", self.overlay_size.as_deref().map(toml_edit::Value::from)),
            ("additionalLayerStores", "additionallayerstores", list(&self.layer_stores, ":ref")),
            ("additionalImageStores", "additionalimagestores", list(&self.image_stores, "")),
        ];
        let Some((field, ..)) = changes.iter().find(|(.., value)| value.is_some()) else { return Ok(None) };
        let path = format!("spec.containerRuntimeConfig.{field}");
        // Everything else in the host's own file would be lost.
        let template = template.ok_or_else(|| {
            let message = format!("the templates have no {STORAGE_CONF}; switch on the template layer crio");
            self.error(&path, message)
        })?;
        let mut storage: toml_edit::DocumentMut = template.parse().map_err(|e: toml_edit::TomlError| {
            self.error(&path, format!("template of {STORAGE_CONF}: {e}"))
        })?;
        let table = || toml_edit::Item::Table(toml_edit::Table::new());
        let section = storage.entry("storage").or_insert_with(table);
        let options = section.as_table_like_mut().map(|s| s.entry("options").or_insert_with(table));
        if let Some(options) = options.and_then(toml_edit::Item::as_table_like_mut) {
            for (_, key, value) in changes {
                if let Some(value) = value {
                    options.insert(key, toml_edit::value(value));
                }
            }
        }
        Ok(Some(storage.to_string()))
    }

    /// Makes `99-POOL-generated-containerruntime`. `stores`: whether additional stores are enabled.
    pub(crate) fn machine_config(
        &self,
        pool: &MachineConfigPool,
        storage_template: Option<&str>,
        stores: bool,
        versions: &Versions,
    ) -> Result<MachineConfig, ContainerRuntimeError> {
        let mut files = Vec::new();
        if let Some(storage) = self.storage(storage_template, stores)? {
            files.push(kubelet::file(STORAGE_CONF, storage.as_bytes()));
        }
        let quoted = |s: &str| toml::Value::String(s.to_owned()).to_string();
        let level = (!self.log_level.is_empty()).then(|| format!("log_level = {}", quoted(&self.log_level)));
        let pids = self.pids_limit.map(|p| if p == 0 { String::new() } else { format!("pids_limit = {p}") });
        let size = (self.log_size_max != 0).then(|| format!("log_size_max = {}", self.log_size_max));
        let runtime = &self.default_runtime;
        let runtime = (!runtime.is_empty()).then(|| format!("default_runtime = {}", quoted(runtime)));
        let artifacts: Vec<String> = self.artifact_stores.iter().map(|s| quoted(s)).collect();
        let artifacts = (stores && !artifacts.is_empty())
            .then(|| format!("additional_artifact_stores = [{}]", artifacts.join(", ")));
        for (field, line) in [
            ("logLevel", level),
            ("pidsLimit", pids),
            ("logSizeMax", size),
            ("defaultRuntime", runtime),
            ("additionalArtifactStores", artifacts),
        ] {
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

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better where they stand")]
mod tests {
    use super::*;
    use crate::template::RenderedTemplate;
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
            (json!({"logSizeMax": ""}), false),
            (json!({"logSizeMax": "1.5M"}), true),
            (json!({"logLevel": "loud"}), false),
            (json!({"logLevel": 5}), false),
            (json!({"pidsLimit": "100"}), false),
            (json!({"pidsLimit": null, "logLevel": null, "overlaySize": null}), true),
            (json!([]), false),
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
        let mc = config.machine_config(&pool, Some(template), false, &Versions::unknown()).unwrap();
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

    #[test]
    fn stores_of_others_are_added_where_they_are_switched_on() {
        for bad in ["", "var/lib/store", "/a b", "/a@b", "/var//lib/store", "/"] {
            let e = read(json!({"additionalImageStores": [{"path": "/ok"}, {"path": bad}]}))
                .unwrap_err()
                .to_string();
            assert!(e.contains("spec.containerRuntimeConfig.additionalImageStores[1].path"), "{bad}: {e}");
        }
        let config = read(json!({
            "additionalLayerStores": [{"path": "/var/lib/stargz-store"}],
            "additionalImageStores": [{"path": "/mnt/nfs-images/cache_v1.0"}],
            "additionalArtifactStores": [{"path": "/mnt/a"}],
        }))
        .unwrap();
        let made = |template: Option<&str>, stores: bool| {
            let mc = config.machine_config(
                &MachineConfigPool::default(),
                template,
                stores,
                &Versions::unknown(),
            )?;
            let texts = [STORAGE_CONF, "/etc/crio/crio.conf.d/01-ctrcfg-additionalArtifactStores"]
                .map(|path| kubelet::template_file(&[RenderedTemplate::of(&mc)], path).unwrap_or_default());
            Ok::<_, ContainerRuntimeError>(texts)
        };
        let [storage, artifacts] = made(Some("[storage]\ndriver = \"overlay\"\n"), true).unwrap();
        assert_eq!(
            storage,
            "[storage]\ndriver = \"overlay\"\n\n[storage.options]\nadditionallayerstores = \
             [\"/var/lib/stargz-store:ref\"]\nadditionalimagestores = [\"/mnt/nfs-images/cache_v1.0\"]\n"
        );
        assert!(artifacts.ends_with("    additional_artifact_stores = [\"/mnt/a\"]\n"), "{artifacts}");
        assert_eq!(made(None, false).unwrap(), ["", ""]);
        let e = made(None, true).unwrap_err().to_string();
        assert!(e.contains("additionalLayerStores") && e.contains("template layer crio"), "{e}");
    }
}

//! Renders the MachineConfigs of each pool among objects from a cluster or from files, by the controller's own rule. Pure.
//!
//! What it is not: that rule (see `render`), or the reading of objects.

use crate::objects::{Objects, is, object, pool_of, without_feature_gate};
use api::formats::shape::ShapeError;
use api::names::{ARBITER, CONTROLLER_CONFIG, GROUP, MASTER, WORKER};
use api::v1::{ControllerConfig, MachineConfig};
use kube::ResourceExt;
use render::bootstrap::{BootstrapError, Manifests, plan_only};
use render::generated::GeneratedError;
use render::{TemplateError, TemplateSet, Versions};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Why objects cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum UnrenderableError {
    /// A rendered config among them that cannot be read.
    #[error("{origin}: rendered config of {pool}")]
    Rendered {
        /// Where it comes from.
        origin: String,
        /// Its pool.
        pool: String,
        /// Its first invalid field.
        source: ShapeError,
    },
    /// A MachineConfig that cannot be read.
    #[error("{origin}")]
    Config {
        /// Where it comes from.
        origin: String,
        /// Its first invalid field.
        source: ShapeError,
    },
    /// An object that settings apply to cannot be read.
    #[error("{kind} {name}")]
    Object {
        /// Its kind.
        kind: &'static str,
        /// Its name, in quotes.
        name: String,
        /// Its first invalid field.
        source: ShapeError,
    },
    /// A pool that was asked for does not exist.
    #[error("there is no pool {missing:?} in the manifests; their pools are: {there}")]
    NoPool {
        /// The pool.
        missing: String,
        /// The pools that exist.
        there: String,
    },
    /// The ControllerConfig has another name.
    #[error("there is no ControllerConfig {CONTROLLER_CONFIG}; `mco install` creates it")]
    NoControllerConfig,
    /// The settings cannot be rendered as they are now, before the change.
    #[error("cannot generate the MachineConfigs of the cluster's present settings with these templates")]
    Before(#[source] Box<Self>),
    /// A template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A setting that is refused.
    #[error(transparent)]
    Generated(GeneratedError),
    /// A pool, or an object that its rendering needs.
    #[error(transparent)]
    Render(#[from] BootstrapError),
}

/// What objects are rendered with, besides themselves.
#[derive(Debug, Clone, Copy)]
pub struct RenderWith<'a> {
    /// The templates that base MachineConfigs are made from; may be empty.
    pub templates: &'a TemplateSet,
    /// The ControllerConfig to use if there is none among the objects.
    pub controller_config: &'a ControllerConfig,
}

impl RenderWith<'_> {
    /// Adds the ControllerConfig if there is none.
    pub fn complete(&self, objects: &mut Objects) {
        if !objects.iter().any(|(_, v)| is(v, GROUP, "ControllerConfig")) {
            let config = object(self.controller_config, "ControllerConfig");
            objects.push(("default ControllerConfig".to_owned(), config));
        }
    }
}

/// The rendered config of each pool.
pub type Rendered = BTreeMap<String, MachineConfig>;

/// Renders each pool of the objects, or only these. If nothing else is known of a pool, a rendered config among the objects
/// is taken as its result. If there are no pools, each role that the labels of MachineConfigs name counts as one. Also returns what has no effect
/// or will not work.
///
/// # Errors
/// An object cannot be read or is refused by a rule, or a pool does not exist.
pub fn rendered(
    objects: Objects,
    with: RenderWith<'_>,
    only: &[String],
) -> Result<(Rendered, Vec<String>), UnrenderableError> {
    let (done, mut objects): (Objects, Objects) =
        objects.into_iter().partition(|(_, v)| pool_of(v).is_some());
    let (mut all, mut warnings) = (Rendered::new(), vec![]);
    for (origin, value) in done {
        if let Some(pool) = pool_of(&value) {
            match api::formats::shape::read(&value) {
                Ok(config) => drop(all.insert(pool, config)),
                Err(source) => return Err(UnrenderableError::Rendered { origin, pool, source }),
            }
        }
    }
    add_default_pools(&mut objects)?;
    with.complete(&mut objects);
    let pool_name =
        |v: &Value| v.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_pool = |v: &Value| is(v, GROUP, "MachineConfigPool");
    let mut there: Vec<String> =
        objects.iter().filter(|(_, v)| is_pool(v)).map(|(_, v)| pool_name(v)).collect();
    there.extend(all.keys().cloned());
    if let Some(missing) = only.iter().find(|p| !there.contains(p)) {
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        return Err(UnrenderableError::NoPool { missing: missing.clone(), there });
    }
    if !only.is_empty() {
        // A broken pool that was not asked for does not block the others. Custom pools inherit the OS stream of `worker`.
        let inherits = only.iter().any(|p| ![MASTER, WORKER, ARBITER].contains(&p.as_str()));
        let asked = |v: &Value| only.contains(&pool_name(v));
        objects.retain(|(_, v)| !is_pool(v) || asked(v) || inherits && pool_name(v) == WORKER);
        for (_, value) in objects.iter_mut().filter(|(_, v)| is_pool(v) && !asked(v)) {
            *value = stream_alone(value);
        }
    }
    if objects.iter().any(|(_, v)| is_pool(v)) {
        let versions = Versions::of_this_build();
        let output = plan_only(&Manifests::read(objects)?, with.templates, None, &versions, only)?;
        warnings = output.warnings.iter().map(ToString::to_string).collect();
        let by_name: BTreeMap<String, MachineConfig> =
            output.machine_configs.into_iter().map(|mc| (mc.name_any(), mc)).collect();
        for pool in output.pools {
            if let Some(mc) = by_name.get(&pool.spec.configuration.name) {
                all.insert(pool.name_any(), mc.clone());
            }
        }
    }
    Ok((all, warnings))
}

/// What a cluster has: the rendered config that each pool is to have, and the objects without rendered configs.
///
/// # Errors
/// A rendered config cannot be read.
pub fn in_force(objects: Objects) -> Result<(Rendered, Objects), UnrenderableError> {
    let text = |v: &Value, path: &str| v.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let configs: BTreeMap<String, &(String, Value)> = objects
        .iter()
        .filter(|(_, v)| is(v, GROUP, "MachineConfig"))
        .map(|o| (text(&o.1, "/metadata/name"), o))
        .collect();
    let mut rendered = Rendered::new();
    for (_, pool) in objects.iter().filter(|(_, v)| is(v, GROUP, "MachineConfigPool")) {
        if let Some((origin, config)) = configs.get(&text(pool, "/spec/configuration/name")) {
            let (origin, pool) = (origin.clone(), text(pool, "/metadata/name"));
            match api::formats::shape::read(config) {
                Ok(config) => drop(rendered.insert(pool, config)),
                Err(source) => return Err(UnrenderableError::Rendered { origin, pool, source }),
            }
        }
    }
    let others = objects.into_iter().filter(|(_, v)| pool_of(v).is_none()).collect();
    // What is generated from feature gates exists already.
    Ok((rendered, without_feature_gate(others)))
}

/// A pool with nothing but the settings that other pools inherit.
fn stream_alone(pool: &Value) -> Value {
    let mut alone = json!({
        "apiVersion": pool["apiVersion"], "kind": pool["kind"], "metadata": {"name": pool["metadata"]["name"]}, "spec": {}
    });
    if let Some(stream) = pool.pointer("/spec/osImageStream") {
        alone["spec"]["osImageStream"] = stream.clone();
    }
    alone
}

/// Adds a pool for each role of the MachineConfigs where there are no pools.
fn add_default_pools(objects: &mut Objects) -> Result<(), UnrenderableError> {
    if objects.iter().any(|(_, v)| is(v, GROUP, "MachineConfigPool")) {
        return Ok(());
    }
    let mut configs: Vec<MachineConfig> = vec![];
    for (origin, value) in objects.iter().filter(|(_, v)| is(v, GROUP, "MachineConfig")) {
        let config = api::formats::shape::read(value);
        configs.push(config.map_err(|source| UnrenderableError::Config { origin: origin.clone(), source })?);
    }
    for pool in render::default_pools(&configs) {
        objects.push(("default pools".to_owned(), object(&pool, "MachineConfigPool")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pools_config_in_force_is_taken_out_and_older_ones_are_left_out() {
        let config = |name: &str| json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": name}, "spec": {}});
        let pool = |name: &str, config: &str| json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": name}, "spec": {"configuration": {"name": config}}});
        let hash = |digit: &str| format!("rendered-worker-{}", digit.repeat(32));
        let all = [
            config("50-a"),
            config(&hash("1")),
            config(&hash("2")),
            pool("worker", &hash("2")),
            pool("new", ""),
        ];
        let all: Objects = all.into_iter().map(|v| ("the cluster".to_owned(), v)).collect();
        let (rendered, others) = in_force(all.clone()).unwrap();
        let rendered: Vec<_> =
            rendered.iter().map(|(pool, config)| (pool.as_str(), config.name_any())).collect();
        assert_eq!(rendered, [("worker", hash("2"))]);
        let names: Vec<_> = others.iter().filter_map(|(_, v)| v["metadata"]["name"].as_str()).collect();
        assert_eq!(names, ["50-a", "worker", "new"]);
        let mut broken = all;
        broken[2].1["spec"] = json!({"fips": "hunter2"});
        let why = api::formats::text::chain(&in_force(broken).unwrap_err());
        assert!(
            why.starts_with("the cluster: rendered config of worker: spec.fips") && !why.contains("hunter2"),
            "{why}"
        );
    }
}

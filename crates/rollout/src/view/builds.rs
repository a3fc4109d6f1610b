//! Image build objects as a rollout sees them. Their kinds need not be installed and have no type here: they are read
//! from JSON, by the controller from its watches and offline from files.
//!
//! What it is not: the rule of when nodes may go to an image (see [`Layering::ready`]).

use crate::layered::{BuildState, Layering, OsBuildView, OsConfigView};
use api::names::annotation::CURRENT_BUILD;
use serde_json::Value;
use std::borrow::Borrow;

/// A MachineOSConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsConfig {
    pool: String,
    current_build: Option<String>,
    view: OsConfigView,
}

/// A MachineOSBuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsBuild {
    os_config: String,
    view: OsBuildView,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl OsConfig {
    /// From the object as JSON.
    pub fn new(object: &Value) -> Self {
        let current_build = object["metadata"]["annotations"][CURRENT_BUILD].as_str().map(str::to_owned);
        Self {
            pool: text(object, "/spec/machineConfigPool/name").to_owned(),
            current_build,
            view: OsConfigView {
                name: text(object, "/metadata/name").into(),
                image: text(object, "/status/currentImagePullSpec").into(),
            },
        }
    }

    /// The pool that it is for; empty if it names none.
    pub fn pool(&self) -> &str {
        &self.pool
    }
}

impl OsBuild {
    /// From the object as JSON.
    pub fn new(object: &Value) -> Self {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let is_true = conditions.into_iter().flatten().filter(|c| c["status"] == "True");
        let state = BuildState::from_true(is_true.filter_map(|c| c["type"].as_str()));
        Self {
            os_config: text(object, "/spec/machineOSConfig/name").to_owned(),
            view: OsBuildView {
                name: text(object, "/metadata/name").into(),
                machine_config: text(object, "/spec/machineConfig/name").into(),
                state,
                image: text(object, "/status/digestedImagePushSpec").into(),
            },
        }
    }
}

impl Layering {
    /// The image build objects of a pool: its MachineOSConfig, and the build in force, else any build for the pool's
    /// config.
    pub fn find(
        pool: &str,
        config: &str,
        configs: &[impl Borrow<OsConfig>],
        builds: &[impl Borrow<OsBuild>],
    ) -> Self {
        let Some(os_config) = configs.iter().map(Borrow::borrow).find(|c| c.pool == pool) else {
            return Self::default();
        };
        let fitting = || builds.iter().map(Borrow::borrow).filter(|b| &*b.view.machine_config == config);
        let in_force = os_config.current_build.as_deref();
        let build = fitting()
            .find(|b| Some(&*b.view.name) == in_force)
            .or_else(|| fitting().find(|b| b.os_config == *os_config.view.name));
        Self { config: Some(os_config.view.clone()), build: build.map(|b| b.view.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn build(name: &str, os_config: &str, machine_config: &str, condition: &str) -> OsBuild {
        OsBuild::new(&json!({
            "metadata": {"name": name},
            "spec": {"machineOSConfig": {"name": os_config}, "machineConfig": {"name": machine_config}},
            "status": {"conditions": [{"type": "Prepared", "status": "False"}, {"type": condition, "status": "True"}]},
        }))
    }

    #[test]
    fn a_pool_gets_the_build_in_force_for_its_config_or_any_of_its_own() {
        let mut os = json!({
            "metadata": {"name": "os", "annotations": {}},
            "spec": {"machineConfigPool": {"name": "infra"}}, "status": {"currentImagePullSpec": "i"},
        });
        let builds = [
            build("b1", "os", "r1", "Succeeded"),
            build("b2", "os", "r2", "Building"),
            build("b3", "os", "r2", "Failed"),
        ];
        let name = |l: Layering| l.build.map(|b| (b.name.to_string(), b.state));
        let found = |os: &Value, config| Layering::find("infra", config, &[OsConfig::new(os)], &builds);
        assert_eq!(name(found(&os, "r1")), Some(("b1".to_owned(), BuildState::Succeeded)));
        assert_eq!(name(found(&os, "r2")), Some(("b2".to_owned(), BuildState::Building)));
        assert_eq!(name(found(&os, "r3")), None);
        assert_eq!(Layering::find("worker", "r1", &[OsConfig::new(&os)], &builds), Layering::default());
        os["metadata"]["annotations"][CURRENT_BUILD] = json!("b3");
        assert_eq!(name(found(&os, "r2")), Some(("b3".to_owned(), BuildState::Failed)));
        assert_eq!(name(found(&os, "r1")), Some(("b1".to_owned(), BuildState::Succeeded)));
    }
}

//! Pools whose OS image is built on the cluster: what is read of MachineOSConfig and MachineOSBuild, which build belongs to
//! a pool's config, and whether machines may have its image. These are two questions. The rollout asks whether nodes may go to a
//! new image ([`Layering::ready`]). The config server asks which image a new machine boots ([`image_for_new_machines`]): the one that
//! the nodes are to run by now, also while the next one is built.
//!
//! The objects are read from JSON: their kinds need not be installed. What it is not: the build (see `build`), or the order in
//! which nodes go (see `rollout`).

use crate::conditions;
use crate::images::build_state::BuildState;
use crate::names::annotation::CURRENT_BUILD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The image build objects of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layering {
    /// The MachineOSConfig that names the pool.
    pub config: Option<OsConfigView>,
    /// The MachineOSBuild for it and the pool's rendered config.
    pub build: Option<OsBuildView>,
}

/// A MachineOSConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsConfigView {
    /// Its name.
    pub name: Arc<str>,
    /// `status.currentImagePullSpec`; empty if there is none.
    pub image: Arc<str>,
}

/// A MachineOSBuild.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsBuildView {
    /// Its name.
    pub name: Arc<str>,
    /// The rendered config that it builds for.
    pub machine_config: Arc<str>,
    /// Its progress.
    pub state: BuildState,
    /// `status.digestedImagePushSpec`; empty if there is none.
    pub image: Arc<str>,
}

/// Why nodes do not go to the image yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ImageWait {
    /// A build without its MachineOSConfig. This is an error.
    Orphan(Arc<str>),
    /// There is no build yet.
    NoBuild(Arc<str>),
    /// The MachineOSConfig does not name an image yet.
    NoImage(Arc<str>),
    /// The build's image is not yet the one that the MachineOSConfig names.
    OtherImage(Arc<str>),
    /// The build has not finished.
    Build(Arc<str>, BuildState),
    /// The build failed. This is an error.
    Failed(Arc<str>),
}

impl ImageWait {
    /// Whether somebody must act, rather than wait.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Orphan(_) | Self::Failed(_))
    }
}

impl fmt::Display for ImageWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Orphan(build) => write!(
                f,
                "MachineOSBuild {build} has no MachineOSConfig for this pool; delete the build or restore the config"
            ),
            Self::NoBuild(config) => {
                write!(f, "no MachineOSBuild for MachineOSConfig {config} and the pool's config yet")
            }
            Self::NoImage(config) => write!(f, "MachineOSConfig {config} names no image yet"),
            Self::OtherImage(build) => {
                write!(f, "the image of MachineOSBuild {build} is not that of its MachineOSConfig yet")
            }
            Self::Build(build, state) => write!(f, "MachineOSBuild {build} is {state:?}"),
            Self::Failed(build) => {
                write!(f, "MachineOSBuild {build} failed; see its conditions, then rebuild")
            }
        }
    }
}

impl Layering {
    /// Whether either object exists.
    pub fn is_layered(&self) -> bool {
        self.config.is_some() || self.build.is_some()
    }

    /// The image that nodes should run; `None` or empty if there is none.
    pub fn image(&self) -> Option<&Arc<str>> {
        self.config.as_ref().map(|c| &c.image).filter(|i| !i.is_empty())
    }

    /// Whether nodes may go: only if the build for the pool's config succeeded and its image is the one in force.
    pub fn ready(&self) -> Result<(), ImageWait> {
        let (config, build) = match (&self.config, &self.build) {
            (None, None) => return Ok(()),
            (None, Some(build)) => return Err(ImageWait::Orphan(build.name.clone())),
            (Some(config), None) => return Err(ImageWait::NoBuild(config.name.clone())),
            (Some(config), Some(build)) => (config, build),
        };
        let name = || build.name.clone();
        match build.state {
            BuildState::Failed => Err(ImageWait::Failed(name())),
            _ if config.image.is_empty() => Err(ImageWait::NoImage(config.name.clone())),
            BuildState::Succeeded if build.image == config.image => Ok(()),
            BuildState::Succeeded => Err(ImageWait::OtherImage(name())),
            state => Err(ImageWait::Build(name(), state)),
        }
    }

    /// Whether the pool's status shows that it waits for a build. Failed builds count too.
    pub fn building(&self) -> bool {
        let (Some(config), Some(build)) = (&self.config, &self.build) else { return false };
        match build.state {
            BuildState::Building | BuildState::Prepared | BuildState::Failed => true,
            BuildState::Succeeded => !build.image.is_empty() && build.image != config.image,
            BuildState::Initial | BuildState::Interrupted => false,
        }
    }
}

/// What is read of a MachineOSConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsConfig {
    pool: String,
    current_build: Option<String>,
    view: OsConfigView,
}

/// What is read of a MachineOSBuild.
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
        let state = BuildState::from_conditions(conditions::of_object(object));
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

/// The image that a new machine of a pool boots: the one that its MachineOSConfig names, if a build for this config has made exactly
/// that one. While a later build runs, or after it failed, nodes keep that image, so new machines get it, too. `None`: there is no
/// such image, or the build in force has succeeded and the MachineOSConfig does not name its image yet.
pub fn image_for_new_machines(
    pool: &str,
    config: &str,
    configs: &[impl Borrow<OsConfig>],
    builds: &[impl Borrow<OsBuild>],
) -> Option<Arc<str>> {
    let os_config = configs.iter().map(Borrow::borrow).find(|c| c.pool == pool)?;
    let image = &os_config.view.image;
    let of_config = || builds.iter().map(Borrow::borrow).filter(|b| &*b.view.machine_config == config);
    let succeeded = || of_config().filter(|b| b.view.state == BuildState::Succeeded);
    let is_in_force = |b: &OsBuild| os_config.current_build.as_deref() == Some(&*b.view.name);
    let is_own = |b: &OsBuild| is_in_force(b) || b.os_config == *os_config.view.name;
    // Nodes are about to go to another image.
    let is_replaced = succeeded().any(|b| is_in_force(b) && b.view.image != *image);
    let has_made = succeeded().any(|b| is_own(b) && b.view.image == *image);
    (!image.is_empty() && has_made && !is_replaced).then(|| image.clone())
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

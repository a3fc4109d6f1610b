//! Pools whose OS image is built on the cluster: what is read of MachineOSConfig and MachineOSBuild, and whether nodes
//! may go to the image.
//!
//! What it is not: the build, or the choice among several builds ([`Layering`] holds the one that belongs to the pool's
//! rendered config).

pub use api::build_state::BuildState;
use serde::{Deserialize, Serialize};
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

/// Where nodes should go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The rendered MachineConfig.
    pub config: Arc<str>,
    /// The layered OS image, where the pool has one.
    pub image: Option<Arc<str>>,
}

impl Target {
    /// Where the nodes of a pool with this rendered config go: to the image that was built for it, where one is built.
    pub(crate) fn of(config: Arc<str>, layering: &Layering) -> Self {
        match &layering.build {
            Some(build) if layering.config.is_some() => {
                Self { config: build.machine_config.clone(), image: layering.image().cloned() }
            }
            _ => Self { config, image: None },
        }
    }
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
    pub(crate) fn building(&self) -> bool {
        let (Some(config), Some(build)) = (&self.config, &self.build) else { return false };
        match build.state {
            BuildState::Building | BuildState::Prepared | BuildState::Failed => true,
            BuildState::Succeeded => !build.image.is_empty() && build.image != config.image,
            BuildState::Initial | BuildState::Interrupted => false,
        }
    }
}

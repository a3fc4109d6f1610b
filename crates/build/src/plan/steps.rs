//! What a plan of image builds says, and how it is printed. Nothing is decided here.

use crate::names;
use crate::pushed::Pushed;
use crate::state::State;
use api::conditions::Condition;
use api::names::annotation;
use api::v1::{MachineOSBuild, MachineOSBuildStatus, MachineOSConfigStatus};
use std::fmt;

/// What to do, in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildPlan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Why the build that is wanted does not go on.
    pub wait: Option<Wait>,
    /// The pool's condition `ImageBuildDegraded`, if it has to be set. The rollout clears it.
    pub condition: Option<Condition>,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Create a build; one with the annotation [`names::REUSES`] stands for an image that is there already.
    Create(Box<MachineOSBuild>),
    /// Create the Job and the ConfigMaps of a build.
    Start(String),
    /// Record the Job of a build that was created before this could be recorded.
    Adopt {
        /// The build.
        build: String,
        /// The uid of its Job.
        uid: String,
    },
    /// Have all further pods of a build take this base image, and record it.
    Base {
        /// The build.
        build: String,
        /// The image by its digest.
        image: String,
    },
    /// Write a build's status.
    Status {
        /// The build.
        build: String,
        /// The state that the status says.
        state: State,
        /// The status.
        status: Box<MachineOSBuildStatus>,
    },
    /// Delete the Job and the ConfigMaps of a build.
    Stop(String),
    /// Put something on the list of what was pushed, see [`crate::pushed`].
    Remember(Box<Pushed>),
    /// Take the image of a build from that list, and write on the build that the image stays.
    Keep {
        /// The build.
        build: String,
        /// The image's key in the list, if the build has an image.
        key: Option<String>,
    },
    /// Delete a build.
    Delete {
        /// The build.
        build: String,
        /// Why.
        why: &'static str,
    },
    /// Write what the MachineOSConfig says of its builds.
    UpdateOsConfig(Box<OsConfigUpdate>),
}

/// The changes that make a MachineOSConfig name its build.
#[derive(Debug, Clone, PartialEq)]
pub struct OsConfigUpdate {
    /// The build in force.
    pub build: String,
    /// Annotations that go.
    pub clear: Vec<&'static str>,
    /// Its status, if that changes.
    pub status: Option<MachineOSConfigStatus>,
}

/// Why the wanted build does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Nothing builds images here.
    NoBuilder,
    /// The pool names no rendered config yet, or one that is not known.
    NotRendered,
    /// The pool cannot be rendered, so its config is not what it should be.
    RenderDegraded,
    /// The Job has ended, and what its pods say has to be read.
    Report(String),
    /// The wanted build has failed.
    Failed(String),
    /// Somebody has deleted the Job of the wanted build.
    Interrupted(String),
    /// The Job is in no cache, and the API server has to be asked for it.
    Job(String),
    /// No pod of the wanted build's Job starts.
    HeldUp {
        /// The build.
        build: String,
        /// Why.
        why: String,
    },
    /// The image from elsewhere is none.
    NotPreBuilt(String),
    /// Somebody else has made a build of the wanted name.
    Foreign(String),
}

impl Wait {
    /// Whether people have to be told, because nothing else tells them: a failure is in a condition of its own, and the others
    /// end by themselves.
    pub fn needs_somebody(&self) -> bool {
        match self {
            Self::NoBuilder
            | Self::Interrupted(_)
            | Self::HeldUp { .. }
            | Self::NotPreBuilt(_)
            | Self::Foreign(_) => true,
            Self::NotRendered | Self::RenderDegraded | Self::Report(_) | Self::Failed(_) | Self::Job(_) => {
                false
            }
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBuilder => write!(
                f,
                "no image is built, because no builder image is set: set the annotation {} of the ControllerConfig to an \
                 image that contains bash and buildah",
                annotation::IMAGE_BUILDER
            ),
            Self::NotRendered => f.write_str("the pool has no rendered config yet"),
            Self::RenderDegraded => f.write_str("the pool cannot be rendered; see RenderDegraded"),
            Self::Report(build) => {
                write!(f, "the state of the pods of MachineOSBuild {build} is not known yet")
            }
            Self::Failed(build) => write!(
                f,
                "MachineOSBuild {build} failed; correct its cause, then set the annotation {} on the MachineOSConfig",
                names::REBUILD
            ),
            Self::Interrupted(build) => write!(
                f,
                "the Job of MachineOSBuild {build} was deleted; to build again, set the annotation {} on the \
                 MachineOSConfig",
                names::REBUILD
            ),
            Self::Job(build) => write!(f, "whether MachineOSBuild {build} has a Job is not known yet"),
            Self::HeldUp { build, why } => {
                write!(f, "the pod of MachineOSBuild {build} does not start: {why}")
            }
            Self::NotPreBuilt(value) => write!(
                f,
                "the annotation {} of the MachineOSConfig is {:?}, which does not name an image by its digest (NAME@sha256: and 64 \
                 hexadecimal digits); correct it, or remove it to build an image",
                names::PRE_BUILT,
                api::formats::text::cut(value, MAX_SHOWN)
            ),
            Self::Foreign(build) => write!(
                f,
                "MachineOSBuild {build} exists, but was not made for this MachineOSConfig; delete it, and the controller \
                 makes a new one"
            ),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(build) => {
                let name = build.metadata.name.as_deref().unwrap_or_default();
                match build.metadata.annotations.as_ref().and_then(|a| a.get(names::REUSES)) {
                    Some(image) => write!(f, "create {name} for image {image}"),
                    None => write!(f, "create {name}"),
                }
            }
            Self::Start(build) => write!(f, "start {build}"),
            Self::Adopt { build, uid } => write!(f, "record job {uid} of {build}"),
            Self::Base { build, image } => write!(f, "{build} is built from {image}"),
            Self::Status { build, state, .. } => write!(f, "{build} is {state:?}"),
            Self::Stop(build) => write!(f, "stop {build}"),
            Self::Remember(pushed) => write!(f, "remember {}", pushed.what),
            Self::Keep { build, .. } => write!(f, "the image of {build} stays"),
            Self::Delete { build, why } => write!(f, "delete {build}: {why}"),
            Self::UpdateOsConfig(point) => {
                write!(f, "in force: {}", point.build)?;
                if let Some(image) = point.status.as_ref().and_then(|s| s.current_image_pull_spec.as_deref())
                {
                    write!(f, ", image {image}")?;
                }
                point.clear.iter().try_for_each(|key| write!(f, ", without {key}"))
            }
        }
    }
}

impl fmt::Display for BuildPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        if let Some(condition) = &self.condition {
            writeln!(f, "{}: {}", condition.type_, condition.message)?;
        }
        self.wait.iter().try_for_each(|wait| writeln!(f, "waits: {wait}"))
    }
}

/// Characters of an annotation's value that are shown.
const MAX_SHOWN: usize = 200;

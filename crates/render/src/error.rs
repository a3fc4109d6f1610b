//! Why a pool cannot be rendered: the pool, and for each cause the object, the JSON path, and the rule with its remedy.
//!
//! What it is not: anything about the state of the cluster.

use api::render_reason::RenderReason;
use serde::{Serialize, Serializer};
use std::fmt;

/// The rule that a finding is about: a word by which people and programs filter findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A document that is no manifest, or does not fit its kind.
    Manifest,
    /// Two objects of one kind and name.
    Duplicate,
    /// A MachineConfig's own fields.
    MachineConfig,
    /// A rule of the Ignition specification.
    Ignition,
    /// A field that is unknown or misspelt.
    UnknownField,
    /// The mode of a file.
    FileMode,
    /// What a file holds.
    FileContents,
    /// Contents that would have to be fetched from the network.
    RemoteSource,
    /// A unit of systemd.
    SystemdUnit,
    /// A kernel argument.
    KernelArgument,
    /// The kernel's type.
    KernelType,
    /// An extension of the operating system.
    Extension,
    /// The operating system's image.
    OsImage,
    /// A stream of images.
    OsImageStream,
    /// The selector of a pool.
    Selector,
    /// A MachineConfig that no pool picks.
    NoPool,
    /// Several MachineConfigs set the same thing.
    Contested,
    /// A change removes the last way to log in.
    LastLogin,
    /// Too large for an object.
    TooLarge,
    /// Inputs of another version.
    Version,
    /// A template.
    Template,
    /// A KubeletConfig.
    KubeletConfig,
    /// A ContainerRuntimeConfig.
    ContainerRuntimeConfig,
    /// Mirrors of registries.
    Mirrors,
    /// A kind that has no effect yet.
    NotRendered,
    /// An image of a PinnedImageSet.
    PinnedImage,
}

impl Rule {
    /// The word, as `mco lint` prints it and JSON has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Duplicate => "duplicate",
            Self::MachineConfig => "machine-config",
            Self::Ignition => "ignition",
            Self::UnknownField => "unknown-field",
            Self::FileMode => "file-mode",
            Self::FileContents => "file-contents",
            Self::RemoteSource => "remote-source",
            Self::SystemdUnit => "systemd-unit",
            Self::KernelArgument => "kernel-argument",
            Self::KernelType => "kernel-type",
            Self::Extension => "extension",
            Self::OsImage => "os-image",
            Self::OsImageStream => "os-image-stream",
            Self::Selector => "selector",
            Self::NoPool => "no-pool",
            Self::Contested => "contested",
            Self::LastLogin => "last-login",
            Self::TooLarge => "too-large",
            Self::Version => "version",
            Self::Template => "template",
            Self::KubeletConfig => "kubelet-config",
            Self::ContainerRuntimeConfig => "container-runtime-config",
            Self::Mirrors => "mirrors",
            Self::NotRendered => "not-rendered",
            Self::PinnedImage => "pinned-image",
        }
    }

    /// The rule of an error at a path of an Ignition config: the validator tells the place, which has rules of its own.
    pub(crate) fn at(path: &str) -> Self {
        let mut steps = path.split('.').map(|step| step.split('[').next().unwrap_or(step));
        match (steps.next(), steps.next()) {
            (Some("systemd"), Some("units")) => Self::SystemdUnit,
            (Some("storage"), Some("files")) => match steps.next() {
                Some("mode") => Self::FileMode,
                Some("contents" | "append") => Self::FileContents,
                _ => Self::Ignition,
            },
            (Some("storage"), Some("directories")) if steps.next() == Some("mode") => Self::FileMode,
            _ => Self::Ignition,
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl From<&ignition::ResourceError> for Rule {
    fn from(error: &ignition::ResourceError) -> Self {
        match error {
            ignition::ResourceError::Remote { .. } => Self::RemoteSource,
            _ => Self::FileContents,
        }
    }
}

/// One cause: which object, where in it, which rule. Also used for warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Kind and name, for example `MachineConfig 50-motd`.
    pub object: String,
    /// JSON path in the object, for example `spec.config.storage.files[0].path`. Empty: the object as a whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it. `None`: the message says it, as those of Ignition's own rules do, or it goes without saying.
    pub remedy: Option<String>,
}

impl Finding {
    /// A finding on an object, given as kind and name.
    pub fn new(
        rule: Rule,
        object: impl Into<String>,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { rule, object: object.into(), path: path.into(), message: message.into(), remedy: None }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// A finding on a MachineConfig.
    pub fn on(rule: Rule, machine_config: &str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(rule, format!("MachineConfig {machine_config}"), path, message)
    }

    /// A finding on a pool.
    pub(crate) fn on_pool(rule: Rule, pool: &str, path: &str, message: impl Into<String>) -> Self {
        Self::new(rule, format!("MachineConfigPool {pool}"), path, message)
    }

    /// A finding about the result, if no MachineConfig is to blame.
    pub(crate) fn on_rendered(rule: Rule, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(rule, RENDERED, path, message)
    }
}

/// The object that such findings name.
pub(crate) const RENDERED: &str = "the rendered MachineConfig";

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule: _, object, path, message, remedy } = self;
        write!(f, "{object}: ")?;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(message)?;
        remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

/// The kind of cause, for callers that react to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The pool's selector cannot be evaluated.
    Selector,
    /// The pool's selector picks no MachineConfig.
    NoConfigs,
    /// Another version of the controller made an input; this ends when the upgrade is complete.
    VersionSkew,
    /// A MachineConfig breaks a rule.
    Refused,
    /// The result cannot be reached from the pool's present config without reinstalling the machines.
    Irreconcilable,
    /// The result is too large for one object.
    TooLarge,
}

impl From<Reason> for RenderReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Selector => Self::Selector,
            Reason::NoConfigs => Self::NoConfigs,
            Reason::VersionSkew => Self::VersionSkew,
            Reason::Refused => Self::Refused,
            Reason::Irreconcilable => Self::Irreconcilable,
            Reason::TooLarge => Self::TooLarge,
        }
    }
}

/// A pool that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RenderError {
    /// The pool.
    pub pool: String,
    /// The sort of cause.
    pub reason: Reason,
    /// Every cause; never empty.
    pub findings: Vec<Finding>,
}

impl RenderError {
    pub(crate) fn one(pool: &str, reason: Reason, finding: Finding) -> Self {
        Self { pool: pool.to_owned(), reason, findings: vec![finding] }
    }
}

impl fmt::Display for RenderError {
    /// All causes, up to the number that fits into a condition's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        write!(f, "pool {}: ", self.pool)?;
        if self.reason == Reason::Irreconcilable {
            write!(f, "machines of this pool cannot be changed to the new config: ")?;
        }
        f.write_str(&api::formats::text::statements(&self.findings, SHOWN))
    }
}

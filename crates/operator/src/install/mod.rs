//! `mco install`: the objects that must be in a cluster before a controller can work.
//!
//! With an image it applies the definitions, the operator and its settings object; everything else is the running operator's
//! (see `sync`). Without one the parts run elsewhere, and it writes what they need. Running it again upgrades what is
//! applied. Pools are only created if they are missing. In the ControllerConfig only the fields are updated that
//! `controller_config_values` decides about.
//!
//! Flow: [`prepare()`] reads what the cluster and an earlier installation have, and refuses where an installation must not
//! begin → [`plan()`] lists the objects in their order (pure) → [`carry_out`] writes them.

mod apply;
mod existing;
pub(crate) mod foreign;
mod managers;
mod payload;
mod plan;
mod prepare;
pub(crate) mod upgradeable;

pub use crate::controller_config_values;
pub use crate::facts::openshift::NAMESPACES as OPENSHIFT_NAMESPACES;
pub use crate::manifests::rights::PullSecret;
pub use apply::carry_out;
pub(crate) use apply::established;
pub use existing::pull_secret_in;
use existing::{Existing, find_existing};
pub(crate) use existing::{pull_secret as pull_secret_of, read_settings};
pub use foreign::Foreign;
pub use payload::OtherImage;
pub(crate) use plan::{controller_config, pool_object, read_controller_config, without_empty};
pub use plan::{moved_api_server, plan, pool};
pub use prepare::{PrepareError, Request, Target, prepare};
pub use upgradeable::NotUpgradeable;

use crate::reconcile_error::ReconcileError;
use api::crds::CrdError;
use api::formats::shape::ShapeError;
use api::names;
use api::topology::ControlPlaneTopology;
use api::v1alpha1::MachineConfigOperator;
use apply::ESTABLISH_TIMEOUT;
use client::CallError;
use controller_config_values::{ControllerConfigValues, ControllerConfigValuesError};
use ipnet::IpNet;
use serde_json::Value;
use std::fmt;

/// What is installed.
#[derive(Debug, Clone)]
pub struct Options {
    /// The built-in pools to create. `None`: nobody has named any.
    pub pools: Option<Vec<String>>,
    /// With `image`: the settings that are there.
    pub settings: Option<MachineConfigOperator>,
    /// The settings that the administrator passed.
    pub given: ControllerConfigValues,
    /// The settings that were detected.
    pub detected: ControllerConfigValues,
    /// The existing ControllerConfig, as the API server returned it.
    pub controller_config: Option<Value>,
    /// The names of the existing pools.
    pub existing_pools: Vec<String>,
    /// The topology of the control plane that is in effect. `None`: it is not known, or is one of another version.
    pub control_plane_topology: Option<ControlPlaneTopology>,
    /// The image of the agents' pods. `None`: with `image` what the settings say, which for new ones is pods of that image;
    /// without it agents run as services of their hosts.
    pub daemon_image: Option<String>,
    /// With `image`, and without one for the agents: they run as services of their hosts.
    pub agents_of_hosts: bool,
    /// The image of the pods of controller, config server and operator. `None`: they run outside of the cluster.
    pub image: Option<String>,
    /// With `image`: the config server gives configs only to machines with a boot token. False: to everybody, also over
    /// plain HTTP, as the reference does.
    pub require_token: bool,
    /// With `image`: load balancers that send the client's address by PROXY protocol.
    pub balancers: Vec<IpNet>,
    /// The pull secret that the ControllerConfig names.
    pub pull_secret: Option<PullSecret>,
    /// The boot tokens' Secrets in the namespace where earlier versions kept them.
    pub old_tokens: Vec<String>,
    /// OpenShift's namespaces in which the operator reads ConfigMaps, as far as they exist.
    pub openshift_namespaces: Vec<&'static str>,
    /// Also install the CRDs of OpenShift's own config and operator kinds, for a plain cluster that uses them.
    pub openshift_config_crds: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pools: Some(vec![names::MASTER.to_owned(), names::WORKER.to_owned()]),
            settings: None,
            given: ControllerConfigValues::default(),
            detected: ControllerConfigValues::default(),
            controller_config: None,
            existing_pools: vec![],
            control_plane_topology: None,
            daemon_image: None,
            agents_of_hosts: false,
            image: None,
            require_token: true,
            balancers: vec![],
            pull_secret: None,
            old_tokens: vec![],
            openshift_namespaces: vec![],
            openshift_config_crds: false,
        }
    }
}

/// How an object is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteMode {
    /// Our object: applied each time.
    Apply,
    /// Our object, which holds what people have written: applied if that is still as it was read, with this metadata.
    ApplyOver(Value),
    /// The user's object once it exists: only created if it is missing.
    CreateIfMissing,
    /// The user's object, of which some fields change, by this merge patch. It is bound to the version that was read.
    Update(Value),
}

/// One object of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// How it is written.
    pub how: WriteMode,
    /// The object as it is afterwards.
    pub object: Value,
}

impl Step {
    /// Whether it is a CRD. Those come first; the rest follows when their kinds are served.
    pub fn is_definition(&self) -> bool {
        self.object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |p: &str| self.object.pointer(p).and_then(Value::as_str).unwrap_or("?").to_owned();
        let how = match self.how {
            WriteMode::Apply | WriteMode::ApplyOver(_) => "apply",
            WriteMode::CreateIfMissing => "create if missing:",
            WriteMode::Update(_) => "update",
        };
        write!(f, "{how} {} {}", text("/kind"), text("/metadata/name"))
    }
}

/// Why the installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A bug in this build's own data.
    #[error("the CRDs in this build are broken")]
    Crds(#[from] CrdError),
    /// An object could not be written as JSON.
    #[error("{what} cannot be written as JSON")]
    Json {
        /// The object.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// An object that is there does not fit its kind. The text quotes no value of it.
    #[error("{what} cannot be read: {source}; correct it with kubectl edit {target}")]
    Unreadable {
        /// The object, by its kind and name.
        what: String,
        /// The same in the words of kubectl.
        target: String,
        /// The field, and what is expected there.
        source: ShapeError,
    },
    /// The API server refused a request, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Boot tokens of an earlier version could not be moved.
    #[error(transparent)]
    Tokens(#[from] ReconcileError),
    /// The plan has an object of a kind that the installer does not know: a bug in this build.
    #[error("{step}: the installer does not know this kind")]
    UnknownKind {
        /// The step.
        step: String,
    },
    /// A setting that cannot be used.
    #[error(transparent)]
    Settings(#[from] ControllerConfigValuesError),
    /// An object that people write into changed between being read and being written.
    #[error("{object} changed in the meantime; run the command again")]
    Changed {
        /// The object.
        object: String,
    },
    /// The API server accepted a CRD but does not serve its kind.
    #[error("{name} is not served {} s after it was applied: {why}", ESTABLISH_TIMEOUT.as_secs())]
    NotEstablished {
        /// The CRD.
        name: String,
        /// Its conditions.
        why: String,
    },
}

#[cfg(test)]
mod tests;

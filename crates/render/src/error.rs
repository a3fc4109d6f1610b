//! Why a pool cannot be rendered: the pool, and for each cause the object, the JSON path and the rule with its
//! remedy. What it is not: anything about the state of the cluster.

use api::k8s::ResourceExt as _;
use api::v1::MachineConfigPool;
use std::fmt;

/// One cause: which object, where in it, what rule. Also used for warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Kind and name, for example `MachineConfig 50-motd`.
    pub object: String,
    /// JSON path in the object, for example `spec.config.storage.files[0].path`. Empty: the object as a whole.
    pub path: String,
    /// The rule and the remedy.
    pub message: String,
}

impl Finding {
    /// A finding on a MachineConfig.
    pub fn on(machine_config: &str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { object: format!("MachineConfig {machine_config}"), path: path.into(), message: message.into() }
    }

    /// A finding on a pool.
    pub(crate) fn on_pool(pool: &MachineConfigPool, path: &str, message: impl Into<String>) -> Self {
        let object = format!("MachineConfigPool {}", pool.name_any());
        Self { object, path: path.to_owned(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, path, message } = self;
        if path.is_empty() {
            write!(f, "{object}: {message}")
        } else {
            write!(f, "{object}: {path}: {message}")
        }
    }
}

/// The sort of cause, for those who react to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The pool's selector cannot be evaluated.
    Selector,
    /// The pool's selector picks no MachineConfig.
    NoConfigs,
    /// Another version of the controller made an input; it goes away when the upgrade is over.
    VersionSkew,
    /// A MachineConfig breaks a rule.
    Refused,
    /// The result cannot be reached from the pool's present config without making the machines anew.
    Irreconcilable,
    /// The result is too large for one object.
    TooLarge,
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
    /// All causes, up to a number that fits into a condition's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        write!(f, "pool {}: ", self.pool)?;
        if self.reason == Reason::Irreconcilable {
            write!(f, "machines of this pool cannot be changed to the new config: ")?;
        }
        for (i, finding) in self.findings.iter().take(SHOWN).enumerate() {
            write!(f, "{}{finding}", if i == 0 { "" } else { "; " })?;
        }
        match self.findings.len().checked_sub(SHOWN) {
            Some(more) if more > 0 => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}

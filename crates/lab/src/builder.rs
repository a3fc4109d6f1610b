//! What the builders of a lab and of a kubeadm cluster share.
//!
//! Not here: what is set in a specification, and the start (see `lab::spec` and `kubeadm::spec`).

use crate::progress::Reporter;
use crate::system::paths::Environment;

/// Collects the specification of a cluster, and what this process starts it with.
#[derive(Debug, Clone, Default)]
#[must_use = "call `start`"]
pub struct Builder<S> {
    pub(crate) spec: S,
    pub(crate) progress: Reporter,
    pub(crate) environment: Option<Environment>,
}

impl<S> Builder<S> {
    /// Sets where progress lines go; by default they are dropped.
    pub fn progress(mut self, progress: Reporter) -> Self {
        self.progress = progress;
        self
    }

    /// Sets the environment, if it is not the process's own.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// The specification so far, for `lab::up`.
    #[must_use]
    pub fn spec(&self) -> &S {
        &self.spec
    }
}

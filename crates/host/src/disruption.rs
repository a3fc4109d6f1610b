//! What a change costs the node: nothing, reloads and restarts of services, a drain, a reboot; each with the path
//! that asks for it. Pure.

use std::fmt;

use serde::Serialize;

use crate::step::ServiceAction;

/// The sum over a whole change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Why the node is drained first: what asks for it. Empty: it is not.
    pub drain: Vec<String>,
    /// Why the node reboots afterwards: what asks for it. Empty: it does not.
    pub reboot: Vec<String>,
    /// systemd reads its units again: what asks for it. Empty: it does not.
    pub daemon_reload: Vec<String>,
    /// Services that are reloaded or restarted, in order, each once.
    pub services: Vec<ServiceDisruption>,
}

/// A service that is reloaded or restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDisruption {
    /// Which.
    pub unit: String,
    /// What happens to it.
    pub action: ServiceAction,
    /// What asks for it.
    pub because: Vec<String>,
}

impl Disruption {
    /// Nothing on the node notices.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The node must be drained first.
    #[must_use]
    pub fn needs_drain(&self) -> bool {
        !self.drain.is_empty()
    }

    /// The node must reboot afterwards.
    #[must_use]
    pub fn needs_reboot(&self) -> bool {
        !self.reboot.is_empty()
    }
}

impl fmt::Display for Disruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let mut parts = Vec::new();
        if self.needs_drain() {
            parts.push(format!("drain ({})", self.drain.join(", ")));
        }
        if self.needs_reboot() {
            parts.push(format!("reboot ({})", self.reboot.join(", ")));
        }
        if !self.daemon_reload.is_empty() {
            parts.push(format!("daemon-reload ({})", self.daemon_reload.join(", ")));
        }
        for s in &self.services {
            let verb = match s.action {
                ServiceAction::Reload => "reload",
                ServiceAction::Restart => "restart",
            };
            parts.push(format!("{verb} {} ({})", s.unit, s.because.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

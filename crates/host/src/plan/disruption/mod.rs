//! What a change costs the node: nothing, effects that are carried out at once, reloads and restarts of services, a
//! drain, a reboot. Each comes with the path that requires it, and each path with the rule that decided. Pure.
//!
//! Not here: the table of what takes effect without a reboot (see `effects`).

mod by_rule;
mod changes;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::plan::effects::Planned;
use crate::system::systemd::ServiceAction;

pub(crate) use by_rule::disruption;
pub(crate) use changes::Changes;

/// The cost of a whole change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// What requires a drain before the change. Empty: no drain.
    pub drain: Vec<String>,
    /// What requires a reboot after the change. Empty: no reboot.
    pub reboot: Vec<String>,
    /// What requires systemd to reload its units. Empty: no reload.
    pub daemon_reload: Vec<String>,
    /// The services to reload or restart, in order, each once.
    pub services: Vec<ServiceDisruption>,
    /// What takes effect in the running system although it is a change of the operating system. Empty: nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<String>,
    /// The reboot may be one of userspace only: the kernel keeps running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
    /// What is done so that files and units take effect without a reboot, in order, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Planned>,
    /// Which rule decided about each path, unit and field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided: Vec<RuleDecision>,
    /// The values of kernel parameters from before this agent set them, if that record changes.
    #[serde(skip)]
    pub(crate) parameters_before: Option<BTreeMap<String, String>>,
}

/// Which rule decided what a change of one path, unit or field costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleDecision {
    /// The path, unit or field.
    pub what: String,
    /// The rule.
    pub rule: Rule,
    /// The cost, in words.
    pub cost: String,
}

/// A rule about the cost of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Rule {
    /// A policy of MachineConfiguration `cluster`.
    Policy {
        /// Its path or unit, or `sshkey`.
        policy: String,
    },
    /// A policy that is built in.
    BuiltIn {
        /// Its path or unit, or `sshkey`.
        policy: String,
    },
    /// A row of the table of what takes effect without a reboot.
    Table {
        /// The row.
        row: String,
        /// What the row is about is read at each use, so a change costs every host nothing. What other rows cost depends on the
        /// host.
        #[serde(skip)]
        at_each_use: bool,
    },
    /// A row of the table that does not apply here.
    NotHere {
        /// The row.
        row: String,
        /// Why not.
        why: String,
    },
    /// An annotation allows that it takes effect in the running system.
    Allowed {
        /// The annotation.
        annotation: &'static str,
    },
    /// None: without a rule a change reboots.
    Default,
}

impl fmt::Display for RuleDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, rule, cost } = self;
        write!(f, "{what}: {cost}, ")?;
        match rule {
            Rule::Policy { policy } => {
                write!(f, "by the policy for {policy} of MachineConfiguration cluster")
            }
            Rule::BuiltIn { policy } => write!(f, "by the built-in policy for {policy}"),
            Rule::Table { row, .. } => write!(f, "by row \"{row}\" of the table of changes without a reboot"),
            Rule::NotHere { row, why } => {
                write!(
                    f,
                    "because row \"{row}\" of the table of changes without a reboot does not apply: {why}"
                )
            }
            Rule::Allowed { annotation } => write!(f, "as the annotation {annotation} allows"),
            Rule::Default => f.write_str("because no rule allows less"),
        }
    }
}

/// A service that is reloaded or restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDisruption {
    /// The unit.
    pub unit: String,
    /// The action.
    pub action: ServiceAction,
    /// What requires it.
    pub because: Vec<String>,
}

impl Disruption {
    /// Whether nothing on the node is disturbed.
    #[must_use]
    pub fn is_none(&self) -> bool {
        let Self {
            drain,
            reboot,
            daemon_reload,
            services,
            effects,
            live,
            soft: _,
            decided: _,
            parameters_before: _,
        } = self;
        drain.is_empty()
            && reboot.is_empty()
            && daemon_reload.is_empty()
            && services.is_empty()
            && effects.is_empty()
            && live.is_empty()
    }

    /// Whether the node must be drained first.
    #[must_use]
    pub fn needs_drain(&self) -> bool {
        !self.drain.is_empty()
    }

    /// Whether the node must reboot afterwards.
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
            let soft = if self.soft { "soft " } else { "" };
            parts.push(format!("{soft}reboot ({})", self.reboot.join(", ")));
        }
        if !self.live.is_empty() {
            parts.push(format!("live, without a reboot ({})", self.live.join(", ")));
        }
        if !self.daemon_reload.is_empty() {
            parts.push(format!("daemon-reload ({})", self.daemon_reload.join(", ")));
        }
        for e in &self.effects {
            parts.push(format!("{} ({})", e.effect, e.because.join(", ")));
        }
        for s in &self.services {
            parts.push(format!("{} {} ({})", s.action.verb(), s.unit, s.because.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

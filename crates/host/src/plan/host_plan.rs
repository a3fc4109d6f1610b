//! [`HostPlan`]: everything that will be done to reach a config, as a value and in words.
//!
//! Not here: what belongs into it (see the parent module and `steps`), nor its execution (see `transaction`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use desired::{DesiredHost, DesiredPath, OsField};
use serde::Serialize;

use crate::paths::{CURRENT_CONFIG, CURRENT_IMAGE};
use crate::plan::cut_off::{CutOff, concerns_logins, needed_units};
use crate::plan::disruption::Disruption;
use crate::plan::facts::Facts;
use crate::plan::os::OsChange;
use crate::plan::step::Step;
use crate::record::{Names, Trial};

/// Everything that will be done to reach a config.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPlan {
    /// The old and the new config.
    pub names: Names,
    /// The steps in order; a reboot, when the disruption has one, comes after them.
    pub steps: Vec<Step>,
    /// What it costs.
    pub disruption: Disruption,
    /// What is not done, and why.
    pub notes: Vec<String>,
    /// What a person should know before the plan is applied.
    pub warnings: Vec<String>,
    /// What in it can cut the node off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut_offs: Vec<CutOff>,
    /// The change is kept only if it is confirmed. Set by the caller ([`HostPlan::on_trial`]). `None`: it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// Why extensions do not take effect in the running system, although that was allowed and tried. It is one of the warnings.
    #[serde(skip)]
    pub not_live: Option<String>,
    /// The cluster allows that packages are brought into the running system. An undo may have to do that.
    #[serde(skip)]
    pub(crate) live_allowed: bool,
    /// Hard links of the config in effect, with the file that each of them refers to now.
    #[serde(skip)]
    pub(crate) hard_links: BTreeMap<String, String>,
}

impl HostPlan {
    /// Whether the host already matches the desired config, except for the record of its name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let note = |s: &Step| matches!(s, Step::Write { path, .. } if [CURRENT_CONFIG, CURRENT_IMAGE].contains(&path.as_str()));
        self.steps.iter().all(note) && self.disruption.is_none()
    }

    /// Makes this a trial: after it was applied, and after the reboot that it may need, the change has to be confirmed
    /// within this time ([`crate::Host::confirm_trial`]). Its undo is kept until then. `units`: more units that have to
    /// run afterwards, besides the kubelet and what the change concerns, if they run before. `before`: what the caller
    /// wants to compare with afterwards.
    pub fn on_trial(&mut self, within: Duration, units: &[String], before: String) {
        let mut asked = needed_units();
        asked.extend(units.iter().filter(|u| !asked.contains(u)).cloned().collect::<Vec<_>>());
        let because = self.cut_offs.iter().map(ToString::to_string).collect();
        let (within, reboots, soft) =
            (within.as_secs(), self.disruption.needs_reboot(), self.disruption.soft);
        let of_os = |cut_off: &CutOff| OsField::ALL.iter().any(|field| field.path() == cut_off.path);
        let files = !self.cut_offs.iter().all(of_os);
        let asked_logins = concerns_logins(&self.cut_offs);
        let (units, logins) = (Vec::new(), Vec::new());
        self.trial =
            Some(Trial { because, within, reboots, soft, files, asked, units, asked_logins, logins, before });
    }

    /// Whether the change of the operating system takes effect in the running system.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Live { .. }))
    }

    /// The change of the operating system, if there is one.
    #[must_use]
    pub fn os_change(&self) -> Option<&OsChange> {
        self.steps.iter().find_map(|s| match s {
            Step::Os { change } => Some(&**change),
            _ => None,
        })
    }
}

impl fmt::Display for HostPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} -> {}", self.names.current, self.names.desired)?;
        for (i, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>4}. {step}", i + 1)?;
        }
        for note in &self.notes {
            writeln!(f, "      note: {note}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "   WARNING: {warning}")?;
        }
        for decided in &self.disruption.decided {
            writeln!(f, "      rule: {decided}")?;
        }
        for cut_off in &self.cut_offs {
            writeln!(f, "      on trial, because it can cut the node off: {cut_off}")?;
        }
        write!(f, "disruption: {}", self.disruption)
    }
}

/// The hard links of a config that exist on the host as it says.
pub(crate) fn hard_links(config: &DesiredHost, facts: &Facts) -> BTreeMap<String, String> {
    let linked = config.paths.iter().filter(|(path, _)| facts.same_files.contains(path));
    let target = |(path, want): &(String, DesiredPath)| match want {
        DesiredPath::Link { target, hard: true, .. } => Some((path.clone(), target.clone())),
        _ => None,
    };
    linked.filter_map(target).collect()
}

//! Plans a change. Input: two configs and the facts of a host. Output: every step in order, and what the change costs.
//! Pure.
//!
//! Not here: execution (see `transaction`), which makes no choices; nor reading the host (see `inspect`).

pub(crate) mod authorities;
mod bookkeeping;
pub(crate) mod cut_off;
pub(crate) mod disruption;
pub(crate) mod effects;
pub(crate) mod facts;
pub(crate) mod folders;
pub(crate) mod host_plan;
pub(crate) mod keys;
pub(crate) mod least_disruption;
pub(crate) mod live_extensions;
pub(crate) mod os;
pub(crate) mod os_before;
pub(crate) mod preview;
pub(crate) mod registries;
pub(crate) mod secret;
pub(crate) mod sshd;
pub(crate) mod stale;
pub(crate) mod step;
pub(crate) mod steps;
pub(crate) mod trust;
pub(crate) mod units;

use std::fmt;

use api::v1::MachineConfigSpec;
use desired::{DesiredHost, Irreconcilable, OsField, Scope, irreconcilable};

use crate::paths::{OS_FAILURE, TRIAL_FAILURE};
use crate::plan::cut_off::cut_offs_of;
use crate::plan::disruption::{Changes, disruption};
use crate::plan::facts::Facts;
use crate::plan::live_extensions::Live;
use crate::plan::os::{planned, refused_arguments};
use crate::plan::os_before::ImageGivenUp;
use crate::plan::steps::Steps;
use crate::record::Names;
use desired::DisruptionPolicy;
pub use host_plan::HostPlan;

/// A change from one config to another. Both are parsed here, once. The result can be inspected, compared and planned
/// as often as needed ([`crate::Host::inspect`], [`crate::Host::blocking_drifts`], [`Change::plan`]).
#[derive(Clone)]
pub struct Change {
    names: Names,
    pub(crate) old: DesiredHost,
    pub(crate) new: DesiredHost,
    /// The new config as it is recorded on the disk.
    spec: MachineConfigSpec,
    /// The host's actual operating system counts, and not what the two configs say about it (see [`Change::with_current_os`]).
    from_host: bool,
}

impl fmt::Debug for Change {
    /// Shows only the names, because configs hold the contents of files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Change {
    /// Parses both configs.
    ///
    /// # Errors
    /// The parts of the new config that cannot be parsed; or the old config, if it cannot be parsed at all.
    pub fn parse(
        current: &MachineConfigSpec,
        desired: &MachineConfigSpec,
        names: Names,
    ) -> Result<Self, Vec<Irreconcilable>> {
        let new = DesiredHost::parse(desired)?.accepted()?;
        let old = DesiredHost::parse(current).map_err(|mut bad| {
            for b in &mut bad {
                b.why = format!("in the current config {}: {}", names.current, b.why);
            }
            bad
        })?;
        Ok(Self { names, old, new, spec: desired.clone(), from_host: false })
    }

    /// The change that adopts a host whose files another program wrote as the config says (Ignition, at the first boot),
    /// and that has no record of it. Both ends are this config, parsed once.
    ///
    /// # Errors
    /// The parts of it that cannot be parsed.
    pub fn adopt(config: &MachineConfigSpec, names: Names) -> Result<Self, Vec<Irreconcilable>> {
        Self::adopt_parsed(DesiredHost::parse(config)?, config, names)
    }

    /// As [`Change::adopt`], with the config parsed already.
    ///
    /// # Errors
    /// The parts of it that cannot be applied.
    pub fn adopt_parsed(
        wanted: DesiredHost,
        config: &MachineConfigSpec,
        names: Names,
    ) -> Result<Self, Vec<Irreconcilable>> {
        let new = wanted.accepted()?;
        Ok(Self { names, old: new.clone(), new, spec: config.clone(), from_host: true })
    }

    /// Sets the state of the host's operating system, if it is not what the current config says.
    #[must_use]
    pub fn with_current_os(mut self, found: desired::DesiredOs) -> Self {
        self.old.os = found;
        // An empty kernel type means the default one, as in a config.
        if self.old.os.kernel_type.is_empty() {
            desired::DEFAULT_KERNEL.clone_into(&mut self.old.os.kernel_type);
        }
        self
    }

    /// Whether the plan depends on the operating system that the host has.
    pub(crate) fn needs_os(&self) -> bool {
        self.from_host || self.old.os != self.new.os
    }

    /// Whether another program set up the host, so that no config tells what it had.
    pub(crate) fn is_of_host(&self) -> bool {
        self.from_host
    }

    /// The new config.
    #[must_use]
    pub fn new_config(&self) -> &DesiredHost {
        &self.new
    }

    /// The new config by value, for its [`crate::Baseline`] after it was applied.
    #[must_use]
    pub fn into_new_config(self) -> DesiredHost {
        self.new
    }

    /// The config that the host is in. `DesiredPath::was_applied` says how entries that would be refused today are handled.
    #[must_use]
    pub fn old(&self) -> &DesiredHost {
        &self.old
    }

    /// The names of both configs.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Plans the change on a host with these facts: every step in order, the cost, and what to know beforehand.
    ///
    /// ```
    /// use api::v1::MachineConfigSpec;
    /// use host::{Change, DisruptionPolicy, Facts, Names};
    ///
    /// let config = serde_json::json!({
    ///     "ignition": {"version": "3.5.0"},
    ///     "storage": {"files": [{"path": "/etc/motd", "contents": {"source": "data:,hello"}}]},
    /// });
    /// let now = MachineConfigSpec::default();
    /// let then = MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() };
    /// let names = Names { current: "rendered-worker-1".to_owned(), desired: "rendered-worker-2".to_owned() };
    ///
    /// // Both configs are parsed once. On a real host the facts come from `Host::inspect`; here the host has nothing at all.
    /// let change = Change::parse(&now, &then, names).expect("both can be read");
    /// let plan = change.plan(&DisruptionPolicy::default(), &Facts::default()).expect("any host can have a file");
    ///
    /// let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    /// assert!(steps.iter().any(|step| step.starts_with("write /etc/motd <5 bytes")), "{plan}");
    /// assert!(plan.disruption.needs_reboot(), "no policy says that less will do");
    /// assert_eq!(plan.disruption.reboot, ["/etc/motd"]);
    /// ```
    ///
    /// # Errors
    /// Every difference that cannot be applied, each with its remedy.
    pub fn plan(&self, policy: &DisruptionPolicy, facts: &Facts) -> Result<HostPlan, Vec<Irreconcilable>> {
        let Self { names, old, new, spec, from_host } = self;
        let limited =
            (!policy.host_packages && !facts.os_consent.is_empty()).then(|| facts.without_consent(&new.os));
        let facts = limited.as_ref().unwrap_or(facts);
        let mut bad = irreconcilable(old, new, policy.overrides);
        if old.fips == new.fips && facts.fips.is_some_and(|on| on != new.fips) {
            bad.push(Irreconcilable {
                path: "spec.fips".to_owned(),
                why: format!("it is {}, but the kernel runs with the opposite", new.fips),
                remedy: "reinstall the machine, or set the field to what the machine has".to_owned(),
                scope: Scope::Config,
            });
        }
        let mut notes = Vec::new();
        let mut changes = Changes::between(old, new);
        for field in &changes.os {
            let Some(why) = facts.os_refused.get(field) else { continue };
            let host = if facts.os_name.is_empty() { "this host" } else { &facts.os_name };
            bad.push(Irreconcilable {
                path: field.path().to_owned(),
                why: format!("{host} cannot change it"),
                remedy: why.clone(),
                scope: Scope::Config,
            });
        }
        match ImageGivenUp::of(old, new, facts) {
            ImageGivenUp::Refused(why) => bad.push(why),
            given_up => notes.extend(given_up.note()),
        }
        if !facts.os_refused.contains_key(&OsField::KernelArguments) {
            bad.extend(refused_arguments(&old.os, &new.os, facts));
        }
        let not_back = facts.os_not_back.as_ref().map(|what| format!("; {what}")).unwrap_or_default();
        if let Some(failure) = facts.os_failure.as_ref().filter(|f| f.config == names.desired)
            && let Some(field) = changes.os.first()
        {
            bad.push(Irreconcilable {
                path: field.path().to_owned(),
                why: format!(
                    "this machine was rebooted for this setting, and came up without it: {}{not_back}",
                    failure.why
                ),
                remedy: format!(
                    "find the cause (journalctl -b -1, and the boot loader's messages), then remove \
                     {OS_FAILURE} to have it tried again"
                ),
                scope: Scope::Machine,
            });
        }
        if let Some(failure) = facts.trial_failure.as_ref().filter(|f| f.config == names.desired) {
            bad.push(Irreconcilable {
                path: "spec".to_owned(),
                why: format!("this machine tried this config and went back: {}{not_back}", failure.why),
                remedy: format!(
                    "correct the config. To have the same one tried again, run `mco retry` for this node, or remove \
                     {TRIAL_FAILURE} on it"
                ),
                scope: Scope::Machine,
            });
        }
        let live = match facts.force {
            true => Live::No,
            false => Live::of(planned(old, new, facts).as_ref(), policy, facts, &names.desired),
        };
        changes.live = matches!(live, Live::Yes(_));
        let disruption = disruption(&changes, old, new, policy, facts, &mut notes, &mut bad);
        let cut_offs = cut_offs_of(&changes, old, new);
        let mut steps = Steps {
            old,
            new,
            facts,
            of_host: *from_host,
            changes: &changes,
            steps: Vec::new(),
            notes,
            warnings: Vec::new(),
            bad,
        };
        if let Live::Refused(why) = &live {
            steps.warnings.push(why.clone());
        }
        steps.warnings.extend(facts.os_not_back.clone());
        steps.add_all(names, spec, &disruption, &live);
        let plan = steps.plan(names.clone(), disruption)?;
        let not_live = match live {
            Live::Refused(why) => Some(why),
            Live::No | Live::Yes(_) => None,
        };
        Ok(HostPlan { cut_offs, not_live, live_allowed: policy.live_extensions, ..plan })
    }
}

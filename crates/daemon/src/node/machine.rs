//! The host as the agent uses it: the `host` crate's operations combined into the protocol's steps. Each error says
//! what it means for the state of the node.
//!
//! Not here: changes of files. The one file that is handled here is `node-annotations.json`, which the first boot
//! leaves.

mod facts;
mod trials;

use crate::node::boot_units::boot_units;
use crate::node::drift_reason::LastReason;
use crate::node::drift_repair::{Repairs, Rules};
use crate::protocol::join::{self, KUBELET_SETTINGS, SERVER_DATA, STATIC_PODS};
use crate::protocol::{Before, Cost, EMPTY_CONFIG, FailureKind, Note};
use api::events::AgentEvent;
use api::text::chain;
use api::trial::TrialRules;
use api::v1::MachineConfig;
use desired::{Wanted, no_way_back};
use host::{
    Baseline, Change, DisruptionPolicy, Error, Host, HostPlan, Names, OsRelease, Pull, Recovery, Root, Scope,
    ServiceAction, Watch,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The annotations that the first boot leaves for the Node, as a JSON map.
pub(crate) const ANNOTATIONS_FILE: &str = desired::paths::NODE_ANNOTATIONS;
/// Its name after it was used. OpenShift's daemon uses this name, without the `s`.
const ANNOTATIONS_FILE_USED: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// The complete config that the config server served.
pub(crate) const SERVED_FILE: &str = "/etc/mcs-machine-config-content.json";
/// The input of a first boot. When the agent runs, the first boot is over.
pub(crate) const FIRSTBOOT_FILE: &str = "/etc/ignition-machine-config-encapsulated.json";
/// The presets that Ignition writes for the first boot. Later boots must not see them.
const FIRSTBOOT_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";

/// A failure of work on the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct MachineError {
    /// What it means for the node's state.
    pub(crate) kind: FailureKind,
    /// The event that reports it, if there is one.
    pub(crate) event: Option<AgentEvent>,
    /// The whole chain of causes.
    pub(crate) text: String,
    /// Whether services of the node were restarted or reloaded for it. Such work must not be retried often.
    pub(crate) disturbing: bool,
}

impl MachineError {
    pub(crate) fn broken(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::Degraded, event: None, text: text.into(), disturbing: false }
    }

    pub(crate) fn with(mut self, event: AgentEvent) -> Self {
        self.event = Some(event);
        self
    }
}

impl From<Error> for MachineError {
    fn from(error: Error) -> Self {
        Self { disturbing: error.disturbed_services(), ..Self::broken(chain(&error)) }
    }
}

impl From<host::FsError> for MachineError {
    fn from(error: host::FsError) -> Self {
        Self::broken(chain(&error))
    }
}

/// A planned update, with the inputs of the plan.
pub(crate) struct Work {
    plan: HostPlan,
    change: Change,
    policy: DisruptionPolicy,
}

impl std::fmt::Debug for Work {
    /// Shows only the plan, because configs hold contents of files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Work {
    /// What a person should know before it is applied.
    pub(crate) fn warnings(&self) -> Vec<Note> {
        let note = |text: &String| Note::new(AgentEvent::ConfigWarning, text.clone());
        self.plan.warnings.iter().map(note).collect()
    }

    /// Why it reboots the machine although its extensions were allowed to take effect without. Empty: that is not so.
    pub(crate) fn not_live(&self) -> String {
        self.plan.not_live.clone().unwrap_or_default()
    }

    /// Whether something must be fetched for it.
    pub(crate) fn needs_fetch(&self) -> bool {
        self.plan.os_change().is_some()
    }

    /// Plans the same change again from the current state of the host, because the drain may have taken hours. A file
    /// that the host itself has at a path is saved only if the plan knows of it.
    fn planned_again(self, host: &mut Host) -> Result<Self, MachineError> {
        let Self { plan, change, policy } = self;
        let mut facts = host.inspect(&change)?;
        // This is called after the pods have left, or if no drain is needed.
        facts.cleared = true;
        let again = change.plan(&policy, &facts).map_err(|e| refusal(&e))?;
        if cost(&again) == cost(&plan) {
            return Ok(Self { plan: again, change, policy });
        }
        let text = format!(
            "the host changed while the node was drained: the update costs {} now, but {} before; it is planned again",
            again.disruption, plan.disruption
        );
        Err(MachineError { kind: FailureKind::Transient, ..MachineError::broken(text) })
    }
}

fn cost(plan: &HostPlan) -> Cost {
    Cost { drain: plan.disruption.needs_drain(), reboot: plan.disruption.needs_reboot() }
}

/// The host of one agent. Its methods block, so the agent calls them on a blocking thread.
#[derive(Debug)]
pub(crate) struct Machine {
    root: Root,
    host: Mutex<Host>,
    rules: Mutex<Rules>,
    repairs: Mutex<Repairs>,
    last_reason: Mutex<LastReason>,
    /// What the host must look like. It is made from the config that was parsed for an update, or once after a restart.
    baseline: Mutex<Option<Arc<Baseline>>>,
}

impl Machine {
    pub(crate) fn new(host: Host) -> Self {
        let (rules, repairs, last_reason) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (root, baseline) = (host.root().clone(), Mutex::default());
        Self { root, host: Mutex::new(host), rules, repairs, last_reason, baseline }
    }

    /// What the host must look like by its record of the config that was applied last. `None`: it has no record. The
    /// config is parsed only if this process has not parsed it for an update, or if another process has changed the
    /// record.
    pub(crate) fn baseline(&self, host: &Host) -> Result<Option<Arc<Baseline>>, MachineError> {
        let mut held = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(baseline) = &*held
            && host.is_current(baseline)?
        {
            return Ok(Some(baseline.clone()));
        }
        *held = host.baseline()?.map(Arc::new);
        Ok(held.clone())
    }

    /// Holds the baseline of a config that was just applied, and drops the parsed config.
    pub(crate) fn set_baseline(&self, host: &Host, name: &str, config: Wanted) {
        let baseline = host.baseline_of(name, config).map(Arc::new);
        if let Err(error) = &baseline {
            tracing::warn!(
                error = chain(error),
                "the record of the config cannot be read; it is read again later"
            );
        }
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = baseline.ok();
    }

    /// Locks the host. If a thread panicked with the lock held, it left a journal, which the next recovery handles.
    pub(crate) fn host(&self) -> MutexGuard<'_, Host> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn repairs(&self) -> MutexGuard<'_, Repairs> {
        self.repairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn last_reason(&self) -> MutexGuard<'_, LastReason> {
        self.last_reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes or undoes a change that a crash interrupted, and removes what a first boot left.
    /// Returns whether the machine did not come up in the operating system of an update.
    pub(crate) fn recover(&self) -> Result<bool, MachineError> {
        let recovery = self.host().recover()?;
        let failed = matches!(recovery, Recovery::AwaitsReturn { .. })
            || matches!(recovery, Recovery::RolledBack { .. }) && self.host().os_failure()?.is_some();
        match recovery {
            Recovery::Nothing => {}
            Recovery::Undone { config, desired } => {
                tracing::warn!(%config, %desired, "an interrupted update was rolled back");
            }
            Recovery::Finished { config } => {
                tracing::info!(%config, "an interrupted update was completed");
            }
            Recovery::AwaitsBoot { config } => {
                tracing::info!(%config, "an update is complete except for the boot into its operating system");
            }
            Recovery::OnTrial { config } => {
                tracing::info!(%config, "an update is on trial: it is undone unless it is confirmed");
            }
            Recovery::AwaitsReturn { config, desired, why } => {
                tracing::error!(%config, %desired, %why, "the machine did not come up as an update asks; it \
                    reboots into its old operating system, and the update is undone then");
            }
            Recovery::RolledBack { config, desired, why } => {
                tracing::error!(%config, %desired, %why, "an update was undone");
            }
        }
        if !self.root.found(FIRSTBOOT_FILE)?.is_absent() {
            tracing::warn!("{FIRSTBOOT_FILE} was left over from the first boot; renamed it");
            self.root.rename(FIRSTBOOT_FILE, &format!("{FIRSTBOOT_FILE}.bak"))?;
        }
        if !self.root.found(FIRSTBOOT_PRESET)?.is_absent() {
            self.root.remove(FIRSTBOOT_PRESET)?;
        }
        Ok(failed)
    }

    /// The path that shows that the host belongs to the control plane: a static pod of the API server or of etcd, in
    /// the folder that the kubelet's settings name or in a usual one, or a server's data folder. `None`: there is no
    /// such path.
    pub(crate) fn control_plane(&self) -> Result<Option<String>, MachineError> {
        let settings = self.root.text(KUBELET_SETTINGS)?.unwrap_or_default();
        let folders = join::static_pod_folder(&settings).into_iter();
        for folder in folders.chain(STATIC_PODS.map(str::to_owned)) {
            if let Some(pod) = self.root.list(&folder)?.iter().find(|name| join::is_control_plane_pod(name)) {
                return Ok(Some(format!("{folder}/{pod}")));
            }
        }
        for path in SERVER_DATA {
            if !self.root.found(path)?.is_absent() {
                return Ok(Some(path.to_owned()));
            }
        }
        Ok(None)
    }

    /// Which operating system the host has, and how many packages were layered on it by hand. A host that does not
    /// answer has none.
    pub(crate) fn os_and_packages(&self) -> Result<(OsRelease, usize), MachineError> {
        let mut host = self.host();
        let packages = host.unsupported_packages().unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "the host does not say which packages it has");
            0
        });
        Ok((host.os_release()?, packages))
    }

    /// The config that was applied last.
    pub(crate) fn current(&self) -> Result<Option<MachineConfig>, MachineError> {
        Ok(self.host().current_config()?.map(|c| MachineConfig::new(&c.name, c.spec)))
    }

    /// The annotations that the first boot left for the Node.
    pub(crate) fn first_annotations(&self) -> Result<BTreeMap<String, String>, MachineError> {
        let text = self.root.text(ANNOTATIONS_FILE)?.unwrap_or_default();
        api::shape::read_bytes(text.as_bytes()).map_err(|e| {
            let remedy = "repair or remove the file";
            MachineError::broken(format!("{ANNOTATIONS_FILE} is not a map of annotations ({e}); {remedy}"))
        })
    }

    /// Renames the file of these annotations after they were used.
    pub(crate) fn retire_first_annotations(&self) -> Result<(), MachineError> {
        Ok(self.root.rename(ANNOTATIONS_FILE, ANNOTATIONS_FILE_USED)?)
    }

    /// The config that the config server left on the host, if it has this name.
    pub(crate) fn served(&self, name: &str) -> Result<Option<MachineConfig>, MachineError> {
        let Some(text) = self.root.text(SERVED_FILE)? else { return Ok(None) };
        match api::shape::read_bytes::<MachineConfig>(text.as_bytes()) {
            Ok(config) => Ok(Some(config).filter(|c| c.metadata.name.as_deref() == Some(name))),
            Err(error) => {
                tracing::warn!(%error, "{SERVED_FILE} is not a MachineConfig");
                Ok(None)
            }
        }
    }

    /// A watch of the paths that the config on the disk manages, with the config's name. `None`: there is no such
    /// config yet.
    pub(crate) fn watch(&self) -> Result<Option<(String, Watch)>, MachineError> {
        let host = self.host();
        let Some(baseline) = self.baseline(&host)? else { return Ok(None) };
        let watch = Watch::new(&self.root, &baseline)?.with_more(host.os_paths(&baseline))?;
        Ok(Some((baseline.name().to_owned(), watch)))
    }

    /// Plans the change from one config to another. Refuses what cannot be done, and a host that has drifted.
    pub(crate) fn prepare(
        &self,
        from: &MachineConfig,
        to: &MachineConfig,
        policy: &DisruptionPolicy,
    ) -> Result<(Cost, Work), MachineError> {
        let name = |c: &MachineConfig| c.metadata.name.clone().unwrap_or_default();
        let names = Names { current: name(from), desired: name(to) };
        let mut host = self.host();
        // An unfinished change is completed or undone first.
        host.recover()?;
        if let Some(why) = no_way_back(&names.current, &names.desired, &to.spec) {
            return Err(refusal(&[why]));
        }
        let change = Change::parse(&from.spec, &to.spec, names).map_err(|e| refusal(&e))?;
        let names = change.names();
        let facts = host.inspect(&change)?;
        let plan = change.plan(policy, &facts).map_err(|e| refusal(&e))?;
        if !facts.force && names.current != EMPTY_CONFIG {
            // Drift that the update itself overwrites is no reason to refuse it: the update is the repair.
            self.refuse_drifted(&mut host, &change)?;
        }
        host.check_room(&plan)?;
        for note in &plan.notes {
            tracing::info!("{note}");
        }
        let cost = cost(&plan);
        tracing::info!(from = %names.current, to = %names.desired, disruption = %plan.disruption, "planned");
        Ok((cost, Work { plan, change, policy: policy.clone() }))
    }

    /// Fetches what a plan needs for its change of the operating system. Takes long, and changes nothing. Idempotent.
    pub(crate) fn fetch(&self, work: &Work, pull: &Pull) -> Result<(), MachineError> {
        Ok(self.host().fetch(&work.plan, pull)?)
    }

    /// Removes the OS images that nothing needs any more.
    pub(crate) fn tidy_os(&self) -> Result<Vec<String>, MachineError> {
        Ok(self.host().tidy_os()?)
    }

    /// Applies what was planned: all of it or nothing.
    ///
    /// A change that can cut the node off is put on trial, if `rules` say so. `before`: how the node was.
    pub(crate) fn apply(
        &self,
        work: Work,
        rules: &TrialRules,
        before: &Before,
    ) -> Result<Vec<Note>, MachineError> {
        let mut host = self.host();
        let work = if work.plan.disruption.needs_drain() { work.planned_again(&mut host)? } else { work };
        let Work { mut plan, change, policy: _ } = work;
        if rules.on && !plan.cut_offs.is_empty() {
            let before = serde_json::to_string(before).map_err(|e| MachineError::broken(e.to_string()))?;
            plan.on_trial(rules.within.unsigned_abs(), &rules.units, before);
        }
        let mut notes = Vec::new();
        if plan.trial.is_some()
            && let Err(error) = host.ensure_units(&boot_units())
        {
            let text = format!(
                "this host undoes the change by itself only until its next boot, because the units that go on with it \
                 then are not there: {}; install them, see machine-config-daemon-recover.service in the documentation",
                chain(&error)
            );
            tracing::warn!("{text}");
            notes.push(Note::new(AgentEvent::ConfigWarning, text));
        }
        if let Err(error) = host.apply(&plan) {
            return Err(live_refused(&host, &plan, error));
        }
        self.set_baseline(&host, &plan.names.desired, change.into_new_config());
        let services = plan.disruption.services.iter().map(|s| match s.action {
            ServiceAction::Reload => Note::new(
                AgentEvent::ServiceReload,
                format!("Config changes do not require reboot. Service {} was reloaded.", s.unit),
            ),
            ServiceAction::Restart => Note::new(
                AgentEvent::ServiceRestart,
                format!("Config changes do not require reboot. Service {} was restarted.", s.unit),
            ),
            ServiceAction::Run => Note::new(
                AgentEvent::ServiceRestart,
                format!("Config changes do not require reboot. {} was run.", s.unit),
            ),
        });
        notes.extend(services);
        if plan.disruption.services.is_empty() && !plan.disruption.needs_reboot() {
            let text = "Config changes do not require reboot.".to_owned();
            notes.push(Note::new(AgentEvent::SkipReboot, text));
        }
        Ok(notes)
    }
}

/// The failure of a change that could not be applied. If the host refused to bring extensions into its running system, all of it
/// was undone, and it is planned again with a reboot.
fn live_refused(host: &Host, plan: &HostPlan, error: Error) -> MachineError {
    let refused = match (&error, host.live_refusal()) {
        (Error::Undone { .. }, Ok(Some(refusal))) => plan.is_live() && refusal.config == plan.names.desired,
        _ => false,
    };
    let failed = MachineError::from(error);
    match refused {
        true => MachineError { kind: FailureKind::Transient, ..failed },
        false => failed,
    }
}

/// The failure for a refused plan: Unreconcilable if no machine can do what the config asks for, Degraded if only this
/// machine has an obstacle.
pub(crate) fn refusal(why: &[host::Irreconcilable]) -> MachineError {
    let machine_only = why.iter().all(|i| i.scope == Scope::Machine);
    let kind = if machine_only { FailureKind::Degraded } else { FailureKind::Unreconcilable };
    let text = why.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    MachineError { kind, event: Some(AgentEvent::FailedToReconcile), ..MachineError::broken(text) }
}

#[cfg(test)]
mod tests;

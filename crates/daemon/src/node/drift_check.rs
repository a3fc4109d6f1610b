//! Compares the disk with its config: finds what drifted, which of it is repaired, and which of it is an error.
//!
//! Not here: the limits and rules of repairs (`drift_repair`), the texts (`drift_reason`), nor the comparison and the
//! repair themselves (`host`).

use crate::node::drift_reason::{LastReason, drift_reason, given_up, listed};
use crate::node::drift_repair::Decision;
use crate::node::machine::{Machine, MachineError, refusal};
use crate::protocol::AgentNote;
use crate::protocol::clock::Moment;
use api::drift::DriftAction;
use api::events::AgentEvent;
use api::formats::text::chain;
use api::v1::MachineConfig;
use host::{Change, CurrentConfig, DisruptionPolicy, Drift, Drifted, Host, Names};
use std::sync::Arc;

/// Drift to repair.
#[derive(Debug)]
pub(crate) struct Repair {
    drifted: Drifted,
    /// What was found, as text for people.
    found: String,
}

impl Machine {
    /// Sets the drift rules from the Node's annotation. True if they have changed.
    pub(crate) fn set_rules(&self, text: &str) -> bool {
        self.rules().set(text)
    }

    /// What must be reported once: rules that cannot be parsed, and repairs that were given up.
    pub(crate) fn notes_to_report(&self) -> Vec<AgentNote> {
        let note = |kind| move |text: String| AgentNote::new(kind, text);
        let rules = self.rules().take_rules_error().map(note(AgentEvent::DriftPolicyInvalid));
        let repairs = self.repairs().newly_given_up();
        let repairs = Some(repairs).filter(|p| !p.is_empty()).map(|p| given_up(&p));
        rules.into_iter().chain(repairs.map(note(AgentEvent::ConfigDriftRepairGivenUp))).collect()
    }

    /// Compares the disk with the config that it should be in: the one that was applied last, or, if the disk has no
    /// record, `unrecorded`, which is then recorded. Drift that may be repaired is returned. All other drift is an
    /// error.
    pub(crate) fn check(&self, unrecorded: Option<&MachineConfig>) -> Result<Option<Repair>, MachineError> {
        // An unfinished change is not drift.
        self.host().recover()?;
        let mut host = self.host();
        let recorded = self.baseline(&mut host)?;
        let (baseline, unrecorded) = match (recorded, unrecorded) {
            (Some(recorded), _) => (recorded, None),
            (None, None) => return Ok(None),
            (None, Some(config)) => {
                let name = config.metadata.name.clone().unwrap_or_default();
                let wanted = host::parsed(&config.spec)?;
                let baseline = host.baseline_of(&name, wanted.clone())?;
                let config = CurrentConfig { name, spec: config.spec.clone() };
                (Arc::new(baseline), Some((config, wanted)))
            }
        };
        let name = baseline.name().to_owned();
        let found = host.drifts_from(&baseline)?;
        let now = Moment::now();
        let mut repairs = self.repairs();
        repairs.forget_old(&found, now);
        let (mut repair, mut report, mut gave_up) = (Vec::new(), Vec::new(), Vec::new());
        for drift in found {
            match self.rules().action(&drift) {
                DriftAction::Ignore => tracing::debug!(%drift, "ignored"),
                // It would stage a deployment, and a reboot would follow.
                DriftAction::Repair if matches!(drift, Drift::Os { .. }) => report.push(drift),
                DriftAction::Repair if unrecorded.is_none() => match repairs.decide(&drift.path(), now) {
                    Decision::Now(_) => repair.push(drift),
                    Decision::Later(_) => report.push(drift),
                    Decision::GaveUp => {
                        repairs.give_up(drift.path());
                        gave_up.push(drift.path());
                        report.push(drift);
                    }
                },
                DriftAction::Repair | DriftAction::Report => report.push(drift),
            }
        }
        // What the config says of these paths. It is read from the record only now that something has drifted.
        let said_of = |drifts: Vec<Drift>| -> Result<Drifted, MachineError> {
            let config = match &unrecorded {
                Some((config, _)) => Some(config.clone()),
                None => host.current_config()?,
            };
            let removed =
                || MachineError::degraded(format!("{} was removed meanwhile", host::paths::CURRENT_CONFIG));
            Ok(host.drifted(config.ok_or_else(removed)?, drifts)?)
        };
        if !repair.is_empty() {
            let drifted = said_of(repair)?;
            let found = drift_reason(&host, drifted.desired_host(), &name, drifted.drifts());
            return Ok(Some(Repair { drifted, found }));
        }
        if !report.is_empty() {
            let told = report.iter().map(ToString::to_string);
            let about = std::iter::once(name.clone()).chain(told).chain(gave_up.clone()).collect();
            let text = self.last_reason().once(about, || {
                let drifted = said_of(report)?;
                let text = drift_reason(&host, drifted.desired_host(), &name, drifted.drifts());
                Ok::<_, MachineError>(if gave_up.is_empty() {
                    text
                } else {
                    format!("{}; {text}", given_up(&gave_up))
                })
            })?;
            return Err(MachineError::degraded(text).with_event(AgentEvent::OnDiskStateValidationFailed));
        }
        *self.last_reason() = LastReason::default();
        if let Some((config, wanted)) = unrecorded {
            let names = Names { current: name.clone(), desired: name.clone() };
            let change = Change::adopt_parsed(wanted, &config.spec, names).map_err(|e| refusal(&e))?;
            let facts = host.inspect(&change)?;
            let plan = change.plan(&DisruptionPolicy::default(), &facts).map_err(|e| refusal(&e))?;
            host.apply(&plan)?;
            self.set_baseline(&host, &name, change.into_new_config());
        }
        Ok(None)
    }

    /// Repairs the drift, all of it or nothing, and reports what was found and done. Without a disruption policy no
    /// service is reloaded or restarted.
    pub(crate) fn repair(
        &self,
        repair: &Repair,
        policy: Option<&DisruptionPolicy>,
    ) -> Result<Vec<AgentNote>, MachineError> {
        let Repair { drifted, found } = repair;
        let failed = |why: String| {
            let text = format!("{found}; it could not be restored: {why}");
            MachineError::degraded(text).with_event(AgentEvent::ConfigDriftDetected)
        };
        let mut host = self.host();
        let plan = host.plan_repair(drifted, policy).map_err(|e| failed(chain(&e)))?;
        let plan = plan.map_err(|e| failed(refusal(&e).text))?;
        let what: Vec<String> = drifted.drifts().iter().map(Drift::path).collect();
        let count = || what.iter().for_each(|path| self.repairs().count(path.clone(), Moment::now()));
        if let Err(error) = host.apply(&plan) {
            if error.disturbed_services() {
                // Each try restarts a service that does not start.
                count();
            }
            return Err(MachineError { disturbing: error.disturbed_services(), ..failed(chain(&error)) });
        }
        count();
        let mut text = format!("Restored {} as in config {}", listed(&what), drifted.config());
        if !plan.disruption.is_none() {
            text = format!("{text}; {}", plan.disruption);
        }
        for note in &plan.notes {
            tracing::info!("{note}");
        }
        Ok(vec![
            AgentNote::new(AgentEvent::ConfigDriftDetected, found.clone()),
            AgentNote::new(AgentEvent::ConfigDriftRepaired, text),
        ])
    }

    /// Refuses a change on a host that has drifted, except for drift that the change itself or the rules repair.
    pub(crate) fn refuse_drifted(&self, host: &mut Host, change: &Change) -> Result<(), MachineError> {
        let mut found = host.blocking_drifts(change)?;
        // Drift that the rules would repair is no obstacle: the change writes every path that differs anyway.
        found.retain(|d| self.rules().action(d) == DriftAction::Report);
        if found.is_empty() {
            return Ok(());
        }
        let name = change.names().current.as_str();
        let told = found.iter().map(ToString::to_string);
        let about = std::iter::once(name.to_owned()).chain(told).collect();
        let text = self
            .last_reason()
            .once(about, || Ok::<_, MachineError>(drift_reason(host, change.old(), name, &found)))?;
        Err(MachineError::degraded(text).with_event(AgentEvent::PreflightConfigDriftCheckFailed))
    }
}

#[cfg(test)]
mod tests;

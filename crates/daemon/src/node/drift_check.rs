//! Compares the disk with its config: finds what drifted, which of it is repaired, and which of it is an error.
//!
//! Not here: the limits and rules of repairs (`drift_repair`), the texts (`drift_words`), nor the comparison and the
//! repair themselves (`host`).

use crate::node::drift_repair::Decision;
use crate::node::drift_words::{LastReason, drift_reason, given_up, listed};
use crate::node::machine::{Machine, MachineError, refusal};
use crate::protocol::Note;
use crate::protocol::clock::Moment;
use api::drift::DriftAction;
use api::events::AgentEvent;
use api::text::chain;
use api::v1::MachineConfig;
use host::{Change, CurrentConfig, DisruptionPolicy, Drift, Host, Names};

/// Drift to repair.
pub(crate) struct Repair {
    config: CurrentConfig,
    drifts: Vec<Drift>,
    /// What was found, as text for people.
    found: String,
}

impl std::fmt::Debug for Repair {
    /// Shows only what drifted, because configs hold contents of files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repair").field("drifts", &self.drifts).finish_non_exhaustive()
    }
}

impl Machine {
    /// Sets the drift rules from the Node's annotation. True if they have changed.
    pub(crate) fn set_rules(&self, text: &str) -> bool {
        self.rules().set(text)
    }

    /// What must be reported once: rules that cannot be parsed, and repairs that were given up.
    pub(crate) fn remarks(&self) -> Vec<Note> {
        let note = |kind| move |text| Note { kind, text };
        let rules = self.rules().complaint().map(note(AgentEvent::DriftPolicyInvalid));
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
        let recorded = self.current()?;
        let Some(config) = recorded.as_ref().or(unrecorded) else { return Ok(None) };
        let name = config.metadata.name.clone().unwrap_or_default();
        let mut host = self.host();
        let wanted = host.in_effect(&config.spec)?;
        let found = host.drifts_from(&wanted)?;
        let now = Moment::now();
        let mut repairs = self.repairs();
        repairs.settle(&found, now);
        let (mut repair, mut report, mut gave_up) = (Vec::new(), Vec::new(), Vec::new());
        for drift in found {
            match self.rules().action(&drift) {
                DriftAction::Ignore => tracing::debug!(%drift, "ignored"),
                DriftAction::Repair if recorded.is_some() => match repairs.decide(&drift.path(), now) {
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
        if !repair.is_empty() {
            for drift in &repair {
                repairs.count(drift.path(), now);
            }
            let found = drift_reason(&host, &wanted, &name, &repair);
            let config = CurrentConfig { name, spec: config.spec.clone() };
            return Ok(Some(Repair { config, drifts: repair, found }));
        }
        if !report.is_empty() {
            let told = report.iter().map(ToString::to_string);
            let about = std::iter::once(name.clone()).chain(told).chain(gave_up.clone()).collect();
            let text = self.last_reason().once(about, || {
                let text = drift_reason(&host, &wanted, &name, &report);
                if gave_up.is_empty() { text } else { format!("{}; {text}", given_up(&gave_up)) }
            });
            return Err(MachineError::broken(text).with(AgentEvent::OnDiskStateValidationFailed));
        }
        *self.last_reason() = LastReason::default();
        if recorded.is_none() {
            let names = Names { current: name.clone(), desired: name };
            let change = Change::to_itself(&config.spec, names).map_err(|e| refusal(&e))?;
            let facts = host.inspect(&change)?;
            let plan = change.plan(&DisruptionPolicy::default(), &facts).map_err(|e| refusal(&e))?;
            host.apply(&plan)?;
        }
        Ok(None)
    }

    /// Repairs the drift, all of it or nothing, and reports what was found and done. Without a disruption policy no
    /// service is reloaded or restarted.
    pub(crate) fn repair(
        &self,
        repair: &Repair,
        policy: Option<&DisruptionPolicy>,
    ) -> Result<Vec<Note>, MachineError> {
        let Repair { config, drifts, found } = repair;
        let failed = |why: String| {
            let text = format!("{found}; it could not be restored: {why}");
            MachineError::broken(text).with(AgentEvent::ConfigDriftDetected)
        };
        let mut host = self.host();
        let plan = host.plan_repair(config, drifts, policy).map_err(|e| failed(chain(&e)))?;
        let plan = plan.map_err(|e| failed(refusal(&e).text))?;
        host.apply(&plan).map_err(|e| failed(chain(&e)))?;
        let what: Vec<String> = drifts.iter().map(Drift::path).collect();
        let mut text = format!("Restored {} as config {} has it", listed(&what), config.name);
        if !plan.disruption.is_none() {
            text = format!("{text}; {}", plan.disruption);
        }
        for note in &plan.notes {
            tracing::info!("{note}");
        }
        Ok(vec![
            Note { kind: AgentEvent::ConfigDriftDetected, text: found.clone() },
            Note { kind: AgentEvent::ConfigDriftRepaired, text },
        ])
    }

    /// Refuses a change on a host that has drifted, except for drift that the change itself or the rules repair.
    pub(crate) fn refuse_drifted(&self, host: &mut Host, change: &Change) -> Result<(), MachineError> {
        let mut found = host.drifts_in_way(change)?;
        // Drift that the rules would repair is no obstacle: the change writes every path that differs anyway.
        found.retain(|d| self.rules().action(d) == DriftAction::Report);
        if found.is_empty() {
            return Ok(());
        }
        let name = change.names().current.as_str();
        let told = found.iter().map(ToString::to_string);
        let about = std::iter::once(name.to_owned()).chain(told).collect();
        let text = self.last_reason().once(about, || drift_reason(host, change.old(), name, &found));
        Err(MachineError::broken(text).with(AgentEvent::PreflightConfigDriftCheckFailed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::drift_repair::MOST;
    use api::v1::MachineConfigSpec;
    use host::fault::NoFaults;
    use host::{FakeSystemd, Options, Root, Unsupported};
    use serde_json::json;
    use std::path::Path;
    use std::sync::Arc;

    fn config(name: &str, text: &str) -> MachineConfig {
        let file = |path: &str| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
        let files = json!([file("/etc/app/a"), file("/etc/app/b"), file("/etc/other")]);
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
        MachineConfig::new(name, MachineConfigSpec { config: Some(config), ..Default::default() })
    }

    /// A host in a folder, in the config "one".
    fn mk(dir: &Path) -> Machine {
        std::fs::create_dir_all(dir.join("etc/systemd/system")).unwrap();
        let options = Options { sync: false, owners: false };
        let root = Root::open_with(dir, options, Arc::new(NoFaults)).unwrap();
        let systemd = FakeSystemd::new(&root);
        let machine = Machine::new(Host::new(root, Box::new(systemd), Box::new(Unsupported)));
        let empty = MachineConfig::new(crate::protocol::EMPTY_CONFIG, MachineConfigSpec::default());
        let (_, work) = machine.prepare(&empty, &config("one", "1"), &DisruptionPolicy::default()).unwrap();
        machine.apply(work).unwrap();
        machine
    }

    #[test]
    fn each_path_is_dealt_with_as_the_rules_say() {
        let dir = tempfile::tempdir().unwrap();
        let machine = mk(dir.path());
        let write = |path: &str| std::fs::write(dir.path().join(path), "by hand").unwrap();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert!(machine.set_rules("ignore /etc/app/b\nrepair /etc/app/*"));
        write("etc/app/a");
        write("etc/app/b");
        let repair = machine.check(None).unwrap().unwrap();
        let notes = machine.repair(&repair, None).unwrap();
        assert_eq!(
            notes.iter().map(|n| n.kind).collect::<Vec<_>>(),
            [AgentEvent::ConfigDriftDetected, AgentEvent::ConfigDriftRepaired]
        );
        assert!(
            notes[0].text.contains("/etc/app/a") && notes[0].text.contains("+by hand"),
            "{}",
            notes[0].text
        );
        assert!(!notes[1].text.contains("/etc/app/b"), "{}", notes[1].text);
        assert_eq!((read("etc/app/a").as_str(), read("etc/app/b").as_str()), ("1", "by hand"));
        assert!(machine.check(None).unwrap().is_none(), "what is ignored is no drift");

        write("etc/other");
        let error = machine.check(None).unwrap_err();
        let want = "content mismatch for file \"/etc/other\"";
        assert!(error.text.contains(want) && error.text.contains("-1 (no newline"), "{error}");
        assert!(machine.set_rules("ignore /etc/**"), "another pool annotation");
        assert!(machine.check(None).unwrap().is_none());
        assert_eq!(machine.remarks(), []);
    }

    /// A file, a unit and a drop-in that hold secrets are changed, emptied and extended. No reason, event or plan
    /// shows any of the secrets.
    #[test]
    fn no_reason_event_or_plan_shows_a_secret() {
        const SECRET: &str = "hunter2";
        let dir = tempfile::tempdir().unwrap();
        let machine = mk(dir.path());
        let body = format!("[Service]\nEnvironment=\"SMTP_PASS={SECRET}\"\nExecStart=/bin/true\n");
        let file = |path: &str, mode: u32| {
            json!({"path": path, "mode": mode,
                "contents": {"source": format!("data:,host%3Dmail%0ASMTP_PASS%3D{SECRET}%0A")}})
        };
        let config = json!({"ignition": {"version": "3.4.0"},
            "storage": {"files": [file("/etc/mail.conf", 0o644), file("/etc/mail.private", 0o600)]},
            "systemd": {"units": [{"name": "a.service", "contents": body, "dropins": [{"name": "x.conf", "contents": body}]}]}});
        let two = MachineConfig::new("two", MachineConfigSpec { config: Some(config), ..Default::default() });
        let one = self::config("one", "1");
        let (_, work) = machine.prepare(&one, &two, &DisruptionPolicy::default()).unwrap();
        let mut said = vec![format!("{work:?}")];
        machine.apply(work).unwrap();
        let paths = [
            "etc/mail.conf",
            "etc/mail.private",
            "etc/systemd/system/a.service",
            "etc/systemd/system/a.service.d/x.conf",
        ];
        for path in paths {
            let path = dir.path().join(path);
            let good = std::fs::read(&path).unwrap();
            assert!(String::from_utf8_lossy(&good).contains(SECRET));
            for found in
                ["", "host=mail\n", "host=mail\nSMTP_PASS=hunter2x\n", "PIN=hunter2\n", "x hunter2\n"]
            {
                std::fs::write(&path, found).unwrap();
                machine.set_rules("");
                said.push(machine.check(None).unwrap_err().text);
                let preflight = machine.prepare(&two, &one, &DisruptionPolicy::default());
                said.extend(preflight.err().map(|e| e.text));
                machine.set_rules("repair /etc/**");
                let repair = machine.check(None).unwrap().unwrap();
                said.extend(machine.repair(&repair, None).unwrap().into_iter().map(|n| n.text));
                assert!(machine.check(None).unwrap().is_none());
                *machine.repairs() = crate::node::drift_repair::Repairs::default();
            }
            assert_eq!(std::fs::read(&path).unwrap(), good);
        }
        assert!(said.len() >= 60, "{}", said.len());
        for text in said {
            assert!(!text.contains(SECRET) && !text.contains("1234"), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_written_in_a_loop_has_one_reason() {
        let dir = tempfile::tempdir().unwrap();
        let machine = mk(dir.path());
        let at = |path: &str| dir.path().join(path);
        std::fs::write(at("etc/other"), "0 by hand").unwrap();
        let first = machine.check(None).unwrap_err().text;
        assert!(first.contains("+0 by hand"), "{first}");
        for n in 1..5 {
            std::fs::write(at("etc/other"), format!("{n} by hand")).unwrap();
            assert_eq!(machine.check(None).unwrap_err().text, first);
        }
        // Another kind of difference, another path, or the same drift after everything was in order, is reported
        // again.
        std::fs::remove_file(at("etc/other")).unwrap();
        assert!(machine.check(None).unwrap_err().text.contains("does not exist"));
        std::fs::write(at("etc/other"), "1").unwrap();
        assert!(machine.check(None).unwrap().is_none());
        std::fs::write(at("etc/other"), "9 by hand").unwrap();
        assert!(machine.check(None).unwrap_err().text.contains("+9 by hand"));
        std::fs::write(at("etc/app/a"), "too").unwrap();
        let both = machine.check(None).unwrap_err().text;
        assert!(both.contains("/etc/app/a") && both.contains("/etc/other"), "{both}");
    }

    #[test]
    fn who_changes_a_path_again_and_again_is_told_of_loudly() {
        let dir = tempfile::tempdir().unwrap();
        let machine = mk(dir.path());
        machine.set_rules("repair /etc/**");
        let past = Moment::now() + jiff::SignedDuration::from_secs(-300);
        for _ in 1..MOST {
            machine.repairs().count("/etc/app/a".to_owned(), past);
        }
        std::fs::write(dir.path().join("etc/app/a"), "by hand").unwrap();
        let repair = machine.check(None).unwrap().unwrap();
        machine.repair(&repair, None).unwrap();
        assert!(machine.check(None).unwrap().is_none());
        std::fs::write(dir.path().join("etc/app/a"), "by hand").unwrap();
        let error = machine.check(None).unwrap_err();
        assert!(error.text.starts_with("/etc/app/a was repaired 5 times within 10 minutes"), "{error}");
        assert_eq!(
            machine.remarks().iter().map(|n| n.kind).collect::<Vec<_>>(),
            [AgentEvent::ConfigDriftRepairGivenUp]
        );
        machine.check(None).unwrap_err();
        assert_eq!(machine.remarks(), [], "told once");
        assert_eq!(std::fs::read_to_string(dir.path().join("etc/app/a")).unwrap(), "by hand");
    }

    #[test]
    fn drift_that_the_rules_take_care_of_does_not_hold_an_update_up() {
        let dir = tempfile::tempdir().unwrap();
        let machine = mk(dir.path());
        let mut two = config("two", "1");
        two.spec.config.as_mut().unwrap()["storage"]["files"][2]["contents"]["source"] = json!("data:,2");
        std::fs::write(dir.path().join("etc/app/a"), "by hand").unwrap();
        let prepare = || machine.prepare(&config("one", "1"), &two, &DisruptionPolicy::default());
        let error = prepare().unwrap_err();
        assert_eq!(error.event, Some(AgentEvent::PreflightConfigDriftCheckFailed));
        for rules in ["repair /etc/**", "ignore /etc/**"] {
            machine.set_rules(rules);
            prepare().unwrap();
        }
        let (_, work) = prepare().unwrap();
        machine.apply(work).unwrap();
        assert_eq!(
            std::fs::read_to_string(dir.path().join("etc/app/a")).unwrap(),
            "1",
            "an update writes it"
        );
    }

    #[test]
    fn many_paths_and_long_differences_fit_on_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let machine = mk(dir.path());
        for path in ["etc/app/a", "etc/app/b", "etc/other"] {
            let text: String = (0..100).map(|i| format!("{i} {}\n", "wide ".repeat(60))).collect();
            std::fs::write(dir.path().join(path), text).unwrap();
        }
        let error = machine.check(None).unwrap_err();
        assert!(error.text.chars().count() < 2000, "{}", error.text.len());
        assert!(error.text.contains("/etc/other"), "{error}");
        let all: Vec<String> = (0..12).map(|i| i.to_string()).collect();
        assert!(listed(&all).ends_with("; 9; and 2 more"));
    }
}

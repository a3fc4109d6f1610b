//! Tests of drift checks and repairs on a host in a folder: rules, limits, texts, and how often a config is parsed.

use super::*;
use crate::node::drift_repair::MOST;
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{FakeSystemd, Options, OsBackend, Root, Unsupported};
use serde_json::json;
use std::path::Path;

fn config(name: &str, text: &str) -> MachineConfig {
    let file = |path: &str| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
    let files = json!([file("/etc/app/a"), file("/etc/app/b"), file("/etc/other")]);
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    MachineConfig::new(name, MachineConfigSpec { config: Some(config), ..Default::default() })
}

/// An agent's view of the host in a folder.
fn open(dir: &Path) -> Machine {
    open_with(dir, Box::new(Unsupported::default()))
}

fn open_with(dir: &Path, os: Box<dyn OsBackend>) -> Machine {
    let options = Options { sync: false, owners: false };
    let root = Root::open_with(dir, options, Arc::new(NoFaults)).unwrap();
    let systemd = FakeSystemd::new(&root);
    Machine::new(Host::new(root, Box::new(systemd), os))
}

/// A host in a folder, in the config "one".
fn mk(dir: &Path) -> Machine {
    std::fs::create_dir_all(dir.join("etc/systemd/system")).unwrap();
    let machine = open(dir);
    let empty = MachineConfig::new(crate::protocol::EMPTY_CONFIG, MachineConfigSpec::default());
    let (_, work) = machine.prepare(&empty, &config("one", "1"), &DisruptionPolicy::default()).unwrap();
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
    machine
}

#[test]
fn each_drifted_path_is_handled_by_its_rule() {
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
    assert!(notes[0].text.contains("/etc/app/a") && notes[0].text.contains("+by hand"), "{}", notes[0].text);
    assert!(!notes[1].text.contains("/etc/app/b"), "{}", notes[1].text);
    assert_eq!((read("etc/app/a").as_str(), read("etc/app/b").as_str()), ("1", "by hand"));
    assert!(machine.check(None).unwrap().is_none(), "an ignored path is no drift");

    write("etc/other");
    let error = machine.check(None).unwrap_err();
    let want = "content mismatch for file \"/etc/other\"";
    assert!(error.text.contains(want) && error.text.contains("-1 (no newline"), "{error}");
    assert!(machine.set_rules("ignore /etc/**"), "another pool annotation");
    assert!(machine.check(None).unwrap().is_none());
    assert_eq!(machine.notes_to_report(), []);
}

/// A config is parsed for its update. After that, only the entries of paths that have drifted are.
#[test]
fn a_config_is_parsed_once_for_its_update_its_drift_checks_its_watch_and_its_repairs() {
    let parsed = || desired::parsed_entries();
    let before = parsed();
    let dir = tempfile::tempdir().unwrap();
    let machine = mk(dir.path());
    assert_eq!(parsed() - before, 3, "the update parses the three files of the new config once");
    let before = parsed();
    assert!(machine.check(None).unwrap().is_none());
    machine.watch().unwrap().unwrap();
    assert_eq!(parsed() - before, 0, "neither the drift check nor the watch parses anything");
    machine.set_rules("repair /etc/app/*");
    std::fs::write(dir.path().join("etc/app/a"), "by hand").unwrap();
    let repair = machine.check(None).unwrap().unwrap();
    machine.repair(&repair, None).unwrap();
    assert!(machine.check(None).unwrap().is_none());
    assert_eq!(parsed() - before, 1, "only the file that drifted");
    std::fs::write(dir.path().join("etc/other"), "by hand").unwrap();
    for _ in 0..3 {
        machine.check(None).unwrap_err();
    }
    assert_eq!(parsed() - before, 2, "drift that stays is explained once");

    // A process that starts on this host parses the config once. So does one whose record another process replaced.
    let again = open(dir.path());
    let before = parsed();
    again.check(None).unwrap_err();
    again.watch().unwrap().unwrap();
    assert_eq!(parsed() - before, 3 + 1);
    std::fs::write(dir.path().join("etc/other"), "1").unwrap();
    let two = config("two", "2");
    let (_, work) = again.prepare(&config("one", "1"), &two, &DisruptionPolicy::default()).unwrap();
    again.apply(work, &Default::default(), &Default::default()).unwrap();
    let before = parsed();
    assert!(machine.check(None).unwrap().is_none());
    assert_eq!(machine.watch().unwrap().unwrap().0, "two");
    assert_eq!(parsed() - before, 3);
}

/// An agent at rest holds no contents, so an update parses both of its configs: once, also if it was planned ahead.
#[test]
fn an_update_that_was_planned_ahead_parses_no_config_again() {
    let parsed = || desired::parsed_entries();
    let dir = tempfile::tempdir().unwrap();
    let machine = mk(dir.path());
    let policy = DisruptionPolicy::default();
    let before = parsed();
    let (cost, ahead) = machine.prepare(&config("one", "1"), &config("two", "2"), &policy).unwrap();
    assert_eq!(parsed() - before, 3 + 3);
    // What the plan depends on besides the configs is read anew.
    std::fs::write(dir.path().join("etc/other"), "2").unwrap();
    let (again, work) = machine.prepare_again(ahead, &policy).unwrap().unwrap();
    assert_eq!(again, cost);
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
    assert!(machine.check(None).unwrap().is_none());
    assert_eq!(parsed() - before, 3 + 3);
    // Another process has applied a config meanwhile.
    let (_, ahead) = machine.prepare(&config("two", "2"), &config("three", "3"), &policy).unwrap();
    let other = open(dir.path());
    let (_, work) = other.prepare(&config("two", "2"), &config("four", "4"), &policy).unwrap();
    other.apply(work, &Default::default(), &Default::default()).unwrap();
    assert!(machine.prepare_again(ahead, &policy).unwrap().is_none());
}

/// The recovery after such a boot compares the files with the config, and so does the first drift check.
#[test]
fn a_process_that_starts_in_another_operating_system_parses_the_config_once() {
    let parsed = || desired::parsed_entries();
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    std::fs::create_dir_all(at("etc/systemd/system")).unwrap();
    let os = host::FakeOs::default();
    os.keep_folders();
    let machine = open_with(dir.path(), Box::new(os.clone()));
    let empty = MachineConfig::new(crate::protocol::EMPTY_CONFIG, MachineConfigSpec::default());
    let mut one = config("one", "1");
    one.spec.os_image_url = "fake:2".to_owned();
    let (_, work) = machine.prepare(&empty, &one, &DisruptionPolicy::default()).unwrap();
    machine.fetch(&work, &host::Pull::default()).unwrap();
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
    // A merge of /etc that leaves one of the files behind.
    let old = at(&format!("{}/etc", os.folder()));
    std::fs::create_dir_all(&old).unwrap();
    std::fs::rename(at("etc/other"), old.join("other")).unwrap();
    FakeSystemd::new(&Root::open(dir.path()).unwrap()).complete_reboot().unwrap();
    let _ = std::fs::remove_file(at("run/machine-config-daemon-boot"));
    os.boot();

    let again = open_with(dir.path(), Box::new(os));
    let before = parsed();
    assert!(!again.recover().unwrap());
    assert_eq!(std::fs::read_to_string(at("etc/other")).unwrap(), "1", "it was written again");
    assert!(again.check(None).unwrap().is_none());
    again.watch().unwrap().unwrap();
    assert_eq!(parsed() - before, 3 + 1, "the config once, and the file that was left behind");
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
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
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
        for found in ["", "host=mail\n", "host=mail\nSMTP_PASS=hunter2x\n", "PIN=hunter2\n", "x hunter2\n"] {
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
fn a_path_that_drifts_again_and_again_raises_a_warning_event() {
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
        machine.notes_to_report().iter().map(|n| n.kind).collect::<Vec<_>>(),
        [AgentEvent::ConfigDriftRepairGivenUp]
    );
    machine.check(None).unwrap_err();
    assert_eq!(machine.notes_to_report(), [], "told once");
    assert_eq!(std::fs::read_to_string(dir.path().join("etc/app/a")).unwrap(), "by hand");
}

#[test]
fn drift_that_is_repaired_or_ignored_does_not_block_an_update() {
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
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
    assert_eq!(
        std::fs::read_to_string(dir.path().join("etc/app/a")).unwrap(),
        "1",
        "the update writes this path"
    );
}

#[test]
fn the_reason_stays_within_the_limit_with_many_paths_and_long_diffs() {
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

#[test]
fn kernel_arguments_that_somebody_took_from_the_next_boot_are_drift_which_no_rule_repairs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    let options = Options { sync: false, owners: false };
    let root = Root::open_with(dir.path(), options, Arc::new(NoFaults)).unwrap();
    let deployment = |arguments: &[&str]| host::Deployment {
        kernel_arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
        kernel_type: "default".to_owned(),
        ..host::Deployment::default()
    };
    let booted = deployment(&["ro", "nosmt"]);
    let os = host::FakeOs::new(host::OsStatus { booted, ..host::OsStatus::default() });
    let stage = |arguments: &[&str]| {
        host::OsBackend::stage(&mut os.clone(), &deployment(arguments)).unwrap();
    };
    let systemd = FakeSystemd::new(&root);
    let machine = Machine::new(Host::new(root, Box::new(systemd), Box::new(os.clone())));
    let kernel_arguments = Some(vec!["nosmt".to_owned()]);
    let spec = MachineConfigSpec { kernel_arguments, ..MachineConfigSpec::default() };
    assert!(machine.check(Some(&MachineConfig::new("one", spec))).unwrap().is_none());

    // What the host has besides is its own.
    stage(&["ro", "nosmt", "by-hand"]);
    assert!(machine.check(None).unwrap().is_none());
    stage(&["ro"]);
    machine.set_rules("repair /**");
    let error = machine.check(None).unwrap_err();
    assert!(
        error.text.contains("spec.kernelArguments: the next boot lacks the kernel argument nosmt"),
        "{error}"
    );
    os.boot();
    let error = machine.check(None).unwrap_err();
    assert!(error.text.contains("nosmt"), "{error}");
    stage(&["ro", "nosmt"]);
    let error = machine.check(None).unwrap_err();
    assert!(error.text.contains("the running system lacks the kernel argument nosmt"), "{error}");
    os.boot();
    assert!(machine.check(None).unwrap().is_none());
}

//! The recorded chains of `tests/conformance/host`, led through a folder with the fake systemd: what the reference
//! agent did on really booted machines, our plan and apply must do too. `check_host.py` does the same on a real node;
//! what counts as a difference is the same here and there, with two exceptions: `/etc/shadow` and `/etc/passwd-` hold
//! other users here, so that only their mode and owner are compared; and the operating system is an in-memory one that
//! can do everything (a host that cannot refuses, see `a_host_without_an_os_back_end_refuses_what_it_cannot_do`).

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use api::v1::MachineConfigSpec;
use common::{is_root, mk_host, mk_host_tree, tree};
use host::fault::NoFaults;
use host::{
    DisruptionPolicy, FakeOs, FakeSystemd, FilePolicy, Host, Names, PolicyAction, Root, UnitPolicy, Unsupported,
    plan,
};
use serde_json::Value;

const OWN: &str = "/etc/machine-config-daemon/";
const TOPS: [&str; 7] = ["/etc", "/home", "/opt", "/srv", "/usr/local", "/var", "/usr/lib/systemd"];
const SKIP: [&str; 10] = [
    "/var/log",
    "/var/tmp",
    "/var/cache",
    "/var/svc.log",
    "/var/lib/systemd",
    "/var/lib/machine-config-daemon",
    "/etc/machine-config-daemon/currentconfig",
    "/etc/kubernetes",
    "/etc/.pwd.lock",
    "/etc/shadow-",
];
/// Files whose contents differ from the recorded machines' from the start.
const OTHER_CONTENTS: [&str; 2] = ["/etc/shadow", "/etc/passwd-"];

type Tree = BTreeMap<String, String>;

/// The policies that the recorded cluster had beside the defaults.
fn policies() -> DisruptionPolicy {
    let file = |path: &str, actions| FilePolicy { path: path.to_owned(), actions };
    DisruptionPolicy::default().merge(&DisruptionPolicy {
        files: vec![
            file("/etc/chrony.conf", vec![PolicyAction::restart("chronyd.service")]),
            file("/etc/quiet", vec![PolicyAction::None]),
            file(
                "/etc/two.conf",
                vec![PolicyAction::reload("crio.service"), PolicyAction::restart("chronyd.service")],
            ),
            file("/etc/drain.conf", vec![PolicyAction::Drain]),
            file("/etc/reboot.conf", vec![PolicyAction::Reboot]),
        ],
        units: vec![UnitPolicy { name: "quiet.service".to_owned(), actions: vec![PolicyAction::None] }],
        ..DisruptionPolicy::empty()
    })
}

#[derive(Debug, PartialEq)]
struct Outcome {
    done: bool,
    drain: bool,
    reboot: bool,
    services: BTreeSet<String>,
    changed: Tree,
    why: String,
}

/// One machine that is led through a chain.
struct Machine {
    dir: tempfile::TempDir,
    host: Host,
    systemd: FakeSystemd,
    base: Tree,
    at: (String, MachineConfigSpec),
}

impl Machine {
    fn fresh() -> Self {
        let dir = mk_host_tree();
        let host = mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults));
        let systemd = FakeSystemd::new(host.root());
        let base = tree(dir.path(), &TOPS, &SKIP);
        Self { dir, host, systemd, base, at: ("rendered-worker-a0".to_owned(), MachineConfigSpec::default()) }
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("var/svc.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn changed(&self) -> Tree {
        let now = tree(self.dir.path(), &TOPS, &SKIP);
        let all: BTreeSet<_> = self.base.keys().chain(now.keys()).cloned().collect();
        let absent = || "absent".to_owned();
        all.into_iter()
            .filter(|p| self.base.get(p) != now.get(p))
            .map(|p| (p.clone(), now.get(&p).cloned().unwrap_or_else(absent)))
            .collect()
    }

    /// What the daemon does for one desired config.
    fn step(&mut self, name: &str, spec: &MachineConfigSpec) -> Outcome {
        let log = self.log().len();
        let names = Names { current: self.at.0.clone(), desired: name.to_owned() };
        let facts = self.host.probe(&self.at.1, spec).unwrap();
        let mut out = Outcome {
            done: false,
            drain: false,
            reboot: false,
            services: BTreeSet::new(),
            changed: Tree::new(),
            why: String::new(),
        };
        match plan(&self.at.1, spec, &names, &policies(), &facts) {
            Err(bad) => out.why = bad.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Ok(plan) => match self.host.apply(&plan) {
                Err(e) => out.why = format!("{e}: {:?}", std::error::Error::source(&e).map(ToString::to_string)),
                Ok(applied) => {
                    out.done = true;
                    out.drain = plan.disruption.needs_drain();
                    out.reboot = applied.reboot;
                    if applied.reboot {
                        self.host.reboot("test").unwrap();
                        self.systemd.complete_reboot().unwrap();
                        assert!(matches!(self.host.reboot_status(), Ok(host::RebootStatus::Rebooted(_))));
                        self.host.reboot_done().unwrap();
                    } else {
                        out.services = self.log().into_iter().skip(log).collect();
                    }
                    self.at = (name.to_owned(), spec.clone());
                    assert_eq!(self.host.validate(spec).unwrap(), Ok(()), "{name} is not what the host says");
                    assert_eq!(self.host.current_config().unwrap().map(|c| c.name).as_deref(), Some(name));
                }
            },
        }
        out.changed = self.changed();
        out
    }
}

/// The port of `differences` in `check_host.py`.
fn differences(want: &Value, got: &Outcome, before: &Tree, strict: bool) -> Vec<String> {
    let mut out = Vec::new();
    let result = want["result"] == "done";
    for (what, w, g) in [
        ("done", result, got.done),
        ("drain", want["drain"] == true, got.drain),
        ("reboot", want["reboot"] == true, got.reboot),
    ] {
        if w != g {
            out.push(format!("{what}: want {w}, got {g} ({})", got.why));
        }
    }
    let services: BTreeSet<String> = serde_json::from_value(want["services"].clone()).unwrap();
    if services != got.services {
        out.push(format!("services: want {services:?}, got {:?}", got.services));
    }
    let recorded: Tree = serde_json::from_value(want["changed"].clone()).unwrap();
    let w = if result { &recorded } else { before };
    let start = "as at the start".to_owned();
    let gone = |s: &str| s == "absent" || s == start;
    for p in w.keys().chain(got.changed.keys()).collect::<BTreeSet<_>>() {
        if p.starts_with(OWN) {
            continue;
        }
        let (mut x, mut y) = (w.get(p).unwrap_or(&start).clone(), got.changed.get(p).unwrap_or(&start).clone());
        if OTHER_CONTENTS.contains(&p.as_str()) {
            for s in [&mut x, &mut y] {
                *s = s.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
            }
        }
        let empty = (x.starts_with("dir") && gone(&y)) || (y.starts_with("dir") && gone(&x));
        let dangling =
            gone(&y) && x.strip_prefix("link ").is_some_and(|t| t.starts_with("/etc/systemd/system/") && !w.contains_key(t));
        let restored = x == "absent" && y == start;
        if x != y && !(empty || !strict && (dangling || restored)) {
            out.push(format!("{p}: want {x:?}, got {y:?}"));
        }
    }
    if result {
        for p in recorded.keys() {
            let Some(path) = p.strip_prefix(&format!("{OWN}noorig")).and_then(|p| p.strip_suffix(".mcdnoorig")) else {
                continue;
            };
            let kept = got.changed.contains_key(p) || got.changed.contains_key(&format!("{OWN}orig{path}.mcdorig"));
            if w.contains_key(path) && !kept {
                out.push(format!("{path}: nothing kept of what the host had there"));
            }
        }
    }
    out
}

fn chains() -> Vec<Value> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/host");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.iter().map(|f| serde_json::from_str(&std::fs::read_to_string(f).unwrap()).unwrap()).collect()
}

fn spec(step: &Value) -> MachineConfigSpec {
    let mut spec: MachineConfigSpec = serde_json::from_value(step["spec"].clone()).unwrap();
    let config = spec.config.get_or_insert_with(|| serde_json::json!({}));
    config["ignition"] = serde_json::json!({"version": "3.5.0"});
    spec
}

#[test]
fn every_recorded_step_ends_as_the_reference_ended() {
    if !is_root() {
        return;
    }
    let (mut total, mut bad) = (0, Vec::new());
    for chain in chains() {
        let mut machine = Machine::fresh();
        let mut before = Tree::new();
        for (i, step) in chain["steps"].as_array().unwrap().iter().enumerate() {
            let about = format!("{} step {i} ({})", chain["id"], step["about"]);
            let got = machine.step(&format!("rendered-worker-{i:02}"), &spec(step));
            total += 1;
            let d = differences(&step["expect"], &got, &before, chain["strict"] == true);
            bad.extend(d.into_iter().map(|d| format!("{about}: {d}")));
            before = got.changed;
        }
    }
    println!("{total} steps");
    assert!(total > 100, "only {total} steps found");
    assert!(bad.is_empty(), "{} differences:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn a_host_without_an_os_back_end_refuses_what_it_cannot_do() {
    let dir = mk_host_tree();
    let root = Root::open(dir.path()).unwrap();
    let mut host = Host::new(root.clone(), Box::new(FakeSystemd::new(&root)), Box::new(Unsupported));
    let old = MachineConfigSpec::default();
    for (field, new) in [
        ("spec.osImageURL", MachineConfigSpec { os_image_url: "x".to_owned(), ..old.clone() }),
        (
            "spec.kernelArguments",
            MachineConfigSpec { kernel_arguments: Some(vec!["quiet".to_owned()]), ..old.clone() },
        ),
        ("spec.kernelType", MachineConfigSpec { kernel_type: "realtime".to_owned(), ..old.clone() }),
        ("spec.extensions", MachineConfigSpec { extensions: Some(vec!["usbguard".to_owned()]), ..old.clone() }),
    ] {
        let facts = host.probe(&old, &new).unwrap();
        let bad = plan(&old, &new, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap_err();
        let texts: Vec<_> = bad.iter().map(ToString::to_string).collect();
        assert_eq!(bad.len(), 1, "{texts:?}");
        assert!(texts[0].contains(field) && texts[0].contains("Debian GNU/Linux 12"), "{texts:?}");
    }
}

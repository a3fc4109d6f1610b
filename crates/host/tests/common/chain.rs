//! Applies recorded chains to one machine and compares, as `check_host.py` does; for a folder and for a real machine.
#![allow(unreachable_pub, dead_code, reason = "a module of tests; each uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::{BySpec as _, plan};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, FilePolicy, Host, Names, PolicyAction, RebootStatus, UnitPolicy};
use serde_json::Value;

use crate::common::tree;

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

/// What exists at each path.
pub type Tree = BTreeMap<String, String>;

/// The policies that the recorded cluster had in addition to the defaults.
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

/// How a step ended.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    done: bool,
    drain: bool,
    reboot: bool,
    services: BTreeSet<String>,
    /// Paths that differ from the start.
    pub changed: Tree,
    why: String,
}

impl Outcome {
    /// The outcome in the form of the recorded chains.
    pub fn recorded(&self) -> Value {
        let Self { done, drain, reboot, services, changed, why: _ } = self;
        let result = if *done { "done" } else { "refused" };
        serde_json::json!({"result": result, "drain": drain, "reboot": reboot, "services": services, "changed": changed})
    }
}

/// Steps that the reference refuses and that succeed here, by chain: folders and links on running hosts.
const ON_PURPOSE: [(&str, &str); 2] = [("t-refused", "a folder"), ("t-refused", "a link")];

/// One machine that goes through a chain.
pub struct Machine {
    root: PathBuf,
    host: Host,
    base: Tree,
    at: (String, MachineConfigSpec),
    skip: Vec<&'static str>,
}

impl Machine {
    /// Uses a machine as it is.
    pub fn new(root: &Path, host: Host, skip: &[&'static str]) -> Self {
        let skip: Vec<_> = SKIP.iter().chain(skip).copied().collect();
        let base = tree(root, &TOPS, &skip);
        let at = ("rendered-worker-a0".to_owned(), MachineConfigSpec::default());
        Self { root: root.to_owned(), host, base, at, skip }
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.root.join("var/svc.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn changed(&self) -> Tree {
        let now = tree(&self.root, &TOPS, &self.skip);
        let all: BTreeSet<_> = self.base.keys().chain(now.keys()).cloned().collect();
        let absent = || "absent".to_owned();
        all.into_iter()
            .filter(|p| self.base.get(p) != now.get(p))
            .map(|p| (p.clone(), now.get(&p).cloned().unwrap_or_else(absent)))
            .collect()
    }

    /// Does what the daemon does for one desired config. `reboot` makes the machine boot again.
    pub fn step(
        &mut self,
        name: &str,
        spec: &MachineConfigSpec,
        reboot: &mut dyn FnMut(&mut Host),
    ) -> Outcome {
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
                Err(e) => {
                    out.why = format!("{e}: {:?}", std::error::Error::source(&e).map(ToString::to_string));
                }
                Ok(applied) => {
                    out.done = true;
                    out.drain = plan.disruption.needs_drain();
                    out.reboot = applied.reboot;
                    if applied.reboot {
                        assert!(matches!(self.host.reboot_status(), Ok(RebootStatus::Owed(_))));
                        reboot(&mut self.host);
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

    /// Applies a chain to the machine. Returns the number of steps and the differences.
    pub fn lead(&mut self, chain: &Value, reboot: &mut dyn FnMut(&mut Host)) -> (usize, Vec<String>) {
        let mut before = Tree::new();
        let mut bad = Vec::new();
        let steps = chain["steps"].as_array().unwrap();
        for (i, step) in steps.iter().enumerate() {
            let about = format!("{} step {i} ({})", chain["id"], step["about"]);
            let got = self.step(&format!("rendered-worker-{i:02}"), &spec(step), reboot);
            if ON_PURPOSE.iter().any(|(id, about)| chain["id"] == *id && step["about"] == *about) {
                if !got.done {
                    bad.push(format!("{about}: refused ({})", got.why));
                }
                before = got.changed;
                continue;
            }
            let d = differences(&step["expect"], &got, &before, chain["strict"] == true);
            bad.extend(d.into_iter().map(|d| format!("{about}: {d}")));
            before = got.changed;
        }
        (steps.len(), bad)
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
        let (mut x, mut y) =
            (w.get(p).unwrap_or(&start).clone(), got.changed.get(p).unwrap_or(&start).clone());
        if OTHER_CONTENTS.contains(&p.as_str()) {
            for s in [&mut x, &mut y] {
                *s = s.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
            }
        }
        let empty = (x.starts_with("dir") && gone(&y)) || (y.starts_with("dir") && gone(&x));
        let dangling = gone(&y)
            && x.strip_prefix("link ")
                .is_some_and(|t| t.starts_with("/etc/systemd/system/") && !w.contains_key(t));
        let restored = x == "absent" && y == start;
        if x != y && !(empty || !strict && (dangling || restored)) {
            out.push(format!("{p}: want {x:?}, got {y:?}"));
        }
    }
    if result {
        for p in recorded.keys() {
            let Some(path) =
                p.strip_prefix(&format!("{OWN}noorig")).and_then(|p| p.strip_suffix(".mcdnoorig"))
            else {
                continue;
            };
            let kept =
                got.changed.contains_key(p) || got.changed.contains_key(&format!("{OWN}orig{path}.mcdorig"));
            if w.contains_key(path) && !kept {
                out.push(format!("{path}: nothing kept of what the host had there"));
            }
        }
    }
    out
}

/// All recorded chains.
pub fn chains() -> Vec<Value> {
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

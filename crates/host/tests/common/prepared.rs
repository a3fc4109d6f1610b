//! A change of a host in a folder that can be repeated, with its states before and after: for the crash tests.
#![allow(unreachable_pub, dead_code, reason = "a module of tests; each uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::copy::copy_tree;
use crate::common::{BySpec as _, plan};
use api::v1alpha1::Reboots;
use host::fault::NoFaults;
use host::{
    DisruptionPolicy, FakeOs, FakeSystemd, FilePolicy, HostPlan, Names, OsBackend, OsStatus, PolicyAction,
    Systemd,
};

use crate::common::{mk_host, mk_host_tree, mk_temp, tree};
use crate::config_pairs::Pair;

/// Our own state, what stands in for other processes, and a lock file that other tools leave too.
pub const SKIP: [&str; 6] = [
    "/run",
    "/var/svc.log",
    // Its temporary file: the fake of systemd may be killed in the middle of a write, and no recovery of ours knows of it.
    "/var/.mcd-09f9eef09686aaca.tmp",
    "/var/lib/machine-config-daemon",
    "/etc/.pwd.lock",
    "/lost+found",
];

/// What exists at each path.
pub type Tree = BTreeMap<String, String>;

/// A host in the old config, ready to be copied, and both ends of the change.
pub struct Prepared {
    pub about: &'static str,
    pub base: tempfile::TempDir,
    pub base_os: OsStatus,
    pub plan: HostPlan,
    pub old: (Tree, OsStatus),
    pub new: (Tree, OsStatus),
}

pub fn policy() -> DisruptionPolicy {
    let file = |path: &str, actions| FilePolicy { path: path.to_owned(), actions };
    DisruptionPolicy::default().merge(&DisruptionPolicy {
        files: vec![
            file("/etc/chrony.conf", vec![PolicyAction::restart("chronyd.service")]),
            file("/etc/two.conf", vec![PolicyAction::reload("crio.service"), PolicyAction::DaemonReload]),
        ],
        ..DisruptionPolicy::empty()
    })
}

/// The policies of a pair.
pub fn policy_of(pair: &Pair) -> DisruptionPolicy {
    let reboots = if pair.when_needed { Reboots::WhenNeeded } else { Reboots::AsReference };
    DisruptionPolicy { reboots, live_extensions: pair.live, ..policy() }
}

pub fn names(current: &str, desired: &str) -> Names {
    Names { current: current.to_owned(), desired: desired.to_owned() }
}

/// The units of [`crate::config_pairs::effect_pairs`]: whether they run is part of a host's state.
const UNITS: [&str; 3] = ["gone.service", "stays.service", "new.service"];

pub fn state(at: &Path, os: &FakeOs) -> (Tree, OsStatus) {
    let mut tree = tree(at, &["/"], &SKIP);
    let mut systemd = FakeSystemd::new(&host::Root::open(at).unwrap());
    let runs = UNITS.into_iter().filter(|unit| systemd.is_running(unit).unwrap());
    tree.extend(runs.map(|unit| (unit.to_owned(), "runs".to_owned())));
    // Which image the host goes back to is part of its state, too.
    let before = std::fs::read_to_string(at.join(host::paths::OS_BEFORE.trim_start_matches('/')));
    tree.extend(before.ok().map(|text| ("the image of before".to_owned(), text)));
    (tree, os.clone().status().unwrap())
}

/// Checks that two states are the same, and shows what differs.
pub fn same(now: &(Tree, OsStatus), want: &(Tree, OsStatus), about: &str) {
    let differs: Vec<String> = now
        .0
        .keys()
        .chain(want.0.keys())
        .filter(|p| now.0.get(*p) != want.0.get(*p))
        .map(|p| format!("{p}: want {:?}, got {:?}", want.0.get(p), now.0.get(p)))
        .collect();
    assert!(differs.is_empty(), "{about}:\n{}", differs.join("\n"));
    assert_eq!(now.1, want.1, "{about}");
}

/// What the OS says of itself.
pub fn status_of(os: &FakeOs) -> OsStatus {
    os.clone().status().unwrap()
}

pub fn mk_os(status: &OsStatus) -> FakeOs {
    FakeOs::new(status.clone())
}

/// The machine boots: another boot id, an empty `/run`, and the operating system that was staged, unless it falls back.
pub fn boot(at: &Path, os: &FakeOs) {
    let mut systemd = FakeSystemd::new(&host::Root::open(at).unwrap());
    systemd.complete_reboot().unwrap();
    let _ = std::fs::remove_file(at.join("run/machine-config-daemon-boot"));
    os.boot();
}

/// A machine whose deployments have an `/etc` each, as OSTree makes it: what it boots is merged from what ran before when it
/// is shut down in order, and the old one stays as it was then.
pub struct Deployments {
    /// The `/etc` of the deployment that does not run, by its image and kernel arguments.
    etc: BTreeMap<String, tempfile::TempDir>,
}

impl Deployments {
    pub fn new() -> Self {
        Self { etc: BTreeMap::new() }
    }

    /// An orderly shutdown and a boot.
    pub fn boot(&mut self, at: &Path, os: &FakeOs) {
        let booted = |os: &FakeOs| {
            let booted = os.clone().status().unwrap().booted;
            format!("{} {} {}", booted.image, booted.kernel_arguments.join(" "), booted.extensions.join(" "))
        };
        let etc = at.join("etc");
        let before = booted(os);
        boot(at, os);
        let now = booted(os);
        if now == before {
            return;
        }
        self.etc.insert(before, copy(&etc));
        // One that has run already keeps its own; a new one begins with the changes of the one before.
        if let Some(own) = self.etc.remove(&now) {
            std::fs::remove_dir_all(&etc).unwrap();
            std::fs::create_dir(&etc).unwrap();
            copy_tree(own.path(), &etc);
        }
    }
}

pub fn copy(from: &Path) -> tempfile::TempDir {
    let to = mk_temp();
    copy_tree(from, to.path());
    to
}

pub fn prepare(pair: &Pair) -> Prepared {
    let base = mk_host_tree();
    if pair.when_needed {
        crate::common::mk_kernel(base.path());
    }
    let os = FakeOs::default();
    if pair.live {
        os.allow_live();
    }
    let mut host = mk_host(base.path(), &os, Arc::new(NoFaults));
    if pair.when_needed {
        // The kubelet runs, so that its drop-in takes effect without a boot and the parameter's value is recorded.
        FakeSystemd::new(host.root()).set_started("kubelet.service").unwrap();
    }
    let start = api::v1::MachineConfigSpec::default();
    let first_policy = DisruptionPolicy { live_extensions: false, ..policy_of(pair) };
    let facts = host.probe(&start, &pair.old).unwrap();
    let first = plan(&start, &pair.old, &names("", "old"), &first_policy, &facts).unwrap();
    host.apply(&first).unwrap();
    boot(base.path(), &os);
    host.recover().unwrap();
    if pair.when_needed {
        let mut systemd = FakeSystemd::new(host.root());
        for unit in ["gone.service", "stays.service", "kubelet.service"] {
            systemd.set_started(unit).unwrap();
        }
    }
    let facts = host.probe(&pair.old, &pair.new).unwrap();
    let plan = plan(&pair.old, &pair.new, &names("old", "new"), &policy_of(pair), &facts).unwrap();
    let old = state(base.path(), &os);
    let end = copy(base.path());
    let end_os = mk_os(&old.1);
    mk_host(end.path(), &end_os, Arc::new(NoFaults)).apply(&plan).unwrap();
    let new = state(end.path(), &end_os);
    assert_ne!(old, new, "{}: the pair changes nothing", pair.about);
    Prepared { about: pair.about, base, base_os: old.1.clone(), plan, old, new }
}

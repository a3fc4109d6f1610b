//! A small host in a temporary folder, and its tree as text, for the tests of this crate.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

pub mod copy;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;

use api::v1::MachineConfigSpec;
use host::fault::Faults;
use host::{
    Change, DisruptionPolicy, Drift, Error, Facts, FakeOs, FakeSystemd, Host, HostPlan, Irreconcilable,
    Names, Options, Root, Watch,
};
use sha2::{Digest, Sha256};

/// Tests of owners need root. Prints a message and returns false if we are not root.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: owners of files can only be set by root");
    }
    root
}

/// A unit that can be enabled, reloaded and restarted.
const STUB: &str =
    "[Service]\nExecStart=/bin/true\nExecReload=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

/// A temporary folder, in memory if possible, because thousands are made.
pub fn mk_temp() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A fresh host: the users, files and units that the recorded nodes had, as far as the cases touch them.
pub fn mk_host_tree() -> tempfile::TempDir {
    let dir = mk_temp();
    let at = dir.path();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    for d in [
        "etc/apt",
        "etc/sysctl.d",
        "etc/systemd/system/multi-user.target.wants",
        "etc/systemd/system/getty.target.wants",
        "home/core",
        "opt",
        "srv",
        "run",
        "usr/local/bin",
        "usr/lib/systemd/system",
        "usr/lib/systemd/system-preset",
        "var/lib",
        "var/opt",
    ] {
        fs::create_dir_all(at.join(d)).unwrap();
    }
    let unit = |name: &str| format!("usr/lib/systemd/system/{name}");
    for (path, text, mode) in [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1000::/home/core:/bin/sh\n", 0o644),
        ("etc/group", "root:x:0:\nadm:x:4:\nshadow:x:42:\ncore:x:1000:\n", 0o644),
        ("etc/shadow", "root:*:20000:0:99999:7:::\ncore:!:20000:0:99999:7:::\n", 0o640),
        ("etc/issue.net", "Debian GNU/Linux 12\n", 0o644),
        ("etc/host.conf", "multi on\n", 0o644),
        ("etc/debian_version", "12.9\n", 0o644),
        ("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n", 0o644),
        ("etc/systemd/system/crio.service", STUB, 0o644),
        ("etc/systemd/system/kubelet.service", STUB, 0o644),
        ("etc/systemd/system/chronyd.service", STUB, 0o644),
        (
            &unit("getty@.service"),
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=getty.target\nDefaultInstance=tty1\n",
            0o644,
        ),
        (&unit("systemd-journald.service"), "[Service]\nExecStart=/bin/true\n", 0o644),
        (&unit("vendor.service"), STUB, 0o644),
    ] {
        fs::write(at.join(path), text).unwrap();
        fs::set_permissions(at.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        chown(at.join("etc/shadow"), Some(0), Some(42)).unwrap();
        chown(at.join("home/core"), Some(1000), Some(1000)).unwrap();
    }
    for name in ["crio.service", "kubelet.service", "chronyd.service"] {
        let link = at.join("etc/systemd/system/multi-user.target.wants").join(name);
        symlink(format!("/etc/systemd/system/{name}"), link).unwrap();
    }
    let getty = at.join("etc/systemd/system/getty.target.wants/getty@tty1.service");
    symlink("/usr/lib/systemd/system/getty@.service", getty).unwrap();
    dir
}

/// A kernel with one parameter, for such a folder.
pub fn mk_kernel(at: &Path) {
    fs::create_dir_all(at.join("proc/sys/vm")).unwrap();
    fs::write(at.join("proc/sys/vm/swappiness"), "60\n").unwrap();
}

/// The agent's host on such a folder, without syncs.
pub fn mk_host(at: &Path, os: &FakeOs, faults: Arc<dyn Faults>) -> Host {
    let owners = rustix::process::geteuid().is_root();
    let root = Root::open_with(at, Options { sync: false, owners }, faults).unwrap();
    let systemd = FakeSystemd::new(&root);
    Host::new(root, Box::new(systemd), Box::new(os.clone()))
}

/// Host operations that take unparsed configs and parse them each time.
pub trait BySpec {
    /// What a plan between two configs needs to know. A config that cannot be parsed is refused later, by the plan.
    fn probe(&mut self, old: &MachineConfigSpec, new: &MachineConfigSpec) -> Result<Facts, Error>;
    fn drifts(&mut self, config: &MachineConfigSpec) -> Result<Vec<Drift>, Error>;
    fn drifts_before(
        &mut self,
        old: &MachineConfigSpec,
        new: &MachineConfigSpec,
    ) -> Result<Vec<Drift>, Error>;
    /// The first difference.
    fn validate(&mut self, config: &MachineConfigSpec) -> Result<Result<(), Drift>, Error> {
        Ok(self.drifts(config)?.into_iter().next().map_or(Ok(()), Err))
    }
    fn validate_before(
        &mut self,
        old: &MachineConfigSpec,
        new: &MachineConfigSpec,
    ) -> Result<Result<(), Drift>, Error> {
        Ok(self.drifts_before(old, new)?.into_iter().next().map_or(Ok(()), Err))
    }
}

impl BySpec for Host {
    fn probe(&mut self, old: &MachineConfigSpec, new: &MachineConfigSpec) -> Result<Facts, Error> {
        let change = Change::parse(old, new, Names::default());
        let nothing = || Change::parse(old, &MachineConfigSpec::default(), Names::default()).unwrap();
        self.inspect(&change.unwrap_or_else(|_| nothing()))
    }

    fn drifts(&mut self, config: &MachineConfigSpec) -> Result<Vec<Drift>, Error> {
        let baseline = self.baseline_of("", host::applied(config)?)?;
        self.drifts_from(&baseline)
    }

    fn drifts_before(
        &mut self,
        old: &MachineConfigSpec,
        new: &MachineConfigSpec,
    ) -> Result<Vec<Drift>, Error> {
        self.blocking_drifts(&Change::parse(old, new, Names::default()).unwrap())
    }
}

/// A watch of what a config manages.
pub fn watch(host: &Host, config: &MachineConfigSpec) -> Watch {
    let baseline = host.baseline_of("", host::applied(config).unwrap()).unwrap();
    Watch::new(host.root(), &baseline).unwrap()
}

/// Plans the change from one config to another.
pub fn plan(
    old: &MachineConfigSpec,
    new: &MachineConfigSpec,
    names: &Names,
    policy: &DisruptionPolicy,
    facts: &Facts,
) -> Result<HostPlan, Vec<Irreconcilable>> {
    Change::parse(old, new, names.clone())?.plan(policy, facts)
}

/// Every file, folder and link below `tops`, as the recorded cases write them.
pub fn tree(at: &Path, tops: &[&str], skip: &[&str]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for top in tops {
        walk(at, top, skip, &mut out);
    }
    out
}

fn walk(at: &Path, dir: &str, skip: &[&str], out: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(at.join(dir.trim_start_matches('/'))) else { return };
    for e in entries {
        let e = e.unwrap();
        let path = format!("{}/{}", dir.trim_end_matches('/'), e.file_name().to_str().unwrap());
        if skip.iter().any(|s| path.starts_with(s)) {
            continue;
        }
        let m = e.metadata().unwrap();
        let own = format!("{:04o} {}:{}", m.mode() & 0o7777, m.uid(), m.gid());
        if m.is_symlink() {
            out.insert(path, format!("link {}", fs::read_link(e.path()).unwrap().display()));
        } else if m.is_dir() {
            out.insert(path.clone(), format!("dir {own}"));
            walk(at, &path, skip, out);
        } else if !m.is_file() {
            out.insert(path, "neither".to_owned());
        } else {
            let bytes = fs::read(e.path()).unwrap();
            let sha = api::formats::text::hex(Sha256::digest(&bytes).iter().take(8));
            out.insert(path, format!("file {own} {} {sha}", bytes.len()));
        }
    }
}

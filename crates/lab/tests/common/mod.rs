//! Lists what a lab could leave behind on this computer.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests; each binary uses a part"
)]

use std::collections::BTreeSet;
use std::path::Path;

/// The remains of one lab.
#[derive(Debug, PartialEq, Eq)]
pub struct Traces {
    pub mounts: BTreeSet<String>,
    pub interfaces: BTreeSet<String>,
    pub groups: BTreeSet<String>,
    pub machines: BTreeSet<String>,
}

/// Looks for them now. Other tests and labs run at the same time, so only mounts below this lab's folder count, and
/// only interfaces, control groups and machines whose names `ours` recognises.
pub fn traces(folder: &Path, ours: &dyn Fn(&str) -> bool) -> Traces {
    let list = |path: &str, keep: &dyn Fn(&str) -> bool| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| keep(name)).collect::<BTreeSet<_>>()
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = folder.display().to_string();
    Traces {
        mounts: mounts.lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect(),
        interfaces: list("/sys/class/net", ours),
        groups: list("/sys/fs/cgroup/systemd", &|name| name.starts_with("mco-lab-") && ours(name)),
        machines: list("/run/systemd/nspawn/propagate", ours),
    }
}

/// The processes with this folder in their command line.
pub fn users(folder: &Path) -> Vec<String> {
    let needle = format!("{}/", folder.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&needle))
        .collect()
}

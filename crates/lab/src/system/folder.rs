//! The data folder of one running lab, its record, and the sweep that removes what dead labs left.
//!
//! Flow: a lab creates a new folder under the user's data root and writes `lab.json` into it: who owns it (process id
//! with its start time), and which bridge it created. Everything else of the lab can be found from the folder: programs
//! have its path in their environment, and nodes record their PID 1 in it. [`sweep`] checks every folder whose owner is
//! gone, kills those processes, deletes the bridge and removes the folder.
//!
//! Guarantees: only processes that have this lab's folder in their environment, or whose recorded id still has the
//! recorded start time, get a signal.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::system::paths::Environment;
use crate::system::process::OWNER;

const RECORD: &str = "lab.json";
/// The record of the machine that runs in a node's folder.
pub(crate) const LEADER: &str = "leader.json";
/// How long killed processes may take to exit before their folder is removed anyway.
const SWEEP_LIMIT: Duration = Duration::from_secs(20);
/// A folder without a record is removed only when it is this old: its owner may be about to write the record.
const HALF_MADE_AGE: Duration = Duration::from_secs(60);

/// A process that can be recognised later: ids are reused, but not together with the start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessKey {
    /// The process id.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    pub started: u64,
}

impl ProcessKey {
    /// The key of a running process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name is in parentheses and may contain anything, so fields are counted after the last
        // parenthesis.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        if matches!(fields.next(), Some("Z" | "X")) {
            return None;
        }
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, started })
    }

    /// This process.
    #[must_use]
    pub fn own() -> Option<Self> {
        i32::try_from(std::process::id()).ok().and_then(Self::of)
    }

    /// Whether it is still running.
    #[must_use]
    pub fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends it a signal if it is still running.
    pub fn signal(self, signal: Signal) {
        if self.alive()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            let _gone = rustix::process::kill_process(pid, signal);
        }
    }
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeKind {
    /// A machine that boots and runs systemd, with our daemon as a unit.
    Real,
    /// A folder that takes the place of a machine; its systemd is a fake.
    Simulated,
    /// Only a Node object.
    #[serde(alias = "standIn")] // what labs of an older build are recorded with
    Fake,
}

/// The content of `lab.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The process that runs the lab.
    pub owner: Option<ProcessKey>,
    /// The bridge that the lab made.
    pub bridge: Option<String>,
    /// The administrator's kubeconfig once the control plane is up.
    pub kubeconfig: Option<PathBuf>,
    /// The nodes' names.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// What the nodes are.
    #[serde(default)]
    pub kind: Option<NodeKind>,
    /// Folders outside of the data folder that belong to the lab: control groups, nspawn's runtime folders.
    #[serde(default)]
    pub outside: Vec<PathBuf>,
    /// Whether everything that was asked for is running.
    #[serde(default)]
    pub ready: bool,
    /// Whether `lab up` started it, so that `lab down` stops it.
    #[serde(default)]
    pub detached: bool,
}

/// The data folder of a lab of this process. Dropping it removes the folder and the bridge.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    record: std::sync::Mutex<Record>,
}

impl Folder {
    /// Creates a new folder under the environment's data root.
    ///
    /// # Errors
    /// When it cannot be made, or the data root belongs to somebody else.
    pub fn create(environment: &Environment) -> Result<Self> {
        let root = &environment.data;
        make_root(root)?;
        // The name is short, because paths of unix sockets below it must be shorter than 108 bytes.
        let own = std::process::id();
        for number in 0..u32::MAX {
            let path = root.join(format!("{own}-{number}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let record = Record { owner: ProcessKey::own(), ..Record::default() };
                    let folder = Self { path, record: std::sync::Mutex::new(Record::default()) };
                    folder.update(|current| *current = record)?;
                    return Ok(folder);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create the data folder", &path)(error)),
            }
        }
        Err(Error::Options(format!("no free name for a data folder under {}", root.display())))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder or file below it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a folder below it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        Ok(path)
    }

    /// Changes the record, also on disk.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Record)) -> Result<()> {
        let mut record = crate::system::process::lock(&self.record);
        change(&mut record);
        write_json(&self.path.join(RECORD), &*record)
    }

    /// A copy of the record.
    #[must_use]
    pub fn record(&self) -> Record {
        crate::system::process::lock(&self.record).clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.path, &self.record()) {
            tracing::warn!(folder = %self.path.display(), error = %client::chain(&error), "not removed");
        }
    }
}

/// Writes JSON atomically: to another file, which is then renamed.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text =
        serde_json::to_vec_pretty(value).map_err(|source| Error::Record { path: path.to_owned(), source })?;
    let part = path.with_extension("part");
    fs::write(&part, text).map_err(Error::io("write", &part))?;
    fs::rename(&part, path).map_err(Error::io("write", path))
}

/// Reads JSON; `None` if there is no such file.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| Error::Record { path: path.to_owned(), source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

fn make_root(root: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(root) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create the data root", root)(error)),
    }
    let data = fs::symlink_metadata(root).map_err(Error::io("look at", root))?;
    if !data.is_dir() || data.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::Options(format!(
            "{} is not a folder of this user: remove it, or set MCO_LAB_DATA to another folder",
            root.display()
        )));
    }
    Ok(())
}

/// The labs that are recorded under the data root, including dead ones.
///
/// # Errors
/// When the root cannot be listed.
pub fn recorded(environment: &Environment) -> Result<Vec<(PathBuf, Record)>> {
    let entries = match fs::read_dir(&environment.data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", &environment.data)(error)),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        match read_json::<Record>(&path.join(RECORD)) {
            Ok(Some(record)) => found.push((path, record)),
            Ok(None) if age(&path).is_some_and(|age| age > HALF_MADE_AGE) => {
                found.push((path, Record::default()));
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(error = %client::chain(&error), "unreadable record"),
        }
    }
    Ok(found)
}

fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).and_then(|data| data.modified()).ok()?.elapsed().ok()
}

/// Removes everything that labs without an owner have left: processes, bridges, folders. Returns the removed folders.
///
/// # Errors
/// When the data root cannot be listed; a lab that cannot be removed is logged and left for the next sweep.
pub fn sweep(environment: &Environment) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for (path, record) in recorded(environment)? {
        if record.owner.is_some_and(ProcessKey::alive) {
            continue;
        }
        match clear(&path, &record) {
            Ok(()) => removed.push(path),
            Err(error) => {
                tracing::warn!(folder = %path.display(), error = %client::chain(&error), "not swept");
            }
        }
    }
    Ok(removed)
}

/// Kills every process of a lab, deletes its bridge and removes its folder. Blocks.
fn clear(path: &Path, record: &Record) -> Result<()> {
    let deadline = Instant::now() + SWEEP_LIMIT;
    loop {
        let leaders = leaders(path);
        let users = users(path);
        if leaders.is_empty() && users.is_empty() {
            break;
        }
        for process in leaders.iter().chain(&users) {
            process.signal(Signal::KILL);
        }
        if Instant::now() > deadline {
            tracing::warn!(folder = %path.display(), ?leaders, ?users, "processes do not go");
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(bridge) = &record.bridge {
        crate::system::network::delete(bridge);
    }
    for dir in &record.outside {
        // Control groups are removed from the leaves up; the other folders are empty.
        crate::system::cgroup::remove(dir);
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// PID 1 of every node of this lab that still runs. When it is killed, its nspawn exits too.
fn leaders(path: &Path) -> Vec<ProcessKey> {
    let Ok(nodes) = fs::read_dir(path.join("nodes")) else { return Vec::new() };
    nodes
        .flatten()
        .filter_map(|node| read_json::<ProcessKey>(&node.path().join(LEADER)).ok().flatten())
        .filter(|leader| leader.alive())
        .collect()
}

/// All other processes that this lab has started, directly or indirectly; never this process.
fn users(path: &Path) -> Vec<ProcessKey> {
    let own = std::process::id().to_string();
    let mut marker = format!("{OWNER}=").into_bytes();
    marker.extend_from_slice(path.as_os_str().as_encoded_bytes());
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name != own))
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // The environment of another user's process cannot be read, but such a process is not ours.
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let ours = environment.split(|byte| *byte == 0).any(|variable| variable == marker);
            if ours { ProcessKey::of(pid) } else { None }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn environment(root: &Path) -> Environment {
        Environment { programs: None, cache: root.join("cache"), data: root.join("data"), ci: false }
    }

    #[test]
    fn the_sweep_ends_the_processes_of_a_dead_lab_and_spares_those_of_a_living_one() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        let living = Folder::create(&environment).unwrap();
        let dead = environment.data.join("1-0");
        fs::create_dir(&dead).unwrap();
        let gone = ProcessKey { pid: 1, started: 1 };
        write_json(&dead.join(RECORD), &Record { owner: Some(gone), ..Record::default() }).unwrap();
        let start = |folder: &Path| {
            let child = Command::new("sleep").arg("300").env(OWNER, folder).spawn().unwrap();
            // Right after its start a program's environment reads as empty, so its owner cannot be determined yet.
            let begun = Instant::now();
            while users(folder).is_empty() {
                assert!(begun.elapsed() < SWEEP_LIMIT, "its environment does not show");
                std::thread::sleep(Duration::from_millis(1));
            }
            child
        };
        // A process that merely has a file of the lab on its command line does not belong to the lab.
        let mut looks =
            Command::new("sh").args(["-c", "sleep 300; :"]).arg(dead.join("log")).spawn().unwrap();
        let mut of_dead = start(&dead);
        let mut of_living = start(living.path());
        assert_eq!(sweep(&environment).unwrap(), vec![dead.clone()]);
        assert!(!dead.exists());
        assert!(!of_dead.wait().unwrap().success());
        assert!(looks.try_wait().unwrap().is_none());
        looks.kill().unwrap();
        looks.wait().unwrap();
        assert!(of_living.try_wait().unwrap().is_none());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
        assert!(!of_living.wait().unwrap().success());
    }

    #[test]
    fn a_reused_process_id_is_not_the_recorded_process() {
        let own = ProcessKey::own().unwrap();
        assert!(own.alive());
        assert!(!ProcessKey { started: own.started + 1, ..own }.alive());
    }
}

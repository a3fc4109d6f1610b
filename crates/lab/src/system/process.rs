//! Child processes that cannot be left behind.
//!
//! Flow: every long-running child has a thread of its own that starts it, waits for it and records its exit. The child
//! asks the kernel (through `setpriv --pdeathsig`, see PR_SET_PDEATHSIG in prctl(2)) for a signal when that thread
//! ends, so it ends even when the lab is killed with SIGKILL. It has its own process group: a Ctrl-C at the terminal
//! does not reach it, so the lab decides when it ends.
//!
//! Guarantees: a signal never reaches another process (the child is reaped under the lock that signalling needs).
//! Dropping a [`Process`] kills its group and waits for the child.
//!
//! Not here: which programs are started, with which arguments, and short commands (see `command`).

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use rustix::process::Signal;
use rustix::process::{Pid, WaitIdOptions};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::system::command::{find_on_path, last_lines};

/// How many bytes of a log's end an error shows: enough for the last message of a Go program, but not its whole stack
/// dump.
const TAIL_BYTES: u64 = 4096;
/// The environment variable by which a lab's processes are recognised, even if the process that started them is gone.
/// It contains the lab's data folder, and children inherit it.
pub(crate) const OWNER: &str = "MCO_LAB_FOLDER";
/// How long a drop waits until a killed child is reaped.
const REAP_LIMIT: Duration = Duration::from_secs(10);

/// The parameters of a long-running child.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) envs: Vec<(OsString, OsString)>,
    /// The file to which standard output and standard error are appended.
    pub(crate) log: PathBuf,
    /// The signal that the child gets when the lab's process is gone.
    pub(crate) death_signal: DeathSignal,
}

/// The signal for a child whose lab has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeathSignal {
    Kill,
    /// nspawn responds with an orderly power-off of its machine; after SIGKILL the machine would keep running.
    Term,
}

impl Spec {
    pub(crate) fn new(name: &str, program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            program: program.into(),
            args: Vec::new(),
            envs: Vec::new(),
            log: log.into(),
            death_signal: DeathSignal::Kill,
        }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args<I: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((key.into(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn death_signal(mut self, signal: DeathSignal) -> Self {
        self.death_signal = signal;
        self
    }
}

/// A running child. Dropping it kills its process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    pid: Pid,
    reaped: Arc<Mutex<bool>>,
    exit: watch::Receiver<Option<ExitStatus>>,
    /// Closed when the child is reaped, so that a drop can wait with a time limit.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Process {
    /// Starts the child on a thread of its own. `lab` is the data folder of its lab.
    pub(crate) fn spawn(spec: Spec, lab: &Path) -> Result<Self> {
        let spec = spec.env(OWNER, lab);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&spec.log)
            .map_err(Error::io("open the log", &spec.log))?;
        let reaped = Arc::new(Mutex::new(false));
        let (exit_tx, exit) = watch::channel(None);
        let (ended_tx, ended) = mpsc::channel::<()>();
        let (started_tx, started_rx) = mpsc::channel();
        let (name, log_path) = (spec.name.clone(), spec.log.clone());
        let flag = Arc::clone(&reaped);
        std::thread::Builder::new()
            .name(format!("lab-{}", spec.name))
            .spawn(move || supervise(&spec, &log, &started_tx, &flag, &exit_tx, ended_tx))
            .map_err(|source| Error::Spawn { program: name.clone(), source })?;
        let pid = started_rx.recv().unwrap_or_else(|_| Err(std::io::Error::other("its thread ended")));
        let pid = pid.map_err(|source| Error::Spawn { program: name.clone(), source })?;
        tracing::debug!(program = %name, pid = pid.as_raw_nonzero(), "started");
        Ok(Self { name, log: log_path, pid, reaped, exit, ended: Mutex::new(ended) })
    }

    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// The file with the child's output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The exit status, once the child has exited.
    #[must_use]
    pub fn exited(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Fails with the log's tail if the child has exited.
    ///
    /// # Errors
    /// [`Error::Died`] when it has.
    pub fn check(&self) -> Result<()> {
        match self.exited() {
            None => Ok(()),
            Some(status) => Err(Error::Died {
                program: self.name.clone(),
                status: describe(status),
                log: self.log.clone(),
                tail: tail(&self.log),
            }),
        }
    }

    /// Signals only the child; does nothing if it has exited.
    pub fn signal(&self, signal: Signal) {
        let reaped = lock(&self.reaped);
        if !*reaped {
            // The process cannot have been reaped, so its id still belongs to it.
            if let Err(error) = rustix::process::kill_process(self.pid, signal) {
                tracing::debug!(program = %self.name, %error, "signal not delivered");
            }
        }
    }

    /// Signals the child's whole process group.
    pub fn signal_group(&self, signal: Signal) {
        let reaped = lock(&self.reaped);
        if !*reaped && rustix::process::kill_process_group(self.pid, signal).is_err() {
            drop(reaped);
            self.signal(signal);
        }
    }

    /// Waits for the child's exit.
    pub async fn wait(&self) -> Option<ExitStatus> {
        let mut exit = self.exit.clone();
        let status = exit.wait_for(Option::is_some).await.ok();
        status.and_then(|status| *status)
    }

    /// Sends `signal` to the child, and kills its group if it is still running after `grace`.
    pub async fn stop(&self, signal: Signal, grace: Duration) {
        self.signal(signal);
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            tracing::warn!(program = %self.name, ?grace, "did not end in time: killing it");
            self.signal_group(Signal::KILL);
            let _ended = tokio::time::timeout(REAP_LIMIT, self.wait()).await;
        }
    }

    /// Kills the group and waits, without an async runtime.
    pub(crate) fn kill_blocking(&self) {
        self.signal_group(Signal::KILL);
        // The sender is dropped after the child is reaped: Disconnected means that it has exited.
        let _ended = lock(&self.ended).recv_timeout(REAP_LIMIT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exited().is_none() {
            self.kill_blocking();
        }
    }
}

/// The life of one child: starts it, waits without reaping, reaps it under the lock, and reports its exit.
fn supervise(
    spec: &Spec,
    log: &File,
    started: &mpsc::Sender<std::io::Result<Pid>>,
    reaped: &Mutex<bool>,
    exit: &watch::Sender<Option<ExitStatus>>,
    ended: mpsc::Sender<()>,
) {
    let child = command(spec, log).and_then(|mut command| command.spawn());
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let _receiver_gone = started.send(Err(error));
            return;
        }
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else {
        let _receiver_gone = started.send(Err(std::io::Error::other("the process id is out of range")));
        return;
    };
    let _receiver_gone = started.send(Ok(pid));
    while let Err(error) = rustix::process::waitid(
        rustix::process::WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    ) {
        if error != rustix::io::Errno::INTR {
            tracing::warn!(program = %spec.name, %error, "cannot wait");
            break;
        }
    }
    let mut reaped = lock(reaped);
    let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(0));
    *reaped = true;
    tracing::debug!(program = %spec.name, status = %describe(status), "ended");
    exit.send_replace(Some(status));
    drop(ended);
}

fn command(spec: &Spec, log: &File) -> std::io::Result<Command> {
    let mut command = match find_on_path("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            let signal = match spec.death_signal {
                DeathSignal::Kill => "KILL",
                DeathSignal::Term => "TERM",
            };
            command.args(["--pdeathsig", signal, "--"]).arg(&spec.program);
            command
        }
        // Without util-linux only the drop guard and the next sweep clean up.
        None => Command::new(&spec.program),
    };
    command
        .args(&spec.args)
        .envs(spec.envs.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .process_group(0);
    Ok(command)
}

/// Locks a mutex even if another holder has panicked: the data in it is valid at every instruction.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An exit status for people.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}

/// The last lines of a log, for errors.
#[must_use]
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => last_lines(&text),
        Err(error) => format!("(no log: {error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, dir: &Path) -> Process {
        Process::spawn(Spec::new("sh", "/bin/sh", dir.join("log")).args(["-c", script]), dir).unwrap()
    }

    #[tokio::test]
    async fn a_program_that_dies_is_reported_with_the_end_of_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell("echo first; echo no space left >&2; exit 3", dir.path());
        process.wait().await;
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("exit status 3") && error.contains("no space left"), "{error}");
    }

    #[tokio::test]
    async fn dropping_a_process_kills_its_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell("sleep 300 & echo $!; wait", dir.path());
        let grandchild = loop {
            let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
            if let Ok(pid) = text.trim().parse::<i32>() {
                break pid;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let pid = process.pid();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        for _ in 0..6000 {
            let state = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the grandchild {grandchild} still runs");
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_signal_is_killed_after_its_grace() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell("trap '' TERM; echo up; while :; do sleep 0.05; done", dir.path());
        while !tail(&dir.path().join("log")).contains("up") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process.stop(Signal::TERM, Duration::from_millis(100)).await;
        assert_eq!(process.exited().and_then(|status| status.signal()), Some(9));
    }
}

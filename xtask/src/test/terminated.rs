//! SIGTERM ends a run together with its jobs: they would go on alone for minutes, and keep the processors and their ports.
//!
//! Ctrl-C in a terminal reaches the jobs without this; it does not reach the release build, which has a session of its own and ends by
//! itself. Not here: what the jobs themselves leave behind (the next lab removes it), and what checks the examples and the book's
//! commands, which ends by itself within a minute.

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeMap;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};

/// What SIGTERM goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The process. It ends what it started itself.
    Process,
    /// The process and all others of its group.
    Group,
}

impl Reach {
    fn end(self, pid: Pid) {
        // One that has ended meanwhile is what is wanted, and one that has no group yet has started nothing.
        let group = match self {
            Self::Process => false,
            Self::Group => kill_process_group(pid, Signal::TERM).is_ok(),
        };
        if !group {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// The jobs that run, by their process IDs.
static RUNNING: Mutex<BTreeMap<u32, Reach>> = Mutex::new(BTreeMap::new());
/// The exit status of a program that SIGTERM has ended, as shells report it.
const TERMINATED: i32 = 143;

/// A job that ends with this process for as long as this value lives.
pub(super) struct EndsWithUs(u32);

impl EndsWithUs {
    pub(super) fn new(child: &Child) -> Self {
        Self::with(child, Reach::Process)
    }

    /// A job that leads a process group and leaves it to others to end what it started, as cargo does with compilers.
    pub(super) fn group(child: &Child) -> Self {
        Self::with(child, Reach::Group)
    }

    fn with(child: &Child, reach: Reach) -> Self {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).insert(child.id(), reach);
        Self(child.id())
    }
}

impl Drop for EndsWithUs {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// From now on, SIGTERM ends the jobs and this process. `start`: when the run began.
///
/// # Errors
/// The signal cannot be waited for.
pub(super) fn watch(start: Instant) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals =
        runtime.block_on(async { signal(SignalKind::terminate()) }).context("cannot wait for SIGTERM")?;
    std::thread::spawn(move || {
        if runtime.block_on(signals.recv()).is_none() {
            return;
        }
        // No other job begins: its lane waits for the lock.
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let after = start.elapsed().as_secs();
        println!("== SIGTERM, {after} s after the start: {} jobs are ended", running.len());
        for (pid, reach) in running.iter() {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                reach.end(pid);
            }
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the main thread waits for jobs, and is not to start others"
        )]
        std::process::exit(TERMINATED);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn a_group_ends_with_its_leader_and_what_that_started() {
        let mut leader = Command::new("setsid")
            .args(["--wait", "sh", "-c", "sleep 60 & echo started; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(leader.id()).unwrap()).unwrap();
        let mut said = BufReader::new(leader.stdout.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        let ends_with_us = EndsWithUs::group(&leader);
        assert_eq!(RUNNING.lock().unwrap().get(&leader.id()), Some(&Reach::Group));
        Reach::Group.end(pid);
        assert_eq!(leader.wait().unwrap().signal(), Some(15));
        // The pipe ends when nobody holds it any more.
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        drop(ends_with_us);
        assert!(!RUNNING.lock().unwrap().contains_key(&leader.id()));
    }
}

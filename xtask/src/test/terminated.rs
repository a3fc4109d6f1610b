//! SIGTERM ends a run together with its jobs: they would go on alone for minutes, and keep the processors and their ports.
//!
//! Ctrl-C in a terminal reaches the jobs without this. Not here: what the jobs themselves leave behind (the next lab removes it), and
//! the release build in the background, which has a session of its own and ends by itself.

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use tokio::signal::unix::{SignalKind, signal};

/// The process IDs of the jobs that run.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// The exit status of a program that SIGTERM has ended, as shells report it.
const TERMINATED: i32 = 143;

/// A job that ends with this process for as long as this value lives.
pub(super) struct EndsWithUs(u32);

impl EndsWithUs {
    pub(super) fn new(child: &Child) -> Self {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).insert(child.id());
        Self(child.id())
    }
}

impl Drop for EndsWithUs {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// From now on, SIGTERM ends the jobs and this process.
///
/// # Errors
/// The signal cannot be waited for.
pub(super) fn watch() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals =
        runtime.block_on(async { signal(SignalKind::terminate()) }).context("cannot wait for SIGTERM")?;
    std::thread::spawn(move || {
        if runtime.block_on(signals.recv()).is_none() {
            return;
        }
        // No other job begins: its lane waits for the lock.
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        println!("== SIGTERM: {} jobs are ended", running.len());
        for pid in running.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
            // One that has ended meanwhile is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the main thread waits for jobs, and is not to start others"
        )]
        std::process::exit(TERMINATED);
    });
    Ok(())
}

//! Locks between runs: a file that only one run holds.
//!
//! Not here: locks between the tasks of one process (see `process::lock`).

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::error::{Error, Result};
use crate::progress::Reporter;

/// How often a run that waits says so.
const STILL_EVERY: Duration = Duration::from_secs(15);

/// Takes the lock, and reports when another run holds it. It is released when the file is dropped.
pub(crate) async fn lock_file(path: &Path, what: &str, progress: &Reporter) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(Error::io("open the lock", path))?;
    let mut told: Option<Instant> = None;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::io("lock", path)(error.into())),
        }
        if told.is_none_or(|last| last.elapsed() > STILL_EVERY) {
            progress.line(&format!("waiting for another run: {what}"));
            told = Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_runs_go_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let reporter = Reporter::silent();
        let first = lock_file(&path, "test", &reporter).await.unwrap();
        let mut second = Box::pin(lock_file(&path, "test", &reporter));
        assert!(tokio::time::timeout(Duration::from_millis(500), &mut second).await.is_err(), "it waits");
        drop(first);
        tokio::time::timeout(Duration::from_secs(10), second).await.expect("its turn").unwrap();
    }
}

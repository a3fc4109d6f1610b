//! Examines paths that may never answer, such as a home folder on a file server that is gone: in a separate thread,
//! with a time limit.
//!
//! A thread that hangs cannot be stopped, because the kernel does not release it. Until it ends no second one is
//! started.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Runs one inspection at a time, with a time limit.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    /// The thread of an inspection that exceeded its time limit and still runs.
    hangs: Option<JoinHandle<()>>,
}

impl Bounded {
    /// Runs `look`. `None`: it has not answered in time, or an earlier one still hangs.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        limit: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.hangs.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return None;
        }
        self.hangs = None;
        let (answer, answers) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("bounded look".to_owned()).spawn(move || {
            // Fails if the answer comes after the time limit: the receiver is gone then.
            let _ = answer.send(look());
        });
        match (thread, answers.recv_timeout(limit)) {
            (_, Ok(answer)) => Some(answer),
            (thread, Err(_)) => {
                self.hangs = thread.ok();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_that_hangs_times_out_and_no_second_one_starts_until_it_ends() {
        let mut bounded = Bounded::default();
        assert_eq!(bounded.run(Duration::from_secs(60), || 1), Some(1));
        let (go, waits) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = waits.recv();
        };
        assert_eq!(bounded.run(Duration::from_millis(50), hangs), None);
        assert_eq!(bounded.run(Duration::from_secs(60), || 2), None, "one hangs already");
        drop(go);
        while bounded.hangs.as_ref().is_some_and(|t| !t.is_finished()) {
            std::thread::yield_now();
        }
        assert_eq!(bounded.run(Duration::from_secs(60), || 3), Some(3));
    }
}

//! User-facing progress: one short line per thing that takes time.
//!
//! Not a log: `tracing` has the details. The caller decides how a line is shown; the lab only says what happens.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receives the lab's progress lines.
pub trait Progress: Send + Sync {
    /// Something has begun, or an intermediate state is worth showing.
    fn line(&self, text: &str);
    /// Something was finished after `elapsed`.
    fn done(&self, text: &str, elapsed: Duration) {
        self.line(&format!("{text} ({:.1} s)", elapsed.as_secs_f32()));
    }
}

/// A progress receiver that can be cloned and shared.
#[derive(Clone)]
pub struct Reporter(Arc<dyn Progress>);

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

impl Default for Reporter {
    fn default() -> Self {
        Self::silent()
    }
}

impl Reporter {
    /// Wraps a receiver.
    pub fn new(progress: impl Progress + 'static) -> Self {
        Self(Arc::new(progress))
    }

    /// Calls `write` with every line.
    pub fn from_fn(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::new(FnProgress(write))
    }

    /// Drops all progress.
    #[must_use]
    pub fn silent() -> Self {
        Self::from_fn(|_| {})
    }

    /// Prints every line to standard error.
    #[must_use]
    pub fn stderr() -> Self {
        Self::from_fn(|line| eprintln!("{line}"))
    }

    /// Reports that `text` begins; the returned step reports how long it took.
    pub fn begin(&self, text: impl Into<String>) -> Step {
        let text = text.into();
        tracing::debug!(step = %text, "begin");
        self.0.line(&format!("{text} …"));
        Step { reporter: self.clone(), text, start: Instant::now() }
    }

    /// Reports one line.
    pub fn line(&self, text: &str) {
        tracing::debug!(%text, "progress");
        self.0.line(text);
    }
}

/// Something that takes time and has begun.
#[derive(Debug)]
#[must_use = "call `done` when it is finished"]
pub struct Step {
    reporter: Reporter,
    text: String,
    start: Instant,
}

impl Step {
    /// Reports that it is finished.
    pub fn done(self) {
        self.reporter.0.done(&self.text, self.start.elapsed());
    }

    /// Reports that it is still running.
    pub fn still(&self) {
        self.reporter.line(&format!("{} … {} s", self.text, self.start.elapsed().as_secs()));
    }

    /// Reports how much of it is finished.
    pub fn so_far(&self, done: usize) {
        self.reporter.line(&format!("{} … {done} after {} s", self.text, self.start.elapsed().as_secs()));
    }
}

struct FnProgress<F>(F);

impl<F: Fn(&str) + Send + Sync> Progress for FnProgress<F> {
    fn line(&self, text: &str) {
        (self.0)(text);
    }
}

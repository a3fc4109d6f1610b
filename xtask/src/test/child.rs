//! Runs one job's program to its end, with its output in a file, and measures the processors' time that it took.
//!
//! Not here: which jobs run at once, and what their output says (see `lanes`).

use super::jobs::Job;
use super::processor_time::fields_after_name;
use super::terminated::EndsWithUs;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long to wait for a job to exit after it was killed.
const LAST_WAIT: Duration = Duration::from_secs(30);
/// How long a job's output may wait until it is read. Its end is seen at once.
const READ_EVERY: Duration = Duration::from_millis(250);
/// The pause between two checks whether a job that was killed has ended.
const POLL: Duration = Duration::from_millis(20);
/// Clock ticks of a second in `/proc/PID/stat`. Linux tells programs of 100 on all architectures that Rust's tests run on.
const TICKS_A_SECOND: f64 = 100.0;

/// A program that ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The processors' time of the program and of all programs that it started and waited for. `None` where the kernel does not say
    /// it.
    pub(super) processor_seconds: Option<f64>,
}

/// Runs a program to its end; prints the names of tests that fail while it still runs.
///
/// # Errors
/// It cannot be started, or hung and was killed.
pub(super) fn run(job: &Job, log: &Path) -> anyhow::Result<Ended> {
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut reader = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut child = Command::new(&job.executable)
        .args(&job.args)
        .current_dir(&job.folder)
        // Cargo sets these variables for the tests that it runs.
        .env("CARGO", env!("CARGO"))
        .env("CARGO_MANIFEST_DIR", &job.folder)
        // For API servers, etcd and kubectl: several jobs share the processors, and Go's runtime looks for work on all of them.
        .env("GOMAXPROCS", "1")
        .stdin(Stdio::null())
        .stderr(out.try_clone()?)
        .stdout(out)
        .spawn()
        .with_context(|| format!("cannot run {}", job.executable.display()))?;
    let _ends_with_us = EndsWithUs::new(&child);
    let ending = Ending::of(&child);
    let start = Instant::now();
    let mut unread = String::new();
    loop {
        // A process that has ended, and that nobody has waited for yet, still says how much time it took.
        let usage = Usage::of(child.id());
        let ended = match usage {
            Some(Usage { has_ended: false, .. }) => None,
            Some(Usage { has_ended: true, .. }) | None => child.try_wait()?,
        };
        let mut bytes = vec![];
        reader.read_to_end(&mut bytes)?;
        unread.push_str(&String::from_utf8_lossy(&bytes));
        while let Some((line, rest)) = unread.split_once('\n') {
            if let Some(test) = failed_test(line) {
                println!("FAILED so far        {} {test}", job.title);
            }
            unread = rest.to_owned();
        }
        if let Some(status) = ended {
            return Ok(Ended { status, processor_seconds: usage.map(|usage| usage.seconds) });
        }
        if start.elapsed() > job.patience {
            child.kill()?;
            // A process that even the kernel cannot end is abandoned, so that the other jobs continue and the run ends.
            let killed = Instant::now();
            while child.try_wait()?.is_none() {
                if killed.elapsed() > LAST_WAIT {
                    anyhow::bail!("it hung for {} s and cannot be killed", job.patience.as_secs());
                }
                std::thread::sleep(POLL);
            }
            anyhow::bail!("it hung: ended after {} s", job.patience.as_secs());
        }
        ending.wait(READ_EVERY);
    }
}

/// The end of a process, to wait for: dozens of jobs that are looked at many times a second would take a part of the processors' time.
#[derive(Debug)]
struct Ending(Option<OwnedFd>);

impl Ending {
    fn of(child: &Child) -> Self {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Self(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    /// Returns when the process has ended, but after this time in any case. Where the kernel has no such descriptors, it waits a
    /// moment.
    fn wait(&self, limit: Duration) {
        let timeout = Timespec::try_from(limit).ok();
        let waited = self.0.as_ref().map(|fd| poll(&mut [PollFd::new(fd, PollFlags::IN)], timeout.as_ref()));
        if !matches!(waited, Some(Ok(_))) {
            std::thread::sleep(POLL);
        }
    }
}

/// What the kernel says about a process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Usage {
    /// Nobody has waited for it yet.
    has_ended: bool,
    /// Its processors' time, with that of the children that it waited for.
    seconds: f64,
}

impl Usage {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The third field is the state, 14 to 17 are the time of the process and of its children, in programs and in the kernel.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = fields_after_name(stat).collect();
        let times = fields.get(11..15)?.iter().map(|ticks| ticks.parse::<f64>());
        let ticks: f64 = times.sum::<Result<f64, _>>().ok()?;
        Some(Self { has_ended: matches!(*fields.first()?, "Z" | "X"), seconds: ticks / TICKS_A_SECOND })
    }
}

/// The test's name in `test NAME ... FAILED`, which libtest prints before it prints the reason.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_seen_while_its_program_runs() {
        let text = "running 3 tests\ntest a ... ok\ntest m::b ... FAILED\ntest c ... skipped: no mco\n";
        assert_eq!(text.lines().filter_map(failed_test).collect::<Vec<_>>(), ["m::b"]);
    }

    #[test]
    fn the_time_of_a_process_and_its_children_is_counted() {
        let stat = |name: &str, state: &str| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4194304 1 0 0 0 150 50 1000 200 20 0 19 0 5\n")
        };
        assert_eq!(Usage::parse(&stat("a) b", "S")), Some(Usage { has_ended: false, seconds: 14.0 }));
        assert_eq!(Usage::parse(&stat("a", "Z")), Some(Usage { has_ended: true, seconds: 14.0 }));
        for text in ["", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194304 1 0 0 0 x 50 1000 200"] {
            assert_eq!(Usage::parse(text), None, "{text}");
        }
        let log = std::env::temp_dir().join(format!("mco-xtask-child-{}", std::process::id()));
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3";
        let job = Job {
            title: "busy".to_owned(),
            executable: "/bin/sh".into(),
            folder: "/".into(),
            args: ["-c", busy].map(str::to_owned).to_vec(),
            patience: Duration::from_mins(1),
            again: false,
        };
        let ended = run(&job, &log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert!(ended.processor_seconds.is_some_and(|seconds| seconds > 0.0), "{ended:?}");
    }
}

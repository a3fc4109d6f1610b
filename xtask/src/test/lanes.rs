//! Runs jobs side by side, each with its output in a file, and prints a failure when it happens.
//!
//! Not here: which jobs run, and in which order (`jobs.rs`).

use super::child::{self, Ended};
use super::jobs::Job;
use super::processor_time::Ticks;
use anyhow::Context;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A cluster and its tests use up to this much memory, in GiB.
const GIB_A_LANE: u64 = 4;
/// The most lanes: with more of them, the one disk becomes the bottleneck.
const MOST_LANES: usize = 8;
/// Additional lanes for tests that spend most of their time waiting.
const LANES_BESIDE: usize = 3;
/// Additional lanes for each processor, for jobs that start only while the processors and the memory have room.
const SPARE_LANES_A_PROCESSOR: usize = 2;
/// A spare lane takes a job if the processors were busy for less than this percentage of [`SAMPLE`].
const BUSY_ENOUGH: u64 = 85;
/// How long the processors are watched before a spare lane takes a job. Longer than the start of a cluster's programs takes, so that
/// the load of the last job that was taken counts.
const SAMPLE: Duration = Duration::from_secs(3);
/// How many of the slowest jobs are listed at the end.
const SLOWEST: usize = 15;
/// The most failed jobs that run once more. If more fail, lack of time is not the reason.
const MOST_AGAIN: usize = 3;
/// The lines of output that are printed when nothing explains a failure.
const LAST_LINES: usize = 200;
/// The lines of a panic's message that are repeated at the end.
const REASON_LINES: usize = 12;
const REASON_LENGTH: usize = 1200;
/// The folder of the jobs' output and of the times of the last run.
pub(super) const OUTPUT: &str = "target/test-output";

/// The results of the jobs.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) passed: usize,
    /// The jobs that failed.
    pub(super) failed: Vec<Failure>,
    /// The failed jobs that passed when they ran once more, alone, with the reason of the first failure.
    pub(super) unsteady: Vec<String>,
    /// The messages of tests that could not run here.
    pub(super) skipped: Vec<String>,
    times: BTreeMap<String, f64>,
    /// The processors' time that each job took, in seconds.
    processor_seconds: BTreeMap<String, f64>,
}

/// A job that failed.
#[derive(Debug)]
pub(super) struct Failure {
    job: Job,
    /// Its title, how it ended, the file of its output, and what the first panic said.
    pub(super) line: String,
}

impl Done {
    pub(super) fn print_slowest(&self) {
        print_most("the slowest", &self.times);
        print_most("those that took most of the processors' time", &self.processor_seconds);
        let all: f64 = self.processor_seconds.values().sum();
        println!("    {all:6.1} s  all jobs together");
    }
}

fn print_most(what: &str, seconds: &BTreeMap<String, f64>) {
    let mut all: Vec<_> = seconds.iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(a.1));
    println!("== {what}:");
    for (title, seconds) in all.into_iter().take(SLOWEST) {
        println!("    {seconds:6.1} s  {title}");
    }
}

/// The seconds that each job took when it last passed; empty before the first run.
pub(super) fn last_times(root: &Path) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(root.join(OUTPUT).join("times.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Runs all jobs, even if some fail.
pub(super) fn run(root: &Path, jobs: VecDeque<Job>, beside: VecDeque<Job>) -> anyhow::Result<Done> {
    let folder = root.join(OUTPUT);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (lanes, spare_lanes) = lanes();
    println!(
        "== {} jobs, {lanes} at once, up to {} while the processors have time; beside them {} that wait",
        jobs.len(),
        lanes + spare_lanes,
        beside.len()
    );
    let (jobs, beside, done) = (Mutex::new(jobs), Mutex::new(beside), Mutex::new(Done::default()));
    let sampling = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..spare_lanes {
            scope.spawn(|| {
                while let Some(job) = next_with_time(&jobs, &sampling) {
                    one(&job, &folder, &done);
                }
            });
        }
        for queue in std::iter::repeat_n(&jobs, lanes).chain(std::iter::repeat_n(&beside, LANES_BESIDE)) {
            let (folder, done) = (&folder, &done);
            scope.spawn(move || {
                loop {
                    let next = lock(queue).pop_front();
                    let Some(job) = next else { break };
                    one(&job, folder, done);
                }
            });
        }
    });
    let done = once_more(done.into_inner().unwrap_or_else(PoisonError::into_inner), &folder);
    let mut times = last_times(root);
    times.extend(done.times.clone());
    std::fs::write(folder.join("times.json"), serde_json::to_vec_pretty(&times)?)
        .context("cannot write times.json")?;
    Ok(done)
}

/// Runs failed jobs once more, one after the other and beside nothing else. A job that passes now had too little time or has a
/// race: it is listed with the reason of its first failure, so that somebody looks into it, and does not fail the run.
fn once_more(mut done: Done, folder: &Path) -> Done {
    if done.failed.len() > MOST_AGAIN || !done.failed.iter().all(|failure| failure.job.again) {
        return done;
    }
    for Failure { job, line } in std::mem::take(&mut done.failed) {
        println!("== once more, alone: {}", job.title);
        let alone = Job { title: format!("{} (alone)", job.title), ..job };
        let again = Mutex::new(Done::default());
        one(&alone, folder, &again);
        let again = again.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.passed += again.passed;
        done.skipped.extend(again.skipped);
        if again.failed.is_empty() {
            done.unsteady.push(line);
        } else {
            done.failed.push(Failure { job: alone, line });
        }
    }
    done
}

/// The next job for a spare lane, once the processors have time and there is memory for it; `None` when no job is left. It is the shortest: the long
/// ones are virtual machines and whole clusters, and more of them at once than there are processors make each other time out. One spare lane after the other
/// watches the processors. They would all see the same free time, and take it together.
fn next_with_time(jobs: &Mutex<VecDeque<Job>>, sampling: &Mutex<()>) -> Option<Job> {
    let _alone = lock(sampling);
    while !lock(jobs).is_empty() {
        // Where the kernel does not say how busy the processors are, there is no spare lane.
        let before = Ticks::now()?;
        std::thread::sleep(SAMPLE);
        let has_time = Ticks::now()?.busy_since(before) < BUSY_ENOUGH;
        if has_time && gib_of_memory("MemAvailable:") >= GIB_A_LANE {
            return lock(jobs).pop_back();
        }
    }
    None
}

/// One lane for each processor, as far as memory allows, and spare ones, which look at the memory that is left before each job.
fn lanes() -> (usize, usize) {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let room = usize::try_from(gib_of_memory("MemTotal:") / GIB_A_LANE).unwrap_or(1).clamp(1, MOST_LANES);
    let lanes = processors.min(room);
    (lanes, (processors * SPARE_LANES_A_PROCESSOR).min(room - lanes))
}

/// A line of `/proc/meminfo` in GiB, rounded down; 0 where the kernel does not say it. Source: proc_meminfo(5).
fn gib_of_memory(line: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|l| l.strip_prefix(line)?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / 1024 / 1024
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one job and reports the result.
fn one(job: &Job, folder: &Path, done: &Mutex<Done>) {
    let name: String = job.title.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let log = folder.join(format!("{name}.log"));
    let start = Instant::now();
    let ended = child::run(job, &log);
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let not_run = skipped(&text).count();
    // libtest counts a test that was skipped on this computer as passed.
    let ran = passed(&text);
    let passed = ran.saturating_sub(not_run);
    let mut done = lock(done);
    done.skipped.extend(skipped(&text).map(|why| format!("{}: {why}", job.title)));
    let problem = match ended {
        Ok(Ended { status, processor_seconds }) => {
            let used = processor_seconds.map(|seconds| (job.title.clone(), seconds));
            done.processor_seconds.extend(used);
            match status.success() {
                true if ran > 0 => None,
                // No test ran, so nothing was proved.
                true => Some("no test ran".to_owned()),
                false => Some(status.to_string()),
            }
        }
        Err(error) => Some(format!("{error:#}")),
    };
    match problem {
        None => {
            let tests = match (passed, not_run) {
                (1, 0) => String::new(),
                (_, 0) => format!(": {passed} tests"),
                _ => format!(": {passed} tests, {not_run} skipped"),
            };
            let word = if passed == 0 { "skip" } else { "ok" };
            println!("{word:<6} {seconds:6.1} s  {}{tests}", job.title);
            done.passed += passed;
            done.times.insert(job.title.clone(), seconds);
        }
        Some(why) => {
            // Print at once and in one call, because other lanes print too.
            let line = format!("FAILED {seconds:6.1} s  {} ({why}; {})", job.title, log.display());
            println!("{line}\n{}\n{line}", failure(&text));
            let reason = reason(&text).map(|reason| format!("\n        {reason}")).unwrap_or_default();
            let line = format!("{} ({why} after {seconds:.0} s; {}){reason}", job.title, log.display());
            done.failed.push(Failure { job: job.clone(), line });
        }
    }
}

/// The number of passed tests, from the last lines of libtest.
pub(super) fn passed(text: &str) -> usize {
    let numbers = text
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ")?.split_once(". ")?.1.split_once(" passed"));
    numbers.filter_map(|(number, _)| number.parse::<usize>().ok()).sum()
}

/// The messages of tests that were skipped on this computer. On one processor, libtest has already begun the line with
/// the test's name.
fn skipped(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| match line.split_once("skipped: ")? {
        (before, why) if before.is_empty() || before.ends_with(" ... ") => Some(why),
        _ => None,
    })
}

/// The part of the output that explains the failure: what libtest captured from the failed tests, or else the last lines. A
/// test whose output is not captured prints its reason before libtest's list.
fn failure(text: &str) -> &str {
    let end = || text.rmatch_indices('\n').nth(LAST_LINES).map_or(text, |(at, _)| &text[at..]);
    text.find("\nfailures:\n\n---- ").map_or_else(end, |at| &text[at..])
}

/// What the first panic said, as one line. It is repeated at the end of a run, because often only the end of a long output is
/// kept.
fn reason(text: &str) -> Option<String> {
    let (_, after) = text.split_once(" panicked at ")?;
    let said = after.lines().take_while(|line| !line.starts_with("note: run with")).take(REASON_LINES);
    let line = said.map(str::trim).collect::<Vec<_>>().join(" ");
    Some(line.chars().take(REASON_LENGTH).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn shell(title: &str, script: &str) -> Job {
        let args = ["-c", script].map(str::to_owned).to_vec();
        Job {
            title: title.to_owned(),
            executable: PathBuf::from("/bin/sh"),
            folder: PathBuf::from("/"),
            args,
            patience: Duration::from_mins(1),
            again: false,
        }
    }

    #[test]
    fn libtests_lines_are_understood() {
        let text = "running 3 tests\ntest a ... ok\ntest m::b ... FAILED\n\nskipped: it needs root\ntest c ... skipped: no mco\nan event was skipped: yes\nsuccesses:\n\nfailures:\n\n---- m::b stdout ----\nwhy\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n";
        assert_eq!(passed(text), 2);
        assert_eq!(skipped(text).collect::<Vec<_>>(), ["it needs root", "no mco"]);
        assert!(failure(text).starts_with("\nfailures:\n\n---- m::b") && failure(text).contains("why"));
        assert_eq!(reason(text), None);
    }

    #[test]
    fn a_panic_is_quoted_though_libtest_did_not_capture_it() {
        let text = "running 1 test\n\nthread 'm::b' (7) panicked at crates/m/b.rs:3:5:\nleft is not right\n  left: 1\nnote: run with `RUST_BACKTRACE=1`\ntest m::b ... FAILED\n\nfailures:\n\nfailures:\n    m::b\n\ntest result: FAILED. 0 passed; 1 failed\n";
        assert!(failure(text).contains("left is not right"));
        assert_eq!(reason(text).unwrap(), "crates/m/b.rs:3:5: left is not right left: 1");
    }

    #[test]
    fn a_job_with_a_cluster_that_fails_runs_once_more_alone_and_is_listed() {
        let root = std::env::temp_dir().join(format!("mco-xtask-again-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let mark = root.join("seen");
        let late = format!(
            "test -e {0} && echo 'test result: ok. 1 passed; 0 failed' && exit; touch {0}; exit 7",
            mark.display()
        );
        let job = |title: &str, script: &str, again| Job { again, ..shell(title, script) };
        let ended = |jobs: Vec<Job>| {
            let done = run(&root, jobs.into(), VecDeque::new()).unwrap();
            (done.failed.len(), done.unsteady.len())
        };
        assert_eq!(ended(vec![job("late", &late, true), job("bad", "exit 7", true)]), (1, 1));
        std::fs::remove_file(&mark).unwrap();
        assert_eq!(
            ended(vec![job("late", &late, true), job("unit", "exit 7", false)]),
            (2, 0),
            "it fails anyway"
        );
        std::fs::remove_file(&mark).unwrap();
        let many = (0..MOST_AGAIN).map(|n| job(&n.to_string(), "exit 7", true));
        assert_eq!(ended(many.chain([job("late", &late, true)]).collect()), (MOST_AGAIN + 1, 0));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn every_job_runs_and_each_failure_is_counted() {
        let root = std::env::temp_dir().join(format!("mco-xtask-lanes-{}", std::process::id()));
        let ok = "echo 'test result: ok. 3 passed; 0 failed'";
        let jobs = [
            shell("fine", ok),
            shell("bad", "echo why; exit 7"),
            shell("none", "echo 'test result: ok. 0 passed; 0 failed'"),
            shell("after", ok),
            shell("half", "echo 'skipped: no root'; echo 'test result: ok. 2 passed; 0 failed'"),
            shell("skips", "echo 'skipped: no root'; echo 'test result: ok. 1 passed; 0 failed'"),
        ];
        let done = run(
            &root,
            jobs.into(),
            [shell("waits", "sleep 0.1; echo 'test result: ok. 1 passed; 0 failed'")].into(),
        )
        .unwrap();
        assert_eq!(done.passed, 8, "those that could not run here do not count");
        assert_eq!(done.skipped.len(), 2, "{:?}", done.skipped);
        assert_eq!((done.failed.len(), done.unsteady.len()), (2, 0), "{:?}", done.failed);
        assert_eq!(last_times(&root).keys().collect::<Vec<_>>(), ["after", "fine", "half", "skips", "waits"]);
        assert_eq!(std::fs::read_to_string(root.join(OUTPUT).join("bad.log")).unwrap(), "why\n");
        std::fs::remove_dir_all(&root).unwrap();
    }
}

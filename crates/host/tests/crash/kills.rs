//! A process that is killed by SIGKILL at an arbitrary instant of a change, or of a recovery, leaves the old state or the new one.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::common::copy::copy_tree;
use crate::common::is_root;
use crate::common::{BySpec as _, plan};
use crate::outcome::{differs, env_number, in_files, is_new_state, mk_synced, next, sample_start, tree};
use crate::prepared::{Prepared, names, policy, prepare};
use host::FakeOs;
use host::fault::NoFaults;

const SECONDS_PER_DAY: u64 = 86_400;
/// Changes for each kill that arrives in time: far more than any machine needs.
const MOST_TRIES: usize = 20;

/// The killed process's part; not a test of its own.
#[test]
#[ignore = "the process that the others kill"]
fn killed_process() {
    #[expect(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
    let Ok(at) = std::env::var("MCO_VICTIM") else { return };
    let pair = in_files().remove(env_number("MCO_VICTIM_PAIR").unwrap());
    let mut host = mk_synced(Path::new(&at), &FakeOs::default(), Arc::new(NoFaults));
    let facts = host.probe(&pair.old, &pair.new).unwrap();
    let plan = plan(&pair.old, &pair.new, &names("old", "new"), &policy(), &facts);
    println!("begin");
    if env_number("MCO_VICTIM_RECOVERS").is_some() {
        host.recover().unwrap();
    } else {
        host.apply(&plan.unwrap()).unwrap();
    }
}

/// Starts the process that changes the host and kills it after a while. Returns how long it ran, and whether it was
/// killed.
fn run_and_kill(at: &Path, pair: usize, recovers: bool, after: Option<Duration>) -> (Duration, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["kills::killed_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("MCO_VICTIM", at)
        .env("MCO_VICTIM_PAIR", pair.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if recovers {
        command.env("MCO_VICTIM_RECOVERS", "1");
    }
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"begin\n") && out.read(&mut byte).unwrap() == 1 {
        text.extend(byte);
    }
    assert!(text.ends_with(b"begin\n"), "the process did not begin: {}", String::from_utf8_lossy(&text));
    let begun = Instant::now();
    if let Some(after) = after {
        std::thread::sleep(after);
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let killed = status.signal() == Some(9);
    assert!(killed || status.success(), "{status}: {}", String::from_utf8_lossy(&text));
    (begun.elapsed(), killed)
}

fn disk_copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    copy_tree(from, to.path());
    to
}

/// Kills a process that changes a host until `kills` of them were killed in time, and half of those that recover from
/// it once more.
///
/// The duration of a change is only known from earlier ones. If a change finished before its kill, the next one is
/// killed earlier, so that a machine that becomes faster still gets its kills.
fn kill_at_random(kills: usize) {
    // `/etc/shadow` contains the day: preparation and change must happen on the same day.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let left = SECONDS_PER_DAY - now.as_secs() % SECONDS_PER_DAY;
    if left < 120 {
        std::thread::sleep(Duration::from_secs(left + 1));
    }
    let mut seed = sample_start();
    let mut prepared: Vec<(usize, Prepared, Duration)> = in_files()
        .iter()
        .enumerate()
        .map(|(i, pair)| {
            let p = prepare(pair);
            let dir = disk_copy(p.base.path());
            let (took, _) = run_and_kill(dir.path(), i, false, None);
            assert!(differs(&tree(dir.path()), &p.new.0).is_empty(), "{}", p.about);
            (i, p, took)
        })
        .collect();
    let pairs = prepared.len();
    let (mut in_time, mut old, mut again, mut tries) = (0, 0, 0, 0);
    while in_time < kills {
        tries += 1;
        assert!(
            tries <= kills * MOST_TRIES,
            "{in_time} of {tries} changes were killed: the others had finished"
        );
        let (i, p, took) = &mut prepared[next(&mut seed) % pairs];
        let dir = disk_copy(p.base.path());
        let after = took.mul_f64(f64::from((next(&mut seed) % 1000) as u32) / 1000.0);
        let about = format!("{}: killed after {after:?} of {took:?}", p.about);
        let (_, killed) = run_and_kill(dir.path(), *i, false, Some(after));
        if killed {
            in_time += 1;
            if next(&mut seed).is_multiple_of(2) {
                let after = took.mul_f64(f64::from((next(&mut seed) % 500) as u32) / 1000.0);
                again += usize::from(run_and_kill(dir.path(), *i, true, Some(after)).1);
            }
        } else {
            *took = took.mul_f64(0.8);
        }
        old += usize::from(!is_new_state(p, dir.path(), &FakeOs::default(), &about));
    }
    println!(
        "{tries} changes: {in_time} were killed, {again} once more in the recovery; {old} ended in the old state"
    );
}

#[test]
fn a_process_that_is_killed_at_any_time_leaves_the_old_state_or_the_new() {
    if is_root() {
        kill_at_random(12);
    }
}

#[test]
#[ignore = "takes minutes; run it with: cargo xtask crash-test"]
fn a_process_that_is_killed_many_times_leaves_the_old_state_or_the_new() {
    if is_root() {
        kill_at_random(env_number("MCO_CRASH_POINTS").unwrap_or(400));
    }
}

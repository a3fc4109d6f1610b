//! The same as `crash`, but with real failures: a process that is killed by SIGKILL at an arbitrary instant, and real
//! file systems that fill up, become read-only, fail with I/O errors, or lose everything that was not synced.
//!
//! The ordinary tests take a small sample, at other points each time, and print where it began. `MCO_CRASH_FROM=N`
//! repeats that sample. `cargo xtask crash-test` runs the large ones.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::common::is_root;
use crate::common::{BySpec as _, plan};
use crate::pairs::{Pair, pairs};
use crate::prepared::{Prepared, SKIP, Tree, mk_os, names, policy, prepare};
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{Error, FakeOs, FakeSystemd, Host, Options, Recovery, Root};

const SECONDS_PER_DAY: u64 = 86_400;
/// Changes for each kill that arrives in time: far more than any machine needs.
const MOST_TRIES: usize = 20;
/// Space for a host in a folder, its journal, and the file system's own data.
const IMAGE_BYTES: u64 = 24 << 20;

/// A host on a folder with syncs. Its systemd does not sync, as the real one does not.
fn mk_synced(at: &Path, os: &FakeOs, faults: Arc<dyn Faults>) -> Host {
    let root = Root::open_with(at, Options { sync: true, owners: true }, faults).unwrap();
    let lazy = Root::open_with(at, Options { sync: false, owners: true }, Arc::new(NoFaults)).unwrap();
    Host::new(root, Box::new(FakeSystemd::new(&lazy)), Box::new(os.clone()))
}

#[allow(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
fn told(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Where a sample begins: at the point that the environment gives, or at another point each time.
fn from() -> usize {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let from = told("MCO_CRASH_FROM").unwrap_or(now.subsec_micros() as usize);
    println!("again with: MCO_CRASH_FROM={from}");
    from
}

/// Evenly distributed numbers, each computed from the previous one.
fn next(seed: &mut usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Pairs whose old and new state show in the files: the in-memory operating system of another process cannot be
/// examined.
fn in_files() -> Vec<Pair> {
    let os = |s: &api::v1::MachineConfigSpec| {
        (s.os_image_url.clone(), s.kernel_arguments.clone(), s.extensions.clone())
    };
    pairs()
        .into_iter()
        .filter(|p| os(&p.old) == os(&p.new) && p.old.kernel_type == p.new.kernel_type)
        .collect()
}

fn tree(at: &Path) -> Tree {
    crate::common::tree(at, &["/"], &SKIP)
}

fn differs(now: &Tree, want: &Tree) -> Vec<String> {
    let paths = now.keys().chain(want.keys()).filter(|p| now.get(*p) != want.get(*p));
    paths.map(|p| format!("{p}: want {:?}, got {:?}", want.get(p), now.get(p))).collect()
}

/// Recovers, and checks that the result is the old or the new state and that nothing remains to be done.
fn one_of_both(p: &Prepared, at: &Path, os: &FakeOs, about: &str) -> bool {
    let mut host = mk_synced(at, os, Arc::new(NoFaults));
    let recovery =
        host.recover().unwrap_or_else(|e| panic!("{about}: {e}: {:?}", std::error::Error::source(&e)));
    let now = tree(at);
    let is_new = match recovery {
        Recovery::Finished { .. } | Recovery::AwaitsBoot { .. } => true,
        Recovery::Undone { .. } | Recovery::RolledBack { .. } => false,
        Recovery::Nothing => now == p.new.0,
    };
    let bad = differs(&now, if is_new { &p.new.0 } else { &p.old.0 });
    assert!(bad.is_empty(), "{about}: {recovery:?}\n{}", bad.join("\n"));
    assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
    assert!(differs(&tree(at), &now).is_empty(), "{about}: a second recovery changes something");
    is_new
}

/// The killed process's part; not a test of its own.
#[test]
#[ignore = "the process that the others kill"]
fn victim() {
    #[allow(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
    let Ok(at) = std::env::var("MCO_VICTIM") else { return };
    let pair = in_files().remove(told("MCO_VICTIM_PAIR").unwrap());
    let mut host = mk_synced(Path::new(&at), &FakeOs::default(), Arc::new(NoFaults));
    let facts = host.probe(&pair.old, &pair.new).unwrap();
    let plan = plan(&pair.old, &pair.new, &names("old", "new"), &policy(), &facts);
    println!("begin");
    if told("MCO_VICTIM_RECOVERS").is_some() {
        host.recover().unwrap();
    } else {
        host.apply(&plan.unwrap()).unwrap();
    }
}

/// Starts the process that changes the host and kills it after a while. Returns how long it ran, and whether it was
/// killed.
fn strike(at: &Path, pair: usize, recovers: bool, after: Option<Duration>) -> (Duration, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["real::victim", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
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
    assert!(text.ends_with(b"begin\n"), "the victim did not begin: {}", String::from_utf8_lossy(&text));
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
    copy_to(from, to.path());
    to
}

fn copy_to(from: &Path, to: &Path) {
    assert!(run("cp", &["-a", &format!("{}/.", from.display()), &to.display().to_string()]));
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
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
    let mut seed = from();
    let mut prepared: Vec<(usize, Prepared, Duration)> = in_files()
        .iter()
        .enumerate()
        .map(|(i, pair)| {
            let p = prepare(pair);
            let dir = disk_copy(p.base.path());
            let (took, _) = strike(dir.path(), i, false, None);
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
            "{in_time} of {tries} changes were killed: the others were through"
        );
        let (i, p, took) = &mut prepared[next(&mut seed) % pairs];
        let dir = disk_copy(p.base.path());
        let after = took.mul_f64(f64::from((next(&mut seed) % 1000) as u32) / 1000.0);
        let about = format!("{}: killed after {after:?} of {took:?}", p.about);
        let (_, killed) = strike(dir.path(), *i, false, Some(after));
        if killed {
            in_time += 1;
            if next(&mut seed).is_multiple_of(2) {
                let after = took.mul_f64(f64::from((next(&mut seed) % 500) as u32) / 1000.0);
                again += usize::from(strike(dir.path(), *i, true, Some(after)).1);
            }
        } else {
            *took = took.mul_f64(0.8);
        }
        old += usize::from(!one_of_both(p, dir.path(), &FakeOs::default(), &about));
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
        kill_at_random(told("MCO_CRASH_POINTS").unwrap_or(400));
    }
}

/// A small file system of its own in a file.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// Creates one with a host in it. `None`, with a message: it cannot be done here.
    fn new(base: &Path) -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let disk = Self { folder };
        std::fs::create_dir(disk.at()).unwrap();
        std::fs::File::create(disk.image()).unwrap().set_len(IMAGE_BYTES).unwrap();
        let image = disk.image().display().to_string();
        if !run("mkfs.ext4", &["-q", "-F", "-m", "0", &image]) {
            return disk.impossible("mkfs.ext4 is missing");
        }
        if !disk.mount() {
            return disk.impossible("a file system in a file cannot be mounted");
        }
        copy_to(base, &disk.at());
        assert!(run("sync", &["-f", &disk.at().display().to_string()]));
        Some(disk)
    }

    #[allow(clippy::disallowed_methods, reason = "CI sets it")]
    fn impossible(self, why: &str) -> Option<Self> {
        eprintln!("skipped: {why}");
        assert!(std::env::var("CI").is_err(), "{why}; in CI that is a failure");
        None
    }

    fn at(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn mount(&self) -> bool {
        let (image, at) = (self.image().display().to_string(), self.at().display().to_string());
        run("mount", &["-o", "loop", &image, &at])
    }

    fn mount_anew(&self, about: &str) {
        assert!(soon(&|| self.unmount()), "{about}: it cannot be unmounted");
        assert!(soon(&|| self.mount()), "{about}: it cannot be mounted again");
    }

    fn is_mounted(&self) -> bool {
        let at = format!(" {} ", self.at().display());
        std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|all| all.contains(&at))
    }

    fn unmount(&self) -> bool {
        run("umount", &[&self.at().display().to_string()])
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // There is nothing to unmount if the mount failed.
        if self.is_mounted() && !soon(&|| self.unmount()) {
            eprintln!("{} is left mounted", self.at().display());
        }
    }
}

/// The kernel may hold on to a disk for a moment; so may a program that another thread starts, until it runs.
fn soon(f: &dyn Fn() -> bool) -> bool {
    (0..100).any(|_| {
        let done = f();
        if !done {
            std::thread::sleep(Duration::from_millis(50));
        }
        done
    })
}

/// Tells a process that it has its own mounts.
const APART: &str = "MCO_CRASH_APART";

/// Runs a test again in a process with its own mounts, and returns whether it did: then there is nothing left to do
/// here.
///
/// A file system that was shut down is gone when it is unmounted, and the next mount of its image is a fresh one, but
/// only if it was mounted nowhere else. A machine that boots at the same time has a copy of every mount of the
/// computer, and would keep the broken one.
#[allow(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
fn apart(test: &str) -> bool {
    if !is_root() || std::env::var(APART).is_ok() {
        return false;
    }
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .args([
            format!("real::{test}").as_str(),
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(APART, "1")
        .output()
        .unwrap();
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test}, with mounts of its own: {}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{test} did not run");
    true
}

/// What happens to a file system while a host is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// Another program fills it up.
    Full,
    /// It becomes read-only.
    ReadOnly,
    /// Every call fails with an I/O error, until it is mounted again.
    Broken,
    /// A power failure: the process ends, and what was not synced is lost.
    PowerCut,
}

/// Makes it happen at a fault point.
#[derive(Debug)]
struct Befall {
    fate: Fate,
    disk: PathBuf,
    at: usize,
    seen: AtomicUsize,
    happened: AtomicUsize,
}

impl Befall {
    fn new(fate: Fate, disk: &Disk, at: usize) -> Arc<Self> {
        let (seen, happened) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { fate, disk: disk.at(), at, seen, happened })
    }

    fn happen(&self) -> bool {
        let at = self.disk.display().to_string();
        match self.fate {
            Fate::Full => {
                // Block by block at the end, so that nothing is left.
                for size in [1 << 20, 4096, 1] {
                    let filler = std::fs::OpenOptions::new()
                        .create(true)
                        .append(true)
                        .open(self.disk.join("run/filler"));
                    let Ok(mut filler) = filler else { continue };
                    while std::io::Write::write_all(&mut filler, &vec![b'x'; size]).is_ok() {}
                    let _ = filler.sync_all();
                }
                true
            }
            // Refused while a file is open for writing: then it happens at the next point.
            Fate::ReadOnly => run("mount", &["-o", "remount,ro", &at]),
            Fate::Broken | Fate::PowerCut => {
                assert!(
                    run("xfs_io", &["-x", "-c", "shutdown", &at]),
                    "xfs_io cannot shut the file system down"
                );
                true
            }
        }
    }
}

impl Faults for Befall {
    fn at(&self, _: Point<'_>) -> Result<(), Fault> {
        let n = self.seen.fetch_add(1, Ordering::Relaxed);
        if n >= self.at && self.happened.load(Ordering::Relaxed) == 0 && self.happen() {
            self.happened.store(1, Ordering::Relaxed);
        }
        let gone = self.fate == Fate::PowerCut && self.happened.load(Ordering::Relaxed) > 0;
        if gone { Err(Fault::Killed) } else { Ok(()) }
    }
}

/// What the error must name as its cause.
fn causes(fate: Fate) -> &'static [&'static str] {
    match fate {
        Fate::Full => &["No space left on device", "bytes are needed and"],
        Fate::ReadOnly => &["Read-only file system"],
        // A journal that was aborted makes the file system read-only for later users.
        Fate::Broken => &["Input/output error", "Read-only file system", "Structure needs cleaning"],
        Fate::PowerCut => &[""],
    }
}

fn chain(e: &dyn std::error::Error) -> String {
    let mut out = e.to_string();
    let mut at = e.source();
    while let Some(cause) = at {
        out = format!("{out}: {cause}");
        at = cause.source();
    }
    out
}

/// One change on a disk with this failure at one point. `None`: it cannot be done here.
fn befall(p: &Prepared, fate: Fate, point: usize) -> Option<bool> {
    let about = format!("{}: {fate:?} at {point}", p.about);
    let disk = Disk::new(p.base.path())?;
    let at = disk.at();
    std::fs::create_dir_all(at.join("run")).unwrap();
    let os = mk_os(&p.base_os);
    let faults = Befall::new(fate, &disk, point);
    let mut host = mk_synced(&at, &os, faults.clone());
    let done = host.apply(&p.plan);
    drop(host);
    let happened = faults.happened.load(Ordering::Relaxed) > 0;
    match &done {
        Ok(_) => {}
        Err(_) if fate == Fate::PowerCut => {}
        Err(e) => {
            assert!(happened, "{about}: {}", chain(e));
            let text = chain(e);
            assert!(causes(fate).iter().any(|c| text.contains(c)), "{about}: the cause is not told: {text}");
        }
    }
    // A full disk needs no help: the old state is restored without anybody's action if the undo is not blocked.
    if fate == Fate::Full && matches!(&done, Err(Error::Undone { .. } | Error::NoSpace { .. })) {
        let bad = differs(&tree(&at), &p.old.0);
        assert!(bad.is_empty(), "{about}: still full: {}", bad.join("\n"));
    }
    match fate {
        Fate::Full => {
            let _ = std::fs::remove_file(at.join("run/filler"));
        }
        Fate::ReadOnly => assert!(run("mount", &["-o", "remount,rw", &at.display().to_string()])),
        Fate::Broken | Fate::PowerCut => disk.mount_anew(&about),
    }
    let is_new = one_of_both(p, &at, &os, &about);
    assert!(done.is_err() || is_new || fate == Fate::Broken, "{about}: it said that it was through");
    Some(is_new)
}

/// `wanted` points of all pairs for each failure.
fn befall_at_some(fates: &[Fate], wanted: usize) {
    if !is_root() {
        return;
    }
    let mut seed = from();
    let prepared: Vec<(Prepared, usize)> = in_files()
        .iter()
        .map(|pair| {
            let p = prepare(pair);
            let dir = crate::prepared::copy(p.base.path());
            let count = Befall {
                fate: Fate::Full,
                disk: PathBuf::new(),
                at: usize::MAX,
                seen: AtomicUsize::new(0),
                happened: AtomicUsize::new(0),
            };
            let count = Arc::new(count);
            mk_synced(dir.path(), &mk_os(&p.base_os), count.clone()).apply(&p.plan).unwrap();
            let points = count.seen.load(Ordering::Relaxed);
            (p, points)
        })
        .collect();
    for fate in fates {
        let (mut old, mut new) = (0, 0);
        for _ in 0..wanted {
            let (p, points) = &prepared[next(&mut seed) % prepared.len()];
            let Some(is_new) = befall(p, *fate, next(&mut seed) % points) else { return };
            if is_new {
                new += 1;
            } else {
                old += 1;
            }
        }
        println!("{fate:?}: {wanted} points: {old} ended in the old state, {new} in the new one");
    }
}

#[test]
fn a_disk_that_fills_up_or_becomes_read_only_ends_in_the_old_state_or_the_new() {
    if !apart("a_disk_that_fills_up_or_becomes_read_only_ends_in_the_old_state_or_the_new") {
        befall_at_some(&[Fate::Full, Fate::ReadOnly], 6);
    }
}

#[test]
fn a_disk_that_breaks_and_a_power_cut_end_in_the_old_state_or_the_new() {
    if !apart("a_disk_that_breaks_and_a_power_cut_end_in_the_old_state_or_the_new") && has_xfs_io() {
        befall_at_some(&[Fate::Broken, Fate::PowerCut], 6);
    }
}

#[test]
#[ignore = "takes minutes; run it with: cargo xtask crash-test"]
fn many_points_at_which_the_disk_fails() {
    if apart("many_points_at_which_the_disk_fails") {
        return;
    }
    let fates: &[Fate] = if has_xfs_io() {
        &[Fate::Full, Fate::ReadOnly, Fate::Broken, Fate::PowerCut]
    } else {
        &[Fate::Full, Fate::ReadOnly]
    };
    befall_at_some(fates, told("MCO_CRASH_POINTS").unwrap_or(600) / fates.len());
}

/// The program that makes a file system really fail.
#[allow(clippy::disallowed_methods, reason = "CI sets it")]
fn has_xfs_io() -> bool {
    let has = run("xfs_io", &["-V"]);
    if !has {
        eprintln!("skipped: xfs_io is missing (apt install xfsprogs)");
        assert!(std::env::var("CI").is_err(), "xfs_io is missing; in CI that is a failure");
    }
    has
}

/// Ends the process before a commit or, once files were restored, before the disk is waited for.
#[derive(Debug)]
struct EndsBefore {
    commit: bool,
    put_back: AtomicUsize,
}

impl Faults for EndsBefore {
    fn at(&self, p: Point<'_>) -> Result<(), Fault> {
        if p.call == "rename into place" && p.on.starts_with("/etc/many/") {
            self.put_back.fetch_add(1, Ordering::Relaxed);
        }
        let back = self.put_back.load(Ordering::Relaxed) > 0;
        let here = if self.commit {
            p.call == "rename" && p.on.ends_with("/begin.json")
        } else {
            back && p.call == "sync" && p.on == "the file system of managed files"
        };
        if here && p.before { Err(Fault::Killed) } else { Ok(()) }
    }
}

/// The journal is on another file system than the files: a recorded undo says nothing about what is on theirs.
#[test]
fn an_undo_that_was_killed_is_on_the_disk_before_the_next_one_calls_it_done() {
    if apart("an_undo_that_was_killed_is_on_the_disk_before_the_next_one_calls_it_done") || !is_root() {
        return;
    }
    let p = prepare(&pairs().into_iter().find(|p| p.about == "many files").unwrap());
    let Some(disk) = Disk::new(p.base.path()) else { return };
    let at = disk.at();
    let state = at.join("var/lib/machine-config-daemon");
    std::fs::create_dir_all(&state).unwrap();
    let state_at = state.display().to_string();
    assert!(run("mount", &["-t", "tmpfs", "none", &state_at]));
    let os = mk_os(&p.base_os);
    let ends = |commit| Arc::new(EndsBefore { commit, put_back: AtomicUsize::new(0) });
    // The token of this boot exists from the start: writing it would sync everything else of the file system, too.
    assert_eq!(mk_synced(&at, &os, Arc::new(NoFaults)).recover().unwrap(), Recovery::Nothing);
    mk_synced(&at, &os, ends(true)).apply(&p.plan).unwrap_err();
    assert!(run("sync", &["-f", &at.display().to_string()]));
    mk_synced(&at, &os, ends(false)).recover().unwrap_err();
    let recovery = mk_synced(&at, &os, Arc::new(NoFaults)).recover().unwrap();
    assert!(matches!(recovery, Recovery::Undone { .. }), "{recovery:?}");
    assert!(soon(&|| run("umount", &[&state_at])), "{state_at} cannot be unmounted");
    assert!(run("xfs_io", &["-x", "-c", "shutdown", &at.display().to_string()]));
    disk.mount_anew(p.about);
    let bad = differs(&tree(&at), &p.old.0);
    assert!(bad.is_empty(), "the undo was called done and the power cut took it back:\n{}", bad.join("\n"));
}

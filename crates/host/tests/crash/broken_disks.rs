//! Real file systems that fill up, become read-only, fail with I/O errors, or lose everything that was not synced: a host on
//! them ends in its old state or the new one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::copy::copy_tree;
use crate::common::is_root;
use crate::config_pairs::pairs;
use crate::outcome::{differs, env_number, in_files, is_new_state, mk_synced, next, run, sample_start, tree};
use crate::prepared::{Prepared, mk_os, prepare};
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{Error, Recovery};

/// Space for a host in a folder, its journal, and the file system's own data.
const IMAGE_BYTES: u64 = 24 << 20;

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
        copy_tree(base, &disk.at());
        assert!(run("sync", &["-f", &disk.at().display().to_string()]));
        Some(disk)
    }

    #[expect(clippy::disallowed_methods, reason = "CI sets it")]
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
        assert!(retry(&|| self.unmount()), "{about}: it cannot be unmounted");
        assert!(retry(&|| self.mount()), "{about}: it cannot be mounted again");
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
        if self.is_mounted() && !retry(&|| self.unmount()) {
            eprintln!("{} is left mounted", self.at().display());
        }
    }
}

/// The kernel may hold on to a disk for a moment; so may a program that another thread starts, until it runs.
fn retry(f: &dyn Fn() -> bool) -> bool {
    (0..100).any(|_| {
        let done = f();
        if !done {
            std::thread::sleep(Duration::from_millis(50));
        }
        done
    })
}

/// The environment variable that tells a process that it has its own mounts.
const OWN_MOUNTS: &str = "MCO_CRASH_APART";

/// Runs a test again in a process with its own mounts, and returns whether it did: then there is nothing left to do
/// here.
///
/// A file system that was shut down is gone when it is unmounted, and the next mount of its image is a fresh one, but
/// only if it was mounted nowhere else. A machine that boots at the same time has a copy of every mount of the
/// computer, and would keep the broken one.
#[expect(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
fn in_own_mounts(test: &str) -> bool {
    if !is_root() || std::env::var(OWN_MOUNTS).is_ok() {
        return false;
    }
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .args([
            format!("broken_disks::{test}").as_str(),
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(OWN_MOUNTS, "1")
        .output()
        .unwrap();
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test}, with mounts of its own: {}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{test} did not run");
    true
}

/// What happens to a file system while a host is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    /// Another program fills it up.
    Full,
    /// It becomes read-only.
    ReadOnly,
    /// Every call fails with an I/O error, until it is mounted again.
    Broken,
    /// A power failure: the process ends, and what was not synced is lost.
    PowerCut,
}

/// Causes the failure at a fault point.
#[derive(Debug)]
struct FailingDisk {
    failure: Failure,
    disk: PathBuf,
    at: usize,
    seen: AtomicUsize,
    happened: AtomicUsize,
}

impl FailingDisk {
    fn new(failure: Failure, disk: &Disk, at: usize) -> Arc<Self> {
        let (seen, happened) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { failure, disk: disk.at(), at, seen, happened })
    }

    fn happen(&self) -> bool {
        let at = self.disk.display().to_string();
        match self.failure {
            Failure::Full => {
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
            Failure::ReadOnly => run("mount", &["-o", "remount,ro", &at]),
            Failure::Broken | Failure::PowerCut => {
                assert!(
                    run("xfs_io", &["-x", "-c", "shutdown", &at]),
                    "xfs_io cannot shut the file system down"
                );
                true
            }
        }
    }
}

impl Faults for FailingDisk {
    fn at(&self, _: Point<'_>) -> Result<(), Fault> {
        let n = self.seen.fetch_add(1, Ordering::Relaxed);
        if n >= self.at && self.happened.load(Ordering::Relaxed) == 0 && self.happen() {
            self.happened.store(1, Ordering::Relaxed);
        }
        let gone = self.failure == Failure::PowerCut && self.happened.load(Ordering::Relaxed) > 0;
        if gone { Err(Fault::Killed) } else { Ok(()) }
    }
}

/// What the error must name as its cause.
fn causes(failure: Failure) -> &'static [&'static str] {
    match failure {
        Failure::Full => &["No space left on device", "bytes are needed and"],
        Failure::ReadOnly => &["Read-only file system"],
        // A journal that was aborted makes the file system read-only for later users.
        Failure::Broken => &["Input/output error", "Read-only file system", "Structure needs cleaning"],
        Failure::PowerCut => &[""],
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
fn change_on_failing_disk(p: &Prepared, failure: Failure, point: usize) -> Option<bool> {
    let about = format!("{}: {failure:?} at {point}", p.about);
    let disk = Disk::new(p.base.path())?;
    let at = disk.at();
    std::fs::create_dir_all(at.join("run")).unwrap();
    let os = mk_os(&p.base_os);
    let faults = FailingDisk::new(failure, &disk, point);
    let mut host = mk_synced(&at, &os, faults.clone());
    let done = host.apply(&p.plan);
    drop(host);
    let happened = faults.happened.load(Ordering::Relaxed) > 0;
    match &done {
        Ok(_) => {}
        Err(_) if failure == Failure::PowerCut => {}
        Err(e) => {
            assert!(happened, "{about}: {}", chain(e));
            let text = chain(e);
            assert!(
                causes(failure).iter().any(|c| text.contains(c)),
                "{about}: the error does not name the cause: {text}"
            );
        }
    }
    // A full disk needs no help: the old state is restored without anybody's action if the undo is not blocked.
    if failure == Failure::Full && matches!(&done, Err(Error::Undone { .. } | Error::NoSpace { .. })) {
        let bad = differs(&tree(&at), &p.old.0);
        assert!(bad.is_empty(), "{about}: still full: {}", bad.join("\n"));
    }
    match failure {
        Failure::Full => {
            let _ = std::fs::remove_file(at.join("run/filler"));
        }
        Failure::ReadOnly => assert!(run("mount", &["-o", "remount,rw", &at.display().to_string()])),
        Failure::Broken | Failure::PowerCut => disk.mount_anew(&about),
    }
    let is_new = is_new_state(p, &at, &os, &about);
    assert!(done.is_err() || is_new || failure == Failure::Broken, "{about}: it reported success");
    Some(is_new)
}

/// `wanted` points of all pairs for each failure.
fn sample_failures(failures: &[Failure], wanted: usize) {
    if !is_root() {
        return;
    }
    let mut seed = sample_start();
    let prepared: Vec<(Prepared, usize)> = in_files()
        .iter()
        .map(|pair| {
            let p = prepare(pair);
            let dir = crate::prepared::copy(p.base.path());
            let count = FailingDisk {
                failure: Failure::Full,
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
    for failure in failures {
        let (mut old, mut new) = (0, 0);
        for _ in 0..wanted {
            let (p, points) = &prepared[next(&mut seed) % prepared.len()];
            let Some(is_new) = change_on_failing_disk(p, *failure, next(&mut seed) % points) else { return };
            if is_new {
                new += 1;
            } else {
                old += 1;
            }
        }
        println!("{failure:?}: {wanted} points: {old} ended in the old state, {new} in the new one");
    }
}

#[test]
fn a_disk_that_fills_up_or_becomes_read_only_ends_in_the_old_state_or_the_new() {
    if !in_own_mounts("a_disk_that_fills_up_or_becomes_read_only_ends_in_the_old_state_or_the_new") {
        sample_failures(&[Failure::Full, Failure::ReadOnly], 6);
    }
}

#[test]
fn a_disk_that_breaks_and_a_power_cut_end_in_the_old_state_or_the_new() {
    if !in_own_mounts("a_disk_that_breaks_and_a_power_cut_end_in_the_old_state_or_the_new") && has_xfs_io() {
        sample_failures(&[Failure::Broken, Failure::PowerCut], 6);
    }
}

#[test]
#[ignore = "takes minutes; run it with: cargo xtask crash-test"]
fn many_points_at_which_the_disk_fails() {
    if in_own_mounts("many_points_at_which_the_disk_fails") {
        return;
    }
    let failures: &[Failure] = if has_xfs_io() {
        &[Failure::Full, Failure::ReadOnly, Failure::Broken, Failure::PowerCut]
    } else {
        &[Failure::Full, Failure::ReadOnly]
    };
    sample_failures(failures, env_number("MCO_CRASH_POINTS").unwrap_or(600) / failures.len());
}

/// The program that makes a file system really fail.
#[expect(clippy::disallowed_methods, reason = "CI sets it")]
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
fn an_undo_after_a_kill_is_synced_before_it_counts_as_done() {
    if in_own_mounts("an_undo_after_a_kill_is_synced_before_it_counts_as_done") || !is_root() {
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
    assert!(retry(&|| run("umount", &[&state_at])), "{state_at} cannot be unmounted");
    assert!(run("xfs_io", &["-x", "-c", "shutdown", &at.display().to_string()]));
    disk.mount_anew(p.about);
    let bad = differs(&tree(&at), &p.old.0);
    assert!(bad.is_empty(), "the undo was called done and the power cut took it back:\n{}", bad.join("\n"));
}

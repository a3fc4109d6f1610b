//! For tests: one control plane per test process, unique names, and a report when a test cannot run.
//!
//! A shared control plane ends with its process: the kernel kills its programs (see `process`), and a small janitor
//! process removes the folder. If the janitor fails, the next lab's sweep removes it.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::OnceCell;

use crate::control_plane::programs::Programs;
use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::error::Result;
use crate::progress::Reporter;
use crate::system::folder::{Folder, sweep};
use crate::system::packages::{is_root, missing_packages};
use crate::system::paths::Environment;

static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
static NAMES: AtomicU32 = AtomicU32::new(0);

/// The control plane that all tests of this process share, with the controller manager and without a scheduler. Create
/// a client per test (`shared().await?.client().await?`): a client belongs to its test's runtime.
///
/// # Errors
/// As [`ControlPlane::start`].
pub async fn shared() -> Result<&'static ControlPlane> {
    SHARED
        .get_or_try_init(|| async {
            let environment = Environment::read();
            sweep(&environment)?;
            let folder = Arc::new(Folder::create(&environment)?);
            start_janitor(&folder);
            let programs = Programs::new(&environment)?;
            let options = ControlPlaneOptions { scheduler: false, ..ControlPlaneOptions::default() };
            ControlPlane::start(folder, &programs, &options, &Reporter::stderr()).await
        })
        .await
}

/// A name that no other test of this process has, for cluster-scoped objects: `stem-PID-NUMBER`.
#[must_use]
pub fn unique_name(stem: &str) -> String {
    format!("{stem}-{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed))
}

/// Whether a test that creates real nodes can run. If not, it prints `skipped: why`, and in CI it panics.
///
/// # Panics
/// In CI (`CI=true`), naming what is missing.
#[must_use]
pub fn require_root() -> bool {
    let missing = missing_packages();
    // As root, the lab installs what is missing.
    let why = if is_root() {
        None
    } else if missing.is_empty() {
        Some("it needs root".to_owned())
    } else {
        Some(format!("it needs root and the Debian packages {}", missing.join(" ")))
    };
    require(why)
}

/// As [`require_root`] for any other reason that a test cannot run; `None` means that it can.
///
/// # Panics
/// In CI (`CI=true`), with the reason.
#[must_use]
#[expect(clippy::panic, reason = "a test that cannot run in CI must fail there")]
pub fn require(why_not: Option<String>) -> bool {
    let Some(why) = why_not else { return true };
    if Environment::read().ci {
        panic!("this test cannot run here, and may not be skipped in CI: {why}");
    }
    println!("skipped: {why}");
    false
}

/// A shell script that waits for the end of this process (its standard input closes) and of the programs that use the
/// folder, and then removes it. `$1` is the folder.
const JANITOR: &str = r#"
read -r _
tries=0
while [ "$tries" -lt 100 ]; do
    busy=
    for line in /proc/[0-9]*/cmdline; do
        pid=${line#/proc/}
        [ "${pid%/cmdline}" = "$$" ] || ! grep -qsF "$1/" "$line" || busy=yes
    done
    [ -n "$busy" ] || break
    tries=$((tries + 1))
    sleep 0.1
done
rm -rf -- "$1"
"#;

fn start_janitor(folder: &Folder) {
    use std::os::unix::process::CommandExt;
    let started = Command::new("/bin/sh")
        .args(["-c", JANITOR, "mco-lab-janitor"])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C at the terminal must reach only the tests; the janitor runs after them.
        .process_group(0)
        .spawn();
    match started {
        // The pipe stays open until this process ends.
        Ok(child) => std::mem::forget(child),
        Err(error) => tracing::debug!(%error, "no janitor: the next sweep removes the folder"),
    }
}

/// The `mco` program that was built beside the running test: `target/<profile>/mco`. `None` if it does not exist
/// (`cargo build -p cli` builds it).
#[must_use]
pub fn built_mco() -> Option<std::path::PathBuf> {
    let test = std::env::current_exe().ok()?;
    // target/<profile>/deps/<test>
    let program = test.parent()?.parent()?.join("mco");
    crate::system::command::is_executable(&program).then_some(program)
}

/// The statically linked `mco`, as it is delivered, of the same profile: `target/<profile>/static/mco`. `None` if it
/// does not exist (`cargo xtask test` builds it first; `cargo xtask image --for-tests` builds it alone).
#[must_use]
pub fn delivered_mco() -> Option<std::path::PathBuf> {
    let program = built_mco()?.parent()?.join("static/mco");
    crate::system::command::is_executable(&program).then_some(program)
}

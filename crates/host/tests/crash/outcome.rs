//! What the tests with real kills and real disks share: where a sample begins, a host that syncs, and the check that it ended in
//! the old state or the new one.
//!
//! The ordinary tests take a small sample, at other points each time, and print where it began. `MCO_CRASH_FROM=N`
//! repeats that sample. `cargo xtask crash-test` runs the large ones.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use crate::config_pairs::{Pair, pairs};
use crate::prepared::{Prepared, SKIP, Tree};
use host::fault::{Faults, NoFaults};
use host::{FakeOs, FakeSystemd, Host, Options, Recovery, Root};

/// A host on a folder with syncs. Its systemd does not sync, as the real one does not.
pub(crate) fn mk_synced(at: &Path, os: &FakeOs, faults: Arc<dyn Faults>) -> Host {
    let root = Root::open_with(at, Options { sync: true, owners: true }, faults).unwrap();
    let lazy = Root::open_with(at, Options { sync: false, owners: true }, Arc::new(NoFaults)).unwrap();
    Host::new(root, Box::new(FakeSystemd::new(&lazy)), Box::new(os.clone()))
}

#[expect(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
pub(crate) fn env_number(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Where a sample begins: at the point that the environment gives, or at another point each time.
pub(crate) fn sample_start() -> usize {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let from = env_number("MCO_CRASH_FROM").unwrap_or(now.subsec_micros() as usize);
    println!("again with: MCO_CRASH_FROM={from}");
    from
}

/// Evenly distributed numbers, each computed from the previous one.
pub(crate) fn next(seed: &mut usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Pairs whose old and new state show in the files: the in-memory operating system of another process cannot be
/// examined.
pub(crate) fn in_files() -> Vec<Pair> {
    let os = |s: &api::v1::MachineConfigSpec| {
        (s.os_image_url.clone(), s.kernel_arguments.clone(), s.extensions.clone())
    };
    pairs()
        .into_iter()
        .filter(|p| os(&p.old) == os(&p.new) && p.old.kernel_type == p.new.kernel_type)
        .collect()
}

pub(crate) fn tree(at: &Path) -> Tree {
    crate::common::tree(at, &["/"], &SKIP)
}

pub(crate) fn differs(now: &Tree, want: &Tree) -> Vec<String> {
    let paths = now.keys().chain(want.keys()).filter(|p| now.get(*p) != want.get(*p));
    paths.map(|p| format!("{p}: want {:?}, got {:?}", want.get(p), now.get(p))).collect()
}

/// Recovers, and checks that the result is the old or the new state and that nothing remains to be done.
pub(crate) fn is_new_state(p: &Prepared, at: &Path, os: &FakeOs, about: &str) -> bool {
    let mut host = mk_synced(at, os, Arc::new(NoFaults));
    let recovery =
        host.recover().unwrap_or_else(|e| panic!("{about}: {e}: {:?}", std::error::Error::source(&e)));
    let now = tree(at);
    let is_new = match recovery {
        Recovery::Finished { .. }
        | Recovery::AwaitsBoot { .. }
        | Recovery::OnTrial { .. }
        | Recovery::AwaitsReturn { .. } => true,
        Recovery::Undone { .. } | Recovery::RolledBack { .. } => false,
        Recovery::Nothing => now == p.new.0,
    };
    let bad = differs(&now, if is_new { &p.new.0 } else { &p.old.0 });
    assert!(bad.is_empty(), "{about}: {recovery:?}\n{}", bad.join("\n"));
    assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
    assert!(differs(&tree(at), &now).is_empty(), "{about}: a second recovery changes something");
    is_new
}

pub(crate) fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

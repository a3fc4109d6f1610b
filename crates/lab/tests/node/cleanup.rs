//! Nothing is left behind, however the process that holds the lab ends.

use crate::common;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Environment, Lab, Record};

const LIMIT: Duration = Duration::from_secs(60);
/// Tells this test binary, when it starts itself again, that it is the holder.
const HOLDER: &str = "MCO_LAB_TEST_HOLDS";

/// The other half of the tests below: holds a lab until it is interrupted. Run by itself it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn holder() {
    let Some(how) = std::env::var_os(HOLDER) else { return };
    let lab = Lab::start().nodes(1).real().controller_manager(false).scheduler(false).start().await.unwrap();
    assert!(how != "panics", "a test that panics while it holds a lab");
    tokio::time::sleep(LIMIT).await;
    drop(lab);
}

fn hold(how: &str, data: &Path) -> Child {
    // A shell that runs the tests in the background makes them ignore SIGINT, and child processes inherit that.
    Command::new("env")
        .arg("--default-signal=INT")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "cleanup::holder", "--nocapture"])
        .env(HOLDER, how)
        .env("MCO_LAB_DATA", data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the holder's lab is running: its folder and record exist.
fn wait_up(environment: &Environment) -> (PathBuf, Record) {
    let start = Instant::now();
    loop {
        if let Some(found) = lab::recorded(environment).unwrap().into_iter().find(|(_, record)| record.ready)
        {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "the holder's lab does not come up");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_next_lab_cleans_up_after_a_killed_one() {
    if !lab::require_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { data: dir.path().join("data"), ..Environment::read() };
    let mut holder = hold("sleeps", &environment.data);
    let (folder, record) = wait_up(&environment);
    let bridge = record.bridge.unwrap();
    // The names of the node's interface, control group and machine contain the bridge's numbers.
    let numbers = bridge.trim_start_matches("mcl").to_owned();
    let (link, mark) = (format!("mcl{numbers}"), format!("m{numbers}-"));
    let ours = |name: &str| name == link || name.contains(&mark);
    let up = common::traces(&folder, &ours);
    assert!(up.interfaces.len() == 2 && !up.groups.is_empty(), "{up:?}");
    assert!(common::users(&folder).len() >= 3);

    holder.kill().unwrap();
    holder.wait().unwrap();
    let start = Instant::now();
    let swept = lab::sweep(&environment).unwrap();
    eprintln!("swept in {:?}", start.elapsed());
    assert_eq!(swept, vec![folder.clone()]);
    assert_eq!(common::users(&folder), Vec::<String>::new());
    assert!(!folder.exists());
    let after = common::traces(&folder, &ours);
    assert!(after.interfaces.is_empty() && after.groups.is_empty() && after.machines.is_empty(), "{after:?}");
    assert!(up.mounts.is_empty() && after.mounts.is_empty(), "{up:?} {after:?}");
}

#[test]
fn a_panicking_test_takes_its_lab_with_it() {
    if !lab::require_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { data: dir.path().join("data"), ..Environment::read() };
    let mut holder = hold("panics", &environment.data);
    assert!(!holder.wait().unwrap().success());
    assert_eq!(lab::recorded(&environment).unwrap(), Vec::new());
    assert_eq!(common::users(&environment.data), Vec::<String>::new());
}

#[test]
fn an_interrupted_lab_ends_with_its_process() {
    if !lab::require_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { data: dir.path().join("data"), ..Environment::read() };
    let mut holder = hold("sleeps", &environment.data);
    let (folder, _) = wait_up(&environment);
    // SIGINT without a handler: no destructor runs, and the kernel notifies the children.
    let pid = holder.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    holder.wait().unwrap();
    let start = Instant::now();
    while !common::users(&folder).is_empty() {
        assert!(start.elapsed() < LIMIT, "{:?}", common::users(&folder));
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("all processes gone after {:?}", start.elapsed());
    assert_eq!(lab::sweep(&environment).unwrap(), vec![folder]);
}

//! Measures how long a change of a host takes: `apply_folder FOLDER FILES BYTES RUNS` sets up a host in an empty
//! folder and applies three changes, each as often as asked for. The first replaces the contents of every file. The
//! second fails at its commit, so that everything is rolled back. The third replaces the contents of one file. For
//! each change it prints a line of JSON: wall-clock and CPU milliseconds, and the number of disk syncs.
//!
//! Writes are synced to the real disk. systemd is faked. Used by `cargo xtask bench host`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use api::v1::MachineConfigSpec;
use host::fault::{Fault, Faults, Point};
use host::{Change, DisruptionPolicy, Error, FakeSystemd, Host, Names, Options, Root, Unsupported};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Counts the syncs, and makes the commit fail for the change that should be rolled back.
#[derive(Debug, Default)]
struct Syncs {
    waits: AtomicUsize,
    refuse: AtomicBool,
}

impl Faults for Syncs {
    fn at(&self, point: Point<'_>) -> Result<(), Fault> {
        if point.before && point.call.starts_with("sync") {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        let commit = point.before && point.call == "rename" && point.on.ends_with("/journal/begin.json");
        if commit && self.refuse.swap(false, Ordering::Relaxed) {
            return Err(Fault::Fail(std::io::ErrorKind::PermissionDenied.into()));
        }
        Ok(())
    }
}

fn config(files: usize, bytes: usize, text: impl Fn(usize) -> char) -> MachineConfigSpec {
    let files: Vec<Value> = (0..files)
        .map(|i| {
            let line = format!("{i} {}\n", text(i).to_string().repeat(60));
            let text: String = line.chars().cycle().take(bytes).collect();
            let source = format!("data:,{}", text.replace(' ', "%20").replace('\n', "%0A"));
            json!({"path": format!("/etc/bench/{}/{i}.conf", i % 10), "contents": {"source": source}})
        })
        .collect();
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}});
    MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
}

/// CPU time of this process, in milliseconds.
fn cpu() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, files, bytes, runs] = args.as_slice() else {
        return Err("apply_folder FOLDER FILES BYTES RUNS".into());
    };
    let (files, bytes, runs): (usize, usize, usize) = (files.parse()?, bytes.parse()?, runs.parse()?);
    std::fs::create_dir_all(format!("{folder}/etc/systemd/system"))?;
    let syncs = Arc::new(Syncs::default());
    let owners = rustix::process::geteuid().is_root();
    let root = Root::open_with(folder, Options { sync: true, owners }, syncs.clone())?;
    let systemd = FakeSystemd::new(&root);
    let mut host = Host::new(root, Box::new(systemd), Box::new(Unsupported::default()));
    let mut at = MachineConfigSpec::default();
    let mut go = |what: &str, to: MachineConfigSpec| -> Result<(), Box<dyn std::error::Error>> {
        let (start, began, waits) = (Instant::now(), cpu(), syncs.waits.load(Ordering::Relaxed));
        let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
        let refused = |bad| format!("refused: {bad:?}");
        let change = Change::parse(&at, &to, names).map_err(refused)?;
        let facts = host.inspect(&change)?;
        let plan = change.plan(&DisruptionPolicy::default(), &facts).map_err(refused)?;
        let planned = start.elapsed();
        let back = what.ends_with("back");
        syncs.refuse.store(back, Ordering::Relaxed);
        match host.apply(&plan) {
            Err(Error::Undone { .. }) if back => {}
            done => {
                done?;
            }
        }
        let line = json!({
            "what": what,
            "planned_ms": planned.as_secs_f64() * 1e3,
            "ms": start.elapsed().as_secs_f64() * 1e3,
            "own_ms": cpu() - began,
            "waits": syncs.waits.load(Ordering::Relaxed) - waits,
            "steps": plan.steps.len(),
        });
        println!("{line}");
        if !back {
            at = to;
        }
        Ok(())
    };
    go("first", config(files, bytes, |_| 'a'))?;
    for run in 0..runs {
        go("all", config(files, bytes, |_| if run % 2 == 0 { 'b' } else { 'a' }))?;
        go("all, and back", config(files, bytes, |_| 'z'))?;
        go(
            "one",
            config(files, bytes, |i| match (run % 2 == 0, i) {
                (_, 0) => 'c',
                (true, _) => 'b',
                (false, _) => 'a',
            }),
        )?;
    }
    let alone = config(1, bytes, |_| 'x');
    go("to one file", alone)?;
    for run in 0..runs {
        go("one of one", config(1, bytes, |_| if run % 2 == 0 { 'y' } else { 'x' }))?;
    }
    Ok(())
}

//! Drift is seen at once, and only on managed paths: the reference's own cases (rewrite, rename away, delete, replace
//! by rename, chmod, touch) on a file, a packed file, a unit and a drop-in.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::v1::MachineConfigSpec;
use common::{mk_host, mk_host_tree};
use host::fault::NoFaults;
use host::{DisruptionPolicy, Drift, FakeOs, FakeSystemd, Host, Names, Systemd, Touched, Watch, plan};
use serde_json::json;

/// "hello\n", packed with gzip.
const PACKED: &str = "data:;base64,H4sIAAAAAAACA8tIzcnJ5wIAIDA6NgYAAAA=";
/// The bound of the issue: found within a second.
const SOON: Duration = Duration::from_secs(1);

fn config() -> MachineConfigSpec {
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    MachineConfigSpec {
        config: Some(json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [
                {"path": "/etc/plain", "contents": {"source": "data:,text"}},
                {"path": "/etc/deep/er/packed", "contents": {"source": PACKED, "compression": "gzip"}},
            ]},
            "systemd": {"units": [
                {"name": "unittest.service", "contents": unit, "enabled": true, "dropins": [
                    {"name": "10-unittest-service.conf", "contents": "[Service]\nNice=1\n"},
                    {"name": "20-unittest-service.conf", "contents": ""},
                ]},
                {"name": "masked.service", "contents": unit, "mask": true},
            ]},
        })),
        ..MachineConfigSpec::default()
    }
}

fn mk_applied() -> (tempfile::TempDir, Host) {
    let dir = mk_host_tree();
    let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults));
    let start = MachineConfigSpec::default();
    let facts = host.probe(&start, &config()).unwrap();
    let plan = plan(&start, &config(), &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(host.validate(&config()).unwrap(), Ok(()));
    (dir, host)
}

/// The next batch of touched paths, which must come soon.
fn next(watch: &mut Watch) -> Vec<String> {
    let start = Instant::now();
    match watch.wait(Some(SOON)).unwrap() {
        Touched::Paths(p) => {
            assert!(start.elapsed() < SOON, "only after {:?}", start.elapsed());
            p.into_iter().collect()
        }
        other => panic!("nothing was seen: {other:?}"),
    }
}

#[test]
fn every_way_of_changing_a_managed_file_is_drift_and_a_touch_is_not() {
    type Change = fn(&Path);
    let changes: [(&str, Change, bool); 6] = [
        ("rewrite", |p| fs::write(p, "other").unwrap(), true),
        ("rename away", |p| fs::rename(p, p.with_extension("away")).unwrap(), true),
        ("delete", |p| fs::remove_file(p).unwrap(), true),
        (
            "replace by rename",
            |p| {
                fs::write(p.with_extension("new"), "other").unwrap();
                fs::rename(p.with_extension("new"), p).unwrap();
            },
            true,
        ),
        ("chmod", |p| fs::set_permissions(p, fs::Permissions::from_mode(0o755)).unwrap(), true),
        (
            "touch",
            |p| fs::File::open(p).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap(),
            false,
        ),
    ];
    for path in [
        "/etc/plain",
        "/etc/deep/er/packed",
        "/etc/systemd/system/unittest.service",
        "/etc/systemd/system/unittest.service.d/10-unittest-service.conf",
    ] {
        for (about, change, drifts) in changes {
            let (dir, mut host) = mk_applied();
            let mut watch = Watch::new(host.root(), &config()).unwrap();
            change(&dir.path().join(path.trim_start_matches('/')));
            assert_eq!(next(&mut watch), [path], "{about}");
            let found = host.validate(&config()).unwrap();
            assert_eq!(found.is_err(), drifts, "{about} of {path}: {found:?}");
            if let Err(e) = found {
                let text = e.to_string();
                assert!(text.contains(path) && !text.contains("other"), "{text}");
                let named =
                    ["content mismatch for file \"", "mode mismatch for file: ", "could not stat file"];
                assert!(named.iter().any(|n| text.starts_with(n)), "{text}");
            }
        }
    }
}

#[test]
fn masks_owners_and_enablement_drift_too() {
    if !common::is_root() {
        return;
    }
    let (dir, mut host) = mk_applied();
    let mut watch = Watch::new(host.root(), &config()).unwrap();
    let mask = dir.path().join("etc/systemd/system/masked.service");
    fs::remove_file(&mask).unwrap();
    assert_eq!(next(&mut watch), ["/etc/systemd/system/masked.service"]);
    assert!(matches!(host.validate(&config()).unwrap(), Err(Drift::NotMasked { .. })));
    std::os::unix::fs::symlink("/dev/null", &mask).unwrap();
    assert_eq!(next(&mut watch), ["/etc/systemd/system/masked.service"]);
    assert_eq!(host.validate(&config()).unwrap(), Ok(()));

    FakeSystemd::new(host.root()).disable(&["unittest.service".to_owned()]).unwrap();
    assert_eq!(next(&mut watch), ["/etc/systemd/system/multi-user.target.wants/unittest.service"]);
    assert!(matches!(host.validate(&config()).unwrap(), Err(Drift::Enablement { .. })));
    FakeSystemd::new(host.root()).enable(&["unittest.service".to_owned()]).unwrap();

    std::os::unix::fs::chown(dir.path().join("etc/plain"), Some(1000), None).unwrap();
    assert!(next(&mut watch).contains(&"/etc/plain".to_owned()));
    let drift = host.validate(&config()).unwrap().unwrap_err();
    assert!(matches!(drift, Drift::Owner { .. }), "{drift}");
}

#[test]
fn folders_that_go_and_come_back_are_followed() {
    let (dir, host) = mk_applied();
    let mut watch = Watch::new(host.root(), &config()).unwrap();
    fs::remove_dir_all(dir.path().join("etc/deep")).unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
    fs::create_dir(dir.path().join("etc/deep")).unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
    fs::create_dir(dir.path().join("etc/deep/er")).unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
    fs::write(dir.path().join("etc/deep/er/packed"), "hello\n").unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
}

#[test]
fn unmanaged_neighbours_are_not_seen_and_the_watch_can_be_stopped() {
    let (dir, host) = mk_applied();
    let mut watch = Watch::new(host.root(), &config()).unwrap();
    fs::write(dir.path().join("etc/unmanaged"), "x").unwrap();
    fs::write(dir.path().join("etc/systemd/system/unittest.service.d/30-x.conf"), "x").unwrap();
    assert_eq!(watch.wait(Some(Duration::from_millis(200))).unwrap(), Touched::TimedOut);
    let stop = watch.stopper();
    let waiting = std::thread::spawn(move || watch.wait(None).unwrap());
    stop.stop();
    assert_eq!(waiting.join().unwrap(), Touched::Stopped);
}

#[test]
fn before_a_change_only_what_it_does_not_touch_is_compared() {
    let (dir, mut host) = mk_applied();
    let mut next = config();
    let files = next.config.as_mut().unwrap();
    files["storage"]["files"][0]["contents"]["source"] = json!("data:,new");
    fs::write(dir.path().join("etc/plain"), "by hand").unwrap();
    assert!(host.validate(&config()).unwrap().is_err());
    assert_eq!(host.validate_before(&config(), &next).unwrap(), Ok(()), "the change writes that very file");
    fs::write(dir.path().join("etc/deep/er/packed"), "by hand").unwrap();
    let drift = host.validate_before(&config(), &next).unwrap().unwrap_err();
    assert!(drift.to_string().contains("/etc/deep/er/packed"), "{drift}");
    // A change that takes the file away brings it right too, and so does one of a unit.
    next.config.as_mut().unwrap()["storage"]["files"].as_array_mut().unwrap().pop();
    next.config.as_mut().unwrap()["systemd"]["units"][0]["enabled"] = json!(false);
    FakeSystemd::new(host.root()).disable(&["unittest.service".to_owned()]).unwrap();
    assert_eq!(host.validate_before(&config(), &next).unwrap(), Ok(()));
    assert!(host.validate(&config()).unwrap().is_err());
}

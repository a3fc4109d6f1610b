//! Drift is seen at once, and only on managed paths. The cases are those of the reference implementation (rewrite,
//! rename away, delete, replace by rename, chmod, touch) on a file, a compressed file, a unit and a drop-in.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{BySpec as _, plan, watch};
use crate::common::{mk_host, mk_host_tree};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{DiskEvent, DisruptionPolicy, Drift, FakeOs, FakeSystemd, Host, Names, Systemd as _, Watch};
use serde_json::json;

/// "hello\n", packed with gzip.
const PACKED: &str = "data:;base64,H4sIAAAAAAACA8tIzcnJ5wIAIDA6NgYAAAA=";
/// Drift is found within this time: a loaded machine may need longer than the usual milliseconds.
const SOON: Duration = Duration::from_secs(15);

pub(crate) fn config() -> MachineConfigSpec {
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

pub(crate) fn mk_applied() -> (tempfile::TempDir, Host) {
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
        DiskEvent::Paths(p) => {
            assert!(start.elapsed() < SOON, "only after {:?}", start.elapsed());
            p.into_iter().collect()
        }
        other => panic!("nothing was seen: {other:?}"),
    }
}

#[test]
fn every_change_of_a_managed_file_is_drift_and_a_touch_is_not() {
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
            let mut watch = watch(&host, &config());
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
fn masks_owners_and_enablement_are_compared() {
    if !crate::common::is_root() {
        return;
    }
    let (dir, mut host) = mk_applied();
    let mut watch = watch(&host, &config());
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
fn a_folder_that_is_deleted_and_made_again_stays_watched() {
    let (dir, host) = mk_applied();
    let mut watch = watch(&host, &config());
    fs::remove_dir_all(dir.path().join("etc/deep")).unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
    fs::create_dir(dir.path().join("etc/deep")).unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
    fs::create_dir(dir.path().join("etc/deep/er")).unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
    fs::write(dir.path().join("etc/deep/er/packed"), "hello\n").unwrap();
    assert_eq!(next(&mut watch), ["/etc/deep/er/packed"]);
}

/// Changes that inotify on a file's own folder alone does not report: the first comparison after each, and its result.
#[test]
fn changes_of_parent_folders_are_seen() {
    type Change = fn(&Path);
    let cases: [(&str, &str, Change); 6] = [
        ("a folder above the folder is moved", "/etc/deep/er/packed", |at| {
            fs::rename(at.join("etc/deep"), at.join("etc/moved")).unwrap();
        }),
        ("a folder above is replaced", "/etc/deep/er/packed", |at| {
            fs::create_dir_all(at.join("etc/new/er")).unwrap();
            fs::write(at.join("etc/new/er/packed"), "other").unwrap();
            fs::rename(at.join("etc/deep"), at.join("etc/old")).unwrap();
            fs::rename(at.join("etc/new"), at.join("etc/deep")).unwrap();
        }),
        ("a folder that is a link leads elsewhere", "/srv/current/conf", |at| {
            std::os::unix::fs::symlink("releases/2", at.join("srv/next")).unwrap();
            fs::rename(at.join("srv/next"), at.join("srv/current")).unwrap();
        }),
        ("what the link leads to is moved", "/srv/current/conf", |at| {
            fs::rename(at.join("srv/releases"), at.join("srv/away")).unwrap();
        }),
        (
            "content is put into an emptied drop-in",
            "/etc/systemd/system/unittest.service.d/20-unittest-service.conf",
            |at| {
                let path = "etc/systemd/system/unittest.service.d/20-unittest-service.conf";
                fs::write(at.join(path), "[Service]\nNice=5\n").unwrap();
            },
        ),
        ("somebody writes by another name of the file", "/etc/plain", |at| {
            fs::write(at.join("opt/other-name"), "other").unwrap();
        }),
    ];
    for (about, path, change) in cases {
        let dir = mk_host_tree();
        let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults));
        for release in ["srv/releases/1", "srv/releases/2"] {
            fs::create_dir_all(dir.path().join(release)).unwrap();
        }
        std::os::unix::fs::symlink("releases/1", dir.path().join("srv/current")).unwrap();
        let mut config = config();
        let files = config.config.as_mut().unwrap()["storage"]["files"].as_array_mut().unwrap();
        files.push(json!({"path": "/srv/current/conf", "contents": {"source": "data:,x"}}));
        let start = MachineConfigSpec::default();
        let facts = host.probe(&start, &config).unwrap();
        let plan = plan(&start, &config, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
        host.apply(&plan).unwrap();
        fs::hard_link(dir.path().join("etc/plain"), dir.path().join("opt/other-name")).unwrap();
        assert_eq!(host.validate(&config).unwrap(), Ok(()), "{about}");
        let mut watch = watch(&host, &config).with_period(Duration::from_millis(100));
        change(dir.path());
        let DiskEvent::Paths(told) = watch.wait(Some(SOON)).unwrap() else { panic!("{about}: not seen") };
        assert!(told.contains(path), "{about}: {told:?}");
        let drift = host.validate(&config).unwrap().unwrap_err();
        assert!(drift.path() == path, "{about}: {drift}");
        // It is reported only once.
        let again = watch.wait(Some(Duration::from_millis(200))).unwrap();
        assert_eq!(again, DiskEvent::TimedOut, "{about}");
    }
}

#[test]
fn unmanaged_neighbours_are_not_seen_and_the_watch_can_be_stopped() {
    let (dir, host) = mk_applied();
    let mut watch = watch(&host, &config());
    fs::write(dir.path().join("etc/unmanaged"), "x").unwrap();
    fs::write(dir.path().join("etc/systemd/system/unittest.service.d/30-x.conf"), "x").unwrap();
    assert_eq!(watch.wait(Some(Duration::from_millis(200))).unwrap(), DiskEvent::TimedOut);
    let stop = watch.stopper();
    let waiting = std::thread::spawn(move || watch.wait(None).unwrap());
    stop.stop();
    assert_eq!(waiting.join().unwrap(), DiskEvent::Stopped);
}

#[test]
fn before_a_change_only_paths_that_it_does_not_touch_are_compared() {
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
    // The same, if another entry is inserted before the file.
    let entry = json!({"path": "/etc/first", "contents": {"source": "data:,1"}});
    let mut shifted = next.clone();
    shifted.config.as_mut().unwrap()["storage"]["files"].as_array_mut().unwrap().insert(0, entry);
    let drift = host.validate_before(&config(), &shifted).unwrap().unwrap_err();
    assert!(drift.to_string().contains("/etc/deep/er/packed"), "{drift}");
    // A change that removes the file repairs it, too, and so does a change of a unit.
    next.config.as_mut().unwrap()["storage"]["files"].as_array_mut().unwrap().pop();
    next.config.as_mut().unwrap()["systemd"]["units"][0]["enabled"] = json!(false);
    FakeSystemd::new(host.root()).disable(&["unittest.service".to_owned()]).unwrap();
    assert_eq!(host.validate_before(&config(), &next).unwrap(), Ok(()));
    assert!(host.validate(&config()).unwrap().is_err());
}

#[test]
fn an_entry_that_this_version_refuses_does_not_stop_the_drift_check() {
    let (dir, mut host) = mk_applied();
    let mut config = config();
    let files = config.config.as_mut().unwrap()["storage"]["files"].as_array_mut().unwrap();
    files.push(json!({"path": "/etc/odd", "mode": 0o4755, "contents": {"source": "data:,x"}}));
    assert_eq!(host.drifts(&config).unwrap(), []);
    let mut watch = watch(&host, &config);
    fs::write(dir.path().join("etc/plain"), "by hand").unwrap();
    assert_eq!(next(&mut watch), ["/etc/plain"]);
    assert_eq!(host.drifts(&config).unwrap().len(), 1);
}

#[test]
fn a_unit_that_is_enabled_or_masked_in_a_new_folder_is_drift() {
    let (dir, mut host) = mk_applied();
    let mut config = config();
    let text = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=new.target\nAlias=other.service\n";
    let units = config.config.as_mut().unwrap()["systemd"]["units"].as_array_mut().unwrap();
    units.push(json!({"name": "off.service", "contents": text, "enabled": false}));
    units.push(json!({"name": "vendor.service", "enabled": true}));
    let facts = host.probe(&self::config(), &config).unwrap();
    let plan =
        plan(&self::config(), &config, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&plan).unwrap();
    let mut watch = watch(&host, &config);
    FakeSystemd::new(host.root()).enable(&["off.service".to_owned()]).unwrap();
    let seen = next(&mut watch);
    assert!(seen.contains(&"/etc/systemd/system/new.target.wants/off.service".to_owned()), "{seen:?}");
    assert!(seen.contains(&"/etc/systemd/system/other.service".to_owned()), "{seen:?}");
    assert!(matches!(&host.drifts(&config).unwrap()[..], [Drift::Enablement { enabled: false, .. }]));
    FakeSystemd::new(host.root()).disable(&["off.service".to_owned()]).unwrap();
    while !matches!(watch.wait(Some(Duration::from_millis(100))).unwrap(), DiskEvent::TimedOut) {}
    std::os::unix::fs::symlink("/dev/null", dir.path().join("etc/systemd/system/vendor.service")).unwrap();
    assert_eq!(next(&mut watch), ["/etc/systemd/system/vendor.service"]);
    assert!(matches!(&host.drifts(&config).unwrap()[..], [Drift::Enablement { enabled: true, .. }]));
}

#[test]
fn a_wants_folder_that_is_made_later_is_watched() {
    let (dir, host) = mk_applied();
    let config = {
        let mut config = config();
        let units = config.config.as_mut().unwrap()["systemd"]["units"].as_array_mut().unwrap();
        units.push(json!({"name": "vendor.service", "enabled": false}));
        config
    };
    let mut watch = watch(&host, &config);
    let folder = dir.path().join("etc/systemd/system/later.target.wants");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/usr/lib/systemd/system/vendor.service", folder.join("vendor.service"))
        .unwrap();
    let link = "/etc/systemd/system/later.target.wants/vendor.service";
    assert!(next(&mut watch).contains(&link.to_owned()));
    // From now on the path itself is watched.
    while !matches!(watch.wait(Some(Duration::from_millis(100))).unwrap(), DiskEvent::TimedOut) {}
    fs::remove_file(folder.join("vendor.service")).unwrap();
    assert_eq!(next(&mut watch), [link]);
}

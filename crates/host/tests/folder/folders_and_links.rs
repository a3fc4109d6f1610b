//! Folders and links of a config on a running host: created, changed, compared, removed, and rolled back.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host_tree, tree};
use crate::planning::{SKIP, mk};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, Drift, Host, HostPlan, Irreconcilable, Names};
use serde_json::{Value, json};

/// The folder of our own records, which is not compared.
const OURS: &str = "/etc/machine-config-daemon";

pub(crate) fn config(storage: &Value) -> MachineConfigSpec {
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": storage})),
        ..MachineConfigSpec::default()
    }
}

pub(crate) fn planned(host: &mut Host, old: &Value, new: &Value) -> Result<HostPlan, Vec<Irreconcilable>> {
    let (old, new) = (config(old), config(new));
    let facts = host.probe(&old, &new).unwrap();
    let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
    plan(&old, &new, &names, &DisruptionPolicy::empty(), &facts)
}

/// Brings a host from one config to another. The config is then what the host says, and nothing is left to do.
pub(crate) fn go(host: &mut Host, old: &Value, new: &Value) {
    let plan = planned(host, old, new).unwrap_or_else(|bad| panic!("{new}: {bad:?}"));
    host.apply(&plan).unwrap_or_else(|e| panic!("{new}: {e}: {:?}", std::error::Error::source(&e)));
    assert_eq!(host.drifts(&config(new)).unwrap(), [], "{new}");
    let again = planned(host, new, new).unwrap();
    assert_eq!(again.steps.len(), 0, "{new}: {again}");
}

pub(crate) fn host_tree(at: &Path) -> std::collections::BTreeMap<String, String> {
    let mut skip = SKIP.to_vec();
    skip.push(OURS);
    tree(at, &["/"], &skip)
}

#[test]
fn what_a_config_created_is_removed_and_originals_are_restored() {
    if !is_root() {
        return;
    }
    let dirs = |d: Value| json!({"directories": d});
    let links = |l: Value| json!({"links": l});
    let none = json!({});
    let file = |path: &str| json!({"path": path, "contents": {"source": "data:,x"}});
    let rows: [(&str, Value, &str, &str); 9] = [
        ("a new folder", dirs(json!([{"path": "/srv/a/b"}])), "/srv/a/b", "dir 0755 0:0"),
        (
            "with mode and owner",
            dirs(json!([{"path": "/srv/a", "mode": 0o1770, "user": {"name": "core"}, "group": {"id": 4}}])),
            "/srv/a",
            "dir 1770 1000:4",
        ),
        (
            "a folder that the host has",
            dirs(json!([{"path": "/opt", "mode": 0o700, "user": {"id": 1000}}])),
            "/opt",
            "dir 0700 1000:0",
        ),
        (
            "in place of a file",
            dirs(json!([{"path": "/etc/issue.net", "overwrite": true}])),
            "/etc/issue.net",
            "dir 0755 0:0",
        ),
        (
            "a folder with a file in it",
            json!({"directories": [{"path": "/srv/a", "mode": 0o700}], "files": [file("/srv/a/f")]}),
            "/srv/a",
            "dir 0700 0:0",
        ),
        ("a link", links(json!([{"path": "/srv/new/l", "target": "../x"}])), "/srv/new/l", "link ../x"),
        (
            "a link in place of a file",
            links(json!([{"path": "/etc/host.conf", "target": "/srv/h", "overwrite": true}])),
            "/etc/host.conf",
            "link /srv/h",
        ),
        (
            "a hard link to a file of the host's",
            links(json!([{"path": "/srv/hard", "target": "/etc/host.conf", "hard": true}])),
            "/srv/hard",
            "file 0644 0:0",
        ),
        (
            "a hard link to a file of the config",
            json!({"files": [file("/srv/f")], "links": [{"path": "/srv/hard", "target": "/srv/f", "hard": true}]}),
            "/srv/hard",
            "file 0644 0:0",
        ),
    ];
    for (about, storage, path, want) in rows {
        let dir = mk_host_tree();
        let before = host_tree(dir.path());
        let mut host = mk(dir.path());
        go(&mut host, &none, &storage);
        let now = host_tree(dir.path());
        assert!(now[path].starts_with(want), "{about}: {}", now[path]);
        go(&mut host, &storage, &none);
        let mut now = host_tree(dir.path());
        // Folders above a path stay, as they do with files.
        now.retain(|p, what| before.contains_key(p) || *what != "dir 0755 0:0");
        assert_eq!(now, before, "{about}");
    }
}

#[test]
fn a_created_folder_with_foreign_files_stays() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let mut host = mk(dir.path());
    let storage = json!({"directories": [{"path": "/srv/a", "mode": 0o700}, {"path": "/srv/a/b"}]});
    go(&mut host, &json!({}), &storage);
    fs::write(dir.path().join("srv/a/theirs"), "x").unwrap();
    go(&mut host, &storage, &json!({}));
    assert_eq!(fs::read_to_string(dir.path().join("srv/a/theirs")).unwrap(), "x");
    assert!(!dir.path().join("srv/a/b").exists());
}

#[test]
fn a_hard_link_follows_its_file_and_every_change_by_hand_is_drift() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let mut host = mk(dir.path());
    let storage = |text: &str| {
        json!({
            "directories": [{"path": "/srv/d", "mode": 0o750}],
            "files": [{"path": "/srv/f", "contents": {"source": format!("data:,{text}")}}],
            "links": [
                {"path": "/srv/hard", "target": "/srv/f", "hard": true},
                {"path": "/srv/soft", "target": "/srv/f"},
            ],
        })
    };
    go(&mut host, &json!({}), &storage("one"));
    go(&mut host, &storage("one"), &storage("two"));
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    assert_eq!(fs::read_to_string(at("/srv/hard")).unwrap(), "two");
    assert_eq!(fs::metadata(at("/srv/hard")).unwrap().ino(), fs::metadata(at("/srv/f")).unwrap().ino());
    let spec = config(&storage("two"));
    let current = host::CurrentConfig { name: "rendered-worker-1".to_owned(), spec: spec.clone() };
    let mut watch = crate::common::watch(&host, &spec);
    let harm: [(&str, &str, &dyn Fn()); 7] = [
        ("/srv/d", "mode mismatch", &|| {
            fs::set_permissions(at("/srv/d"), fs::Permissions::from_mode(0o777)).unwrap();
        }),
        ("/srv/d", "owner mismatch", &|| {
            std::os::unix::fs::chown(at("/srv/d"), Some(1000), None).unwrap();
            // The config names no owner, so another owner is not drift.
            std::os::unix::fs::lchown(at("/srv/soft"), Some(1000), None).unwrap();
        }),
        ("/srv/d", "could not stat", &|| fs::remove_dir(at("/srv/d")).unwrap()),
        ("/srv/soft", "should be a link to /srv/f", &|| {
            fs::remove_file(at("/srv/soft")).unwrap();
            symlink("/srv/other", at("/srv/soft")).unwrap();
        }),
        ("/srv/soft", "could not stat", &|| fs::remove_file(at("/srv/soft")).unwrap()),
        ("/srv/hard", "another name of /srv/f", &|| {
            fs::remove_file(at("/srv/hard")).unwrap();
            fs::write(at("/srv/hard"), "two").unwrap();
        }),
        ("/srv/hard", "could not stat", &|| fs::remove_file(at("/srv/hard")).unwrap()),
    ];
    for (path, says, harm) in harm {
        harm();
        let host::DiskEvent::Paths(_) = watch.wait(Some(std::time::Duration::from_secs(30))).unwrap() else {
            panic!("{path}, {says}: no drift was found");
        };
        let drifts = host.drifts(&spec).unwrap();
        if says == "owner mismatch" {
            assert!(matches!(&drifts[..], [Drift::Owner { path, .. }] if path == "/srv/soft"), "{drifts:?}");
        } else {
            assert!(drifts.len() == 1 && drifts[0].path() == path, "{drifts:?}");
            assert!(drifts[0].to_string().contains(says), "{drifts:?}");
        }
        let plan = host.plan_repair(&host.drifted(current.clone(), drifts).unwrap(), None).unwrap().unwrap();
        host.apply(&plan).unwrap();
        assert_eq!(host.drifts(&spec).unwrap(), [], "{path}, {says}: {plan}");
        // What the repair itself touched.
        while watch.wait(Some(std::time::Duration::from_millis(100))).unwrap() != host::DiskEvent::TimedOut {}
    }
}

#[test]
fn impossible_entries_are_refused_with_path_and_remedy() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let mut host = mk(dir.path());
    for (about, storage, path, remedy) in [
        (
            "there is a file at this path",
            json!({"directories": [{"path": "/etc/issue.net", "overwrite": false}]}),
            "/etc/issue.net",
            "overwrite",
        ),
        (
            "there is a folder at this path",
            json!({"links": [{"path": "/opt", "target": "/srv"}]}),
            "/opt",
            "move",
        ),
        (
            "there is something at this path",
            json!({"links": [{"path": "/etc/issue.net", "target": "/srv", "overwrite": false}]}),
            "/etc/issue.net",
            "overwrite",
        ),
        (
            "no such file",
            json!({"links": [{"path": "/srv/h", "target": "/srv/none", "hard": true}]}),
            "/srv/h",
            "create the file first",
        ),
        (
            "the daemon's own",
            json!({"directories": [{"path": "/var/lib/machine-config-daemon/x"}]}),
            "storage.directories[0]",
            "path of your own",
        ),
        (
            "a file where a folder is needed",
            json!({"files": [{"path": "/srv/x", "contents": {"source": "data:,"}}], "directories": [{"path": "/srv/x/y"}]}),
            "/srv/x/y",
            "remove one of the two",
        ),
        ("an invalid mode", json!({"directories": [{"path": "/srv/x", "mode": 0o17777}]}), "mode", "07777"),
    ] {
        let bad = planned(&mut host, &json!({}), &storage).unwrap_err();
        let text = bad.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        assert!(text.contains(path) && text.contains(remedy), "{about}: {text}");
    }
}

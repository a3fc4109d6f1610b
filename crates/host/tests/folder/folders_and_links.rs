//! Folders and links of a config on a running host: created, changed, compared, removed, and rolled back.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host, mk_host_tree, tree};
use crate::planning::{SKIP, mk};
use api::v1::MachineConfigSpec;
use host::fault::{Fault, Faults, Point};
use host::{DisruptionPolicy, Drift, FakeOs, Host, HostPlan, Irreconcilable, Names};
use serde_json::{Value, json};

/// The folder of our own records, which is not compared.
const OURS: &str = "/etc/machine-config-daemon";

fn config(storage: &Value) -> MachineConfigSpec {
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": storage})),
        ..MachineConfigSpec::default()
    }
}

fn planned(host: &mut Host, old: &Value, new: &Value) -> Result<HostPlan, Vec<Irreconcilable>> {
    let (old, new) = (config(old), config(new));
    let facts = host.probe(&old, &new).unwrap();
    let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
    plan(&old, &new, &names, &DisruptionPolicy::empty(), &facts)
}

/// Brings a host from one config to another. The config is then what the host says, and nothing is left to do.
fn go(host: &mut Host, old: &Value, new: &Value) {
    let plan = planned(host, old, new).unwrap_or_else(|bad| panic!("{new}: {bad:?}"));
    host.apply(&plan).unwrap_or_else(|e| panic!("{new}: {e}: {:?}", std::error::Error::source(&e)));
    assert_eq!(host.drifts(&config(new)).unwrap(), [], "{new}");
    let again = planned(host, new, new).unwrap();
    assert_eq!(again.steps.len(), 0, "{new}: {again}");
}

fn host_tree(at: &Path) -> std::collections::BTreeMap<String, String> {
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

#[test]
fn a_change_that_fails_leaves_folders_and_hard_links_as_they_were() {
    if !is_root() {
        return;
    }
    let storage = |text: &str, link: bool| {
        let mut out = json!({
            "directories": [{"path": "/srv/d", "mode": if link { 0o700 } else { 0o711 }}],
            "files": [{"path": "/srv/f", "contents": {"source": format!("data:,{text}")}}],
        });
        if link {
            out["directories"].as_array_mut().unwrap().push(json!({"path": "/srv/gone", "mode": 0o1777}));
            out["links"] = json!([{"path": "/srv/hard", "target": "/srv/f", "hard": true}]);
        }
        out
    };
    for new in [storage("two", true), storage("one", false), storage("two", false)] {
        let dir = mk_host_tree();
        let mut host = mk(dir.path());
        let old = storage("one", true);
        go(&mut host, &json!({}), &old);
        let before = host_tree(dir.path());
        let restart = host::FilePolicy {
            path: "/srv".to_owned(),
            actions: vec![host::PolicyAction::restart("chronyd.service")],
        };
        let policy = DisruptionPolicy { files: vec![restart], ..DisruptionPolicy::empty() };
        host::FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
        let facts = host.probe(&config(&old), &config(&new)).unwrap();
        let plan = plan(&config(&old), &config(&new), &Names::default(), &policy, &facts).unwrap();
        let error = host.apply(&plan).unwrap_err();
        assert!(matches!(error, host::Error::Undone { .. }), "{error}");
        assert_eq!(host_tree(dir.path()), before);
        assert_eq!(host.drifts(&config(&old)).unwrap(), []);
    }
}

/// What a service does as it is started.
type AtStart = Box<dyn Fn() + Send + Sync>;

/// A service that does something as it is first started, and fails each time.
struct WritingService(AtStart, std::sync::Once);

impl std::fmt::Debug for WritingService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WritingService")
    }
}

impl Faults for WritingService {
    fn at(&self, p: Point<'_>) -> Result<(), Fault> {
        if p.on == "chronyd.service" && p.before {
            self.1.call_once(|| (self.0)());
            return Err(Fault::Fail(std::io::Error::other("the service has failed")));
        }
        Ok(())
    }
}

/// Tries a change that restarts a service, which does something and fails.
fn fails(at: &Path, old: &Value, new: &Value, does: AtStart) {
    let restart = |path: &str| host::FilePolicy {
        path: path.to_owned(),
        actions: vec![host::PolicyAction::restart("chronyd.service")],
    };
    let policy =
        DisruptionPolicy { files: vec![restart("/srv"), restart("/etc")], ..DisruptionPolicy::empty() };
    let mut host = mk_host(at, &FakeOs::default(), Arc::new(WritingService(does, std::sync::Once::new())));
    let facts = host.probe(&config(old), &config(new)).unwrap();
    let plan = plan(&config(old), &config(new), &Names::default(), &policy, &facts).unwrap();
    let error = host.apply(&plan).unwrap_err();
    assert!(matches!(error, host::Error::Undone { .. }), "{error}: {:?}", std::error::Error::source(&error));
    assert!(!host.has_unfinished_change().unwrap(), "the change is not finished");
}

#[test]
fn a_folder_that_a_service_has_written_to_is_kept_beside_the_restored_file() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let issue = fs::read(at("/etc/issue.net")).unwrap();
    symlink("/etc/issue.net", at("/etc/app.link")).unwrap();
    let new = json!({
        "directories": [{"path": "/etc/issue.net", "overwrite": true}, {"path": "/etc/app.link", "overwrite": true}],
        "files": [{"path": "/srv/f", "contents": {"source": "data:,x"}}],
    });
    // Twice: the second change does not overwrite what the first one kept.
    for times in 1..=2 {
        let (folder, link) = (at("/etc/issue.net"), at("/etc/app.link"));
        let does = move || {
            fs::write(folder.join("theirs"), times.to_string()).unwrap();
            fs::write(link.join("theirs"), times.to_string()).unwrap();
        };
        fails(dir.path(), &json!({}), &new, Box::new(does));
        assert_eq!(fs::read(at("/etc/issue.net")).unwrap(), issue);
        assert_eq!(fs::read_link(at("/etc/app.link")).unwrap(), Path::new("/etc/issue.net"));
        assert!(!at("/srv/f").exists());
        let kept = fs::read_dir(at("/etc")).unwrap().map(|e| e.unwrap().path());
        let mut kept: Vec<_> = kept.filter_map(|p| fs::read_to_string(p.join("theirs")).ok()).collect();
        kept.sort();
        let want: Vec<String> = (1..=times).flat_map(|n| [n.to_string(), n.to_string()]).collect();
        assert_eq!(kept, want);
    }
}

#[test]
fn a_hard_link_with_a_missing_or_replaced_target_does_not_block_an_undo() {
    if !is_root() {
        return;
    }
    let old = json!({
        "files": [{"path": "/srv/f", "contents": {"source": "data:,x"}}],
        "links": [{"path": "/srv/hard", "target": "/etc/theirs", "hard": true}],
    });
    let new = json!({"files": [{"path": "/srv/f", "contents": {"source": "data:,y"}}]});
    for changed in [None, Some("another")] {
        let dir = mk_host_tree();
        let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
        fs::write(at("/etc/theirs"), "theirs").unwrap();
        go(&mut mk(dir.path()), &json!({}), &old);
        let target = at("/etc/theirs");
        let does = move || {
            fs::remove_file(&target).unwrap();
            if let Some(text) = changed {
                fs::write(&target, text).unwrap();
            }
        };
        fails(dir.path(), &old, &new, Box::new(does));
        assert_eq!(fs::read_to_string(at("/srv/hard")).unwrap(), "theirs", "{changed:?}");
        assert_eq!(fs::read_to_string(at("/srv/f")).unwrap(), "x");
        assert_eq!(fs::read_to_string(at("/etc/theirs")).ok().as_deref(), changed);
    }
}

#[test]
fn a_file_is_not_restored_while_the_folder_that_replaced_it_is_not_empty() {
    if !is_root() {
        return;
    }
    let file = |path: &str| json!({"path": path, "contents": {"source": "data:,x"}});
    // Paths in such a folder come after it.
    let first = json!({"directories": [{"path": "/etc/issue.net", "overwrite": true}]});
    let old = json!({
        "directories": [{"path": "/etc/issue.net", "overwrite": true}, {"path": "/etc/issue.net/d"}],
        "files": [file("/etc/issue.net/d/f")],
    });
    let none = json!({});
    let stays = json!({"files": [file("/etc/issue.net/d/f")]});
    for (about, theirs, new, names) in [
        ("another's file", Some("/etc/issue.net/theirs"), &none, "/etc/issue.net/theirs"),
        ("deeper", Some("/etc/issue.net/d/theirs"), &none, "/etc/issue.net/d/theirs"),
        ("a file of the config to come", None, &stays, "/etc/issue.net/d/f"),
    ] {
        let dir = mk_host_tree();
        let before = host_tree(dir.path());
        let mut host = mk(dir.path());
        go(&mut host, &none, &first);
        go(&mut host, &first, &old);
        let theirs = theirs.map(|p| dir.path().join(p.trim_start_matches('/')));
        if let Some(path) = &theirs {
            fs::write(path, "x").unwrap();
        }
        let bad = planned(&mut host, &old, new).unwrap_err();
        assert_eq!(bad.len(), 1, "{about}: {bad:?}");
        assert_eq!(bad[0].path, "/etc/issue.net", "{about}");
        let text = bad[0].to_string();
        assert!(
            text.contains("not empty") && text.contains(&format!("move {names} away")),
            "{about}: {text}"
        );
        // The remedies.
        if let Some(path) = &theirs {
            fs::remove_file(path).unwrap();
        }
        go(&mut host, &old, &none);
        assert_eq!(host_tree(dir.path()), before, "{about}");
    }
}

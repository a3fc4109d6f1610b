//! Changes of folders and links that fail or are undone: everything is as it was, and what a service wrote meanwhile is kept.
//!
//! Not here: changes that succeed (see `folders_and_links`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host, mk_host_tree};
use crate::folders_and_links::{config, go, host_tree, planned};
use crate::planning::mk;
use host::fault::{Fault, Faults, Point};
use host::{DisruptionPolicy, FakeOs, Names};
use serde_json::{Value, json};

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

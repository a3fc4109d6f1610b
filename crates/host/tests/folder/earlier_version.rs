//! A host on which the version before stopped in the middle of a change: this version finishes or undoes what is recorded on
//! the disk, and the version before can read what this version records.
//!
//! `tests/compatibility/VERSION/host-*.json` hold whole hosts as that version left them. They are made once for each
//! release, before the next version is begun, by `cargo test -p host --test folder -- --ignored records`, which writes to
//! `target/compatibility/`.
//!
//! What it is not: damaged and newer journals (see `bad_journal`).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{BySpec as _, is_root, mk_host, mk_host_tree, mk_temp, plan, tree};
use crate::planning::{SKIP, mk};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, FakeOs, Names, RebootStatus, Recovery};
use serde_json::{Value, json};

/// Releases whose hosts this version takes over.
const BEFORE: [&str; 1] = ["v0.1.0"];
const JOURNAL: &str = "var/lib/machine-config-daemon/journal";

/// A change that has a part of every kind: new, changed and private files, units, drop-ins, keys and a password.
fn change() -> MachineConfigSpec {
    let file = |path: &str, mode: u32, text: &str| json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": format!("data:,{text}")}});
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    MachineConfigSpec {
        config: Some(json!({
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [
                file("/etc/issue.net", 0o644, "changed"),
                file("/etc/app/deep/new.conf", 0o600, "new"),
            ]},
            "systemd": {"units": [
                {"name": "new.service", "enabled": true, "contents": unit},
                {"name": "vendor.service", "dropins": [{"name": "10-a.conf", "contents": "[Service]\nNice=1\n"}]},
                {"name": "chronyd.service", "enabled": false},
            ]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"], "passwordHash": "$6$x$y"}]},
        })),
        ..MachineConfigSpec::default()
    }
}

/// Ends the process around the rename by which a change is committed.
#[derive(Debug)]
struct KillAtCommit {
    before: bool,
}

impl host::fault::Faults for KillAtCommit {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        if p.call == "rename" && p.before == self.before { Err(host::fault::Fault::Killed) } else { Ok(()) }
    }
}

/// The moments at which hosts are recorded.
const MOMENTS: [(&str, bool); 2] = [("begun", true), ("committed", false)];

/// Leaves a host as a power cut at this moment leaves it.
fn leave(at: &Path, before: bool) {
    let new = change();
    let mut host = mk_host(at, &FakeOs::default(), Arc::new(KillAtCommit { before }));
    let old = MachineConfigSpec::default();
    let facts = host.probe(&old, &new).unwrap();
    let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
    let plan = plan(&old, &new, &names, &DisruptionPolicy::default(), &facts).unwrap();
    assert!(host.apply(&plan).unwrap_err().killed());
}

/// Everything below a folder: path, mode, owner, and what is there.
fn pack(at: &Path, below: &Path, out: &mut Vec<Value>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(below).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(at).unwrap().to_str().unwrap();
        let mut entry =
            json!({"path": name, "mode": meta.mode() & 0o7777, "uid": meta.uid(), "gid": meta.gid()});
        if meta.is_symlink() {
            entry["link"] = json!(fs::read_link(&path).unwrap());
            out.push(entry);
        } else if meta.is_dir() {
            out.push(entry);
            pack(at, &path, out);
        } else {
            entry["text"] = json!(fs::read_to_string(&path).unwrap());
            out.push(entry);
        }
    }
}

/// Makes such a folder again.
fn unpack(entries: &Value) -> tempfile::TempDir {
    let dir = mk_temp();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = is_root();
    for entry in entries.as_array().unwrap() {
        let path = dir.path().join(entry["path"].as_str().unwrap());
        if let Some(target) = entry["link"].as_str() {
            symlink(target, &path).unwrap();
            continue;
        }
        match entry["text"].as_str() {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::create_dir(&path).unwrap(),
        }
        let of = |key: &str| u32::try_from(entry[key].as_u64().unwrap()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(of("mode"))).unwrap();
        if root {
            chown(&path, Some(of("uid")), Some(of("gid"))).unwrap();
        }
    }
    dir
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recorded(version: &str, moment: &str) -> Value {
    let path = repository().join(format!("tests/compatibility/{version}/host-{moment}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

#[test]
#[ignore = "writes target/compatibility/host-*.json, to be kept when a version is released"]
fn records_what_this_version_leaves_behind() {
    let to = repository().join("target/compatibility");
    fs::create_dir_all(&to).unwrap();
    for (moment, before) in MOMENTS {
        let dir = mk_host_tree();
        leave(dir.path(), before);
        let mut entries = vec![];
        pack(dir.path(), dir.path(), &mut entries);
        let text = serde_json::to_string_pretty(&entries).unwrap();
        fs::write(to.join(format!("host-{moment}.json")), text + "\n").unwrap();
    }
}

#[test]
fn a_change_that_the_version_before_left_is_finished_or_undone() {
    let old = tree(mk_host_tree().path(), &["/"], &SKIP);
    let whole = mk_host_tree();
    leave(whole.path(), false);
    assert!(matches!(mk(whole.path()).recover().unwrap(), Recovery::Finished { .. }));
    // It contains the day of the password's last change.
    let shadow = |dir: &Path| fs::read_to_string(dir.join("etc/shadow")).unwrap();
    let without_shadow = |dir: &Path| tree(dir, &["/"], &[&SKIP[..], &["/etc/shadow"]].concat());
    let new = without_shadow(whole.path());
    assert_ne!(old, new);
    for version in BEFORE {
        for (moment, begun) in MOMENTS {
            let dir = unpack(&recorded(version, moment));
            let mut host = mk(dir.path());
            let recovery = host.recover().unwrap_or_else(|e| panic!("{version}, {moment}: {e}"));
            if begun {
                let now = tree(dir.path(), &["/"], &SKIP);
                let undone = Recovery::Undone { config: "old".to_owned(), desired: "new".to_owned() };
                assert_eq!(recovery, undone, "{version}");
                assert_eq!(now, old, "{version}: not in the state before the change");
            } else {
                assert_eq!(recovery, Recovery::Finished { config: "new".to_owned() }, "{version}");
                let now = without_shadow(dir.path());
                assert_eq!(now, new, "{version}: not in the state after the change");
                assert!(shadow(dir.path()).contains("core:$6$x$y:"), "{version}: the password is lost");
                // These files and units need a reboot. That is recorded too, and still holds.
                let status = host.reboot_status().unwrap();
                let (RebootStatus::Owed(pending) | RebootStatus::Rebooted(pending)) = status else {
                    panic!("{version}: the reboot that the change needs is lost: {status:?}")
                };
                assert_eq!(pending.config, "new", "{version}");
                assert!(!pending.because.is_empty(), "{version}");
            }
            assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{version}, {moment}");
        }
    }
}

/// The names of all fields in a value, with the kind of each; entries of lists count together.
fn shape(value: &Value, at: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| shape(value, &format!("{at}.{key}"), out)),
        Value::Array(list) => list.iter().for_each(|value| shape(value, &format!("{at}[]"), out)),
        Value::Null => {}
        Value::Bool(_) => drop(out.insert(format!("{at}: bool"))),
        Value::Number(_) => drop(out.insert(format!("{at}: number"))),
        Value::String(_) => drop(out.insert(format!("{at}: text"))),
    }
}

/// The fields of the journal and of the records beside it.
fn fields(host: &Path) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let state = host.join(JOURNAL).parent().unwrap().to_owned();
    for (name, path) in [
        ("begin.json", host.join(JOURNAL).join("begin.json")),
        ("done.json", host.join(JOURNAL).join("done.json")),
        ("reboot.json", state.join("reboot.json")),
    ] {
        let Ok(text) = fs::read_to_string(path) else { continue };
        let sealed: Value = serde_json::from_str(&text).unwrap();
        out.insert(format!("{name}: format {}", sealed["format"]));
        shape(&sealed, name, &mut out);
        if let Some(journal) = sealed["journal"].as_str() {
            shape(&serde_json::from_str(journal).unwrap(), &format!("{name}.journal"), &mut out);
        }
    }
    out
}

/// An agent may be taken back to the version before. A field that this version adds, drops or writes in another way needs a
/// decision: a new number of the format (so that the older version leaves the journal alone and says so), and a reader for
/// what was recorded before.
#[test]
fn records_on_the_disk_have_the_fields_of_the_version_before() {
    let version = BEFORE[BEFORE.len() - 1];
    for (moment, before) in MOMENTS {
        let then = unpack(&recorded(version, moment));
        let now = mk_host_tree();
        leave(now.path(), before);
        let (then, now) = (fields(then.path()), fields(now.path()));
        assert!(then.len() > 20, "{then:?}");
        let lost: Vec<_> = then.difference(&now).collect();
        let added: Vec<_> = now.difference(&then).collect();
        assert!(
            lost.is_empty() && added.is_empty(),
            "{moment}: {version} has other fields on the disk; lost: {lost:?}; new: {added:?}. Give the journal a new format \
             number, read the earlier one, and record this version's (see the head of this file)"
        );
    }
}

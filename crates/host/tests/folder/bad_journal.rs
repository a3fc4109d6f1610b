//! Journals and records that are damaged, truncated, of another version or from another program: they are detected and
//! reported, and none of the host's own files is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host, mk_host_tree, tree};
use crate::planning::{SKIP, file, files, interrupted, mk, planned};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, Error, FakeOs, FakeSystemd, Host, Names, Recovery, Root};
use serde_json::json;

#[test]
fn a_damaged_journal_is_reported_and_moved_aside() {
    for damage in ["truncated", "changed", "contents"] {
        let dir = mk_host_tree();
        interrupted(dir.path());
        let journal = dir.path().join("var/lib/machine-config-daemon/journal");
        let name = if damage == "contents" { "undo.data" } else { "begin.json" };
        let bytes = fs::read(journal.join(name)).unwrap();
        let bytes = match damage {
            "truncated" => bytes[..bytes.len() / 2].to_vec(),
            _ => bytes.iter().map(|b| if *b == b'D' { b'd' } else { *b }).collect(),
        };
        if damage == "changed" {
            let text = String::from_utf8(bytes).unwrap().replace("issue", "isues");
            fs::write(journal.join(name), text).unwrap();
        } else {
            fs::write(journal.join(name), bytes).unwrap();
        }
        let mut host = mk(dir.path());
        let error = host.recover().unwrap_err();
        let Error::Journal { kept, .. } = &error else { panic!("{damage}: {error}") };
        assert!(dir.path().join(kept.trim_start_matches('/')).exists(), "{damage}: {error}");
        assert!(error.to_string().contains("apply the current config again"), "{error}");
        // The host's own old contents are kept too.
        let data = dir.path().join(kept.trim_start_matches('/')).with_extension("data");
        assert!(fs::metadata(&data).is_ok_and(|m| m.len() > 0), "{damage}: {}", data.display());
        // The remedy works: the old config is applied again, over whatever the interrupted change left.
        assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{damage}");
        assert!(data.exists(), "{damage}: a later recovery clears it");
        let new = files(&[file("/etc/issue.net"), file("/etc/x")]);
        let old = MachineConfigSpec::default();
        let facts = host.probe(&new, &old).unwrap();
        let plan = plan(&new, &old, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
        host.apply(&plan).unwrap();
        let issue = fs::read_to_string(dir.path().join("etc/issue.net")).unwrap();
        assert_eq!(issue, "Debian GNU/Linux 12\n", "{damage}");
        assert!(!dir.path().join("etc/x").exists(), "{damage}");
    }
}

/// Lets another process read the host in the middle of a change.
#[derive(Debug)]
struct Intruder {
    at: std::path::PathBuf,
    met: std::sync::Mutex<Vec<String>>,
}

impl host::fault::Faults for Intruder {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        if p.call == "rename into place" && p.on == "/etc/x" && !p.before {
            let recovered = mk(&self.at).recover().map_err(|e| e.to_string());
            let empty = MachineConfigSpec::default();
            let mut host = mk(&self.at);
            let plan = planned(&mut host, &empty, &DisruptionPolicy::default()).unwrap();
            let applied = host.apply(&plan).map_err(|e| e.to_string());
            self.met.lock().unwrap().extend([recovered.unwrap_err(), applied.unwrap_err()]);
        }
        Ok(())
    }
}

#[test]
fn a_change_under_way_is_left_alone_by_another_process() {
    let dir = mk_host_tree();
    let at = dir.path().to_owned();
    let faults = Arc::new(Intruder { at, met: std::sync::Mutex::default() });
    let mut host = mk_host(dir.path(), &FakeOs::default(), faults.clone());
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    let met = faults.met.lock().unwrap();
    assert_eq!(met.len(), 2);
    assert!(met.iter().all(|e| e.contains("another process is changing this host")), "{met:?}");
    assert_eq!(fs::read(dir.path().join("etc/x")).unwrap(), b"secret");
    // The lock is released when its holder ends.
    assert_eq!(mk(dir.path()).recover().unwrap(), Recovery::Nothing);
}

#[test]
fn only_root_can_take_the_lock() {
    use rustix::fs::{FlockOperation, flock};
    let dir = mk_host_tree();
    mk(dir.path()).recover().unwrap();
    // A user can lock whatever that user can open.
    let mut open = vec![dir.path().to_owned()];
    let mut held = Vec::new();
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let bits = if meta.is_dir() { 0o005 } else { 0o004 };
        if meta.is_symlink() || meta.permissions().mode() & bits == 0 {
            continue;
        }
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let file = fs::File::open(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        held.push(file);
    }
    assert!(held.len() > 10, "the root folder and its contents");
    let mut host = mk(dir.path());
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    let lock = dir.path().join("var/lib/machine-config-daemon/lock");
    let modes =
        [lock.parent().unwrap(), &lock].map(|p| fs::metadata(p).unwrap().permissions().mode() & 0o7777);
    assert_eq!(modes, [0o700, 0o600]);
    // A folder that somebody has made accessible is made private before the lock is used.
    fs::set_permissions(lock.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    host.recover().unwrap();
    assert_eq!(fs::metadata(lock.parent().unwrap()).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn an_unreadable_reboot_record_is_an_error() {
    let dir = mk_host_tree();
    let state = dir.path().join("var/lib/machine-config-daemon");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("reboot.json"), "{\"config\": \"rendered-").unwrap();
    let error = mk(dir.path()).reboot_status().unwrap_err().to_string();
    assert!(error.contains("reboot.json") && error.contains("remove it, then reboot"), "{error}");
}

/// Records the calls that make changes durable.
#[derive(Debug, Default)]
struct Order(std::sync::Mutex<Vec<String>>);

impl host::fault::Faults for Order {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        if p.before && ["enable", "sync the file system of", "rename"].contains(&p.call) {
            self.0.lock().unwrap().push(format!("{} {}", p.call, p.on));
        }
        Ok(())
    }
}

#[test]
fn enablement_links_are_synced_before_the_change_is_committed() {
    let dir = mk_host_tree();
    let order = Arc::new(Order::default());
    let options = host::Options { sync: true, owners: is_root() };
    let root = Root::open_with(dir.path(), options, order.clone()).unwrap();
    let systemd = FakeSystemd::new(&root);
    let mut host = Host::new(root, Box::new(systemd), Box::new(FakeOs::default()));
    let contents = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let new = MachineConfigSpec {
        config: Some(json!({
            "ignition": {"version": "3.5.0"},
            "systemd": {"units": [{"name": "new.service", "enabled": true, "contents": contents}]},
        })),
        ..MachineConfigSpec::default()
    };
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(
        *order.0.lock().unwrap(),
        [
            "enable new.service",
            "sync the file system of /etc/systemd/system",
            "rename /var/lib/machine-config-daemon/journal/begin.json",
        ]
    );
}

#[test]
fn a_journal_of_a_newer_version_is_left_alone() {
    let dir = mk_host_tree();
    interrupted(dir.path());
    let begin = dir.path().join("var/lib/machine-config-daemon/journal/begin.json");
    let text = fs::read_to_string(&begin).unwrap();
    let newer = text.replace("\"format\":2", "\"format\":8");
    assert_ne!(newer, text);
    fs::write(&begin, &newer).unwrap();
    for _ in 0..2 {
        let error = mk(dir.path()).recover().unwrap_err();
        assert!(matches!(error, Error::JournalNewer { found: 8, known: 7, .. }), "{error}");
        assert!(error.to_string().contains("start that version on this host again"), "{error}");
    }
    assert_eq!(fs::read_to_string(&begin).unwrap(), newer);
    // A journal from before there was a number has the first format.
    fs::write(&begin, text.replace("\"format\":2,", "")).unwrap();
    assert!(matches!(mk(dir.path()).recover().unwrap(), Recovery::Undone { .. }));
}

#[test]
fn a_journal_that_is_cut_or_changed_at_any_byte_is_noticed() {
    let dir = mk_host_tree();
    interrupted(dir.path());
    let journal = dir.path().join("var/lib/machine-config-daemon/journal");
    let whole = fs::read(journal.join("begin.json")).unwrap();
    let mut cases: Vec<Vec<u8>> = (0..whole.len()).map(|n| whole[..n].to_vec()).collect();
    cases.extend((0..whole.len()).map(|i| {
        let mut bytes = whole.clone();
        bytes[i] ^= 1;
        bytes
    }));
    let before = tree(dir.path(), &["/etc"], &[]);
    for bytes in cases {
        fs::write(journal.join("begin.json"), &bytes).unwrap();
        let found = mk(dir.path()).recover();
        match &found {
            Err(Error::Journal { kept, .. }) => {
                // Kept unchanged, for a person to examine.
                let kept = dir.path().join(kept.trim_start_matches('/'));
                assert_eq!(fs::read(&kept).unwrap(), bytes);
                fs::rename(kept.with_extension("data"), journal.join("undo.data")).unwrap();
                fs::remove_file(kept).unwrap();
            }
            Err(Error::JournalNewer { .. }) => {}
            other => panic!("not noticed: {other:?}\n{}", String::from_utf8_lossy(&bytes)),
        }
        assert_eq!(tree(dir.path(), &["/etc"], &[]), before, "a damaged journal changes nothing");
    }
    fs::write(journal.join("begin.json"), &whole).unwrap();
    assert!(matches!(mk(dir.path()).recover().unwrap(), Recovery::Undone { .. }));
}

#[test]
fn a_damaged_backup_is_noticed_and_not_restored() {
    let dir = mk_host_tree();
    interrupted(dir.path());
    let journal = dir.path().join("var/lib/machine-config-daemon/journal");
    let whole = fs::read(journal.join("undo.data")).unwrap();
    let begin = fs::read(journal.join("begin.json")).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x80;
        for bytes in [whole[..at].to_vec(), changed] {
            fs::write(journal.join("undo.data"), &bytes).unwrap();
            fs::write(journal.join("begin.json"), &begin).unwrap();
            let error = mk(dir.path()).recover().unwrap_err();
            assert!(matches!(error, Error::Journal { .. }), "{at}: {error}");
            assert_eq!(fs::read(dir.path().join("etc/issue.net")).unwrap(), b"secret");
        }
    }
}

#[test]
fn a_change_over_an_interrupted_one_undoes_that_and_must_be_planned_again() {
    let dir = mk_host_tree();
    let before = tree(dir.path(), &["/"], &SKIP);
    interrupted(dir.path());
    let mut host = mk(dir.path());
    assert!(host.has_unfinished_change().unwrap());
    // This plan was made from the state that an unfinished change left. It must not be applied after the undo.
    let new = files(&[file("/etc/later")]);
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    let error = host.apply(&plan).unwrap_err();
    assert!(matches!(&error, Error::Interrupted { desired } if desired == "new"), "{error}");
    assert!(!host.has_unfinished_change().unwrap());
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert!(dir.path().join("etc/later").exists());
}

/// Before the fourth format, a journal recorded what two configs want of the operating system. No host could change
/// anything of it then. Such a journal is undone except for that.
#[test]
fn a_journal_without_operating_system_fields_is_undone() {
    use sha2::{Digest, Sha256};
    let dir = mk_host_tree();
    let before = tree(dir.path(), &["/"], &SKIP);
    interrupted(dir.path());
    assert_ne!(tree(dir.path(), &["/"], &SKIP), before);
    let path = dir.path().join("var/lib/machine-config-daemon/journal/begin.json");
    let sealed: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut journal: serde_json::Value = serde_json::from_str(sealed["journal"].as_str().unwrap()).unwrap();
    let os = |image: &str| json!({"image": image, "kernelArguments": ["a"], "kernelType": "default", "extensions": []});
    journal["os"] = json!([os("one"), os("two")]);
    journal["format"] = json!(3);
    let text = journal.to_string();
    let sum = api::formats::text::hex(&Sha256::digest(text.as_bytes()));
    fs::write(&path, json!({"format": 3, "sha256": sum, "journal": text}).to_string()).unwrap();
    assert!(matches!(mk(dir.path()).recover().unwrap(), Recovery::Undone { .. }));
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
}

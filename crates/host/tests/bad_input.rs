//! Whatever is wrong with the host or the config: the host ends in its old state, and the error names the path and
//! what to do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use api::v1::MachineConfigSpec;
use common::{is_root, mk_host, mk_host_tree, tree};
use host::fault::NoFaults;
use host::{
    DisruptionPolicy, Error, FakeOs, FakeSystemd, FilePolicy, Found, Host, HostPlan, Irreconcilable, Names,
    PolicyAction, Recovery, Root, Scope, plan,
};
use serde_json::{Value, json};

const SKIP: [&str; 4] = ["/run", "/var/svc.log", "/var/lib/machine-config-daemon", "/etc/.pwd.lock"];

fn files(files: &[Value]) -> MachineConfigSpec {
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}})),
        ..MachineConfigSpec::default()
    }
}

fn file(path: &str) -> Value {
    json!({"path": path, "contents": {"source": "data:,secret"}})
}

fn mk(at: &Path) -> Host {
    mk_host(at, &FakeOs::default(), Arc::new(NoFaults))
}

fn planned(
    host: &mut Host,
    new: &MachineConfigSpec,
    policy: &DisruptionPolicy,
) -> Result<HostPlan, Vec<Irreconcilable>> {
    let old = MachineConfigSpec::default();
    let facts = host.probe(&old, new).unwrap();
    let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
    plan(&old, new, &names, policy, &facts)
}

/// The one reason why a config is refused, after which nothing has changed.
fn refused(at: &Path, new: &MachineConfigSpec) -> Irreconcilable {
    let before = tree(at, &["/"], &SKIP);
    let bad = planned(&mut mk(at), new, &DisruptionPolicy::default()).unwrap_err();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(tree(at, &["/"], &SKIP), before);
    let text = bad[0].to_string();
    assert!(!bad[0].remedy.is_empty() && !text.contains("secret"), "{text}");
    bad.into_iter().next().unwrap()
}

#[test]
fn a_link_out_of_the_root_leads_nowhere_outside() {
    let dir = mk_host_tree();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("etc/out")).unwrap();
    symlink("../../../../../../../../../../tmp", dir.path().join("etc/up")).unwrap();
    // Nothing of that name is inside the root: a folder cannot be made behind a link.
    let bad = refused(dir.path(), &files(&[file("/etc/out/x")]));
    assert_eq!((bad.path.as_str(), bad.scope), ("/etc/out/x", Scope::Machine));
    assert!(bad.why.contains("/etc/out"), "{bad}");
    // Where it is, the link means that folder, as for the host itself.
    fs::create_dir(dir.path().join("tmp")).unwrap();
    let mut host = mk(dir.path());
    let plan =
        planned(&mut host, &files(&[file("/etc/up/mcd-test-x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::read(dir.path().join("tmp/mcd-test-x")).unwrap(), b"secret");
    assert!(!Path::new("/tmp/mcd-test-x").exists());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn what_is_in_the_way_is_named() {
    let dir = mk_host_tree();
    Command::new("mkfifo").arg(dir.path().join("etc/pipe")).status().unwrap();
    for (path, why) in [
        ("/etc/apt", "a folder stands there"),
        ("/etc/pipe", "a device, socket or pipe stands there"),
        ("/etc/host.conf/inner", "/etc/host.conf is not a folder"),
        ("/etc/host.conf/deeper/inner", "/etc/host.conf is not a folder"),
    ] {
        let bad = refused(dir.path(), &files(&[file(path)]));
        assert_eq!((bad.path.as_str(), bad.why.as_str()), (path, why));
    }
    let both = files(&[file("/etc/new"), file("/etc/new/below")]);
    assert!(refused(dir.path(), &both).why.contains("also wants a file at /etc/new"));
    let nobody = files(&[json!({"path": "/etc/x", "user": {"name": "nobody-here"}})]);
    assert!(refused(dir.path(), &nobody).why.contains("\"nobody-here\" does not exist"));
}

#[test]
fn an_immutable_file_is_refused_before_anything_changes() {
    // Memory file systems have no such attribute.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    let path = dir.path().join("etc/fixed");
    fs::write(&path, "host's").unwrap();
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&path).status().is_ok_and(|s| s.success());
    if !chattr("+i") {
        eprintln!("skipped: immutable files cannot be made here");
        return;
    }
    let bad = planned(&mut mk(dir.path()), &files(&[file("/etc/fixed")]), &DisruptionPolicy::default());
    chattr("-i");
    let bad = bad.unwrap_err();
    assert!(bad[0].why.contains("immutable") && bad[0].remedy.contains("chattr"), "{}", bad[0]);
}

#[test]
fn configs_that_no_running_machine_can_reach_are_refused_with_their_place() {
    let dir = mk_host_tree();
    let config = |section: Value| {
        let mut config = json!({"ignition": {"version": "3.5.0"}});
        config.as_object_mut().unwrap().extend(section.as_object().unwrap().clone());
        MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
    };
    let user = |user: Value| config(json!({"passwd": {"users": [user]}}));
    let unit = |unit: Value| config(json!({"systemd": {"units": [unit]}}));
    for (path, new) in [
        ("spec.config", config(json!({"ignition": {"version": "4.0.0"}}))),
        ("spec.config.passwd.groups", config(json!({"passwd": {"groups": [{"name": "g"}]}}))),
        ("spec.config.kernelArguments", config(json!({"kernelArguments": {"shouldExist": ["quiet"]}}))),
        (
            "spec.config.storage.directories",
            config(json!({"storage": {"directories": [{"path": "/etc/d"}]}})),
        ),
        (
            "spec.config.storage.links",
            config(json!({"storage": {"links": [{"path": "/l", "target": "/t"}]}})),
        ),
        ("spec.fips", MachineConfigSpec { fips: true, ..MachineConfigSpec::default() }),
        ("spec.config.storage.files[0].mode", files(&[json!({"path": "/etc/x", "mode": 2541})])),
        (
            "spec.config.storage.files[0].contents",
            files(&[json!({"path": "/etc/x", "contents": {"source": "https://example.com/x"}})]),
        ),
        (
            "spec.config.storage.files[0].append",
            files(&[json!({"path": "/etc/x", "append": [{"source": "data:,x"}]})]),
        ),
        ("spec.config.storage.files[0].path", files(&[file(host::paths::FORCE_FILE)])),
        ("spec.config.storage.files[0].path", files(&[file(host::paths::CURRENT_CONFIG)])),
        ("spec.config.storage.files[0].path", files(&[file(host::paths::REBOOT_PENDING)])),
        (
            "spec.config.storage.files[0].path",
            files(&[file("/var/lib/machine-config-daemon/journal/undo.data")]),
        ),
        ("spec.config.storage.files[0].path", files(&[file(&host::paths::original("/etc/issue.net"))])),
        ("spec.config.passwd.users[0]", user(json!({"name": "bob", "sshAuthorizedKeys": ["k"]}))),
        (
            "spec.config.passwd.users[0]",
            user(json!({"name": "core", "homeDir": "/x", "sshAuthorizedKeys": ["k"]})),
        ),
        ("spec.config.passwd.users[0]", user(json!({"name": "core"}))),
        (
            "spec.config.systemd.units[0]",
            unit(json!({"name": "crio.service", "mask": true, "enabled": true})),
        ),
        (
            "spec.config.systemd.units[0]",
            unit(json!({"name": "w@.service", "enabled": true,
                "contents": "[Service]\nExecStart=/x\n[Install]\nWantedBy=a.target\n"})),
        ),
    ] {
        assert_eq!(refused(dir.path(), &new).path, path, "{:?}", new.config);
    }
}

fn restart_policy(service: &str) -> DisruptionPolicy {
    DisruptionPolicy::default().merge(&DisruptionPolicy {
        files: vec![FilePolicy { path: "/etc/x".to_owned(), actions: vec![PolicyAction::restart(service)] }],
        ..DisruptionPolicy::empty()
    })
}

#[test]
fn a_service_that_does_not_restart_takes_the_whole_change_back() {
    let dir = mk_host_tree();
    let before = tree(dir.path(), &["/"], &SKIP);
    let mut host = mk(dir.path());
    FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &restart_policy("chronyd.service")).unwrap();
    let error = host.apply(&plan).unwrap_err();
    assert!(matches!(&error, Error::Undone { step, .. } if step == "restart chronyd.service"), "{error}");
    assert!(error.disturbed_services());
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
    // After the cause is gone the same plan goes through.
    FakeSystemd::new(host.root()).set_failing("chronyd.service", false).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(host.current_config().unwrap().unwrap().name, "new");
}

#[test]
fn a_service_that_the_host_does_not_have_is_a_mistake_unless_a_default_names_it() {
    let dir = mk_host_tree();
    let bad = planned(&mut mk(dir.path()), &files(&[file("/etc/x")]), &restart_policy("nowhere.service"));
    let bad = bad.unwrap_err();
    assert_eq!(bad[0].path, "nowhere.service");
    assert!(bad[0].why.contains("/etc/x"), "{}", bad[0]);

    fs::remove_file(dir.path().join("etc/systemd/system/crio.service")).unwrap();
    let policy_json = files(&[file("/etc/containers/policy.json")]);
    let plan = planned(&mut mk(dir.path()), &policy_json, &DisruptionPolicy::default()).unwrap();
    assert!(plan.disruption.is_none(), "{}", plan.disruption);
    assert!(plan.notes.iter().any(|n| n.contains("crio.service is not on this host")), "{:?}", plan.notes);
}

/// Leaves a change half-way, with its journal.
fn interrupted(at: &Path) {
    #[derive(Debug)]
    struct KillAtCommit;
    impl host::fault::Faults for KillAtCommit {
        fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
            if p.call == "rename" { Err(host::fault::Fault::Killed) } else { Ok(()) }
        }
    }
    let mut host = mk_host(at, &FakeOs::default(), Arc::new(KillAtCommit));
    let new = files(&[file("/etc/issue.net"), file("/etc/x")]);
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    assert!(host.apply(&plan).unwrap_err().killed());
}

#[test]
fn a_damaged_journal_is_told_kept_and_out_of_the_way() {
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
        // What the host itself had is kept too.
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

#[test]
fn a_change_that_does_not_fit_is_refused_before_it_begins() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|s| s.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    fs::create_dir(dir.path().join("etc")).unwrap();
    let text = "x".repeat(400 * 1024);
    let new = files(&[json!({"path": "/etc/x", "contents": {"source": format!("data:,{text}")}})]);
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    let error = host.apply(&plan).unwrap_err();
    let left = tree(dir.path(), &["/"], &SKIP);
    drop(host);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    assert!(matches!(&error, Error::NoSpace { need, free, .. } if need > free), "{error}");
    assert_eq!(left.keys().collect::<Vec<_>>(), ["/etc"], "{left:?}");
}

#[test]
fn a_keys_folder_that_is_not_cores_own_is_replaced_and_comes_back_when_undone() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let ssh = dir.path().join("home/core/.ssh");
    fs::create_dir(&ssh).unwrap();
    fs::write(ssh.join("config"), "root's").unwrap();
    let before = tree(dir.path(), &["/"], &SKIP);
    let new = MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA x"]}]}})),
        ..MachineConfigSpec::default()
    };
    let policy = DisruptionPolicy {
        sshkey: host::KeyPolicy { actions: vec![PolicyAction::restart("chronyd.service")] },
        ..DisruptionPolicy::default()
    };
    let mut host = mk(dir.path());
    FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
    let plan = planned(&mut host, &new, &policy).unwrap();
    assert!(host.apply(&plan).is_err());
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
    FakeSystemd::new(host.root()).set_failing("chronyd.service", false).unwrap();
    host.apply(&plan).unwrap();
    let root: &Root = host.root();
    assert!(matches!(root.found("/home/core/.ssh/config").unwrap(), Found::Absent));
    assert!(matches!(
        root.found("/home/core/.ssh").unwrap(),
        Found::Dir { mode: 0o700, uid: 1000, gid: 1000 }
    ));
    let names = root.list("/home/core").unwrap();
    assert_eq!(names, [".ssh"], "something is left beside it");
}

/// Lets another process look at the host in the middle of a change.
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
    // With its end the lock is gone.
    assert_eq!(mk(dir.path()).recover().unwrap(), Recovery::Nothing);
}

#[test]
fn a_record_of_a_reboot_that_cannot_be_read_is_not_taken_as_none() {
    let dir = mk_host_tree();
    let state = dir.path().join("var/lib/machine-config-daemon");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("reboot.json"), "{\"config\": \"rendered-").unwrap();
    let error = mk(dir.path()).reboot_status().unwrap_err().to_string();
    assert!(error.contains("reboot.json") && error.contains("remove it, then reboot"), "{error}");
}

#[test]
fn what_stands_where_something_would_be_moved_aside_is_not_taken_for_it() {
    let dir = mk_host_tree();
    let home = dir.path().join("home/core");
    fs::write(home.join(".ssh"), "a file of core's").unwrap();
    let keys = MachineConfigSpec {
        config: Some(json!({
            "ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"]}]},
        })),
        ..MachineConfigSpec::default()
    };
    let plan = planned(&mut mk(dir.path()), &keys, &DisruptionPolicy::default()).unwrap();
    let aside = plan.steps.iter().find_map(|s| match s {
        host::Step::MoveAside { to, .. } => Some(to.clone()),
        _ => None,
    });
    let aside = aside.unwrap();
    fs::create_dir(dir.path().join(aside.trim_start_matches('/'))).unwrap();
    let before = tree(dir.path(), &["/"], &SKIP);
    let error = mk(dir.path()).apply(&plan).unwrap_err().to_string();
    assert!(error.contains(&aside) && error.contains("move it away"), "{error}");
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
    assert_eq!(mk(dir.path()).recover().unwrap(), Recovery::Nothing);
}

/// Notes the calls that count for what the disk knows.
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
fn links_that_systemd_made_are_on_the_disk_before_the_change_counts_as_through() {
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
fn a_file_of_the_hosts_own_comes_back_with_its_extended_attributes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let dir = mk_host_tree();
    let path = dir.path().join("etc/issue.net");
    let (own, label) = ("user.of-the-host", "security.selinux");
    if setxattr(&path, own, b"kept", XattrFlags::empty()).is_err() {
        eprintln!("skipped: this file system has no extended attributes");
        return;
    }
    let labels = setxattr(&path, label, b"special_t", XattrFlags::empty()).is_ok();
    let read = |name: &str| {
        let mut value = [0; 64];
        getxattr(&path, name, &mut value).ok().map(|n| value[..n].to_vec())
    };
    let managed = files(&[file("/etc/issue.net")]);
    // Undone by the journal.
    interrupted(dir.path());
    assert_eq!(read(own), None);
    mk(dir.path()).recover().unwrap();
    assert_eq!(read(own).as_deref(), Some(&b"kept"[..]));
    // Given up by a later config.
    let mut host = mk(dir.path());
    let there = planned(&mut host, &managed, &DisruptionPolicy::default()).unwrap();
    host.apply(&there).unwrap();
    assert_eq!(read(own), None, "it is another file now");
    assert!(!labels || read(label).as_deref() == Some(&b"special_t"[..]), "{:?}", read(label));
    let none = MachineConfigSpec::default();
    let facts = host.probe(&managed, &none).unwrap();
    let back = plan(&managed, &none, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&back).unwrap();
    assert_eq!(read(own).as_deref(), Some(&b"kept"[..]));
    assert!(!labels || read(label).as_deref() == Some(&b"special_t"[..]));
}

fn core(keys: &[&str], hash: Option<&str>) -> MachineConfigSpec {
    let mut user = json!({"name": "core", "sshAuthorizedKeys": keys});
    if let Some(hash) = hash {
        user["passwordHash"] = json!(hash);
    }
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "passwd": {"users": [user]}})),
        ..MachineConfigSpec::default()
    }
}

/// Does something at the first call of a kind on a path.
struct Meanwhile<F> {
    call: &'static str,
    on: &'static str,
    then: std::sync::Mutex<Option<F>>,
}

impl<F> std::fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.on)
    }
}

impl<F: FnOnce() + Send> host::fault::Faults for Meanwhile<F> {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        if p.before
            && p.call == self.call
            && p.on == self.on
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        Ok(())
    }
}

fn meanwhile<F: FnOnce() + Send + 'static>(
    call: &'static str,
    on: &'static str,
    then: F,
) -> Arc<dyn host::fault::Faults> {
    Arc::new(Meanwhile { call, on, then: std::sync::Mutex::new(Some(then)) })
}

#[test]
fn a_user_who_swaps_a_folder_for_a_link_leads_nobody_out_of_it() {
    if !is_root() {
        return;
    }
    let keys = "/home/core/.ssh/authorized_keys.d";
    for (call, on) in [
        ("set mode and owner of the folder", "/home/core/.ssh/authorized_keys.d"),
        ("rename", "/var/lib/machine-config-daemon/journal/begin.json"),
        ("create a temporary file for", "/var/lib/machine-config-daemon/journal/begin.json"),
    ] {
        let dir = mk_host_tree();
        let at = dir.path().to_owned();
        fs::create_dir(at.join("etc/target")).unwrap();
        let swap = move || {
            let folder = at.join(keys.trim_start_matches('/'));
            let _ = fs::remove_dir_all(&folder);
            if folder.parent().unwrap().exists() {
                symlink("/etc/target", &folder).unwrap();
                std::os::unix::fs::lchown(&folder, Some(1000), Some(1000)).unwrap();
            }
        };
        let mut host = mk_host(dir.path(), &FakeOs::default(), meanwhile(call, on, swap));
        let plan = planned(&mut host, &core(&["ssh-ed25519 AAAA x"], None), &DisruptionPolicy::default());
        let done = host.apply(&plan.unwrap());
        assert_eq!(fs::read_dir(dir.path().join("etc/target")).unwrap().count(), 0, "{call}: {done:?}");
    }
}

#[test]
fn links_of_other_users_are_not_followed_and_roots_own_are() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("srv/real")).unwrap();
    symlink("real/../real", at("srv/relative")).unwrap();
    symlink("/srv/relative", at("srv/absolute")).unwrap();
    symlink("loop", at("srv/loop")).unwrap();
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &files(&[file("/srv/absolute/x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::read(at("srv/real/x")).unwrap(), b"secret");
    std::os::unix::fs::lchown(at("srv/relative"), Some(1000), Some(1000)).unwrap();
    let new = files(&[file("/srv/absolute/y")]);
    let error = mk(dir.path()).probe(&MachineConfigSpec::default(), &new).unwrap_err();
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(
        text.contains("/srv/absolute/y") && text.contains("relative is a link that belongs to user 1000"),
        "{text}"
    );
    assert!(text.contains("chown -h"), "{text}");
    let error =
        mk(dir.path()).probe(&MachineConfigSpec::default(), &files(&[file("/srv/loop/y")])).unwrap_err();
    assert!(error.to_string().contains("remove the looping link"), "{error}");
}

#[test]
fn a_password_is_taken_back_alone_and_somebody_elses_is_left() {
    if !is_root() {
        return;
    }
    let policy = DisruptionPolicy {
        sshkey: host::KeyPolicy { actions: vec![PolicyAction::restart("chronyd.service")] },
        ..DisruptionPolicy::default()
    };
    let other = "bob:$6$bob:20001:0:99999:7:::\n";
    for (about, meanwhile_core) in [("another user is added", None), ("core's is changed", Some("$6$new"))] {
        let dir = mk_host_tree();
        let shadow = dir.path().join("etc/shadow");
        let before = fs::read_to_string(&shadow).unwrap();
        let at = shadow.clone();
        let change = move || {
            let mut text = fs::read_to_string(&at).unwrap() + other;
            if let Some(hash) = meanwhile_core {
                text = text.replace("$6$ours", hash);
            }
            fs::write(&at, text).unwrap();
        };
        let faults = meanwhile("restart", "chronyd.service", change);
        let mut host = mk_host(dir.path(), &FakeOs::default(), faults);
        FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
        let plan = planned(&mut host, &core(&["k"], Some("$6$ours")), &policy).unwrap();
        assert!(matches!(host.apply(&plan).unwrap_err(), Error::Undone { .. }), "{about}");
        let now = fs::read_to_string(&shadow).unwrap();
        assert!(now.ends_with(other), "{about}: {now}");
        match meanwhile_core {
            None => assert_eq!(now, before.clone() + other),
            Some(hash) => assert!(now.contains(&format!("core:{hash}:")), "{now}"),
        }
    }
}

#[test]
fn a_journal_of_a_newer_version_is_left_for_it() {
    let dir = mk_host_tree();
    interrupted(dir.path());
    let begin = dir.path().join("var/lib/machine-config-daemon/journal/begin.json");
    let text = fs::read_to_string(&begin).unwrap();
    let newer = text.replace("\"format\":1", "\"format\":2");
    assert_ne!(newer, text);
    fs::write(&begin, &newer).unwrap();
    for _ in 0..2 {
        let error = mk(dir.path()).recover().unwrap_err();
        assert!(matches!(error, Error::JournalNewer { found: 2, known: 1, .. }), "{error}");
        assert!(error.to_string().contains("start that version on this host again"), "{error}");
    }
    assert_eq!(fs::read_to_string(&begin).unwrap(), newer);
    // One from before there was a number is of the first format.
    fs::write(&begin, text.replace("\"format\":1,", "")).unwrap();
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
                // As it was found, for a person to look at.
                let kept = dir.path().join(kept.trim_start_matches('/'));
                assert_eq!(fs::read(&kept).unwrap(), bytes);
                fs::rename(kept.with_extension("data"), journal.join("undo.data")).unwrap();
                fs::remove_file(kept).unwrap();
            }
            Err(Error::JournalNewer { .. }) => {}
            other => panic!("not noticed: {other:?}\n{}", String::from_utf8_lossy(&bytes)),
        }
        assert_eq!(tree(dir.path(), &["/etc"], &[]), before, "nothing is done by a damaged journal");
    }
    fs::write(journal.join("begin.json"), &whole).unwrap();
    assert!(matches!(mk(dir.path()).recover().unwrap(), Recovery::Undone { .. }));
}

#[test]
fn old_contents_that_are_cut_or_changed_are_noticed_and_nothing_is_put_in_their_place() {
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
fn neighbours_with_odd_names_and_a_large_file_of_the_hosts_own_are_no_trouble() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for d in ["etc/systemd/system/multi-user.target.wants", "etc/odd", "run", "var/lib"] {
        fs::create_dir_all(dir.path().join(d)).unwrap();
    }
    let names: [&[u8]; 5] = [b"new\nline", b"\xff\xfe", b"back\\slash", b" ", b"-rf"];
    for folder in ["etc/odd", "etc/systemd/system", "etc/systemd/system/multi-user.target.wants"] {
        for name in names {
            fs::write(dir.path().join(folder).join(std::ffi::OsStr::from_bytes(name)), "theirs").unwrap();
        }
    }
    // 100 MiB, of which most is a hole: as long for us as if it were not.
    let large = fs::File::create(dir.path().join("etc/odd/large")).unwrap();
    large.set_len(100 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&large, b"end", (100 << 20) - 3).unwrap();
    let mut host = mk(dir.path());
    let new = files(&[file("/etc/odd/large"), file("/etc/odd/new\nline"), file("/etc/odd/other")]);
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::read(dir.path().join("etc/odd/new\nline")).unwrap(), b"secret");
    let old = MachineConfigSpec::default();
    let facts = host.probe(&new, &old).unwrap();
    let back = host::plan(&new, &old, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&back).unwrap();
    let large = fs::metadata(dir.path().join("etc/odd/large")).unwrap();
    assert_eq!(large.len(), 100 << 20);
    assert_eq!(fs::read(dir.path().join("etc/odd/new\nline")).unwrap(), b"theirs");
    for folder in ["etc/odd", "etc/systemd/system", "etc/systemd/system/multi-user.target.wants"] {
        for name in names {
            let at = dir.path().join(folder).join(std::ffi::OsStr::from_bytes(name));
            assert_eq!(fs::read(&at).unwrap(), b"theirs", "{at:?}");
        }
    }
}

#[test]
fn the_room_that_kept_originals_take_is_counted_too() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|s| s.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    fs::create_dir(dir.path().join("etc")).unwrap();
    // Twice it would fit, for the journal; three times, with the original that is kept, it does not.
    fs::write(dir.path().join("etc/x"), "x".repeat(800 * 1024)).unwrap();
    let before = tree(dir.path(), &["/"], &SKIP);
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &DisruptionPolicy::default()).unwrap();
    let error = host.apply(&plan).unwrap_err();
    let after = tree(dir.path(), &["/"], &SKIP);
    drop(host);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    assert!(matches!(&error, Error::NoSpace { .. }), "{error}");
    assert_eq!(after, before);
}

#[test]
fn what_is_private_shows_neither_contents_nor_hash() {
    let dir = mk_host_tree();
    let new = files(&[
        json!({"path": "/etc/private", "mode": 0o600, "contents": {"source": "data:,hunter2"}}),
        json!({"path": "/etc/public", "mode": 0o644, "contents": {"source": "data:,hello"}}),
    ]);
    let plan = planned(&mut mk(dir.path()), &new, &DisruptionPolicy::default()).unwrap();
    let shown = format!("{plan}\n{plan:?}\n{}", serde_json::to_string(&plan).unwrap());
    // SHA-256 of "hunter2" and of "hello".
    assert!(!shown.contains("hunter2") && !shown.contains("f52fbd32b2b3"), "{shown}");
    assert!(
        plan.to_string().contains("/etc/public <5 bytes> mode 0644 owner 0:0 sha256 2cf24dba5fb0"),
        "{plan}"
    );
}

//! Who can log in after a change: keys and passwords, and how an undo restores them.
//!
//! What it is not: the SSH server's configuration (see `sshd`), or the agent's own watch of logins (see `daemon`).

use std::fs;

use crate::common::BySpec as _;
use crate::common::{is_root, mk_host, mk_host_tree, tree};
use crate::planning::{SKIP, core, file, meanwhile, mk, planned};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, Error, FakeOs, FakeSystemd, PathState, PolicyAction, Root};
use serde_json::json;

#[test]
fn a_keys_folder_of_another_owner_is_replaced_and_restored_by_the_undo() {
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
    assert!(matches!(root.found("/home/core/.ssh/config").unwrap(), PathState::Absent));
    assert!(matches!(
        root.found("/home/core/.ssh").unwrap(),
        PathState::Dir { mode: 0o700, uid: 1000, gid: 1000 }
    ));
    let names = root.list("/home/core").unwrap();
    assert_eq!(names, [".ssh"], "another file is left beside it");
}

/// A host with an SSH server as Debian installs it, or with another configuration.
pub(crate) fn mk_with_sshd(config: &str) -> tempfile::TempDir {
    let dir = mk_host_tree();
    fs::create_dir_all(dir.path().join("etc/ssh/sshd_config.d")).unwrap();
    fs::write(dir.path().join("etc/ssh/sshd_config"), config).unwrap();
    let unit = "[Service]\nExecStart=/bin/true\nExecReload=/bin/true\n";
    fs::write(dir.path().join("usr/lib/systemd/system/ssh.service"), unit).unwrap();
    dir
}

pub(crate) fn go(host: &mut host::Host, old: &MachineConfigSpec, new: &MachineConfigSpec) -> host::HostPlan {
    let facts = host.probe(old, new).unwrap();
    let names = host::Names { current: "old".to_owned(), desired: "new".to_owned() };
    let plan = crate::common::plan(old, new, &names, &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&plan).unwrap();
    plan
}

#[test]
fn the_removal_of_the_last_login_is_warned_of() {
    if !is_root() {
        return;
    }
    let stock = "Include /etc/ssh/sshd_config.d/*.conf\n";
    let none = MachineConfigSpec::default;
    for (about, own, shadow, other_keys, sshd, new, warned) in [
        ("the user goes", "# no key\n", "", "", stock, none(), true),
        ("a password stays", "", "", "", stock, core(&[], Some("$6$a$b")), false),
        ("core has a key of its own", "ssh-ed25519 A own\n", "", "", stock, none(), false),
        ("another user has a password", "", "bob:$6$x$y:1::::::\n", "", stock, none(), false),
        // Other users' home folders may be on file servers that do not answer.
        ("another user's home is not asked", "", "", "ssh-ed25519 B bob\n", stock, none(), true),
        (
            "keys that no server reads",
            "",
            "",
            "",
            "AuthorizedKeysFile /keys/%u\n",
            core(&["ssh-ed25519 TWO x"], None),
            true,
        ),
    ] {
        let dir = mk_with_sshd(sshd);
        let at = |path: &str| dir.path().join(path);
        let append = |path: &str, text: &str| {
            let old = fs::read_to_string(at(path)).unwrap_or_default();
            fs::write(at(path), old + text).unwrap();
        };
        append("etc/passwd", "bob:x:1001:1001::/home/bob:/bin/sh\n");
        append("etc/shadow", shadow);
        for (home, keys, id) in [("home/core", own, 1000), ("home/bob", other_keys, 1001)] {
            fs::create_dir_all(at(home).join(".ssh")).unwrap();
            std::os::unix::fs::chown(at(home).join(".ssh"), Some(id), Some(id)).unwrap();
            fs::write(at(home).join(".ssh/authorized_keys"), keys).unwrap();
        }
        let mut host = mk(dir.path());
        let old = core(&["ssh-ed25519 ONE x"], None);
        go(&mut host, &none(), &old);
        let facts = host.probe(&old, &new).unwrap();
        let names = host::Names::default();
        let plan = crate::common::plan(&old, &new, &names, &DisruptionPolicy::default(), &facts).unwrap();
        assert_eq!(!plan.warnings.is_empty(), warned, "{about}: {plan}");
    }
}

#[test]
fn a_password_counts_as_a_login() {
    if !is_root() {
        return;
    }
    for (about, root_key, warned) in
        [("nobody else", "# none\n", true), ("root has a key", "ssh-ed25519 R r\n", false)]
    {
        let dir = mk_with_sshd("");
        fs::create_dir_all(dir.path().join("root/.ssh")).unwrap();
        fs::write(dir.path().join("root/.ssh/authorized_keys"), root_key).unwrap();
        let mut host = mk(dir.path());
        let (none, old) = (MachineConfigSpec::default(), core(&[], Some("$6$a$b")));
        go(&mut host, &none, &old);
        let plan = go(&mut host, &old, &none);
        assert_eq!(!plan.warnings.is_empty(), warned, "{about}: {plan}");
    }
}

/// A config with a key of core and more of `storage`.
pub(crate) fn with_storage(storage: &serde_json::Value) -> MachineConfigSpec {
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": storage,
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 ONE x"]}]}})),
        ..MachineConfigSpec::default()
    }
}

#[test]
fn only_a_password_that_the_change_set_is_undone() {
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

/// A folder on an unreachable file server: a FUSE file system whose program never answers. It is unmounted on drop.
struct DeadFileServer {
    holder: std::process::Child,
    at: std::path::PathBuf,
}

impl DeadFileServer {
    fn mount(at: &std::path::Path) -> Option<Self> {
        let script = "exec 9<>/dev/fuse || exit 1; \
            mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 none \"$0\" || exit 1; echo mounted; exec sleep 600";
        let mut holder = std::process::Command::new("sh")
            .args(["-c", script])
            .arg(at)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut out = std::io::BufReader::new(holder.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut said).unwrap();
        if said != "mounted\n" {
            holder.wait().unwrap();
            return None;
        }
        Some(Self { holder, at: at.to_owned() })
    }
}

impl Drop for DeadFileServer {
    fn drop(&mut self) {
        // When the last handle is closed the connection ends, and every waiting call fails.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let done = std::process::Command::new("umount").arg("-l").arg(&self.at).status();
        if !done.is_ok_and(|s| s.success()) {
            eprintln!("{} is left mounted", self.at.display());
        }
    }
}

#[test]
fn a_home_on_an_unreachable_server_blocks_no_check_and_no_other_change() {
    if !is_root() {
        return;
    }
    let dir = mk_with_sshd("Include /etc/ssh/sshd_config.d/*.conf\n");
    let (none, keys) = (MachineConfigSpec::default(), core(&["ssh-ed25519 ONE x"], None));
    let mut host = mk(dir.path());
    go(&mut host, &none, &keys);
    let Some(gone) = DeadFileServer::mount(&dir.path().join("home/core")) else {
        eprintln!("skipped: a file system of FUSE cannot be mounted here");
        return;
    };
    // In a thread, so that an inspection that hangs fails the test instead of blocking it.
    let (said, answers) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let drifts = host.drifts(&keys).unwrap();
        said.send(format!("drift {drifts:?}")).unwrap();
        let mut more = with_storage(&json!({"files": [file("/etc/other")]}));
        let names = host::Names::default();
        let facts = host.probe(&keys, &more).unwrap();
        let plan = crate::common::plan(&keys, &more, &names, &DisruptionPolicy::default(), &facts).unwrap();
        host.apply(&plan).unwrap();
        said.send("another file is written".to_owned()).unwrap();
        more.config.as_mut().unwrap()["passwd"]["users"][0]["sshAuthorizedKeys"] =
            json!(["ssh-ed25519 TWO x"]);
        let facts = host.probe(&keys, &more).unwrap();
        let bad =
            crate::common::plan(&keys, &more, &names, &DisruptionPolicy::default(), &facts).unwrap_err();
        said.send(bad.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")).unwrap();
    });
    let next = || answers.recv_timeout(std::time::Duration::from_secs(60)).expect("it hangs");
    assert_eq!(next(), "drift []");
    assert_eq!(next(), "another file is written");
    let bad = next();
    assert!(
        bad.contains("/home/core has not answered within 5 s") && bad.contains("findmnt -T /home/core"),
        "{bad}"
    );
    assert_eq!(bad.lines().count(), 1, "{bad}");
    drop(gone);
    thread.join().unwrap();
}

//! The configuration of the SSH server: the drop-in that makes it read the keys, what it must not break, and drift of it.
//!
//! Not here: keys and passwords themselves (see `logins`).

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use crate::common::BySpec as _;
use crate::common::{is_root, tree};
use crate::logins::{go, mk_with_sshd, with_storage};
use crate::planning::{SKIP, core, file, files, mk, planned};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, Error, FakeSystemd, PolicyAction};
use serde_json::json;

#[test]
fn keys_work_with_a_stock_sshd_and_stop_working_when_removed() {
    const DROPIN: &str = "etc/ssh/sshd_config.d/00-machine-config-keys.conf";
    const OWN: &str = "home/core/.ssh/authorized_keys";
    if !is_root() {
        return;
    }
    let stock = "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n";
    let read = "AuthorizedKeysFile .ssh/authorized_keys.d/ignition\n";
    for (about, config, dropin, block) in [
        ("Debian's", stock, true, false),
        ("without drop-ins", "UsePAM yes\n", false, true),
        ("that looks at them", read, false, false),
    ] {
        let dir = mk_with_sshd(config);
        let at = |path: &str| dir.path().join(path);
        fs::create_dir(at("home/core/.ssh")).unwrap();
        fs::write(at(OWN), "ssh-ed25519 OWN mine\n").unwrap();
        for path in ["home/core/.ssh", OWN] {
            std::os::unix::fs::chown(at(path), Some(1000), Some(1000)).unwrap();
        }
        let mut host = mk(dir.path());
        let (one, two) = (core(&["ssh-ed25519 ONE x"], None), core(&["ssh-ed25519 TWO x"], None));
        let none = MachineConfigSpec::default();
        let plan = go(&mut host, &none, &one);
        assert!(plan.warnings.is_empty(), "{about}: {plan}");
        assert_eq!(plan.to_string().contains("reload ssh.service, if it runs"), dropin, "{about}: {plan}");
        assert_eq!(at(DROPIN).exists(), dropin, "{about}: {plan}");
        let text = |path: &str| fs::read_to_string(at(path)).unwrap();
        assert_eq!(text(OWN).contains("ONE"), block, "{about}");
        let again = go(&mut host, &one, &one);
        assert!(again.is_empty(), "{about}: {again}");
        go(&mut host, &one, &two);
        let keys = (text(OWN).contains("TWO"), text(OWN).contains("ONE"));
        assert_eq!((at(DROPIN).exists(), keys), (dropin, (block, false)), "{about}");
        go(&mut host, &two, &none);
        assert!(!at(DROPIN).exists(), "{about}");
        assert_eq!(text(OWN), "ssh-ed25519 OWN mine\n", "{about}");
        assert_eq!(text("home/core/.ssh/authorized_keys.d/ignition"), "", "{about}");
    }
}

#[test]
fn the_sshd_drop_in_is_undone_with_a_failed_change() {
    if !is_root() {
        return;
    }
    for config in ["Include /etc/ssh/sshd_config.d/*.conf\n", "UsePAM yes\n"] {
        let dir = mk_with_sshd(config);
        let before = tree(dir.path(), &["/"], &SKIP);
        let policy = DisruptionPolicy {
            sshkey: host::KeyPolicy { actions: vec![PolicyAction::restart("chronyd.service")] },
            ..DisruptionPolicy::default()
        };
        let mut host = mk(dir.path());
        FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
        // A server that fails to reload must not block the change.
        FakeSystemd::new(host.root()).set_failing("ssh.service", true).unwrap();
        let plan = planned(&mut host, &core(&["ssh-ed25519 ONE x"], None), &policy).unwrap();
        assert!(matches!(host.apply(&plan).unwrap_err(), Error::Undone { .. }));
        assert_eq!(tree(dir.path(), &["/"], &SKIP), before, "{config}");
    }
}

#[test]
fn keys_are_checked_against_the_sshd_configuration_after_the_change() {
    const DROPIN: &str = "etc/ssh/sshd_config.d/00-machine-config-keys.conf";
    if !is_root() {
        return;
    }
    let data =
        |text: &str| json!({"source": format!("data:,{}", text.replace(' ', "%20").replace('\n', "%0A"))});
    let reads = "AuthorizedKeysFile .ssh/authorized_keys.d/ignition\n";
    let stock = "Include /etc/ssh/sshd_config.d/*.conf\n";
    let main = json!({"path": "/etc/ssh/sshd_config", "overwrite": true, "contents": data(reads)});
    let more = json!({"path": "/etc/ssh/sshd_config.d/10.conf", "overwrite": true, "contents": data(reads)});
    let includes = json!({"path": "/etc/ssh/sshd_config", "overwrite": true, "contents": data(stock)});
    let linked = json!({"path": "/etc/ssh/sshd_config", "overwrite": true, "target": "stock_config"});
    let keys = || with_storage(&json!({}));
    for (about, one, between, two, last) in [
        ("its file goes", with_storage(&json!({"files": [main]})), false, keys(), true),
        ("its drop-in goes", with_storage(&json!({"files": [more]})), false, keys(), true),
        ("its file comes", keys(), true, with_storage(&json!({"files": [main]})), false),
        (
            "a deleted file with an include is restored",
            with_storage(&json!({"files": [main]})),
            false,
            with_storage(&json!({"files": [includes]})),
            true,
        ),
        (
            "a link comes",
            with_storage(&json!({"files": [main]})),
            false,
            with_storage(&json!({"links": [linked]})),
            true,
        ),
    ] {
        let dir = mk_with_sshd(stock);
        fs::write(dir.path().join("etc/ssh/stock_config"), stock).unwrap();
        let mut host = mk(dir.path());
        let none = MachineConfigSpec::default();
        let plan = go(&mut host, &none, &one);
        assert_eq!((dir.path().join(DROPIN).exists(), &plan.warnings), (between, &vec![]), "{about}: {plan}");
        let plan = go(&mut host, &one, &two);
        assert_eq!((dir.path().join(DROPIN).exists(), &plan.warnings), (last, &vec![]), "{about}: {plan}");
        let again = go(&mut host, &two, &two);
        assert!(again.is_empty(), "{about}: {again}");
    }
}

#[test]
fn an_administrators_match_block_stays_in_effect() {
    if !is_root() {
        return;
    }
    for (block, by_own) in [("none", false), ("%h/.ssh/authorized_keys", true)] {
        let stock = "Include /etc/ssh/sshd_config.d/*.conf\nMatch User core Address *,!10.0.0.0/8\nAuthorizedKeysFile ";
        let dir = mk_with_sshd(&format!("{stock}{block}\n"));
        let plan =
            go(&mut mk(dir.path()), &MachineConfigSpec::default(), &core(&["ssh-ed25519 ONE x"], None));
        assert!(!dir.path().join("etc/ssh/sshd_config.d/00-machine-config-keys.conf").exists(), "{plan}");
        assert_eq!(dir.path().join("home/core/.ssh/authorized_keys").exists(), by_own, "{plan}");
        let warned = plan.warnings.iter().any(|w| w.contains("/etc/ssh/sshd_config sets AuthorizedKeysFile"));
        assert_eq!(warned, !by_own, "{plan}");
    }
}

#[test]
fn odd_files_in_the_sshd_folder_block_nothing() {
    if !is_root() {
        return;
    }
    let none = MachineConfigSpec::default();
    let keys = core(&["ssh-ed25519 ONE x"], None);
    // A folder with a drop-in's name.
    let dir = mk_with_sshd("Include /etc/ssh/sshd_config.d/*.conf\n");
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("etc/ssh/sshd_config.d/sub.conf")).unwrap();
    let plan = go(&mut mk(dir.path()), &none, &keys);
    assert!(
        plan.warnings.is_empty() && at("etc/ssh/sshd_config.d/00-machine-config-keys.conf").exists(),
        "{plan}"
    );
    // A link that belongs to another user.
    let dir = mk_with_sshd("Include /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile /keys/%u\n");
    let at = |path: &str| dir.path().join(path);
    fs::remove_dir(at("etc/ssh/sshd_config.d")).unwrap();
    symlink("/srv", at("etc/ssh/sshd_config.d")).unwrap();
    std::os::unix::fs::lchown(at("etc/ssh/sshd_config.d"), Some(1000), Some(1000)).unwrap();
    let mut host = mk(dir.path());
    go(&mut host, &none, &files(&[file("/etc/x")]));
    let plan = go(&mut host, &files(&[file("/etc/x")]), &keys);
    assert_eq!(plan.warnings.len(), 1, "{plan}");
    assert_eq!(host.drifts(&keys).unwrap(), []);
    assert_eq!(fs::read_dir(at("srv")).unwrap().count(), 0);
}

#[test]
fn the_output_of_sshd_test_mode_decides() {
    const DROPIN: &str = "etc/ssh/sshd_config.d/00-machine-config-keys.conf";
    if !is_root() {
        return;
    }
    let stock = "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n";
    // Only the server knows which of its groups count for core.
    let by_group = format!("{stock}Match Group staff\nAuthorizedKeysFile .ssh/authorized_keys.d/ignition\n");
    let by_address = format!("{stock}Match Address 10.0.0.0/8\nAuthorizedKeysFile none\n");
    let keys = core(&["ssh-ed25519 ONE x"], None);
    let none = MachineConfigSpec::default();
    for (about, config, program, dropin, warned, runs) in [
        ("stock", stock, Some(FAKE_SSHD), true, false, 2),
        ("a group that applies", by_group.as_str(), Some(FAKE_SSHD), false, false, 1),
        ("the same, and nobody to ask", by_group.as_str(), None, false, true, 0),
        ("a server that fails", stock, Some("#!/bin/sh\necho no hostkeys >&2\nexit 1\n"), true, false, 1),
        ("what depends on who comes", by_address.as_str(), Some(FAKE_SSHD), false, true, 1),
    ] {
        let dir = mk_with_sshd(config);
        if let Some(text) = program {
            let at = dir.path().join("usr/sbin/sshd");
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, text).unwrap();
            fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let ran = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut host = mk(dir.path()).with_programs(Box::new(In(dir.path().to_owned(), ran.clone())));
        let plan = go(&mut host, &none, &keys);
        assert_eq!(dir.path().join(DROPIN).exists(), dropin, "{about}: {plan}");
        assert_eq!(!plan.warnings.is_empty(), warned, "{about}: {plan}");
        assert_eq!(ran.load(std::sync::atomic::Ordering::Relaxed), runs, "{about}");
        let left = fs::read_dir(dir.path().join("run")).unwrap().map(|e| e.unwrap().file_name());
        assert!(!left.map(|n| n.into_string().unwrap()).any(|n| n.contains("sshd")), "{about}");
        go(&mut host, &keys, &none);
        assert!(!dir.path().join(DROPIN).exists(), "{about}");
    }
}

#[test]
fn the_sshd_drop_in_is_checked_for_drift_and_repaired() {
    const DROPIN: &str = "/etc/ssh/sshd_config.d/00-machine-config-keys.conf";
    if !is_root() {
        return;
    }
    let dir = mk_with_sshd("Include /etc/ssh/sshd_config.d/*.conf\n");
    let at = dir.path().join(DROPIN.trim_start_matches('/'));
    let mut host = mk(dir.path());
    let (none, keys) = (MachineConfigSpec::default(), core(&["ssh-ed25519 ONE x"], None));
    go(&mut host, &none, &keys);
    let good = fs::read(&at).unwrap();
    let mut watch = crate::common::watch(&host, &keys);
    for (about, harm) in [("it is gone", None), ("the server reports another value", Some("# nothing\n"))] {
        match harm {
            None => fs::remove_file(&at).unwrap(),
            Some(text) => fs::write(&at, text).unwrap(),
        }
        let told = watch.wait(Some(std::time::Duration::from_secs(30))).unwrap();
        assert_eq!(told, host::DiskEvent::Paths([DROPIN.to_owned()].into()), "{about}");
        let drifts = host.drifts(&keys).unwrap();
        assert!(matches!(drifts.as_slice(), [drift] if drift.path() == DROPIN), "{about}: {drifts:?}");
        let config = host.current_config().unwrap().unwrap();
        let plan = host.plan_repair(&host.drifted(config, drifts).unwrap(), None).unwrap().unwrap();
        assert!(plan.to_string().contains("reload ssh.service, if it runs"), "{about}: {plan}");
        host.apply(&plan).unwrap();
        assert_eq!(fs::read(&at).unwrap(), good, "{about}");
        assert_eq!(host.drifts(&keys).unwrap(), [], "{about}");
        watch.wait(Some(std::time::Duration::from_millis(600))).unwrap();
    }
    assert!(go(&mut host, &keys, &keys).is_empty());
    go(&mut host, &keys, &none);
    assert_eq!(host.drifts(&none).unwrap(), []);
    let left = tree(dir.path(), &["/etc/machine-config-daemon", "/var/lib/machine-config-daemon"], &[]);
    assert!(!left.keys().any(|path| path.contains("sshd") || path.contains("00-machine")), "{left:?}");
}

/// Puts a fake sshd into a folder. Like the real one it reads the configuration that its arguments name, and it decides
/// by groups that are in no file.
const FAKE_SSHD: &str = r#"#!/bin/sh
[ "$1 $2 $4" = "-T -f -C" ] || exit 9
case "$5" in user=core,host=*,addr=*,laddr=*,lport=22) ;; *) exit 8 ;; esac
all=$(cat "$3" $(sed -n 's/^Include //p' "$3"))
echo "port 22"
if printf '%s\n' "$all" | grep -q '^Match User core$'; then
    printf '%s\n' "$all" | sed -n 's/^ *AuthorizedKeysFile/authorizedkeysfile/p' | tail -n 1
elif printf '%s\n' "$all" | grep -q '^Match Group staff$'; then
    echo "authorizedkeysfile .ssh/authorized_keys.d/ignition"
else
    echo "authorizedkeysfile .ssh/authorized_keys .ssh/authorized_keys2"
fi
echo "authorizedkeyscommand none"
"#;

/// Runs the programs of a folder.
#[derive(Debug)]
struct In(std::path::PathBuf, Arc<std::sync::atomic::AtomicUsize>);

impl host::Programs for In {
    fn run(
        &mut self,
        program: &str,
        args: &[&str],
        limit: std::time::Duration,
    ) -> Result<host::Output, host::ProgramError> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let inside = |path: &str| self.0.join(path.trim_start_matches('/')).display().to_string();
        let main = inside(args[2]);
        // The copies name each other by their paths on the host.
        let text = fs::read_to_string(&main).unwrap();
        let at = format!("{}/run/", self.0.display());
        fs::write(&main, text.replace(" /run/", &format!(" {at}"))).unwrap();
        let args: Vec<&str> = args.iter().map(|a| if *a == args[2] { main.as_str() } else { *a }).collect();
        host::HostPrograms.run(&inside(program), &args, limit)
    }
}

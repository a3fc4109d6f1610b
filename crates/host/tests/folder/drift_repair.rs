//! What follows from drift: it is explained without secrets, and a repair restores exactly what drifted.
//!
//! Not here: how drift is found (see `drift`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use crate::common::{BySpec as _, plan};
use crate::common::{mk_host, mk_host_tree};
use crate::drift::{config, mk_applied};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{DisruptionPolicy, Drift, FakeOs, Host, Names};
use serde_json::json;

fn current() -> host::CurrentConfig {
    host::CurrentConfig { name: "rendered-worker-1".to_owned(), spec: config() }
}

/// Repairs drift as the agent does.
fn repair(host: &mut Host, policy: Option<&DisruptionPolicy>) -> host::HostPlan {
    let drifts = host.drifts(&config()).unwrap();
    assert!(!drifts.is_empty());
    let plan = host.plan_repair(&host.drifted(current(), drifts).unwrap(), policy).unwrap().unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(host.drifts(&config()).unwrap(), []);
    plan
}

#[test]
fn a_repair_restores_exactly_what_drifted() {
    if !crate::common::is_root() {
        return;
    }
    let (dir, mut host) = mk_applied();
    let before = crate::common::tree(dir.path(), &["/etc"], &["/etc/machine-config-daemon/currentconfig"]);
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let damage: [(&str, &dyn Fn()); 8] = [
        ("contents", &|| fs::write(at("/etc/plain"), "by hand").unwrap()),
        ("mode", &|| fs::set_permissions(at("/etc/plain"), fs::Permissions::from_mode(0o600)).unwrap()),
        ("owner", &|| std::os::unix::fs::chown(at("/etc/plain"), Some(7), Some(7)).unwrap()),
        ("gone with its folder", &|| fs::remove_dir_all(at("/etc/deep")).unwrap()),
        ("another kind", &|| {
            fs::remove_file(at("/etc/plain")).unwrap();
            std::os::unix::fs::symlink("/etc/host.conf", at("/etc/plain")).unwrap();
        }),
        ("unit and drop-in", &|| {
            fs::write(at("/etc/systemd/system/unittest.service"), "[Service]\n").unwrap();
            fs::remove_file(at("/etc/systemd/system/unittest.service.d/10-unittest-service.conf")).unwrap();
        }),
        ("mask", &|| fs::remove_file(at("/etc/systemd/system/masked.service")).unwrap()),
        ("enablement", &|| {
            fs::remove_file(at("/etc/systemd/system/multi-user.target.wants/unittest.service")).unwrap();
        }),
    ];
    for (about, harm) in damage {
        harm();
        // Somebody's own file beside them is left alone.
        fs::write(at("/etc/deep-neighbour"), about).unwrap();
        let plan = repair(&mut host, Some(&DisruptionPolicy::default()));
        assert!(!plan.disruption.needs_reboot() && !plan.disruption.needs_drain(), "{about}: {plan}");
        assert_eq!(fs::read_to_string(at("/etc/deep-neighbour")).unwrap(), about);
        fs::remove_file(at("/etc/deep-neighbour")).unwrap();
        let now = crate::common::tree(dir.path(), &["/etc"], &["/etc/machine-config-daemon/currentconfig"]);
        assert_eq!(now, before, "{about}");
    }
}

#[test]
fn a_repair_acts_on_services_as_an_update_does_but_never_reboots() {
    let (dir, mut host) = mk_applied();
    let owed = host.reboot_status().unwrap();
    let restart = |path: &str, service: &str| host::FilePolicy {
        path: path.to_owned(),
        actions: vec![host::PolicyAction::restart(service)],
    };
    let policy = DisruptionPolicy {
        files: vec![restart("/etc/plain", "chronyd.service")],
        ..DisruptionPolicy::empty()
    };
    fs::write(dir.path().join("etc/plain"), "by hand").unwrap();
    fs::write(dir.path().join("etc/deep/er/packed"), "by hand").unwrap();
    let plan = repair(&mut host, Some(&policy));
    assert_eq!(plan.disruption.to_string(), "restart chronyd.service (/etc/plain)");
    assert!(plan.notes.iter().any(|n| n.contains("/etc/deep/er/packed") && n.contains("does not")), "{plan}");
    assert_eq!(host.reboot_status().unwrap(), owed, "the one of the first config");
    fs::write(dir.path().join("etc/plain"), "by hand").unwrap();
    let plan = repair(&mut host, None);
    assert!(plan.disruption.is_none(), "{plan}");
}

#[test]
fn drift_is_explained_with_the_lines_that_changed_and_without_secrets() {
    let (dir, mut host) = mk_applied();
    let told = |host: &mut Host, found: &str| {
        fs::write(dir.path().join("etc/plain"), found).unwrap();
        let drifts = host.drifts(&config()).unwrap();
        host.explain(&host::applied(&config()).unwrap(), &drifts[0]).unwrap()
    };
    assert_eq!(
        told(&mut host, "text\nmore\n"),
        "(- config, + host)\n@@ line 1 @@\n-text (no newline at the end)\n+text\n+more"
    );
    let hidden = "instead of 4; contents are not shown: a line looks like a secret";
    assert_eq!(told(&mut host, "text\npassword=hunter2\n"), format!("22 bytes {hidden}"));
}

/// Whatever is wrong with a file that contains a secret, no report shows any of its contents.
#[test]
fn drift_of_any_kind_shows_no_secret() {
    let file = |path: &str, text: &str| json!({"path": path, "mode": 0o644, "contents": {"source": text}});
    let config = MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            file("/etc/mail.conf", "data:,host%3Dmail%0ASMTP_PASS%3Dhunter2%0A"),
            file("/etc/words", "data:,hunter2%0A"),
            file("/etc/open/words", "data:,hunter2%0A"),
            file("/srv/link/words", "data:,hunter2%0A"),
        ]}})),
        ..MachineConfigSpec::default()
    };
    let dir = mk_host_tree();
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    // A link to a folder below a closed one: the path itself does not show that.
    fs::create_dir_all(at("/srv/closed/inner")).unwrap();
    fs::set_permissions(at("/srv/closed"), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("closed/inner", at("/srv/link")).unwrap();
    let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults));
    let start = MachineConfigSpec::default();
    let facts = host.probe(&start, &config).unwrap();
    let first = plan(&start, &config, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&first).unwrap();
    let told = |path: &str, found: &str, mode: u32, folder: u32, why: &str| {
        let before = fs::read(at(path)).unwrap();
        fs::write(at(path), found).unwrap();
        fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
        let above = at(path).parent().unwrap().to_owned();
        fs::set_permissions(&above, fs::Permissions::from_mode(folder)).unwrap();
        // For a file with another mode the mode is reported; its contents would be when the mode is restored.
        let text = host
            .explain(&host::applied(&config).unwrap(), &Drift::Content { path: path.to_owned() })
            .unwrap();
        assert!(!text.contains("hunter") && !text.contains("sha256"), "{path}: {text}");
        assert!(text.ends_with(why), "{path}: {text}");
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at(path), before).unwrap();
        fs::set_permissions(at(path), fs::Permissions::from_mode(0o644)).unwrap();
    };
    let line = "a line looks like a secret";
    told("/etc/mail.conf", "", 0o644, 0o755, line);
    told("/etc/mail.conf", "host=other\nSMTP_PASS=hunter2\n", 0o644, 0o755, line);
    told("/etc/mail.conf", "host=mail\n", 0o644, 0o755, line);
    told("/etc/words", "", 0o644, 0o755, "it was emptied");
    told("/etc/words", "PIN=1234 hunter2", 0o644, 0o755, line);
    told("/etc/words", "hunter2 too\n", 0o600, 0o755, "not everybody may read the file");
    told("/etc/open/words", "hunter2 too\n", 0o644, 0o700, "not everybody may open its folder");
    told("/srv/link/words", "hunter2 too\n", 0o644, 0o755, "not everybody may open its folder");
}

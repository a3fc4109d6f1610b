//! Tests of the watch of a change on trial: what it finds failing, and what it does after the undo.

use super::*;

fn kubelet(active: &str, run: &str) -> Vec<(String, UnitState)> {
    let state = UnitState { active: active.to_owned(), invocation: run.to_owned() };
    vec![("kubelet.service".to_owned(), state)]
}

#[test]
fn the_agent_has_given_its_verdict_before_the_watch_gives_one() {
    assert!(crate::agent::trial::LONGEST_LOOK + CHECK_PERIOD <= GRACE);
}

#[test]
fn a_reboot_after_the_undo_is_made_also_where_one_waits_for_permission_and_the_watch_never_spins() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["etc/systemd/system", "run", "var/lib/machine-config-daemon"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    let options = host::Options { sync: false, owners: false };
    let root = host::Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults));
    let root = root.unwrap();
    let systemd = host::FakeSystemd::new(&root);
    let mut host = Host::new(root, Box::new(systemd.clone()), Box::new(host::FakeOs::default()));
    host.recover().unwrap();
    let boot = host.boot().unwrap();
    let put = |path: &str, text: Vec<u8>| {
        std::fs::write(dir.path().join(path.trim_start_matches('/')), text).unwrap();
    };
    let run =
        host::UnitRun { unit: "kubelet.service".to_owned(), invocation: "of before the change".to_owned() };
    let after = UndoneTrialCheck { units: vec![run], before: String::new(), undone_in: Some(boot.clone()) };
    let mut failed = TrialFailure::new("new", Check::Unit, "no kubelet");
    failed.aftermath = Some(after);
    put(host::paths::TRIAL_FAILURE, serde_json::to_vec(&failed).unwrap());
    let owed = host::PendingReboot {
        config: "old".to_owned(),
        boot,
        because: vec!["packages are staged again".to_owned()],
        tries: 0,
        cleared: false,
        soft: false,
        back: false,
        returns: 0,
    };
    put(host::paths::REBOOT_PENDING, serde_json::to_vec(&owed).unwrap());
    let long_ago = Instant::now().checked_sub(Duration::from_mins(10));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut watch =
        Watch { host, runtime, grace: Duration::ZERO, units: vec![], unwell_since: long_ago, failures: 0 };
    assert!(watch.check().unwrap().is_some_and(|wait| !wait.is_zero()), "it would spin");
    let RebootStatus::Owed(owed) = watch.host.reboot_status().unwrap() else { panic!("no reboot is owed") };
    assert!(owed.back && owed.cleared, "{owed:?}");
    assert_eq!(systemd.reboot_requested().unwrap(), None, "the agent may make it first");
    watch.grace = Duration::ZERO;
    watch.check().unwrap();
    assert!(systemd.reboot_requested().unwrap().is_some());
}

#[test]
fn the_watch_names_a_unit_that_is_down_or_started_again_and_again_before_an_agent_that_is_silent() {
    for (now, earlier, check, word) in [
        (kubelet("failed", "a"), kubelet("active", "a"), Check::Unit, "was failed"),
        (kubelet("active", "b"), kubelet("activating", "a"), Check::Unit, "again and again"),
        (kubelet("active", "b"), kubelet("inactive", ""), Check::Confirmation, "the agent did not"),
        (kubelet("active", "a"), kubelet("active", "a"), Check::Confirmation, "the agent did not"),
        (kubelet("active", "a"), vec![], Check::Confirmation, "the agent did not"),
    ] {
        let api = Ok(());
        let seen = Seen { units: &now, earlier: &earlier, logins: None, api };
        let (found, why) = failing(&seen, 60, false);
        assert!(found == check && why.contains(word), "{now:?} after {earlier:?}: {why}");
        let (found, _) = failing(&seen, 60, true);
        assert_eq!(found, Check::Confirmation, "a person decides");
    }
    // An agent in a pod does not start without an API server: then its silence says nothing about the change.
    let (now, silent) = (kubelet("active", "a"), Err("no new connection to 10.0.0.1:6443".to_owned()));
    let seen = Seen { units: &now, earlier: &now, logins: None, api: silent };
    let (check, why) = failing(&seen, 60, false);
    assert!(check == Check::Api && why.contains("10.0.0.1:6443"), "{why}");
    let logins = Some("no SSH server runs now".to_owned());
    let (check, why) = failing(&Seen { logins, ..seen }, 60, false);
    assert!(check == Check::Unit && why.contains("SSH"), "{why}");
}

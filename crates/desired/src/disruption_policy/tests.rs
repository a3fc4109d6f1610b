//! Tests of `disruption_policy`: which policy applies to a path, a unit and a key.

use super::*;
use serde_json::json;

fn mk(paths: &[&str]) -> DisruptionPolicy {
    let file = |p: &&str| FilePolicy { path: (*p).to_owned(), actions: vec![PolicyAction::None] };
    DisruptionPolicy { files: paths.iter().map(file).collect(), ..DisruptionPolicy::empty() }
}

#[test]
fn the_nearest_policy_wins() {
    let cases: &[(&str, &[&str], Option<&str>)] = &[
        ("/etc/mco/test", &["/etc/example"], None),
        ("/etc/mco/f1", &["/etc/mco/f0", "/etc/mco/f1", "/etc/mco/f2"], Some("/etc/mco/f1")),
        (
            "/etc/mco/f1/f2/example",
            &["/etc/mco/f1", "/etc/mco/f1/f2", "/etc/mco/f1/f2/f3"],
            Some("/etc/mco/f1/f2"),
        ),
        (
            "/etc/mco/f1/f2/f3",
            &["/etc/mco/f1", "/etc/mco/f1/f2", "/etc/mco/f1/f2/f3"],
            Some("/etc/mco/f1/f2/f3"),
        ),
        ("/etc/mco/f1/f2/f3", &["/etc/mco/f1/test", "/etc/mco/f1/f2/test", "/etc/mco/f1/f2/f3/f4"], None),
        ("/etc/mcox", &["/etc/mco"], None),
        ("/etc/mco/x", &["/etc/mco/"], Some("/etc/mco/")),
        ("/etc/mco/x", &["/"], Some("/")),
    ];
    for (path, policies, want) in cases {
        assert_eq!(mk(policies).for_path(path).map(|p| p.path.as_str()), *want, "{path} in {policies:?}");
    }
}

#[test]
fn a_users_policy_replaces_the_default_for_its_path_and_else_follows_the_defaults() {
    let user = DisruptionPolicy {
        files: vec![
            FilePolicy {
                path: "/etc/containers/policy.json".to_owned(),
                actions: vec![PolicyAction::Reboot],
            },
            FilePolicy {
                path: "/etc/chrony.conf".to_owned(),
                actions: vec![PolicyAction::restart("chronyd.service")],
            },
        ],
        sshkey: KeyPolicy { actions: vec![PolicyAction::Drain] },
        ..DisruptionPolicy::empty()
    };
    let merged = DisruptionPolicy::default().merge(&user);
    assert_eq!(merged.files.len(), DisruptionPolicy::default().files.len() + 1);
    assert_eq!(merged.for_path("/etc/containers/policy.json").unwrap().actions, [PolicyAction::Reboot]);
    assert_eq!(merged.files.last().unwrap().path, "/etc/chrony.conf");
    assert_eq!(merged.sshkey.actions, [PolicyAction::Drain]);
    assert_eq!(DisruptionPolicy::default().merge(&DisruptionPolicy::empty()), DisruptionPolicy::default());
}

#[test]
fn policies_are_read_in_the_form_of_the_cluster() {
    let json = r#"{"files":[{"path":"/etc/x","actions":[{"type":"Restart","restart":{"serviceName":"a.service"}},
            {"type":"DaemonReload"}]}],"sshkey":{"actions":[{"type":"None"}]}}"#;
    let policy: DisruptionPolicy = serde_json::from_str(json).unwrap();
    assert_eq!(
        policy.for_path("/etc/x").unwrap().actions,
        [PolicyAction::restart("a.service"), PolicyAction::DaemonReload]
    );
}

fn object_file(path: &str, action: &str) -> Value {
    json!({ "files": [{ "path": path, "actions": [{ "type": action }] }] })
}

#[test]
fn only_a_status_of_the_current_generation_counts() {
    let object = |generation, observed| {
        json!({
            "metadata": { "generation": generation },
            "spec": { "nodeDisruptionPolicy": object_file("/etc/a", "None") },
            "status": {
                "observedGeneration": observed,
                "nodeDisruptionPolicyStatus": { "clusterPolicies": object_file("/etc/a", "Drain") },
            },
        })
    };
    let action = |o: &Value| {
        DisruptionPolicy::of_cluster(Some(o)).unwrap().for_path("/etc/a/b").unwrap().actions.clone()
    };
    assert_eq!(action(&object(2, 2)), [PolicyAction::Drain]);
    assert_eq!(action(&object(2, 1)), [PolicyAction::None]);
    // The user's policies are merged into the defaults.
    let merged = DisruptionPolicy::of_cluster(Some(&object(2, 1))).unwrap();
    assert!(merged.for_path("/etc/containers/policy.json").is_some());
    assert_eq!(DisruptionPolicy::of_cluster(None).unwrap(), DisruptionPolicy::default());
}

#[test]
fn the_setting_of_reboots_is_read_from_the_annotation_whoever_wrote_the_status() {
    let of = |value: Value, observed: i64| {
        let object = json!({
            "metadata": {"generation": 2, "annotations": {"machineconfig.dev/reboots": value}},
            "spec": {},
            "status": {
                "observedGeneration": observed,
                "nodeDisruptionPolicyStatus": { "clusterPolicies": object_file("/etc/a", "Drain") },
            },
        });
        DisruptionPolicy::of_cluster(Some(&object)).unwrap().reboots
    };
    for observed in [1, 2] {
        assert_eq!(of(json!("WhenNeeded"), observed), Reboots::WhenNeeded);
        assert_eq!(of(json!("AsReference"), observed), Reboots::AsReference);
        assert_eq!(of(json!("Sometimes"), observed), Reboots::AsReference);
        assert_eq!(of(Value::Null, observed), Reboots::AsReference);
    }
    assert_eq!(DisruptionPolicy::of_cluster(None).unwrap().reboots, Reboots::AsReference);
    // A pool's own setting counts more than the cluster's.
    for (cluster, pool, want) in [
        (Reboots::WhenNeeded, None, Reboots::WhenNeeded),
        (Reboots::WhenNeeded, Some(""), Reboots::WhenNeeded),
        (Reboots::WhenNeeded, Some("AsReference"), Reboots::AsReference),
        (Reboots::WhenNeeded, Some("Sometimes"), Reboots::AsReference),
        (Reboots::AsReference, Some("WhenNeeded"), Reboots::WhenNeeded),
    ] {
        let policy = DisruptionPolicy { reboots: cluster, ..DisruptionPolicy::default() };
        let notes = pool.map(|value| [("machineconfig.dev/reboots".to_owned(), value.to_owned())].into());
        let policy = policy.for_pool(&PoolDisruption::of(notes.as_ref()));
        assert_eq!(policy.reboots, want, "{cluster:?} {pool:?}");
    }
}

#[test]
fn overrides_are_read_from_the_spec_whoever_wrote_the_status() {
    let object = |observed: i64| {
        json!({
            "metadata": { "generation": 2 },
            "spec": { "irreconcilableValidationOverrides": { "storage": ["Disks", "Raid", "Else"] } },
            "status": {
                "observedGeneration": observed,
                "nodeDisruptionPolicyStatus": { "clusterPolicies": object_file("/etc/a", "Drain") },
            },
        })
    };
    let want = Overrides { disks: true, filesystems: false, raid: true };
    for observed in [1, 2] {
        assert_eq!(DisruptionPolicy::of_cluster(Some(&object(observed))).unwrap().overrides, want);
    }
    assert_eq!(Overrides::of_cluster(None), Overrides::default());
}

#[test]
fn an_invalid_policy_is_reported_with_its_path() {
    let object = json!({ "spec": { "nodeDisruptionPolicy": object_file("/etc/a", "Explode") } });
    let error = DisruptionPolicy::of_cluster(Some(&object)).unwrap_err();
    assert_eq!(
        error,
        "MachineConfiguration cluster, spec.nodeDisruptionPolicy.files[0].actions[0].type: expected one of Reboot, Drain, Reload, Restart, DaemonReload, None, Special"
    );
}

#[test]
fn what_annotations_allow_is_read_from_the_cluster_and_a_pool_counts_more() {
    for (cluster, pool, want) in [
        ("", None, false),
        ("Apply", None, true),
        ("apply", None, false),
        ("", Some("Apply"), true),
        ("Apply", Some(""), true),
        ("Apply", Some("No"), false),
    ] {
        let both = json!({"machineconfig.dev/live-extensions": cluster, "machineconfig.dev/host-packages": cluster.replace("Apply", "Install")});
        let object =
            json!({"metadata": {"generation": 2, "annotations": both}, "status": {"observedGeneration": 1}});
        let policy = DisruptionPolicy::of_cluster(Some(&object)).unwrap();
        let of_pool = |pool: &str| {
            [("live-extensions", pool.to_owned()), ("host-packages", pool.replace("Apply", "Install"))]
                .map(|(name, value)| (format!("machineconfig.dev/{name}"), value))
                .into()
        };
        let policy = policy.for_pool(&PoolDisruption::of(pool.map(of_pool).as_ref()));
        assert_eq!((policy.live_extensions, policy.host_packages), (want, want), "{cluster} {pool:?}");
    }
}

//! Tests of `status`: conditions and versions after each result of a pass.

use super::*;
use serde_json::json;

fn at(text: &str) -> Time {
    serde_json::from_value(json!(text)).unwrap()
}

fn facts<'a>(version: &'a str, stopped: Option<&'a Stopped>) -> Facts<'a> {
    Facts {
        version,
        image: "mco:1",
        release: None,
        generation: Some(1),
        unmanaged: false,
        stopped,
        complete: stopped.is_none(),
        controller: Some(true),
        pools: &[],
        interrupted: &[],
        kubelets: None,
        stored: &[],
        boot_images: None,
        evaluation: &[],
        not_looked_for: &[],
    }
}

fn line(status: &MachineConfigOperatorStatus) -> String {
    let shown = status.conditions.iter().filter(|c| c.type_ != EVALUATION);
    let all = shown.map(|c| format!("{}={} {}", c.type_, c.status, c.reason));
    all.collect::<Vec<_>>().join(", ")
}

#[test]
fn the_conditions_of_a_life() {
    let (one, two) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
    let stop = |step, stop| Stopped { step, stop };
    let waiting = stop(Step::MachineConfigController, Stop::Waiting("Deployment c: 0 of 2".to_owned()));
    let failed = stop(Step::Rights, Stop::Failed("ClusterRole x: no".to_owned()));
    let pools = stop(Step::RequiredPools, Stop::Waiting("pool master".to_owned()));
    let refused = stop(Step::Monitoring, Stop::Failed("PrometheusRule x: no".to_owned()));
    let mut status = MachineConfigOperatorStatus::default();
    let mut then = |facts: &Facts<'_>, now: &Time| {
        status = after(&status, facts, now);
        line(&status)
    };
    let rows = [
        (
            "v1.0.0",
            Some(&waiting),
            "Available=False Installing, Progressing=True MachineConfigController, Degraded=False AsExpected, Upgradeable=True AsExpected",
        ),
        (
            "v1.0.0",
            Some(&failed),
            "Available=False Installing, Progressing=True RightsFailed, Degraded=True RightsFailed, Upgradeable=True AsExpected",
        ),
        // All parts run; the pools are still being updated.
        (
            "v1.0.0",
            Some(&pools),
            "Available=True AsExpected, Progressing=True RequiredPools, Degraded=False AsExpected, Upgradeable=True AsExpected",
        ),
        (
            "v1.0.0",
            Some(&refused),
            "Available=True AsExpected, Progressing=True MonitoringFailed, Degraded=True MonitoringFailed, Upgradeable=True AsExpected",
        ),
        (
            "v1.0.0",
            None,
            "Available=True AsExpected, Progressing=False AsExpected, Degraded=False AsExpected, Upgradeable=True AsExpected",
        ),
        // A later change by an administrator: pools are updated, but the installation is not progressing.
        (
            "v1.0.0",
            Some(&pools),
            "Available=True AsExpected, Progressing=False AsExpected, Degraded=False AsExpected, Upgradeable=True AsExpected",
        ),
        (
            "v1.0.0",
            Some(&failed),
            "Available=True AsExpected, Progressing=False RightsFailed, Degraded=True RightsFailed, Upgradeable=True AsExpected",
        ),
        // The next version is installed.
        (
            "v2.0.0",
            Some(&waiting),
            "Available=True AsExpected, Progressing=True MachineConfigController, Degraded=False AsExpected, Upgradeable=True AsExpected",
        ),
        (
            "v2.0.0",
            Some(&failed),
            "Available=True AsExpected, Progressing=True RightsFailed, Degraded=True RightsFailed, Upgradeable=True AsExpected",
        ),
        (
            "v2.0.0",
            None,
            "Available=True AsExpected, Progressing=False AsExpected, Degraded=False AsExpected, Upgradeable=True AsExpected",
        ),
    ];
    for (i, (version, stopped, want)) in rows.iter().enumerate() {
        assert_eq!(then(&facts(version, *stopped), if i < 3 { &one } else { &two }), *want, "{i}");
    }
    let available = status.conditions.iter().find(|c| c.type_ == AVAILABLE).unwrap();
    assert_eq!(available.last_transition_time, one, "it has been so since the parts ran");
    assert_eq!(status.versions[0].version, "v2.0.0");
    let same = after(&status, &facts("v2.0.0", None), &at("2026-01-03T00:00:00Z"));
    assert_eq!(same, status, "nothing new is no write");
    // A release is reported when it is rolled out as a whole.
    let begun = after(&status, &Facts { release: Some("4.22.1"), ..facts("v2.0.0", Some(&pools)) }, &two);
    assert_eq!(begun.versions, status.versions);
    let progressing = begun.conditions.iter().find(|c| c.type_ == PROGRESSING).unwrap();
    assert_eq!(
        (progressing.status.as_str(), progressing.message.as_str()),
        ("True", "Working towards v2.0.0, release 4.22.1: pool master")
    );
    let done = after(&begun, &Facts { release: Some("4.22.1"), ..facts("v2.0.0", None) }, &two);
    assert_eq!(done.versions.last().map(|v| (&*v.name, &*v.version)), Some((RELEASE, "4.22.1")));
    let available = done.conditions.iter().find(|c| c.type_ == AVAILABLE).unwrap();
    assert_eq!(available.message, "Cluster has deployed v2.0.0, release 4.22.1");
    let down = after(&status, &Facts { controller: Some(false), ..facts("v2.0.0", None) }, &two);
    assert!(line(&down).starts_with("Available=False ControllerNotRunning"), "{}", line(&down));
    let left = after(&status, &Facts { unmanaged: true, ..facts("v2.0.0", None) }, &two);
    assert!(line(&left).contains("Progressing=False Unmanaged"), "{}", line(&left));
    let new = MachineConfigOperatorStatus::default();
    let never = after(&new, &Facts { unmanaged: true, ..facts("v2.0.0", None) }, &two);
    assert!(line(&never).starts_with("Available=False Installing"), "{}", line(&never));
    // Without a controller, and with a failure of a step, the reason stays the controller's; and it comes back by itself.
    let failing = after(&down, &Facts { controller: Some(false), ..facts("v2.0.0", Some(&failed)) }, &two);
    assert!(line(&failing).starts_with("Available=False ControllerNotRunning"), "{}", line(&failing));
    let back = after(&down, &facts("v2.0.0", Some(&failed)), &two);
    assert!(line(&back).starts_with("Available=True"), "{}", line(&back));
}

/// A watch that does not work, a machine that waits or a CA that ends soon stops nothing: what was rolled out is reported, and an upgrade
/// of the cluster that waits for it goes on.
#[test]
fn a_version_is_reached_although_something_beside_the_installation_has_failed() {
    const WHY: &str = "the watch of x does not work: no; look at the proxy";
    let (one, two) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
    let of = |step| Stopped { step, stop: Stop::Failed(WHY.to_owned()) };
    let beside = [Step::Watch, Step::Joining, Step::CaLifetime].map(of);
    let new = MachineConfigOperatorStatus::default();
    let before = after(&new, &facts("v1.0.0", None), &one);
    // Columns: whether every step has succeeded, or pools are waited for; the version that is recorded; Progressing.
    for (complete, version, progressing) in [
        (false, "v1.0.0", "True RequiredPools Working towards v2.0.0: the required pools are being updated"),
        (true, "v2.0.0", "False AsExpected Cluster version is v2.0.0"),
    ] {
        for (before, stopped) in beside.iter().flat_map(|stopped| [(&new, stopped), (&before, stopped)]) {
            let status = after(before, &Facts { complete, ..facts("v2.0.0", Some(stopped)) }, &two);
            let recorded = status.versions.iter().find(|v| v.name == OPERATOR).map(|v| v.version.as_str());
            let want = (complete || !before.versions.is_empty()).then_some(version);
            assert_eq!(recorded, want, "{complete}");
            let words = |kind: &str| {
                let condition = get(&status.conditions, kind).unwrap();
                format!("{} {} {}", condition.status, condition.reason, condition.message)
            };
            assert_eq!(words(PROGRESSING), progressing);
            assert_eq!(words(DEGRADED), format!("True {} {WHY}", stopped.step.failed()));
            assert!(words(AVAILABLE).starts_with("True AsExpected "), "{}", words(AVAILABLE));
        }
    }
}

#[test]
fn what_a_pass_could_not_read_stays_as_it_was() {
    let at = at("2026-01-01T00:00:00Z");
    let pool: MachineConfigPool = serde_json::from_value(json!({"metadata": {"name": "worker"}})).unwrap();
    let pools = [pool];
    let refused = Stopped { step: Step::Read, stop: Stop::Failed("list Roles: forbidden".to_owned()) };
    let unread = Facts {
        controller: None,
        not_looked_for: &[DEGRADED_POOL, KUBELET_SKEW],
        ..facts("v1.0.0", Some(&refused))
    };
    for controller in [true, false] {
        let good = Facts {
            controller: Some(controller),
            pools: &pools,
            evaluation: &[RUNC],
            ..facts("v1.0.0", None)
        };
        let before = after(&MachineConfigOperatorStatus::default(), &good, &at);
        let then = after(&before, &unread, &at);
        let of = |status: &MachineConfigOperatorStatus, kind: &str| {
            let found = status.conditions.iter().find(|c| c.type_ == kind).unwrap();
            (found.status.clone(), found.reason.clone())
        };
        for kind in [AVAILABLE, UPGRADEABLE, EVALUATION] {
            assert_eq!(of(&then, kind), of(&before, kind), "{kind}");
        }
        assert_eq!(of(&then, DEGRADED), ("True".to_owned(), "ReadFailed".to_owned()));
        assert_eq!(then.extension["worker"], before.extension["worker"]);
        assert_eq!(then.extension["lastSyncError"], "list Roles: forbidden");
        assert!(!after(&then, &good, &at).extension.contains_key("lastSyncError"), "it is read again");
    }
}

#[test]
fn an_upgrade_may_begin_only_when_somebody_has_looked() {
    let at = at("2026-01-01T00:00:00Z");
    let skewed = [("n".to_owned(), 30)];
    let with = |kubelets| Facts { kubelets, ..facts("v1.0.0", None) };
    let none: &[&'static str] = &[];
    let of = |status: &MachineConfigOperatorStatus| {
        let found = status.conditions.iter().find(|c| c.type_ == UPGRADEABLE).unwrap();
        format!("{} {}", found.status, found.reason)
    };
    let new = MachineConfigOperatorStatus::default();
    let held = after(&new, &with(Some((36, &skewed[..]))), &at);
    let free = after(&new, &with(None), &at);
    for (what, before, not_looked_for, want) in [
        ("never", &new, &[KUBELET_SKEW][..], "Unknown NoData"),
        ("no longer", &held, &[KUBELET_SKEW], "False KubeletSkew"),
        ("something else", &held, &[STORED_VERSIONS], "Unknown NoData"),
        ("all of it", &held, none, "True AsExpected"),
        ("no longer", &free, &[KUBELET_SKEW], "True AsExpected"),
    ] {
        let status = after(before, &Facts { not_looked_for, ..with(None) }, &at);
        assert_eq!(of(&status), want, "{what}: {not_looked_for:?}");
        assert_eq!(after(&status, &Facts { not_looked_for, ..with(None) }, &at), status, "{what}");
    }
}

#[test]
fn settings_that_later_versions_treat_otherwise_are_told() {
    let kubelet = |value| json!({"spec": {"kubeletConfig": {"failSwapOn": value}}});
    let runtime = |name: &str| json!({"spec": {"containerRuntimeConfig": {"defaultRuntime": name}}});
    assert_eq!(evaluation(&[runtime("crun"), json!({"spec": {"kubeletConfig": {"maxPods": 1}}})]), [""; 0]);
    assert_eq!(evaluation(&[kubelet(json!(false))]), [FAIL_SWAP_ON]);
    let both = evaluation(&[runtime("runc"), kubelet(json!(true))]);
    let found = after(
        &MachineConfigOperatorStatus::default(),
        &Facts { evaluation: &both, ..facts("v1.0.0", None) },
        &at("2026-01-01T00:00:00Z"),
    );
    let condition = found.conditions.iter().find(|c| c.type_ == EVALUATION).unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", "failswapon::runc"));
    assert_eq!(condition.message, format!("{FAIL_SWAP_ON}::{RUNC}"));
}

#[test]
fn an_upgrade_waits_for_pools_builds_and_kubelets() {
    let pool = |name: &str, condition: &str| -> MachineConfigPool {
        let conditions = json!([{"type": condition, "status": "True", "reason": "R", "message": "m"}]);
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": conditions}}))
            .unwrap()
    };
    let why = |pools: &[MachineConfigPool], kubelets: &[(String, u64)]| {
        upgradeable(&Facts { pools, kubelets: Some((36, kubelets)), ..facts("v1.0.0", None) })
    };
    let node = |minor: u64| ("n".to_owned(), minor);
    assert_eq!(why(&[pool("worker", "Updated")], &[node(36), node(34)]), None);
    assert_eq!(why(&[pool("a", "Degraded")], &[]).unwrap().0, "DegradedPool");
    assert_eq!(
        why(&[pool("a", "BuildInterrupted"), pool("b", "Degraded")], &[]).unwrap().0,
        "InterruptedBuild"
    );
    let stopped = ["a (a-1)".to_owned()];
    let ours = upgradeable(&Facts { interrupted: &stopped, ..facts("v1.0.0", None) }).unwrap();
    assert!(
        ours.0 == "InterruptedBuild" && ours.1.contains("a (a-1)") && ours.1.contains("/rebuild"),
        "{ours:?}"
    );
    let sentences = ["CustomResourceDefinition a: status.storedVersions has v1beta1".to_owned()];
    let stored = upgradeable(&Facts { stored: &sentences, ..facts("v1.0.0", None) }).unwrap();
    assert_eq!((stored.0, stored.1.as_str()), ("StoredVersions", sentences[0].as_str()));
    let old = upgradeable(&Facts { boot_images: Some("old"), stored: &sentences, ..facts("v1.0.0", None) });
    assert_eq!(old, Some(("ClusterBootImageSkewError", "old".to_owned())));
    let (reason, words) = why(&[], &[node(33), node(37), node(35)]).unwrap();
    assert_eq!(reason, "KubeletSkew");
    assert!(words.contains("n (1.33), n (1.37); bring"), "{words}");
    assert_eq!((minor("v1.36.2"), minor("1.36+"), minor("x")), (Some(36), Some(36), None));
}

#[test]
fn a_pool_is_told_by_its_first_trouble() {
    let pool = |conditions: serde_json::Value| -> String {
        sentence(
            &serde_json::from_value(json!({
                "spec": {"configuration": {"name": "rendered-2"}},
                "status": {"machineCount": 3, "updatedMachineCount": 2, "readyMachineCount": 1,
                    "configuration": {"name": "rendered-1"}, "conditions": conditions},
            }))
            .unwrap(),
        )
    };
    let yes = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "m"});
    for (conditions, want) in [
        (json!([yes("Updated")]), "all 3 nodes are at latest configuration rendered-1"),
        (
            json!([yes("Updating")]),
            "2 (ready 1) out of 3 nodes are updating to latest configuration rendered-2",
        ),
        (
            json!([yes("Updating"), yes("NodeDegraded")]),
            "pool is degraded because nodes fail with \"R\": \"m\"",
        ),
        (
            json!([yes("NodeDegraded"), yes("RenderDegraded")]),
            "pool is degraded because rendering fails with \"R\": \"m\"",
        ),
        (json!([]), "<unknown>"),
    ] {
        assert_eq!(pool(conditions), want);
    }
}

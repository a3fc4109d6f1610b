//! Builds that fail, are interrupted or do not start, and what is said of them.
//!
//! Not here: what a reader is told to do in detail (beside the code, in `remedy`).

use crate::fake_world::FakeWorld;
use build::{Report, State};
use serde_json::json;

#[test]
fn a_failed_build_degrades_its_pool_and_a_rebuild_is_asked_for_by_annotation() {
    let mut w = FakeWorld::new();
    w.settle();
    let name = w.names[0].clone();
    w.job(json!({"failed": 3}));
    w.settle();
    assert_eq!(w.states(), [State::Building], "the Job tries again");
    w.job(json!({"failed": 4}));
    w.reports.insert(
        name,
        Report { digest: None, words: Some("error: no space".to_owned()), ..Report::default() },
    );
    assert_eq!(w.step(), ["b1 is Failed"]);
    let said = w.step();
    assert!(
        said[0].starts_with(
            "ImageBuildDegraded: Failed to build OS image for pool infra (MachineOSBuild: b1): Failed: Build Failed: 4 \
             attempts failed; the Job's last lines: error: no space. Correct the MachineOSConfig, or set its annotation"
        ),
        "{said:?}"
    );
    assert!(said[1].starts_with("waits: MachineOSBuild b1 failed; correct its cause"), "{said:?}");
    assert_eq!(w.jobs.len(), 1, "the Job stays for people to look at");
    w.annotate("rebuild", "");
    assert_eq!(w.step(), ["stop b1", "delete b1: a rebuild was asked for"]);
    w.settle();
    assert_eq!(w.states(), [State::Prepared]);
    assert!(!w.config().metadata.annotations.as_ref().unwrap().contains_key(build::names::REBUILD));
}

#[test]
fn a_job_without_an_end_or_without_a_digest_is_a_failure_with_its_cause() {
    for (status, report, want) in [
        (
            json!({"active": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}),
            Report::default(),
            "it did not end within 120 minutes; look for a registry or a command that hangs",
        ),
        (
            json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]}),
            Report { digest: None, words: Some("Secret push is not there".to_owned()), ..Report::default() },
            "another try would end the same way; the Job's last lines: Secret push is not there",
        ),
        (
            json!({"failed": 4}),
            Report {
                digest: None,
                words: Some(
                    "denied: forbidden | the image could not be pushed to r.example.com/os:t".to_owned(),
                ),
                not_pushed: true,
                ..Report::default()
            },
            "Remedy: renderedImagePushSecret may not write to that repository",
        ),
        (json!({"succeeded": 1}), Report::default(), "left no digest"),
        (
            json!({"succeeded": 1}),
            Report { digest: Some("latest".to_owned()), words: None, ..Report::default() },
            "which is not a digest",
        ),
    ] {
        let mut w = FakeWorld::new();
        w.settle();
        w.job(status);
        let name = w.names[0].clone();
        w.reports.insert(name, report);
        assert_eq!(w.step(), ["b1 is Failed"]);
        let said = w.step().join("\n");
        assert!(said.contains(want), "{said}");
    }
}

#[test]
fn a_deleted_job_interrupts_its_build_until_somebody_asks_for_another() {
    let mut w = FakeWorld::new();
    w.settle();
    let jobs = std::mem::take(&mut w.jobs);
    assert_eq!(
        w.step(),
        ["waits: whether MachineOSBuild b1 has a Job is not known yet"],
        "a cache may lack it"
    );
    w.jobs = jobs;
    assert_eq!(w.step(), Vec::<String>::new());
    w.jobs.clear();
    w.absent.clone_from(&w.names);
    assert_eq!(w.step(), ["b1 is Interrupted"]);
    assert!(
        matches!(w.step().as_slice(), [one] if one.starts_with("waits: the Job of MachineOSBuild b1 was deleted"))
    );
    w.annotate("rebuild", "");
    w.settle();
    assert_eq!(w.states(), [State::Prepared]);
}

#[test]
fn a_pod_that_does_not_start_is_told() {
    let mut w = FakeWorld::new();
    w.settle();
    w.why_not_started.insert(w.names[0].clone(), "Unschedulable: 0/3 nodes are available".to_owned());
    let said = "waits: the pod of MachineOSBuild b1 does not start: Unschedulable: 0/3 nodes are available";
    assert_eq!(w.step(), ["b1 is Prepared", said], "its message says it");
    assert_eq!(w.step(), [said], "once");
    assert!(w.wait.as_ref().unwrap().needs_somebody());
    w.job(json!({"active": 1}));
    w.why_not_started.clear();
    assert_eq!(w.step(), ["b1 is Building"]);
}

#[test]
fn what_kept_a_pod_from_starting_is_the_cause_of_a_build_whose_time_is_over() {
    let over = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]});
    let message = |w: &FakeWorld| {
        let status = w.builds.values().next().unwrap().status.clone().unwrap();
        status.conditions.unwrap().into_iter().find(|c| c.status == "True").unwrap().message
    };
    for (runs, want) in [
        (
            false,
            "it did not end within 120 minutes, because its pod did not start: Unschedulable: 0/3 nodes are available. Correct that",
        ),
        (
            true,
            "it did not end within 120 minutes; look for a registry or a command that hangs; its pods left no message",
        ),
    ] {
        let mut w = FakeWorld::new();
        w.settle();
        let name = w.names[0].clone();
        w.why_not_started.insert(name.clone(), "Unschedulable: 0/3 nodes are available".to_owned());
        w.job(json!({"active": 1}));
        assert_eq!(w.step()[0], "b1 is Building");
        let held_up =
            "Image Build In Progress: its pod does not start: Unschedulable: 0/3 nodes are available";
        assert_eq!(message(&w), held_up);
        w.why_not_started.clear();
        if runs {
            w.job(json!({"active": 1, "ready": 1}));
            assert_eq!(w.step(), ["b1 is Building"]);
            assert_eq!(message(&w), "Image Build In Progress");
        } else {
            // Its pod is deleted before the Job has failed.
            w.job(json!({}));
            assert_eq!(w.step(), Vec::<String>::new());
            assert_eq!(message(&w), held_up);
        }
        w.job(over.clone());
        w.reports.insert(name, Report::default());
        assert_eq!(w.step(), ["b1 is Failed"]);
        let said = w.step().join("\n");
        assert!(said.contains(want), "{said}");
    }
}

#[test]
fn a_pods_words_about_a_missing_secret_reach_the_reader() {
    let rest = "is not there, or has neither .dockerconfigjson nor .dockercfg; create it, then set the annotation \
                machineconfiguration.openshift.io/rebuild on the MachineOSConfig";
    for what in ["cannot push", "cannot pull the base image"] {
        let words = format!("{what}: openshift-machine-config-operator/registry-push {rest}");
        assert_eq!(build::last_lines(&words), words);
    }
    let push = "Error: writing blob: initiating layer upload to /v2/team/os/blobs/uploads/ in registry.example.com: unauthorized";
    assert_eq!(build::last_lines(push), push);
}

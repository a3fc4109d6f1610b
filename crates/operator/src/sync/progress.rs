//! How far the operator has come with an installation, for whoever waits for it. [`progress_of`] is pure; [`read`] reads.

use crate::accounts::OPERATOR;
use crate::sync::Step;
use crate::sync::cluster;
use crate::sync::objects::{Key, blocked_pods, unscheduled};
use crate::sync::status::{AVAILABLE, DEGRADED, OPERATOR_IMAGE, PROGRESSING};
use api::conditions;
use api::k8s::Pod;
use api::names::{NAMESPACE, VERSION_RAW, label};
use api::v1alpha1::{Condition, ImageFrom, MachineConfigOperator, ManagementState};
use client::CallError;
use kube::Client;
use std::time::Duration;

/// A failure that lasts this long is told as one. A shorter one may mend itself: a namespace that is still being deleted, an
/// object that somebody wrote at the same moment, a pod that found no API server while a control-plane node rebooted and
/// is started again after the kubelet's back-off (10, 20, 40 seconds).
pub const MENDS_ITSELF: Duration = Duration::from_mins(1);

/// How far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Everything runs. The words say, too, what goes on and what does not work although everything was installed.
    Done(String),
    /// Something is on its way.
    Waiting(String),
    /// Something has failed: not everything is installed as it was asked for.
    Failed {
        /// What has failed: two answers with the same are about the same failure, whatever their words.
        what: Failure,
        /// Object and remedy.
        why: String,
    },
}

/// What has failed in an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The settings are gone.
    Settings,
    /// The operator's own pods do not start.
    Operator,
    /// Nobody may roll it out.
    Unmanaged,
    /// A step of the operator. `None`: the reason is none of this version.
    Step(Option<Step>),
}

/// Reads the settings' status, and the operator's pods while it says nothing.
///
/// # Errors
/// The API server's answer.
pub async fn read(client: &Client) -> Result<Progress, CallError> {
    let settings = cluster::settings(client).await?;
    let progress = progress_of(settings.as_ref(), &[]);
    if !matches!(progress, Progress::Waiting(_)) {
        return Ok(progress);
    }
    let pods = cluster::pods(client, &format!("{}={OPERATOR}", label::PART)).await.unwrap_or_default();
    Ok(progress_of(settings.as_ref(), &pods))
}

/// How far it has come, by the settings' status and the operator's pods.
pub(crate) fn progress_of(settings: Option<&MachineConfigOperator>, pods: &[Pod]) -> Progress {
    let Some(settings) = settings else {
        let why = format!("{} does not exist any more", crate::settings::name());
        return Progress::Failed { what: Failure::Settings, why };
    };
    let status = settings.status.clone().unwrap_or_default();
    let fresh =
        status.observed_by == VERSION_RAW && status.observed_generation == settings.metadata.generation;
    if !fresh {
        let key =
            Key { kind: "Deployment".to_owned(), namespace: NAMESPACE.to_owned(), name: OPERATOR.to_owned() };
        return match blocked_pods(&key, &settings.spec.image, pods) {
            Some(why) => Progress::Failed { what: Failure::Operator, why },
            None => {
                let more = unscheduled(pods).map(|why| format!("; {why}")).unwrap_or_default();
                Progress::Waiting(format!(
                    "Deployment {OPERATOR}: no operator of {VERSION_RAW} has read the settings yet{more}"
                ))
            }
        };
    }
    // Nobody rolls it out. A payload's image is not in the settings.
    let spec = &settings.spec;
    let rolled_out = status.versions.iter().find(|v| v.name == OPERATOR_IMAGE).map(|v| v.version.as_str());
    if spec.management_state == ManagementState::Unmanaged
        && spec.image_from == ImageFrom::Settings
        && rolled_out != Some(spec.image.as_str())
    {
        let why = format!(
            "{}: spec.managementState is Unmanaged, so {} is not rolled out ({} is); set it to Managed",
            crate::settings::name(),
            spec.image,
            rolled_out.unwrap_or("nothing")
        );
        return Progress::Failed { what: Failure::Unmanaged, why };
    }
    let if_true = |kind: &str| conditions::get_true(&status.conditions, kind);
    // Pools move on their own, for hours perhaps; and what says nothing of the installation is reported when all steps are done.
    let is_beside =
        |c: &&Condition| Step::of_reason(&c.reason).is_some_and(|step| !step.is_of_installation());
    let is_pools = |c: &&Condition| Step::of_reason(&c.reason) == Some(Step::RequiredPools);
    let is_after_all = |c: &&Condition| is_beside(c) || is_pools(c);
    if let Some(degraded) = if_true(DEGRADED).filter(|c| !is_after_all(c)) {
        let what = Failure::Step(Step::of_reason(&degraded.reason));
        return Progress::Failed { what, why: format!("{}: {}", degraded.reason, degraded.message) };
    }
    let message =
        |kind: &str| conditions::get(&status.conditions, kind).map(|c| c.message.clone()).unwrap_or_default();
    if let Some(progressing) = if_true(PROGRESSING).filter(|c| !is_after_all(c)) {
        return Progress::Waiting(progressing.message.clone());
    }
    if if_true(AVAILABLE).is_none() {
        return Progress::Waiting(message(AVAILABLE));
    }
    let pools = if_true(PROGRESSING).filter(is_pools);
    let pools = pools.map(|c| format!("; pools go on: {}", c.message)).unwrap_or_default();
    let beside = if_true(DEGRADED).filter(is_beside);
    let beside = beside.map(|c| format!("; {}: {}", c.reason, c.message)).unwrap_or_default();
    Progress::Done(format!("Available: {}{pools}{beside}", message(AVAILABLE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn it_is_done_when_this_versions_operator_says_so_of_these_settings() {
        let settings = |generation: i64, by: &str, conditions: Value| -> MachineConfigOperator {
            serde_json::from_value(json!({
                "metadata": {"name": "cluster", "generation": 3}, "spec": {"image": "mco:1"},
                "status": {"observedGeneration": generation, "observedBy": by, "conditions": conditions},
            }))
            .unwrap()
        };
        let condition = |kind: &str, yes: bool, reason: &str| {
            json!({"type": kind, "status": if yes { "True" } else { "False" }, "reason": reason, "message": format!("{kind} it says"),
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let life = |available: bool, progressing: Option<&str>, degraded: Option<&str>| {
            json!([
                condition("Available", available, "AsExpected"),
                condition("Progressing", progressing.is_some(), progressing.unwrap_or("AsExpected")),
                condition("Degraded", degraded.is_some(), degraded.unwrap_or("AsExpected")),
            ])
        };
        let rows = [
            (3, VERSION_RAW, life(true, None, None), "done"),
            (3, VERSION_RAW, life(true, Some("RequiredPools"), None), "done"),
            (3, VERSION_RAW, life(true, Some("RequiredPoolsFailed"), Some("RequiredPoolsFailed")), "done"),
            // Everything was installed; a watch says nothing of it.
            (3, VERSION_RAW, life(true, None, Some("WatchFailed")), "done"),
            (3, VERSION_RAW, life(true, Some("RequiredPools"), Some("WatchFailed")), "done"),
            (3, VERSION_RAW, life(false, None, Some("WatchFailed")), "waiting"),
            (3, VERSION_RAW, life(true, None, Some("JoiningFailed")), "done"),
            (3, VERSION_RAW, life(true, None, Some("CaLifetimeFailed")), "done"),
            (3, VERSION_RAW, life(true, Some("MonitoringFailed"), Some("MonitoringFailed")), "failed"),
            (3, VERSION_RAW, life(true, Some("MachineConfigServer"), None), "waiting"),
            (3, VERSION_RAW, life(false, None, None), "waiting"),
            (3, VERSION_RAW, life(true, None, Some("RightsFailed")), "failed"),
            // Conditions for an older generation of the settings, or from an older operator.
            (2, VERSION_RAW, life(true, None, None), "waiting"),
            (3, "v0.0.1", life(true, None, None), "waiting"),
            (3, "v0.0.1", life(true, None, Some("RightsFailed")), "waiting"),
        ];
        for (generation, by, conditions, want) in rows {
            let found = progress_of(Some(&settings(generation, by, conditions.clone())), &[]);
            let word = match found {
                Progress::Done(_) => "done",
                Progress::Waiting(_) => "waiting",
                Progress::Failed { .. } => "failed",
            };
            assert_eq!(word, want, "{generation} {by} {conditions}");
        }
        let words = |progressing: Option<&str>, degraded: &str| {
            let of = settings(3, VERSION_RAW, life(true, progressing, Some(degraded)));
            match progress_of(Some(&of), &[]) {
                Progress::Done(words) => words,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(words(None, "WatchFailed"), "Available: Available it says; WatchFailed: Degraded it says");
        assert_eq!(
            words(Some("RequiredPools"), "WatchFailed"),
            "Available: Available it says; pools go on: Progressing it says; WatchFailed: Degraded it says"
        );
        let unmanaged = |from: &str, rolled_out: &str| {
            let mut it = json!(settings(3, VERSION_RAW, life(true, None, None)));
            it["spec"]["managementState"] = json!("Unmanaged");
            it["spec"]["imageFrom"] = json!(from);
            it["status"]["versions"] = json!([{"name": "operator-image", "version": rolled_out}]);
            progress_of(Some(&serde_json::from_value(it).unwrap()), &[])
        };
        assert!(matches!(unmanaged("Settings", "mco:1"), Progress::Done(_)));
        assert!(matches!(unmanaged("ReleasePayload", "mco:0"), Progress::Done(_)));
        assert!(
            matches!(unmanaged("Settings", "mco:0"), Progress::Failed { what: Failure::Unmanaged, why } if why.contains("set it to Managed"))
        );
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "o-1"},
            "status": {"containerStatuses": [{"name": "o", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]},
        }))
        .unwrap();
        let found = progress_of(Some(&settings(2, VERSION_RAW, json!([]))), &[pod]);
        assert!(
            matches!(&found, Progress::Failed { what: Failure::Operator, why } if why.contains("o-1") && why.contains("spec.image")),
            "{found:?}"
        );
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "o-1"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]}}))
        .unwrap();
        let found = progress_of(Some(&settings(2, VERSION_RAW, json!([]))), &[pod]);
        assert!(
            matches!(&found, Progress::Waiting(what) if what.contains("pod o-1: Unschedulable: 0/2 nodes"))
        );
        assert!(matches!(progress_of(None, &[]), Progress::Failed { what: Failure::Settings, .. }));
        let rights = settings(3, VERSION_RAW, life(true, None, Some("RightsFailed")));
        let found = progress_of(Some(&rights), &[]);
        let is_rights = matches!(found, Progress::Failed { what: Failure::Step(Some(Step::Rights)), .. });
        assert!(is_rights, "{found:?}");
    }
}

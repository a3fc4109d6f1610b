//! Writes what a pass has come to: the status of the settings object, the ClusterOperator where that kind exists, events,
//! metrics. Everything is compared first and written only where it changed.
//!
//! What it is not: the words (see `status`).

use super::metrics::{Metrics, Outcome};
use super::pass::PassResult;
use super::status::{self, DEGRADED, EVALUATION, Facts, OPERATOR, RELEASE};
use super::{Step, Stop};
use crate::manifests::rights::{self, CLUSTER_OPERATOR};
use api::conditions::{self, StatusCondition as _};
use api::events::OperatorEvent;
use api::k8s::{Event, ObjectReference, Time};
use api::names::{CLUSTER, GROUP, NAMESPACE, VERSION_RAW};
use api::v1alpha1::{MachineConfigOperator, MachineConfigOperatorStatus, ManagementState};
use client::{CallError, call, chain};
use k8s_openapi::api::core::v1::EventSource;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Writes the status. A failure is logged: the next pass computes the same status again.
pub(super) async fn report(client: &Client, metrics: &Metrics, passed: &PassResult) {
    let failed = passed.stopped.as_ref().filter(|s| matches!(s.stop, Stop::Failed(_)));
    let result = match (&passed.stopped, passed.conflict) {
        (_, true) => "conflict",
        (None, false) => "done",
        (Some(_), false) if failed.is_some() => "failed",
        (Some(_), false) => "waiting",
    };
    metrics.passes.get_or_create(&Outcome { result }).inc();
    metrics.failed(failed.map(|s| s.step));
    if passed.conflict {
        return;
    }
    let Some(settings) = &passed.seen.settings else { return };
    if let Err(error) = write(client, settings, passed).await {
        tracing::warn!("the status is not written: {}", chain(&error));
    }
}

/// Takes note of a pass that could read nothing at all. Nobody else can be told: the status cannot be written either.
pub(super) fn unread(metrics: &Metrics) {
    metrics.passes.get_or_create(&Outcome { result: "failed" }).inc();
    metrics.failed(Some(Step::Read));
}

/// Which reasons of Upgradeable nobody has looked for in this pass.
fn not_looked_for(passed: &PassResult) -> Vec<&'static str> {
    let is_read = passed.stopped.as_ref().is_none_or(|s| s.step != Step::Read);
    [
        (is_read, status::INTERRUPTED_BUILD),
        (is_read, status::DEGRADED_POOL),
        (passed.boot_images_read, status::BOOT_IMAGES),
        (passed.stored_read, status::STORED_VERSIONS),
        (passed.kubelets.is_some(), status::KUBELET_SKEW),
    ]
    .into_iter()
    .filter_map(|(read, reason)| (!read).then_some(reason))
    .collect()
}

async fn write(
    client: &Client,
    settings: &MachineConfigOperator,
    passed: &PassResult,
) -> Result<(), CallError> {
    let before = settings.status.clone().unwrap_or_default();
    let kubelets = passed.kubelets.as_ref().map(|(server, all)| (*server, all.as_slice()));
    let facts = Facts {
        version: VERSION_RAW,
        image: passed.image.as_deref().unwrap_or(&settings.spec.image),
        release: passed.release.as_deref(),
        generation: settings.metadata.generation,
        unmanaged: settings.spec.management_state == ManagementState::Unmanaged,
        stopped: passed.stopped.as_ref(),
        complete: passed.complete,
        controller: passed.controller,
        pools: &passed.seen.pools,
        interrupted: &passed.seen.interrupted,
        kubelets,
        stored: &passed.stored,
        boot_images: passed.boot_images.as_deref(),
        evaluation: &passed.seen.evaluation,
        not_looked_for: &not_looked_for(passed),
    };
    let now = Timestamp::now();
    let after = status::after(&before, &facts, &Time(now));
    if after != before {
        let api: Api<MachineConfigOperator> = Api::all(client.clone());
        let patch = json!({ "status": changed(&before, &after) });
        let what = || format!("patch the status of {}", crate::settings::name());
        call(what, api.patch_status(CLUSTER, &PatchParams::default(), &Patch::Merge(&patch))).await?;
        // Nobody is to be alarmed by an uninstall.
        for event in events(settings, &before, &after, now).into_iter().filter(|_| !passed.removed) {
            let api: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
            let what = || "create an event about the settings".to_owned();
            if let Err(error) = call(what, api.create(&PostParams::default(), &event)).await {
                tracing::debug!("{}", chain(&error));
            }
        }
    }
    // An uninstall takes the ClusterOperator away, too.
    if passed.removed { Ok(()) } else { cluster_operator(client, &after).await }
}

/// The merge patch from one status to another: keys of the extension that are gone are taken out.
fn changed(before: &MachineConfigOperatorStatus, after: &MachineConfigOperatorStatus) -> Value {
    let mut patch = json!(after);
    for key in before.extension.keys().filter(|k| !after.extension.contains_key(*k)) {
        patch["extension"][key] = Value::Null;
    }
    patch
}

/// What people are told of: a failure that is new or says something else, and a version that was reached.
fn events(
    settings: &MachineConfigOperator,
    before: &MachineConfigOperatorStatus,
    after: &MachineConfigOperatorStatus,
    now: Timestamp,
) -> Vec<Event> {
    let degraded = |s: &MachineConfigOperatorStatus| {
        let found = conditions::get_true(&s.conditions, DEGRADED);
        found.map(|c| (c.reason.clone(), c.message.clone()))
    };
    let version = |s: &MachineConfigOperatorStatus| {
        s.versions.iter().find(|v| v.name == OPERATOR).map(|v| v.version.clone())
    };
    let mut events = vec![];
    if let Some((reason, message)) = degraded(after).filter(|now| Some(now) != degraded(before).as_ref()) {
        events.push(event(settings, OperatorEvent::OperatorDegraded, &format!("{reason}: {message}"), now));
    }
    if let Some(new) = version(after).filter(|new| Some(new) != version(before).as_ref()) {
        let old = version(before).map(|old| format!(" from {old}")).unwrap_or_default();
        events.push(event(
            settings,
            OperatorEvent::OperatorVersionChanged,
            &format!("the installed version changed{old} to {new}"),
            now,
        ));
    }
    events
}

fn event(settings: &MachineConfigOperator, reason: OperatorEvent, message: &str, now: Timestamp) -> Event {
    let mut event = Event {
        message: Some(api::formats::text::cut(message, 1000).into_owned()),
        reason: Some(reason.text().to_owned()),
        type_: Some(reason.severity().text().to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource { component: Some(rights::OPERATOR.to_owned()), host: None }),
        involved_object: ObjectReference {
            api_version: Some("machineconfig.dev/v1alpha1".to_owned()),
            kind: Some("MachineConfigOperator".to_owned()),
            name: Some(CLUSTER.to_owned()),
            // The API requires that the two namespaces agree, also for cluster-scoped objects.
            namespace: Some(NAMESPACE.to_owned()),
            uid: settings.metadata.uid.clone(),
            ..ObjectReference::default()
        },
        ..Event::default()
    };
    event.metadata.generate_name = Some(format!("{CLUSTER}."));
    event.metadata.namespace = Some(NAMESPACE.to_owned());
    event
}

/// What belongs to us, for `oc adm inspect` and the like.
fn related_objects() -> Value {
    let mut all = vec![json!({"group": "", "resource": "namespaces", "name": NAMESPACE})];
    let plain = |group: &str, resource: &str| json!({"group": group, "resource": resource, "name": ""});
    for resource in [
        "machineconfigpools",
        "controllerconfigs",
        "kubeletconfigs",
        "containerruntimeconfigs",
        "machineconfigs",
    ] {
        all.push(plain(GROUP, resource));
    }
    all.push(plain("operator.openshift.io", "machineconfigurations"));
    all.push(plain("", "nodes"));
    let named = |resource: &str, name: &str| json!({"group": "rbac.authorization.k8s.io", "resource": resource, "name": name});
    for name in [rights::CONTROLLER, rights::AGENT, rights::SERVER] {
        all.push(named("clusterroles", name));
        all.push(named("clusterrolebindings", name));
    }
    all.push(json!({"group": "machineconfig.dev", "resource": crate::settings::PLURAL, "name": CLUSTER}));
    all.into()
}

/// The status of the ClusterOperator: the same conditions, without what is ours alone.
fn of_cluster_operator(status: &MachineConfigOperatorStatus) -> Value {
    let conditions: Vec<Value> = status
        .conditions
        .iter()
        .map(|c| {
            // OpenShift's tools find what was detected in the reason.
            let detected = c.type_ == EVALUATION && c.is_true();
            let (reason, message) = if detected { (&c.message, "") } else { (&c.reason, c.message.as_str()) };
            json!({
                "type": c.type_, "status": c.status, "reason": reason, "message": message,
                "lastTransitionTime": c.last_transition_time,
            })
        })
        .collect();
    json!({
        "conditions": conditions,
        "versions": versions(status),
        "relatedObjects": related_objects(),
        "extension": status::extension(status),
    })
}

/// What the cluster's own version operator compares with its release: the release that was rolled out as a whole, where there
/// is one, as the version of `operator`.
fn versions(status: &MachineConfigOperatorStatus) -> Value {
    let release = status.versions.iter().find(|v| v.name == RELEASE);
    let mut versions = json!(status.versions.iter().filter(|v| v.name != RELEASE).collect::<Vec<_>>());
    for entry in versions.as_array_mut().into_iter().flatten() {
        if let Some(release) = release.filter(|_| entry["name"] == OPERATOR) {
            entry["version"] = json!(release.version);
        }
    }
    versions
}

/// Keeps the ClusterOperator `machine-config`, where the kind exists.
async fn cluster_operator(client: &Client, status: &MachineConfigOperatorStatus) -> Result<(), CallError> {
    let object = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "spec": {},
        "metadata": {"name": CLUSTER_OPERATOR, "labels": {api::first_boot::server_tls::MANAGED_BY.0: api::first_boot::server_tls::MANAGED_BY.1}},
    });
    let Some(api) = super::cluster::api_of(client, &object) else { return Ok(()) };
    let params = ListParams::default().fields(&format!("metadata.name={CLUSTER_OPERATOR}"));
    // A list tells a kind that is not served from an object that is not there.
    let there = match call(|| "list ClusterOperators".to_owned(), api.list(&params)).await {
        Err(error) if error.is_not_found() => return Ok(()),
        list => list?.items.into_iter().next(),
    };
    if there.is_none() {
        super::cluster::apply(client, &object).await?;
    }
    let wanted = of_cluster_operator(status);
    let has = there.map(|o| o.data["status"].clone()).unwrap_or_default();
    let keys = ["conditions", "versions", "relatedObjects", "extension"];
    if keys.iter().all(|key| {
        has[*key] == wanted[*key]
            || (has[*key].is_null() && wanted[*key].as_array().is_some_and(Vec::is_empty))
    }) {
        return Ok(());
    }
    let mut patch = wanted;
    for key in has["extension"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if patch["extension"].get(key).is_none() {
            patch["extension"][key] = Value::Null;
        }
    }
    let patch = Patch::Merge(json!({ "status": patch }));
    let what = || format!("patch the status of ClusterOperator {CLUSTER_OPERATOR}");
    call(what, api.patch_status(CLUSTER_OPERATOR, &PatchParams::default(), &patch)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1alpha1::Condition;

    fn status(degraded: Option<&str>, version: Option<&str>) -> MachineConfigOperatorStatus {
        let time: Time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        MachineConfigOperatorStatus {
            conditions: degraded
                .map(|why| Condition {
                    type_: DEGRADED.to_owned(),
                    status: "True".to_owned(),
                    observed_generation: None,
                    last_transition_time: time,
                    reason: "RightsFailed".to_owned(),
                    message: why.to_owned(),
                })
                .into_iter()
                .collect(),
            versions: version
                .map(|v| api::v1alpha1::OperandVersion { name: OPERATOR.to_owned(), version: v.to_owned() })
                .into_iter()
                .collect(),
            ..MachineConfigOperatorStatus::default()
        }
    }

    #[test]
    fn people_are_told_once_of_each_failure_and_version() {
        let settings = MachineConfigOperator::default();
        let told = |before: &MachineConfigOperatorStatus, after: &MachineConfigOperatorStatus| {
            let all = events(&settings, before, after, Timestamp::UNIX_EPOCH);
            all.into_iter()
                .map(|e| format!("{}: {}", e.reason.unwrap(), e.message.unwrap()))
                .collect::<Vec<_>>()
        };
        let (fine, bad, worse) =
            (status(None, Some("v1")), status(Some("a"), Some("v1")), status(Some("b"), Some("v1")));
        assert_eq!(told(&fine, &bad), ["OperatorDegraded: RightsFailed: a"]);
        assert_eq!(told(&bad, &bad), Vec::<String>::new());
        assert_eq!(told(&bad, &worse), ["OperatorDegraded: RightsFailed: b"]);
        assert_eq!(told(&worse, &fine), Vec::<String>::new());
        assert_eq!(
            told(&fine, &status(None, Some("v2"))),
            ["OperatorVersionChanged: the installed version changed from v1 to v2"]
        );
    }

    #[test]
    fn the_cluster_operators_version_is_that_of_the_release() {
        let mut status = status(None, Some("v1"));
        assert_eq!(of_cluster_operator(&status)["versions"], json!([{"name": OPERATOR, "version": "v1"}]));
        status
            .versions
            .push(api::v1alpha1::OperandVersion { name: RELEASE.to_owned(), version: "4.22.1".to_owned() });
        assert_eq!(
            of_cluster_operator(&status)["versions"],
            json!([{"name": OPERATOR, "version": "4.22.1"}])
        );
    }

    #[test]
    fn a_pool_that_is_gone_leaves_the_extension() {
        let with = |keys: &[&str]| MachineConfigOperatorStatus {
            extension: keys.iter().map(|k| ((*k).to_owned(), "x".to_owned())).collect(),
            ..MachineConfigOperatorStatus::default()
        };
        let patch = changed(&with(&["a", "lastSyncError"]), &with(&["a"]));
        assert_eq!(patch["extension"], json!({"a": "x", "lastSyncError": null}));
    }
}

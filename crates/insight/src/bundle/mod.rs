//! Everything that a bug report needs, as files: objects, events, logs of our pods, and what `mco status` says. Secrets stay
//! in the cluster (see `redact`). What cannot be read is named in `errors.txt`; the rest is collected all the same.
//!
//! What it is not: the archive, which the program writes, and logs of hosts, which no API server has.

pub(crate) mod redact;
pub(crate) mod redact_text;

use crate::status::follow::snapshot;
use api::definition::{Defined as _, Definition};
use api::k8s::Pod;
use api::names::{GROUP, NAMESPACE};
use api::v1alpha1::{MachineConfigOperator, RolloutPolicy};
use client::{CallError, call_within, pages};
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, LogParams};
use kube::core::GroupVersionKind;
use redact::redacted;
use redact_text::redacted_lines;
use serde_json::{Value, json};
use std::time::Duration;

/// The timeout of one request. Lists of thousands of nodes take seconds.
const REQUEST: Duration = Duration::from_secs(60);
/// The last bytes of a container's log that are taken. The API server's own limit would cut off the newest lines.
const LOG_BYTES: usize = 4 << 20;
/// The last lines of a container's log that are taken.
const LOG_LINES: i64 = 20_000;

const SETTINGS: Definition = MachineConfigOperator::DEFINITION;
const POLICY: Definition = RolloutPolicy::DEFINITION;
/// What is listed: group, version, kind, and whether it lives in our namespace.
const KINDS: [(&str, &str, &str, bool); 30] = [
    (GROUP, "v1", "MachineConfigPool", false),
    (GROUP, "v1", "MachineConfig", false),
    (GROUP, "v1", "MachineConfigNode", false),
    (GROUP, "v1", "ControllerConfig", false),
    (GROUP, "v1", "KubeletConfig", false),
    (GROUP, "v1", "ContainerRuntimeConfig", false),
    (GROUP, "v1", "OSImageStream", false),
    (GROUP, "v1", "MachineOSConfig", false),
    (GROUP, "v1", "MachineOSBuild", false),
    (GROUP, "v1", "PinnedImageSet", false),
    (SETTINGS.group, SETTINGS.version, SETTINGS.kind, false),
    (POLICY.group, POLICY.version, POLICY.kind, false),
    ("operator.openshift.io", "v1", "MachineConfiguration", false),
    ("config.openshift.io", "v1", "ClusterOperator", false),
    ("config.openshift.io", "v1", "ClusterVersion", false),
    ("config.openshift.io", "v1", "FeatureGate", false),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", false),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", false),
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", false),
    ("", "v1", "Node", false),
    ("policy", "v1", "PodDisruptionBudget", false),
    ("", "v1", "Pod", true),
    ("apps", "v1", "Deployment", true),
    ("apps", "v1", "DaemonSet", true),
    ("", "v1", "Service", true),
    ("", "v1", "ConfigMap", true),
    ("", "v1", "Secret", true),
    ("", "v1", "ServiceAccount", true),
    ("coordination.k8s.io", "v1", "Lease", true),
    ("rbac.authorization.k8s.io", "v1", "Role", true),
];

/// A file of the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleFile {
    /// Its path in the archive.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// Collects everything. `progress` is called with what is read next. Never fails: what cannot be read is named in the file
/// `errors.txt`.
pub async fn bundle(client: &Client, version: &str, mut progress: impl FnMut(&str)) -> Vec<BundleFile> {
    let mut files = Vec::new();
    let mut errors = Vec::new();
    let mut add = |path: String, text: String| files.push(BundleFile { path, text });
    add("version.txt".to_owned(), format!("mco {version}\n"));
    for (group, version, kind, ours) in KINDS {
        progress(kind);
        match list(client, group, version, kind, ours).await {
            Ok(objects) if objects.is_empty() => {}
            Ok(objects) => {
                let group = if group.is_empty() { "core" } else { group };
                add(format!("objects/{group}/{}.yaml", kind.to_lowercase()), yaml(&objects, kind));
            }
            // An optional kind, which is not installed.
            Err(error) if error.is_not_found() => {}
            Err(error) => errors.push(client::chain(&error)),
        }
    }
    progress("events");
    match events(client).await {
        Ok(text) => add("events.txt".to_owned(), text),
        Err(error) => errors.push(client::chain(&error)),
    }
    progress("logs");
    match logs(client, &mut errors).await {
        Ok(all) => all.into_iter().for_each(|(path, text)| add(path, text)),
        Err(error) => errors.push(client::chain(&error)),
    }
    progress("status");
    match snapshot(client, &[]).await {
        Ok(now) => match serde_json::to_value(&now) {
            Ok(value) => add("status.yaml".to_owned(), yaml(&[redacted("Snapshot", value)], "Snapshot")),
            Err(error) => errors.push(format!("status: {error}")),
        },
        Err(error) => errors.push(client::chain(&error)),
    }
    if !errors.is_empty() {
        add("errors.txt".to_owned(), errors.join("\n") + "\n");
    }
    files
}

async fn list(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    ours: bool,
) -> Result<Vec<Value>, CallError> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match ours {
        true => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
        false => Api::all_with(client.clone(), &resource),
    };
    let page = |params: ListParams| {
        let api = api.clone();
        async move { call_within(REQUEST, || format!("cannot list {kind} objects"), api.list(&params)).await }
    };
    let mut all = Vec::new();
    let each = |object: DynamicObject| {
        let mut value = json!({ "apiVersion": resource.api_version, "kind": kind });
        if let (Some(value), Ok(Value::Object(fields))) =
            (value.as_object_mut(), serde_json::to_value(&object))
        {
            value.extend(fields.into_iter().filter(|(_, v)| !v.is_null()));
        }
        all.push(redacted(kind, value));
    };
    pages(ListParams::default(), page, each).await?;
    Ok(all)
}

fn yaml(objects: &[Value], kind: &str) -> String {
    let texts = objects.iter().map(|object| {
        api::formats::yaml::to_string(object)
            .unwrap_or_else(|error| format!("# a {kind} that cannot be written: {error}\n"))
    });
    texts.collect::<Vec<_>>().join("---\n")
}

/// The events of our namespace and of Nodes, the oldest first.
async fn events(client: &Client) -> Result<String, CallError> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (api, about) in [
        (Api::<Event>::namespaced(client.clone(), NAMESPACE), ""),
        (Api::<Event>::namespaced(client.clone(), "default"), "Node"),
    ] {
        let what = || "cannot list events".to_owned();
        for event in call_within(REQUEST, what, api.list(&ListParams::default())).await?.items {
            let object = &event.involved_object;
            let kind = object.kind.clone().unwrap_or_default();
            if !about.is_empty() && kind != about {
                continue;
            }
            let time = event
                .last_timestamp
                .map(|t| t.0.to_string())
                .or_else(|| event.event_time.map(|t| t.0.to_string()))
                .unwrap_or_default();
            let text = [
                time.clone(),
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                format!("{kind}/{}", object.name.clone().unwrap_or_default()),
                event.count.map(|n| format!("x{n}")).unwrap_or_default(),
                redacted_lines(&event.message.unwrap_or_default()),
            ];
            all.push((time, text.join("\t")));
        }
    }
    all.sort();
    Ok(all.into_iter().map(|(_, line)| line.trim_end().to_owned() + "\n").collect())
}

/// The logs of our pods, also of the container before a restart: path and text. Each log that cannot be read is an error.
async fn logs(client: &Client, errors: &mut Vec<String>) -> Result<Vec<(String, String)>, CallError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    // Logs are a subresource of the complete type only; nothing is read into it.
    let texts: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let what = || format!("cannot list pods in {NAMESPACE}");
    let mut all = Vec::new();
    for pod in call_within(REQUEST, what, pods.list(&ListParams::default())).await?.items {
        let name = pod.metadata.name.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let containers = [status.init_container_statuses, status.container_statuses];
        for status in containers.into_iter().flatten().flatten() {
            let container = status.name;
            for previous in [false, true] {
                if previous && status.restart_count == 0 {
                    continue;
                }
                let params = LogParams {
                    container: Some(container.clone()),
                    tail_lines: Some(LOG_LINES),
                    timestamps: true,
                    previous,
                    ..LogParams::default()
                };
                let before = if previous { ".before" } else { "" };
                let what = || format!("cannot read the log of pod {name}, container {container}");
                match call_within(REQUEST, what, texts.logs(&name, &params)).await {
                    Ok(text) => all.push((
                        format!("logs/{name}/{container}{before}.log"),
                        redacted_lines(newest(&text)),
                    )),
                    Err(error) => errors.push(client::chain(&error)),
                }
            }
        }
    }
    Ok(all)
}

/// The end of a long log, from the start of a line.
fn newest(text: &str) -> &str {
    let from = text.len().saturating_sub(LOG_BYTES);
    if from == 0 {
        return text;
    }
    let line = text.as_bytes().iter().skip(from).position(|b| *b == b'\n').map(|at| from + at + 1);
    line.and_then(|at| text.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let text = format!("{}\nlast line ü\n", "an early line ü\n".repeat(LOG_BYTES / 10));
        let kept = newest(&text);
        assert!(kept.len() <= LOG_BYTES && kept.ends_with("\nlast line ü\n"));
        assert!(kept.starts_with("an early line"));
        assert_eq!(newest("short"), "short");
    }
}

//! What is asked for seldom, read from the API server when it is: one node, a pool's configs and who set what, two configs
//! side by side, certificates, boot tokens. Each part that cannot be read says so, and the others stand.
//!
//! What it is not: the fleet, which comes by the stream; the operator (see `installation`); and any content of a Secret.

use crate::answers::pool_policies;
use crate::response;
use crate::shared::ForPerson;
use api::first_boot::boot_token::{self, Record};
use api::formats::object_name::is_valid;
use api::k8s::{Node, Secret};
use api::names::{self, annotation};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode};
use axum::extract::Path;
use axum::response::Response;
use client::{CallError, call};
use desired::mask::Secrets;
use futures::future::join_all;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use rollout::PastUpdate;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

/// The newest events of a node that are shown.
const EVENTS: usize = 50;
/// How many names of nodes with the same operating system are shown.
const NAMES: usize = 20;
/// Of how many pools the configs are read at the same time: each of them can be megabytes, and open pages ask again with every change.
pub(crate) const POOLS: usize = 2;
/// How long a request waits for its turn.
const TURN: Duration = Duration::from_secs(15);

/// A part of an answer: what was read, or why it cannot be.
pub(crate) fn part<T: Serialize, E: std::error::Error + 'static>(read: Result<T, E>) -> Value {
    match read {
        Ok(value) => json!(value),
        Err(error) => json!({"error": response::shown_error(&error)}),
    }
}

/// Reads a list to its end, in pages.
async fn each<K>(api: &Api<K>, what: &str, params: ListParams, each: impl FnMut(K)) -> Result<(), CallError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let page = |params: ListParams| async move { call(|| what.to_owned(), api.list(&params)).await };
    client::pages(params, page, each).await
}

/// A failure with the status that fits it.
fn refused(error: &CallError) -> Response {
    let status = match error.code() {
        Some(403) => StatusCode::FORBIDDEN,
        Some(404) => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_GATEWAY,
    };
    response::failed(status, &response::shown_error(error))
}

/// The answer about a name that no object can have.
pub(crate) fn no_name() -> Response {
    response::failed(StatusCode::NOT_FOUND, response::INVALID_NAME)
}

/// One node: what its agent says, its steps, conditions, events, and what its next config changes.
pub(crate) async fn node(ForPerson(shared): ForPerson, Path(name): Path<String>) -> Response {
    if !is_valid(&name) {
        return no_name();
    }
    let client = &shared.client;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = match call(|| format!("get node {name}"), nodes.get_opt(&name)).await {
        Ok(Some(node)) => node,
        Ok(None) => return response::failed(StatusCode::NOT_FOUND, &format!("there is no node {name}")),
        Err(error) => return refused(&error),
    };
    let note = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
    let (current, desired) = (note(annotation::CURRENT_CONFIG), note(annotation::DESIRED_CONFIG));
    let progress: Api<MachineConfigNode> = Api::all(client.clone());
    let (steps, events, difference) = tokio::join!(
        call(|| format!("get machineconfignode {name}"), progress.get_opt(&name)),
        events(client, &name),
        difference(client, &current, &desired),
    );
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    response::masked(json!({
        "name": name,
        "state": note(annotation::STATE),
        "reason": note(annotation::REASON),
        "current": current,
        "desired": desired,
        "driftPolicy": note(annotation::DRIFT),
        "drain": {
            "desired": note(annotation::DESIRED_DRAIN),
            "applied": note(annotation::LAST_APPLIED_DRAIN),
            "waitsFor": note(rollout::view::own::DRAIN_WAIT),
        },
        "cordoned": spec.unschedulable.unwrap_or_default(),
        "conditions": status.conditions,
        "kubelet": info.kubelet_version,
        "os": info.os_image,
        "kernel": info.kernel_version,
        "updates": steps.as_ref().map(|object| past(object.as_ref())).unwrap_or_default(),
        "steps": part(steps.map(|object| object.and_then(|o| o.status)?.conditions)),
        "events": part(events),
        "difference": difference,
    }))
}

/// The updates that a node went through, the newest first.
fn past(object: Option<&MachineConfigNode>) -> Vec<Value> {
    let all = object.map(|object| rollout::past_updates(&object.metadata)).unwrap_or_default();
    let row = |update: &PastUpdate| {
        let PastUpdate { config, began, drained, applied, rebooted, uncordoned: _, done, waited, turn } =
            update;
        // How long each part took; they follow one another.
        let (drain, change) = (drained.unwrap_or_default(), applied.unwrap_or_default());
        let back = rebooted.or(*applied).unwrap_or_default();
        json!({"config": config, "began": began, "done": update.at(*done), "seconds": done, "drain": drained,
            "change": change.saturating_sub(drain), "reboot": rebooted.map(|at| at.saturating_sub(change)),
            "back": done.saturating_sub(back), "waited": waited, "turn": turn})
    };
    all.iter().rev().map(row).collect()
}

/// The newest events about a node. Times are those of the last occurrence.
async fn events(client: &Client, node: &str) -> Result<Vec<Value>, CallError> {
    let about = format!("involvedObject.kind=Node,involvedObject.name={node}");
    let params = ListParams::default().fields(&about);
    let api: Api<Event> = Api::all(client.clone());
    let mut all = vec![];
    each(&api, &format!("list the events of node {node}"), params, |event| all.push(event)).await?;
    let when = |e: &Event| {
        let micro = || e.event_time.as_ref().map(|t| t.0);
        e.last_timestamp.as_ref().map(|t| t.0).or_else(micro).or(e
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|t| t.0))
    };
    all.sort_by_key(|e| std::cmp::Reverse(when(e)));
    let row = |e: &Event| json!({"at": when(e), "type": e.type_, "reason": e.reason, "message": e.message, "count": e.count});
    Ok(all.iter().take(EVENTS).map(row).collect())
}

/// How two rendered configs differ, masked; or why that is not known. Empty: they are the same.
async fn difference(client: &Client, from: &str, to: &str) -> Value {
    if from == to || to.is_empty() {
        return json!({"text": ""});
    }
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let read = async |name: &str| match name {
        "" => Ok(None),
        name => call(|| format!("get machineconfig {name}"), configs.get(name)).await.map(Some),
    };
    match tokio::try_join!(read(from), read(to)) {
        Ok((old, new)) => match render::diff(old.as_ref(), new.as_ref(), Secrets::Hide) {
            Ok(text) => json!({"from": from, "to": to, "text": text}),
            Err(why) => json!({"error": why}),
        },
        Err(error) => json!({"error": response::shown_error(&error)}),
    }
}

/// What a pool gets and who set it, its past configs, and its policy.
pub(crate) async fn pool(ForPerson(shared): ForPerson, Path(name): Path<String>) -> Response {
    if !is_valid(&name) {
        return no_name();
    }
    // Kept until the answer is made.
    let Ok(Ok(_turn)) = tokio::time::timeout(TURN, shared.pools.acquire()).await else {
        let why = "too many pools are being looked at: try again in a few seconds";
        return response::failed(StatusCode::TOO_MANY_REQUESTS, why);
    };
    let (explained, past, policies) = tokio::join!(
        insight::explain(&shared.client, &name),
        insight::history(&shared.client, &name),
        pool_policies::of_pool(&shared.client, &name),
    );
    let mut all = json!({
        "explanation": part(explained.map(|e| e.masked(Secrets::Hide))),
        "history": part(past.map(|p| actions::messages::history(&p))),
        "policies": part(policies),
    });
    let names: Vec<Value> = approvers(&mut all).map(|name| name.clone()).collect();
    response::mask(&mut all);
    // Names of people stay: for their `@` those of OIDC and of AWS look like a user and a password.
    let is_name = |name: &Value| {
        let plain = name.as_str().map(|name| name.replace('@', " "));
        plain.is_some_and(|plain| insight::redacted_lines(&plain) == plain)
    };
    for (masked, name) in approvers(&mut all).zip(names).filter(|(_, name)| is_name(name)) {
        *masked = name;
    }
    response::plain(&all)
}

/// Who approved, in the answer about a pool.
fn approvers(answer: &mut Value) -> impl Iterator<Item = &mut Value> {
    let policies = answer.get_mut("policies").and_then(Value::as_array_mut).into_iter().flatten();
    let progress = policies.filter_map(|policy| policy.pointer_mut("/progress/approvals")?.as_array_mut());
    progress.flatten().filter_map(|approval| approval.get_mut("by"))
}

/// The rendered configs that there are.
pub(crate) async fn configs(ForPerson(shared): ForPerson) -> Response {
    let api: Api<MachineConfig> = Api::all(shared.client.clone());
    let page = |params: ListParams| {
        let api = &api;
        async move { call(|| "list machineconfigs".to_owned(), api.list_metadata(&params)).await }
    };
    let mut rows = vec![];
    let row = |config: PartialObjectMeta<MachineConfig>| {
        let pool = api::rendered::owning_pool(config.metadata.owner_references.as_deref());
        rows.extend(pool.map(|pool| {
            json!({"name": config.name_any(), "pool": pool, "created": config.metadata.creation_timestamp})
        }));
    };
    match client::pages(ListParams::default(), page, row).await {
        Ok(()) => response::masked(json!({"configs": rows})),
        Err(error) => refused(&error),
    }
}

/// One config: its OS image and the like, all that it sets, masked, and who set it.
pub(crate) async fn config(ForPerson(shared): ForPerson, Path(name): Path<String>) -> Response {
    if !is_valid(&name) {
        return no_name();
    }
    let api: Api<MachineConfig> = Api::all(shared.client.clone());
    let config = match call(|| format!("get machineconfig {name}"), api.get(&name)).await {
        Ok(config) => config,
        Err(error) => return refused(&error),
    };
    let text = match render::diff(None, Some(&config), Secrets::Hide) {
        Ok(text) => json!({ "text": text }),
        Err(why) => json!({ "error": why }),
    };
    let explained = match insight::explain_stored(&config) {
        None => Value::Null,
        Some(Ok(explained)) => json!(explained.masked(Secrets::Hide)),
        Some(Err(why)) => json!({"error": why}),
    };
    let spec = &config.spec;
    response::masked(json!({
        "name": name,
        "pool": api::rendered::owning_pool(config.metadata.owner_references.as_deref()),
        "explanation": explained,
        "osImage": spec.os_image_url,
        "extensionsImage": spec.base_os_extensions_container_image,
        "kernelType": spec.kernel_type,
        "fips": spec.fips,
        "contents": text,
    }))
}

/// Which OS image each node has, by its config, and what the machine itself reports: nodes with the same in all of that are
/// one row.
pub(crate) async fn images(ForPerson(shared): ForPerson) -> Response {
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let mut groups = Systems::new();
    let read = each(&nodes, "list nodes", ListParams::default(), |node| add(&node, &mut groups)).await;
    if let Err(error) = read {
        return refused(&error);
    }
    let configs: Api<MachineConfig> = Api::all(shared.client.clone());
    let names: BTreeSet<&str> =
        groups.keys().map(|system| &*system.config).filter(|c| !c.is_empty()).collect();
    let image = async |name: &str| {
        let read = call(|| format!("get machineconfig {name}"), configs.get(name)).await;
        (name.to_owned(), part(read.map(|config| config.spec.os_image_url)))
    };
    let images: BTreeMap<String, Value> = join_all(names.into_iter().map(image)).await.into_iter().collect();
    let row = |(system, nodes): (&System, &Vec<String>)| {
        let System { config, layered, os, kernel } = system;
        let shown: Vec<&String> = nodes.iter().take(NAMES).collect();
        json!({"config": config, "image": images.get(config), "layered": layered, "os": os, "kernel": kernel,
            "count": nodes.len(), "nodes": shown})
    };
    response::masked(json!({"systems": groups.iter().map(row).collect::<Vec<_>>()}))
}

/// What of an operating system a node shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct System {
    /// The config that the node is in; empty: it has not joined.
    config: String,
    /// The image that was built for the pool, where it is in effect.
    layered: String,
    /// As the kubelet reports it.
    os: String,
    kernel: String,
}

/// Operating systems, each with its nodes.
type Systems = BTreeMap<System, Vec<String>>;

/// Adds a node.
fn add(node: &Node, all: &mut Systems) {
    let note = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
    let info = node.status.as_ref().and_then(|s| s.node_info.clone()).unwrap_or_default();
    let system = System {
        config: note(annotation::CURRENT_CONFIG),
        layered: note(annotation::CURRENT_IMAGE),
        os: info.os_image,
        kernel: info.kernel_version,
    };
    all.entry(system).or_default().push(node.name_any());
}

/// How two configs differ.
pub(crate) async fn compare(
    ForPerson(shared): ForPerson,
    Path((from, to)): Path<(String, String)>,
) -> Response {
    if !is_valid(&from) || !is_valid(&to) {
        return no_name();
    }
    response::masked(difference(&shared.client, &from, &to).await)
}

/// Certificates and boot tokens: names and ends.
pub(crate) async fn trust(ForPerson(shared): ForPerson) -> Response {
    let api: Api<ControllerConfig> = Api::all(shared.client.clone());
    let what = || format!("get controllerconfig {}", names::CONTROLLER_CONFIG);
    let (config, tokens) =
        tokio::join!(call(what, api.get(names::CONTROLLER_CONFIG)), tokens(&shared.client, Timestamp::now()));
    let certificates = config.map(|c| c.status.and_then(|s| s.controller_certificates).unwrap_or_default());
    let tokens = match tokens {
        // What the API server says of Secrets and tokens looks like one, and would be hidden.
        Err(error) if error.is_forbidden() => json!({"error": "you may not list them (403 Forbidden)"}),
        tokens => part(tokens),
    };
    response::masked(json!({"certificates": part(certificates), "tokens": tokens}))
}

/// The boot tokens, without anything that a machine could use.
async fn tokens(client: &Client, now: Timestamp) -> Result<Vec<Value>, CallError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), boot_token::NAMESPACE);
    let labelled = ListParams::default().labels(boot_token::LABEL);
    let mut all = vec![];
    let row =
        |secret: Secret| all.extend(Record::from_secret(&secret).ok().map(|record| token(&record, now)));
    each(&api, "list boot tokens", labelled, row).await?;
    Ok(all)
}

fn token(record: &Record, now: Timestamp) -> Value {
    let Record { id, hash: _, pool, node, addresses, expires, single_use, grace: _, used } = record;
    let state = record.state(now).as_str();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    json!({
        "id": id, "pool": pool, "state": state, "node": node, "addresses": addresses, "expires": expires,
        "singleUse": single_use, "usedAt": used.as_ref().map(|u| u.at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_the_same_operating_system_are_one_row() {
        let node = |name: &str, config: &str, kernel: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": name, "annotations": {annotation::CURRENT_CONFIG: config}},
                "status": {"nodeInfo": {"osImage": "Debian", "kernelVersion": kernel, "architecture": "", "bootID": "",
                    "containerRuntimeVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                    "operatingSystem": "", "systemUUID": ""}}}))
            .unwrap()
        };
        let bare: Node = serde_json::from_value(json!({"metadata": {"name": "d"}})).unwrap();
        let mut groups = Systems::new();
        for node in
            [node("a", "r1", "6"), node("b", "r2", "6"), node("c", "r1", "6"), node("e", "r1", "7"), bare]
        {
            add(&node, &mut groups);
        }
        let rows: Vec<_> =
            groups.iter().map(|(s, nodes)| (&*s.config, &*s.kernel, nodes.join(" "))).collect();
        let text = str::to_owned;
        assert_eq!(
            rows,
            [("", "", text("d")), ("r1", "6", text("a c")), ("r1", "7", text("e")), ("r2", "6", text("b"))]
        );
    }
}

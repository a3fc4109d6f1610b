//! Does what was planned. What it is not: a choice of any kind.

use super::UninstallError;
use super::find::{held, nodes};
use super::last_word::LastWord;
use super::plan::{Action, Plan, TAINTS, cleaning, kept_finalizers, pods_of, releasing, waited_for};
use super::restore::pause;
use crate::objects::Key;
use crate::ownership::is_applied_by_us;
use crate::sync::cluster::{api_of, delete, pods};
use api::k8s::{Node, Pod};
use api::names::own;
use api::text::names;
use client::{CallError, call, if_found, retry};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// How long one object may take to go: a DaemonSet's agents end the change that they are in.
const GOING: Duration = Duration::from_mins(12);
/// How many Nodes are asked at the same time.
const AT_ONCE: usize = 16;
/// A fleet of more nodes than this is looked at less often.
const MANY: usize = 200;
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How many of the names that are waited for are reported.
const MOST_NAMES: usize = 5;

/// A step, for people.
#[derive(Debug)]
pub enum Step<'a> {
    /// This action is done.
    Done(&'a Action),
    /// What a long action waits for, and for how long it has.
    Waits(String),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(action) => action.fmt(f),
            Self::Waits(what) => write!(f, "waiting for {what}"),
        }
    }
}

/// Carries the plan out. `progress` is called after each action, and twice a minute while one waits. Returns the Nodes whose agents have not answered, so that
/// something of a trial may be left on their hosts.
///
/// # Errors
/// The first action that failed. Everything before it is done; a second run goes on.
pub async fn carry_out(
    client: &Client,
    plan: &Plan,
    mut progress: impl FnMut(Step<'_>),
) -> Result<Vec<String>, UninstallError> {
    let mut silent = vec![];
    for action in &plan.actions {
        match action {
            Action::Leave { nodes } => silent = leave(client, nodes, &mut progress).await?,
            Action::Delete { object, wait } => {
                delete(client, object).await?;
                if *wait {
                    gone(client, object, &mut progress).await?;
                }
            }
            Action::Release { object } => release(client, object).await?,
            Action::ReleaseLater => {
                for action in releasing(&held(client).await?) {
                    if let Action::Release { object } = &action {
                        release(client, object).await?;
                    }
                    progress(Step::Done(&action));
                }
            }
            Action::Clean { node, annotations, tainted } => {
                clean(client, node, annotations, *tainted).await?;
            }
            Action::CleanLater => {
                for action in cleaning(&nodes(client).await?) {
                    if let Action::Clean { node, annotations, tainted } = &action {
                        clean(client, node, annotations, *tainted).await?;
                    }
                    progress(Step::Done(&action));
                }
            }
        }
        progress(Step::Done(action));
    }
    Ok(silent)
}

/// Asks the agents of these Nodes to leave their hosts, and waits until they have. Returns those that do not answer.
async fn leave(
    client: &Client,
    asked: &[String],
    progress: &mut impl FnMut(Step<'_>),
) -> Result<Vec<String>, UninstallError> {
    // The controller ends what is under way on nodes. It would begin with others, too, and they could be in the middle of an update
    // when their agents go.
    match pause(client, GOING, &mut drop).await {
        // A pool that cannot be paused is no reason to keep everything: an update may begin there, and is waited for.
        Ok(()) | Err(UninstallError::Call(_)) => {}
        Err(error) => return Err(error),
    }
    let api: Api<Node> = Api::all(client.clone());
    // An answer to an earlier request is none to this one.
    let request = k8s_openapi::jiff::Timestamp::now().to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {own::LEAVE: request}}}));
    let (api, patch) = (&api, &patch);
    let send = async |node: &String| {
        let params = PatchParams::default();
        let ask = || async {
            call(|| format!("patch Node {node}"), api.patch_metadata(node, &params, patch)).await.map(drop)
        };
        not_found_is_done(retry::on_outage(GOING, drop, ask).await)
    };
    futures::stream::iter(asked).map(send).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let (start, mut last_word) = (Instant::now(), LastWord::now());
    loop {
        let list =
            || async { call(|| "list Nodes".to_owned(), api.list_metadata(&ListParams::default())).await };
        let tell = |why| progress(Step::Waits(format!("the API server: {why}")));
        let seen = retry::on_outage(GOING, tell, list).await?;
        let seen: Vec<Value> = seen.items.iter().map(|node| json!(node)).collect();
        let (open, silent) = waited_for(&seen, asked, &request, start.elapsed());
        if open.is_empty() {
            return Ok(silent.into_iter().map(str::to_owned).collect());
        }
        if last_word.is_due() {
            let (seconds, nodes) = (start.elapsed().as_secs(), names(&open, MOST_NAMES));
            progress(Step::Waits(format!("the agents of {nodes} to leave their hosts ({seconds} s)")));
        }
        tokio::time::sleep(if asked.len() > MANY { LOOK * 10 } else { LOOK }).await;
    }
}

/// Waits until the object is gone, and the pods of a workload with it.
async fn gone(
    client: &Client,
    object: &Value,
    progress: &mut impl FnMut(Step<'_>),
) -> Result<(), UninstallError> {
    let Some(api) = api_of(client, object) else { return Ok(()) };
    let key = Key::of(object);
    let (mut start, mut last_word) = (Instant::now(), LastWord::now());
    loop {
        let mut was_away = false;
        let mut tell = |why: String| {
            was_away = true;
            progress(Step::Waits(format!("the API server: {why}")));
        };
        let get = || call(|| format!("get {key}"), api.get_metadata(&key.name));
        let there = match if_found(retry::on_outage(GOING, &mut tell, get).await)? {
            None => false,
            Some(found) if found.metadata.uid.as_deref() == object["metadata"]["uid"].as_str() => true,
            // An operator that was not ended yet has made it again.
            Some(found) if is_applied_by_us(&json!(found)) => {
                let mut again = object.clone();
                again["metadata"]["uid"] = json!(found.metadata.uid);
                delete(client, &again).await?;
                true
            }
            // Somebody has made another one since: that is theirs.
            Some(_) => false,
        };
        let running = match pods_of(object).filter(|s| !there && !s.is_empty()) {
            Some(selector) => {
                let pods = retry::on_outage(GOING, &mut tell, || pods(client, &selector)).await?;
                Some(pods.iter().map(place).collect())
            }
            None => None,
        };
        if was_away {
            // Nobody could end anything meanwhile.
            start = Instant::now();
        }
        let running = running.filter(|pods: &Vec<String>| !pods.is_empty());
        let waited = start.elapsed().as_secs();
        match running {
            None if !there => return Ok(()),
            Some(pods) if start.elapsed() > GOING => {
                return Err(UninstallError::PodsStay { what: key.to_string(), pods, seconds: waited });
            }
            None if start.elapsed() > GOING => {
                return Err(UninstallError::Stays { what: key.to_string(), seconds: waited });
            }
            Some(pods) if last_word.is_due() => {
                let pods = names(&pods, MOST_NAMES);
                progress(Step::Waits(format!("the pods of {key} to end: {pods} ({waited} s)")));
            }
            None if last_word.is_due() => {
                progress(Step::Waits(format!("{key} to be gone ({waited} s)")));
            }
            _ => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A pod and its node.
fn place(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    format!("{} on {}", pod.name_any(), node.unwrap_or("no node"))
}

fn not_found_is_done(done: Result<(), CallError>) -> Result<(), UninstallError> {
    Ok(if_found(done).map(drop)?)
}

async fn release(client: &Client, object: &Value) -> Result<(), UninstallError> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or_default();
    let kind = text("kind");
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(group, version, kind),
        &format!("{}s", kind.to_lowercase()),
    );
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let key = Key::of(object);
    let remove = || async {
        let there = json!(call(|| format!("get {key}"), api.get_metadata(&key.name)).await?);
        let Some(kept) = kept_finalizers(&there) else { return Ok(()) };
        // They are a list, in which others have theirs: what is written is bound to the version that was read.
        let version = &there["metadata"]["resourceVersion"];
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version, "finalizers": kept}}));
        let params = PatchParams::default();
        call(|| format!("patch {key}"), api.patch_metadata(&key.name, &params, &patch)).await.map(drop)
    };
    not_found_is_done(retry::on_conflict(remove).await)
}

async fn clean(
    client: &Client,
    node: &str,
    annotations: &[String],
    tainted: bool,
) -> Result<(), UninstallError> {
    let api: Api<Node> = Api::all(client.clone());
    let none: Map<String, Value> = annotations.iter().map(|key| (key.clone(), Value::Null)).collect();
    let patch = Patch::Merge(json!({"metadata": {"annotations": none}}));
    let params = PatchParams::default();
    let request = api.patch_metadata(node, &params, &patch);
    not_found_is_done(call(|| format!("patch Node {node}"), request).await.map(drop))?;
    if !tainted {
        return Ok(());
    }
    // Taints are a list: what is written is bound to the version that was read.
    let remove = || async {
        let there = call(|| format!("get Node {node}"), api.get(node)).await?;
        let taints = there.spec.and_then(|s| s.taints).unwrap_or_default();
        let rest: Vec<_> = taints.into_iter().filter(|t| !TAINTS.contains(&t.key.as_str())).collect();
        let version = there.metadata.resource_version;
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"taints": rest}}));
        call(|| format!("patch Node {node}"), api.patch(node, &params, &patch)).await.map(drop)
    };
    not_found_is_done(retry::on_conflict(remove).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An API server that serves nobody at requests `from` to `until`. The object is gone, and it has no pods.
    fn away(from: usize, until: usize) -> Client {
        let asked = Arc::new(AtomicUsize::new(0));
        let serve = tower::service_fn(move |request: http::Request<Body>| {
            let is_away = (from..until).contains(&asked.fetch_add(1, Ordering::SeqCst));
            let failure = |code| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "starts"});
            let (code, answer) = match request.uri().path().ends_with("/pods") {
                _ if is_away => (503, failure(503)),
                true => (200, json!({"metadata": {}, "items": []})),
                false => (404, failure(404)),
            };
            let body = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap()) }
        });
        Client::new(serve, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_not_said_to_stay_while_the_api_server_is_away() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "o", "namespace": api::names::NAMESPACE, "uid": "u"},
            "spec": {"selector": {"matchLabels": {"app": "o"}}}});
        // Columns: the requests that fail, whether it ends well, and how often it is said what is waited for.
        for (from, until, ends_well, told) in [
            (0, 0, true, 0),
            (0, 3, true, 1),
            (1, 4, true, 1),
            (0, usize::MAX, false, 1),
            (1, usize::MAX, false, 1),
        ] {
            let mut said = vec![];
            let done = gone(&away(from, until), &object, &mut |step| said.push(step.to_string())).await;
            assert_eq!(done.is_ok(), ends_well, "{from} {until}: {done:?}");
            assert_eq!(said.len(), told, "{from} {until}: {said:?}");
            assert!(said.iter().all(|what| what.starts_with("waiting for the API server: ")), "{said:?}");
            if let Err(error) = done {
                assert!(matches!(&error, UninstallError::Call(error) if error.is_outage()), "{error:?}");
            }
        }
    }
}

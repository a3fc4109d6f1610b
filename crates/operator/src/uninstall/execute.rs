//! Does what was planned. What it is not: a choice of any kind.

use super::UninstallError;
use super::find::{held, nodes};
use super::plan::{Action, Plan, TAINTS, cleaning, kept_finalizers, pods_of, releasing, waited_for};
use super::progress::Step;
use super::restore::pause;
use super::waiting::{Clock, Listener, Patience};
use crate::objects::Key;
use crate::ownership::is_applied_by_us;
use crate::sync::cluster::{api_of, delete, pods};
use api::formats::text::names;
use api::k8s::{Node, Pod};
use api::names::own;
use client::{CallError, call, if_found, retry};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long one object may take to go: a DaemonSet's agents end the change that they are in. The API server may be away for as long.
const GOING: Duration = Duration::from_mins(12);
/// How many Nodes are asked at the same time.
const AT_ONCE: usize = 16;
/// A fleet of more nodes than this is looked at less often.
const MANY: usize = 200;
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How many of the names that are waited for are reported.
const MOST_NAMES: usize = 5;

/// What a removal could not do on Nodes: their names, each with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remains {
    /// Their agents have not answered, or could not be asked, so that something of a trial may be left on their hosts.
    pub silent: BTreeMap<String, String>,
    /// They keep our annotations and taints.
    pub marked: BTreeMap<String, String>,
}

/// Carries the plan out. `progress` is called after each action, and twice a minute while one waits. `force`: go on although the
/// API server refuses to change a Node, or cannot for long. Returns what was not done on Nodes.
///
/// # Errors
/// The first action that failed. Everything before it is done; a second run goes on. What was not done on Nodes before it is said:
/// where agents are gone, a second run does not ask them again.
pub async fn carry_out(
    client: &Client,
    plan: &Plan,
    force: bool,
    mut progress: impl FnMut(Step<'_>),
) -> Result<Remains, UninstallError> {
    let mut removal = Removal {
        client,
        force,
        patience: Patience::new(GOING),
        nodes: Patience::new(GOING),
        listener: Listener::new(&mut progress),
        remains: Remains::default(),
    };
    for action in &plan.actions {
        if let Err(error) = removal.carry_out(action).await {
            removal.say_silent();
            return Err(error);
        }
    }
    Ok(removal.remains)
}

/// A removal that is under way.
struct Removal<'a, P> {
    client: &'a Client,
    force: bool,
    patience: Patience,
    /// That for changes of Nodes. One that fails for long may be passed over, and then says nothing of other requests.
    nodes: Patience,
    listener: Listener<'a, P>,
    remains: Remains,
}

impl<P: FnMut(Step<'_>)> Removal<'_, P> {
    async fn carry_out(&mut self, action: &Action) -> Result<(), UninstallError> {
        match action {
            Action::Leave { nodes } => self.remains.silent = self.leave(nodes).await?,
            Action::Delete { object, wait } => {
                self.delete(object).await?;
                if *wait {
                    self.gone(object).await?;
                }
            }
            Action::Release { object } => self.release(object).await?,
            Action::ReleaseLater => {
                for action in releasing(&self.ask(|| held(self.client)).await?) {
                    if let Action::Release { object } = &action {
                        self.release(object).await?;
                    }
                    self.listener.say(Step::Done(&action));
                }
            }
            Action::Clean { .. } => return self.clean(action).await,
            Action::CleanLater => {
                for action in cleaning(&self.ask(|| nodes(self.client)).await?) {
                    self.clean(&action).await?;
                }
            }
        }
        self.listener.say(Step::Done(action));
        Ok(())
    }

    /// Says which agents have not left their hosts.
    fn say_silent(&self) {
        for (node, why) in &self.remains.silent {
            let what = format!("Node {node}: {why}, so something of a trial may be left on its host");
            self.listener.say(Step::NotDone(what));
        }
    }

    /// The answer to a request, which is sent again while the API server is away or starts.
    async fn ask<T, F>(&self, request: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        self.patience.ask(|why| self.listener.say_away(&why), request).await
    }

    /// The same for a change of a Node.
    async fn ask_node<T, F>(&self, change: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        self.nodes.ask(|why| self.listener.say_away(&why), change).await
    }

    /// Asks the agents of these Nodes to leave their hosts, and waits until they have. Returns those that do not answer, or that
    /// cannot be asked, with the reason.
    async fn leave(&self, asked: &[String]) -> Result<BTreeMap<String, String>, UninstallError> {
        // The controller ends what is under way on nodes. It would begin with others, too, and they could be in the middle of an
        // update when their agents go.
        let patience = Patience::new(GOING);
        let pools = pause(self.client, &patience, &mut |why: String| self.listener.say_away(&why)).await?;
        // A pool that cannot be paused is no reason to keep everything: an update may begin there, and is waited for.
        for (pool, error) in pools.refused {
            let why = error.chain();
            let what = format!("MachineConfigPool {pool} is not paused, so updates may begin there: {why}");
            self.listener.say(Step::NotDone(what));
        }
        // An answer to an earlier request is none to this one.
        let request = k8s_openapi::jiff::Timestamp::now().to_string();
        let refused = self.ask_to_leave(asked, &request).await?;
        let api: Api<Node> = Api::all(self.client.clone());
        let mut clock = Clock::begin(GOING);
        loop {
            let list = || async {
                call(|| "list Nodes".to_owned(), api.list_metadata(&ListParams::default())).await
            };
            let seen = clock.ask(|why| self.listener.say_away(&why), list).await?;
            let seen: Vec<Value> = seen.items.iter().map(|node| json!(node)).collect();
            let (open, silent) = waited_for(&seen, asked, &request, clock.waited());
            if open.is_empty() {
                let silent =
                    silent.into_iter().map(|node| (node.to_owned(), "its agent has not answered".to_owned()));
                return Ok(refused.into_iter().chain(silent).collect());
            }
            self.listener.say_if_due(|| {
                let (seconds, nodes) = (clock.waited().as_secs(), names(&open, MOST_NAMES));
                format!("the agents of {nodes} to leave their hosts ({seconds} s)")
            });
            tokio::time::sleep(if asked.len() > MANY { LOOK * 10 } else { LOOK }).await;
        }
    }

    /// Writes the request on these Nodes. Returns those that cannot be changed, with the reason. Where that is all of them, it is an
    /// error unless forced.
    async fn ask_to_leave(
        &self,
        asked: &[String],
        request: &str,
    ) -> Result<BTreeMap<String, String>, UninstallError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {own::LEAVE: request}}}));
        let (api, patch) = (&api, &patch);
        let send = async |node: &String| {
            let params = PatchParams::default();
            let ask = || async {
                call(|| format!("patch Node {node}"), api.patch_metadata(node, &params, patch)).await
            };
            match if_found(retry::on_conflict(|| self.ask_node(ask)).await) {
                Ok(_) => Ok(None),
                Err(error) if error.is_outage() && !self.force => Err(error),
                // As one whose agent does not answer: it is no reason to keep everything.
                Err(error) => Ok(Some((node.clone(), error))),
            }
        };
        let all: Vec<_> =
            futures::stream::iter(asked).map(send).buffer_unordered(AT_ONCE).try_collect().await?;
        let refused: Vec<(String, CallError)> = all.into_iter().flatten().collect();
        let none_is_asked = refused.len() == asked.len();
        let why = |error: &CallError| format!("its agent could not be asked to leave: {}", error.chain());
        let said = refused.iter().map(|(node, error)| (node.clone(), why(error))).collect();
        match refused.into_iter().next() {
            // A right is missing, or something refuses each change of a Node. What is ours could not be taken off them either, and
            // that would end the removal when the agents are gone.
            Some((_, error)) if none_is_asked && !self.force => Err(error.into()),
            _ => Ok(said),
        }
    }

    /// Deletes this object, or what an operator that was not ended yet has made in its place.
    async fn delete(&self, object: &Value) -> Result<(), CallError> {
        let again = || async {
            let Some(api) = api_of(self.client, object) else { return Ok(()) };
            let key = Key::of(object);
            let there = if_found(call(|| format!("get {key}"), api.get_metadata(&key.name)).await)?;
            match there.and_then(|there| still_ours(object, &json!(there))) {
                Some(now) if now["metadata"]["deletionTimestamp"].is_null() => {
                    delete(self.client, &now).await
                }
                _ => Ok(()),
            }
        };
        match self.ask(|| delete(self.client, object)).await {
            Err(error) if error.is_conflict() => retry::on_conflict(|| self.ask(again)).await,
            done => done,
        }
    }

    /// Waits until the object is gone, and the pods of a workload with it.
    async fn gone(&self, object: &Value) -> Result<(), UninstallError> {
        let Some(api) = api_of(self.client, object) else { return Ok(()) };
        let key = Key::of(object);
        let mut clock = Clock::begin(GOING);
        let tell = |why: String| self.listener.say_away(&why);
        loop {
            let get = || call(|| format!("get {key}"), api.get_metadata(&key.name));
            let found = if_found(clock.ask(tell, get).await)?;
            let there = found.and_then(|found| still_ours(object, &json!(found)));
            if let Some(again) = there.as_ref().filter(|now| uid(now) != uid(object)) {
                // It goes only after that, and the API server may be away meanwhile.
                let begin = Instant::now();
                self.delete(again).await?;
                clock.leave_out(begin.elapsed());
            }
            let running = match pods_of(object).filter(|s| there.is_none() && !s.is_empty()) {
                Some(selector) => {
                    let pods = clock.ask(tell, || pods(self.client, &selector)).await?;
                    pods.iter().map(place).collect()
                }
                None => vec![],
            };
            if there.is_none() && running.is_empty() {
                return Ok(());
            }
            let seconds = clock.waited().as_secs();
            if clock.waited() > GOING {
                let what = key.to_string();
                return Err(match running.is_empty() {
                    true => UninstallError::Stays { what, seconds },
                    false => UninstallError::PodsStay { what, pods: running, seconds },
                });
            }
            self.listener.say_if_due(|| match running.is_empty() {
                true => format!("{key} to be gone ({seconds} s)"),
                false => format!("the pods of {key} to end: {} ({seconds} s)", names(&running, MOST_NAMES)),
            });
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn release(&self, object: &Value) -> Result<(), UninstallError> {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or_default();
        let kind = text("kind");
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(group, version, kind),
            &format!("{}s", kind.to_lowercase()),
        );
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
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
        Ok(if_found(retry::on_conflict(|| self.ask(remove)).await).map(drop)?)
    }

    /// Takes what is ours off a Node. With force one that cannot be changed is remembered.
    async fn clean(&mut self, action: &Action) -> Result<(), UninstallError> {
        let Action::Clean { node, annotations, tainted } = action else { return Ok(()) };
        match self.clean_node(node, annotations, *tainted).await {
            Ok(()) => {
                self.remains.marked.remove(node);
                self.listener.say(Step::Done(action));
            }
            Err(error) if self.force && (error.is_refused() || error.is_outage()) => {
                let why = error.chain();
                let what = format!("Node {node} keeps our annotations and taints: {why}");
                // It is tried again at the end.
                if self.remains.marked.insert(node.clone(), why).is_none() {
                    self.listener.say(Step::NotDone(what));
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn clean_node(&self, node: &str, annotations: &[String], tainted: bool) -> Result<(), CallError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let none: Map<String, Value> = annotations.iter().map(|key| (key.clone(), Value::Null)).collect();
        let patch = Patch::Merge(json!({"metadata": {"annotations": none}}));
        let params = PatchParams::default();
        let remove = || call(|| format!("patch Node {node}"), api.patch_metadata(node, &params, &patch));
        let there = if_found(retry::on_conflict(|| self.ask_node(remove)).await)?;
        if there.is_none() || !tainted {
            return Ok(());
        }
        // Taints are a list: what is written is bound to the version that was read.
        let remove = || async {
            let there = call(|| format!("get Node {node}"), api.get(node)).await?;
            let taints = there.spec.and_then(|s| s.taints).unwrap_or_default();
            let rest: Vec<_> = taints.into_iter().filter(|t| !TAINTS.contains(&t.key.as_str())).collect();
            let version = there.metadata.resource_version;
            let patch =
                Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"taints": rest}}));
            call(|| format!("patch Node {node}"), api.patch(node, &params, &patch)).await.map(drop)
        };
        if_found(retry::on_conflict(|| self.ask_node(remove)).await).map(drop)
    }
}

fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

/// What stands in the place of an object that goes, as it is to be deleted. `None`: somebody has made another one since, and that is
/// theirs.
fn still_ours(object: &Value, there: &Value) -> Option<Value> {
    let mut now = object.clone();
    for field in ["uid", "deletionTimestamp"] {
        now["metadata"][field] = there["metadata"][field].clone();
    }
    // An operator that was not ended yet may have made it again.
    (uid(there) == uid(object) || is_applied_by_us(there)).then_some(now)
}

/// A pod and its node.
fn place(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    format!("{} on {}", pod.name_any(), node.unwrap_or("no node"))
}

#[cfg(test)]
mod tests;

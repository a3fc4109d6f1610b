//! The pass over what is generated from the cluster's settings: `render::generated::plan`, carried out. And the gate that
//! rendering waits at, so that no pool is rendered from half of its settings.
//!
//! Flow: annotations and finalizers of the objects → MachineConfigs made and put back → those that are to go → finalizers
//! of objects that are being deleted → verdicts in the objects' statuses → the gate opens. A restart between any two
//! steps continues with the next.
//!
//! What it is not: a choice of what is generated.

use crate::cache::settings::{self, KUBELET_CONFIG, Kind as Setting, RUNTIME_CONFIG};
use crate::cache::watch::version_of;
use crate::context::Context;
use crate::flight::refusals::{WriteError, Writes};
use crate::passes::finalizers::differing;
use crate::passes::own_configs;
use crate::passes::queue::Outcome;
use crate::passes::templates::{self, Failure};
use crate::term::leader::now;
use api::k8s::ResourceExt;
use api::names::annotation;
use api::v1::{ControllerConfig, MachineConfig};
use client::{CallError, call};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use render::generated::{Inputs, Kind, ObjectPlan, Plan, Settings, plan, status};
use render::template::Rendering;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A kind that is served and cannot be listed for so long is a matter of permissions: pools say so then.
const LISTED_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Rendering waits this long for settings that keep changing, for somebody may write over what is generated again and
/// again; then it goes on with what stands.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far what stands follows what is set.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Counts changes of settings.
    changes: AtomicU64,
    /// The count that what stands was made from.
    settled: AtomicU64,
    /// Why a pool cannot have what is set for it.
    refused: Mutex<BTreeMap<String, String>>,
    /// Since when it does not, where it did before.
    behind: Mutex<Option<Instant>>,
    /// When this term began.
    started: Mutex<Instant>,
}

impl Default for Gate {
    fn default() -> Self {
        // Nothing is settled before the first pass.
        let (changes, settled) = (AtomicU64::new(1), AtomicU64::new(0));
        let (refused, behind) = (Mutex::default(), Mutex::default());
        Self { changes, settled, refused, behind, started: Mutex::new(Instant::now()) }
    }
}

/// May a pool be rendered?
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum May {
    Go,
    /// What is generated is being written.
    Wait,
    /// Its settings are refused.
    Not(String),
}

impl Gate {
    /// A term begins: another leader may have written since, so nothing of an earlier term is settled or refused.
    pub(crate) fn begin(&self) {
        // First: with it nobody is let through, whatever else is being put back.
        self.settled.store(0, Ordering::Release);
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn age(&self) -> Duration {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Settings have changed.
    pub(crate) fn close(&self) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn count(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What stands is made from the settings as they were at `count`, but for what is refused.
    fn settle(&self, count: u64, refused: BTreeMap<String, String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        self.settled.store(count, Ordering::Release);
        if count == self.count() {
            *behind = None;
        }
    }

    /// May this pool be rendered now?
    pub(crate) fn may(&self, pool: &str) -> May {
        let settled = self.settled.load(Ordering::Acquire);
        if settled != self.count() {
            let behind = *self.behind.lock().unwrap_or_else(PoisonError::into_inner);
            if settled == 0 || behind.is_none_or(|since| since.elapsed() < PATIENCE) {
                return May::Wait;
            }
        }
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(pool).map_or(May::Go, |why| May::Not(why.clone()))
    }
}

/// One pass over all pools and settings.
pub(crate) async fn pass(context: Arc<Context>, _: String) -> Outcome {
    let count = context.generated.count();
    // Rendering says itself that there is none.
    let Some(config) = context.stores.controller_config() else { return Outcome::Done };
    let unknown = context.settings.unknown();
    if !unknown.is_empty() {
        if context.generated.age() < LISTED_WITHIN {
            return Outcome::After(LOOK);
        }
        let why = format!(
            "what there is of {} cannot be read; the controller's log says why; its ClusterRole must allow get, list and watch",
            unknown.join(", ")
        );
        let all = context.stores.pools.names().into_iter().map(|pool| (pool, why.clone())).collect();
        settle(&context, count, all);
        return Outcome::After(LOOK);
    }
    match carry_out(&context, &config).await {
        Ok((writes, refused)) => {
            if writes.are_over() {
                settle(&context, count, refused);
            }
            writes.outcome()
        }
        // The template pass fails for the same reason and says so.
        Err(Failure::Call(e)) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(Failure::Call(e)) => Outcome::Failed(e.chain()),
        Err(Failure::Plan(message)) => Outcome::Failed(message),
    }
}

fn settle(context: &Context, count: u64, refused: BTreeMap<String, String>) {
    context.generated.settle(count, refused);
    context.queues.render.mark_all(context.stores.pools.names());
}

/// Plans, and carries the plan out: each write is tried, whatever becomes of the others. Returns what became of them, and
/// why pools cannot have what is set for them.
async fn carry_out(
    context: &Context,
    config: &ControllerConfig,
) -> Result<(Writes, BTreeMap<String, String>), Failure> {
    let plan = planned(context, config).await?;
    let mut refused: BTreeMap<String, String> = BTreeMap::new();
    for (pool, errors) in &plan.refused {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        refused.insert(pool.clone(), all.join("; "));
    }
    let mut writes = Writes::default();
    let mut book = |what: &str, done: Result<(), WriteError>| {
        let words = writes.book(&context.troubles, what, done)?;
        Some(format!("{what} failed: {words}"))
    };
    // What cannot be written is told, and holds up nobody else.
    let mut invalid: BTreeMap<(Kind, &str), String> = BTreeMap::new();
    for object in plan.objects.iter().filter(|o| !o.deleting) {
        let what = format!("write of {} {}", object.kind, object.name);
        if let Some(why) = book(&what, write_metadata(context, object).await.map_err(Into::into)) {
            for pool in made_by(&plan, object).filter_map(role) {
                refused.entry(pool).or_insert_with(|| why.clone());
            }
            invalid.insert((object.kind, &object.name), why);
        }
    }
    let puts =
        plan.wanted.iter().map(|config| async move { (config, own_configs::put(context, config).await) });
    for (config, done) in futures::future::join_all(puts.collect::<Vec<_>>()).await {
        if let Some(why) = book(&format!("write of MachineConfig {}", config.name_any()), done) {
            if let Some(pool) = role(config) {
                refused.entry(pool).or_insert_with(|| why.clone());
            }
            for object in plan.objects.iter().filter(|o| made_by(&plan, o).any(|c| c == config)) {
                invalid.entry((object.kind, &object.name)).or_insert_with(|| why.clone());
            }
        }
    }
    for removal in &plan.gone {
        let done = remove(context, &removal.name, &removal.why).await;
        if let Some(why) = book(&format!("removal of MachineConfig {}", removal.name), done) {
            let config = context.stores.configs.get(&removal.name);
            if let Some(pool) = config.as_deref().and_then(|c| role(c.source()?)) {
                refused.entry(pool).or_insert(why);
            }
        }
    }
    for object in plan.objects.iter().filter(|o| o.deleting) {
        if let Some(why) = book(
            &format!("finalizers of {} {}", object.kind, object.name),
            write_metadata(context, object).await.map_err(Into::into),
        ) {
            tracing::warn!("{why}");
        }
    }
    for object in &plan.objects {
        let Some(verdict) = &object.verdict else { continue };
        let verdict = match invalid.get(&(object.kind, object.name.as_str())) {
            Some(why) => Err(why.clone()),
            None => verdict.clone().map_err(|e| e.to_string()),
        };
        let what = format!("status of {} {}", object.kind, object.name);
        if let Some(why) = book(&what, write_status(context, object, &verdict).await.map_err(Into::into)) {
            tracing::warn!("{why}");
        }
    }
    for policy in context.settings.all(settings::POLICY) {
        let text = |path: &str| policy.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let what =
            format!("status of ImagePolicy {}/{}", text("/metadata/namespace"), text("/metadata/name"));
        if let Some(why) = book(&what, write_conflict(context, &policy, &plan).await.map_err(Into::into)) {
            tracing::warn!("{why}");
        }
    }
    Ok((writes, refused))
}

fn role(config: &MachineConfig) -> Option<String> {
    config.labels().get(api::names::label::ROLE).cloned()
}

/// What an object makes.
fn made_by<'a>(plan: &'a Plan, object: &'a ObjectPlan) -> impl Iterator<Item = &'a MachineConfig> {
    plan.wanted.iter().filter(|config| {
        let mut owners = config.metadata.owner_references.iter().flatten();
        owners.any(|o| o.kind == object.kind.name() && o.name == object.name)
    })
}

/// Reads what there is and plans. Files and rendering keep a thread busy for some milliseconds.
async fn planned(context: &Context, config: &ControllerConfig) -> Result<Plan, Failure> {
    let facts = templates::facts(context, config).await?;
    let (folder, config, all) = (context.templates.clone(), config.clone(), &context.settings);
    let versions = context.versions.clone();
    let pools = context.stores.pools.all();
    let configs = context.stores.configs.all();
    let (kubelet_configs, runtime_configs) = (all.all(KUBELET_CONFIG), all.all(RUNTIME_CONFIG));
    let [feature_gate, node, image, cluster_version] =
        [settings::FEATURE_GATE, settings::NODE, settings::IMAGE, settings::CLUSTER_VERSION]
            .map(|kind| all.one(kind));
    let mirrors: Vec<Arc<Value>> = [settings::DIGEST_MIRRORS, settings::TAG_MIRRORS, settings::SOURCE_POLICY]
        .into_iter()
        .flat_map(|kind| all.all(kind))
        .collect();
    let (cluster_policies, policies) = (all.all(settings::CLUSTER_POLICY), all.all(settings::POLICY));
    let work = tokio::task::spawn_blocking(move || -> Result<Plan, String> {
        let set = templates::read(&folder)?;
        let tls = facts.tls();
        Ok(plan(&Inputs {
            templates: &Rendering::new(&set, facts.data(&config, &tls)),
            pools: pools
                .iter()
                .filter(|p| p.metadata.deletion_timestamp.is_none())
                .map(AsRef::as_ref)
                .collect(),
            settings: Settings {
                kubelet_configs: kubelet_configs.iter().map(AsRef::as_ref).collect(),
                runtime_configs: runtime_configs.iter().map(AsRef::as_ref).collect(),
                feature_gate: feature_gate.as_deref(),
                node: node.as_deref(),
                image: image.as_deref(),
                cluster_version: cluster_version.as_deref(),
                mirrors: mirrors.iter().map(AsRef::as_ref).collect(),
                cluster_policies: cluster_policies.iter().map(AsRef::as_ref).collect(),
                policies: policies.iter().map(AsRef::as_ref).collect(),
            },
            existing: configs.iter().filter_map(|c| c.source()).map(AsRef::as_ref).collect(),
            versions: &versions,
            mode: render::Mode::Cluster,
        }))
    });
    match work.await {
        Ok(result) => result.map_err(Failure::Plan),
        Err(e) => Err(Failure::Plan(format!("planning what is generated ended badly: {e}"))),
    }
}

fn setting(kind: Kind) -> Setting {
    match kind {
        Kind::KubeletConfig => KUBELET_CONFIG,
        Kind::ContainerRuntimeConfig => RUNTIME_CONFIG,
    }
}

fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str)
}

/// The object's number and its finalizers.
async fn write_metadata(context: &Context, plan: &ObjectPlan) -> Result<(), CallError> {
    let kind = setting(plan.kind);
    let Some(have) = context.settings.get(kind, &plan.name) else { return Ok(()) };
    let finalizers = plan.finalizers.as_deref().and_then(|wanted| differing(wanted, &have));
    if plan.suffix.is_none() && finalizers.is_none() {
        return Ok(());
    }
    let mut metadata = json!({ "resourceVersion": version(&have) });
    if let Some(suffix) = &plan.suffix {
        metadata["annotations"] = json!({ annotation::MC_NAME_SUFFIX: suffix });
    }
    if let Some(finalizers) = finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    let body = Patch::Merge(json!({ "metadata": metadata }));
    let what = || format!("metadata of {} {}", plan.kind, plan.name);
    let api = kind.api(&context.client);
    let answer = call(what, api.patch(&plan.name, &PatchParams::default(), &body)).await?;
    context.settings.answer(kind, &answer);
    Ok(())
}

/// The verdict, where it says something new.
async fn write_status(
    context: &Context,
    plan: &ObjectPlan,
    verdict: &Result<(), String>,
) -> Result<(), CallError> {
    let kind = setting(plan.kind);
    let Some(have) = context.settings.get(kind, &plan.name) else { return Ok(()) };
    let generation = have.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let Some(status) = status(plan.kind, have.get("status"), generation, verdict, &now()) else {
        return Ok(());
    };
    if let Err(why) = verdict {
        tracing::warn!("{why}");
    }
    let body = Patch::Merge(json!({"metadata": {"resourceVersion": version(&have)}, "status": status}));
    let what = || format!("status of {} {}", plan.kind, plan.name);
    let api = kind.api(&context.client);
    let answer: DynamicObject =
        call(what, api.patch_status(&plan.name, &PatchParams::default(), &body)).await?;
    context.settings.answer(kind, &answer);
    Ok(())
}

/// An ImagePolicy whose scopes have no effect says so; one whose scopes have an effect again does not.
async fn write_conflict(context: &Context, policy: &Value, plan: &Plan) -> Result<(), CallError> {
    const REASON: &str = "ConflictScopes";
    let text = |path: &str| policy.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let wanted = plan.conflicts.iter().find(|c| c.namespace == namespace && c.name == name);
    let wanted = wanted.map(|c| c.message.as_str());
    let conditions = policy.pointer("/status/conditions").and_then(Value::as_array);
    let said = conditions.into_iter().flatten().find(|c| c["reason"] == REASON);
    if said.and_then(|c| c["message"].as_str()) == wanted {
        return Ok(());
    }
    let conditions = wanted.map(|message| {
        json!([{
            "type": "Pending", "status": "False", "reason": REASON, "message": message, "lastTransitionTime": now(),
        }])
    });
    let body = Patch::Merge(
        json!({"metadata": {"resourceVersion": version(policy)}, "status": {"conditions": conditions}}),
    );
    let what = || format!("status of ImagePolicy {namespace}/{name}");
    let api = settings::POLICY.api_in(&context.client, namespace);
    call(what, api.patch_status(name, &PatchParams::default(), &body)).await?;
    Ok(())
}

/// Takes one MachineConfig away, exactly the one that the plan was made from.
///
/// # Errors
/// The deletion fails, or is accepted and a finalizer of somebody else's keeps the object.
pub(crate) async fn remove(context: &Context, name: &str, why: &str) -> Result<(), WriteError> {
    let Some(have) = context.stores.configs.get(name) else { return Ok(()) };
    let Some(have) = have.source() else { return Ok(()) };
    let held = |object: &MachineConfig| {
        let finalizers = object.finalizers().join(", ");
        WriteError::Held { name: name.to_owned(), finalizers }
    };
    if have.metadata.deletion_timestamp.is_some() {
        return Err(held(have));
    }
    let preconditions = Preconditions {
        uid: have.metadata.uid.clone(),
        resource_version: have.metadata.resource_version.clone(),
    };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    context.kept.gone(name);
    let api = context.api::<MachineConfig>();
    let answer = match call(|| format!("machineconfig {name}"), api.delete(name, &params)).await {
        Ok(answer) => answer,
        Err(e) if e.is_not_found() => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    // The object as it stands now, and not the word that it is gone.
    if let Some(left) = answer.left().filter(|left| !left.finalizers().is_empty()) {
        let error = held(&left);
        context.config_answer(left);
        return Err(error);
    }
    tracing::info!(name, version = version_of(have.as_ref()), "removed: {why}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pool_waits_while_settings_change_and_is_told_what_is_refused() {
        let gate = Gate::default();
        assert_eq!(gate.may("a"), May::Wait, "before the first pass");
        let count = gate.count();
        gate.settle(count, BTreeMap::from([("b".to_owned(), "why".to_owned())]));
        assert_eq!((gate.may("a"), gate.may("b")), (May::Go, May::Not("why".to_owned())));
        let count = gate.count();
        gate.close();
        gate.settle(count, BTreeMap::new());
        assert_eq!(gate.may("a"), May::Wait, "it changed while the pass was under way");
        // Somebody keeps changing something: not for ever.
        tokio::time::advance(PATIENCE).await;
        gate.close();
        assert_eq!(gate.may("a"), May::Go);
        gate.settle(gate.count(), BTreeMap::new());
        gate.close();
        assert_eq!(gate.may("a"), May::Wait, "it followed in between");
        // The gate of an earlier term says nothing of what another leader has left.
        gate.settle(gate.count(), BTreeMap::from([("b".to_owned(), "why".to_owned())]));
        gate.close();
        tokio::time::advance(PATIENCE).await;
        assert_eq!((gate.may("a"), gate.may("b")), (May::Go, May::Not("why".to_owned())));
        gate.begin();
        gate.close();
        assert_eq!((gate.may("a"), gate.may("b"), gate.age()), (May::Wait, May::Wait, Duration::ZERO));
        tokio::time::advance(PATIENCE).await;
        assert_eq!(gate.may("a"), May::Wait, "until the first pass of this term");
        gate.settle(gate.count(), BTreeMap::new());
        assert_eq!((gate.may("a"), gate.may("b")), (May::Go, May::Go));
        let never = Gate::default();
        never.close();
        tokio::time::advance(PATIENCE).await;
        assert_eq!(never.may("a"), May::Wait, "before the first pass nobody knows what there is");
    }

    #[tokio::test(start_paused = true)]
    async fn a_finalizer_of_somebody_elses_on_one_that_is_to_go_is_told_when_it_lasts() {
        use crate::fake_server::{answer, context};
        use crate::flight::refusals::Troubles;
        use std::sync::atomic::AtomicU32;
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let object = |version: &str, deleted: Option<&str>| {
            json!({"metadata": {"name": "02-worker", "uid": "u", "resourceVersion": version,
                "finalizers": ["example.com/backup"], "deletionTimestamp": deleted}, "spec": {}})
        };
        let context = context(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            answer(200, &object("2", Some("2026-01-01T00:00:00Z")))
        });
        context.config_answer(serde_json::from_value(object("1", None)).unwrap());
        let troubles = Troubles::default();
        let words = async || {
            let done = remove(&context, "02-worker", "no template makes it").await;
            let mut writes = Writes::default();
            let words = writes.book(&troubles, "02-worker", done);
            assert!(writes.are_over() == words.is_some(), "tried again until it is told");
            words
        };
        assert_eq!(words().await, None, "its owner may be at work");
        tokio::time::advance(Duration::from_secs(6)).await;
        let told = words().await.expect("it has lasted");
        assert!(told.contains("02-worker") && told.contains("example.com/backup"), "{told}");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "what is being deleted is not deleted again");
    }
}

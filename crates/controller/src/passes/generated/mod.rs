//! The pass over what is generated from the cluster's settings: carries out `render::generated::plan`, and
//! reports that its result is stored, which rendering waits for (`render_prerequisites::SettingsPrerequisite`), so that no
//! pool is rendered from half of its settings.
//!
//! Flow: annotations and finalizers of the objects → MachineConfigs made and put back → those that are to go → finalizers
//! of objects that are being deleted → verdicts in the objects' statuses → pools may be rendered. A restart between any two
//! steps continues with the next.
//!
//! What it is not: a choice of what is generated.

mod finalizers;

use crate::cache::settings::{self, KUBELET_CONFIG, RUNTIME_CONFIG, Setting};
use crate::cache::trimmed::Config;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::refusals::{WriteError, WriteOutcomes};
use crate::io::clock::now;
use crate::kind;
use crate::own_configs::{create_or_restore, delete};
use crate::passes::descriptor::{Descriptor, stateless};
use crate::passes::templates::{self, Failure};
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::k8s::ResourceExt;
use api::names::{CONTROLLER_CONFIG, annotation};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::{CallError, call};
use finalizers::finalizers_to_write;
use kube::api::{DynamicObject, Patch, PatchParams};
use render::generated::{Inputs, Kind, ObjectPlan, Plan, Settings, plan, source_of, status};
use render::template::Rendering;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// If a kind is served but could not be listed for this long, permissions are missing: pools then say so.
const LISTED_WITHIN: Duration = Duration::from_secs(30);
/// How often that is checked.
const LOOK: Duration = Duration::from_secs(5);

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Generated,
    work: Work { name: "generated", ..Work::SINGLE_KEY },
    reads: &[
        &inputs::CONTROLLER_CONFIGS,
        &inputs::POOLS,
        &inputs::CONFIGS,
        &inputs::KUBELET_CONFIGS,
        &inputs::RUNTIME_CONFIGS,
        &inputs::FEATURE_GATES,
        &inputs::NODE_SETTINGS,
        &inputs::IMAGES,
        &inputs::API_SERVERS,
        &inputs::CLUSTER_VERSIONS,
        &inputs::DIGEST_MIRRORS,
        &inputs::TAG_MIRRORS,
        &inputs::SOURCE_POLICIES,
        &inputs::CLUSTER_IMAGE_POLICIES,
        &inputs::IMAGE_POLICIES,
        &inputs::TEMPLATE_FOLDER,
    ],
    rights: &[
        Right::new("create", kind::CONFIGS),
        Right::new("patch", kind::CONFIGS),
        Right::new("delete", kind::CONFIGS),
        Right::new("patch", kind::KUBELET_CONFIGS),
        Right::new("patch", kind::KUBELET_CONFIGS).on("status"),
        Right::new("update", kind::KUBELET_CONFIGS).on("finalizers"),
        Right::new("patch", kind::RUNTIME_CONFIGS),
        Right::new("patch", kind::RUNTIME_CONFIGS).on("status"),
        Right::new("update", kind::RUNTIME_CONFIGS).on("finalizers"),
        Right::new("patch", kind::IMAGE_POLICIES).on("status"),
    ],
    marked_by,
    effects: Effects {
        on_change: |shared, changed| {
            if let Changed::TermBegins = changed {
                shared.prerequisites.settings.begin();
            }
        },
        // No pool is rendered until the generated MachineConfigs are up to date.
        before_mark: |shared| shared.prerequisites.settings.mark_outdated(),
        ..Effects::NONE
    },
    start: |shared, _| stateless(shared, pass),
};

fn marked_by(changed: &Changed<'_>, _: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let concerns = match changed {
        // Settings select pools by their labels.
        Changed::Pool(change) => {
            let labels = |p: &Option<Arc<MachineConfigPool>>| p.as_ref().map(|p| p.metadata.labels.clone());
            labels(&change.old) != labels(&change.new)
        }
        Changed::Config(change) => {
            let all = [change.old.as_deref(), change.new.as_deref()];
            all.into_iter().flatten().filter_map(Config::source).any(|object| is_generated(object))
        }
        Changed::ControllerConfig(change) => {
            let input = |c: &Option<Arc<ControllerConfig>>| {
                c.as_ref().map(|c| (c.spec.clone(), c.metadata.annotations.clone(), c.metadata.uid.clone()))
            };
            input(&change.old) != input(&change.new)
        }
        // Nothing is generated from image streams.
        Changed::Setting(kind) => ![settings::STREAMS, settings::MACHINE_CONFIGURATION].contains(kind),
        Changed::SettingKnown | Changed::TemplateInput | Changed::TermBegins => true,
        _ => false,
    };
    if concerns {
        marks.mark(Pass::Generated, CONTROLLER_CONFIG);
    }
}

/// Whether this pass made it, judged by its name, so that an object whose marks somebody removed is restored as well.
fn is_generated(object: &MachineConfig) -> bool {
    object.metadata.name.as_deref().is_some_and(|n| source_of(n).is_some())
}

/// One pass over all pools and settings.
pub(crate) async fn pass(shared: Arc<Shared>, _: String) -> Outcome {
    let count = shared.prerequisites.settings.count();
    // The render pass reports that there is none.
    let Some(config) = shared.stores.controller_config() else { return Outcome::Done };
    let unknown = shared.settings.unknown();
    if !unknown.is_empty() {
        if shared.prerequisites.settings.age() < LISTED_WITHIN {
            return Outcome::After(LOOK);
        }
        let why = format!(
            "{} cannot be read; the controller's log says why; its ClusterRole must allow get, list and watch",
            unknown.join(", ")
        );
        let all = shared.stores.pools.names().into_iter().map(|pool| (pool, why.clone())).collect();
        settle(&shared, count, all);
        return Outcome::After(LOOK);
    }
    match carry_out(&shared, &config).await {
        Ok((writes, refused)) => {
            if writes.are_over() {
                settle(&shared, count, refused);
            }
            writes.outcome()
        }
        // The template pass fails for the same reason and reports it.
        Err(Failure::Call(e)) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(Failure::Call(e)) => Outcome::Failed(e.chain()),
        Err(Failure::Plan(message)) => Outcome::Failed(message),
    }
}

fn settle(shared: &Shared, count: u64, refused: BTreeMap<String, String>) {
    shared.prerequisites.settings.settle(count, refused);
    shared.changed(&Changed::RenderPrerequisite);
}

/// Plans, and carries the plan out. Each write is tried, even if others fail. Returns the outcomes, and why pools
/// cannot have the settings that select them.
async fn carry_out(
    shared: &Shared,
    config: &ControllerConfig,
) -> Result<(WriteOutcomes, BTreeMap<String, String>), Failure> {
    let plan = planned(shared, config).await?;
    let mut refused: BTreeMap<String, String> = BTreeMap::new();
    for (pool, errors) in &plan.refused {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        refused.insert(pool.clone(), all.join("; "));
    }
    let mut writes = WriteOutcomes::default();
    let mut book = |what: &str, done: Result<(), WriteError>| {
        let words = writes.record(&shared.troubles, what, done)?;
        Some(format!("{what} failed: {words}"))
    };
    // A write that fails is reported and delays nothing else.
    let mut invalid: BTreeMap<(Kind, &str), String> = BTreeMap::new();
    for object in plan.objects.iter().filter(|o| !o.deleting) {
        let what = format!("write of {} {}", object.kind, object.name);
        if let Some(why) = book(&what, write_metadata(shared, object).await.map_err(Into::into)) {
            for pool in made_by(&plan, object).filter_map(role) {
                refused.entry(pool).or_insert_with(|| why.clone());
            }
            invalid.insert((object.kind, &object.name), why);
        }
    }
    let puts =
        plan.wanted.iter().map(|config| async move { (config, create_or_restore(shared, config).await) });
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
        let done = delete(shared, &removal.name, &removal.why).await;
        if let Some(why) = book(&format!("removal of MachineConfig {}", removal.name), done) {
            let config = shared.stores.configs.get(&removal.name);
            if let Some(pool) = config.as_deref().and_then(|c| role(c.source()?)) {
                refused.entry(pool).or_insert(why);
            }
        }
    }
    for object in plan.objects.iter().filter(|o| o.deleting) {
        if let Some(why) = book(
            &format!("finalizers of {} {}", object.kind, object.name),
            write_metadata(shared, object).await.map_err(Into::into),
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
        if let Some(why) = book(&what, write_status(shared, object, &verdict).await.map_err(Into::into)) {
            tracing::warn!("{why}");
        }
    }
    for policy in shared.settings.all(settings::POLICY) {
        let text = |path: &str| policy.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let what =
            format!("status of ImagePolicy {}/{}", text("/metadata/namespace"), text("/metadata/name"));
        if let Some(why) = book(&what, write_conflict(shared, &policy, &plan).await.map_err(Into::into)) {
            tracing::warn!("{why}");
        }
    }
    Ok((writes, refused))
}

fn role(config: &MachineConfig) -> Option<String> {
    config.labels().get(api::names::label::ROLE).cloned()
}

/// The MachineConfigs that an object produces.
fn made_by<'a>(plan: &'a Plan, object: &'a ObjectPlan) -> impl Iterator<Item = &'a MachineConfig> {
    plan.wanted.iter().filter(|config| {
        let mut owners = config.metadata.owner_references.iter().flatten();
        owners.any(|o| o.kind == object.kind.name() && o.name == object.name)
    })
}

/// Reads the inputs and plans. Files and rendering keep a thread busy for some milliseconds.
async fn planned(shared: &Shared, config: &ControllerConfig) -> Result<Plan, Failure> {
    let facts = templates::facts(shared, config).await?;
    let (folder, config, all) = (shared.templates.clone(), config.clone(), &shared.settings);
    let versions = shared.versions.clone();
    let pools = shared.stores.pools.all();
    let configs = shared.stores.configs.all();
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
        Err(e) => Err(Failure::Plan(format!("planning the generated MachineConfigs ended abnormally: {e}"))),
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

/// Writes the object's number and its finalizers.
async fn write_metadata(shared: &Shared, plan: &ObjectPlan) -> Result<(), CallError> {
    let kind = setting(plan.kind);
    let Some(have) = shared.settings.get(kind, &plan.name) else { return Ok(()) };
    let finalizers = plan.finalizers.as_deref().and_then(|wanted| finalizers_to_write(wanted, &have));
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
    let api = kind.api(&shared.client);
    let answer = call(what, api.patch(&plan.name, &PatchParams::default(), &body)).await?;
    shared.settings.answer(kind, &answer);
    Ok(())
}

/// Writes the object's status, if it says something new.
async fn write_status(
    shared: &Shared,
    plan: &ObjectPlan,
    verdict: &Result<(), String>,
) -> Result<(), CallError> {
    let kind = setting(plan.kind);
    let Some(have) = shared.settings.get(kind, &plan.name) else { return Ok(()) };
    let generation = have.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let Some(status) = status(plan.kind, have.get("status"), generation, verdict, &now()) else {
        return Ok(());
    };
    if let Err(why) = verdict {
        tracing::warn!("{why}");
    }
    let body = Patch::Merge(json!({"metadata": {"resourceVersion": version(&have)}, "status": status}));
    let what = || format!("status of {} {}", plan.kind, plan.name);
    let api = kind.api(&shared.client);
    let answer: DynamicObject =
        call(what, api.patch_status(&plan.name, &PatchParams::default(), &body)).await?;
    shared.settings.answer(kind, &answer);
    Ok(())
}

/// Sets the status of an ImagePolicy: whether its scopes have no effect because of a conflict.
async fn write_conflict(shared: &Shared, policy: &Value, plan: &Plan) -> Result<(), CallError> {
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
    let api = settings::POLICY.api_in(&shared.client, namespace);
    call(what, api.patch_status(name, &PatchParams::default(), &body)).await?;
    Ok(())
}

//! The image builds of one pool: carries out `build::plan`. It creates MachineOSBuilds, their ConfigMaps and Jobs, follows the
//! Jobs, and writes what came of them: the build's status with the image's digest, what the MachineOSConfig says is in force,
//! and the pool's condition `ImageBuildDegraded` when a build failed.
//!
//! What it is not: a decision, or the rollout of an image. It reads no Secret: those to pull and push with are mounted into the
//! Job's pod by name.

use crate::cache::store::Item;
use crate::cache::stores::{Config, ImageBuild, ImageConfig};
use crate::cache::watch::version_of;
use crate::dirty::{Changed, DirtyKeys, Known};
use crate::flight::pools::set_condition;
use crate::flight::refusals::Topic;
use crate::io::events::{Source, reference};
use crate::passes::descriptor::{Descriptor, Right, kind, stateless};
use crate::passes::queue::{Outcome, Pass, Spacing, Work};
use crate::shared::Shared;
use crate::term::leader::now;
use api::conditions;
use api::events::ControllerEvent;
use api::k8s::{ConfigMap, Pod, ResourceExt, Time};
use api::names::{NAMESPACE, annotation, pool_condition};
use api::text::{MAX_ANSWER_CHARS, cut};
use api::v1::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSBuildStatus, MachineOSConfig};
use build::{
    Base, BuildPlan, ConfigMapDigest, Inputs, JobFacts, Point, Report, StartCheck, State, Step, Warning,
    names, objects, objects::LeftOver,
};
use client::{CallError, call};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::GroupVersionKind;
use rollout::TroubleOf;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often the pods of a Job are looked at that do not start, in seconds.
const LOOK_AGAIN: u64 = 30;
/// Events that are read about one object.
const EVENTS: u32 = 50;
/// The key of a digest in its ConfigMap.
const DIGEST: &str = "digest";
/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::ImageBuilds,
    work: Work { name: "image-builds", parallel: 4, spacing: Spacing::millis(50, 1000) },
    reads: &[
        kind::POOLS,
        kind::CONFIGS,
        kind::CONTROLLER_CONFIGS,
        kind::OS_CONFIGS,
        kind::OS_BUILDS,
        kind::NODES,
        kind::PODS,
    ],
    writes: &[
        Right::new("create", kind::OS_BUILDS),
        Right::new("patch", kind::OS_BUILDS),
        Right::new("delete", kind::OS_BUILDS),
        Right::new("patch", kind::OS_BUILD_STATUS),
        Right::new("patch", kind::OS_CONFIGS),
        Right::new("patch", kind::OS_CONFIG_STATUS),
        Right::new("patch", kind::POOL_STATUS),
    ],
    marked_by,
    start: |shared, _| stateless(shared, pass),
};

fn marked_by(changed: &Changed<'_>, known: Known<'_>, marks: &mut DirtyKeys) {
    match changed {
        Changed::ImageBuild(pool) if !pool.is_empty() => marks.mark(Pass::ImageBuilds, pool),
        Changed::Pool(change) => {
            let reads = |p: &Option<Arc<MachineConfigPool>>| {
                p.as_ref().map(|p| {
                    let status = p.status.as_ref();
                    let of = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
                    let says = [pool_condition::RENDER_DEGRADED, pool_condition::IMAGE_BUILD_DEGRADED];
                    let reached = status.map(|s| s.configuration.name.clone());
                    (p.spec.configuration.clone(), says.map(|c| conditions::is_true(of, c)), reached)
                })
            };
            if reads(&change.old) != reads(&change.new) && concerned(known).contains(&change.name) {
                marks.mark(Pass::ImageBuilds, &change.name);
            }
        }
        // The pool may name it already.
        Changed::Config(change) => {
            if let Some(Config::Rendered(rendered)) = change.new.as_deref()
                && concerned(known).contains(&rendered.pool)
            {
                marks.mark(Pass::ImageBuilds, &rendered.pool);
            }
        }
        Changed::ControllerConfig(_) | Changed::TermBegins => {
            marks.mark_all(Pass::ImageBuilds, concerned(known));
        }
        _ => {}
    }
}

/// The pools that have an image of their own, or builds of one.
fn concerned(known: Known<'_>) -> BTreeSet<String> {
    let configs = known.stores.os_configs.all();
    let builds = known.stores.os_builds.all();
    let pools = configs.iter().map(|c| c.pool()).chain(builds.iter().map(|b| b.pool()));
    pools.filter(|p| !p.is_empty()).map(str::to_owned).collect()
}

/// One pass over one pool's builds.
pub(crate) async fn pass(shared: Arc<Shared>, pool: String) -> Outcome {
    let tell = |text: Option<String>| {
        shared.report_problem(Topic::ImageBuild, TroubleOf::Pool(pool.as_str().into()), text);
    };
    match carry_out(&shared, &pool).await {
        Ok(Carried { problem, again }) => {
            tell(problem);
            again.map_or(Outcome::Done, Outcome::After)
        }
        Err(e) if e.is_conflict() => Outcome::Stale,
        Err(e) => {
            let chain = e.chain();
            tell(Some(format!(
                "the OS image cannot be built, and is tried again: {}",
                cut(&chain, MAX_ANSWER_CHARS)
            )));
            Outcome::Failed(chain)
        }
    }
}

/// What a plan is made from, held for as long as the plan is.
struct Snapshot {
    pool: Arc<MachineConfigPool>,
    config: Option<Arc<ImageConfig>>,
    builds: Vec<Arc<ImageBuild>>,
    rendered: Vec<(String, Arc<Config>)>,
    jobs: Vec<Arc<JobFacts>>,
    images: BTreeSet<Arc<str>>,
    builder: Option<String>,
}

impl Snapshot {
    fn config(&self) -> Option<&MachineOSConfig> {
        self.config.as_ref().and_then(|c| c.object.as_ref().ok())
    }

    fn builds(&self) -> impl Iterator<Item = &MachineOSBuild> {
        self.builds.iter().filter_map(|b| b.object.as_ref().ok())
    }

    fn build(&self, name: &str) -> Option<&MachineOSBuild> {
        self.builds().find(|b| b.metadata.name.as_deref() == Some(name))
    }
}

/// The caches as they are; `None`: there is no such pool.
fn snapshot(shared: &Shared, pool: &str) -> Option<Snapshot> {
    let stores = &shared.stores;
    let object = stores.pools.get(pool)?;
    let config = stores.os_configs.all().into_iter().find(|c| c.pool() == pool);
    let of_config = config.as_ref().and_then(|c| c.object.as_ref().ok()).map(|c| c.name_any());
    let is_ours = |b: &Arc<ImageBuild>| match (&of_config, &b.object) {
        (Some(config), Ok(build)) => build.spec.machine_os_config.name == *config,
        (None, Ok(_)) => b.pool() == pool,
        (_, Err(_)) => false,
    };
    let builds: Vec<_> = stores.os_builds.all().into_iter().filter(is_ours).collect();
    let named =
        builds.iter().filter_map(|b| b.object.as_ref().ok()).map(|b| b.spec.machine_config.name.clone());
    let named: BTreeSet<String> = named.chain([object.spec.configuration.name.clone()]).collect();
    let rendered =
        named.into_iter().filter_map(|name| Some((name.clone(), stores.configs.get(&name)?))).collect();
    let jobs = stores.build_jobs.all().into_iter().filter(|j| j.pool == pool).collect();
    let nodes = stores.nodes.all();
    let images =
        nodes.iter().flat_map(|n| [n.current_image.clone(), n.desired_image.clone()]).flatten().collect();
    Some(Snapshot { pool: object, config, builds, rendered, jobs, images, builder: builder(shared) })
}

/// The image that holds bash and buildah. Only a name that people have given counts: nothing is built, and no node is sent to
/// an image, because a cluster happens to have the reference's image.
fn builder(shared: &Shared) -> Option<String> {
    let config = shared.stores.controller_config()?;
    let image = config.annotations().get(annotation::IMAGE_BUILDER)?.trim();
    (!image.is_empty()).then(|| image.to_owned())
}

/// What a pass leaves.
#[derive(Debug, Default)]
struct Carried {
    /// What people must know besides.
    problem: Option<String>,
    /// When to look again, even if nothing changes.
    again: Option<Duration>,
}

/// What was asked of the API server for a plan, because no cache has it.
#[derive(Debug, Default)]
struct Asked {
    reports: BTreeMap<String, Report>,
    absent: BTreeSet<String>,
    held_up: BTreeMap<String, String>,
    again: Option<Duration>,
}

/// Asks what a plan needs to know of the Jobs of builds that have not ended.
async fn ask(shared: &Shared, snapshot: &mut Snapshot, now: &Time) -> Result<Asked, CallError> {
    let mut asked = Asked::default();
    if snapshot.builder.is_none() {
        return Ok(asked);
    }
    for build in build::unseen(snapshot.builds(), snapshot.jobs.iter().map(AsRef::as_ref)) {
        let job = names::job(&build);
        match call(|| format!("get job {job}"), jobs(shared).get_opt(&job)).await? {
            None => {
                asked.absent.insert(build);
            }
            Some(found) => {
                let item = job_item(&found);
                snapshot.jobs.push(item.value.clone());
                shared.stores.build_jobs.created(&format!("{NAMESPACE}/{job}"), item);
            }
        }
    }
    for job in &snapshot.jobs {
        if snapshot.build(&job.build).is_none_or(build::is_ended) {
            continue;
        }
        if matches!(job.state(), State::Succeeded | State::Failed) {
            asked.reports.insert(job.build.clone(), report(shared, job).await?);
            continue;
        }
        let seconds = match job.start_check(now) {
            StartCheck::Never => continue,
            StartCheck::In(seconds) => u64::try_from(seconds).unwrap_or(0),
            StartCheck::Now => {
                if let Some(why) = held_up(shared, job).await? {
                    asked.held_up.insert(job.build.clone(), why);
                }
                LOOK_AGAIN
            }
        };
        let wait = Duration::from_secs(seconds);
        asked.again = Some(asked.again.map_or(wait, |again| again.min(wait)));
    }
    Ok(asked)
}

/// Makes the plan and carries it out.
async fn carry_out(shared: &Shared, pool: &str) -> Result<Carried, CallError> {
    let Some(mut snapshot) = snapshot(shared, pool) else { return Ok(Carried::default()) };
    if let Some(Err(why)) = snapshot.config.as_ref().map(|c| c.object.as_ref()) {
        let problem = Some(format!("the pool's MachineOSConfig cannot be read: {why}; correct it"));
        return Ok(Carried { problem, again: None });
    }
    if snapshot.config.is_none() && snapshot.builds.is_empty() {
        return Ok(Carried::default());
    }
    let now = now();
    let Asked { reports, absent, held_up, again } = ask(shared, &mut snapshot, &now).await?;
    let base = |config: &'_ Config| match config {
        Config::Rendered(rendered) => rendered.base.clone(),
        Config::Source(object) => Base::of(object),
    };
    let bases: Vec<(&str, Base)> = snapshot.rendered.iter().map(|(n, c)| (n.as_str(), base(c))).collect();
    let inputs = Inputs {
        pool: &snapshot.pool,
        config: snapshot.config(),
        builds: snapshot.builds().collect(),
        rendered: bases.iter().map(|(name, base)| (*name, base)).collect(),
        jobs: snapshot.jobs.iter().map(AsRef::as_ref).collect(),
        absent: absent.iter().map(String::as_str).collect(),
        held_up: held_up.iter().map(|(build, why)| (build.as_str(), why.clone())).collect(),
        reports: reports.iter().map(|(build, report)| (build.as_str(), report.clone())).collect(),
        in_use: snapshot.images.iter().map(AsRef::as_ref).collect(),
        builder: snapshot.builder.as_deref(),
        now: &now,
    };
    let BuildPlan { steps, wait, condition } = build::plan(&inputs);
    for step in steps {
        tracing::info!(pool, "image build: {step}");
        take(shared, &snapshot, step).await?;
    }
    if let Some(condition) = condition {
        set_condition(shared, &snapshot.pool, condition).await?;
    }
    let problem = wait.filter(build::Wait::needs_somebody).map(|w| w.to_string());
    Ok(Carried { problem, again })
}

/// What keeps the pods of a Job from starting.
async fn held_up(shared: &Shared, job: &JobFacts) -> Result<Option<String>, CallError> {
    let pods = pods(shared, &job.build).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Event"));
    let events: Api<DynamicObject> = Api::namespaced_with(shared.client.clone(), NAMESPACE, &kind);
    let uids = pods.iter().filter_map(|p| p.metadata.uid.clone()).chain([job.uid.clone()]);
    let mut warnings = vec![];
    for uid in uids {
        let about =
            ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning")).limit(EVENTS);
        let found = call(|| format!("list of events about {}", job.name), events.list(&about)).await?;
        warnings.extend(found.items.iter().map(|e| Warning::new(&uid, &e.data)));
    }
    Ok(build::held_up(job, &pods, &warnings))
}

/// The pods of a build's Job.
async fn pods(shared: &Shared, build: &str) -> Result<Vec<Pod>, CallError> {
    let pods: Api<Pod> = Api::namespaced(shared.client.clone(), NAMESPACE);
    let of_build = ListParams::default().labels(&format!("{}={build}", names::OS_BUILD));
    Ok(call(|| format!("list of pods of {build}"), pods.list(&of_build)).await?.items)
}

/// What the pods of a Job that has ended say.
async fn report(shared: &Shared, job: &JobFacts) -> Result<Report, CallError> {
    let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), NAMESPACE);
    let map = names::digest(&job.build);
    let found = call(|| format!("get configmap {map}"), maps.get_opt(&map)).await?;
    let digest = found.and_then(|m| {
        let created = m.metadata.creation_timestamp.clone();
        Some(ConfigMapDigest { digest: m.data?.remove(DIGEST)?, created })
    });
    Ok(Report::read(job, digest.as_ref(), &pods(shared, &job.build).await?))
}

/// Takes one step.
async fn take(shared: &Shared, snapshot: &Snapshot, step: Step) -> Result<(), CallError> {
    match step {
        Step::Create(build) => {
            let what = || format!("create machineosbuild {}", build.name_any());
            let made = call(what, shared.api().create(&PostParams::default(), &*build)).await?;
            shared.os_build_created(&made);
        }
        Step::Start(name) => {
            if let Some(build) = snapshot.build(&name) {
                start(shared, snapshot, build).await?;
            }
        }
        Step::Adopt { build, uid } => {
            let patch = json!({"metadata": {"annotations": {names::JOB_UID: uid}}});
            let api = shared.api::<MachineOSBuild>();
            let what = || format!("annotation {} of machineosbuild {build}", names::JOB_UID);
            let answer = call(what, api.patch(&build, &PatchParams::default(), &Patch::Merge(patch))).await?;
            shared.os_build_answer(&answer);
        }
        Step::Status { build, state, status } => {
            if let Some(build) = snapshot.build(&build) {
                write_status(shared, build, state, &status).await?;
            }
        }
        Step::Stop(name) => stop(shared, &name).await?,
        Step::Delete { build, .. } => {
            let uid = snapshot.build(&build).and_then(|b| b.metadata.uid.clone());
            let params = DeleteParams {
                preconditions: Some(Preconditions { uid, resource_version: None }),
                ..DeleteParams::background()
            };
            let api = shared.api::<MachineOSBuild>();
            gone(call(|| format!("delete machineosbuild {build}"), api.delete(&build, &params)).await)?;
            if let Some(change) = shared.stores.os_builds.remove(&build) {
                shared.os_build_changed(&change);
            }
        }
        Step::Point(point) => {
            if let Some(config) = snapshot.config() {
                write_point(shared, config, &point).await?;
            }
        }
    }
    Ok(())
}

/// What is gone already counts as deleted.
fn gone<T>(result: Result<T, CallError>) -> Result<(), CallError> {
    match result {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(()),
    }
}

fn jobs(shared: &Shared) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    Api::namespaced_with(shared.client.clone(), NAMESPACE, &kind)
}

/// Creates the objects of a build, its Job last: a Job that exists has everything that it needs.
async fn start(shared: &Shared, snapshot: &Snapshot, build: &MachineOSBuild) -> Result<(), CallError> {
    let (Some(config), Some(builder)) = (snapshot.config(), snapshot.builder.as_deref()) else {
        return Ok(());
    };
    let name = &build.spec.machine_config.name;
    let rendered: MachineConfig =
        call(|| format!("get machineconfig {name}"), shared.api::<MachineConfig>().get(name)).await?;
    let cluster = shared.stores.controller_config();
    let made = objects::of(objects::Inputs {
        pool: &snapshot.pool.name_any(),
        build,
        config,
        rendered: &rendered,
        cluster: cluster.as_deref().map(|c| &c.spec),
        builder,
    });
    let made = match made {
        Ok(made) => made,
        Err(why) => {
            let status = build::refused(build, &why.to_string(), &now());
            return write_status(shared, build, State::Failed, &status).await;
        }
    };
    let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), NAMESPACE);
    let params = PostParams::default();
    for map in &made.config_maps {
        let name = map.name_any();
        let create = || call(|| format!("create configmap {name}"), maps.create(&params, map));
        match create().await {
            Err(e) if e.is_conflict() => {
                let found = call(|| format!("get configmap {name}"), maps.get_opt(&name)).await?;
                match found.as_ref().map(|found| objects::left_over(build, &found.metadata)) {
                    // Of an attempt that did not come to its end; the build's name is a hash of all that is in it.
                    Some(LeftOver::SameBuild) => {}
                    Some(LeftOver::EarlierBuild { uid }) => {
                        let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
                        let params = DeleteParams { preconditions, ..DeleteParams::default() };
                        gone(call(|| format!("delete configmap {name}"), maps.delete(&name, &params)).await)?;
                        drop(create().await?);
                    }
                    None => drop(create().await?),
                    Some(LeftOver::Foreign) => {
                        let why = format!(
                            "ConfigMap {NAMESPACE}/{name} exists, and was not made for this build; delete it, then ask for a \
                             rebuild"
                        );
                        let status = build::refused(build, &why, &now());
                        return write_status(shared, build, State::Failed, &status).await;
                    }
                }
            }
            other => drop(other?),
        }
    }
    let (api, job) = (jobs(shared), names::job(&build.name_any()));
    let object: DynamicObject = match serde_json::from_value(made.job) {
        Ok(object) => object,
        Err(why) => {
            let status = build::refused(build, &why.to_string(), &now());
            return write_status(shared, build, State::Failed, &status).await;
        }
    };
    let answer = match call(|| format!("create job {job}"), api.create(&PostParams::default(), &object)).await
    {
        Err(e) if e.is_conflict() => call(|| format!("get job {job}"), api.get(&job)).await?,
        other => other?,
    };
    let item = job_item(&answer);
    let message = format!("job {job} builds the OS image of pool {}", snapshot.pool.name_any());
    shared.events.publish(Source::Builder, reference(build), ControllerEvent::BuildStarted, message);
    if shared.stores.build_jobs.created(&format!("{NAMESPACE}/{job}"), item).is_some() {
        shared.changed(&Changed::ImageBuild(&snapshot.pool.name_any()));
    }
    Ok(())
}

/// A Job as the cache keeps it.
fn job_item(job: &DynamicObject) -> Item<JobFacts> {
    let (version, uid) = (version_of(job), job.uid().unwrap_or_default());
    Item { version, uid, value: Arc::new(JobFacts::new(&json!(job))) }
}

/// Deletes the ConfigMaps and the Job of a build; the Job last, because what is left is found by it.
async fn stop(shared: &Shared, build: &str) -> Result<(), CallError> {
    let job = names::job(build);
    let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), NAMESPACE);
    for map in names::config_maps(build) {
        let params = DeleteParams::default();
        gone(call(|| format!("delete configmap {map}"), maps.delete(&map, &params)).await)?;
    }
    gone(call(|| format!("delete job {job}"), jobs(shared).delete(&job, &DeleteParams::background())).await)?;
    shared.stores.build_jobs.remove(&format!("{NAMESPACE}/{job}"));
    Ok(())
}

/// Writes a build's status, bound to the version that it was computed from, and the event of its new state.
async fn write_status(
    shared: &Shared,
    build: &MachineOSBuild,
    state: State,
    status: &MachineOSBuildStatus,
) -> Result<(), CallError> {
    let name = build.name_any();
    // An earlier step of the same plan may have written the object.
    let version = shared.stores.os_builds.get(&name).and_then(|b| b.object.as_ref().ok()?.resource_version());
    let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
    let api = shared.api::<MachineOSBuild>();
    let what = || format!("status of machineosbuild {name}");
    let answer = call(what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
    let said = answer.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.status == "True");
    let said = said.map(|c| c.message.clone()).unwrap_or_default();
    let event = match state {
        State::Succeeded => Some(ControllerEvent::BuildCompleted),
        State::Failed => Some(ControllerEvent::BuildFailed),
        State::Interrupted => Some(ControllerEvent::BuildInterrupted),
        State::Initial | State::Prepared | State::Building => None,
    };
    if let Some(event) = event {
        shared.events.publish(Source::Builder, reference(&answer), event, said);
    }
    shared.os_build_answer(&answer);
    Ok(())
}

/// Writes what a MachineOSConfig says of its builds: annotations first, because the status says that there is an image.
async fn write_point(shared: &Shared, config: &MachineOSConfig, point: &Point) -> Result<(), CallError> {
    let name = config.name_any();
    let api = shared.api::<MachineOSConfig>();
    let mut notes = json!({annotation::CURRENT_BUILD: point.build});
    for key in &point.clear {
        notes[*key] = Value::Null;
    }
    let patch = json!({"metadata": {"resourceVersion": config.resource_version(), "annotations": notes}});
    let what = || format!("annotations of machineosconfig {name}");
    let answer = call(what, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
    shared.os_config_answer(&answer);
    if let Some(status) = &point.status {
        let patch = json!({"metadata": {"resourceVersion": answer.resource_version()}, "status": status});
        let what = || format!("status of machineosconfig {name}");
        let answer =
            call(what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
        shared.os_config_answer(&answer);
    }
    Ok(())
}

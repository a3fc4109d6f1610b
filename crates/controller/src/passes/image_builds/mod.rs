//! The image builds of one pool: carries out `build::plan`. It creates MachineOSBuilds, their ConfigMaps and Jobs, follows the
//! Jobs, and writes what came of them: the build's status with the image's digest, what the MachineOSConfig says is in force,
//! and the pool's condition `ImageBuildDegraded` when a build failed.
//!
//! What it is not: a decision, or the rollout of an image. It reads no Secret: those to pull and push with are mounted into the
//! Job's pod by name.

mod uncached_facts;
mod write;

use crate::cache::store::Item;
use crate::cache::trimmed::{Config, ImageBuild, ImageConfig};
use crate::cache::watch::version_of;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::pools::set_condition;
use crate::flight::refusals::Topic;
use crate::io::clock::now;
use crate::kind;
use crate::passes::descriptor::{Descriptor, stateless};
use crate::queue::{Outcome, Pass, Spacing, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::conditions;
use api::formats::text::{MAX_ANSWER_CHARS, cut};
use api::k8s::ResourceExt;
use api::names::{NAMESPACE, PUSHED_IMAGES, annotation, pool_condition};
use api::v1::{MachineConfigPool, MachineOSBuild, MachineOSConfig};
use build::{Base, BuildCounts, BuildPlan, Inputs, JobFacts};
use client::CallError;
use kube::api::{Api, DynamicObject};
use rollout::TroubleOf;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use uncached_facts::UncachedFacts;

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::ImageBuilds,
    work: Work { name: "image-builds", parallel: 4, spacing: Spacing::millis(50, 1000) },
    reads: &[
        &inputs::POOLS,
        &inputs::CONFIGS,
        &inputs::CONTROLLER_CONFIGS,
        &inputs::OS_CONFIGS,
        &inputs::OS_BUILDS,
        &inputs::NODES,
        &inputs::PODS,
        &inputs::BUILD_JOBS,
    ],
    rights: &[
        Right::new("create", kind::OS_BUILDS),
        Right::new("patch", kind::OS_BUILDS),
        Right::new("delete", kind::OS_BUILDS),
        Right::new("patch", kind::OS_BUILDS).on("status"),
        Right::new("patch", kind::OS_CONFIGS),
        Right::new("patch", kind::OS_CONFIGS).on("status"),
        Right::new("patch", kind::POOLS).on("status"),
        // The names of a build's objects are hashes, so these rights cannot be limited by name.
        Right::new("create", kind::JOBS).in_own_namespace(),
        Right::new("delete", kind::JOBS).in_own_namespace(),
        Right::new("get", kind::CONFIG_MAPS).in_own_namespace(),
        Right::new("create", kind::CONFIG_MAPS).in_own_namespace(),
        Right::new("delete", kind::CONFIG_MAPS).in_own_namespace(),
        // The list of what builds have pushed.
        Right::named("patch", kind::CONFIG_MAPS, &[PUSHED_IMAGES]).in_own_namespace(),
        // Those about pods that do not start.
        Right::new("list", kind::EVENTS).in_own_namespace(),
    ],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| stateless(shared, pass),
};

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
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
fn concerned(known: KnownObjects<'_>) -> BTreeSet<String> {
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
                "the OS image cannot be built; this is tried again: {}",
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

    /// Updates the metrics of the pool's builds. Whatever this pass writes marks the pool for another one.
    fn count(&self, shared: &Shared, pool: &str) {
        let jobs: Vec<&JobFacts> = self.jobs.iter().map(AsRef::as_ref).collect();
        let counts = BuildCounts::of(self.config(), self.builds(), &jobs);
        shared.metrics.images.observe(pool, &self.pool.spec.configuration.name, &counts);
        shared.forget_series_if_gone(pool);
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

/// Makes the plan and carries it out.
async fn carry_out(shared: &Shared, pool: &str) -> Result<Carried, CallError> {
    let images = &shared.metrics.images;
    // A MachineOSConfig that names no pool has no effect.
    images.count_configs(shared.stores.os_configs.all().iter().filter(|c| !c.pool().is_empty()).count());
    let Some(mut snapshot) = snapshot(shared, pool) else { return Ok(Carried::default()) };
    if let Some(Err(why)) = snapshot.config.as_ref().map(|c| c.object.as_ref()) {
        // Its builds go on meanwhile.
        snapshot.count(shared, pool);
        let problem = Some(format!("the pool's MachineOSConfig cannot be read: {why}; correct it"));
        return Ok(Carried { problem, again: None });
    }
    if snapshot.config.is_none() && snapshot.builds.is_empty() {
        images.forget_builds(pool);
        return Ok(Carried::default());
    }
    snapshot.count(shared, pool);
    let now = now();
    let UncachedFacts { reports, absent, bases: found, why_not_started, again } =
        uncached_facts::read(shared, &mut snapshot, &now).await?;
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
        bases: found.iter().map(|(build, image)| (build.as_str(), image.clone())).collect(),
        why_not_started: why_not_started.iter().map(|(build, why)| (build.as_str(), why.clone())).collect(),
        reports: reports.iter().map(|(build, report)| (build.as_str(), report.clone())).collect(),
        in_use: snapshot.images.iter().map(AsRef::as_ref).collect(),
        builder: snapshot.builder.as_deref(),
        now: &now,
    };
    let BuildPlan { steps, wait, condition } = build::plan(&inputs);
    for step in steps {
        tracing::info!(pool, "image build: {step}");
        write::carry_out(shared, &snapshot, step).await?;
    }
    if let Some(condition) = condition {
        set_condition(shared, &snapshot.pool, condition).await?;
    }
    let problem = wait.filter(build::Wait::needs_somebody).map(|w| w.to_string());
    Ok(Carried { problem, again })
}

fn jobs(shared: &Shared) -> Api<DynamicObject> {
    Api::namespaced_with(shared.client.clone(), NAMESPACE, &kind::JOBS.resource())
}

/// A Job as the cache keeps it.
fn job_item(job: &DynamicObject) -> Item<JobFacts> {
    let (version, uid) = (version_of(job), job.uid().unwrap_or_default());
    Item { version, uid, value: Arc::new(JobFacts::new(&json!(job))) }
}

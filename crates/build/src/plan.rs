//! What happens next to the image builds of one pool: from the objects as they are to a list of steps.
//!
//! One build is wanted: the one whose name is the hash of the pool's config, the MachineOSConfig and the base image. It is
//! created, or an image that fits already is given to it; its Job is started and followed; when it has succeeded, its image is
//! the one in force. Every other build that still runs is interrupted. Each step is small, and after each the plan can be made
//! again from what there is: a controller may end between any two.
//!
//! What it is not: the rollout of the image, or its retries. The Job tries a build again by itself.

use crate::job::JobFacts;
use crate::names;
use crate::prune;
use crate::report::Report;
use crate::state::{self, Cause, State, seeded};
use api::conditions::{self, Condition};
use api::k8s::{MetaCondition, OwnerReference, Time};
use api::names::{annotation, pool_condition};
use api::v1::{
    MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSBuildSpec, MachineOSBuildStatus,
    MachineOSBuilder, MachineOSConfig, MachineOSConfigStatus, NamedRef, ResourceReference,
};
use render::{BuildBase, build_name, os_config_hash};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What an image depends on in a rendered MachineConfig. A change of anything else needs no new image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// `spec.osImageURL`.
    pub os_image: Box<str>,
    /// `spec.baseOSExtensionsContainerImage`.
    pub extensions_image: Box<str>,
    /// `spec.kernelType`.
    pub kernel_type: Box<str>,
    /// `spec.kernelArguments`.
    pub kernel_arguments: Vec<String>,
    /// `spec.extensions`.
    pub extensions: Vec<String>,
    /// The annotation `release-image-version`.
    pub release: Box<str>,
}

impl Base {
    /// From a rendered MachineConfig.
    pub fn of(config: &MachineConfig) -> Self {
        let notes = config.metadata.annotations.as_ref();
        let release = notes.and_then(|a| a.get(annotation::RELEASE_IMAGE_VERSION));
        let spec = &config.spec;
        Self {
            os_image: spec.os_image_url.as_str().into(),
            extensions_image: spec.base_os_extensions_container_image.as_str().into(),
            kernel_type: match spec.kernel_type.as_str() {
                "" => "default".into(),
                other => other.into(),
            },
            kernel_arguments: spec.kernel_arguments.clone().unwrap_or_default(),
            extensions: spec.extensions.clone().unwrap_or_default(),
            release: release.map(|r| r.as_str().into()).unwrap_or_default(),
        }
    }

    /// Whether an image for this config does not fit another one. The reference compares the same four fields.
    fn needs_another_image(&self, new: &Self) -> bool {
        (&self.os_image, &self.kernel_type, &self.kernel_arguments, &self.extensions)
            != (&new.os_image, &new.kernel_type, &new.kernel_arguments, &new.extensions)
    }
}

/// Everything that a plan is made from.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// Its MachineOSConfig.
    pub config: Option<&'a MachineOSConfig>,
    /// The builds of that MachineOSConfig, or those of the pool if there is none.
    pub builds: Vec<&'a MachineOSBuild>,
    /// The rendered configs that the pool and these builds name, as far as they exist.
    pub rendered: BTreeMap<&'a str, &'a Base>,
    /// The Jobs of these builds.
    pub jobs: Vec<&'a JobFacts>,
    /// Builds whose Job is not there, as the API server says: a cache may not have it yet, or may have lost it.
    pub absent: BTreeSet<&'a str>,
    /// What keeps pods of these builds from starting.
    pub held_up: BTreeMap<&'a str, String>,
    /// What the pods of Jobs that have ended say, by the build's name.
    pub reports: BTreeMap<&'a str, Report>,
    /// Images that a node runs or is to run.
    pub in_use: BTreeSet<&'a str>,
    /// The image that holds bash and buildah. Without one nothing is built here, and nothing is touched.
    pub builder: Option<&'a str>,
    /// The time.
    pub now: &'a Time,
}

/// What to do, in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildPlan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Why the build that is wanted does not go on.
    pub wait: Option<Wait>,
    /// The pool's condition `ImageBuildDegraded`, if it has to be set. The rollout clears it.
    pub condition: Option<Condition>,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Create a build; one with the annotation [`names::REUSES`] stands for an image that is there already.
    Create(Box<MachineOSBuild>),
    /// Create the Job and the ConfigMaps of a build.
    Start(String),
    /// Record the Job of a build that was created before this could be recorded.
    Adopt {
        /// The build.
        build: String,
        /// The uid of its Job.
        uid: String,
    },
    /// Write a build's status.
    Status {
        /// The build.
        build: String,
        /// The state that the status says.
        state: State,
        /// The status.
        status: Box<MachineOSBuildStatus>,
    },
    /// Delete the Job and the ConfigMaps of a build.
    Stop(String),
    /// Delete a build.
    Delete {
        /// The build.
        build: String,
        /// Why.
        why: &'static str,
    },
    /// Write what the MachineOSConfig says of its builds.
    Point(Box<Point>),
}

/// What a MachineOSConfig is to say of its builds.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The build in force.
    pub build: String,
    /// Annotations that go.
    pub clear: Vec<&'static str>,
    /// Its status, if that changes.
    pub status: Option<MachineOSConfigStatus>,
}

/// Why the wanted build does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Nothing builds images here.
    NoBuilder,
    /// The pool names no rendered config yet, or one that is not known.
    NotRendered,
    /// The pool cannot be rendered, so its config is not what it should be.
    RenderDegraded,
    /// The Job has ended, and what its pods say has to be read.
    Report(String),
    /// The wanted build has failed.
    Failed(String),
    /// Somebody has deleted the Job of the wanted build.
    Interrupted(String),
    /// The Job is in no cache, and the API server has to be asked for it.
    Job(String),
    /// No pod of the wanted build's Job starts.
    HeldUp {
        /// The build.
        build: String,
        /// Why.
        why: String,
    },
    /// The image from elsewhere is none.
    NotPreBuilt(String),
    /// Somebody else has made a build of the wanted name.
    Foreign(String),
}

impl Wait {
    /// Whether people have to be told, because nothing else tells them: a failure is in a condition of its own, and the others
    /// end by themselves.
    pub fn needs_somebody(&self) -> bool {
        match self {
            Self::NoBuilder
            | Self::Interrupted(_)
            | Self::HeldUp { .. }
            | Self::NotPreBuilt(_)
            | Self::Foreign(_) => true,
            Self::NotRendered | Self::RenderDegraded | Self::Report(_) | Self::Failed(_) | Self::Job(_) => {
                false
            }
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBuilder => write!(
                f,
                "no image is built, because no builder is set: give the ControllerConfig the annotation {} with an image \
                 that holds bash and buildah",
                annotation::IMAGE_BUILDER
            ),
            Self::NotRendered => f.write_str("the pool has no rendered config yet"),
            Self::RenderDegraded => f.write_str("the pool cannot be rendered; see RenderDegraded"),
            Self::Report(build) => write!(f, "what the pods of MachineOSBuild {build} say is not known yet"),
            Self::Failed(build) => write!(
                f,
                "MachineOSBuild {build} failed; correct its cause, then set the annotation {} on the MachineOSConfig",
                names::REBUILD
            ),
            Self::Interrupted(build) => write!(
                f,
                "the Job of MachineOSBuild {build} was deleted; to build again, set the annotation {} on the \
                 MachineOSConfig",
                names::REBUILD
            ),
            Self::Job(build) => write!(f, "whether MachineOSBuild {build} has a Job is not known yet"),
            Self::HeldUp { build, why } => {
                write!(f, "the pod of MachineOSBuild {build} does not start: {why}")
            }
            Self::NotPreBuilt(value) => write!(
                f,
                "the annotation {} of the MachineOSConfig is {:?}, which is no image by its digest (NAME@sha256: and 64 \
                 hexadecimal digits); correct it, or remove it to build an image",
                names::PRE_BUILT,
                api::text::cut(value, MAX_SHOWN)
            ),
            Self::Foreign(build) => write!(
                f,
                "MachineOSBuild {build} exists, and was not made for this MachineOSConfig; delete it, and it is made anew"
            ),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(build) => {
                let name = build.metadata.name.as_deref().unwrap_or_default();
                match build.metadata.annotations.as_ref().and_then(|a| a.get(names::REUSES)) {
                    Some(image) => write!(f, "create {name} for image {image}"),
                    None => write!(f, "create {name}"),
                }
            }
            Self::Start(build) => write!(f, "start {build}"),
            Self::Adopt { build, uid } => write!(f, "record job {uid} of {build}"),
            Self::Status { build, state, .. } => write!(f, "{build} is {state:?}"),
            Self::Stop(build) => write!(f, "stop {build}"),
            Self::Delete { build, why } => write!(f, "delete {build}: {why}"),
            Self::Point(point) => {
                write!(f, "in force: {}", point.build)?;
                if let Some(image) = point.status.as_ref().and_then(|s| s.current_image_pull_spec.as_deref())
                {
                    write!(f, ", image {image}")?;
                }
                point.clear.iter().try_for_each(|key| write!(f, ", without {key}"))
            }
        }
    }
}

impl fmt::Display for BuildPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        if let Some(condition) = &self.condition {
            writeln!(f, "{}: {}", condition.type_, condition.message)?;
        }
        self.wait.iter().try_for_each(|wait| writeln!(f, "waits: {wait}"))
    }
}

/// Characters of an annotation's value that are shown.
const MAX_SHOWN: usize = 200;

/// Whose a build is, by the object that controls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// This MachineOSConfig's.
    Ours,
    /// That of a MachineOSConfig that is gone.
    Earlier,
    /// Of nobody, or of something else: it is left alone.
    Foreign,
}

fn whose(build: &MachineOSBuild, config: Option<&MachineOSConfig>) -> Whose {
    let mut owners = build.metadata.owner_references.iter().flatten();
    let group = format!("{}/", api::names::GROUP);
    let is_config = |o: &&OwnerReference| {
        o.controller == Some(true)
            && o.kind == "MachineOSConfig"
            && o.api_version.starts_with(&group)
            && o.name == build.spec.machine_os_config.name
    };
    match owners.find(is_config) {
        None => Whose::Foreign,
        Some(o) if config.is_some_and(|c| c.metadata.uid.as_deref() == Some(&o.uid)) => Whose::Ours,
        Some(_) => Whose::Earlier,
    }
}

/// What happens next to the builds of a pool.
pub fn plan(inputs: &Inputs<'_>) -> BuildPlan {
    let mut plan = BuildPlan::default();
    let living = inputs.config.filter(|c| c.metadata.deletion_timestamp.is_none());
    if inputs.builder.is_none() {
        plan.wait = living.map(|_| Wait::NoBuilder);
        return plan;
    }
    let of = |who| {
        let all = inputs.builds.iter().copied();
        all.filter(|b| whose(b, inputs.config) == who).collect::<Vec<&MachineOSBuild>>()
    };
    let (ours, earlier) = (of(Whose::Ours), of(Whose::Earlier));
    let orphans = if living.is_none() { [&ours[..], &earlier[..]].concat() } else { earlier };
    for build in &orphans {
        plan.stop(inputs, build);
        plan.steps.push(Step::Delete { build: name_of(build), why: "its MachineOSConfig is gone" });
    }
    let Some(config) = living else { return plan };
    let configuration = &inputs.pool.spec.configuration;
    let Some(base) = inputs.rendered.get(configuration.name.as_str()) else {
        plan.wait = Some(Wait::NotRendered);
        return plan;
    };
    let images = BuildBase {
        os_image: &base.os_image,
        extensions_image: &base.extensions_image,
        release: &base.release,
    };
    let config_name = config.metadata.name.as_deref().unwrap_or_default();
    let name = build_name(config_name, configuration, &config.spec, images);
    let of_name = |b: &&MachineOSBuild| b.metadata.name.as_deref() == Some(&name);
    if orphans.iter().any(of_name) {
        return plan;
    }
    if of(Whose::Foreign).iter().any(of_name) {
        plan.wait = Some(Wait::Foreign(name));
        return plan;
    }
    let inputs = &Inputs { builds: ours, ..inputs.clone() };
    let wanted = inputs.builds.iter().copied().find(of_name);
    match wanted {
        None => plan.create(inputs, config, base, &name),
        Some(_) if note(config, names::REBUILD).is_some() => {
            plan.steps.push(Step::Stop(name.clone()));
            plan.steps.push(Step::Delete { build: name.clone(), why: "a rebuild was asked for" });
        }
        Some(build) => plan.go_on(inputs, config, build),
    }
    if plan.wait == Some(Wait::RenderDegraded) {
        return plan;
    }
    plan.leave_others(inputs, config, wanted, &name);
    plan
}

fn name_of(build: &MachineOSBuild) -> String {
    build.metadata.name.clone().unwrap_or_default()
}

fn note<'a>(config: &'a MachineOSConfig, key: &str) -> Option<&'a str> {
    config.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The image that a build is to have without a Job.
fn reuses(build: &MachineOSBuild) -> Option<&str> {
    build.metadata.annotations.as_ref()?.get(names::REUSES).map(String::as_str)
}

/// Whether a build stands for an image from elsewhere.
fn is_pre_built(build: &MachineOSBuild) -> bool {
    build.metadata.labels.as_ref().is_some_and(|l| l.get(names::PRE_BUILT).is_some_and(|v| v == "true"))
}

/// An image of an earlier build that fits the pool's config: only fields have changed that are no part of an image.
fn reusable<'a>(inputs: &Inputs<'a>, config: &'a MachineOSConfig, base: &Base) -> Option<&'a str> {
    let status = config.status.as_ref()?;
    let image = status.current_image_pull_spec.as_deref()?;
    let is_of = |b: &&MachineOSBuild| {
        let image_of = b.status.as_ref().and_then(|s| s.digested_image_push_spec.as_deref());
        State::of(b) == State::Succeeded && image_of == Some(image)
    };
    let named = status.machine_os_build.as_ref().map(|r| r.name.as_str());
    let all = || inputs.builds.iter().copied().filter(is_of);
    let build = all().find(|b| b.metadata.name.as_deref() == named).or_else(|| all().next())?;
    let notes = build.metadata.annotations.as_ref();
    let same_spec = match notes.and_then(|a| a.get(names::BUILT_FROM)) {
        Some(hash) => *hash == os_config_hash(&config.spec),
        // Made by the reference: its status says of which spec the newest build is, not that it has ended.
        None => {
            config.metadata.generation == status.observed_generation
                && note(config, annotation::CURRENT_BUILD) == build.metadata.name.as_deref()
        }
    };
    let old = inputs.rendered.get(build.spec.machine_config.name.as_str())?;
    (same_spec && !old.needs_another_image(base)).then_some(image)
}

impl BuildPlan {
    /// The wanted build does not exist.
    fn create(&mut self, inputs: &Inputs<'_>, config: &MachineOSConfig, base: &Base, name: &str) {
        let of_pool = inputs.pool.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let conditions: Vec<Condition> = of_pool.cloned().collect();
        if conditions::is_true(&conditions, pool_condition::RENDER_DEGRADED) {
            self.wait = Some(Wait::RenderDegraded);
            return;
        }
        let mut build = new_build(inputs, config, name);
        let rebuild = note(config, names::REBUILD).is_some();
        let first = note(config, annotation::CURRENT_BUILD).is_none();
        let pre_built = note(config, names::PRE_BUILT).filter(|_| first && !rebuild);
        if let Some(value) = pre_built.filter(|v| !names::is_by_digest(v)) {
            self.wait = Some(Wait::NotPreBuilt(value.to_owned()));
            return;
        }
        if pre_built.is_some() {
            let labels = build.metadata.labels.get_or_insert_default();
            labels.insert(names::PRE_BUILT.to_owned(), "true".to_owned());
            build.spec.rendered_image_push_spec.clone_from(&config.spec.rendered_image_push_spec);
        }
        let image = pre_built.or_else(|| reusable(inputs, config, base).filter(|_| !rebuild));
        if let Some(image) = image {
            let notes = build.metadata.annotations.get_or_insert_default();
            notes.insert(names::REUSES.to_owned(), image.to_owned());
        }
        self.steps.push(Step::Create(Box::new(build)));
        if pre_built.is_none() {
            self.point(config, name, None, None);
        }
    }

    /// The wanted build exists.
    fn go_on(&mut self, inputs: &Inputs<'_>, config: &MachineOSConfig, build: &MachineOSBuild) {
        let name = name_of(build);
        let present = State::of(build);
        match present {
            State::Succeeded => {
                let image = build.status.as_ref().and_then(|s| s.digested_image_push_spec.as_deref());
                self.point(config, &name, image, is_pre_built(build).then_some(inputs.now));
                self.stop(inputs, build);
            }
            State::Failed => {
                self.point(config, &name, None, None);
                self.condition = Some(failed(inputs.pool, build));
                self.wait = Some(Wait::Failed(name));
            }
            State::Interrupted if state::present(build).is_some_and(|c| c.reason == state::SUPERSEDED) => {
                self.stop(inputs, build);
                self.steps.push(Step::Delete { build: name, why: "it is wanted again" });
            }
            State::Interrupted => self.wait = Some(Wait::Interrupted(name)),
            State::Initial if reuses(build).is_some() => {
                let image = reuses(build).unwrap_or_default();
                let other = note(config, names::PRE_BUILT).is_some_and(|v| v != image);
                if is_pre_built(build) && (other || !names::is_by_digest(image)) {
                    self.steps.push(Step::Delete { build: name, why: "its image was corrected" });
                    return;
                }
                let mut status = match is_pre_built(build) {
                    true => seeded(image, inputs.now),
                    false => {
                        let none = Cause::default();
                        state::status(build, State::Succeeded, &none, (None, None), inputs.now)
                    }
                };
                status.digested_image_push_spec = Some(image.to_owned());
                let status = Box::new(status);
                self.steps.push(Step::Status { build: name, state: State::Succeeded, status });
            }
            State::Initial | State::Prepared | State::Building => {
                self.point(config, &name, None, None);
                self.follow(inputs, build, &name, present);
            }
        }
    }

    /// Follows the Job of a build that has not ended.
    fn follow(&mut self, inputs: &Inputs<'_>, build: &MachineOSBuild, name: &str, present: State) {
        let uid = build.metadata.uid.as_deref().unwrap_or_default();
        let recorded = build.metadata.annotations.as_ref().and_then(|a| a.get(names::JOB_UID));
        let job_name = names::job(name);
        let mut next = |state, cause: &Cause, at: (Option<&Time>, Option<&Time>), image: Option<String>| {
            if !present.may_become(state) {
                return;
            }
            let mut status = state::status(build, state, cause, at, inputs.now);
            status.builder = Some(MachineOSBuilder {
                image_builder_type: "Job".to_owned(),
                job: Some(reference("batch", "jobs", &job_name)),
            });
            status.digested_image_push_spec = image.or(status.digested_image_push_spec);
            let status = Box::new(status);
            self.steps.push(Step::Status { build: name.to_owned(), state, status });
        };
        let Some(job) = inputs.jobs.iter().find(|j| j.name == job_name) else {
            if recorded.is_some() && !inputs.absent.contains(name) {
                self.wait = Some(Wait::Job(name.to_owned()));
            } else if recorded.is_some() {
                let why = Some("its Job was deleted".to_owned());
                next(State::Interrupted, &Cause { reason: None, why }, (None, None), None);
            } else {
                self.steps.push(Step::Start(name.to_owned()));
            }
            return;
        };
        if job.owner != uid {
            // Of an earlier build of this name: a new one starts when it is gone.
            self.steps.push(Step::Stop(name.to_owned()));
            return;
        }
        let at = (job.start.as_ref(), job.end.as_ref());
        match job.state() {
            State::Succeeded => match inputs.reports.get(name) {
                None => self.wait = Some(Wait::Report(name.to_owned())),
                Some(report) => match report.digest.as_deref() {
                    Some(digest) if names::is_digest(digest) => {
                        let image = names::by_digest(&build.spec.rendered_image_push_spec, digest);
                        next(State::Succeeded, &Cause::default(), at, Some(image));
                    }
                    Some(digest) => {
                        let why = format!(
                            "the Job reported {digest:?}, which is no digest; the registry or the builder is broken"
                        );
                        next(State::Failed, &Cause { reason: None, why: Some(why) }, at, None);
                    }
                    None => {
                        let why =
                            "the Job succeeded, but its pod is gone and left no digest; ask for a rebuild";
                        next(State::Failed, &Cause { reason: None, why: Some(why.to_owned()) }, at, None);
                    }
                },
            },
            State::Failed => match inputs.reports.get(name) {
                None => self.wait = Some(Wait::Report(name.to_owned())),
                Some(report) => {
                    let why = Some(cause(job, report));
                    next(State::Failed, &Cause { reason: None, why }, at, None);
                }
            },
            state => {
                next(state, &Cause::default(), at, None);
                self.wait = inputs
                    .held_up
                    .get(name)
                    .map(|why| Wait::HeldUp { build: name.to_owned(), why: why.clone() });
            }
        }
        if recorded != Some(&job.uid) {
            self.steps.push(Step::Adopt { build: name.to_owned(), uid: job.uid.clone() });
        }
    }

    /// Builds other than the wanted one: those that run are interrupted, those that failed go when the wanted one has ended,
    /// and of those that succeeded only some are kept.
    fn leave_others(
        &mut self,
        inputs: &Inputs<'_>,
        config: &MachineOSConfig,
        wanted: Option<&MachineOSBuild>,
        name: &str,
    ) {
        let ended = wanted.is_some_and(|w| State::of(w).is_terminal());
        for build in inputs.builds.iter().filter(|b| b.metadata.name.as_deref() != Some(name)) {
            match State::of(build) {
                State::Initial | State::Prepared | State::Building => {
                    let why = Some(format!("superseded by MachineOSBuild {name}"));
                    let cause = Cause { reason: Some(state::SUPERSEDED), why };
                    let status = state::status(build, State::Interrupted, &cause, (None, None), inputs.now);
                    self.steps.push(Step::Status {
                        build: name_of(build),
                        state: State::Interrupted,
                        status: Box::new(status),
                    });
                    self.steps.push(Step::Stop(name_of(build)));
                }
                State::Failed | State::Interrupted if ended => {
                    self.stop(inputs, build);
                    self.steps.push(Step::Delete { build: name_of(build), why: "a newer build has ended" });
                }
                // Its Job was to be stopped with it; that request may have failed.
                State::Interrupted => self.stop(inputs, build),
                State::Failed | State::Succeeded => {}
            }
        }
        for build in prune::choose(inputs, config, name) {
            self.stop(inputs, build);
            self.steps
                .push(Step::Delete { build: name_of(build), why: "it is old, and nothing uses its image" });
        }
    }

    /// Deletes what is left of a build's Job.
    fn stop(&mut self, inputs: &Inputs<'_>, build: &MachineOSBuild) {
        let name = name_of(build);
        let job = names::job(&name);
        if inputs.jobs.iter().any(|j| j.name == job && !j.deleting) {
            self.steps.push(Step::Stop(name));
        }
    }

    /// Has the MachineOSConfig name a build, and its image if there is one. `seeded`: when that image was taken over.
    fn point(&mut self, config: &MachineOSConfig, build: &str, image: Option<&str>, seeded: Option<&Time>) {
        let old = config.status.clone().unwrap_or_default();
        let mut new = old.clone();
        if let Some(image) = image {
            new.current_image_pull_spec = Some(image.to_owned());
            new.machine_os_build = Some(ResourceReference {
                namespace: None,
                ..reference(api::names::GROUP, "machineosbuilds", build)
            });
        }
        new.observed_generation = new.observed_generation.max(config.metadata.generation);
        let known = |c: &MetaCondition| c.type_ == "Seeded";
        if let Some(now) = seeded.filter(|_| !old.conditions.iter().flatten().any(known)) {
            let list = new.conditions.get_or_insert_default();
            list.push(MetaCondition {
                type_: "Seeded".to_owned(),
                status: "True".to_owned(),
                reason: state::SEEDED.to_owned(),
                message: "the pool runs an image that was not built here".to_owned(),
                last_transition_time: now.clone(),
                observed_generation: None,
            });
        }
        let mut clear = vec![];
        if note(config, names::REBUILD).is_some() {
            clear.push(names::REBUILD);
        }
        let current = note(config, annotation::CURRENT_BUILD);
        if note(config, names::PRE_BUILT).is_some()
            && current.is_some()
            && old.current_image_pull_spec.is_some()
        {
            clear.push(names::PRE_BUILT);
        }
        let status = (new != old).then_some(new);
        if current != Some(build) || !clear.is_empty() || status.is_some() {
            self.steps.push(Step::Point(Box::new(Point { build: build.to_owned(), clear, status })));
        }
    }
}

fn reference(group: &str, resource: &str, name: &str) -> ResourceReference {
    ResourceReference {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: Some(api::names::NAMESPACE.to_owned()),
        name: name.to_owned(),
    }
}

/// A build as it is created.
fn new_build(inputs: &Inputs<'_>, config: &MachineOSConfig, name: &str) -> MachineOSBuild {
    let pool = inputs.pool.metadata.name.as_deref().unwrap_or_default();
    let config_name = config.metadata.name.clone().unwrap_or_default();
    let rendered = inputs.pool.spec.configuration.name.clone();
    let spec = MachineOSBuildSpec {
        machine_config: NamedRef { name: rendered.clone() },
        machine_os_config: NamedRef { name: config_name.clone() },
        rendered_image_push_spec: names::push_spec(config, name),
    };
    let mut build = MachineOSBuild::new(name, spec);
    build.metadata.labels = Some(names::build_labels(pool, &config_name, &rendered));
    let notes = [
        (names::PUSH_SECRET, config.spec.rendered_image_push_secret.name.clone()),
        (names::BUILT_FROM, os_config_hash(&config.spec)),
    ];
    build.metadata.annotations = Some(notes.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
    build.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{}/v1", api::names::GROUP),
        kind: "MachineOSConfig".to_owned(),
        name: config_name,
        uid: config.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    build
}

/// The builds whose Job was started once and is not among these: the API server has to be asked for it before that counts.
pub fn unseen<'a>(
    builds: impl Iterator<Item = &'a MachineOSBuild>,
    jobs: impl Iterator<Item = &'a JobFacts>,
) -> Vec<String> {
    let seen: BTreeSet<&str> = jobs.map(|j| j.name.as_str()).collect();
    let started = builds.filter(|b| {
        let recorded = b.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(names::JOB_UID));
        recorded && !State::of(b).is_terminal()
    });
    started.map(name_of).filter(|name| !seen.contains(names::job(name).as_str())).collect()
}

/// Why a Job failed, and what to do.
fn cause(job: &JobFacts, report: &Report) -> String {
    let failure = job.failure.as_ref();
    let reason = failure.map(|f| f.reason.as_str()).unwrap_or_default();
    let mut text = match reason {
        "DeadlineExceeded" => format!(
            "it did not end within {} minutes; look for a registry or a command that hangs",
            crate::objects::DEADLINE_SECONDS / 60
        ),
        "PodFailurePolicy" => "its input is wrong, so it is not tried again".to_owned(),
        _ => format!("{} attempts failed", job.failed.max(1)),
    };
    match &report.words {
        Some(words) => text.push_str(&format!("; the Job's last lines: {words}")),
        None => match failure.map(|f| f.message.as_str()).filter(|m| !m.is_empty()) {
            Some(message) => text.push_str(&format!("; the Job says: {message}")),
            None => text.push_str("; its pods left no message"),
        },
    }
    text.push_str(&format!(
        ". Correct the MachineOSConfig, or set its annotation {} to build again",
        names::REBUILD
    ));
    text
}

/// The pool's condition of a build that failed.
fn failed(pool: &MachineConfigPool, build: &MachineOSBuild) -> Condition {
    let pool = pool.metadata.name.as_deref().unwrap_or_default();
    let (reason, message) =
        state::present(build).map_or(("Failed", "Build Failed"), |c| (&c.reason, &c.message));
    let name = name_of(build);
    Condition::new(
        pool_condition::IMAGE_BUILD_DEGRADED,
        true,
        "BuildFailed",
        format!("Failed to build OS image for pool {pool} (MachineOSBuild: {name}): {reason}: {message}"),
    )
}

/// The status of a build whose Job could not be made, because its input is wrong.
pub fn refused(build: &MachineOSBuild, why: &str, now: &Time) -> MachineOSBuildStatus {
    let cause = Cause { reason: None, why: Some(why.to_owned()) };
    state::status(build, State::Failed, &cause, (None, None), now)
}

//! What happens next to the image builds of one pool: from the objects as they are to a list of steps.
//!
//! One build is wanted: the one whose name is the hash of the pool's config, the MachineOSConfig and the base image. It is
//! created, or an image that fits already is given to it; its Job is started and followed; when it has succeeded, its image is
//! the one in force. Every other build that still runs is interrupted. Each step is small, and after each the plan can be made
//! again from what there is: a controller may end between any two.
//!
//! What it is not: the rollout of the image, or its retries. The Job tries a build again by itself.

mod config_status;
mod follow;
mod steps;

pub use steps::{BuildPlan, OsConfigUpdate, Step, Wait};

use crate::build_reason::BuildReason;
use crate::inputs::{Base, Inputs};
use crate::job::JobFacts;
use crate::names;
use crate::ownership::{BuildOwner, build_owner};
use crate::prune;
use crate::pushed::Pushed;
use crate::state::{self, Cause, State, seeded};
use api::conditions::{self, Condition};
use api::k8s::{OwnerReference, Time};
use api::names::{annotation, pool_condition};
use api::v1::{
    MachineConfigPool, MachineOSBuild, MachineOSBuildSpec, MachineOSBuildStatus, MachineOSConfig, NamedRef,
    ResourceReference,
};
use render::{BuildBase, build_name, os_config_hash};
use std::collections::BTreeSet;

/// What happens next to the builds of a pool.
pub fn plan(inputs: &Inputs<'_>) -> BuildPlan {
    let mut plan = BuildPlan::default();
    plan.mark_images_to_keep(inputs);
    let living = inputs.config.filter(|c| c.metadata.deletion_timestamp.is_none());
    if inputs.builder.is_none() {
        plan.wait = living.map(|_| Wait::NoBuilder);
        return plan;
    }
    let of = |who| {
        let all = inputs.builds.iter().copied();
        all.filter(|b| build_owner(b, inputs.config) == who).collect::<Vec<&MachineOSBuild>>()
    };
    let (ours, earlier) = (of(BuildOwner::Ours), of(BuildOwner::Earlier));
    let orphans = if living.is_none() { [&ours[..], &earlier[..]].concat() } else { earlier };
    for build in &orphans {
        plan.stop(inputs, build);
        plan.delete(build, "its MachineOSConfig is gone");
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
    if of(BuildOwner::Foreign).iter().any(of_name) {
        plan.wait = Some(Wait::Foreign(name));
        return plan;
    }
    let inputs = &Inputs { builds: ours, ..inputs.clone() };
    let wanted = inputs.builds.iter().copied().find(of_name);
    match wanted {
        None => plan.create(inputs, config, base, &name),
        Some(build) if note(config, names::REBUILD).is_some() => {
            plan.steps.push(Step::Stop(name.clone()));
            plan.delete(build, "a rebuild was asked for");
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

/// The image that a build has pushed.
fn image_of(build: &MachineOSBuild) -> Option<Pushed> {
    Pushed::image(build, build.status.as_ref()?.digested_image_push_spec.as_deref()?)
}

fn note<'a>(config: &'a MachineOSConfig, key: &str) -> Option<&'a str> {
    config.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The image that a build is to have without a Job.
fn reuses(build: &MachineOSBuild) -> Option<&str> {
    build.metadata.annotations.as_ref()?.get(names::REUSES).map(String::as_str)
}

/// The image from elsewhere that is to be the first one, as it was written: as long as there is none.
fn first_image(config: &MachineOSConfig) -> Option<&str> {
    let has_one = config.status.as_ref().is_some_and(|s| s.current_image_pull_spec.is_some());
    note(config, names::PRE_BUILT).filter(|_| !has_one)
}

/// What is told of it if it names no image by its digest.
fn mistyped(config: &MachineOSConfig) -> Option<Wait> {
    let image = first_image(config).filter(|image| !names::has_valid_digest(image))?;
    Some(Wait::NotPreBuilt(image.to_owned()))
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
        let pre_built = first_image(config).filter(|_| !rebuild);
        if let Some(wait) = mistyped(config).filter(|_| !rebuild) {
            self.wait = Some(wait);
            return;
        }
        if pre_built.is_some() {
            let labels = build.metadata.labels.get_or_insert_default();
            labels.insert(names::PRE_BUILT.to_owned(), "true".to_owned());
            build.spec.rendered_image_push_spec.clone_from(&config.spec.rendered_image_push_spec);
        }
        if rebuild {
            // People ask for one to get newer packages, too.
            let notes = build.metadata.annotations.get_or_insert_default();
            notes.insert(names::FRESH.to_owned(), "true".to_owned());
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
                self.point(config, &name, image, names::is_pre_built(build).then_some(inputs.now));
                self.stop(inputs, build);
            }
            // It was named after the first build had begun.
            State::Failed | State::Interrupted
                if !names::is_pre_built(build)
                    && first_image(config).is_some_and(names::has_valid_digest) =>
            {
                self.stop(inputs, build);
                self.delete(build, "an image from elsewhere takes its place");
            }
            State::Failed => {
                self.point(config, &name, None, None);
                self.condition = Some(failed(inputs.pool, build));
                self.wait = Some(mistyped(config).unwrap_or(Wait::Failed(name)));
            }
            State::Interrupted
                if state::current_condition(build).and_then(|c| BuildReason::parse(&c.reason))
                    == Some(BuildReason::Superseded) =>
            {
                self.stop(inputs, build);
                self.steps.push(Step::Delete { build: name, why: "it is wanted again" });
            }
            State::Interrupted => self.wait = Some(mistyped(config).unwrap_or(Wait::Interrupted(name))),
            State::Initial if reuses(build).is_some() => {
                let image = reuses(build).unwrap_or_default();
                let other = note(config, names::PRE_BUILT).is_some_and(|v| v != image);
                if names::is_pre_built(build) && (other || !names::has_valid_digest(image)) {
                    self.steps.push(Step::Delete { build: name, why: "its image was corrected" });
                    return;
                }
                let mut status = match names::is_pre_built(build) {
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
                self.follow(inputs, config, build, &name, present);
            }
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
                    let cause = Cause { reason: Some(BuildReason::Superseded), why };
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
        for build in prune::builds_to_prune(inputs, config, name) {
            self.stop(inputs, build);
            self.delete(build, "it is old, and nothing uses its image");
        }
    }

    /// Marks the builds of a MachineOSConfig that asks that images stay: it may be gone when they go.
    fn mark_images_to_keep(&mut self, inputs: &Inputs<'_>) {
        let Some(config) = inputs.config.filter(|c| names::keeps_old_images(c.metadata.annotations.as_ref()))
        else {
            return;
        };
        let is_new = |b: &&MachineOSBuild| {
            build_owner(b, Some(config)) == BuildOwner::Ours
                && !names::keeps_old_images(b.metadata.annotations.as_ref())
        };
        for build in inputs.builds.iter().copied().filter(is_new) {
            let key = image_of(build).map(|pushed| pushed.key());
            self.steps.push(Step::Keep { build: name_of(build), key });
        }
    }

    /// Deletes a build that may have pushed an image, which is on the list before that, unless it is to stay.
    fn delete(&mut self, build: &MachineOSBuild, why: &'static str) {
        let name = name_of(build);
        let kept = self.steps.iter().any(|s| matches!(s, Step::Keep { build, .. } if *build == name));
        self.remember(image_of(build).filter(|_| !kept));
        self.steps.push(Step::Delete { build: name_of(build), why });
    }

    /// Puts something on the list of what was pushed.
    fn remember(&mut self, pushed: Option<Pushed>) {
        self.steps.extend(pushed.map(|pushed| Step::Remember(Box::new(pushed))));
    }

    /// Deletes what is left of a build's Job.
    fn stop(&mut self, inputs: &Inputs<'_>, build: &MachineOSBuild) {
        let name = name_of(build);
        let job = names::job(&name);
        if inputs.jobs.iter().any(|j| j.name == job && !j.deleting) {
            self.steps.push(Step::Stop(name));
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
    let keep = (names::OLD_IMAGES, names::KEEP.to_owned());
    let keep = names::keeps_old_images(config.metadata.annotations.as_ref()).then_some(keep);
    let notes = notes.into_iter().chain(keep);
    build.metadata.annotations = Some(notes.map(|(k, v)| (k.to_owned(), v)).collect());
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
pub fn unseen_jobs<'a>(
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

/// The pool's condition of a build that failed.
fn failed(pool: &MachineConfigPool, build: &MachineOSBuild) -> Condition {
    let pool = pool.metadata.name.as_deref().unwrap_or_default();
    let (reason, message) =
        state::current_condition(build).map_or(("Failed", "Build Failed"), |c| (&c.reason, &c.message));
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

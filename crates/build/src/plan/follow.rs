//! From the Job of a build, and what its pods say, to the build's status.
//!
//! What it is not: the choice of the build that is wanted, or what goes on after it has ended (see the module above).

use super::{BuildPlan, Step, Wait, reference};
use crate::build_reason::BuildReason;
use crate::inputs::Inputs;
use crate::job::JobFacts;
use crate::names;
use crate::pushed::Pushed;
use crate::remedy;
use crate::report::Report;
use crate::state::{self, Cause, State};
use api::k8s::Time;
use api::v1::{MachineOSBuild, MachineOSBuilder, MachineOSConfig};

impl BuildPlan {
    /// Follows the Job of a build that has not ended.
    pub(super) fn follow(
        &mut self,
        inputs: &Inputs<'_>,
        config: &MachineOSConfig,
        build: &MachineOSBuild,
        name: &str,
        present: State,
    ) {
        let uid = build.metadata.uid.as_deref().unwrap_or_default();
        let recorded = build.metadata.annotations.as_ref().and_then(|a| a.get(names::JOB_UID));
        let job_name = names::job(name);
        let mut next = |state, cause: &Cause, at: (Option<&Time>, Option<&Time>), image: Option<String>| {
            let mut status = state::status(build, state, cause, at, inputs.now);
            // A build that stays where it is may say something else.
            let says_other = || state::message(Some(&status)) != state::message(build.status.as_ref());
            if !present.may_become(state) && (state != present || !says_other()) {
                return;
            }
            status.builder = Some(MachineOSBuilder {
                image_builder_type: "Job".to_owned(),
                job: Some(reference("batch", "jobs", &job_name)),
            });
            // Before the status says that there is one.
            let pushed = image.as_deref().and_then(|image| Pushed::image(build, image));
            let pushed = pushed.filter(|_| !names::keeps_old_images(config.metadata.annotations.as_ref()));
            self.steps.extend(pushed.map(|pushed| Step::Remember(Box::new(pushed))));
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
                // The pod pushes layers as it goes, and may push an image and fail after that.
                let tag = Pushed::tag(build)
                    .filter(|_| !names::keeps_old_images(config.metadata.annotations.as_ref()));
                let pushed = Pushed::layers(config).into_iter().chain(tag);
                self.steps.extend(pushed.map(|pushed| Step::Remember(Box::new(pushed))));
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
                            "the Job reported {digest:?}, which is not a digest; the registry or the builder is broken"
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
                    let why = Some(cause(job, report, state::held_up(build)));
                    let reason = report.not_pushed.then_some(BuildReason::NotPushed);
                    next(State::Failed, &Cause { reason, why }, at, None);
                }
            },
            state => {
                let state = if present.may_become(state) { state } else { present };
                let held_up = inputs.why_not_started.get(name).map(String::as_str);
                // When the time is over, the pods are gone before the Job has failed, and nobody says it any more. So it stays until
                // a pod runs.
                let kept = held_up.or_else(|| state::held_up(build).filter(|_| job.ready == 0));
                next(state, &Cause::held_up(kept.filter(|_| !state.is_terminal())), at, None);
                self.wait = held_up.map(|why| Wait::HeldUp { build: name.to_owned(), why: why.to_owned() });
            }
        }
        let known = build.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(names::BUILT_ON));
        if let Some(image) = inputs.bases.get(name).filter(|_| !known) {
            self.steps.push(Step::Base { build: name.to_owned(), image: image.clone() });
        }
        if recorded != Some(&job.uid) {
            self.steps.push(Step::Adopt { build: name.to_owned(), uid: job.uid.clone() });
        }
    }
}

/// Why a Job failed, and what to do. `held_up`: what kept its pods from starting.
fn cause(job: &JobFacts, report: &Report, held_up: Option<&str>) -> String {
    let failure = job.failure.as_ref();
    let reason = failure.map(|f| f.reason.as_str()).unwrap_or_default();
    // A pod that has left words has run.
    if let Some(why) = held_up.filter(|_| reason == "DeadlineExceeded" && report.words.is_none()) {
        return format!(
            "it did not end within {} minutes, because its pod did not start: {why}. Correct that, then set the annotation {} on \
             the MachineOSConfig to build again",
            crate::objects::DEADLINE_SECONDS / 60,
            names::REBUILD
        );
    }
    let mut text = match reason {
        "DeadlineExceeded" => format!(
            "it did not end within {} minutes; look for a registry or a command that hangs",
            crate::objects::DEADLINE_SECONDS / 60
        ),
        "PodFailurePolicy" => "another try would end the same way".to_owned(),
        _ => format!("{} attempts failed", job.failed.max(1)),
    };
    match &report.words {
        Some(words) => text.push_str(&format!("; the Job's last lines: {words}")),
        None => match failure.map(|f| f.message.as_str()).filter(|m| !m.is_empty()) {
            Some(message) => text.push_str(&format!("; the Job says: {message}")),
            None => text.push_str("; its pods left no message"),
        },
    }
    let words = report.words.as_deref().unwrap_or_default();
    match remedy::of(words, report.not_pushed) {
        Some(remedy) => text.push_str(&format!(
            ". Remedy: {remedy}; then set the annotation {} on the MachineOSConfig to build again",
            names::REBUILD
        )),
        // What the pod itself refused has its remedy in it.
        None if report.has_remedy => {}
        None => text.push_str(&format!(
            ". Correct the MachineOSConfig, or set its annotation {} to build again",
            names::REBUILD
        )),
    }
    text
}

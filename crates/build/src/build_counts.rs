//! What can be counted of the builds of one pool: how far they are, and what a new status of one adds. Pure.
//!
//! What it is not: metrics, or their names (see the controller).

use crate::build_reason::BuildReason;
use crate::job::JobFacts;
use crate::names;
use crate::state::{self, State};
use api::conditions::StatusCondition as _;
use api::k8s::Time;
use api::names::annotation;
use api::v1::{MachineOSBuild, MachineOSBuildStatus, MachineOSConfig};
use std::collections::BTreeMap;

/// How far the builds of a pool are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildCounts {
    /// The build in force: the one that the MachineOSConfig names.
    pub current: Option<CurrentBuild>,
    /// Builds that have begun and not ended.
    pub active: i64,
    /// How often each Job, by its uid, has tried again.
    pub retries: BTreeMap<String, u64>,
}

/// The build in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentBuild {
    /// How far it is.
    pub state: State,
    /// When it began.
    pub start: Option<Time>,
    /// When it ended.
    pub end: Option<Time>,
    /// How far its Job is, while there is one.
    pub job: Option<State>,
    /// What became of its image at the registry; `None`: not known yet, or not pushed here.
    pub push: Option<PushResult>,
}

/// What became of an image at the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushResult {
    /// It is there.
    Succeeded,
    /// The registry did not take it.
    Failed,
}

/// What a new status of a build adds to what is counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildObservation {
    /// The state that the build ended in.
    pub ended: Option<State>,
    /// From the creation of the build to the start of its Job, in seconds.
    pub queued: Option<f64>,
    /// From the start of its Job to its end, in seconds.
    pub lasted: Option<f64>,
    /// What became of its image.
    pub push: Option<PushResult>,
}

impl BuildCounts {
    /// From the objects of a pool.
    pub fn of<'a>(
        config: Option<&MachineOSConfig>,
        builds: impl Iterator<Item = &'a MachineOSBuild>,
        jobs: &[&JobFacts],
    ) -> Self {
        let named = config.and_then(|c| c.metadata.annotations.as_ref()?.get(annotation::CURRENT_BUILD));
        let mut counts = Self::default();
        for build in builds {
            let state = State::of(build);
            counts.active += i64::from(matches!(state, State::Prepared | State::Building));
            let name = build.metadata.name.as_deref().unwrap_or_default();
            if named.is_none_or(|n| n != name) {
                continue;
            }
            let uid = build.metadata.uid.as_deref().unwrap_or_default();
            let status = build.status.as_ref();
            counts.current = Some(CurrentBuild {
                state,
                start: status.and_then(|s| s.build_start.clone()),
                end: status.and_then(|s| s.build_end.clone()),
                job: jobs.iter().find(|j| j.build == name && j.owner == uid).map(|j| j.state()),
                push: status.and_then(|s| push(build, state, s)),
            });
        }
        counts.retries = jobs.iter().map(|j| (j.uid.clone(), retries(j))).filter(|(_, n)| *n > 0).collect();
        counts
    }
}

/// The pods that failed, without the one after which no other came.
fn retries(job: &JobFacts) -> u64 {
    let last = i32::from(job.state() == State::Failed);
    u64::try_from(job.failed.saturating_sub(last)).unwrap_or(0)
}

/// Whether a Job makes the image: not so if there was one that fits.
fn has_job(build: &MachineOSBuild) -> bool {
    build.metadata.annotations.as_ref().is_none_or(|a| !a.contains_key(names::REUSES))
}

fn push(build: &MachineOSBuild, state: State, status: &MachineOSBuildStatus) -> Option<PushResult> {
    let said = || status.conditions.iter().flatten().find(|c| c.is_true());
    let reason = || BuildReason::parse(&said()?.reason);
    match state {
        State::Succeeded if has_job(build) => Some(PushResult::Succeeded),
        State::Failed if reason() == Some(BuildReason::NotPushed) => Some(PushResult::Failed),
        _ => None,
    }
}

/// What a status adds that a build is given. `build`: as it was before.
pub fn observation(build: &MachineOSBuild, state: State, status: &MachineOSBuildStatus) -> BuildObservation {
    let before = build.status.clone().unwrap_or_default();
    if state::is_ended(build) || !has_job(build) {
        return BuildObservation::default();
    }
    let seconds = |from: &Time, to: &Time| {
        let seconds = to.0.duration_since(from.0).as_secs_f64();
        (seconds >= 0.0).then_some(seconds)
    };
    let start = status.build_start.as_ref().filter(|_| status.builder.is_some());
    let created = build.metadata.creation_timestamp.as_ref();
    let queued = created.zip(start).filter(|_| before.build_start.is_none());
    let ended = state.is_terminal().then_some(state);
    let lasted = start.zip(status.build_end.as_ref()).filter(|_| ended.is_some());
    BuildObservation {
        ended,
        queued: queued.and_then(|(from, to)| seconds(from, to)),
        lasted: lasted.and_then(|(from, to)| seconds(from, to)),
        push: push(build, state, status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn build(name: &str, state: &str, message: &str) -> MachineOSBuild {
        let conditions = json!([{
            "type": state, "status": "True", "reason": "R", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"machineConfig": {"name": "r"}, "machineOSConfig": {"name": "c"}, "renderedImagePushSpec": "r/x:1"},
            "status": {
                "conditions": if state.is_empty() { Value::Null } else { conditions },
                "builder": {"imageBuilderType": "Job"},
                "buildStart": "2026-01-01T00:00:20Z", "buildEnd": "2026-01-01T00:05:20Z",
            },
        }))
        .unwrap()
    }

    fn config(current: &str) -> MachineOSConfig {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "annotations": {annotation::CURRENT_BUILD: current}},
            "spec": {"machineConfigPool": {"name": "p"}, "renderedImagePushSecret": {"name": "push"}},
        }))
        .unwrap()
    }

    #[test]
    fn the_build_in_force_counts_and_others_only_while_they_run() {
        let builds = [build("a", "Failed", "x"), build("b", "Building", "x"), build("d", "Succeeded", "x")];
        let job = |uid: &str, build: &str, failed, failure: bool| JobFacts {
            uid: uid.to_owned(),
            build: build.to_owned(),
            owner: format!("uid-{build}"),
            active: 1,
            failed,
            failure: failure.then(Default::default),
            ..JobFacts::default()
        };
        // Another build of the name has left its Job.
        let old = JobFacts { owner: "other".to_owned(), ..job("j0", "b", 0, false) };
        let jobs = [old, job("j1", "b", 2, false), job("j2", "a", 1, true), job("j3", "a", 4, true)];
        let jobs: Vec<_> = jobs.iter().collect();
        let got = BuildCounts::of(Some(&config("b")), builds.iter(), &jobs);
        let current = got.current.unwrap();
        assert_eq!(
            (current.state, current.job, current.push),
            (State::Building, Some(State::Building), None)
        );
        assert_eq!(got.active, 1);
        let retries: Vec<_> = got.retries.iter().map(|(uid, n)| (uid.as_str(), *n)).collect();
        assert_eq!(retries, [("j1", 2), ("j3", 3)], "the one after which no other came is no retry");
        let got = BuildCounts::of(Some(&config("d")), builds.iter(), &[]);
        assert_eq!(got.current.unwrap().push, Some(PushResult::Succeeded));
        assert_eq!(BuildCounts::of(Some(&config("gone")), builds.iter(), &[]).current, None);
        assert_eq!(BuildCounts::of(None, builds.iter(), &[]).current, None);
    }

    #[test]
    fn a_build_is_counted_once_when_it_ends_and_not_when_it_only_stands_for_an_image() {
        let status = |b: MachineOSBuild| b.status.unwrap();
        let fresh = MachineOSBuild { status: None, ..build("a", "", "") };
        let mut failed = status(build("a", "Failed", "Build Failed: denied"));
        failed.conditions.iter_mut().flatten().for_each(|c| c.reason = "ImageNotPushed".to_owned());
        let got = observation(&fresh, State::Failed, &failed);
        let want = BuildObservation {
            ended: Some(State::Failed),
            queued: Some(20.0),
            lasted: Some(300.0),
            push: Some(PushResult::Failed),
        };
        assert_eq!(got, want);
        let running = build("a", "Building", "");
        let got = observation(&running, State::Succeeded, &status(build("a", "Succeeded", "Build Ready")));
        assert_eq!(
            (got.queued, got.push),
            (None, Some(PushResult::Succeeded)),
            "its start was counted before"
        );
        let got = observation(&running, State::Failed, &status(build("a", "Failed", "RUN false")));
        assert_eq!((got.ended, got.push), (Some(State::Failed), None), "it did not come to the push");
        assert_eq!(
            observation(&build("a", "Failed", ""), State::Failed, &failed),
            BuildObservation::default(),
            "again"
        );
        let mut reused = fresh.clone();
        reused.metadata.annotations = Some([(names::REUSES.to_owned(), "r/x@sha256:1".to_owned())].into());
        assert_eq!(
            observation(&reused, State::Succeeded, &status(build("a", "Succeeded", ""))),
            BuildObservation::default()
        );
        // The reason decides, whatever the message says.
        let denied = "Build Failed: denied | the image could not be pushed to r.example.com/os:t";
        for (reason, message, want) in
            [("ImageNotPushed", "RUN false", Some(PushResult::Failed)), ("Failed", denied, None)]
        {
            let mut failed = build("c", "Failed", message);
            let status = failed.status.as_mut().unwrap();
            status.conditions.iter_mut().flatten().for_each(|c| c.reason = reason.to_owned());
            let counts = BuildCounts::of(Some(&config("c")), [failed].iter(), &[]);
            assert_eq!(counts.current.unwrap().push, want, "{reason} {message}");
        }
        // Refused before there was a Job.
        let refused = crate::refused(&fresh, "x", &failed.build_end.unwrap());
        let got = observation(&fresh, State::Failed, &refused);
        assert_eq!((got.ended, got.queued, got.lasted), (Some(State::Failed), None, None));
    }
}

//! What a plan of image builds needs to know and no cache has: asked of the API server. Nothing is decided here.

use super::{Snapshot, job_item, jobs};
use crate::kind;
use crate::shared::Shared;
use api::k8s::{ConfigMap, Pod, Time};
use api::names::NAMESPACE;
use build::{ConfigMapDigest, JobFacts, Report, StartCheck, State, Warning, names};
use client::{CallError, call};
use kube::api::{Api, DynamicObject, ListParams};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often the pods of a Job are looked at that do not start, in seconds.
const RECHECK_INTERVAL: u64 = 30;
/// Events that are read about one object.
const EVENTS: u32 = 50;
/// The key of a digest in its ConfigMap.
const DIGEST: &str = "digest";

/// What was asked of the API server for a plan, because no cache has it.
#[derive(Debug, Default)]
pub(super) struct UncachedFacts {
    pub(super) reports: BTreeMap<String, Report>,
    pub(super) absent: BTreeSet<String>,
    pub(super) bases: BTreeMap<String, String>,
    pub(super) why_not_started: BTreeMap<String, String>,
    pub(super) again: Option<Duration>,
}

/// Asks what a plan needs to know of the Jobs of builds that have not ended.
pub(super) async fn read(
    shared: &Shared,
    snapshot: &mut Snapshot,
    now: &Time,
) -> Result<UncachedFacts, CallError> {
    let mut facts = UncachedFacts::default();
    if snapshot.builder.is_none() {
        return Ok(facts);
    }
    for build in build::unseen_jobs(snapshot.builds(), snapshot.jobs.iter().map(AsRef::as_ref)) {
        let job = names::job(&build);
        match call(|| format!("get job {job}"), jobs(shared).get_opt(&job)).await? {
            None => {
                facts.absent.insert(build);
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
            facts.reports.insert(job.build.clone(), report(shared, job).await?);
            continue;
        }
        if let Some(image) = base(shared, snapshot, job).await? {
            facts.bases.insert(job.build.clone(), image);
        }
        let seconds = match job.start_check(now) {
            StartCheck::Never => continue,
            StartCheck::In(seconds) => u64::try_from(seconds).unwrap_or(0),
            StartCheck::Now => {
                if let Some(why) = why_not_started(shared, job).await? {
                    facts.why_not_started.insert(job.build.clone(), why);
                }
                RECHECK_INTERVAL
            }
        };
        let wait = Duration::from_secs(seconds);
        facts.again = Some(facts.again.map_or(wait, |again| again.min(wait)));
    }
    Ok(facts)
}

/// The base image that a pod of a Job has found behind a tag, if one has failed and it is not recorded yet.
async fn base(shared: &Shared, snapshot: &Snapshot, job: &JobFacts) -> Result<Option<String>, CallError> {
    let Some(build) = snapshot.build(&job.build).filter(|_| job.failed > 0) else { return Ok(None) };
    let is_recorded = build.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(names::BUILT_ON));
    let config = snapshot.rendered.iter().find(|(name, _)| *name == build.spec.machine_config.name);
    let named = config.map(|(_, config)| config.os_image_url()).unwrap_or_default();
    if is_recorded || named.is_empty() || named.contains('@') {
        return Ok(None);
    }
    Ok(build::base_of(job, &pods(shared, &job.build).await?, named))
}

/// What keeps the pods of a Job from starting.
async fn why_not_started(shared: &Shared, job: &JobFacts) -> Result<Option<String>, CallError> {
    let pods = pods(shared, &job.build).await?;
    let events: Api<DynamicObject> =
        Api::namespaced_with(shared.client.clone(), NAMESPACE, &kind::EVENTS.resource());
    let uids = pods.iter().filter_map(|p| p.metadata.uid.clone()).chain([job.uid.clone()]);
    let mut warnings = vec![];
    for uid in uids {
        let about =
            ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning")).limit(EVENTS);
        let found = call(|| format!("list of events about {}", job.name), events.list(&about)).await?;
        warnings.extend(found.items.iter().map(|e| Warning::new(&uid, &e.data)));
    }
    Ok(build::why_not_started(job, &pods, &warnings))
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

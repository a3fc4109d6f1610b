//! What the pods of a build's Job say: the digest of the image that they pushed, or the last lines of their log.
//!
//! A pod of ours writes the digest into its termination message. A pod of the reference writes it into a ConfigMap, and
//! that counts too: a build that was under way when this controller took over is not lost. When a container fails, its
//! kubelet puts the end of its log into the same message, so no log has to be fetched.
//!
//! What it is not: a filter for whole logs. Only the last lines are kept, and those that look like a secret are hidden.
//!
//! Source: <https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/> (termination messages).

use crate::job::JobFacts;
use crate::names;
use api::k8s::{Pod, Time};
use api::pod_start::not_started;
use desired::mask::hidden_lines;
use serde::Deserialize as _;
use serde_json::Value;
use std::borrow::Cow;

/// The container that builds, in our pods and in those of the reference.
pub(crate) const CONTAINER: &str = "image-build";
/// Precedes the digest in a termination message.
pub(crate) const DIGEST: &str = "digest=";
/// Precedes the place of an image that the registry did not take, in the last line of a log.
pub(crate) const NOT_PUSHED: &str = "the image could not be pushed to";
/// Precedes the place of a key that did not sign an image, in the last line of a log. In lower case.
pub(crate) const NOT_SIGNED: &str = "the image was pushed, and could not be signed by";
/// Precedes the base image by its digest, in the last line of a log: its tag may name another one for the next pod.
pub(crate) const BUILT_FROM: &str = "built from";
/// How many lines of a log are kept.
const LINES: usize = 12;
/// Characters of one line.
const LINE: usize = 400;
/// Stands for a line.
const HIDDEN: &str = "<hidden: the line looks like a secret>";

/// What a Job's pods have left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The digest, as it was reported; it may be none.
    pub digest: Option<String>,
    /// The last lines of the pod that ended last, without secrets.
    pub words: Option<String>,
    /// That pod built the image, and could not push it.
    pub not_pushed: bool,
    /// Its lines say what to do.
    pub has_remedy: bool,
}

/// The ConfigMap in which a builder of the reference reports a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapDigest {
    /// What it says.
    pub digest: String,
    /// When it was made.
    pub created: Option<Time>,
}

/// Of a list of pods those that are of this Job: an earlier Job of the same name may have left some.
fn of_job<'a>(job: &JobFacts, pods: &'a [Pod]) -> Vec<&'a Pod> {
    let owner = |pod: &Pod| {
        let mut owners = pod.metadata.owner_references.iter().flatten();
        owners.find(|o| o.controller == Some(true)).map(|o| o.uid.clone())
    };
    pods.iter().filter(|pod| owner(pod).is_none_or(|uid| uid == job.uid)).collect()
}

impl Report {
    /// From the Job's pods, and the ConfigMap of the digest, if there is one that is not older than the Job: an earlier build of
    /// the same name may have left one. What a pod of this Job says counts first.
    pub fn read(job: &JobFacts, config_map: Option<&ConfigMapDigest>, pods: &[Pod]) -> Self {
        let older = |m: &&ConfigMapDigest| {
            let both = m.created.as_ref().zip(job.created.as_ref());
            both.is_some_and(|(map, job)| map.0 < job.0)
        };
        let config_map = config_map.filter(|m| !older(m)).map(|m| m.digest.as_str());
        let mut pods = of_job(job, pods);
        pods.sort_by_key(|p| p.metadata.creation_timestamp.as_ref().map(|t| t.0));
        let messages: Vec<String> = pods.iter().filter_map(|pod| message(pod)).collect();
        let by_pod = messages.iter().rev().find_map(|m| m.trim().strip_prefix(DIGEST));
        let digest = by_pod.or(config_map).map(|d| d.trim().to_owned());
        let words = messages.iter().rev().find(|m| !m.trim().starts_with(DIGEST));
        // A termination message is text: the lines that our own program writes into it are read here, and nowhere else.
        let has = |line: &str| words.is_some_and(|words| words.contains(line));
        Self {
            digest,
            words: words.map(|w| last_lines(w)).filter(|w| !w.is_empty()),
            not_pushed: has(NOT_PUSHED),
            has_remedy: has(names::REBUILD),
        }
    }
}

/// The base image by its digest, as the pods of a Job that have failed say it. `named`: as the config names it, by a tag.
pub fn base_of(job: &JobFacts, pods: &[Pod], named: &str) -> Option<String> {
    let mut pods = of_job(job, pods);
    pods.sort_by_key(|p| p.metadata.creation_timestamp.as_ref().map(|t| t.0));
    // The first one counts: all that came after it should have taken that one.
    pods.into_iter().filter_map(message).find_map(|text| {
        let said =
            text.lines().rev().find_map(|line| line.trim().strip_prefix(BUILT_FROM))?.trim().to_owned();
        // What a Containerfile runs may write such a line, too.
        let same = names::repository(&said) == names::repository(named);
        (same && names::has_valid_digest(&said)).then_some(said)
    })
}

/// The termination message of the container that builds, or of any that failed; after it, why it was ended by somebody else. A pod
/// that its node evicted has words of its own.
fn message(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let evicted = status.reason.as_ref().filter(|_| status.phase.as_deref() == Some("Failed"));
    let evicted =
        evicted.map(|reason| format!("{reason}: {}", status.message.as_deref().unwrap_or_default()));
    let all = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let ended = |c: &&api::pod::ContainerStatus| c.state.as_ref().is_some_and(|s| s.terminated.is_some());
    let failed = |c: &&api::pod::ContainerStatus| {
        c.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code != 0)
    };
    let one = all().find(failed).or_else(|| all().filter(ended).find(|c| c.name == CONTAINER));
    let state = one.and_then(|c| c.state.as_ref()?.terminated.as_ref());
    let killed = state.and_then(|s| s.reason.clone()).filter(|r| !ENDED.contains(&r.as_str()));
    let said = state.and_then(|s| s.message.clone());
    let parts: Vec<String> =
        [said, killed, evicted].into_iter().flatten().filter(|p| !p.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("\n"))
}

/// Reasons of a container that ended by itself.
const ENDED: [&str; 2] = ["Completed", "Error"];

/// A warning about an object, from its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The uid of the object.
    pub of: String,
    /// For example `FailedMount`.
    pub reason: String,
    /// The words.
    pub message: String,
    /// When it was last given.
    pub at: Option<Time>,
}

impl Warning {
    /// From an Event as JSON, about the object with this uid.
    pub fn new(of: &str, event: &Value) -> Self {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let time = |key: &str| event.get(key).and_then(|v| Time::deserialize(v).ok());
        let series = event.pointer("/series/lastObservedTime").and_then(|v| Time::deserialize(v).ok());
        let at = series.or_else(|| time("lastTimestamp")).or_else(|| time("eventTime"));
        Self { of: of.to_owned(), reason: text("reason"), message: text("message"), at }
    }
}

/// What keeps a Job's pods from starting: what the scheduler or the kubelet says, else the last warning about a pod, or about
/// the Job if it has no pod. `None`: one runs, or nobody says anything.
pub fn why_not_started(job: &JobFacts, pods: &[Pod], warnings: &[Warning]) -> Option<String> {
    let pods = of_job(job, pods);
    let warned = |uid: &str| {
        let of = warnings.iter().filter(|w| w.of == uid);
        let last = of.max_by_key(|w| w.at.as_ref().map(|t| t.0))?;
        Some(format!("{}: {}", last.reason, last.message))
    };
    let Some(pod) = pods.iter().rev().find(|p| {
        let phase = p.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
        phase == "Pending" && p.metadata.deletion_timestamp.is_none()
    }) else {
        return warned(&job.uid).filter(|_| pods.is_empty()).map(|w| last_lines(&w));
    };
    let why = not_started(pod).map(|why| why.to_string());
    let why = why.or_else(|| warned(pod.metadata.uid.as_deref().unwrap_or_default()))?;
    Some(last_lines(&why))
}

/// The last lines of a text, one after the other, each without secrets.
pub fn last_lines(text: &str) -> String {
    let said = |l: &&str| !l.trim().is_empty() && !l.trim().starts_with(BUILT_FROM);
    let lines: Vec<&str> = text.lines().filter(said).collect();
    let hidden = hidden_lines(&lines, |line| without_ids(line).into());
    let lines: Vec<(&str, bool)> = lines.into_iter().zip(hidden).collect();
    let kept = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    let shown: Vec<Cow<'_, str>> = kept
        .iter()
        .map(|(line, hidden)| match hidden {
            true => Cow::Borrowed(HIDDEN),
            false => api::formats::text::cut(line.trim(), LINE),
        })
        .collect();
    shown.join(" | ")
}

/// A line without digests of images and names of builds, which are public and look random.
fn without_ids(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let name = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let hash = |t: &str, length: usize| t.len() == length && t.bytes().all(|b| b.is_ascii_hexdigit());
        let digest = name.rsplit_once("sha256:").filter(|(_, hex)| hash(hex, 64));
        let build = name.rsplit_once('-').filter(|(_, hex)| hash(hex, 32));
        // buildah's tags of layers, which it says twice.
        let layer = name.split_once(':').filter(|(_, tags)| tags.split(':').any(|tag| hash(tag, 64)));
        match digest.or(build).or(layer) {
            Some((before, _)) => names::repository(before).to_owned(),
            None if hash(name, 64) => String::new(),
            None => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(created: &str, exit: i64, message: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "creationTimestamp": created},
            "status": {"containerStatuses": [
                {"name": CONTAINER, "state": {"terminated": {"exitCode": exit, "message": message}}},
            ]},
        }))
        .unwrap()
    }

    fn time(text: &str) -> Option<Time> {
        serde_json::from_value(json!(text)).unwrap()
    }

    fn job() -> JobFacts {
        JobFacts { uid: "job".to_owned(), created: time("2026-01-01T00:00:00Z"), ..JobFacts::default() }
    }

    #[test]
    fn the_digest_is_that_of_the_last_pod_or_of_the_config_map() {
        let pods = [
            pod("2026-01-01T00:00:02Z", 0, "digest=sha256:bb"),
            pod("2026-01-01T00:00:01Z", 1, "error: the registry refuses\n"),
        ];
        let map =
            |created: &str| ConfigMapDigest { digest: "sha256:cc\n".to_owned(), created: time(created) };
        let (new, old) = (map("2026-01-01T00:00:05Z"), map("2025-12-31T23:59:59Z"));
        let digest = |map: Option<&ConfigMapDigest>, pods: &[Pod]| Report::read(&job(), map, pods).digest;
        let report = Report::read(&job(), None, &pods);
        assert_eq!(report.digest.as_deref(), Some("sha256:bb"));
        assert_eq!(report.words.as_deref(), Some("error: the registry refuses"));
        assert_eq!(digest(Some(&new), &pods).as_deref(), Some("sha256:bb"));
        assert_eq!(digest(Some(&new), &pods[1..]).as_deref(), Some("sha256:cc"));
        assert_eq!(digest(Some(&old), &pods[1..]), None, "of an earlier build of this name");
        assert_eq!((report.not_pushed, report.has_remedy), (false, false));
        let of = |line: &str| {
            let report = Report::read(&job(), None, &[pod("2026-01-01T00:00:01Z", 1, line)]);
            (report.not_pushed, report.has_remedy)
        };
        assert_eq!(of(&format!("denied\n{NOT_PUSHED} r.example.com/os:t\n")), (true, false));
        assert_eq!(
            of(&format!("no such key; then set the annotation {} on it", names::REBUILD)),
            (false, true)
        );
        assert_eq!(Report::read(&job(), None, &[]), Report::default());
        let evicted: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:04Z"},
            "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
        }))
        .unwrap();
        let words = Report::read(&job(), None, &[evicted]).words;
        assert_eq!(words.as_deref(), Some("Evicted: The node was low on resource: ephemeral-storage."));
        let mut killed = pod("2026-01-01T00:00:04Z", 137, "STEP 2/9");
        let status = killed.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
        status[0].state.as_mut().unwrap().terminated.as_mut().unwrap().reason = Some("OOMKilled".to_owned());
        assert_eq!(Report::read(&job(), None, &[killed]).words.as_deref(), Some("STEP 2/9 | OOMKilled"));
        let owned = |uid: &str| {
            let mut pod = pod("2026-01-01T00:00:03Z", 0, "digest=sha256:dd");
            let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": uid, "controller": true}]);
            pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
            [pod]
        };
        assert_eq!(digest(None, &owned("job")).as_deref(), Some("sha256:dd"));
        assert_eq!(digest(None, &owned("earlier")), None);
    }

    #[test]
    fn the_base_of_a_build_is_what_its_first_pod_has_found_behind_the_tag() {
        let at = |digit: &str| format!("r.example.com/base@sha256:{}", digit.repeat(64));
        let failed = |time: &str, text: &str| pod(time, 1, text);
        let first = failed("2026-01-01T00:00:01Z", &format!("error: no space\nbuilt from {}\n", at("a")));
        let second = failed("2026-01-01T00:00:02Z", &format!("built from {}\n", at("b")));
        let early = failed("2026-01-01T00:00:00Z", "cannot pull");
        let base = |pods: &[Pod]| base_of(&job(), pods, "r.example.com/base:9");
        assert_eq!(base(&[second, first.clone(), early.clone()]), Some(at("a")));
        assert_eq!(base(&[early]), None);
        let forged = format!("built from evil.example.com/base@sha256:{}", "a".repeat(64));
        for text in [forged.as_str(), "built from r.example.com/base:8", "built from"] {
            assert_eq!(base(&[failed("2026-01-01T00:00:01Z", text)]), None, "{text}");
        }
        assert_eq!(Report::read(&job(), None, &[first]).words.as_deref(), Some("error: no space"));
    }

    #[test]
    fn a_pod_that_does_not_start_says_what_it_waits_for() {
        let pod = |status: serde_json::Value| -> Vec<Pod> {
            vec![
                serde_json::from_value(json!({"metadata": {"name": "p", "uid": "pod"}, "status": status}))
                    .unwrap(),
            ]
        };
        let waiting = |reason: &str, message: &str| {
            let state = json!({"waiting": {"reason": reason, "message": message}});
            pod(json!({"phase": "Pending", "containerStatuses": [{"name": CONTAINER, "state": state}]}))
        };
        let warn = |of: &str, at: &str, reason: &str, message: &str| Warning {
            of: of.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            at: time(at),
        };
        let mount = warn("pod", "2026-01-01T00:01:00Z", "FailedMount", "configmap \"mc-x\" not found");
        let early = warn("pod", "2026-01-01T00:00:30Z", "FailedScheduling", "earlier");
        let quota = warn("job", "2026-01-01T00:00:30Z", "FailedCreate", "serviceaccount \"x\" not found");
        let all = [mount, early, quota];
        let unscheduled = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"});
        for (pods, want) in [
            (
                pod(json!({"phase": "Pending", "conditions": [unscheduled]})),
                Some("Unschedulable: 0/3 nodes are available"),
            ),
            (waiting("ImagePullBackOff", "no such image"), Some("ImagePullBackOff: no such image")),
            (waiting("ContainerCreating", ""), Some("FailedMount: configmap \"mc-x\" not found")),
            (vec![], Some("FailedCreate: serviceaccount \"x\" not found")),
            (pod(json!({"phase": "Running"})), None),
            (pod(json!({"phase": "Failed"})), None),
        ] {
            assert_eq!(why_not_started(&job(), &pods, &all).as_deref(), want, "{pods:?}");
        }
        assert_eq!(why_not_started(&job(), &waiting("ContainerCreating", ""), &[]), None);
    }

    #[test]
    fn the_last_lines_are_kept_without_secrets_and_with_the_cause() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let log = format!(
            "STEP 1/9: FROM x\npassword=hunter2hunter2\nerror: reading manifest {digest} in r.example.com/os: unauthorized"
        );
        let words = last_lines(&log);
        assert!(words.ends_with("r.example.com/os: unauthorized"), "{words}");
        assert!(!words.contains("hunter2") && words.contains("<hidden"), "{words}");
        assert_eq!(last_lines("passwords:\n  - hunter2\nx"), format!("{HIDDEN} | {HIDDEN} | x"));
        assert_eq!(last_lines(&"x\n".repeat(50)).matches('x').count(), LINES);
        let hash = "2aae6e03055c22f6".repeat(4);
        for line in [
            format!("--> Cache pulled from remote r.example.com:5000/team/os:{hash}:{hash}"),
            format!("--> Pushing cache [r.example.com/team/os]:{hash}"),
            format!("--> Using cache {hash}"),
            format!("Error: failed pushing cache to {{{{\"r.example.com\" \"os\"}} \"{hash}\"}}: denied"),
            format!("{NOT_SIGNED} openshift-machine-config-operator/os-signing"),
            "cannot sign the image: ns/os-signing is not there, or has no cosign.key; create it, then set"
                .to_owned(),
        ] {
            assert_eq!(last_lines(&line), line, "it says nothing that is secret");
        }
        // By this line a push that failed is told from a build that failed.
        let tag = format!("{NOT_PUSHED} r.example.com:5000/team/os:infra-{}", "0123456789abcdef".repeat(2));
        assert_eq!(
            last_lines(&format!("denied: requested access\n{tag}\n")),
            format!("denied: requested access | {tag}")
        );
    }
}

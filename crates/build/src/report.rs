//! What the pods of a build's Job say: the digest of the image that they pushed, or the last lines of their log.
//!
//! A pod of ours writes the digest into its termination message. A pod of the reference writes it into a ConfigMap, and
//! that counts too: a build that was under way when this controller took over is not lost. When a container fails, its
//! kubelet puts the end of its log into the same message, so no log has to be fetched.
//!
//! What it is not: a filter for whole logs. Only the last lines are kept, and those that look like a secret are hidden.

use crate::names;
use api::k8s::Pod;
use desired::mask::looks_secret;
use std::borrow::Cow;

/// The container that builds, in our pods and in those of the reference.
pub(crate) const CONTAINER: &str = "image-build";
/// Precedes the digest in a termination message.
pub(crate) const DIGEST: &str = "digest=";
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
}

impl Report {
    /// From the Job's pods, and the ConfigMap of the digest, if there is one. What a pod of this Job says counts first: the
    /// ConfigMap may be of an earlier build of the same name.
    pub fn read(config_map: Option<&str>, pods: &[Pod]) -> Self {
        let mut pods: Vec<&Pod> = pods.iter().collect();
        pods.sort_by_key(|p| p.metadata.creation_timestamp.as_ref().map(|t| t.0));
        let messages: Vec<&str> = pods.iter().filter_map(|pod| message(pod)).collect();
        let by_pod = messages.iter().rev().find_map(|m| m.trim().strip_prefix(DIGEST));
        let digest = by_pod.or(config_map).map(|d| d.trim().to_owned());
        let words = messages.iter().rev().find(|m| !m.trim().starts_with(DIGEST));
        Self { digest, words: words.map(|w| last_words(w)).filter(|w| !w.is_empty()) }
    }
}

/// The termination message of the container that builds, or of any that failed.
fn message(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let all = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let ended = |c: &&api::pod::ContainerStatus| c.state.as_ref().is_some_and(|s| s.terminated.is_some());
    let failed = |c: &&api::pod::ContainerStatus| {
        c.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code != 0)
    };
    let one = all().find(failed).or_else(|| all().filter(ended).find(|c| c.name == CONTAINER))?;
    one.state.as_ref()?.terminated.as_ref()?.message.as_deref()
}

/// The last lines of a text, one after the other, each without secrets.
pub fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let kept = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    let shown: Vec<Cow<'_, str>> = kept
        .iter()
        .map(|line| match looks_secret(&without_ids(line)) {
            true => Cow::Borrowed(HIDDEN),
            false => api::text::cut(line, LINE),
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
        match digest.or(build) {
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

    #[test]
    fn the_digest_is_that_of_the_last_pod_or_of_the_config_map() {
        let pods = [
            pod("2026-01-01T00:00:02Z", 0, "digest=sha256:bb"),
            pod("2026-01-01T00:00:01Z", 1, "error: the registry refuses\n"),
        ];
        let report = Report::read(None, &pods);
        assert_eq!(report.digest.as_deref(), Some("sha256:bb"));
        assert_eq!(report.words.as_deref(), Some("error: the registry refuses"));
        assert_eq!(Report::read(Some("sha256:cc\n"), &pods).digest.as_deref(), Some("sha256:bb"));
        assert_eq!(Report::read(Some("sha256:cc\n"), &pods[1..]).digest.as_deref(), Some("sha256:cc"));
        assert_eq!(Report::read(None, &[]), Report::default());
    }

    #[test]
    fn the_last_lines_are_kept_without_secrets_and_with_the_cause() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let log = format!(
            "STEP 1/9: FROM x\npassword=hunter2hunter2\nerror: reading manifest {digest} in r.example.com/os: unauthorized"
        );
        let words = last_words(&log);
        assert!(words.ends_with("r.example.com/os: unauthorized"), "{words}");
        assert!(!words.contains("hunter2") && words.contains("<hidden"), "{words}");
        assert_eq!(last_words(&"x\n".repeat(50)).matches('x').count(), LINES);
    }
}

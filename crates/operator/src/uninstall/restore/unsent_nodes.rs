//! Nodes that the API server did not let be sent back: for how long, why, and when that is a failure. Pure; the time is an argument.
//!
//! What it is not: the requests (see `run`), or what follows for the other nodes (see `plan`).

use client::CallError;
use client::retry::STARTS;
use rollout::view::NodeView;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The nodes that were tried last and not sent.
#[derive(Debug, Default)]
pub(super) struct UnsentNodes(BTreeMap<Arc<str>, Since>);

/// Since when a node is tried in vain, and why.
#[derive(Debug)]
struct Since {
    first: Duration,
    /// The last answer.
    why: String,
    /// Since when each answer is one that an API server gives while it starts.
    starts: Option<Duration>,
}

impl UnsentNodes {
    /// Records that a node could not be sent. Returns the reason if that is a failure of the node: a refusal that is final, one that
    /// lasts longer than an API server needs to start, and anything else that lasts for `limit`.
    pub(super) fn record(
        &mut self,
        node: &Arc<str>,
        error: &CallError,
        now: Duration,
        limit: Duration,
    ) -> Option<String> {
        let since =
            self.0.entry(node.clone()).or_insert(Since { first: now, why: String::new(), starts: None });
        since.why = error.chain();
        since.starts = error.may_be_starting().then(|| since.starts.unwrap_or(now));
        let lasted = |since: Duration| now.saturating_sub(since);
        let is_final = match since.starts {
            Some(starts) => lasted(starts) >= STARTS.min(limit),
            None => error.is_refused(),
        };
        (is_final || lasted(since.first) > limit).then(|| since.why.clone())
    }

    /// Each of these nodes, for people: for how long it is tried, and the last answer.
    pub(super) fn words(&self, now: Duration) -> Vec<String> {
        let words = |(node, since): (&Arc<str>, &Since)| {
            let seconds = now.saturating_sub(since.first).as_secs();
            format!("{node} ({seconds} s: it cannot be sent back: {})", since.why)
        };
        self.0.iter().map(words).collect()
    }

    /// These nodes, those that could not be sent last: an outage that only they meet holds up no other one.
    pub(super) fn last<'n>(&self, nodes: impl Iterator<Item = &'n NodeView>) -> Vec<&'n NodeView> {
        let mut all: Vec<&NodeView> = nodes.collect();
        all.sort_by_key(|node| self.0.contains_key(&node.name));
        all
    }

    /// Forgets all others: they were sent, or nobody tries them any more.
    pub(super) fn retain(&mut self, is_unsent: impl Fn(&Arc<str>) -> bool) {
        self.0.retain(|node, _| is_unsent(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn a_node_is_given_up_when_its_refusal_is_final_or_lasts() {
        const HOOK: &str = "admission webhook \"w\" denied the request: not today";
        let limit = Duration::from_secs(600);
        // Columns: from which second on which code and message is the answer; the second from which on the node has failed.
        type Row = (&'static [(u64, u16, &'static str)], Option<u64>);
        let rows: [Row; 9] = [
            (&[(0, 403, "no")], Some(30)),
            (&[(0, 403, HOOK)], Some(0)),
            (&[(0, 409, HOOK)], Some(0)),
            (&[(0, 500, HOOK)], Some(0)),
            (&[(0, 422, "invalid")], Some(0)),
            (&[(0, 500, "failed calling webhook \"w\"")], Some(601)),
            (&[(0, 409, "changed")], Some(601)),
            // An API server that starts twice.
            (&[(0, 403, "no"), (20, 503, "starts"), (60, 403, "no"), (80, 409, "changed")], Some(601)),
            (&[(0, 503, "starts"), (60, 403, "no")], Some(90)),
        ];
        for (answers, want) in rows {
            let (mut unsent, node): (_, Arc<str>) = (UnsentNodes::default(), "n".into());
            let failed = (0..700).find(|second| {
                let (_, code, said) = answers.iter().rfind(|(from, ..)| from <= second).unwrap();
                let status = Box::new(Status::failure(said, "R").with_code(*code));
                let error = CallError::Api {
                    what: "patch Node n".to_owned(),
                    source: Box::new(kube::Error::Api(status)),
                };
                unsent.record(&node, &error, Duration::from_secs(*second), limit).is_some()
            });
            assert_eq!(failed, want, "{answers:?}");
            let (_, _, said) = answers.iter().rfind(|(from, ..)| Some(*from) <= want).unwrap();
            let words = unsent.words(Duration::from_secs(want.unwrap()));
            let begins = format!("n ({} s: it cannot be sent back: patch Node n: {said}", want.unwrap());
            assert!(words.len() == 1 && words[0].starts_with(&begins), "{words:?}");
            unsent.retain(|_| false);
            assert!(unsent.words(Duration::ZERO).is_empty());
        }
    }
}

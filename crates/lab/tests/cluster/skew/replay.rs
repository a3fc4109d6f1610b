//! Replays one side of a recording against the other side of this build: an agent of the previous version against this
//! controller, and a controller of the previous version against this agent.
//!
//! The replayed side makes its recorded writes in order, each as soon as the Node is in the state that preceded the write. So
//! the test times out if this build no longer makes one of the writes that the recording waits for, or makes it under another
//! name.
//!
//! Not here: the recording (`record`).

use crate::product::{MCO, objects, text};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long one side waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);
/// The annotations by which agents and controllers communicate on the Node. All others are for people.
const AGENTS: [&str; 3] = ["currentConfig", "state", "desiredDrain"];
const CONTROLLERS: [&str; 2] = ["desiredConfig", "lastAppliedDrain"];

/// The side that is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Agent,
    Controller,
}

impl Party {
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Controller => "controller",
        }
    }

    /// The annotations of the other side that this side reads.
    fn reads(self) -> &'static [&'static str] {
        match self {
            Self::Agent => &CONTROLLERS,
            Self::Controller => &AGENTS,
        }
    }
}

/// A recording that is replayed on one node.
pub(super) struct Play<'a> {
    pub(super) client: &'a Client,
    pub(super) party: Party,
    /// The node's name in this cluster.
    pub(super) node: &'a str,
    /// The placeholders, with the names of the configs in this cluster.
    pub(super) words: Vec<(&'a str, String)>,
    /// What the other side has written so far: annotations of the Node, without their prefix.
    pub(super) expected: Vec<(String, String)>,
    /// The number of writes made.
    pub(super) written: usize,
}

impl Play<'_> {
    /// Replays these lines.
    pub(super) async fn play(&mut self, lines: &[Value]) {
        for line in lines {
            let line = self.in_this_cluster(line);
            if line["by"] == self.party.name() {
                // Only writes to the Node are waited for: nothing depends on a MachineConfigNode before the next step.
                if line["to"] == "nodes" {
                    self.wait(&line).await;
                }
                self.write(&line).await;
                // Its own writes replace what the other side wrote there.
                let own = line["body"]["metadata"]["annotations"].clone();
                self.expected.retain(|(key, _)| own.get(format!("{MCO}{key}")).is_none());
            } else if line["to"] == "nodes" {
                self.note(&line["body"]);
            }
        }
    }

    /// Waits for the last write of the other side.
    pub(super) async fn end(&self) {
        self.wait(&Value::Null).await;
    }

    /// A line with the names of this cluster.
    fn in_this_cluster(&self, line: &Value) -> Value {
        let mut text = line.to_string().replace("NODE", self.node);
        for (word, name) in &self.words {
            text = text.replace(word, name);
        }
        serde_json::from_str(&text).unwrap()
    }

    fn note(&mut self, body: &Value) {
        let annotations = body["metadata"]["annotations"].as_object().into_iter().flatten();
        for (key, value) in annotations {
            let Some(key) = key.strip_prefix(MCO).filter(|k| self.party.reads().contains(k)) else {
                continue;
            };
            self.expected.retain(|(k, _)| k != key);
            self.expected.push((key.to_owned(), text(value)));
        }
    }

    async fn wait(&self, before: &Value) {
        let start = Instant::now();
        loop {
            let node = objects::get(self.client, "Node", self.node).await;
            let says = |key: &str| text(&node["metadata"]["annotations"][format!("{MCO}{key}")]);
            let missing: Vec<_> = self.expected.iter().filter(|(key, value)| says(key) != *value).collect();
            if missing.is_empty() {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the {} of the previous version waits in vain for {missing:?} before it writes {before}; the Node has {:#}",
                self.party.name(),
                node["metadata"]["annotations"]
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn write(&mut self, line: &Value) {
        let to = text(&line["to"]);
        let (kind, subresource) = match to.as_str() {
            "nodes" => ("Node", None),
            "nodes/status" => ("Node", Some("status")),
            "machineconfignodes" => ("MachineConfigNode", None),
            "machineconfignodes/status" => ("MachineConfigNode", Some("status")),
            other => panic!("a recording writes to {other}"),
        };
        let api = objects::api(self.client, kind);
        let body = line["body"].clone();
        let patch = match text(&line["how"]).as_str() {
            "merge patch" => Patch::Merge(body),
            "json patch" => Patch::Json(serde_json::from_value(body).unwrap()),
            "apply" => Patch::Apply(body),
            "create" => {
                let object = serde_json::from_value(body).unwrap();
                match api.create(&PostParams::default(), &object).await {
                    // The other side may create it too.
                    Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
                    made => drop(made.unwrap_or_else(|e| panic!("{e}: {line}"))),
                }
                self.written += 1;
                return;
            }
            other => panic!("a recording has the unknown verb {other}"),
        };
        let params = match &patch {
            Patch::Apply(_) => PatchParams::apply("of-the-version-before").force(),
            _ => PatchParams::default(),
        };
        let start = Instant::now();
        loop {
            let done = match subresource {
                Some(_) => api.patch_status(self.node, &params, &patch).await,
                None => api.patch(self.node, &params, &patch).await,
            };
            match done {
                Ok(_) => break self.written += 1,
                // The other side creates the object.
                Err(kube::Error::Api(status)) if status.code == 404 && start.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}: {line}"),
            }
        }
    }
}

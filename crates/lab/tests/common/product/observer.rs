//! An observer of `maxUnavailable`: it watches all Nodes without any proxy, sees each change of each node in the API
//! server's order, and fails a test as soon as one node too many is out of service.
//!
//! It does not rely on the product's own counts. A node is out of service as a user would see it: not Ready, cordoned,
//! or not in its desired config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt;
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Cluster, is_done, note, text};

/// A node whose update began.
#[derive(Debug, Clone)]
pub struct Start {
    pub node: String,
    pub config: String,
    pub at: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    max: usize,
    /// Nodes that the test itself breaks: they count, but do not cause a violation.
    by_hand: BTreeSet<String>,
    out: BTreeMap<String, bool>,
    desired: BTreeMap<String, String>,
    starts: Vec<Start>,
    peak: usize,
    listed: bool,
}

/// Watches one pool's nodes until it is dropped.
#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    violation: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// Watches the nodes of `pool`, of which `max` may be out of service. Returns when it has seen all of them.
    pub async fn start(cluster: &Cluster, pool: &str, max: usize) -> Self {
        let seen = Arc::new(Mutex::new(Seen { max, ..Seen::default() }));
        let (violated, violation) = watch::channel(None);
        let events = watcher(cluster.api("Node"), watcher::Config::default());
        let (label, into) = (format!("node-role.kubernetes.io/{pool}"), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            let mut list: Vec<Value> = vec![];
            while let Some(event) = events.next().await {
                let mut seen = into.lock().unwrap();
                match event {
                    Ok(watcher::Event::Init) => list.clear(),
                    Ok(watcher::Event::InitApply(node)) => list.push(json!(node)),
                    Ok(watcher::Event::InitDone) => {
                        let names: BTreeSet<String> =
                            list.iter().map(|n| text(&n["metadata"]["name"])).collect();
                        seen.out.retain(|name, _| names.contains(name));
                        let new = list.iter().flat_map(|node| seen.look(node, &label)).collect();
                        if seen.listed {
                            seen.judge(new, &violated);
                        }
                        seen.listed = true;
                    }
                    Ok(watcher::Event::Apply(node)) => {
                        let new = seen.look(&json!(node), &label).into_iter().collect();
                        seen.judge(new, &violated);
                    }
                    Ok(watcher::Event::Delete(node)) => {
                        seen.forget(&text(&json!(node)["metadata"]["name"]));
                    }
                    // An outage; the watch recovers by itself.
                    Err(_) => {
                        drop(seen);
                        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                    }
                }
            }
        });
        let observer = Self { seen, violation, task };
        cluster.wait("the observer to see the nodes", async || observer.lock().listed.then_some(())).await;
        observer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Runs this, and fails as soon as the limit is exceeded.
    pub async fn guard<T>(&self, what: impl Future<Output = T>) -> T {
        let mut violation = self.violation.clone();
        tokio::select! {
            broken = violation.wait_for(Option::is_some) => {
                panic!("{}", broken.map(|b| b.clone().unwrap_or_default()).unwrap_or_else(|_| "the observer ended".to_owned()))
            }
            out = what => {
                assert_eq!(*self.violation.borrow(), None);
                out
            }
        }
    }

    /// The node that was one too many, if there was one.
    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// Changes the limit. Nodes that are already out of service do not cause a violation.
    pub fn set_max(&self, max: usize) {
        self.lock().max = max;
    }

    /// Call before the test itself takes this node out of service.
    pub fn by_hand(&self, node: &str) {
        self.lock().by_hand.insert(node.to_owned());
    }

    /// Every node whose update began, in order.
    pub fn starts(&self) -> Vec<Start> {
        self.lock().starts.clone()
    }

    /// The nodes that are out of service now.
    pub fn out(&self) -> BTreeSet<String> {
        self.lock().now()
    }

    /// The largest number of nodes that were out of service at the same time since the last call.
    pub fn peak(&self) -> usize {
        std::mem::take(&mut self.lock().peak)
    }
}

impl Seen {
    fn now(&self) -> BTreeSet<String> {
        self.out.iter().filter(|(_, out)| **out).map(|(name, _)| name.clone()).collect()
    }

    fn forget(&mut self, name: &str) {
        self.out.remove(name);
        self.desired.remove(name);
    }

    /// Records one state of one node; returns its name if it has just gone out of service.
    fn look(&mut self, node: &Value, label: &str) -> Option<String> {
        let name = text(&node["metadata"]["name"]);
        let labels = node["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        // A node of a custom pool also has worker's label; labs give their nodes at most one more.
        let custom = labels.keys().any(|l| l.starts_with("node-role.kubernetes.io/") && l != label);
        let inside = labels.contains_key(label) && (!label.ends_with("/worker") || !custom);
        if !inside {
            self.forget(&name);
            return None;
        }
        let ready = node["status"]["conditions"].as_array().into_iter().flatten();
        let ready = ready.filter(|c| c["type"] == "Ready").all(|c| c["status"] == "True");
        let out = !is_done(node) || !ready || node["spec"]["unschedulable"] == true;
        let desired = note(node, "desiredConfig");
        let known = self.desired.insert(name.clone(), desired.clone());
        if known.is_some_and(|before| before != desired) && note(node, "currentConfig") != desired {
            self.starts.push(Start { node: name.clone(), config: desired, at: Instant::now() });
        }
        let before = self.out.insert(name.clone(), out);
        (out && before != Some(true)).then_some(name)
    }

    /// Records a violation if the node that has just gone out of service was one too many.
    fn judge(&mut self, new: Vec<String>, violated: &watch::Sender<Option<String>>) {
        let out = self.now();
        self.peak = self.peak.max(out.len());
        let blamed: Vec<_> = new.into_iter().filter(|n| !self.by_hand.contains(n)).collect();
        if !blamed.is_empty() && out.len() > self.max {
            violated.send_replace(Some(format!(
                "{blamed:?} went out of service, and now {out:?} are: only {} may be",
                self.max
            )));
        }
    }
}

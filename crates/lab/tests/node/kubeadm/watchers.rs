//! Observers that run during a rollout: a client that writes all the time, health checks of etcd's members, and a watch
//! of a workload with a PodDisruptionBudget.
//!
//! They judge by what they observe themselves, not by what the product reports.

use crate::product::pods;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A task that is aborted when its owner is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === a client that writes ===

/// The time limit for a write; after it, the outcome is unknown.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two writes: a rollout sees a thousand of them.
const WRITE_PAUSE: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
struct Written {
    acknowledged: BTreeSet<String>,
    failed: usize,
    /// Acknowledged writes that an immediate read did not find.
    missed: Vec<String>,
    longest_gap: Duration,
}

/// Creates objects one after another, and reads back each one whose write was acknowledged.
pub(super) struct Writer {
    client: Client,
    namespace: String,
    written: Arc<Mutex<Written>>,
    task: Task,
}

impl Writer {
    pub(super) async fn start(client: Client) -> Self {
        let namespace = "writes".to_owned();
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        let written = Arc::new(Mutex::new(Written::default()));
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        let into = Arc::clone(&written);
        let task = tokio::spawn(async move {
            let mut last = Instant::now();
            for number in 0_u64.. {
                let name = format!("w-{number}");
                let object = json!({"metadata": {"name": name}, "data": {"number": number.to_string()}});
                let object: ConfigMap = serde_json::from_value(object).unwrap();
                let params = PostParams::default();
                let write = maps.create(&params, &object);
                match tokio::time::timeout(WRITE_LIMIT, write).await {
                    Ok(Ok(_)) => {
                        let read = tokio::time::timeout(WRITE_LIMIT, maps.get_opt(&name)).await;
                        let mut written = into.lock().unwrap();
                        written.longest_gap = written.longest_gap.max(last.elapsed());
                        last = Instant::now();
                        if matches!(read, Ok(Ok(None))) {
                            written.missed.push(name.clone());
                        }
                        written.acknowledged.insert(name);
                    }
                    Ok(Err(_)) | Err(_) => into.lock().unwrap().failed += 1,
                }
                tokio::time::sleep(WRITE_PAUSE).await;
            }
        });
        Self { client, namespace, written, task: Task(task) }
    }

    /// Stops the writes. Checks that every acknowledged object exists with its content. Returns the longest time
    /// without an acknowledged write.
    pub(super) async fn finish(self) -> Duration {
        drop(self.task);
        let maps: Api<ConfigMap> = Api::namespaced(self.client, &self.namespace);
        let list = maps.list(&ListParams::default()).await.unwrap();
        let there: BTreeMap<String, String> = list
            .items
            .into_iter()
            .filter_map(|map| Some((map.name_any(), map.data?.remove("number")?)))
            .collect();
        let written = std::mem::take(&mut *self.written.lock().unwrap());
        eprintln!(
            "{} writes acknowledged, {} failed, longest time without one {:.1} s",
            written.acknowledged.len(),
            written.failed,
            written.longest_gap.as_secs_f64()
        );
        assert_eq!(written.missed, Vec::<String>::new(), "acknowledged, but missing a moment later");
        let lost: Vec<&String> = written
            .acknowledged
            .iter()
            .filter(|name| there.get(*name).map(String::as_str) != name.strip_prefix("w-"))
            .collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        assert!(written.acknowledged.len() > 100, "it has written too little: {written:?}");
        written.longest_gap
    }
}

// === etcd's members ===

/// The pause between two checks of the members.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// A member that does not answer within this time counts as down.
const LOOK_LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct Members {
    looks: usize,
    /// How many checks in a row found too few members.
    few: usize,
    lost: Option<String>,
    /// The time since which no member could answer a read that needs a quorum.
    without_leader: Option<Instant>,
    longest_without_leader: Duration,
    /// How often each member was down.
    away: Vec<usize>,
}

/// Asks each member for its health.
pub(super) struct Quorum {
    seen: Arc<Mutex<Members>>,
    task: Task,
}

impl Quorum {
    pub(super) fn start(members: Vec<SocketAddr>) -> Self {
        let seen = Arc::new(Mutex::new(Members { away: vec![0; members.len()], ..Members::default() }));
        let into = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let answers = futures::future::join_all(members.iter().map(|member| health(*member))).await;
                into.lock().unwrap().judge(&answers);
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        });
        Self { seen, task: Task(task) }
    }

    /// Stops the checks. Returns when the quorum was lost, for tests that take it away on purpose.
    pub(super) fn lost(self) -> Option<String> {
        drop(self.task);
        self.seen.lock().unwrap().lost.take()
    }

    /// Stops the checks. Checks that more than half of the members were up all the time, and that each was down once.
    /// Returns the longest time without a member that could answer a read that needs a quorum: the time of elections.
    pub(super) fn finish(self) -> Duration {
        drop(self.task);
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        eprintln!(
            "etcd: {} looks, members away in {:?} of them, longest time without a leader {:.1} s",
            seen.looks,
            seen.away,
            seen.longest_without_leader.as_secs_f64()
        );
        assert_eq!(seen.lost, None, "etcd lost its quorum");
        assert!(
            seen.away.iter().all(|&times| times > 0),
            "not every member was away once: nothing was proved"
        );
        seen.longest_without_leader
    }
}

impl Members {
    /// `None` is no answer. A member without a leader answers that it is not healthy.
    fn judge(&mut self, answers: &[Option<bool>]) {
        self.looks += 1;
        let there = answers.iter().filter(|answer| answer.is_some()).count();
        for (away, answer) in self.away.iter_mut().zip(answers) {
            *away += usize::from(answer.is_none());
        }
        self.few = if 2 * there > answers.len() { 0 } else { self.few + 1 };
        // On a busy computer one answer can be late, so a single failure does not count. A member that restarts needs
        // seconds.
        if self.few > 1 && self.lost.is_none() {
            self.lost = Some(format!("look {}: {there} of {} members answer", self.looks, answers.len()));
        }
        if answers.contains(&Some(true)) {
            self.without_leader = None;
        } else {
            let since = *self.without_leader.get_or_insert_with(Instant::now);
            self.longest_without_leader = self.longest_without_leader.max(since.elapsed());
        }
    }
}

/// Asks etcd's `/health`: whether the member could read with a quorum.
async fn health(member: SocketAddr) -> Option<bool> {
    let ask = async {
        let mut stream = TcpStream::connect(member).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    let text = tokio::time::timeout(LOOK_LIMIT, ask).await.ok()?.ok()?;
    text.starts_with("HTTP/").then(|| text.contains(r#""health":"true""#))
}

#[test]
fn a_quorum_is_lost_when_two_of_three_are_away_twice_in_a_row() {
    let (yes, no, away) = (Some(true), Some(false), None);
    let judge = |rows: &[[Option<bool>; 3]]| {
        let mut members = Members { away: vec![0; 3], ..Members::default() };
        rows.iter().for_each(|row| members.judge(row));
        members
    };
    assert_eq!(judge(&[[yes, yes, away], [no, no, away], [away, away, yes], [yes, away, yes]]).lost, None);
    let members = judge(&[[yes, yes, away], [yes, away, away], [yes, away, away]]);
    assert!(members.lost.unwrap().contains("1 of 3"));
    assert_eq!(members.away, [0, 2, 3]);
    assert!(judge(&[[no, no, no]]).without_leader.is_some());
}

// === a workload with a budget ===

/// The pods by name, with whether they are ready and not being deleted; and the smallest number of ready ones ever
/// seen.
#[derive(Debug, Default)]
struct Ready {
    pods: BTreeMap<String, bool>,
    fewest: Option<usize>,
    evicted: usize,
}

impl Ready {
    fn count(&mut self) {
        let now = self.pods.values().filter(|ready| **ready).count();
        // Counting begins when all pods are ready for the first time.
        if self.fewest.is_some() || now == REPLICAS {
            self.fewest = Some(self.fewest.map_or(now, |fewest| fewest.min(now)));
        }
    }
}

/// The number of pods, and how many of them the PodDisruptionBudget keeps.
const REPLICAS: usize = 3;
const KEPT: usize = 2;
const APP: &str = "kept";

/// A Deployment with a PodDisruptionBudget, and a watch of its pods.
pub(super) struct Workload {
    seen: Arc<Mutex<Ready>>,
    task: Task,
}

impl Workload {
    /// Creates them and returns when all pods are ready.
    pub(super) async fn start(client: Client) -> Self {
        let labels = json!({"app": APP});
        let pods_api: Api<Pod> = Api::namespaced(client.clone(), "default");
        pods::create(
            &Api::<Deployment>::namespaced(client.clone(), "default"),
            json!({
                "metadata": {"name": APP},
                "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "automountServiceAccountToken": false,
                        "terminationGracePeriodSeconds": 5,
                        "containers": [{"name": "c", "image": lab::PAUSE_IMAGE, "imagePullPolicy": "Never"}],
                        "topologySpreadConstraints": [{
                            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": labels},
                        }],
                    },
                }},
            }),
        )
        .await;
        pods::create(
            &Api::<PodDisruptionBudget>::namespaced(client.clone(), "default"),
            json!({
                "metadata": {"name": APP},
                "spec": {"minAvailable": KEPT, "selector": {"matchLabels": labels}},
            }),
        )
        .await;
        let seen = Arc::new(Mutex::new(Ready::default()));
        let into = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let events = watcher(pods_api, watcher::Config::default().labels(&format!("app={APP}")));
            let mut events = std::pin::pin!(events);
            let mut listed = BTreeMap::new();
            while let Some(event) = events.next().await {
                let mut seen = into.lock().unwrap();
                match event {
                    Ok(watcher::Event::Init) => listed = BTreeMap::new(),
                    Ok(watcher::Event::InitApply(pod)) => {
                        listed.insert(pod.name_any(), is_kept(&pod));
                    }
                    Ok(watcher::Event::InitDone) => {
                        seen.pods = std::mem::take(&mut listed);
                        seen.count();
                    }
                    Ok(watcher::Event::Apply(pod)) => {
                        seen.pods.insert(pod.name_any(), is_kept(&pod));
                        seen.count();
                    }
                    Ok(watcher::Event::Delete(pod)) => {
                        seen.pods.remove(&pod.name_any());
                        seen.evicted += 1;
                        seen.count();
                    }
                    // The watcher starts again with a list.
                    Err(_) => {}
                }
            }
        });
        let workload = Self { seen, task: Task(task) };
        let start = Instant::now();
        while workload.seen.lock().unwrap().fewest.is_none() {
            assert!(start.elapsed() < Duration::from_secs(120), "{:?}", workload.seen.lock().unwrap());
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        workload
    }

    /// Stops the watch. Checks that there were never fewer ready pods than the PodDisruptionBudget keeps.
    pub(super) fn finish(self) {
        drop(self.task);
        let seen = self.seen.lock().unwrap();
        eprintln!("workload: {} pods went, never fewer than {:?} ready", seen.evicted, seen.fewest);
        assert!(seen.evicted >= REPLICAS, "nothing was evicted: nothing was proved");
        assert!(seen.fewest >= Some(KEPT), "{seen:?}");
    }
}

/// Counts pods as the disruption controller does: ready, and not being deleted.
fn is_kept(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready =
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    ready && pod.metadata.deletion_timestamp.is_none()
}

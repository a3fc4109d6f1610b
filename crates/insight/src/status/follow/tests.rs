//! Tests of `follow`: new lists, watches that fail, and failures that pass.

use super::*;
use crate::status::served::Presence;
use api::k8s::Time;
use api::v1::MachineConfigNode;
use http::{Request, Response};
use kube::client::Body;
use kube::runtime::watcher::Event;
use rollout::{Situation, Step, Wait};
use serde::de::DeserializeOwned;
use std::sync::atomic::Ordering::Relaxed;

mod agreement;
mod lookups;

#[test]
fn objects_missing_from_a_complete_new_list_are_dropped() {
    let pool = |name: &str| MachineConfigPool::new(name, Default::default());
    let mut kind = Kind::new();
    let mut steps: Vec<(Event<MachineConfigPool>, &[&str])> = vec![
        (Event::Init, &[]),
        (Event::InitApply(pool("a")), &[]),
        (Event::InitApply(pool("b")), &[]),
        (Event::InitDone, &["a", "b"]),
        (Event::Apply(pool("c")), &["a", "b", "c"]),
        (Event::Delete(pool("a")), &["b", "c"]),
        (Event::Init, &["b", "c"]),
        (Event::InitApply(pool("c")), &["b", "c"]),
        (Event::InitDone, &["c"]),
    ];
    for (n, (event, want)) in steps.drain(..).enumerate() {
        kind.take(event, |_| ());
        assert_eq!(kind.known.keys().collect::<Vec<_>>(), want, "step {n}");
    }
}

#[test]
fn the_trouble_of_one_watch_lasts_until_that_watch_is_answered() {
    let mut troubles = WatchErrors::default();
    assert_eq!(troubles.text(), None);
    troubles.note(1, "Nodes", "403 Forbidden".to_owned());
    assert!(!troubles.clear(2));
    assert_eq!(troubles.text().as_deref(), Some("Nodes: 403 Forbidden"), "another one is answered");
    troubles.note(2, "MachineConfigPools", "refused".to_owned());
    troubles.note(1, "Nodes", "refused".to_owned());
    assert_eq!(troubles.text().as_deref(), Some("MachineConfigPools, Nodes: refused"));
    assert!(troubles.clear(2));
    assert_eq!(troubles.text().as_deref(), Some("Nodes: refused"));
    assert!(troubles.clear(1));
    assert_eq!(troubles.text(), None);
}

#[test]
fn an_api_server_that_is_away_or_busy_is_asked_again_and_one_that_refuses_is_not() {
    let answer =
        |code| kube::Error::Api(Box::new(kube::core::Status::failure("no", "Reason").with_code(code)));
    let list = |error| refused(kube::runtime::watcher::Error::InitialListFailed(error));
    let broken = || kube::Error::Service("connection refused".into());
    let json = serde_json::from_str::<bool>("x").unwrap_err();
    let rows = [
        (FollowError::Late, true),
        (FollowError::Slow { missing: vec!["Nodes"] }, true),
        (list(broken()), true),
        (refused(kube::runtime::watcher::Error::WatchStartFailed(broken())), true),
        (list(answer(503)), true),
        (list(answer(429)), true),
        (list(answer(410)), true),
        (list(answer(401)), false),
        (list(answer(403)), false),
        // The kinds are not installed.
        (list(answer(404)), false),
        (list(kube::Error::SerdeError(json)), false),
        (FollowError::Ended, false),
    ];
    for (error, transient) in rows {
        assert_eq!(error.is_transient(), transient, "{error:?}");
    }
}

const POOLS: &str = "machineconfiguration.openshift.io/v1";

/// A worker pool that goes from one config to the next, and two nodes of it; on node `a` runs a pod that its budget keeps there.
fn cluster(drain: bool) -> Vec<Value> {
    let config = |name: &str| json!({"apiVersion": POOLS, "kind": "MachineConfig", "metadata": {"name": name}, "spec": {}});
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
            "labels": {"node-role.kubernetes.io/worker": ""},
            "annotations": {"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
                "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1",
                "machineconfiguration.openshift.io/state": "Done"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let mut policy = json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "p"},
        "spec": {"pools": {"names": ["worker"]}}});
    if drain {
        policy["spec"]["drain"] = json!({"after": "1h"});
    }
    vec![
        json!({"apiVersion": POOLS, "kind": "MachineConfigPool", "metadata": {"name": "worker"}, "spec": {
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "configuration": {"name": "rendered-worker-2"}}}),
        config("rendered-worker-1"),
        config("rendered-worker-2"),
        node("a"),
        node("b"),
        policy,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "front", "labels": {"app": "shop"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]},
            "spec": {"nodeName": "a", "containers": []}, "status": {"phase": "Running"}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "shop"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}),
    ]
}

/// A client of a fake API server that lists these pods and budgets, or refuses to.
fn client(objects: &[Value], allowed: bool) -> Client {
    client_refused(objects, if allowed { 0 } else { usize::MAX })
}

/// The same, where the first requests are refused, as many as these.
fn client_refused(objects: &[Value], refusals: usize) -> Client {
    client_with(objects, refusals, Duration::ZERO)
}

/// The same, where each object or list of pods takes this long.
fn client_with(objects: &[Value], refusals: usize, takes: Duration) -> Client {
    let objects = objects.to_vec();
    let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(refusals));
    let serve = tower::service_fn(move |request: Request<Body>| {
        let (path, query) =
            (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let kind = match path.rsplit('/').next() {
            Some("pods") => "Pod",
            Some("poddisruptionbudgets") => "PodDisruptionBudget",
            Some("machineconfigurations") => "MachineConfiguration",
            _ => "MachineConfig",
        };
        let named = objects.iter().find(|o| {
            o["kind"] == kind
                && path.ends_with(&format!("/{}", o["metadata"]["name"].as_str().unwrap_or("?")))
        });
        let on_node =
            |o: &Value| kind != "Pod" || query.ends_with(o["spec"]["nodeName"].as_str().unwrap_or("?"));
        let items: Vec<&Value> = objects.iter().filter(|o| o["kind"] == kind && on_node(o)).collect();
        let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        let (code, body) = match taken.is_err() {
            true if kind == "MachineConfig" => (200, named.cloned().unwrap_or_default()),
            true => (
                200,
                json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {}, "items": items}),
            ),
            false => (403, json!({"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden"})),
        };
        let body = Body::from(body.to_string().into_bytes());
        let takes = if kind == "MachineConfig" || kind == "Pod" { takes } else { Duration::ZERO };
        async move {
            tokio::time::sleep(takes).await;
            Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(serve, "default")
}

fn followed(client: &Client, objects: &[Value]) -> ClusterWatch {
    let served = ServedKinds {
        progress: Presence::Absent,
        os_configs: Presence::Absent,
        os_builds: Presence::Absent,
        scheduler: Presence::Absent,
        streams: Presence::Absent,
        feature_gates: Presence::Absent,
        policies: Presence::There,
        pinned_sets: Presence::There,
        operators: Presence::Absent,
        etcd: [Presence::Absent; EtcdMember::PLACES.len()],
        images: false,
    };
    fn read<T: DeserializeOwned>(object: &Value) -> Event<T> {
        Event::Apply(serde_json::from_value(object.clone()).unwrap())
    }
    let mut cluster = ClusterWatch::new(client, served);
    for object in objects {
        match object["kind"].as_str().unwrap() {
            "MachineConfigPool" => cluster.take(WatchEvent::Pool(read(object))),
            "MachineConfig" => cluster.take(WatchEvent::Config(read(object))),
            "Node" => cluster.take(WatchEvent::Node(read(object))),
            "RolloutPolicy" => cluster.take(WatchEvent::Policy(read(object))),
            "MachineConfigNode" => cluster.take(WatchEvent::Progress(read(object))),
            "PinnedImageSet" => cluster.take(WatchEvent::PinnedImageSet(read(object))),
            _ => {}
        }
    }
    cluster
}

fn from_files(objects: &[Value]) -> Situation {
    let named: Vec<(String, Value)> = objects.iter().map(|o| ("f".to_owned(), o.clone())).collect();
    crate::situation(&named).unwrap()
}

/// The controller's own filler is compared with the same reader of objects, beside its node pass.
#[tokio::test]
async fn a_followed_cluster_and_its_objects_in_files_lead_to_the_same_plan() {
    for (drain, goes) in [(false, "a"), (true, "b")] {
        let objects = cluster(drain);
        let mut cluster = followed(&client(&objects, true), &objects);
        cluster.fetch_lookups(Timestamp::UNIX_EPOCH).await;
        let plan = cluster.plan(Timestamp::UNIX_EPOCH).plan;
        let want = from_files(&objects).plan(&Time(Timestamp::UNIX_EPOCH));
        assert_eq!(plan.pools[0].nodes, want.pools[0].nodes, "drain: {drain}");
        let going: Vec<&str> =
            plan.pools[0].nodes.iter().filter(|n| n.step == Step::Goes).map(|n| &*n.node).collect();
        assert_eq!(going, [goes], "drain: {drain}");
        assert!(cluster.unread().is_empty());
    }
}

#[tokio::test]
async fn a_set_that_was_changed_just_now_is_on_no_node() {
    let object: MachineConfigNode = serde_json::from_value(json!({"metadata": {"name": "a"},
        "spec": {"node": {"name": "a"}, "pool": {"name": "worker"}, "configVersion": {"desired": "rendered-worker-1"}},
        "status": {"configVersion": {"current": "rendered-worker-1", "desired": "rendered-worker-1"},
            "pinnedImageSets": [{"name": "s", "desiredGeneration": 1, "currentGeneration": 1}]}}))
    .unwrap();
    let mut objects = cluster(false);
    objects[0]["spec"]["pinnedImageSets"] = json!([{"name": "s"}]);
    let mut cluster = followed(&client(&objects, true), &objects);
    cluster.take(WatchEvent::Progress(Event::Apply(object)));
    for (generation, has) in [(None, 1), (Some(1), 1), (Some(2), 0)] {
        if let Some(generation) = generation {
            let set = json!({"apiVersion": POOLS, "kind": "PinnedImageSet", "metadata": {"name": "s", "generation": generation}});
            cluster.take(WatchEvent::PinnedImageSet(Event::Apply(serde_json::from_value(set).unwrap())));
        }
        let shown = cluster.snapshot(&[]).pools[0].images.clone().unwrap();
        assert!(shown.starts_with(&format!("{has} of 2 nodes have")), "{generation:?}: {shown}");
        let status = cluster.plan(Timestamp::UNIX_EPOCH).plan.pools[0].status.clone().unwrap();
        let counted = status.pool_synchronizers_status.unwrap()[0].updated_machine_count;
        assert_eq!(counted, has, "{generation:?}");
    }
}

/// A fake API server whose lists take this many seconds, and which has no other kinds. A watch of pools reports a change each second.
/// `None`: it answers nothing at all, except for its version if `versions`.
fn slow_client(lists: Option<&'static [(&'static str, u64)]>, versions: bool) -> Client {
    let serve = tower::service_fn(move |request: Request<Body>| async move {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let hangs = std::future::pending::<()>;
        let (code, body) = if path == "/version" && versions {
            (
                200,
                json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            )
        } else if let Some(lists) = lists {
            let list = lists.iter().find(|(kind, _)| path.rsplit('/').next() == Some(kind));
            match (list, query.contains("watch=")) {
                (Some((kind, _)), true) => {
                    if *kind != "machineconfigpools" {
                        hangs().await;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let pool = json!({"metadata": {"name": "worker", "resourceVersion": "6"}, "spec": {}});
                    (200, json!({"type": "MODIFIED", "object": pool}))
                }
                (Some((_, seconds)), false) => {
                    tokio::time::sleep(Duration::from_secs(*seconds)).await;
                    (
                        200,
                        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "5"}, "items": []}),
                    )
                }
                (None, _) => {
                    (404, json!({"kind": "Status", "code": 404, "message": "no", "reason": "NotFound"}))
                }
            }
        } else {
            hangs().await;
            (500, json!(null))
        };
        let body = Body::from(format!("{body}\n").into_bytes());
        Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
    });
    Client::new(serve, "default")
}

#[tokio::test(start_paused = true)]
async fn an_api_server_whose_lists_take_a_minute_is_waited_for_and_one_that_is_silent_is_not() {
    const SLOW: [(&str, u64); 4] =
        [("controllerconfigs", 5), ("machineconfigpools", 20), ("machineconfigs", 45), ("nodes", 70)];
    const STUCK: [(&str, u64); 4] =
        [("controllerconfigs", 1), ("machineconfigpools", 1), ("machineconfigs", 1), ("nodes", 3600)];
    ClusterWatch::start(&slow_client(Some(&SLOW), true)).await.map(drop).expect("each of them goes on");
    let client = slow_client(Some(&STUCK), true);
    let starts = ClusterWatch::start(&client);
    let ended = tokio::time::timeout(Duration::from_mins(2), starts)
        .await
        .expect("changes of pools are no list of nodes");
    let error = ended.map(drop).unwrap_err();
    assert!(matches!(&error, FollowError::Slow { missing } if *missing == ["Nodes"]), "{error:?}");
    assert!(
        error.to_string().contains("lists of Nodes") && !error.to_string().contains("kubeconfig"),
        "{error}"
    );
    for (versions, blames) in [(true, false), (false, true)] {
        let error = ClusterWatch::start(&slow_client(None, versions)).await.map(drop).unwrap_err();
        assert_eq!(error.to_string().contains("kubeconfig"), blames, "{error}");
        assert_eq!(matches!(error, FollowError::Late), blames, "{error:?}");
    }
}

//! Tests of the lookups with a fake API server: what is requested, how often, and what a refusal leads to.

use super::*;
use api::names::GROUP;
use desired::PoolDisruption;
use futures::StreamExt as _;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use rollout::drain::Outlook;
use rollout::policy::ChangeAsked;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The requests that were made: paths, with what a list is restricted to.
type Requests = Arc<Mutex<Vec<String>>>;

/// A client of a fake API server that answers from these objects, and refuses every path with `refused` in it.
fn fake(objects: Vec<Value>, refused: &'static str) -> (Client, Requests) {
    let requests = Requests::default();
    let seen = requests.clone();
    let serve = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri();
        let place = format!("{}?{}", uri.path(), uri.query().unwrap_or_default());
        seen.lock().unwrap().push(place.clone());
        let named = objects
            .iter()
            .find(|o| uri.path().ends_with(&format!("/{}", o["metadata"]["name"].as_str().unwrap())));
        let kind = match uri.path().rsplit('/').next() {
            Some("pods") => "Pod",
            Some("poddisruptionbudgets") => "PodDisruptionBudget",
            Some("machineconfigurations") => "MachineConfiguration",
            _ => "",
        };
        let on_node = |o: &Value| kind != "Pod" || place.contains(o["spec"]["nodeName"].as_str().unwrap());
        let items: Vec<&Value> = objects.iter().filter(|o| o["kind"] == kind && on_node(o)).collect();
        let (code, body) = match named {
            _ if !refused.is_empty() && place.contains(refused) => {
                (403, json!({"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden"}))
            }
            Some(object) => (200, object.clone()),
            None if kind.is_empty() => {
                (404, json!({"kind": "Status", "code": 404, "message": "no", "reason": "NotFound"}))
            }
            None => (
                200,
                json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {}, "items": items}),
            ),
        };
        let body = Body::from(body.to_string().into_bytes());
        async move { Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap()) }
    });
    (Client::new(serve, "default"), requests)
}

fn shop() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "front", "labels": {"app": "shop"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]},
            "spec": {"nodeName": "node-a", "containers": []}, "status": {"phase": "Running"}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "shop"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}),
    ]
}

#[tokio::test]
async fn budgets_are_listed_once_and_pods_once_for_each_node_and_a_refusal_is_told_from_other_errors() {
    let nodes: Vec<Arc<str>> = vec!["node-a".into(), "node-b".into()];
    for (refused, want, count) in [
        ("", ["waits", "ends"], 3),
        ("poddisruptionbudgets", ["forbidden", "forbidden"], 1),
        ("node-b", ["waits", "forbidden"], 3),
    ] {
        let (client, requests) = fake(shop(), refused);
        let inspected = inspect_drains(&client, &nodes).await;
        assert!(inspected.iter().map(|(node, _)| node).eq(&nodes));
        let said = inspected.iter().map(|(_, seen)| match seen {
            Ok(Outlook::Ends) => "ends",
            Ok(Outlook::Waits(_)) => "waits",
            Ok(Outlook::Loses(_)) => "loses",
            Err(error) if error.is_forbidden() => "forbidden",
            Err(_) => "failed",
        });
        assert!(said.eq(want), "{refused:?}: {inspected:?}");
        assert_eq!(requests.lock().unwrap().len(), count, "{refused:?}: {requests:?}");
    }
}

fn config(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfig", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn each_config_is_read_once_and_one_that_cannot_be_read_spoils_no_other_change() {
    let file = |text: &str| {
        json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/motd", "mode": 420, "contents": {"source": format!("data:,{text}")}}]}}})
    };
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": [{"path": "/etc/motd", "actions": [{"type": "None"}]}]}}});
    let objects = vec![
        config("one", &file("1")),
        config("two", &file("2")),
        config("three", &json!({"kernelArguments": ["a"]})),
        config("broken", &json!({"config": {"ignition": {"version": "9.0.0"}}})),
        policy,
    ];
    let change = |from: &str, to: &str| {
        let change = ChangeAsked { from: from.into(), to: to.into() };
        CostKey { change, pool: PoolDisruption::default() }
    };
    let asked =
        vec![change("one", "two"), change("one", "three"), change("one", "gone"), change("broken", "two")];
    let (client, requests) = fake(objects.clone(), "");
    let read: BTreeMap<_, _> = read_costs(&client, &ConfigSlots::default(), asked.clone()).collect().await;
    let costs: Vec<_> =
        asked.iter().map(|key| read[key].as_ref().ok().map(|cost| cost.least.is_some())).collect();
    assert_eq!(costs, [Some(true), Some(false), None, None], "{read:?}");
    let why: Vec<String> = asked.iter().filter_map(|key| Some(read[key].as_ref().err()?.chain())).collect();
    assert!(why[0].contains("machineconfig gone") && why[1].contains("machineconfig broken"), "{why:?}");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    requests.lock().unwrap().iter().for_each(|request| *counts.entry(request.clone()).or_default() += 1);
    assert!(counts.len() == 6 && counts.values().all(|count| *count == 1), "{counts:?}");
    for refused in ["machineconfigurations", "machineconfigs/one"] {
        let (client, _) = fake(objects.clone(), refused);
        let read: Vec<_> =
            read_costs(&client, &ConfigSlots::default(), vec![change("one", "two")]).collect().await;
        assert!(matches!(&read[0].1, Err(error) if error.is_forbidden()), "{refused}: {read:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn configs_are_read_several_at_a_time_and_one_without_an_answer_delays_no_other_change() {
    // Each config takes a second, and the one that hangs has no answer.
    let at_once = Arc::new(Mutex::new((0_usize, 0_usize)));
    let counts = at_once.clone();
    let serve = tower::service_fn(move |request: Request<Body>| {
        let (path, counts) = (request.uri().path().to_owned(), counts.clone());
        async move {
            let name = path.rsplit('/').next().unwrap_or_default();
            let body = if name == "machineconfigurations" {
                json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []})
            } else {
                let busy = |add: bool| {
                    let mut counts = counts.lock().unwrap();
                    counts.0 = if add { counts.0 + 1 } else { counts.0 - 1 };
                    counts.1 = counts.1.max(counts.0);
                };
                busy(true);
                let takes = if name == "hangs" { 3600 } else { 1 };
                tokio::time::sleep(std::time::Duration::from_secs(takes)).await;
                busy(false);
                config(name, &json!({}))
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, std::io::Error>(Response::builder().status(200).body(body).unwrap())
        }
    });
    let client = Client::new(serve, "default");
    let key = |from: String| CostKey {
        change: ChangeAsked { from: from.into(), to: "new".into() },
        pool: PoolDisruption::default(),
    };
    let froms = (0..20).map(|n| format!("c{n}"));
    let begin = tokio::time::Instant::now();
    let mut costs = read_costs(&client, &ConfigSlots::default(), froms.chain(["hangs".to_owned()]).map(key));
    let mut known = 0;
    while let Some((key, cost)) = costs.next().await {
        if &*key.change.from == "hangs" {
            assert!(cost.is_err(), "{cost:?}");
            assert_eq!(known, 20, "it is the last one");
        } else {
            cost.unwrap();
            known += 1;
            assert!(begin.elapsed().as_secs() <= 4, "{key:?}: {:?}", begin.elapsed());
        }
    }
    assert_eq!(known, 20);
    let most = at_once.lock().unwrap().1;
    assert!((2..=8).contains(&most), "{most} at once");
}

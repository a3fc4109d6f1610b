//! Tests of `run`: pools that are paused, and nodes that cannot be sent.

use super::*;
use std::sync::Mutex;
use tokio::time::Instant;

fn refusal(code: u16, message: &str) -> (u16, serde_json::Value) {
    let status =
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Invalid", "message": message});
    (code, status)
}

/// An API server with two pools that answers the first patches with these refusals. Also returns what was asked.
fn server(mut refusals: Vec<(u16, serde_json::Value)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(vec![]));
    let seen = asked.clone();
    let pool = |name: &str, paused: bool| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"paused": paused}})
    };
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path = format!("{} {}", request.method(), request.uri().path());
        let is_patch = request.method() == http::Method::PATCH;
        let master = seen.lock().unwrap().iter().any(|path: &String| path.ends_with("done"));
        let (code, answer) = match is_patch {
            false => (200, json!({"metadata": {}, "items": [pool("master", master), pool("worker", false)]})),
            true if !refusals.is_empty() => refusals.remove(0),
            true => (200, pool("any", true)),
        };
        let done = if is_patch && code == 200 { " done" } else { "" };
        seen.lock().unwrap().push(format!("{path}{done}"));
        let body = kube::client::Body::from(answer.to_string().into_bytes());
        async move { Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap()) }
    });
    (Client::new(serve, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn pools_are_paused_once_the_api_server_has_started() {
    let starts = "pools \"master\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: \
                  failed to find resource referenced by paramKind";
    let (client, asked) = server(vec![refusal(422, starts), refusal(503, "starts")]);
    let mut told = vec![];
    let pools =
        pause(&client, &Patience::new(Duration::from_secs(60)), &mut |why| told.push(why)).await.unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("pause MachineConfigPool master: "), "{told:?}");
    assert_eq!(pools.paused, ["master", "worker"]);
    assert!(pools.refused.is_empty(), "{pools:?}");
    let patches = asked.lock().unwrap().iter().filter(|path| path.starts_with("PATCH")).count();
    assert_eq!(patches, 4, "no pool is paused twice: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_may_not_be_paused_ends_a_restore_and_keeps_no_other_pool_from_being_paused() {
    let policy = "is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
    for (code, said, seconds) in
        [(422, policy, 0..=1), (422, "is not valid", 0..=1), (403, "no right", 30..=36)]
    {
        let all = || vec![refusal(code, said); 200];
        let begin = Instant::now();
        let error = restore_hosts(&server(all()).0, Duration::from_secs(60), false, drop).await.unwrap_err();
        assert!(client::chain(&error).contains(said), "{error:?}");
        assert!(seconds.contains(&begin.elapsed().as_secs()), "{said}: {:?}", begin.elapsed());
        let pools =
            pause(&server(all()).0, &Patience::new(Duration::from_secs(60)), &mut drop).await.unwrap();
        let refused: Vec<&str> = pools.refused.iter().map(|(pool, _)| pool.as_str()).collect();
        assert_eq!((pools.paused.len(), refused), (0, vec!["master", "worker"]));
    }
    let (client, _) = server(vec![refusal(422, policy)]);
    let pools = pause(&client, &Patience::new(Duration::from_secs(60)), &mut drop).await.unwrap();
    assert_eq!((pools.paused, pools.refused.len()), (vec!["worker".to_owned()], 1));
    // An API server that never has time is waited for as long as a node may take.
    let (client, _) = server(vec![refusal(503, "starts"); 200]);
    let begin = Instant::now();
    let pools = pause(&client, &Patience::new(Duration::from_secs(60)), &mut drop).await.unwrap();
    assert!(
        pools.refused.len() == 2 && pools.refused.iter().all(|(_, error)| error.is_outage()),
        "{pools:?}"
    );
    assert!(begin.elapsed().as_secs() < 70, "not for each pool: {:?}", begin.elapsed());
    let (client, _) = server(vec![refusal(503, "starts"); 200]);
    let error = restore_hosts(&client, Duration::from_secs(60), true, drop).await.unwrap_err();
    assert!(client::chain(&error).contains("starts"), "{error:?}");
}

/// A node as an API server keeps it, in a config of its pool.
fn node(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "labels": {"pool": "worker"}, "annotations": {
        annotation::CURRENT_CONFIG: "rendered-1", annotation::DESIRED_CONFIG: "rendered-1", annotation::STATE: "Done"}}})
}

/// Their pool, in which many go at once.
fn worker() -> serde_json::Value {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {"paused": true, "maxUnavailable": 8,
        "nodeSelector": {"matchLabels": {"pool": "worker"}}}})
}

/// An API server with these Nodes and their pool. Each patch is answered as `patch` says, by the Node's name and the number of patches before; one
/// that is accepted has its node back in its own files at once. Each list of Nodes is answered with `list`, by the number of lists
/// before.
fn with_nodes(
    names: &[&str],
    patch: impl Fn(&str, usize) -> Option<(u16, &'static str)> + Send + Sync + 'static,
    list: impl Fn(usize) -> Option<(u16, &'static str)> + Send + Sync + 'static,
) -> Client {
    slow_with_nodes(names, Duration::ZERO, patch, list)
}

/// The same; a patch that is refused takes so long.
fn slow_with_nodes(
    names: &[&str],
    refusal_takes: Duration,
    patch: impl Fn(&str, usize) -> Option<(u16, &'static str)> + Send + Sync + 'static,
    list: impl Fn(usize) -> Option<(u16, &'static str)> + Send + Sync + 'static,
) -> Client {
    struct State {
        nodes: Vec<serde_json::Value>,
        patches: usize,
        lists: usize,
    }
    let state = State { nodes: names.iter().map(|name| node(name)).collect(), patches: 0, lists: 0 };
    let shared = Arc::new((Mutex::new(state), patch, list));
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let mut state = shared.0.lock().unwrap();
        let last = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let is_patch = request.method() == http::Method::PATCH;
        let (code, answer) = if is_patch {
            state.patches += 1;
            match (shared.1)(&last, state.patches - 1) {
                Some((code, said)) => refusal(code, said),
                None => {
                    let node = state.nodes.iter_mut().find(|node| node["metadata"]["name"] == *last).unwrap();
                    for note in [annotation::CURRENT_CONFIG, annotation::DESIRED_CONFIG] {
                        node["metadata"]["annotations"][note] = json!(EMPTY_CONFIG);
                    }
                    (200, node.clone())
                }
            }
        } else if last == "nodes" {
            state.lists += 1;
            match (shared.2)(state.lists - 1) {
                Some((code, said)) => refusal(code, said),
                None => (200, json!({"metadata": {}, "items": state.nodes})),
            }
        } else if last == "machineconfigpools" {
            (200, json!({"metadata": {}, "items": [worker()]}))
        } else {
            (200, json!({"metadata": {}, "items": []}))
        };
        drop(state);
        let body = kube::client::Body::from(answer.to_string().into_bytes());
        async move {
            if is_patch && code >= 400 {
                tokio::time::sleep(refusal_takes).await;
            }
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(serve, "default")
}

/// An API server that hangs when nodes are sent, and answers lists. The agents of the nodes that were sent before cannot answer either.
#[tokio::test(start_paused = true)]
async fn an_outage_that_begins_while_nodes_are_sent_does_not_count_for_the_others() {
    let begin = Instant::now();
    let mut nodes: Vec<serde_json::Value> = (1..=8).map(|i| node(&format!("n{i}"))).collect();
    for node in nodes.iter_mut().take(4) {
        node["metadata"]["annotations"][annotation::DESIRED_CONFIG] = json!(EMPTY_CONFIG);
    }
    let nodes = Arc::new(Mutex::new(nodes));
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let nodes = nodes.clone();
        async move {
            let seconds = begin.elapsed().as_secs();
            let last = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            if request.method() == http::Method::PATCH && seconds < 150 {
                std::future::pending::<()>().await;
            }
            let mut nodes = nodes.lock().unwrap();
            let answer = if request.method() == http::Method::PATCH {
                let node = nodes.iter_mut().find(|node| node["metadata"]["name"] == *last).unwrap();
                node["metadata"]["annotations"][annotation::DESIRED_CONFIG] = json!(EMPTY_CONFIG);
                node.clone()
            } else if last == "nodes" {
                // The agents notice after a few seconds that the API server is back.
                for node in nodes.iter_mut().filter(|_| seconds >= 158) {
                    let notes = &mut node["metadata"]["annotations"];
                    notes[annotation::CURRENT_CONFIG] = notes[annotation::DESIRED_CONFIG].clone();
                }
                json!({"metadata": {}, "items": *nodes})
            } else if last == "machineconfigpools" {
                json!({"metadata": {}, "items": [worker()]})
            } else {
                json!({"metadata": {}, "items": []})
            };
            drop(nodes);
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(200).body(body).unwrap())
        }
    });
    let client = Client::new(serve, "default");
    let left = restore_hosts(&client, Duration::from_mins(10), false, drop).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(begin.elapsed().as_secs() >= 158, "{:?}", begin.elapsed());
}

/// An outage that only one node meets, a webhook that is down for it, holds up no other one.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_sent_for_long_holds_up_no_other_one() {
    let begin = Instant::now();
    let down = |node: &str, _| (node == "bad").then_some((500, "the webhook is down"));
    let mut good = None;
    let tell = |step| {
        if step == Progress::Done("good".to_owned()) {
            good = Some(begin.elapsed().as_secs());
        }
    };
    let limit = Duration::from_mins(10);
    restore_hosts(&with_nodes(&["bad", "good"], down, |_| None), limit, true, tell).await.unwrap();
    assert!(good.is_some_and(|seconds| seconds < 10), "{good:?}");
}

/// One node cannot be changed: a webhook is down or denies, say. `force` goes on with the others.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_sent_ends_the_removal_or_is_passed_over() {
    let hook = "admission webhook \"w\" denied the request: not today";
    // Columns: the answer; after how many seconds the node is given up.
    for (code, said, given_up) in [
        (500, "the webhook is down", 60),
        (409, "changed", 60),
        (403, "no right", 30),
        (403, hook, 0),
        (409, hook, 0),
    ] {
        let client =
            || with_nodes(&["bad", "good"], move |node, _| (node == "bad").then_some((code, said)), |_| None);
        let (limit, begin) = (Duration::from_secs(60), Instant::now());
        let ended = restore_hosts(&client(), limit, false, drop).await;
        let error = client::chain(&ended.unwrap_err());
        assert!(
            error.contains("nothing was removed") && error.contains("Node bad: patch Node bad"),
            "{error}"
        );
        assert!(error.contains(said), "{error}");
        let seconds = begin.elapsed().as_secs();
        assert!((given_up..given_up + 10).contains(&seconds), "{code} {said}: {seconds} s");

        let mut told = vec![];
        let left = restore_hosts(&client(), limit, true, |step| told.push(step.to_string())).await.unwrap();
        assert_eq!(left.keys().collect::<Vec<_>>(), ["bad"], "{code} {said}");
        assert!(left["bad"].contains(said), "{left:?}");
        assert!(told.contains(&"Node good: has its own files".to_owned()), "{told:?}");
    }
}

/// Lists work, and a node cannot be sent for long: people hear why twice a minute, and it takes no longer than a node may.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_sent_is_named_with_the_reason_before_it_is_given_up() {
    for (code, said, takes) in
        [(500, "the webhook is down", 0), (500, "the webhook is down", 10), (409, "changed", 0)]
    {
        let (limit, begin, mut told) = (Duration::from_mins(10), Instant::now(), vec![]);
        let takes = Duration::from_secs(takes);
        let client = slow_with_nodes(&["bad"], takes, move |_, _| Some((code, said)), |_| None);
        let tell = |step| told.push((begin.elapsed().as_secs(), step));
        let error = client::chain(&restore_hosts(&client, limit, false, tell).await.unwrap_err());
        assert!(error.contains("Node bad: patch Node bad") && error.contains(said), "{error}");
        let seconds = begin.elapsed().as_secs();
        assert!((600..660).contains(&seconds), "{code} {said} {takes:?}: {seconds} s");
        let is_named = |(_, step): &&(u64, Progress)| match step {
            Progress::Waits(how_far) => {
                let begins = how_far.starts_with("0 of 1 nodes have their own files; bad (");
                begins
                    && how_far.contains(" s: it cannot be sent back: patch Node bad")
                    && how_far.contains(said)
            }
            _ => false,
        };
        let named: Vec<u64> = told.iter().filter(is_named).map(|(second, _)| *second).collect();
        assert_eq!(named.len(), told.iter().filter(|(_, step)| matches!(step, Progress::Waits(_))).count());
        assert!(named.len() >= 14 && named[0] <= 45, "{named:?}");
    }
}

/// Outages add up in a removal that takes hours. One is left out all the same as long as nodes get back between them.
#[tokio::test(start_paused = true)]
async fn outages_between_nodes_leave_as_much_time_for_the_next_one() {
    struct State {
        nodes: Vec<serde_json::Value>,
        /// When a node was sent last.
        sent: Option<Instant>,
        outages: usize,
    }
    let nodes: Vec<serde_json::Value> = (1..=14).map(|i| node(&format!("n{i}"))).collect();
    let state = Arc::new(Mutex::new(State { nodes, sent: None, outages: 0 }));
    let shared = state.clone();
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let mut state = shared.lock().unwrap();
        let last = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        // Two seconds after a node was sent the API server is away, and the node answers some seconds after it is back.
        let lasts = if state.outages == 14 { 150 } else { 40 };
        let seconds = state.sent.map_or(u64::MAX, |sent| sent.elapsed().as_secs());
        let (code, answer) = if (2..2 + lasts).contains(&seconds) {
            refusal(503, "starts")
        } else if request.method() == http::Method::PATCH {
            (state.sent, state.outages) = (Some(Instant::now()), state.outages + 1);
            let node = state.nodes.iter_mut().find(|node| node["metadata"]["name"] == *last).unwrap();
            node["metadata"]["annotations"][annotation::DESIRED_CONFIG] = json!(EMPTY_CONFIG);
            (200, node.clone())
        } else if last == "nodes" {
            if seconds >= 2 + lasts + 7 {
                for node in &mut state.nodes {
                    let notes = &mut node["metadata"]["annotations"];
                    notes[annotation::CURRENT_CONFIG] = notes[annotation::DESIRED_CONFIG].clone();
                }
            }
            (200, json!({"metadata": {}, "items": state.nodes}))
        } else if last == "machineconfigpools" {
            let mut pool = worker();
            pool["spec"]["maxUnavailable"] = json!(1);
            (200, json!({"metadata": {}, "items": [pool]}))
        } else {
            (200, json!({"metadata": {}, "items": []}))
        };
        drop(state);
        let body = kube::client::Body::from(answer.to_string().into_bytes());
        async move { Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap()) }
    });
    let (client, begin) = (Client::new(serve, "default"), Instant::now());
    let left = restore_hosts(&client, Duration::from_mins(10), false, drop).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(state.lock().unwrap().outages, 14);
    assert!(begin.elapsed() >= Duration::from_secs(13 * 40 + 150), "{:?}", begin.elapsed());
}

/// An API server that has just started does not know yet who may what.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_starts_ends_no_removal() {
    let no = Some((403, "nodes is forbidden: User \"admin\" cannot patch resource"));
    for force in [false, true] {
        let starts = with_nodes(&["n", "m"], move |_, before| no.filter(|_| before == 0), |_| None);
        let left = restore_hosts(&starts, Duration::from_secs(60), force, drop).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
        let starts = with_nodes(&["n", "m"], |_, _| None, move |before| no.filter(|_| before == 1));
        let left = restore_hosts(&starts, Duration::from_secs(60), force, drop).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

//! Tests of `execute`: what an API server that is away, starts or refuses does to a removal, and what people hear meanwhile.

use super::*;
use api::names::{NAMESPACE, annotation};
use http::Method;
use kube::client::Body;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// What an API server answers to this method and path: a code and an object, or for a failure its message.
type Answer = (u16, Value);

fn failure(code: u16, said: &str) -> Answer {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "R", "message": said}),
    )
}

fn list(items: &[Value]) -> Answer {
    (200, json!({"metadata": {}, "items": items}))
}

/// An API server that answers as this says; the body is that of the request.
fn server(mut answer: impl FnMut(&Method, &str, Value) -> Answer + Send + 'static) -> Client {
    let answer =
        Arc::new(Mutex::new(move |method: &Method, path: &str, body: Value| answer(method, path, body)));
    let serve = tower::service_fn(move |request: http::Request<Body>| {
        let answer = answer.clone();
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = answer.lock().unwrap()(&method, &path, body);
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(serve, "default")
}

/// Carries out these actions. Returns what it came to, and what was said, each with the second.
async fn carried_out(
    client: Client,
    actions: Vec<Action>,
    force: bool,
) -> (Result<Remains, UninstallError>, Vec<(u64, String)>) {
    let (begin, mut said) = (Instant::now(), vec![]);
    let plan = Plan { actions, ..Plan::default() };
    let tell = |step: Step<'_>| said.push((begin.elapsed().as_secs(), step.to_string()));
    let done = carry_out(&client, &plan, force, tell).await;
    (done, said)
}

fn workload(uid: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "o", "namespace": NAMESPACE, "uid": uid,
        "managedFields": [{"manager": crate::objects::FIELD_MANAGER, "operation": "Apply"}]},
        "spec": {"selector": {"matchLabels": {"app": "o"}}}})
}

fn delete_and_wait() -> Vec<Action> {
    vec![Action::Delete { object: workload("u"), wait: true }]
}

#[tokio::test(start_paused = true)]
async fn an_object_is_not_said_to_stay_while_the_api_server_is_away() {
    // Columns: the requests that fail after the deletion, and whether it ends well.
    for (from, until, ends_well) in
        [(0, 0, true), (0, 3, true), (1, 4, true), (0, usize::MAX, false), (1, usize::MAX, false)]
    {
        let mut asked = 0;
        let client = server(move |method, path, _| {
            if method == Method::DELETE {
                return (200, json!({}));
            }
            asked += 1;
            match path.ends_with("/pods") {
                _ if (from..until).contains(&(asked - 1)) => failure(503, "starts"),
                true => list(&[]),
                false => failure(404, "gone"),
            }
        });
        let (done, said) = carried_out(client, delete_and_wait(), false).await;
        assert_eq!(done.is_ok(), ends_well, "{from} {until}: {done:?}");
        let waits: Vec<u64> = said
            .iter()
            .filter(|(_, what)| what.starts_with("waiting for the API server: "))
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(waits.len(), said.len() - usize::from(ends_well), "{said:?}");
        assert_eq!(waits.first().copied(), (until > 0).then_some(0), "{said:?}");
        assert!(waits.windows(2).all(|pair| pair[1] - pair[0] <= 36), "twice a minute: {said:?}");
        if let Err(error) = done {
            assert!(matches!(&error, UninstallError::Call(error) if error.is_outage()), "{error:?}");
            assert!(waits.len() > 18, "{said:?}");
        }
    }
}

/// An API server that answers each hundredth request with an error, in front of an object that stays.
#[tokio::test(start_paused = true)]
async fn an_object_that_stays_ends_the_removal_although_the_api_server_is_away_now_and_then() {
    for (every, most) in [(100, GOING + GOING / 10), (2, GOING * 2)] {
        let mut asked = 0;
        let client = server(move |method, _, _| {
            asked += 1;
            match method == Method::DELETE {
                _ if asked % every == 0 => failure(503, "busy"),
                true => (200, json!({})),
                false => (200, workload("u")),
            }
        });
        let begin = Instant::now();
        let (done, said) = carried_out(client, delete_and_wait(), false).await;
        let lasted = begin.elapsed();
        assert!(matches!(done, Err(UninstallError::Stays { .. })), "{done:?}");
        assert!(lasted >= GOING && lasted <= most + Duration::from_secs(60), "{every}: {lasted:?}");
        assert!(said.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 36), "twice a minute: {said:?}");
    }
}

/// An operator that was not ended yet makes its object again, and once more while that is deleted.
#[tokio::test(start_paused = true)]
async fn what_is_made_again_is_deleted_again() {
    let (mut uid, mut away) = (0, 3);
    let deleted = Arc::new(Mutex::new(vec![]));
    let seen = deleted.clone();
    let client = server(move |method, path, body| {
        if method == Method::DELETE {
            let asked = body["preconditions"]["uid"].as_str().unwrap_or_default().to_owned();
            if uid == 1 && away > 0 {
                away -= 1;
                return failure(503, "busy");
            }
            seen.lock().unwrap().push(asked.clone());
            // It was made again a moment ago.
            uid += 1;
            return if asked == format!("u{}", uid - 1) || uid > 4 {
                (200, json!({}))
            } else {
                failure(409, "uid")
            };
        }
        match path.ends_with("/pods") {
            true => list(&[]),
            false if uid > 4 => failure(404, "gone"),
            false => (200, workload(&format!("u{uid}"))),
        }
    });
    let actions = vec![Action::Delete { object: workload("before"), wait: true }];
    let (done, said) = carried_out(client, actions, false).await;
    assert!(done.is_ok(), "{done:?} {said:?}");
    assert_eq!(*deleted.lock().unwrap(), ["before", "u1", "u2", "u3", "u4"]);
}

/// The API server does not take the deletion of what was made again for eleven minutes, and it goes two minutes later.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_for_the_api_server_is_no_time_in_which_the_object_stays() {
    let (begin, mut deletions) = (Instant::now(), 0);
    let client = server(move |method, path, _| {
        let now = begin.elapsed();
        match path.ends_with("/pods") {
            true => list(&[]),
            false if method == Method::DELETE => {
                deletions += 1;
                let is_away = deletions > 1 && now < Duration::from_mins(11);
                if is_away { failure(503, "busy") } else { (200, json!({})) }
            }
            false if now < Duration::from_mins(13) => (200, workload("u1")),
            false => failure(404, "gone"),
        }
    });
    let actions = vec![Action::Delete { object: workload("before"), wait: true }];
    let (done, said) = carried_out(client, actions, false).await;
    assert!(done.is_ok(), "{done:?} {said:?}");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_made_in_the_place_of_an_object_stays() {
    let mut theirs = workload("other");
    theirs["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Apply"}]);
    for wait in [true, false] {
        let (theirs, mut deletions) = (theirs.clone(), 0);
        let client = server(move |method, path, _| match path.ends_with("/pods") {
            true => list(&[]),
            false if method == Method::DELETE => {
                deletions += 1;
                assert_eq!(deletions, 1, "it is not deleted");
                failure(409, "another uid")
            }
            false => (200, theirs.clone()),
        });
        let (done, said) =
            carried_out(client, vec![Action::Delete { object: workload("u"), wait }], false).await;
        assert!(done.is_ok(), "{done:?} {said:?}");
    }
}

/// What an API server has in these tests of nodes that are asked to leave, and when it answers what.
#[derive(Clone, Default)]
struct Fleet {
    /// Answers to writes of a Node, by its name; the answer after so many seconds, if another one.
    refuses: BTreeMap<&'static str, Answer>,
    /// Answers to each write of a pool.
    pools: Option<Answer>,
    /// From and until which second nobody is served, except for writes of Nodes.
    away: (u64, u64),
    /// The second from which on agents answer.
    answer: u64,
}

impl Fleet {
    /// Two nodes and a pool.
    fn client(self) -> Client {
        let begin = Instant::now();
        let node =
            |name: &str| json!({"metadata": {"name": name, "annotations": {annotation::STATE: "Done"}}});
        let mut nodes = vec![node("n"), node("m")];
        let pool = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"}, "spec": {}});
        server(move |method, path, body| {
            let now = begin.elapsed().as_secs();
            let (_, last) = path.rsplit_once('/').unwrap();
            let is_node = path.contains("/nodes");
            if !(is_node && method == Method::PATCH) && (self.away.0..self.away.1).contains(&now) {
                return failure(503, "starts");
            }
            match (is_node, method == Method::PATCH) {
                (false, false) => list(std::slice::from_ref(&pool)),
                (false, true) => self.pools.clone().unwrap_or((200, pool.clone())),
                (true, true) => match self.refuses.get(last) {
                    Some(answer) => answer.clone(),
                    None => {
                        let node = nodes.iter_mut().find(|node| node["metadata"]["name"] == last).unwrap();
                        let notes = node["metadata"]["annotations"].as_object_mut().unwrap();
                        notes.extend(body["metadata"]["annotations"].as_object().unwrap().clone());
                        notes.retain(|_, value| !value.is_null());
                        (200, node.clone())
                    }
                },
                (true, false) => {
                    for node in nodes.iter_mut().filter(|_| now >= self.answer) {
                        let notes = node["metadata"]["annotations"].as_object_mut().unwrap();
                        if let Some(asked) = notes.get(own::LEAVE).cloned() {
                            notes.insert(own::LEFT.to_owned(), asked);
                        }
                    }
                    list(&nodes)
                }
            }
        })
    }
}

fn leave() -> Vec<Action> {
    vec![Action::Leave { nodes: vec!["n".to_owned(), "m".to_owned()] }]
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_asked_to_leave_counts_as_one_that_does_not_answer() {
    let hook = "admission webhook \"w\" denied the request: not today";
    for (code, why) in [(403, "no right"), (403, hook), (500, hook)] {
        let fleet = Fleet { refuses: [("n", failure(code, why))].into(), ..Fleet::default() };
        let (done, said) = carried_out(fleet.client(), leave(), false).await;
        let silent = done.unwrap().silent;
        assert_eq!(silent.keys().collect::<Vec<_>>(), ["n"], "{said:?}");
        assert!(silent["n"].contains(why) && silent["n"].contains("could not be asked"), "{silent:?}");
    }
    let fleet = Fleet { answer: u64::MAX, ..Fleet::default() };
    let silent = carried_out(fleet.client(), leave(), false).await.0.unwrap().silent;
    assert_eq!(silent.len(), 2);
    assert_eq!(silent["n"], "its agent has not answered");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_reach_the_api_server_is_not_silent() {
    let fleet = Fleet { away: (1, 41), answer: 46, ..Fleet::default() };
    let (done, said) = carried_out(fleet.client(), leave(), false).await;
    assert_eq!(done.unwrap(), Remains::default(), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn people_hear_what_a_request_to_leave_waits_for_and_what_it_could_not_do() {
    for (code, reason) in [(503, "the webhook is down"), (403, "no right")] {
        let fleet = Fleet { pools: Some(failure(code, reason)), ..Fleet::default() };
        let (done, said) = carried_out(fleet.client(), leave(), false).await;
        // The nodes were asked, and have answered.
        assert_eq!(done.unwrap(), Remains::default());
        assert!(said[0].0 <= 30 && said[0].1.contains(reason), "{said:?}");
        assert!(said.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 36), "twice a minute: {said:?}");
        let why = "MachineConfigPool worker is not paused, so updates may begin there: ";
        assert!(said.iter().any(|(_, what)| what.starts_with(why) && what.contains(reason)), "{said:?}");
    }
}

/// A webhook for Nodes is down for many of them. By force the others are asked and cleaned, and not each one is waited for.
#[tokio::test(start_paused = true)]
async fn nodes_whose_change_fails_for_long_are_passed_over_by_force_only() {
    let down = failure(500, "failed calling webhook \"w\": connection refused");
    let clean = |node: &str| {
        let annotations = vec![annotation::STATE.to_owned()];
        Action::Clean { node: node.to_owned(), annotations, tainted: false }
    };
    for force in [false, true] {
        let refuses: BTreeMap<&'static str, Answer> = [("n", down.clone()), ("k", down.clone())].into();
        let names = ["n", "k", "m"].map(str::to_owned);
        let actions = vec![Action::Leave { nodes: names.to_vec() }, clean("n"), clean("k"), clean("m")];
        let begin = Instant::now();
        let (done, said) = carried_out(Fleet { refuses, ..Fleet::default() }.client(), actions, force).await;
        match done {
            Ok(remains) => {
                assert!(force, "{remains:?}");
                assert_eq!(remains.silent.keys().collect::<Vec<_>>(), ["k", "n"], "{remains:?}");
                assert_eq!(remains.marked.keys().collect::<Vec<_>>(), ["k", "n"], "{remains:?}");
                assert!(
                    said.iter().any(|(_, what)| what == "remove our annotations from Node m"),
                    "{said:?}"
                );
            }
            Err(error) => {
                assert!(!force && client::chain(&error).contains("failed calling webhook"), "{error:?}");
            }
        }
        assert!(begin.elapsed() < GOING + Duration::from_mins(1), "{force}: {:?}", begin.elapsed());
    }
}

/// Whoever has no right to change Nodes could not take our annotations off them either. They hear of it while the agents are there.
#[tokio::test(start_paused = true)]
async fn agents_are_not_removed_where_no_node_can_be_changed() {
    for (both, force) in [(true, false), (true, true), (false, false)] {
        let mut refuses: BTreeMap<&'static str, Answer> = [("n", failure(403, "no right"))].into();
        if both {
            refuses.insert("m", failure(403, "no right"));
        }
        let mut actions = leave();
        actions.push(Action::Delete { object: workload("u"), wait: false });
        let (done, said) = carried_out(Fleet { refuses, ..Fleet::default() }.client(), actions, force).await;
        assert_eq!(done.is_err(), both && !force, "{done:?}");
        let deletes = said.iter().any(|(_, what)| what.contains("Deployment"));
        assert_eq!(deletes, done.is_ok(), "{said:?}");
    }
}

/// The command returns that at its end only. When it ends early, the agents may be gone, and the next run does not ask them.
#[tokio::test(start_paused = true)]
async fn agents_that_have_not_left_are_named_when_a_later_action_fails() {
    let clean = Action::Clean {
        node: "m".to_owned(),
        annotations: vec![annotation::STATE.to_owned()],
        tainted: false,
    };
    for ends_early in [true, false] {
        let fleet = Fleet { refuses: [("n", failure(403, "no right"))].into(), ..Fleet::default() };
        let mut actions = leave();
        let other = Action::Clean { node: "n".to_owned(), annotations: vec![], tainted: false };
        actions.push(if ends_early { other } else { clean.clone() });
        let (done, said) = carried_out(fleet.client(), actions, false).await;
        assert_eq!(done.is_err(), ends_early, "{done:?}");
        let named = said.iter().filter(|(_, what)| {
            what.starts_with("Node n: its agent could not be asked to leave: ") && what.contains("no right")
        });
        // At the end of a removal whoever has called for it says so.
        assert_eq!(named.count(), usize::from(ends_early), "{said:?}");
    }
}

/// A webhook refuses each change of a Node. With force everything else goes all the same.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_cleaned_ends_the_removal_unless_it_is_forced() {
    let hook = "admission webhook \"w\" denied the request: not today";
    let clean = |node: &str| {
        let annotations = vec![annotation::STATE.to_owned()];
        Action::Clean { node: node.to_owned(), annotations, tainted: false }
    };
    for force in [false, true] {
        let fleet = Fleet { refuses: [("n", failure(403, hook))].into(), ..Fleet::default() };
        let actions = vec![clean("n"), clean("m"), Action::CleanLater];
        let (done, said) = carried_out(fleet.client(), actions, force).await;
        let words: Vec<&str> = said.iter().map(|(_, what)| what.as_str()).collect();
        match done {
            Ok(remains) => {
                assert!(
                    force && remains.marked.len() == 1 && remains.marked["n"].contains(hook),
                    "{remains:?}"
                );
                assert!(words.contains(&"remove our annotations from Node m"), "{words:?}");
                assert!(!words.contains(&"remove our annotations from Node n"), "{words:?}");
                assert_eq!(words.iter().filter(|what| what.contains("Node n keeps")).count(), 1, "{words:?}");
            }
            Err(error) => assert!(!force && client::chain(&error).contains(hook), "{error:?}"),
        }
    }
}

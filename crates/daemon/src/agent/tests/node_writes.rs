//! Which writes the agent makes to its Node, and to which Node, with an API server that is a table: the Node that was registered
//! again, and the config that is applied while the machine shuts down.
//!
//! Not here: how a real API server answers them (`faults::lost_objects` in the `lab` crate).

use super::*;
use serde_json::{Value, json};
use std::sync::Mutex;

/// An API server with one Node and the config `b`, and what was asked of it.
#[derive(Default)]
struct FakeApi {
    node: Value,
    patches: Vec<Value>,
    /// The paths of the config's files.
    paths: Vec<&'static str>,
    /// Reason and message.
    events: Vec<(String, String)>,
    /// Whether the next patch is carried out, and its answer lost.
    loses_answer: bool,
    /// How many of the next patches find that somebody else has written to the Node just before.
    interrupts: u32,
    /// What somebody else writes as the desired config right after the next patch.
    then_desired: Option<&'static str>,
}

impl FakeApi {
    fn annotations(&self) -> &Value {
        &self.node["metadata"]["annotations"]
    }

    fn note(&self, key: &str) -> Option<&str> {
        self.annotations()[key].as_str()
    }

    fn set(&mut self, key: &str, value: Value) {
        self.node["metadata"]["annotations"][key] = value;
        let version: u64 = self.node["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        self.node["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }

    /// The code of the answer, and its body.
    fn answer(&mut self, method: &http::Method, path: &str, body: &[u8]) -> (u16, Value) {
        let refused = |code: u16, field: &str| {
            let causes = json!([{"reason": "FieldValueInvalid", "field": field}]);
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "Invalid",
                "details": {"causes": causes}});
            (code, status)
        };
        match (method.as_str(), path.rsplit('/').next().unwrap()) {
            ("GET", "worker-0") => (200, self.node.clone()),
            ("PATCH", "worker-0") => {
                let patch: Value = serde_json::from_slice(body).unwrap();
                self.patches.push(patch.clone());
                if self.interrupts > 0 {
                    self.interrupts -= 1;
                    self.set("example.com/theirs", json!("x"));
                }
                let (wanted, have) = (&patch["metadata"], self.node["metadata"].clone());
                let other = |key: &str| wanted[key].as_str().is_some_and(|w| !w.is_empty() && have[key] != w);
                if other("resourceVersion") {
                    return refused(409, "");
                }
                if other("uid") {
                    return refused(422, "metadata.uid");
                }
                for (key, value) in wanted["annotations"].as_object().unwrap() {
                    self.set(key, value.clone());
                }
                let answer = self.node.clone();
                if let Some(desired) = self.then_desired.take() {
                    self.set(annotation::DESIRED_CONFIG, json!(desired));
                }
                if std::mem::take(&mut self.loses_answer) { refused(504, "") } else { (200, answer) }
            }
            ("GET", "b") => (200, serde_json::to_value(files("b", &self.paths)).unwrap()),
            ("POST", "events") => {
                let event: Value = serde_json::from_slice(body).unwrap();
                let text = |key: &str| event[key].as_str().unwrap().to_owned();
                self.events.push((text("reason"), text("message")));
                (201, event)
            }
            _ => refused(404, ""),
        }
    }
}

fn client_of(api: &Arc<Mutex<FakeApi>>) -> kube::Client {
    let api = api.clone();
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let api = api.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (code, answer) = api.lock().unwrap().answer(&parts.method, parts.uri.path(), &body);
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    kube::Client::new(serve, "default")
}

/// The Node of a host that is done with the config `a`, and may take `b` along.
fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": "worker-0", "uid": "first", "resourceVersion": "7", "annotations": {
            annotation::CURRENT_CONFIG: "a", annotation::DESIRED_CONFIG: "a", annotation::STATE: state::DONE,
            api::names::own::WAITING: "b", api::names::own::SENT: "a 2026-01-01T00:00:00Z",
        },
    }})
}

/// An agent of that host, on this folder.
fn mk_agent(dir: &std::path::Path, disk: &Arc<BrokenDisk>) -> (Agent, Arc<Mutex<FakeApi>>) {
    std::fs::create_dir_all(dir.join("etc/systemd/system")).unwrap();
    let api = Arc::new(Mutex::new(FakeApi {
        node: node(),
        paths: vec!["/etc/one", "/etc/two", "/etc/zero"],
        ..FakeApi::default()
    }));
    let os = Box::new(Unsupported::default());
    let (mut agent, _) = agent_of_server(dir, Duration::from_secs(10), disk.clone(), os, client_of(&api));
    let (empty, a) = (files(EMPTY_CONFIG, &[]), files("a", &["/etc/zero"]));
    let (_, work) = agent.machine.prepare(&empty, &a, &host::DisruptionPolicy::default()).unwrap();
    agent.machine.apply(work, &Default::default(), &Default::default()).unwrap();
    agent.machine.host().reboot_done().unwrap();
    agent.view.disk = agent.machine.facts().unwrap();
    agent.view.checked = true;
    agent.view.node = NodeFacts::of(&serde_json::from_value(node()).unwrap());
    (agent, api)
}

#[tokio::test]
async fn a_write_names_the_node_that_it_was_decided_by_and_leaves_another_one_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut agent, api) = mk_agent(dir.path(), &Arc::default());
    let changes = Changes::from([(annotation::REASON, "x".to_owned())]);
    for (conditional, version) in [(false, Value::Null), (true, json!("8"))] {
        agent.write(changes.clone(), vec![], None, conditional).await;
        let patch = api.lock().unwrap().patches.pop().unwrap();
        assert_eq!(patch["metadata"]["uid"], "first");
        assert_eq!(patch["metadata"]["resourceVersion"], version);
    }
    // The Node is registered again, and the watch does not show it yet.
    let again = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-0", "uid": "second", "resourceVersion": "20"}});
    api.lock().unwrap().node = again.clone();
    let first = agent.view.node.clone();
    for conditional in [false, true] {
        agent.view.node = first.clone();
        let next = agent.write(changes.clone(), vec![], None, conditional).await;
        assert!(matches!(next, Next::Wait(Some(_))));
        assert_eq!(api.lock().unwrap().node, again);
        assert_eq!((agent.view.node.uid.as_str(), agent.view.node.current.as_str()), ("second", ""));
    }
    let notes = [(annotation::CURRENT_CONFIG.to_owned(), "a".to_owned())].into();
    let seen = NodeFacts { uid: "first".to_owned(), ..NodeFacts::default() };
    let error = agent.cluster.annotate_from_file(&notes, &seen).await.unwrap_err();
    assert!(error.is_other_object(), "{error:?}");
    assert_eq!(api.lock().unwrap().node, again);
}

/// Lets the agent's machine shut down while `b` waits; `happens` is done before.
async fn shut_down(
    disk: &Arc<BrokenDisk>,
    happens: impl FnOnce(&mut Agent, &mut FakeApi),
) -> (Agent, Arc<Mutex<FakeApi>>) {
    let dir = tempfile::tempdir().unwrap();
    let (mut agent, api) = mk_agent(dir.path(), disk);
    agent.machine.host().reboot("a person's").unwrap();
    happens(&mut agent, &mut api.lock().unwrap());
    Box::pin(agent.apply_waiting_config()).await;
    agent.reporter.flush().await;
    (agent, api)
}

#[tokio::test]
async fn a_waiting_config_is_taken_along_or_is_said_not_to_be_and_goes_on_waiting() {
    let is = |api: &Arc<Mutex<FakeApi>>| {
        let api = api.lock().unwrap();
        let note = |key| api.note(key).unwrap_or_default().to_owned();
        let sent = note(api::names::own::SENT);
        let events: Vec<_> =
            api.events.iter().filter(|(reason, _)| reason.starts_with("WaitingConfig")).cloned().collect();
        (note(annotation::DESIRED_CONFIG), note(annotation::STATE), sent, events)
    };
    let reasons =
        |events: &[(String, String)]| events.iter().map(|(reason, _)| reason.clone()).collect::<Vec<_>>();

    let (_, api) = shut_down(&Arc::default(), |_, _| {}).await;
    let (desired, state, sent, events) = is(&api);
    assert_eq!((desired.as_str(), state.as_str()), ("b", state::WORKING));
    assert!(sent.starts_with("b "), "{sent}");
    assert_eq!(reasons(&events), ["WaitingConfigTaken"]);

    // The second file cannot be written. The first one is removed again, or that fails, too.
    let disk = Arc::new(BrokenDisk::default());
    disk.set(true);
    let (agent, api) = shut_down(&disk, |_, _| {}).await;
    let (desired, state, sent, events) = is(&api);
    assert!(agent.view.disk.open, "the undo is not complete");
    assert_eq!((desired.as_str(), state.as_str(), sent.as_str()), ("a", state::WORKING, ""));
    assert!(
        events[0].1.contains("/etc/two") && events[0].1.contains("is undone after the boot"),
        "{events:?}"
    );
    assert_eq!(reasons(&events), ["WaitingConfigNotTaken"]);
    assert_eq!(step(&agent.view), Action::Recover, "and not an update, which would drain the node");

    // Without the first file, everything is undone at once.
    let (agent, api) = shut_down(&disk, |_, api| api.paths = vec!["/etc/two", "/etc/zero"]).await;
    let (desired, state, sent, events) = is(&api);
    assert!(!agent.view.disk.open);
    assert_eq!((desired.as_str(), state.as_str(), sent.as_str()), ("a", state::DONE, ""));
    assert!(events[0].1.contains("/etc/two") && !events[0].1.contains("after the boot"), "{events:?}");

    // Somebody has sent the node elsewhere meanwhile.
    let (_, api) = shut_down(&disk, |_, api| api.then_desired = Some("c")).await;
    let (desired, _, _, events) = is(&api);
    assert_eq!((desired.as_str(), reasons(&events)), ("c", vec!["WaitingConfigNotTaken".to_owned()]));

    // The write that begins it is carried out, and its answer is lost.
    let (_, api) = shut_down(&Arc::default(), |_, api| api.loses_answer = true).await;
    let (desired, state, sent, events) = is(&api);
    assert_eq!((desired.as_str(), state.as_str(), sent.as_str()), ("a", state::DONE, ""));
    assert_eq!(reasons(&events), ["WaitingConfigNotTaken"]);

    // Somebody else writes to the Node while the agent plans: it plans again.
    let (_, api) = shut_down(&Arc::default(), |_, api| api.interrupts = 2).await;
    assert_eq!(reasons(&is(&api).3), ["WaitingConfigTaken"]);

    // It cannot be planned.
    let (_, api) =
        shut_down(&Arc::default(), |_, api| api.set(api::names::own::WAITING, json!("gone"))).await;
    let (desired, _, _, events) = is(&api);
    assert!(api.lock().unwrap().patches.is_empty());
    assert_eq!((desired.as_str(), reasons(&events)), ("a", vec!["WaitingConfigNotTaken".to_owned()]));
    assert!(events[0].1.contains("waiting config gone was not applied"), "{events:?}");
}

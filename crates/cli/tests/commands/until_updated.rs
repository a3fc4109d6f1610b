//! `mco status` against a fake API server that refuses or never answers a list, most of it with `-w --until-updated`.
//!
//! Not here: a cluster that changes; the lab's tests cover that.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: &str = "machineconfiguration.openshift.io";

/// How the fake server answers a list for which it has no objects.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// 404, as for a kind that is not installed.
    Absent,
    /// 403, as for a user who may not list it.
    Forbidden,
    /// No answer at all.
    Silent,
}

/// Serves these objects by their plural names; `special` says how it answers other lists, and anything else is absent.
fn serve(objects: Vec<(&'static str, Vec<Value>)>, special: Vec<(&'static str, Answer)>) -> String {
    serve_after(0, objects, special)
}

/// The same by a server that closes its first connections without an answer, as one that is about to stop. It reads a request before:
/// an HTTP client tries again by itself, without a word, when a connection ends before the request is sent.
fn serve_after(
    closed: usize,
    objects: Vec<(&'static str, Vec<Value>)>,
    special: Vec<(&'static str, Answer)>,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let all = Arc::new((objects, special));
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let all = all.clone();
            std::thread::spawn(move || {
                if number < closed {
                    let _request = BufReader::new(&stream).lines().next();
                } else {
                    connection(&stream, &all.0, &all.1);
                }
            });
        }
    });
    address
}

fn connection(stream: &TcpStream, objects: &[(&str, Vec<Value>)], special: &[(&str, Answer)]) {
    let mut out = stream;
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        for _ in lines.by_ref().take_while(|line| !line.is_empty()) {}
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let plural = path.rsplit('/').next().unwrap_or_default();
        if query.contains("watch=true") {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            // The watch stays open without events; the client closes it at the end of the test.
            out.write_all(head.as_bytes()).and_then(|()| out.flush()).ok();
            continue;
        }
        let found = objects.iter().find(|(name, _)| *name == plural);
        let answer = special.iter().find(|(name, _)| *name == plural).map_or(Answer::Absent, |(_, a)| *a);
        let status = |code: u16, reason: &str| {
            let message = format!("{plural}: {reason}");
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
        };
        let (code, body) = match (found, answer) {
            (_, Answer::Silent) => continue,
            (Some((_, items)), _) => {
                (200, json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
            }
            (None, Answer::Forbidden) => (403, status(403, "Forbidden")),
            (None, Answer::Absent) => (404, status(404, "NotFound")),
        };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if out.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// A MachineConfig and a pool that is updated to it: the pool has no nodes.
fn updated() -> Vec<(&'static str, Vec<Value>)> {
    let object = |kind: &str, metadata: Value, spec: Value| json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "spec": spec});
    let role = json!({format!("{GROUP}/role"): "worker"});
    let config = object(
        "MachineConfig",
        json!({"name": "50-a", "labels": role, "uid": "1", "resourceVersion": "1"}),
        json!({"kernelArguments": ["a"]}),
    );
    let mut pool = object(
        "MachineConfigPool",
        json!({"name": "worker", "uid": "2", "resourceVersion": "1"}),
        json!({"machineConfigSelector": {"matchLabels": role}, "nodeSelector": {"matchLabels": {"no": "node"}}}),
    );
    // `mco render` without a cluster gives the same name.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("all.yaml");
    std::fs::write(&path, format!("{config}\n---\n{pool}\n")).unwrap();
    let said = mco(&["render", "-f", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&said.stdout);
    let name = text.lines().find_map(|line| line.trim().strip_prefix("name: rendered-worker-")).unwrap();
    pool["spec"]["configuration"] = json!({"name": format!("rendered-worker-{name}")});
    let condition =
        json!({"type": "Updated", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    pool["status"] = json!({"conditions": [condition], "configuration": pool["spec"]["configuration"]});
    vec![
        ("machineconfigs", vec![config]),
        ("machineconfigpools", vec![pool]),
        ("controllerconfigs", vec![]),
        ("nodes", vec![]),
        ("pods", vec![]),
    ]
}

fn mco(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mco")).args(args).env_remove("KUBECONFIG").output().unwrap()
}

/// The exit code, and standard error.
fn wait(server: &str, timeout: &str) -> (Option<i32>, String) {
    let out = status(server, &["-w", "--until-updated", "--timeout", timeout]);
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Runs `mco status` against a server.
fn status(server: &str, arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    mco(&[&["status", "--kubeconfig", kubeconfig], arguments].concat())
}

#[test]
fn an_api_server_that_is_away_at_the_start_is_waited_for() {
    let (code, said) = wait(&serve_after(3, updated(), vec![]), "30s");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("mco: waiting: ").count(), 1, "{said}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, said) = wait(&format!("http://{nobody}"), "2s");
    assert!(code == Some(4) && said.contains("the API server has not answered"), "{code:?}: {said}");
}

#[test]
fn kinds_that_may_not_be_listed_count_as_absent_with_one_warning() {
    let server =
        serve(updated(), vec![("featuregates", Answer::Forbidden), ("osimagestreams", Answer::Forbidden)]);
    let (code, said) = wait(&server, "20s");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("may not list FeatureGate").count(), 1, "{said}");
    assert_eq!(said.matches("may not list OSImageStream").count(), 1, "{said}");
    let (code, said) = wait(&serve(updated(), vec![]), "20s");
    assert!(code == Some(0) && !said.contains("FeatureGate"), "{said}");
}

#[test]
fn a_list_that_is_never_answered_does_not_outlast_the_timeout() {
    let server = serve(updated(), vec![("featuregates", Answer::Silent)]);
    let start = Instant::now();
    let (code, said) = wait(&server, "2s");
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("not updated in time: cannot tell whether all MachineConfigs are rendered"),
        "{said}"
    );
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_new_reason_for_waiting_is_printed_once() {
    let mut objects = updated();
    objects[0].1[0]["spec"]["kernelArguments"] = json!(["b"]);
    let (code, said) = wait(&serve(objects, vec![]), "3s");
    assert_eq!(code, Some(4), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("has not created yet")).collect();
    assert!(
        matches!(lines.as_slice(), [first, last] if first.starts_with("mco: waiting: pool worker: ")
        && last.starts_with("mco: not updated in time: ")),
        "{said}"
    );
}

/// A pool with a node that is to go on, and a policy whose window is shut and lets some changes pass.
fn held_by_a_window() -> Vec<(&'static str, Vec<Value>)> {
    let metadata = |name: &str| json!({"name": name, "uid": name, "resourceVersion": "1"});
    let config = |name: &str| json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfig", "metadata": metadata(name), "spec": {}});
    let pool = json!({"metadata": metadata("worker"), "spec": {
        "configuration": {"name": "rendered-worker-2"},
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}});
    let mut node =
        json!({"metadata": metadata("a"), "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    node["metadata"]["labels"] = json!({"node-role.kubernetes.io/worker": ""});
    node["metadata"]["annotations"] = json!({
        format!("{GROUP}/currentConfig"): "rendered-worker-1", format!("{GROUP}/desiredConfig"): "rendered-worker-1",
        format!("{GROUP}/state"): "Done"});
    // On a day that comes once in four years.
    let windows = json!([{"name": "leap", "cron": "0 12 29 2 *", "duration": "1m"}]);
    let policy = json!({"metadata": metadata("p"), "spec": {"pools": {"names": ["worker"]}, "windows": windows,
        "maxDisruption": "Reload"}});
    vec![
        ("machineconfigs", vec![config("rendered-worker-1"), config("rendered-worker-2")]),
        ("machineconfigpools", vec![pool]),
        ("controllerconfigs", vec![]),
        ("nodes", vec![node]),
        ("rolloutpolicies", vec![policy]),
        ("pods", vec![]),
    ]
}

#[test]
fn status_says_what_it_does_not_know() {
    let objects = held_by_a_window();
    let server = serve(objects.clone(), vec![("machineconfigurations", Answer::Forbidden)]);
    let out = status(&server, &[]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("it is not known what changes cost").count(), 1, "{said}");
    let out = status(&server, &["--output", "json"]);
    let shown: Value = serde_json::from_slice(&out.stdout).unwrap();
    let words = shown["unread"][0]["words"].as_str().unwrap_or_default();
    assert!(words.contains("it is not known what changes cost"), "{shown}");
    // Of a policy that may not be read, nobody knows either.
    let objects = objects.into_iter().filter(|(kind, _)| *kind != "rolloutpolicies").collect();
    let out = status(&serve(objects, vec![("rolloutpolicies", Answer::Forbidden)]), &["--exit-code"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("mco: RolloutPolicies cannot be read"), "{said}");
}

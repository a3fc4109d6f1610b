//! An API server in memory: it lists and watches the objects of a fleet of any size over plain HTTP, and changes them as fast
//! as a test asks. It is for programs that only read a cluster: five thousand nodes, a thousand changes per second, names that
//! contain markup.
//!
//! What it is not: an API server. It stores nothing that is sent to it, and has only the kinds that a fleet consists of. Access
//! reviews allow everything that a test does not forbid ([`FleetApi::forbid`]), and token reviews know the tokens that a test
//! names ([`FleetApi::know`]).

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::simulated::fleet_objects::{GROUP, Kinds, POOLS, config_of, fill};
use crate::system::process::lock;

/// The annotation with what a drain waits for, as the controller writes it.
const DRAIN_WAIT: &str = "drainWaitsFor";
/// The states of an update, as an agent reports them.
const STATES: [&str; 3] = ["Working", "Rebooting", "Done"];

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Default)]
struct State {
    version: u64,
    kinds: Kinds,
    /// All changes since the start: the resource version, the resource, and the line that a watch sends.
    log: Vec<(u64, &'static str, Bytes)>,
    /// The user of each token.
    people: BTreeMap<String, String>,
    /// Resources that nobody may read.
    forbidden: BTreeSet<String>,
}

/// A running fleet API server. Dropping it closes its connections.
#[derive(Debug)]
pub struct FleetApi {
    address: SocketAddr,
    shared: Shared,
    names: Vec<String>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    news: Arc<watch::Sender<u64>>,
    away: Arc<watch::Sender<bool>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Drop for FleetApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FleetApi {
    /// Starts a fleet of this many nodes in four pools and three zones; each pool has just got a new config. `markup` is put
    /// into the names of zones and into the agents' messages.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(nodes: usize, markup: &str) -> Result<Self> {
        let failed = |source| Error::Io { step: "listen on", path: "127.0.0.1".into(), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut state = State { version: 1, ..State::default() };
        let names: Vec<String> = (0..nodes).map(|n| format!("node-{n}")).collect();
        fill(&mut state.kinds, &names, markup);
        let shared = Shared {
            state: Arc::new(Mutex::new(state)),
            news: Arc::new(watch::Sender::new(1)),
            away: Arc::new(watch::Sender::new(false)),
        };
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, names, task })
    }

    /// The names of the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.names
    }

    /// Writes a kubeconfig for it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fleet",
            "clusters": [{"name": "fleet", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "somebody", "user": {}}],
            "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "somebody"}}],
        });
        std::fs::write(path, config.to_string()).map_err(|source| Error::Io {
            step: "write",
            path: path.to_owned(),
            source,
        })
    }

    /// Closes every connection at once, including new ones; with `false`, answers again.
    pub fn go_away(&self, away: bool) {
        self.shared.away.send_replace(away);
    }

    /// Makes the update of a node fail.
    pub fn fail(&self, name: &str, why: &str) {
        self.say(name, "Degraded", why);
    }

    /// Sets the state that a node's agent reports, by its number in the steps of an update, with a reason.
    pub fn step(&self, name: &str, step: usize, why: &str) {
        self.say(name, STATES[step % STATES.len()], why);
    }

    /// From now on, this token is this user's.
    pub fn know(&self, token: &str, user: &str) {
        lock(&self.shared.state).people.insert(token.to_owned(), user.to_owned());
    }

    /// From now on, this token is nobody's.
    pub fn forget(&self, token: &str) {
        lock(&self.shared.state).people.remove(token);
    }

    /// From now on nobody may read this resource.
    pub fn forbid(&self, resource: &str) {
        lock(&self.shared.state).forbidden.insert(resource.to_owned());
    }

    /// Adds an object. Open watches do not report it.
    pub fn add(&self, resource: &'static str, object: Value) {
        let mut state = lock(&self.shared.state);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        state.kinds.entry(resource).or_default().insert(name, object);
    }

    /// Changes an existing object.
    pub fn change(&self, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut state = lock(&self.shared.state);
        let state = &mut *state;
        let Some((resource, objects)) = state.kinds.iter_mut().find(|(have, _)| **have == resource) else {
            return;
        };
        let Some(object) = objects.get_mut(name) else { return };
        state.version += 1;
        change(object);
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        let line = json!({"type": "MODIFIED", "object": object}).to_string() + "\n";
        state.log.push((state.version, resource, line.into()));
        self.shared.news.send_replace(state.version);
    }

    /// Puts a node in the middle of its update: it has been drained, and its change has just begun.
    pub fn begin(&self, name: &str, waited: &str) {
        let now = Timestamp::now();
        let ago = |seconds: i64| (now - SignedDuration::from_secs(seconds)).to_string();
        let step = |type_: &str, status: &str, seconds: i64, message: &str| json!({"type": type_, "status": status, "reason": type_, "message": message, "lastTransitionTime": ago(seconds)});
        self.change("machineconfignodes", name, |object| {
            object["status"]["conditions"] = json!([
                step("UpdatePrepared", "True", 95, ""),
                step("Cordoned", "True", 94, ""),
                step(
                    "Drained",
                    "Unknown",
                    94,
                    &format!("Node {name} is being drained; it waits for {waited}")
                ),
            ]);
        });
        self.change("nodes", name, |node| {
            node["metadata"]["annotations"][format!("{GROUP}/{DRAIN_WAIT}")] = json!(waited);
        });
    }

    fn say(&self, name: &str, said: &str, why: &str) {
        let mut state = lock(&self.shared.state);
        let state = &mut *state;
        let Some(object) = state.kinds.get_mut("nodes").and_then(|all| all.get_mut(name)) else { return };
        state.version += 1;
        let metadata = &mut object["metadata"];
        let pool =
            POOLS.iter().find(|p| metadata["labels"].get(format!("node-role.kubernetes.io/{p}")).is_some());
        let (old, new) = (config_of(pool.unwrap_or(&POOLS[0]), 1), config_of(pool.unwrap_or(&POOLS[0]), 2));
        let current = if said == "Done" { &new } else { &old };
        for (key, value) in
            [("state", said), ("reason", why), ("currentConfig", current), ("desiredConfig", &new)]
        {
            metadata["annotations"][format!("{GROUP}/{key}")] = json!(value);
        }
        if said != "Working" {
            metadata["annotations"]
                .as_object_mut()
                .and_then(|notes| notes.remove(&format!("{GROUP}/{DRAIN_WAIT}")));
        }
        metadata["resourceVersion"] = json!(state.version.to_string());
        let line = json!({"type": "MODIFIED", "object": object}).to_string() + "\n";
        state.log.push((state.version, "nodes", line.into()));
        self.shared.news.send_replace(state.version);
    }
}

async fn accept(listener: TcpListener, shared: Shared) {
    let mut connections = tokio::task::JoinSet::new();
    let mut away = shared.away.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = away.changed() => {
                connections.abort_all();
                continue;
            }
        };
        let Ok((stream, _)) = accepted else { continue };
        if *away.borrow() {
            continue;
        }
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let shared = shared.clone();
                async move {
                    if request.method() != http::Method::POST {
                        return Ok::<_, Infallible>(answer(&shared, &request));
                    }
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
                    Ok(review(&shared, &path, &body.unwrap_or_default()))
                }
            });
            let serving = hyper::server::conn::http1::Builder::new();
            // The client may disconnect at any time.
            let _ = serving.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn json_answer(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Body> {
    let path: Vec<&str> = request.uri().path().split('/').filter(|s| !s.is_empty()).collect();
    let rest = match &path[..] {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] => rest,
        rest => rest,
    };
    let query = request.uri().query().unwrap_or_default();
    let state = lock(&shared.state);
    let resource = rest.first().and_then(|name| state.kinds.get_key_value(*name)).map(|(name, _)| *name);
    let (Some(resource), true) = (resource, request.method() == http::Method::GET) else {
        return not_found();
    };
    if state.forbidden.contains(resource) {
        return forbidden(resource);
    }
    let objects = &state.kinds[resource];
    if let Some(name) = rest.get(1) {
        return objects.get(*name).map_or_else(not_found, |o| json_answer(StatusCode::OK, o.to_string()));
    }
    if query.contains("watch=true") {
        let version = query.split('&').find_map(|q| q.strip_prefix("resourceVersion=")?.parse::<u64>().ok());
        let after = version.unwrap_or(state.version);
        drop(state);
        return followed(shared, resource, after);
    }
    let version = state.version;
    let mut text = format!(
        "{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":["
    );
    for (n, object) in objects.values().enumerate() {
        let _ = write!(text, "{}{object}", if n == 0 { "" } else { "," });
    }
    text.push_str("]}");
    json_answer(StatusCode::OK, text)
}

/// Answers token reviews and access reviews.
fn review(shared: &Shared, path: &str, body: &[u8]) -> Response<Body> {
    let Ok(mut review) = serde_json::from_slice::<Value>(body) else { return not_found() };
    let state = lock(&shared.state);
    review["status"] = if path.ends_with("/tokenreviews") {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        match state.people.get(token) {
            Some(user) => {
                json!({"authenticated": true, "user": {"username": user, "groups": ["system:authenticated"]}})
            }
            None => json!({"authenticated": false}),
        }
    } else if path.ends_with("/subjectaccessreviews") {
        let resource = review["spec"]["resourceAttributes"]["resource"].as_str().unwrap_or_default();
        json!({"allowed": !state.forbidden.contains(resource)})
    } else {
        return not_found();
    };
    json_answer(StatusCode::CREATED, review.to_string())
}

fn forbidden(resource: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("somebody may not list {resource}")});
    json_answer(StatusCode::FORBIDDEN, status.to_string())
}

fn not_found() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": "the server could not find the requested resource"});
    json_answer(StatusCode::NOT_FOUND, status.to_string())
}

/// A watch: the changes since a version, then those to come.
fn followed(shared: &Shared, resource: &'static str, after: u64) -> Response<Body> {
    let start = (shared.clone(), shared.news.subscribe(), after);
    let lines = stream::unfold(start, move |(shared, mut news, after)| async move {
        loop {
            let mut bytes = Vec::new();
            let mut last = after;
            {
                let state = lock(&shared.state);
                let first = state.log.partition_point(|(version, _, _)| *version <= after);
                for (version, of, line) in &state.log[first..] {
                    last = *version;
                    if *of == resource {
                        bytes.extend_from_slice(line);
                    }
                }
            }
            if !bytes.is_empty() {
                return Some((Ok(Frame::data(Bytes::from(bytes))), (shared, news, last)));
            }
            if news.changed().await.is_err() {
                return None;
            }
        }
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}

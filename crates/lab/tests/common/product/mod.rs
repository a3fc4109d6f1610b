//! What the tests of the product share: a lab with `mco` in it, objects as JSON, waiting with a time limit, and a
//! report of the cluster's state when a wait times out.
//!
//! Not here: the product's types. Tests use the API as a user does, so that a wrong type cannot hide a wrong object.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_debug_implementations,
    reason = "helpers; each test binary uses a part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]
#![allow(clippy::needless_pass_by_value, reason = "a call is easier to read without `&` before each `json!`")]

pub mod configs;
pub mod controllers;
pub mod objects;
pub mod observer;
pub mod pods;
pub mod policies;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lab::{Lab, LabBuilder, Reporter};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

pub use configs::{
    disruption_policies, machine_config, missing_on, one_file, one_unit, percent_decoded, pool,
};

/// The time limit of every wait, whatever else runs on the machine.
pub const LIMIT: Duration = Duration::from_secs(120);
/// How many clusters run at the same time in one test program, whatever the number of processors and parallel tests:
/// each takes up to 4 GiB and, while its control plane starts, a processor.
const CLUSTERS: usize = 4;
static PLACES: Semaphore = Semaphore::const_new(CLUSTERS);
/// How many lines of a log a failure shows.
const TAIL: usize = 60;
/// The prefix of the product's annotations and labels.
pub const MCO: &str = "machineconfiguration.openshift.io/";

/// The repository's folder.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A lab with `mco`, without scheduler and controller manager; `None`: skipped, with a message.
pub fn lab() -> Option<LabBuilder> {
    let mco = lab::built_mco();
    if !lab::require(mco.is_none().then(|| "the mco program is not built: cargo build -p cli".to_owned())) {
        return None;
    }
    let builder = Lab::start().mco_binary(mco?).kubectl(true).scheduler(false).controller_manager(false);
    Some(builder.progress(Reporter::stderr()))
}

/// As [`lab`], with our definitions, for tests that install and are not about that: an API server takes seconds to serve new kinds.
pub fn defined() -> Option<LabBuilder> {
    Some(lab()?.definitions(true))
}

/// The statically linked program, for images: a single file without libraries. `None`: skipped, with a message.
pub fn delivered() -> Option<PathBuf> {
    let program = lab::delivered_mco();
    let missing = program.is_none().then(|| "`cargo xtask image --for-tests` has not run".to_owned());
    if lab::require(missing) { program } else { None }
}

/// Like [`lab`], with our objects installed and the controller running.
pub fn with_controller() -> Option<LabBuilder> {
    Some(lab()?.templates(repository().join("templates")).controller(true))
}

/// A cluster with one machine that boots, in its pool's first config. `with` adds to the lab. `None`: skipped, with a message.
pub async fn one_machine(with: impl FnOnce(LabBuilder) -> LabBuilder) -> Option<Cluster> {
    if !lab::require_root() {
        return None;
    }
    let cluster = Cluster::start(with(with_controller()?.nodes(1).real())).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    Some(cluster)
}

/// The output of a program.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A running cluster, as a user sees it.
pub struct Cluster {
    pub lab: Lab,
    pub client: Client,
    /// Released after the lab is gone: fields are dropped in this order.
    _place: SemaphorePermit<'static>,
}

/// Waits until another cluster may run. The place is free again when the permit is dropped.
pub async fn place() -> SemaphorePermit<'static> {
    PLACES.acquire().await.unwrap()
}

/// What explains an agent that does not continue: its log, systemd's jobs, and the processes.
const AGENT_LOG: &str = "journalctl --no-pager -o short-precise -n 60 -u machine-config-daemon.service; \
    journalctl --no-pager -o short-precise -n 20 -u 'mco-*'; systemctl list-jobs --no-pager; ps -ef --forest | tail -n 30";

impl Cluster {
    pub async fn start(builder: LabBuilder) -> Self {
        let place = place().await;
        let lab = builder.start().await.unwrap();
        let client = lab.client();
        Self { lab, client, _place: place }
    }

    pub async fn stop(self) {
        drop(self.client);
        self.lab.stop().await;
    }

    // ---- objects ----

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        objects::api(&self.client, kind)
    }

    /// The object, or null if there is none.
    pub async fn get(&self, kind: &str, name: &str) -> Value {
        objects::get(&self.client, kind, name).await
    }

    pub async fn list(&self, kind: &str) -> Vec<Value> {
        objects::list(&self.client, kind).await
    }

    pub async fn create(&self, object: Value) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(&kind).create(&PostParams::default(), &object).await.unwrap();
    }

    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The events about an object: `REASON: message`.
    pub async fn events(&self, about: &str) -> Vec<String> {
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::all(self.client.clone());
        let list = events.list(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
        let ours = list.into_iter().filter(|e| e.involved_object.name.as_deref() == Some(about));
        ours.map(|e| format!("{}: {}", e.reason.unwrap_or_default(), e.message.unwrap_or_default())).collect()
    }

    // ---- programs ----

    /// Waits for an event with this reason and all these words. Events are written asynchronously.
    pub async fn told(&self, about: &str, reason: &str, words: &[&str]) -> String {
        self.wait(&format!("event {reason} {words:?}"), async || {
            let fits = |e: &String| e.starts_with(reason) && words.iter().all(|w| e.contains(w));
            self.events(about).await.into_iter().find(fits)
        })
        .await
    }

    async fn run(&self, mut command: tokio::process::Command) -> Said {
        command.kill_on_drop(true).stdin(std::process::Stdio::null());
        let Ok(output) = tokio::time::timeout(LIMIT, command.output()).await else {
            eprintln!("{}", self.state().await);
            panic!("not within {LIMIT:?}: the end of {:?}", command.as_std());
        };
        let output = output.unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub async fn mco(&self, args: &[&str]) -> Said {
        let mut command = tokio::process::Command::new(lab::built_mco().unwrap());
        command.args(args).arg("--kubeconfig").arg(self.lab.kubeconfig());
        self.run(command).await
    }

    pub async fn kubectl(&self, args: &[&str]) -> Said {
        let program = self.lab.control_plane().kubectl().expect("the lab was asked for kubectl");
        let mut command = tokio::process::Command::new(program);
        command.arg("--kubeconfig").arg(self.lab.kubeconfig()).args(args).current_dir(repository());
        // Its default is a folder for each API server in the home of whoever runs the tests, for ever.
        command.env("KUBECACHEDIR", self.lab.folder().join("kubectl-cache"));
        // It runs for a tenth of a second, and some tests run it a hundred times: less collection of garbage.
        command.env("GOGC", "400");
        self.run(command).await
    }

    /// Runs kubectl with this object in a file; `verb` is for example `["apply", "--server-side"]`.
    pub async fn put(&self, verb: &[&str], object: &Value) -> Said {
        let file = self.lab.folder().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&[verb, &["-f", &file.display().to_string()]].concat()).await
    }

    /// As [`Cluster::put`]; the API server must accept the object.
    pub async fn must_put(&self, verb: &[&str], object: &Value) {
        let said = self.put(verb, object).await;
        assert_eq!(said.code, 0, "{object:#} {said:?}");
    }

    // ---- pools and nodes ----

    /// A pool that inherits from worker, and the nodes in it.
    pub async fn add_pool(&self, name: &str, nodes: &[&str]) {
        self.create(pool(name)).await;
        for node in nodes {
            self.put_into(node, name).await;
        }
    }

    pub async fn put_into(&self, node: &str, pool: &str) {
        let label = format!("node-role.kubernetes.io/{pool}");
        self.patch("Node", node, json!({"metadata": {"labels": {label: ""}}})).await;
    }

    /// The name of the config that a pool's nodes should have.
    pub async fn rendered(&self, pool: &str) -> String {
        text(&self.get("MachineConfigPool", pool).await["spec"]["configuration"]["name"])
    }

    /// Waits until the pool has this many nodes, is Updated with a config that is rendered from all of `with` and none
    /// of `without`, and each of its nodes is Done with it. Returns the config's name.
    pub async fn settled(&self, pool: &str, nodes: usize, with: &[&str], without: &[&str]) -> String {
        let what = format!("pool {pool} with {nodes} nodes Updated, with {with:?}, without {without:?}");
        self.wait(&what, async || objects::settled(&self.client, pool, nodes, with, without).await).await
    }

    /// Waits until the pool's condition is True and its message has all of these words; returns the message.
    pub async fn complains(&self, pool: &str, condition_type: &str, words: &[&str]) -> String {
        self.wait(&format!("pool {pool}: {condition_type} with {words:?}"), async || {
            let found = self.get("MachineConfigPool", pool).await;
            condition(&found, condition_type).filter(|m| words.iter().all(|w| m.contains(w)))
        })
        .await
    }

    /// Polls until there is an answer; on a timeout it fails with the cluster's state.
    pub async fn wait<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        self.poll(what, look, lab::pause_after).await
    }

    /// The same without longer and longer pauses, for looks that also check what must never be.
    pub async fn watch_until<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        self.poll(what, look, |_| lab::pause_after(Duration::ZERO)).await
    }

    async fn poll<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> Option<T>,
        pause: impl Fn(Duration) -> Duration,
    ) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            let died = self.lab.check().err();
            if start.elapsed() > LIMIT || died.is_some() {
                eprintln!("{}", self.state().await);
                panic!("not within {LIMIT:?}: {what}{}", died.map(|e| format!("; {e}")).unwrap_or_default());
            }
            tokio::time::sleep(pause(start.elapsed())).await;
        }
    }

    /// Pools, nodes, and the ends of the logs of the controller and of agents on booted nodes, to explain a failure.
    pub async fn state(&self) -> String {
        let mut text =
            objects::state(&self.client).await + "controller:\n" + &tail(&self.lab.controller_log());
        for node in self.lab.nodes() {
            let look = ["sh", "-c", AGENT_LOG];
            // Only a booted node can run it.
            if let Ok(log) = node.run(look).await {
                text += &format!("\nagent of {}:\n{log}", node.name());
            }
        }
        text
    }

    /// Errors that no test may miss: a panic in the controller.
    pub fn no_panic(&self) {
        self.lab.check().unwrap();
        let log = std::fs::read_to_string(self.lab.controller_log()).unwrap_or_default();
        assert!(!log.contains("panicked at"), "{log}");
    }
}

/// The last lines of a file.
pub fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default().join("\n")
}

/// The text of a JSON value; empty if it is not a string.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// One of the product's annotations of a node.
pub fn note(node: &Value, key: &str) -> String {
    text(&node["metadata"]["annotations"][format!("{MCO}{key}")])
}

/// Whether the node is Done with its desired config.
pub fn is_done(node: &Value) -> bool {
    note(node, "state") == "Done" && note(node, "currentConfig") == note(node, "desiredConfig")
}

/// The message of a condition that is True.
pub fn condition(pool: &Value, condition_type: &str) -> Option<String> {
    let conditions = pool["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|c| c["type"] == condition_type && c["status"] == "True")
        .map(|c| text(&c["message"]))
}

//! A fake kubelet: it registers a Node, keeps it alive by a Lease, and can set it NotReady and Ready again
//! with another boot id.
//!
//! It is cheap: one task and one small value per node; thousands share a client. Not here: what the Node says (`node_spec`), pods (`fake_pods`)
//! and the machine, if there is one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::Backoff;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::simulated::node_spec::{NodeSpec, Power, new_boot_id};
use crate::system::process::lock;
use crate::system::random::random;

/// The delays between retries of a failed request. They are short, because tests wait for them.
pub(crate) const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), last: Duration::from_secs(5) };
/// The time limit for a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);
/// How long [`FakeKubelet::settled`] waits for an API server that is unavailable.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// A running fake. Dropping it stops the heartbeats; the Node object stays, as after a crash.
pub struct FakeKubelet {
    name: String,
    client: Client,
    wanted: watch::Sender<Power>,
    /// The state that the API server was last told.
    told: watch::Receiver<Option<Power>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for FakeKubelet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeKubelet").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FakeKubelet {
    /// Registers the node and reports it Ready.
    ///
    /// # Errors
    /// The API server stays unavailable or refuses the Node.
    pub async fn start(client: Client, spec: NodeSpec) -> Result<Self> {
        let name = spec.name.clone();
        register(&client, &spec).await?;
        let power = Power::Up { boot_id: spec.boot_id.clone() };
        let (wanted, receiver) = watch::channel(power);
        let (told_tx, told) = watch::channel(None);
        let task = tokio::spawn(run(client.clone(), Arc::new(spec), receiver, told_tx));
        let fake = Self { name, client, wanted, told, task: Mutex::new(Some(task)) };
        fake.settled().await?;
        Ok(fake)
    }

    /// The Node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports the node Ready under this boot id, from now on.
    pub fn set_up(&self, boot_id: &str) {
        self.wanted.send_replace(Power::Up { boot_id: boot_id.to_owned() });
    }

    /// Reports the node NotReady and stops the heartbeats.
    pub fn set_down(&self, reason: &str) {
        self.wanted.send_replace(Power::Down { reason: reason.to_owned() });
    }

    /// Whether the node is up as far as the fake knows.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(&*self.wanted.borrow(), Power::Up { .. })
    }

    /// Waits until the API server has accepted the last state that was set.
    ///
    /// # Errors
    /// The API server does not accept it within a minute.
    pub async fn settled(&self) -> Result<()> {
        let wanted = self.wanted.borrow().clone();
        let mut told = self.told.clone();
        let reached = told.wait_for(|told| told.as_ref() == Some(&wanted));
        match tokio::time::timeout(SETTLE_LIMIT, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::Timeout {
                what: format!("the status of node {}", self.name),
                waited: SETTLE_LIMIT,
                detail: "the API server does not take it".to_owned(),
            }),
        }
    }

    /// Sets the Node NotReady for `down`, then Ready under a new boot id, which is returned.
    ///
    /// # Errors
    /// As [`FakeKubelet::settled`].
    pub async fn reboot(&self, down: Duration) -> Result<String> {
        self.set_down("the node is shutting down");
        self.settled().await?;
        tokio::time::sleep(down).await;
        let boot_id = new_boot_id();
        self.set_up(&boot_id);
        self.settled().await?;
        Ok(boot_id)
    }

    /// Stops it and deletes the Node.
    ///
    /// # Errors
    /// The Node cannot be deleted.
    pub async fn remove(self) -> Result<()> {
        self.abort();
        match Api::<Node>::all(self.client.clone()).delete(&self.name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Error::kube(format!("delete node {}", self.name))(error)),
        }
    }

    fn abort(&self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.abort();
    }
}

async fn register(client: &Client, spec: &NodeSpec) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.create(&PostParams::default(), &spec.object()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let labels = spec.object().metadata.labels;
            let patch = json!({"metadata": {"labels": labels, "annotations": spec.annotations}});
            let patched = nodes.patch(&spec.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            patched.map(drop).map_err(Error::kube(format!("label node {}", spec.name)))
        }
        Err(error) => Err(Error::kube(format!("create node {}", spec.name))(error)),
    }
}

async fn run(
    client: Client,
    spec: Arc<NodeSpec>,
    mut wanted: watch::Receiver<Power>,
    told: watch::Sender<Option<Power>>,
) {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut failures = 0_u32;
    // The start is spread over the period, so that thousands of nodes do not report at the same instant.
    let spread = |period: Duration| {
        let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        Instant::now() + Duration::from_millis(random() % millis)
    };
    let (mut next_beat, mut next_status) = (spread(spec.heartbeat), spread(spec.status_period));
    let mut lease = None;
    loop {
        let power = wanted.borrow_and_update().clone();
        let up = matches!(power, Power::Up { .. });
        let now = Instant::now();
        let news = told.borrow().as_ref() != Some(&power);
        let work = if news || up && next_status <= now {
            tell(&nodes, &spec, &power).await.map(|()| {
                told.send_replace(Some(power.clone()));
                // After a change the next report is at a random time, as with a kubelet: thousands of nodes that
                // changed together then report evenly spread.
                next_status = if news { spread(spec.status_period) } else { now + spec.status_period };
            })
        } else if up && next_beat <= now {
            next_beat = now + spec.heartbeat;
            renew(&leases, &spec, &mut lease).await
        } else {
            Ok(())
        };
        let pause = match work {
            Ok(()) if up => {
                failures = 0;
                next_beat.min(next_status).saturating_duration_since(Instant::now())
            }
            Ok(()) => {
                failures = 0;
                Duration::from_secs(3600)
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::debug!(node = %spec.name, failures, error = %client::chain(&error), "fake kubelet");
                BACKOFF.delay(failures.saturating_sub(1))
            }
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn tell(nodes: &Api<Node>, spec: &NodeSpec, power: &Power) -> Result<()> {
    let status = spec.status(power, &now());
    let request = PatchParams::default();
    let patch = Patch::Strategic(status);
    let request = nodes.patch_status(&spec.name, &request, &patch);
    within(request, || format!("update the status of node {}", spec.name)).await
}

/// Renews the Lease like a kubelet: one update on the resource version from the last answer. Without a version, or
/// after a failed update, it reads the Lease first.
async fn renew(leases: &Api<Lease>, node: &NodeSpec, known: &mut Option<String>) -> Result<()> {
    let name = node.name.as_str();
    let seconds = node.lease_seconds();
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = |version: Option<&str>| {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "resourceVersion": version},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": time},
        });
        serde_json::from_value::<Lease>(object).unwrap_or_default()
    };
    let params = PostParams::default();
    let version = known.take();
    let request = async {
        let answer = match version {
            Some(version) => leases.replace(name, &params, &lease(Some(&version))).await?,
            None => match leases.get_opt(name).await? {
                Some(have) => {
                    let version = have.metadata.resource_version;
                    leases.replace(name, &params, &lease(version.as_deref())).await?
                }
                None => leases.create(&params, &lease(None)).await?,
            },
        };
        *known = answer.metadata.resource_version;
        Ok(())
    };
    within(request, || format!("renew the lease of node {name}")).await
}

async fn within<T>(
    request: impl Future<Output = std::result::Result<T, kube::Error>>,
    step: impl Fn() -> String,
) -> Result<()> {
    match tokio::time::timeout(REQUEST_LIMIT, request).await {
        Ok(done) => done.map(drop).map_err(Error::kube(step())),
        Err(_) => Err(Error::Timeout { what: step(), waited: REQUEST_LIMIT, detail: "no answer".to_owned() }),
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

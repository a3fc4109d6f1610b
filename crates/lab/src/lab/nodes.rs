//! How the nodes of a lab are set up: machines boot and join, simulated nodes and fake ones are registered.
//!
//! Not here: what a node is (see `machine` and `simulated`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use crate::control_plane::{ControlPlane, client};
use crate::error::{Error, Result};
use crate::lab::spec::LabSpec;
use crate::lab::{Lab, LabNode};
use crate::machine::handle::NodeHandle;
use crate::machine::layout::Places;
use crate::machine::real_kubelet::{self as kubelet, KubeletSetup};
use crate::machine::real_node::{DaemonSetup, NODE_LIMIT, RealNode, RealNodeSpec};
use crate::progress::Step;
use crate::proxy::api_proxy::ApiProxy;
use crate::simulated::fake_kubelet::FakeKubelet;
use crate::simulated::fake_pods::FakePods;
use crate::simulated::node_spec::{NodeSpec, heartbeat};
use crate::simulated::{NodeFeeds, SimulatedNode, SimulatedSetup, boot_id};
use crate::system::folder::NodeKind;
use crate::system::network::Bridge;

/// How many fake kubelets are registered at the same time: with more, the API server only queues them.
const REGISTER_AT_ONCE: usize = 32;
/// The pause between two lines of progress about nodes.
const TELL: Duration = Duration::from_secs(10);

impl Lab {
    pub(super) async fn start_nodes(&mut self, step: &Step) -> Result<()> {
        let spec = &self.spec;
        let (base, kubelet) = (self.base.as_deref(), self.kubelet.as_ref());
        let names: Vec<(String, Roles)> = spec
            .node_names()
            .enumerate()
            .map(|(index, name)| (name, spec.layout.roles(spec.is_master(index))))
            .collect();
        let pods = &*self.pods.insert(FakePods::start(self.client.clone()));
        match (self.spec.kind, &self.bridge, base) {
            (NodeKind::Real, Some(bridge), Some(base)) => {
                for (index, (name, _)) in names.iter().enumerate() {
                    let places = self.spec.layout.places(self.spec.is_master(index));
                    let spec = RealNodeSpec {
                        index,
                        base: base.to_owned(),
                        daemon: daemon(&self.spec, &self.plane, name)?,
                        kubelet: kubelet
                            .map(|kubelet| kubelet.setup(&self.plane, bridge, name, (index, &places)))
                            .transpose()?,
                        files: self.spec.node_files.clone(),
                        enable: self.spec.node_units.clone(),
                        boot_args: self.spec.distribution.boot_args(),
                        ignition: None,
                        name: name.clone(),
                    };
                    let (node, _) = RealNode::boot(&spec, bridge, &self.folder).await?;
                    self.nodes.push(LabNode::Real(Box::new(node)));
                }
                let client = &self.client;
                let roles = names.iter().map(|(_, roles)| *roles);
                try_join_all(self.nodes.iter_mut().zip(roles).filter_map(|(node, roles)| match node {
                    LabNode::Real(node) => Some(async move {
                        match kubelet {
                            None => join_real(node, roles, client, pods).await,
                            Some(_) => label_real(node, roles, client).await,
                        }
                    }),
                    LabNode::Simulated(_) | LabNode::Fake(_) => None,
                }))
                .await?;
            }
            (kind, ..) => {
                let feeds = (kind == NodeKind::Simulated)
                    .then(|| &*self.feeds.insert(NodeFeeds::start(self.client.clone())));
                let setup = SimulatedSetup { down: Duration::from_millis(self.spec.reboot_millis) };
                let kubelets = client(&self.plane.identity("lab-kubelets", &["system:masters"])?).await?;
                let daemons = if self.spec.daemon_faults {
                    let proxy = &*self.daemon_faults.insert(ApiProxy::start(&self.plane).await?);
                    proxy.kubeconfig(&self.plane, "mco-daemons")?
                } else {
                    self.plane.identity("mco-daemons", &["system:masters"])?
                };
                let daemons = client(&daemons).await?;
                let heartbeat = heartbeat(names.len(), self.spec.controller_manager);
                let mut starting =
                    stream::iter(
                        names.iter().map(|(name, roles)| {
                            let mut spec = NodeSpec { heartbeat, ..labelled(name, roles) };
                            if feeds.is_some() {
                                spec.boot_id = boot_id(0);
                            }
                            let (kubelets, feed) = (kubelets.clone(), feeds.map(|feeds| feeds.feed(name)));
                            async move {
                                Ok::<_, Error>((Arc::new(FakeKubelet::start(kubelets, spec).await?), feed))
                            }
                        }),
                    )
                    .buffered(REGISTER_AT_ONCE);
                let mut told = Instant::now();
                while let Some(started) = starting.next().await {
                    let (kubelet, feed) = started?;
                    pods.add(Arc::clone(&kubelet));
                    self.nodes.push(match feed {
                        None => LabNode::Fake(kubelet),
                        Some(feed) => {
                            let handle = NodeHandle::new(self.folder.path(), kubelet.name(), kind);
                            let (daemons, setup) = (daemons.clone(), setup.clone());
                            LabNode::Simulated(SimulatedNode::start(
                                daemons,
                                &handle.root(),
                                kubelet,
                                feed,
                                setup,
                            )?)
                        }
                    });
                    if told.elapsed() >= TELL {
                        told = Instant::now();
                        step.so_far(self.nodes.len());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The daemon of the node with this name, with that node's credentials.
pub(super) fn daemon(spec: &LabSpec, plane: &ControlPlane, name: &str) -> Result<Option<DaemonSetup>> {
    let Some(program) = spec.mco_binary.as_ref().filter(|_| spec.daemon) else { return Ok(None) };
    Ok(Some(DaemonSetup {
        program: std::path::absolute(program).map_err(Error::io("find", program))?,
        kubeconfig: Some(plane.identity(&format!("system:node:{name}"), &["system:nodes"])?),
        args: spec.daemon_args.clone(),
    }))
}

/// The labels of a node's role, with their values.
type Roles = &'static [(&'static str, &'static str)];

/// The specification of a Node with these labels.
fn labelled(name: &str, roles: Roles) -> NodeSpec {
    roles.iter().fold(NodeSpec::new(name), |spec, (label, value)| spec.label(label, value))
}

/// Waits for a machine and registers its fake kubelet under the machine's real boot id.
async fn join_real(node: &mut RealNode, roles: Roles, client: &Client, pods: &FakePods) -> Result<()> {
    let boot_id = node.machine().wait_running(NODE_LIMIT).await?;
    let mut spec = labelled(node.name(), roles);
    spec.address = Some(node.address().to_string());
    spec.boot_id = boot_id;
    let kubelet = Arc::new(FakeKubelet::start(client.clone(), spec).await?);
    pods.add(Arc::clone(&kubelet));
    node.follow(kubelet);
    Ok(())
}

/// What all nodes with a real kubelet share.
pub(super) struct RealKubelet {
    pub(super) program: PathBuf,
    pub(super) archive: PathBuf,
}

impl RealKubelet {
    pub(super) fn setup(
        &self,
        plane: &ControlPlane,
        bridge: &Bridge,
        node: &str,
        (index, places): (usize, &Places),
    ) -> Result<KubeletSetup> {
        let path = plane.identity(&format!("system:node:{node}"), &["system:nodes"])?;
        let kubeconfig = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let address = bridge.node_address(index).map(|address| address.to_string()).unwrap_or_default();
        let (kubeconfig, ca) = (kubeconfig.as_str(), plane.ca());
        let kubelet = kubelet::Kubelet { node, address: &address, index, kubeconfig, ca: &ca };
        Ok(kubelet::setup(kubelet, places, &self.program, &self.archive))
    }
}

/// Waits for a machine whose kubelet registers it, labels the Node with its role (which a kubelet may not) and waits
/// for Ready.
async fn label_real(node: &RealNode, roles: Roles, client: &Client) -> Result<()> {
    node.machine().wait_running(NODE_LIMIT).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let start = Instant::now();
    let patch = Patch::Merge(
        serde_json::json!({"metadata": {"labels": roles.iter().copied().collect::<BTreeMap<_, _>>()}}),
    );
    loop {
        match nodes.patch(node.name(), &PatchParams::default(), &patch).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 && start.elapsed() < NODE_LIMIT => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(Error::kube(format!("label node {}", node.name()))(error)),
        }
    }
    node.handle().wait_ready(client, NODE_LIMIT).await
}

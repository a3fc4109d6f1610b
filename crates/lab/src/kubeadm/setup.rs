//! How a cluster is set up: its machines boot, `kubeadm init` runs on the first, and the others join.
//!
//! Not here: the configuration that kubeadm gets (see `config`), and when the cluster is ready.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::try_join_all;

use crate::control_plane::write_private;
use crate::error::{Error, Result};
use crate::kubeadm::POLL;
use crate::kubeadm::config::{self, JoinCredentials, Member};
use crate::kubeadm::images::Images;
use crate::kubeadm::node::{FOLDER, IMAGES_UNIT, NodePrograms, setup};
use crate::kubeadm::spec::KubeadmSpec;
use crate::machine::real_node::{RealNode, RealNodeSpec};
use crate::progress::Reporter;
use crate::system::folder::Folder;
use crate::system::network::Bridge;
use crate::system::process::tail;
use crate::system::random::random;

/// All machines boot at the same time: one node alone takes 3 s, with five others on two cores it takes half a minute.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// Loading half a gigabyte of images takes 9 s on an idle computer, with five other nodes ten times that.
const IMAGES_LIMIT: Duration = Duration::from_secs(300);
/// `init` and `join` take 7 to 17 s; kubeadm itself gives up on its own steps after four minutes each.
const KUBEADM_LIMIT: Duration = Duration::from_secs(480);
/// A short kubeadm command.
const SHORT_LIMIT: Duration = Duration::from_secs(60);
/// The path of the administrator's kubeconfig, as kubeadm writes it.
const ADMIN: &str = "/etc/kubernetes/admin.conf";
/// Without this flag kubeadm refuses a kernel with control groups of version 1.
const ALLOWED: &str = "--ignore-preflight-errors=SystemVerification";

/// What is known before the first machine boots.
pub(super) struct Setup {
    /// Every node's name and address.
    nodes: Vec<(String, IpAddr)>,
    control_planes: usize,
    /// The balancer's address.
    endpoint: IpAddr,
    certificate_key: String,
}

impl Setup {
    pub(super) fn new(spec: &KubeadmSpec, bridge: &Bridge) -> Result<Self> {
        let mut nodes = vec![];
        for (index, name) in spec.node_names().enumerate() {
            let address = bridge
                .node_address(index)
                .ok_or_else(|| Error::Options(format!("the lab's subnet has no address for node {name}")))?;
            nodes.push((name, address));
        }
        Ok(Self {
            nodes,
            control_planes: spec.control_planes,
            endpoint: bridge.gateway(),
            certificate_key: (0..4).map(|_| format!("{:016x}", random())).collect(),
        })
    }

    pub(super) fn control_planes(&self) -> &[(String, IpAddr)] {
        self.nodes.get(..self.control_planes).unwrap_or_default()
    }

    fn member(&self, index: usize) -> Result<Member<'_>> {
        match self.nodes.get(index) {
            Some((name, address)) => Ok(Member { name, address: *address }),
            None => Err(Error::Options(format!("the cluster has no node number {index}"))),
        }
    }

    /// Boots every machine and waits until all have loaded their images.
    pub(super) async fn boot(
        &self,
        programs: &NodePrograms,
        images: &Images,
        base: &Path,
        bridge: &Bridge,
        folder: &Folder,
        progress: &Reporter,
    ) -> Result<Vec<RealNode>> {
        let step =
            progress.begin(format!("booting {} machine(s) and loading their images", self.nodes.len()));
        let mut nodes = vec![];
        for (index, (name, _)) in self.nodes.iter().enumerate() {
            let own = if index < self.control_planes { images.control_plane.as_slice() } else { &[] };
            let archives: Vec<&Path> = images.every_node.iter().chain(own).map(PathBuf::as_path).collect();
            let spec = RealNodeSpec {
                name: name.clone(),
                index,
                base: base.to_owned(),
                daemon: None,
                kubelet: Some(setup(&self.nodes, index, programs, &archives)),
                files: vec![],
                enable: vec![],
                boot_args: vec![],
                ignition: None,
            };
            nodes.push(RealNode::boot(&spec, bridge, folder).await?.0);
        }
        try_join_all(nodes.iter().map(|node| async move {
            node.machine().wait_running(BOOT_LIMIT).await?;
            images_loaded(node).await
        }))
        .await?;
        step.done();
        Ok(nodes)
    }

    /// Runs `kubeadm init` on the first node. Returns the path of the administrator's kubeconfig.
    pub(super) async fn init(
        &self,
        nodes: &[RealNode],
        folder: &Folder,
        progress: &Reporter,
    ) -> Result<PathBuf> {
        let first = node_at(nodes, 0)?;
        let step = progress.begin(format!("kubeadm init on {}", first.name()));
        let text = config::init(self.member(0)?, self.endpoint, &self.certificate_key);
        let words = ["init", "--skip-phases=addon/coredns", "--upload-certs", ALLOWED];
        kubeadm(first, &text, &words).await?;
        let admin = first.handle().read_file(ADMIN).await?;
        let kubeconfig = folder.join("kubeconfig");
        write_private(&kubeconfig, &admin)?;
        step.done();
        Ok(kubeconfig)
    }

    /// Runs `kubeadm join` on all other nodes.
    pub(super) async fn join(&self, nodes: &[RealNode], progress: &Reporter) -> Result<()> {
        if nodes.len() < 2 {
            return Ok(());
        }
        let said = node_at(nodes, 0)?
            .handle()
            .run_within(
                ["kubeadm", "token", "create", "--kubeconfig", ADMIN, "--print-join-command"],
                SHORT_LIMIT,
            )
            .await?;
        let ticket = JoinCredentials::parse(&said)?;
        for index in 1..self.control_planes {
            let node = node_at(nodes, index)?;
            let step = progress.begin(format!("kubeadm join of {} as a control-plane node", node.name()));
            let key = Some(self.certificate_key.as_str());
            kubeadm(
                node,
                &config::join(self.member(index)?, self.endpoint, &ticket, key),
                &["join", ALLOWED],
            )
            .await?;
            step.done();
        }
        let workers = self.control_planes..nodes.len();
        if workers.is_empty() {
            return Ok(());
        }
        let step = progress.begin(format!("kubeadm join of {} worker(s)", workers.len()));
        try_join_all(workers.map(|index| {
            let ticket = &ticket;
            async move {
                let text = config::join(self.member(index)?, self.endpoint, ticket, None);
                kubeadm(node_at(nodes, index)?, &text, &["join", ALLOWED]).await
            }
        }))
        .await?;
        step.done();
        Ok(())
    }
}

fn node_at(nodes: &[RealNode], index: usize) -> Result<&RealNode> {
    nodes.get(index).ok_or_else(|| Error::Options(format!("the cluster has no node number {index}")))
}

/// Waits until the unit that loads images has succeeded.
async fn images_loaded(node: &RealNode) -> Result<()> {
    let start = Instant::now();
    loop {
        let show = ["systemctl", "show", "--property=ActiveState", "--value", IMAGES_UNIT];
        let state = node.machine().exec(show).await?.stdout.trim().to_owned();
        if state == "active" {
            return Ok(());
        }
        if state == "failed" || start.elapsed() > IMAGES_LIMIT {
            return Err(Error::OnNode {
                command: format!("systemctl start {IMAGES_UNIT}"),
                node: node.name().to_owned(),
                status: state,
                log: node.machine().console(),
                tail: node.handle().logs(IMAGES_UNIT).await.unwrap_or_default(),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Runs kubeadm with this configuration. Its output goes to a file of the node, which this computer can read too.
async fn kubeadm(node: &RealNode, config: &str, words: &[&str]) -> Result<()> {
    // The file is on the node's overlay, so this computer finds it in the upper folder.
    let log = node.dir().join("upper").join(FOLDER.trim_start_matches('/')).join("kubeadm.log");
    let (word, flags) = words.split_first().map_or(("", &[][..]), |(word, flags)| (*word, flags));
    let inside = format!("{FOLDER}/{word}.yaml");
    // Written through the machine's own root: a running overlay may not show what is written directly to its upper
    // folder.
    let root = node.handle().root_of_boot()?;
    let parent = root.join(FOLDER.trim_start_matches('/'));
    fs::create_dir_all(&parent).map_err(Error::io("create", &parent))?;
    write_private(&root.join(inside.trim_start_matches('/')), config)?;
    let command = format!("kubeadm {word} --config {inside} {}", flags.join(" "));
    let script = format!("exec {command} > {FOLDER}/kubeadm.log 2>&1");
    let failed = |status: String| Error::OnNode {
        command: command.clone(),
        node: node.name().to_owned(),
        status,
        tail: tail(&log),
        log: log.clone(),
    };
    match node.machine().exec_within(["sh", "-c", &script], KUBEADM_LIMIT).await {
        Ok(done) if done.code == 0 => Ok(()),
        Ok(done) => Err(failed(format!("exit status {}", done.code))),
        Err(Error::Timeout { waited, .. }) => Err(failed(format!("no end after {} s", waited.as_secs()))),
        Err(other) => Err(other),
    }
}

//! What a test, the demo or a person does with a node: read its files, run commands, cut its power.
//!
//! A handle knows only the node's folder, so it works in the process that runs the lab and in any other process of the
//! same user (after `lab up`). Not here: starting and stopping the machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::conditions::is_true;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use rustix::process::Signal;

use crate::error::{Error, FullLog, Result};
use crate::machine::nspawn::enter;
use crate::system::command::Output;
use crate::system::folder::{LEADER, NodeKind, ProcessKey, read_json};
use crate::system::polling::pause_after;

/// The time limit for a short command in a node.
const EXEC_LIMIT: Duration = Duration::from_secs(60);
/// A hundred megabytes are unpacked in a few seconds, but several nodes may do it at the same time on one disk.
const LOAD_LIMIT: Duration = Duration::from_secs(300);
/// The folder of a simulated node's root file system.
pub(crate) const SIMULATED_ROOT: &str = "root";

/// One node of a running lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHandle {
    name: String,
    kind: NodeKind,
    dir: PathBuf,
}

impl NodeHandle {
    /// The node `name` of the lab whose data folder is `lab`.
    #[must_use]
    pub fn new(lab: &Path, name: &str, kind: NodeKind) -> Self {
        Self::at(&lab.join("nodes").join(name), name, kind)
    }

    /// The node whose own folder is `dir`.
    pub(crate) fn at(dir: &Path, name: &str, kind: NodeKind) -> Self {
        Self { name: name.to_owned(), kind, dir: dir.to_owned() }
    }

    /// The Node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of the node.
    #[must_use]
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// A simulated node's root folder.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.dir.join(SIMULATED_ROOT)
    }

    /// A real node's root folder as this computer sees it, with everything that is mounted there. The path goes through
    /// the machine's PID 1, so it changes with a reboot.
    ///
    /// # Errors
    /// The node is not a real machine or is down.
    pub fn root_of_boot(&self) -> Result<PathBuf> {
        Ok(PathBuf::from(format!("/proc/{}/root", self.leader()?.pid)))
    }

    /// The log of the machine's console.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    fn leader(&self) -> Result<ProcessKey> {
        if self.kind != NodeKind::Real {
            return Err(Error::Options(format!(
                "node {} is not a real machine: no command can run in it",
                self.name
            )));
        }
        read_json::<ProcessKey>(&self.dir.join(LEADER))?
            .filter(|leader| leader.alive())
            .ok_or_else(|| Error::Options(format!("node {} is not up", self.name)))
    }

    /// Runs a command in the machine; the exit code is in the output.
    ///
    /// # Errors
    /// The node is not a real machine, is down, or the command takes more than a minute.
    pub async fn exec<I: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = I>) -> Result<Output> {
        enter(self.leader()?, command, EXEC_LIMIT).await
    }

    /// As [`NodeHandle::exec`], but fails if the command does; returns its output.
    ///
    /// # Errors
    /// As [`NodeHandle::exec`], and when the exit code is not 0.
    pub async fn run<I: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = I>) -> Result<String> {
        self.run_within(command, EXEC_LIMIT).await
    }

    /// As [`NodeHandle::run`] with another time limit.
    ///
    /// # Errors
    /// As [`NodeHandle::run`].
    pub async fn run_within<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<String> {
        let command: Vec<_> = command.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let shown: Vec<_> = command.iter().map(|arg| arg.to_string_lossy()).collect();
        let shown = format!("{} (in {})", shown.join(" "), self.name);
        let output = enter(self.leader()?, command, limit).await?;
        if output.code == 0 {
            return Ok(output.stdout);
        }
        Err(Error::Command {
            command: shown,
            status: format!("exit status {}", output.code),
            tail: output.stderr,
            whole: FullLog::default(),
        })
    }

    /// Loads an image's archive into the node's containerd, where the kubelet finds it.
    ///
    /// # Errors
    /// The node is not a real machine or is down, or containerd refuses the archive.
    pub async fn load_image(&self, archive: &Path) -> Result<()> {
        let there = Path::new("var/tmp").join(archive.file_name().unwrap_or_default());
        let copy = self.root_of_boot()?.join(&there);
        tokio::fs::copy(archive, &copy).await.map_err(Error::io("copy an image to", &copy))?;
        let inside = format!("/{}", there.display());
        self.run_within(["ctr", "-n", "k8s.io", "images", "import", &inside], LOAD_LIMIT).await?;
        tokio::fs::remove_file(&copy).await.map_err(Error::io("remove", &copy))
    }

    /// The text of a file on the node.
    ///
    /// # Errors
    /// There is no such file, or no machine to read from.
    pub async fn read_file(&self, path: &str) -> Result<String> {
        match self.kind {
            NodeKind::Real => self.run(["cat", "--", path]).await,
            NodeKind::Simulated => {
                let path = self.root().join(path.trim_start_matches('/'));
                tokio::fs::read_to_string(&path).await.map_err(Error::io("read", &path))
            }
            NodeKind::Fake => Err(Error::Options(format!("node {} has no files", self.name))),
        }
    }

    /// The boot id that the machine itself sees.
    ///
    /// # Errors
    /// The node is not a real machine or is down.
    pub async fn boot_id(&self) -> Result<String> {
        Ok(self.run(["cat", "/proc/sys/kernel/random/boot_id"]).await?.trim().to_owned())
    }

    /// The journal of one unit, of all boots, oldest line first.
    ///
    /// # Errors
    /// The node is not a real machine or is down.
    pub async fn logs(&self, unit: &str) -> Result<String> {
        self.run(["journalctl", "--no-pager", "--quiet", "-o", "short-iso", "-u", unit]).await
    }

    /// Cuts the machine's power.
    ///
    /// # Errors
    /// The node is not a real machine or is down.
    pub fn power_cut(&self) -> Result<()> {
        self.leader()?.signal(Signal::KILL);
        Ok(())
    }

    /// Waits until the Node is Ready; for a real machine, under its current boot id.
    ///
    /// # Errors
    /// It does not become Ready in time.
    pub async fn wait_ready(&self, client: &Client, limit: Duration) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        let start = Instant::now();
        let mut seen = "no Node object".to_owned();
        while start.elapsed() < limit {
            match nodes.get_opt(&self.name).await {
                Ok(Some(node)) => {
                    let (ready, boot_id) = ready(&node);
                    let real = match self.kind {
                        NodeKind::Real => self.boot_id().await.ok(),
                        NodeKind::Simulated | NodeKind::Fake => boot_id.clone(),
                    };
                    if ready && real == boot_id {
                        return Ok(());
                    }
                    seen = format!("Ready={ready}, boot id {boot_id:?}, the machine's own {real:?}");
                }
                Ok(None) => {}
                Err(error) => seen = error.to_string(),
            }
            tokio::time::sleep(pause_after(start.elapsed())).await;
        }
        Err(Error::Timeout { what: format!("node {}", self.name), waited: limit, detail: seen })
    }
}

fn ready(node: &Node) -> (bool, Option<String>) {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = is_true(conditions, "Ready");
    (ready, status.and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.clone()))
}

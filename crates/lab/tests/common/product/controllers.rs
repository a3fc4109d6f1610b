//! Controllers that a test starts, kills and restarts itself, and rollouts to disturb.
//!
//! Not here: the lab's own controller, which tests leave alone.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::{Cluster, is_done, machine_config, note, one_file, repository, tail, text};

/// A controller that the test started. The kernel kills it when this process ends.
#[derive(Debug)]
pub struct Controller {
    child: Child,
    log: PathBuf,
}

impl Controller {
    /// Starts one that runs without leader election.
    pub fn alone(cluster: &Cluster, kubeconfig: &Path) -> Self {
        Self::with(cluster, "mco-controller", kubeconfig, &["--leader-elect=false"], &[])
    }

    /// Starts one with additional arguments and environment variables; its log has this name.
    pub fn with(
        cluster: &Cluster,
        name: &str,
        kubeconfig: &Path,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let log = cluster.lab.folder().join("logs").join(format!("{name}.log"));
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(lab::built_mco().unwrap())
            .args(["controller", "start"])
            .args(args)
            .args(args.iter().all(|a| !a.starts_with("--metrics-listen")).then_some("--metrics-listen=off"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--templates")
            .arg(repository().join("templates"))
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(file))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().unwrap()).unwrap()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails if it has exited by itself.
    pub fn lives(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "the controller has ended\n{}", tail(&self.log));
    }

    /// Kills it.
    pub async fn kill(mut self) {
        self.lives();
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
        self.no_panic();
    }

    /// Sends it a signal, such as `STOP`.
    pub async fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().await;
        assert!(sent.unwrap().success());
    }

    /// Stops it as `kubectl delete pod` would, and waits until it has exited.
    pub async fn stop(mut self) {
        self.lives();
        self.signal("TERM").await;
        let ended = tokio::time::timeout(super::LIMIT, self.child.wait()).await;
        let ended = ended.expect("the controller does not end on SIGTERM").unwrap();
        assert!(ended.success(), "{ended}\n{}", tail(&self.log));
        self.no_panic();
    }

    fn no_panic(&self) {
        assert!(!self.log().contains("panicked at"), "{}", self.log());
    }
}

/// A config whose file needs a reboot, so that its rollout takes a while.
pub fn slow(name: &str, pool: &str) -> Value {
    machine_config(name, pool, one_file(&format!("/etc/{name}"), name))
}

/// The pool's nodes that have its current config, and those that are being updated to it.
pub async fn progress(cluster: &Cluster, pool: &str) -> (Vec<String>, Vec<String>) {
    let target = cluster.rendered(pool).await;
    let (mut done, mut moving) = (vec![], vec![]);
    for node in cluster.list("Node").await {
        let name = text(&node["metadata"]["name"]);
        if note(&node, "desiredConfig") != target {
            continue;
        }
        if is_done(&node) { done.push(name) } else { moving.push(name) }
    }
    (done, moving)
}

/// Applies a slow config to the pool and waits until `through` nodes have it and another one is being updated to it.
pub async fn middle(cluster: &Cluster, name: &str, pool: &str, through: usize) -> Vec<String> {
    let before = cluster.rendered(pool).await;
    cluster.create(slow(name, pool)).await;
    cluster
        .wait(&format!("the rollout of {name} is in its middle"), async || {
            if cluster.rendered(pool).await == before {
                return None;
            }
            let (done, moving) = progress(cluster, pool).await;
            (done.len() >= through && !moving.is_empty()).then_some(moving)
        })
        .await
}

/// Checks that each of these nodes has the file of each of these slow configs, is not cordoned, and has no taint of
/// ours.
pub async fn all_well(cluster: &Cluster, nodes: &[usize], names: &[&str]) {
    for i in nodes {
        for name in names {
            let found = cluster.lab.node(*i).read_file(&format!("/etc/{name}")).await;
            assert_eq!(found.unwrap(), *name, "worker-{i}");
        }
        let node = cluster.get("Node", &format!("worker-{i}")).await;
        assert_eq!(node["spec"].get("unschedulable"), None, "worker-{i} is left cordoned");
        assert!(
            !node["spec"]["taints"].to_string().contains("UpdateInProgress"),
            "{}",
            node["spec"]["taints"]
        );
    }
}

/// The library from Debian's package `faketime` that shifts a program's clock; `None`: skipped, with a message.
pub fn faketime() -> Option<String> {
    let arch = std::env::consts::ARCH;
    let path = format!("/usr/lib/{arch}-linux-gnu/faketime/libfaketimeMT.so.1");
    let there = Path::new(&path).exists();
    let why = (!there).then(|| format!("{path} is not there: apt-get install faketime"));
    lab::require(why).then_some(path)
}

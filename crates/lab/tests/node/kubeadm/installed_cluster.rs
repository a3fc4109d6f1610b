//! A kubeadm cluster with the product, as its administrator sees it: the guide's commands, objects, waiting.
//!
//! Not here: `product::Cluster`, where the lab runs the controller. Here everything runs in pods.

use crate::product::{self, Said, objects, repository};
use kube::Client;
use lab::{Kubeadm, PRODUCT_IMAGE, RealNode, Reporter, product_image};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::SemaphorePermit;

/// The time limit for a pool of three: three drains and reboots, beside another pool and on two cores.
pub(crate) const LIMIT: Duration = Duration::from_secs(720);
/// The time limit for a command that does not wait for machines.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// What the guide promises for the installation, up to the nodes' first config, if the image is on the nodes.
const INSTALLED: Duration = Duration::from_mins(5);
const POLL: Duration = Duration::from_millis(500);
/// The product's namespace.
pub(crate) const NAMESPACE: &str = "openshift-machine-config-operator";

pub(crate) struct InstalledCluster {
    pub(crate) cluster: Kubeadm,
    pub(crate) client: Client,
    /// Released after the cluster is gone: fields are dropped in this order.
    _place: SemaphorePermit<'static>,
}

impl InstalledCluster {
    /// Starts a cluster whose nodes have the image. `None`: skipped, with a message.
    pub(crate) async fn start(control_planes: usize, workers: usize) -> Option<Self> {
        if !lab::require_root() {
            return None;
        }
        let program = product::delivered()?;
        let place = product::place().await;
        let builder = Kubeadm::builder().control_planes(control_planes).workers(workers);
        let cluster = builder.progress(Reporter::stderr()).start().await.unwrap();
        let client = cluster.client();
        let folder = cluster.folder().make("image").unwrap();
        let archive = product_image(&program, &repository().join("templates"), &folder).await.unwrap();
        for node in cluster.handles() {
            node.load_image(&archive).await.unwrap();
        }
        Some(Self { cluster, client, _place: place })
    }

    pub(crate) async fn stop(self) {
        drop(self.client);
        self.cluster.stop().await;
    }

    /// Installs the product as the guide does, until every node has its pool's config.
    pub(crate) async fn install(&self) {
        let start = Instant::now();
        let args = ["install", "--image", PRODUCT_IMAGE];
        self.mco_within(&args, LIMIT).await;
        let installed = start.elapsed();
        eprintln!("`mco install` has ended after {:.0} s", installed.as_secs_f64());
        assert!(installed < INSTALLED, "the guide says five minutes, and it took {installed:?}");
        // Nodes may be rebooting by now, even the only control-plane node. So the command is repeated, as the guide
        // says.
        self.wait("`mco status --all` shows the nodes", async || {
            let said = self.run(lab::built_mco().unwrap(), &["status", "--all"], COMMAND_LIMIT).await;
            (said.code == 0 && said.out.contains("worker-0")).then_some(())
        })
        .await;
        self.until_updated().await;
        // Check that what the command reported is true.
        let pools = [("master", self.cluster.control_planes()), ("worker", self.cluster.workers())];
        for (pool, nodes) in pools {
            if objects::settled(&self.client, pool, nodes.len(), &[], &[]).await.is_none() {
                panic!(
                    "`mco status --until-updated` has ended, and pool {pool} is not:\n{}",
                    self.state().await
                );
            }
        }
        eprintln!(
            "installed, and every node in its pool's config, after {:.0} s",
            start.elapsed().as_secs_f64()
        );
    }

    /// Waits with the command of the guide.
    pub(crate) async fn until_updated(&self) {
        let args = ["status", "--watch", "--until-updated", "--timeout", "12m"];
        self.mco_within(&args, LIMIT + COMMAND_LIMIT).await;
    }

    async fn run(&self, program: impl AsRef<Path>, args: &[&str], limit: Duration) -> Said {
        let ended = self.ended(program, args, limit).await;
        ended.unwrap_or_else(|said| panic!("{args:?} does not end in {limit:?}; until now: {said:?}"))
    }

    /// Runs a program. An error: it did not end in time, with what it said until then.
    async fn ended(&self, program: impl AsRef<Path>, args: &[&str], limit: Duration) -> Result<Said, Said> {
        let mut command = tokio::process::Command::new(program.as_ref());
        command.args(args).env("KUBECONFIG", self.cluster.kubeconfig()).current_dir(repository());
        let [out, err] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        command.stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap());
        command.kill_on_drop(true).stdin(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let ended = tokio::time::timeout(limit, child.wait()).await;
        let said = |file: &tempfile::NamedTempFile| {
            String::from_utf8_lossy(&std::fs::read(file.path()).unwrap()).into_owned()
        };
        let (out, err) = (said(&out), said(&err));
        match ended {
            Ok(status) => Ok(Said { code: status.unwrap().code().unwrap_or(-1), out, err }),
            Err(_) => Err(Said { code: -1, out, err }),
        }
    }

    /// Runs a command of the guide, which must succeed. Returns its output.
    pub(crate) async fn mco(&self, args: &[&str]) -> String {
        self.mco_within(args, COMMAND_LIMIT).await
    }

    async fn mco_within(&self, args: &[&str], limit: Duration) -> String {
        match self.ended(lab::built_mco().unwrap(), args, limit).await {
            Ok(said) if said.code == 0 => said.out,
            ended => {
                eprintln!("{}", self.state().await);
                panic!("mco {args:?} (an error: it does not end in {limit:?}): {ended:?}");
            }
        }
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> String {
        let said = self.run(self.cluster.kubectl(), args, COMMAND_LIMIT).await;
        assert_eq!(said.code, 0, "kubectl {args:?}: {said:?}");
        said.out
    }

    /// Reads with kubectl. A node with an API server may be rebooting, so a read that fails is repeated.
    pub(crate) async fn read(&self, args: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let said = self.run(self.cluster.kubectl(), args, COMMAND_LIMIT).await;
            if said.code == 0 {
                return said.out;
            }
            assert!(start.elapsed() < COMMAND_LIMIT, "kubectl {args:?}: {said:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Makes the guide's change reboot its nodes, by a policy. By itself, its file takes effect without a reboot.
    async fn reboots_for_the_guides_change(&self) {
        let file = self.cluster.folder().join("reboot-policy.yaml");
        let policy = "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: cluster}\n\
            spec: {managementState: Managed, nodeDisruptionPolicy: {files: [{path: /etc/motd, actions: [{type: Reboot}]}]}}\n";
        std::fs::write(&file, policy).unwrap();
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file.to_string_lossy()]).await;
    }

    /// Applies the guide's MachineConfig for each of these roles, all at once: after the first one, control-plane nodes
    /// begin to reboot, and with them the API servers that the next command would ask. Returns their names.
    pub(crate) async fn apply_the_guides_change(&self, roles: &[&str]) -> Vec<String> {
        let guide = std::fs::read_to_string(repository().join("docs/getting-started/kubeadm.md")).unwrap();
        let yaml = guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let (mut names, mut files) = (vec![], vec![]);
        for role in roles {
            let name = format!("50-{role}-motd");
            let text =
                yaml.replace("50-worker-motd", &name).replace("role: worker", &format!("role: {role}"));
            assert!(text.contains(&name) && text.contains(&format!("role: {role}")), "{text}");
            let file = self.cluster.folder().join(format!("{name}.yaml"));
            std::fs::write(&file, text).unwrap();
            let file = file.to_string_lossy().into_owned();
            self.mco(&["lint", "-f", &file]).await;
            let cheap = self.mco(&["plan", "-f", &file]).await;
            let is_said =
                cheap.contains("disruption: none") || cheap.contains("MachineConfiguration cluster");
            assert!(is_said, "the guide says that it costs nothing: {cheap}");
            names.push(name);
            files.push(file);
        }
        self.reboots_for_the_guides_change().await;
        for file in &files {
            let dear = self.mco(&["plan", "-f", file]).await;
            assert!(dear.contains("by the policy for /etc/motd of MachineConfiguration cluster"), "{dear}");
        }
        let mut args = vec!["apply"];
        args.extend(files.iter().flat_map(|file| ["-f", file.as_str()]));
        self.kubectl(&args).await;
        names
    }

    /// Waits until the pool has a config with this MachineConfig, and reads the guide's file from its nodes.
    pub(crate) async fn changed(&self, pool: &str, nodes: &[&lab::RealNode], machine_config: &str) {
        let start = Instant::now();
        while objects::settled(&self.client, pool, nodes.len(), &[machine_config], &[]).await.is_none() {
            if start.elapsed() > LIMIT {
                eprintln!("{}", self.state().await);
                panic!("pool {pool} is not in {machine_config} after {LIMIT:?}");
            }
            tokio::time::sleep(POLL).await;
        }
        for node in nodes {
            let text = node.handle().read_file("/etc/motd").await.unwrap();
            assert!(text.contains("managed by the Machine Config Operator"), "{}: {text:?}", node.name());
        }
    }

    /// Polls until `look` returns something.
    pub(crate) async fn wait<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            if start.elapsed() > COMMAND_LIMIT {
                eprintln!("{}", self.state().await);
                panic!("not within {COMMAND_LIMIT:?}: {what}");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Objects of a kind in the product's namespace.
    pub(crate) async fn ours(&self, kind: &str) -> Vec<Value> {
        let text = self.read(&["-n", NAMESPACE, "get", kind, "-o", "json"]).await;
        let list: Value = serde_json::from_str(&text).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Checks that no container of the product has crashed or panicked.
    pub(crate) async fn no_panic(&self) {
        for pod in self.ours("pods").await {
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            let log = self.read(&["-n", NAMESPACE, "logs", &name, "--tail=-1"]).await;
            assert!(!log.contains("panicked at"), "{name}: {log}");
            for container in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
                let last = &container["lastState"]["terminated"];
                // 134 is SIGABRT, 139 SIGSEGV. 137 and 143 come from the reboots.
                assert!(
                    ![134, 139].contains(&last["exitCode"].as_i64().unwrap_or_default()),
                    "{name}: {last}"
                );
            }
        }
    }

    /// Removes the installation. The agents run in pods, and have to restore the hosts before they go.
    pub(crate) async fn uninstall(&self, nodes: &[&RealNode]) {
        let start = Instant::now();
        // Before the time limit, so that the command itself names the node that it waits for.
        let args = ["uninstall", "--yes", "--restore-hosts", "--restore-timeout=8m"];
        let said = self.mco_within(&args, LIMIT).await;
        assert!(said.ends_with("uninstalled; hosts have their own files again\n"), "{said}");
        eprintln!("hosts are back and the installation is gone after {:.0} s", start.elapsed().as_secs_f64());
        for node in nodes {
            let motd = node.handle().read_file("/etc/motd").await.unwrap_or_default();
            assert!(!motd.contains("managed by the Machine Config Operator"), "{}: {motd}", node.name());
            let look = ["sh", "-c", "ls /etc/systemd/system | grep machine-config-daemon || :"];
            let units = node.handle().run(look).await;
            assert_eq!(units.unwrap().trim(), "", "{} keeps units of the agent", node.name());
        }
        let left = self.read(&["get", "crds", "-o", "name"]).await;
        assert!(!left.contains("machineconfig"), "{left}");
        self.wait("the namespace and its pods are gone", async || {
            let args = ["get", "namespaces", NAMESPACE, "--ignore-not-found", "-o", "name"];
            self.read(&args).await.trim().is_empty().then_some(())
        })
        .await;
    }

    /// Everything that helps to see why a test waits.
    pub(crate) async fn state(&self) -> String {
        let mut out = objects::state(&self.client).await;
        let commands: [&[&str]; 5] = [
            &["get", "nodes", "-o", "wide"],
            &["get", "pods", "-A", "-o", "wide"],
            &["get", "events", "-A", "--sort-by=.lastTimestamp"],
            &["-n", NAMESPACE, "logs", "deployment/machine-config-controller", "--tail=40"],
            &["-n", NAMESPACE, "logs", "-l", "k8s-app=machine-config-daemon", "--prefix", "--tail=60"],
        ];
        for args in commands {
            let said = self.run(self.cluster.kubectl(), args, COMMAND_LIMIT).await;
            let lines: Vec<&str> = said.out.lines().collect();
            out += &format!(
                "$ kubectl {}\n{}\n{}",
                args.join(" "),
                lines[lines.len().saturating_sub(60)..].join("\n"),
                said.err
            );
        }
        out
    }
}

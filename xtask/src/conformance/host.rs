//! What was recorded of a host, on machines that boot: chains of configs, one machine for each.
//!
//! Flow: machines like the recorded ones start → the comparing program leads each through a chain, and looks at its root folder by a
//! link that follows its boots. Not here: the comparison.

use super::{Conformance, Place, status, with_lab};
use crate::recorded_day;
use anyhow::{Context, bail};
use api::names::{annotation, state};
use futures::future::join_all;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use lab::{Lab, LabBuilder, NodeHandle, Reporter};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, SystemTime};

/// The config that a node is in before its chain begins.
const EMPTY: &str = "rendered-worker-a0";
/// How often the path of a node's root folder is checked: much more often than the time between a boot and the agent's
/// first action.
const FOLLOW: Duration = Duration::from_millis(20);
/// The time limit for one step of a chain: a reboot, on a computer that boots several machines at the same time.
const STEP_LIMIT_S: &str = "180";

/// What undoes a change on trial that ends in emergency mode.
const EMERGENCY_UNIT: &str = "machine-config-daemon-emergency.service";
const EMERGENCY_TEXT: &str = include_str!("../../../deploy/systemd/machine-config-daemon-emergency.service");

/// `/etc/shadow` counts in days since 1970, in UTC.
const SECONDS_PER_DAY: u64 = 86_400;

impl Place<'_> {
    /// Runs every chain on a fresh machine, several machines at a time.
    pub(super) async fn host(&self, a: &Conformance) -> anyhow::Result<bool> {
        println!("host:");
        let mut chains = vec![];
        if let Some(seed) = a.random {
            chains.extend((0..u32::from(a.jobs)).map(|i| Chain::random(seed.wrapping_add(i))));
        } else {
            for entry in std::fs::read_dir(self.cases.join("host"))? {
                let chain = Chain::read(&entry?.path())?;
                if a.only.is_empty() || a.only.contains(&chain.name) {
                    chains.push(chain);
                }
            }
        }
        if chains.is_empty() {
            bail!("no chain of that name in {}", self.cases.join("host").display());
        }
        // The longest chains first, so that no long one is left to run alone at the end.
        chains.sort_by(|a, b| b.reboots.cmp(&a.reboots).then_with(|| a.name.cmp(&b.name)));
        let mut good = true;
        for some in chains.chunks(usize::from(a.jobs)) {
            good &= with_lab(self.machines(some.len()), async |lab| {
                prepare(lab).await?;
                let led = some.iter().enumerate().map(async |(i, chain)| {
                    let (ok, text) = match self.lead(lab, i, chain, a).await {
                        Ok(done) => done,
                        Err(e) => (false, format!("{e:#}")),
                    };
                    println!("{}:", chain.name);
                    text.lines().for_each(|line| println!("  {line}"));
                    ok
                });
                Ok(join_all(led).await.into_iter().all(|ok| ok))
            })
            .await?;
        }
        Ok(good)
    }

    /// Has the tests of `host` take a folder through a random chain and record the result.
    async fn random(&self, seed: u32, steps: u8, machine: &Path) -> anyhow::Result<PathBuf> {
        let folder = self.root.join("target/conformance");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("random-{seed}.json"));
        let mut cargo = Program::new(env!("CARGO"));
        cargo
            .args(["test", "-q", "-p", "host", "--test", "chains", "--", "--ignored", "--exact"])
            .arg("random_chains::a_random_chain_is_recorded_as_a_case")
            .env("MCO_CHAIN_FILE", &file)
            .env("MCO_CHAIN_ROOT", machine)
            .env("MCO_CHAIN_FROM", seed.to_string())
            .env("MCO_CHAIN_STEPS", steps.to_string());
        let (ok, text) = status(cargo).await?;
        if !ok {
            bail!("no random chain: {text}");
        }
        Ok(file)
    }

    /// A recorded chain as it would have been recorded on this machine today.
    fn for_today(&self, chain: &Chain, machine: &Path) -> anyhow::Result<PathBuf> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut object: serde_json::Value = serde_json::from_str(&read(&chain.path)?)?;
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() / SECONDS_PER_DAY;
        recorded_day::restate(&mut object, &read(&machine.join("etc/shadow"))?, day.try_into()?);
        let folder = self.root.join("target/conformance");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.json", chain.name));
        std::fs::write(&path, object.to_string())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Machines like the recorded ones, with fake services that log their starts and reloads, and with a counter of
    /// boots.
    fn machines(&self, nodes: usize) -> LabBuilder {
        let mut builder = Lab::builder()
            .nodes(nodes)
            .real()
            .controller_manager(false)
            .scheduler(false)
            .mco_binary(&self.mco)
            .node_file("/etc/systemd/system/boots.service", 0o644, BOOTS)
            .node_unit("boots.service")
            .node_file(&format!("/etc/systemd/system/{EMERGENCY_UNIT}"), 0o644, EMERGENCY_TEXT)
            .progress(Reporter::stderr());
        for name in ["crio", "kubelet", "chronyd"] {
            let unit = format!("{name}.service");
            builder = builder
                .node_file(&format!("/etc/systemd/system/{unit}"), 0o644, fake_unit(name))
                .node_unit(unit);
        }
        builder
    }

    /// Runs one chain on one machine. Returns whether everything is as recorded, and what the program printed.
    async fn lead(
        &self,
        lab: &Lab,
        index: usize,
        chain: &Chain,
        a: &Conformance,
    ) -> anyhow::Result<(bool, String)> {
        let node = lab.node(index);
        let link = lab.folder().join(format!("nodes/{}/now", node.name()));
        let mut check = self.check("host");
        check.arg("--kubeconfig").arg(lab.kubeconfig());
        check.args(["--node", node.name(), "--limit-s", STEP_LIMIT_S, "--root"]).arg(&link);
        let mut init = Program::new(check.get_program());
        init.args(check.get_args()).arg("--init");
        let (ok, text) = status(init).await?;
        if !ok {
            bail!("--init: {text}");
        }
        // The lab has already created the Node, so the annotations that `--init` writes are added to it.
        let notes = [
            (annotation::CURRENT_CONFIG, EMPTY),
            (annotation::DESIRED_CONFIG, EMPTY),
            (annotation::STATE, state::DONE),
        ];
        let notes: serde_json::Map<_, _> = notes.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        let patch = Patch::Merge(json!({"metadata": {"annotations": notes}}));
        let nodes: Api<api::k8s::Node> = Api::all(lab.client());
        nodes.patch(node.name(), &PatchParams::default(), &patch).await?;
        // The lab masks getty, because its machines have no consoles. On the recorded machines it was not masked. The other unit comes
        // with the agent's package; an agent that does not find it installs it before the first change on trial.
        let units = format!(
            "rm -f /etc/systemd/system/getty@.service && systemctl daemon-reload && systemctl --quiet enable {EMERGENCY_UNIT}"
        );
        node.run(["sh", "-c", &units]).await?;
        point(&node, &link)?;
        let path = match chain.seed {
            Some(seed) => self.random(seed, a.steps, &node.root_of_boot()?).await?,
            None => self.for_today(chain, &node.root_of_boot()?)?,
        };
        check.arg("--accept").arg(self.cases.join("accept-host.txt")).arg(path);
        if a.verbose {
            check.arg("-v");
        }
        tokio::select! {
            outcome = status(check) => outcome,
            never = follow(&node, &link) => never,
        }
    }
}

/// A chain: a recorded one, or a random one that is still to be made.
struct Chain {
    name: String,
    path: PathBuf,
    reboots: usize,
    seed: Option<u32>,
}

impl Chain {
    fn random(seed: u32) -> Self {
        Self { name: format!("random-{seed}"), path: PathBuf::new(), reboots: 0, seed: Some(seed) }
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let chain: serde_json::Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        let steps = chain.get("steps").and_then(serde_json::Value::as_array).map_or(&[][..], Vec::as_slice);
        let reboots = steps.iter().filter(|s| s.pointer("/expect/reboot") == Some(&json!(true))).count();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, path: path.to_owned(), reboots, seed: None })
    }
}

/// Counts boots. It runs before anything that may cause the next one.
const BOOTS: &str = "[Unit]\nDescription=Counts the boots of this machine\n\
    Before=machine-config-daemon.service\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id >> /var/boots'\n\n\
    [Install]\nWantedBy=multi-user.target\n";

/// A service that logs its starts and reloads.
fn fake_unit(name: &str) -> String {
    let log = |what: &str| format!("/bin/sh -c 'echo {name} {what} >> /var/svc.log'");
    format!(
        "[Unit]\nDescription=Fake {name}\nBefore=machine-config-daemon.service\n\n[Service]\nType=oneshot\n\
         RemainAfterExit=yes\nExecStart={}\nExecReload={}\n\n[Install]\nWantedBy=multi-user.target\n",
        log("start"),
        log("reload")
    )
}

/// Installs our CRDs, and the disruption policies that the recorded cluster had in addition to the defaults.
async fn prepare(lab: &Lab) -> anyhow::Result<()> {
    lab.mco(["install", "--kubeconfig", &lab.kubeconfig().to_string_lossy()]).await?;
    let action = |kind: &str, unit: &str| json!({"type": kind, kind.to_lowercase(): {"serviceName": unit}});
    let plain = |kind: &str| json!({"type": kind});
    let file = |path: &str, actions: &[serde_json::Value]| json!({"path": path, "actions": actions});
    let object = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"managementState": "Managed", "nodeDisruptionPolicy": {
            "files": [
                file("/etc/chrony.conf", &[action("Restart", "chronyd.service")]),
                file("/etc/quiet", &[plain("None")]),
                file("/etc/two.conf", &[action("Reload", "crio.service"), action("Restart", "chronyd.service")]),
                file("/etc/drain.conf", &[plain("Drain")]),
                file("/etc/reboot.conf", &[plain("Reboot")]),
            ],
            "units": [{"name": "quiet.service", "actions": [plain("None")]}],
        }},
    });
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("operator.openshift.io", "v1", "MachineConfiguration"),
        "machineconfigurations",
    );
    let api: Api<DynamicObject> = Api::all_with(lab.client(), &kind);
    api.patch("cluster", &PatchParams::apply("conformance").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

/// Points a link at the root folder of the machine's current boot.
fn point(node: &NodeHandle, link: &Path) -> anyhow::Result<()> {
    let Ok(root) = node.root_of_boot() else { return Ok(()) };
    if std::fs::read_link(link).ok().as_ref() != Some(&root) {
        let new = link.with_extension("new");
        let _absent = std::fs::remove_file(&new);
        std::os::unix::fs::symlink(root, &new)?;
        std::fs::rename(&new, link)?;
    }
    Ok(())
}

/// Keeps the link pointed at the root folder of the current boot. Returns only on an error.
async fn follow<T>(node: &NodeHandle, link: &Path) -> anyhow::Result<T> {
    loop {
        point(node, link)?;
        tokio::time::sleep(FOLLOW).await;
    }
}

//! A node of a lab that is a whole virtual machine: its Node object, and our daemon as a service in the machine.
//!
//! Flow: the machine boots → the daemon's program, credentials and units are copied into it → a fake kubelet
//! registers the Node. From then on, the Node is Ready under the machine's boot id while the machine's unit `kubelet.service`
//! runs.
//!
//! Not here: the machine (`vm`). Such a node is not in [`Lab::nodes`]: the caller holds its machine.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::lab::nodes::daemon;
use crate::machine::real_node::{
    DAEMON_KUBECONFIG, DAEMON_PROGRAM, DAEMON_UNIT, RECOVER_TEXT, RECOVER_UNIT, daemon_unit,
};
use crate::simulated::fake_kubelet::FakeKubelet;
use crate::simulated::fake_pods::FakePods;
use crate::simulated::node_spec::NodeSpec;
use crate::vm::{VirtualMachine, VmImage};

/// The pause between two looks at the machine: shorter than a reboot.
const LOOK: Duration = Duration::from_secs(1);
/// Longer than any test: how long one question to the machine may be without an answer.
const FOLLOWED: Duration = Duration::from_hours(2);
/// Ends with the unit's process or with the machine; process 0 means that the unit has none. The exit code is 0 if another process
/// has taken its place. It costs an emulated processor next to nothing, while each new connection to the ssh server is a process
/// that reads its libraries first.
const RUNS: &str = "pid=$(systemctl show -P MainPID kubelet.service) && [ \"$pid\" != 0 ] && tail --pid=\"$pid\" -f /dev/null; \
    systemctl -q is-active kubelet.service";
/// Ends with 0 when the unit runs.
const COMES_UP: &str = "until systemctl -q is-active kubelet.service; do sleep 2; done";
const UNITS: &str = "/etc/systemd/system";

/// A node that is a virtual machine. Dropping it ends the machine.
#[derive(Debug)]
pub struct VirtualNode {
    vm: Arc<VirtualMachine>,
    follower: JoinHandle<()>,
}

impl VirtualNode {
    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &VirtualMachine {
        &self.vm
    }
}

impl Drop for VirtualNode {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Lab {
    /// Boots a virtual machine and makes it a worker of this lab. Its image must carry `mco` (see [`VmImage::with_program`]) and
    /// have a unit `kubelet.service`.
    ///
    /// # Errors
    /// The lab has no `mco` program, or the machine does not boot.
    pub async fn virtual_node(&mut self, name: &str, image: &VmImage) -> Result<VirtualNode> {
        let setup = daemon(&self.spec, &self.plane, name)?
            .ok_or_else(|| Error::Options("a virtual node needs `.mco_binary(path)`".to_owned()))?;
        let image = image.clone().with_program(&setup.program);
        let vm = Arc::new(VirtualMachine::start(name, &image, Arc::clone(&self.folder)).await?);
        vm.unload(DAEMON_PROGRAM, 0o755).await?;
        let kubeconfig = self.plane.identity_in_vm(&format!("system:node:{name}"), &["system:nodes"])?;
        vm.run(["mkdir", "-p", "/etc/mco-lab"]).await?;
        vm.copy_in(&kubeconfig, DAEMON_KUBECONFIG, 0o600).await?;
        let named = ["--kubeconfig", DAEMON_KUBECONFIG, "--node-name", name].map(str::to_owned);
        let args = [named.to_vec(), setup.args].concat();
        vm.write(&format!("{UNITS}/{RECOVER_UNIT}"), RECOVER_TEXT).await?;
        vm.write(&format!("{UNITS}/{DAEMON_UNIT}"), &daemon_unit(&args)).await?;
        let boot_id = vm.boot_id().await?;
        // The taint keeps pods on the nodes with a real kubelet: a pod on this node would only seem to run.
        let away = self
            .kubelet
            .iter()
            .map(|_| ("lab.invalid/virtual".to_owned(), String::new(), "NoSchedule".to_owned()));
        let spec = NodeSpec { boot_id, taints: away.collect(), ..NodeSpec::worker(name) };
        let kubelet = Arc::new(FakeKubelet::start(self.client.clone(), spec).await?);
        let client = self.client.clone();
        self.pods.get_or_insert_with(|| FakePods::start(client)).add(Arc::clone(&kubelet));
        vm.run(["systemctl", "enable", RECOVER_UNIT]).await?;
        vm.run(["systemctl", "enable", "--now", DAEMON_UNIT]).await?;
        vm.run(["sync"]).await?;
        let follower = tokio::spawn(follow(Arc::clone(&vm), kubelet));
        Ok(VirtualNode { vm, follower })
    }
}

/// Sets the Node Ready or NotReady as the machine and its kubelet come and go.
async fn follow(vm: Arc<VirtualMachine>, kubelet: Arc<FakeKubelet>) {
    loop {
        if kubelet.is_up() {
            while says_yes(&vm, RUNS).await {
                tokio::time::sleep(LOOK).await;
            }
            kubelet.set_down("the machine, or its kubelet, does not run");
        }
        match vm.wait_booted(None).await {
            Ok(boot_id) if says_yes(&vm, COMES_UP).await => kubelet.set_up(&boot_id),
            // It has no power, or went down before its kubelet came up.
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Whether the script ends with 0. It does not when the machine ends first.
async fn says_yes(vm: &VirtualMachine, script: &str) -> bool {
    vm.exec_within(["sh", "-c", script], FOLLOWED).await.is_ok_and(|said| said.code == 0)
}

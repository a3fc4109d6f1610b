//! A real node: a machine that boots from the shared base root file system, with its own host name, address and the
//! daemon as a systemd unit, and its Node object.
//!
//! Flow: [`prepare`] writes the files of this node into its upper folder → the machine boots → the kubelet (a fake one
//! here, or the real one in `real_kubelet`) registers it.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::machine::first_boot::IgnitionLog;
use crate::machine::handle::NodeHandle;
use crate::machine::node_file::NodeFile;
use crate::machine::real_kubelet::KubeletSetup;
use crate::machine::{Machine, MachineSpec, MachineState};
use crate::simulated::fake_kubelet::FakeKubelet;
use crate::simulated::node_spec::new_boot_id;
use crate::system::folder::{Folder, NodeKind};
use crate::system::network::Bridge;

/// The path of the daemon's program in the node.
pub(crate) const DAEMON_PROGRAM: &str = "/usr/local/bin/mco";
/// The path of the daemon's kubeconfig in the node.
pub(crate) const DAEMON_KUBECONFIG: &str = "/etc/mco-lab/daemon.kubeconfig";
/// The daemon's unit.
pub const DAEMON_UNIT: &str = "machine-config-daemon.service";
/// The unit that finishes or undoes an interrupted change at boot, before the kubelet.
pub const RECOVER_UNIT: &str = "machine-config-daemon-recover.service";

/// The unit that completes a first boot, before the kubelet.
pub const FIRSTBOOT_UNIT: &str = "machine-config-daemon-firstboot.service";
/// The texts of these units, as they are delivered.
const DAEMON_TEXT: &str = include_str!("../../../../deploy/systemd/machine-config-daemon.service");
pub(crate) const RECOVER_TEXT: &str =
    include_str!("../../../../deploy/systemd/machine-config-daemon-recover.service");
const FIRSTBOOT_TEXT: &str =
    include_str!("../../../../deploy/systemd/machine-config-daemon-firstboot.service");

/// systemd prints the status of each unit to a terminal that nobody reads. When its buffer is full, PID 1 blocks on the
/// write, and the machine stays half shut down for minutes.
const SILENT_CONSOLE: &str = "[Manager]\nShowStatus=no\n";

/// The daemon on a node.
#[derive(Debug, Clone)]
pub(crate) struct DaemonSetup {
    /// The `mco` program on this computer; it appears read-only in the node.
    pub(crate) program: PathBuf,
    /// Its kubeconfig. `None`: it finds the kubelet's.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Additional arguments for `mco daemon start`.
    pub(crate) args: Vec<String>,
}

/// The parameters of a real node.
#[derive(Debug, Clone)]
pub(crate) struct RealNodeSpec {
    pub(crate) name: String,
    pub(crate) index: usize,
    pub(crate) base: PathBuf,
    pub(crate) daemon: Option<DaemonSetup>,
    /// What a real kubelet needs; `None` with a fake one.
    pub(crate) kubelet: Option<KubeletSetup>,
    /// Additional files.
    pub(crate) files: Vec<NodeFile>,
    /// Additional units that are started at boot.
    pub(crate) enable: Vec<String>,
    /// Arguments for its systemd.
    pub(crate) boot_args: Vec<String>,
    /// Ignition's program, and the config with which it sets up the machine before its first boot.
    pub(crate) ignition: Option<(PathBuf, String)>,
}

/// A running real node.
#[derive(Debug)]
pub struct RealNode {
    name: String,
    address: IpAddr,
    dir: PathBuf,
    machine: Machine,
    follower: Option<JoinHandle<()>>,
    kubelet: Option<Arc<FakeKubelet>>,
}

impl RealNode {
    /// Prepares and boots it. Returns Ignition's output, if it was used.
    pub(crate) async fn boot(
        spec: &RealNodeSpec,
        bridge: &Bridge,
        folder: &Folder,
    ) -> Result<(Self, Option<IgnitionLog>)> {
        let address = bridge
            .node_address(spec.index)
            .ok_or_else(|| Error::Options("a lab's subnet has room for 245 real nodes".to_owned()))?;
        let dir = folder.make(Path::new("nodes").join(&spec.name))?;
        let kubelet = spec.kubelet.as_ref();
        let mut binds = kubelet.map(|kubelet| kubelet.binds.clone()).unwrap_or_default();
        binds
            .extend(spec.daemon.iter().map(|daemon| (daemon.program.clone(), PathBuf::from(DAEMON_PROGRAM))));
        prepare(&dir.join("upper"), spec, address, bridge)?;
        let said = match &spec.ignition {
            Some((program, config)) => {
                Some(crate::machine::first_boot::provision(program, config, &spec.base, &dir).await?)
            }
            None => None,
        };
        let machine = Machine::start(
            MachineSpec {
                hostname: spec.name.clone(),
                machine: bridge.machine_name(spec.index),
                bridge: bridge.name().to_owned(),
                base: spec.base.clone(),
                dir: dir.clone(),
                binds,
                own_folders: kubelet.map(|kubelet| kubelet.own_folders.clone()).unwrap_or_default(),
                boot_args: spec.boot_args.clone(),
            },
            folder,
        )?;
        let node = Self { name: spec.name.clone(), address, dir, machine, follower: None, kubelet: None };
        Ok((node, said))
    }

    /// Keeps the Node of a fake kubelet in step with the machine: NotReady when it goes down, Ready under its new
    /// boot id.
    pub(crate) fn follow(&mut self, kubelet: Arc<FakeKubelet>) {
        self.kubelet = Some(Arc::clone(&kubelet));
        let mut state = self.machine.watch();
        self.follower = Some(tokio::spawn(async move {
            loop {
                let now = state.borrow_and_update().clone();
                match now {
                    MachineState::Running { boot_id, .. } => kubelet.set_up(&boot_id),
                    MachineState::Booting { .. } => kubelet.set_down("the machine is booting"),
                    MachineState::Off { reason } => {
                        kubelet.set_down(&format!("the machine is off: {reason}"));
                    }
                }
                if state.changed().await.is_err() {
                    return;
                }
            }
        }));
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the lab's bridge.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The node as tests and the demo see it.
    #[must_use]
    pub fn handle(&self) -> NodeHandle {
        NodeHandle::at(&self.dir, &self.name, NodeKind::Real)
    }

    /// The machine, for its state, for commands in it, and for its power.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Its fake kubelet, unless the kubelet is real.
    #[must_use]
    pub fn kubelet(&self) -> Option<&FakeKubelet> {
        self.kubelet.as_deref()
    }

    /// The node's folder on this computer (console log, overlay).
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops it and waits.
    pub(crate) async fn stop(&self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
        self.machine.stop().await;
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
    }
}

/// Writes the files by which this node differs from the base root file system.
fn prepare(upper: &Path, spec: &RealNodeSpec, address: IpAddr, bridge: &Bridge) -> Result<()> {
    let name = &spec.name;
    let gateway = bridge.gateway();
    let mut files = vec![
        NodeFile::new("etc/hostname", 0o644, format!("{name}\n")),
        NodeFile::new("etc/hosts", 0o644, format!("127.0.0.1 localhost\n{address} {name}\n")),
        NodeFile::new("etc/machine-id", 0o444, format!("{}\n", new_boot_id().replace('-', ""))),
        NodeFile::new("etc/systemd/system.conf.d/20-console.conf", 0o644, SILENT_CONSOLE),
        NodeFile::new(
            "etc/systemd/system/lab-network.service",
            0o644,
            format!(
                "[Unit]\nDescription=Address of this lab node\nDefaultDependencies=no\nBefore=network.target\n\
                 Wants=network.target\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                 ExecStart=/bin/ip address replace {address}/24 dev host0\nExecStart=/bin/ip link set host0 up\n\
                 ExecStart=/bin/ip route replace default via {gateway}\n\n[Install]\nWantedBy=multi-user.target\n"
            ),
        ),
    ];
    let mut enable = vec!["lab-network.service".to_owned()];
    if let Some(daemon) = &spec.daemon {
        let mut args = daemon.args.clone();
        if let Some(kubeconfig) = &daemon.kubeconfig {
            let text = fs::read(kubeconfig).map_err(Error::io("read", kubeconfig))?;
            files.push(NodeFile::new(DAEMON_KUBECONFIG.trim_start_matches('/'), 0o600, text));
            args.splice(0..0, ["--kubeconfig".to_owned(), DAEMON_KUBECONFIG.to_owned()]);
        }
        let units = "etc/systemd/system";
        files.push(NodeFile::new(&format!("{units}/{DAEMON_UNIT}"), 0o644, daemon_unit(&args)));
        enable.push(DAEMON_UNIT.to_owned());
        files.push(NodeFile::new(&format!("{units}/{RECOVER_UNIT}"), 0o644, RECOVER_TEXT));
        files.push(NodeFile::new(&format!("{units}/{FIRSTBOOT_UNIT}"), 0o644, FIRSTBOOT_TEXT));
        enable.push(FIRSTBOOT_UNIT.to_owned());
        enable.push(RECOVER_UNIT.to_owned());
    }
    if let Some(kubelet) = &spec.kubelet {
        files.extend(kubelet.files.iter().cloned());
        enable.extend(kubelet.enable.iter().cloned());
    }
    files.extend(spec.files.iter().cloned());
    enable.extend(spec.enable.iter().cloned());
    for file in files {
        file.write(upper)?;
    }
    let wants = upper.join("etc/systemd/system/multi-user.target.wants");
    let requires = upper.join("etc/systemd/system/kubelet.service.requires");
    for folder in [&wants, &requires] {
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    for unit in enable {
        // The same as the unit's [Install] section.
        let wants = if unit == FIRSTBOOT_UNIT { &requires } else { &wants };
        // The unit is in the base root file system or in the upper folder.
        let target = if upper.join("etc/systemd/system").join(&unit).exists() {
            format!("/etc/systemd/system/{unit}")
        } else {
            format!("/lib/systemd/system/{unit}")
        };
        let link = wants.join(&unit);
        match std::os::unix::fs::symlink(target, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("link", &link)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The unit as it is delivered, with the test's arguments and a shorter restart delay.
pub(crate) fn daemon_unit(args: &[String]) -> String {
    const COMMAND: &str = "daemon start --root-mount /";
    let command = [COMMAND].into_iter().chain(args.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    DAEMON_TEXT
        .replace(COMMAND, &command)
        .replace("RestartSec=5", "RestartSec=1\nEnvironment=RUST_BACKTRACE=0")
}

/// How long a node may take to boot while others boot beside it.
pub(crate) const NODE_LIMIT: Duration = Duration::from_secs(120);

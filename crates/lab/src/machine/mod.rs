//! A machine that really boots: systemd-nspawn on an overlay, started again when the machine reboots.
//!
//! Flow: the overlay is mounted in nspawn's own mount namespace (it disappears with nspawn, so nothing needs
//! unmounting) → nspawn boots systemd as PID 1 → its leader is recorded in the node's folder → `multi-user.target` is
//! reached → [`MachineState::Running`]. nspawn exits with status 133 when the machine reboots: it is started again.
//! Status 0 is a power-off, anything else a failure or a power cut: the machine stays off until [`Machine::power_on`].
//!
//! Not here: the machine's files (`real_node`) and its Node object (`fake_kubelet`).

pub(crate) mod archive;
pub(crate) mod base_root;
pub(crate) mod first_boot;
pub(crate) mod handle;
pub(crate) mod image;
pub(crate) mod layout;
pub(crate) mod node_file;
pub(crate) mod nspawn;
pub(crate) mod real_kubelet;
pub(crate) mod real_node;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::machine::nspawn::{enter, leader_of};
use crate::system::cgroup::NodeGroup;
use crate::system::command::Output;
use crate::system::folder::{Folder, LEADER, ProcessKey, write_json};
use crate::system::process::{Process, Signal, lock, tail};

/// nspawn's exit status when the machine asked for a reboot (`--keep-unit`).
const REBOOT_STATUS: i32 = 133;
/// A bare node boots in 3 s on an idle computer; three at the same time on two busy cores take several times as long.
const BOOT_LIMIT: Duration = Duration::from_secs(90);
/// The pause between two checks of a booting machine. Each starts programs in it.
const BOOT_POLL: Duration = Duration::from_millis(300);
/// The time limit for a short command in a machine.
const EXEC_LIMIT: Duration = Duration::from_secs(60);
/// A machine that exits within [`FAST_BOOT`] this often in a row cannot boot.
const MAX_FAST_BOOTS: u32 = 5;
const FAST_BOOT: Duration = Duration::from_secs(2);

/// The parameters of a machine.
#[derive(Debug, Clone)]
pub(crate) struct MachineSpec {
    /// The host name inside.
    pub(crate) hostname: String,
    /// nspawn's name for it, unique on this computer.
    pub(crate) machine: String,
    pub(crate) bridge: String,
    /// The shared root file system, the lower layer of the overlay.
    pub(crate) base: PathBuf,
    /// The node's folder: `upper`, `work`, `root`, the log and the leader's record.
    pub(crate) dir: PathBuf,
    /// Files of this computer that appear read-only in the machine: (here, there).
    pub(crate) binds: Vec<(PathBuf, PathBuf)>,
    /// Folders of the machine that are plain folders of this computer, below `dir`, instead of parts of the overlay.
    pub(crate) own_folders: Vec<&'static str>,
    /// Arguments for its systemd, as on a kernel's command line.
    pub(crate) boot_args: Vec<String>,
}

impl MachineSpec {
    /// The path of such a folder on this computer.
    fn own_folder(&self, inside: &str) -> PathBuf {
        self.dir.join("own").join(inside.trim_start_matches('/').replace('/', "-"))
    }
}

/// The state of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineState {
    /// Booting.
    Booting {
        /// The number of the boot, from 1.
        boot: u32,
    },
    /// Up.
    Running {
        /// The number of the boot, from 1.
        boot: u32,
        /// The kernel's boot id, as seen in the machine.
        boot_id: String,
        /// PID 1 of the machine, as seen on this computer.
        leader: ProcessKey,
    },
    /// Powered off, cut off, or failed.
    Off {
        /// The reason, for people.
        reason: String,
    },
}

/// A machine. Dropping it cuts the power and waits until the machine is gone.
#[derive(Debug)]
pub struct Machine {
    inner: Arc<Inner>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    spec: MachineSpec,
    /// The lab's data folder.
    lab: PathBuf,
    state: watch::Sender<MachineState>,
    process: Mutex<Option<Arc<Process>>>,
    group: NodeGroup,
    /// Set once, when the machine must not boot again.
    stopping: AtomicBool,
    /// How often it has been booted.
    boots: AtomicU32,
}

impl Machine {
    /// Boots it. [`Machine::wait_running`] waits until it is up.
    pub(crate) fn start(spec: MachineSpec, folder: &Folder) -> Result<Self> {
        for part in ["upper", "work", "root"] {
            let path = spec.dir.join(part);
            fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        }
        for inside in &spec.own_folders {
            let path = spec.own_folder(inside);
            fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        }
        let group = NodeGroup::create(&format!("mco-lab-{}", spec.machine))?;
        folder.update(|record| {
            record.outside.extend(group.dirs().iter().cloned());
            for kind in ["propagate", "unix-export"] {
                record.outside.push(Path::new("/run/systemd/nspawn").join(kind).join(&spec.machine));
            }
        })?;
        let inner = Arc::new(Inner {
            spec,
            lab: folder.path().to_owned(),
            state: watch::Sender::new(MachineState::Booting { boot: 1 }),
            process: Mutex::new(None),
            group,
            stopping: AtomicBool::new(false),
            boots: AtomicU32::new(0),
        });
        let task = tokio::spawn(Arc::clone(&inner).run());
        Ok(Self { inner, task: Mutex::new(Some(task)) })
    }

    /// A receiver of the machine's states.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<MachineState> {
        self.inner.state.subscribe()
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> MachineState {
        self.inner.state.borrow().clone()
    }

    /// The log of its console.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.inner.console()
    }

    /// Waits until it is up and returns its boot id.
    ///
    /// # Errors
    /// It is off or does not come up in time.
    pub async fn wait_running(&self, limit: Duration) -> Result<String> {
        let mut state = self.watch();
        let reached = state.wait_for(|state| !matches!(state, MachineState::Booting { .. }));
        let reached =
            tokio::time::timeout(limit, reached).await.map(|state| state.map(|state| state.clone()));
        match reached {
            Ok(Ok(MachineState::Running { boot_id, .. })) => Ok(boot_id),
            Ok(Ok(MachineState::Off { reason })) => Err(self.inner.died(reason)),
            Ok(Ok(MachineState::Booting { .. }) | Err(_)) => {
                Err(self.inner.died("its task ended".to_owned()))
            }
            Err(_) => Err(Error::Timeout {
                what: format!("node {}", self.inner.spec.hostname),
                waited: limit,
                detail: tail(&self.console()),
            }),
        }
    }

    /// Runs a command in the machine and returns its output, whatever its exit code.
    ///
    /// # Errors
    /// The machine is not up, or the command does not end within a minute.
    pub async fn exec<I: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = I>) -> Result<Output> {
        self.exec_within(command, EXEC_LIMIT).await
    }

    /// As [`Machine::exec`] with another time limit.
    ///
    /// # Errors
    /// The machine is not up, or the command does not end in time.
    pub async fn exec_within<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<Output> {
        match self.state() {
            MachineState::Running { leader, .. } => enter(leader, command, limit).await,
            other => Err(Error::Options(format!("node {} is not up: {other:?}", self.inner.spec.hostname))),
        }
    }

    /// Cuts the machine's power. It stays off.
    ///
    /// # Errors
    /// The machine does not end within a few seconds.
    pub async fn power_cut(&self) -> Result<()> {
        let process = lock(&self.inner.process).clone();
        self.inner.cut();
        if let Some(process) = process {
            process.stop(Signal::TERM, Duration::from_secs(10)).await;
        }
        let mut state = self.watch();
        let off = state.wait_for(|state| matches!(state, MachineState::Off { .. }));
        match tokio::time::timeout(Duration::from_secs(10), off).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.inner.died("it did not go off".to_owned())),
        }
    }

    /// Switches on a machine that is off; otherwise does nothing.
    pub fn power_on(&self) {
        if !matches!(self.state(), MachineState::Off { .. }) {
            return;
        }
        self.inner.set(MachineState::Booting { boot: self.inner.boots.load(Ordering::SeqCst) + 1 });
        let mut task = lock(&self.task);
        let last = task.take();
        let inner = Arc::clone(&self.inner);
        *task = Some(tokio::spawn(async move {
            // The task of the previous boots has set the state to off and is about to end.
            if let Some(last) = last {
                let _ended = last.await;
            }
            inner.run().await;
        }));
    }

    /// Stops the machine for good and waits until it is gone.
    pub async fn stop(&self) {
        self.inner.stopping.store(true, Ordering::SeqCst);
        self.inner.cut();
        let process = lock(&self.inner.process).take();
        if let Some(process) = process {
            process.stop(Signal::TERM, Duration::from_secs(10)).await;
        }
        let task = lock(&self.task).take();
        if let Some(task) = task {
            task.abort();
            let _aborted = task.await;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.inner.stopping.store(true, Ordering::SeqCst);
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
        // PID 1 first: if nspawn were killed first, the machine would keep running without it.
        self.inner.cut();
        if let Some(process) = lock(&self.inner.process).take() {
            let deadline = Instant::now() + Duration::from_secs(5);
            while process.exited().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            process.kill_blocking();
        }
    }
}

impl Inner {
    fn console(&self) -> PathBuf {
        self.spec.dir.join("console.log")
    }

    fn died(&self, status: String) -> Error {
        let log = self.console();
        Error::Died { program: format!("node {}", self.spec.hostname), status, tail: tail(&log), log }
    }

    fn set(&self, state: MachineState) {
        tracing::debug!(node = %self.spec.hostname, ?state, "machine");
        self.state.send_replace(state);
    }

    /// Sends SIGKILL to PID 1 of the machine: all its processes end with it, and nspawn exits.
    fn cut(&self) {
        if let MachineState::Running { leader, .. } = &*self.state.borrow() {
            leader.signal(Signal::KILL);
        }
        if let Some(process) = &*lock(&self.process)
            && let Some(leader) = leader_of(process.pid())
        {
            leader.signal(Signal::KILL);
        }
    }

    /// Boots the machine again and again until it is off.
    async fn run(self: Arc<Self>) {
        let mut fast = 0;
        loop {
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let boot = self.boots.fetch_add(1, Ordering::SeqCst) + 1;
            let start = Instant::now();
            match self.boot(boot).await {
                Ok(Some(REBOOT_STATUS)) => {
                    fast = if start.elapsed() < FAST_BOOT { fast + 1 } else { 0 };
                    if fast > MAX_FAST_BOOTS {
                        return self.set(MachineState::Off { reason: "it reboots all the time".to_owned() });
                    }
                    self.set(MachineState::Booting { boot: boot + 1 });
                }
                Ok(Some(0)) => return self.set(MachineState::Off { reason: "powered off".to_owned() }),
                Ok(Some(code)) => {
                    return self
                        .set(MachineState::Off { reason: format!("nspawn ended with exit status {code}") });
                }
                Ok(None) => return self.set(MachineState::Off { reason: "power cut".to_owned() }),
                Err(error) => return self.set(MachineState::Off { reason: client::chain(&error) }),
            }
        }
    }

    /// One boot, until nspawn exits. `None` if a signal killed it.
    async fn boot(&self, boot: u32) -> Result<Option<i32>> {
        let process = Arc::new(Process::spawn(self.command()?, &self.lab)?);
        *lock(&self.process) = Some(Arc::clone(&process));
        let up = tokio::select! {
            up = self.wait_up(&process) => Some(up),
            _ = process.wait() => None,
        };
        match up {
            Some(Ok((leader, boot_id))) => self.set(MachineState::Running { boot, boot_id, leader }),
            Some(Err(error)) => {
                self.cut();
                process.stop(Signal::TERM, Duration::from_secs(5)).await;
                return Err(error);
            }
            None => {}
        }
        let status = process.wait().await;
        lock(&self.process).take();
        let _absent = fs::remove_file(self.spec.dir.join(LEADER));
        Ok(status.and_then(|status| status.code()))
    }

    /// Waits until the machine has reached its target. Returns its leader and boot id.
    async fn wait_up(&self, process: &Process) -> Result<(ProcessKey, String)> {
        let start = Instant::now();
        let mut recorded = None;
        while start.elapsed() < BOOT_LIMIT {
            if recorded.is_none()
                && let Some(leader) = leader_of(process.pid())
            {
                write_json(&self.spec.dir.join(LEADER), &leader)?;
                recorded = Some(leader);
            }
            if let Some(leader) = recorded
                && let Ok(active) =
                    enter(leader, ["systemctl", "is-active", "multi-user.target"], Duration::from_secs(5))
                        .await
                && active.stdout.trim() == "active"
                // On a busy computer it may take longer. Then it is read again: a machine that is up is not to be switched off.
                && let Ok(boot_id) =
                    enter(leader, ["cat", "/proc/sys/kernel/random/boot_id"], Duration::from_secs(5)).await
            {
                return Ok((leader, boot_id.stdout.trim().to_owned()));
            }
            tokio::time::sleep(BOOT_POLL).await;
        }
        Err(Error::Timeout {
            what: format!("multi-user.target of node {}", self.spec.hostname),
            waited: BOOT_LIMIT,
            detail: tail(&self.console()),
        })
    }
}

//! Whole virtual machines: firmware, boot loader, kernel and an operating system that can be replaced. They are for what a
//! machine of systemd-nspawn cannot show: kernel arguments, boot entries, another kernel, an OS image.
//!
//! Flow: a [`VmImage`] from the cache → [`VirtualMachine::start`] puts a layer over its disk and starts qemu → the machine's
//! own firmware and boot loader boot it → its ssh server answers under a new boot id → commands, files, reboots, power cuts.
//! qemu uses KVM where that works, and otherwise emulates the processor.
//!
//! Guarantees: a machine's ports are open on this computer's loopback only. qemu ends with the lab's process, and the machine's
//! folder (layer, serial log) is removed with the lab's.
//!
//! Not here: machines that share this computer's kernel (`machine`), what is on the disks (`image`), and what is done in a machine
//! that runs (`inside`).

mod build_registry;
mod grub;
mod image;
mod inside;
mod ostree;
mod qemu;
mod serial;
mod snapshots;
mod ssh;
mod tools;

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::control_plane::launch::free_port;
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::command::run;
use crate::system::folder::{Folder, sweep};
use crate::system::paths::Environment;
use crate::system::process::{Process, Signal, lock, tail};
use crate::vm::qemu::{Accelerator, Bus, DirectBoot, Start};
use crate::vm::ssh::{Key, Ssh};
use crate::vm::tools::Tools;

pub use build_registry::{BuildRegistry, SigningKey};
pub use image::{OrdinaryMachine, VmImage};
pub use ostree::{OstreeMachine, Registry};
pub use qemu::Firmware;
pub use serial::SerialMark;

/// A boot takes 35 s on an emulated, idle processor, and ten times as long beside builds.
const BOOT_LIMIT: Duration = Duration::from_secs(900);
/// Units have 10 s to stop; an emulated processor needs longer.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(120);
/// The time limit for a short command.
const EXEC_LIMIT: Duration = Duration::from_secs(120);
/// A hundred megabytes through an emulated network card and cipher take 20 s.
const COPY_LIMIT: Duration = Duration::from_secs(300);
/// Ends with the boot whose id is `$1`; at once, if it has ended. New connections to see whether it has would be a third of what
/// a machine does while an image is fetched.
const WHILE_BOOTED: &str = r#"[ "$(cat /proc/sys/kernel/random/boot_id)" != "$1" ] || exec sleep infinity"#;
/// The pause between two checks of a booting machine.
const POLL: Duration = Duration::from_millis(500);
/// How long to watch a new qemu: it ends at once if another program has just taken its port.
const SETTLE: Duration = Duration::from_secs(1);
/// How many ports are tried.
const PORTS: u32 = 5;
/// In MiB: enough for Debian and an update of its OS.
const MEMORY_MIB: u32 = 1280;

/// A machine's disk.
#[derive(Debug, Clone)]
pub(crate) enum Disk {
    /// A layer over this disk, which stays unchanged.
    LayerOver(String),
    /// This disk itself, while it is being made.
    Itself(String),
}

/// The parameters of a machine.
#[derive(Debug, Clone)]
pub(crate) struct VmSpec {
    pub(crate) disk: Disk,
    pub(crate) firmware: Firmware,
    pub(crate) bus: Bus,
    /// The kernel of the first start; later starts use the boot loader.
    pub(crate) kernel: Option<DirectBoot>,
    pub(crate) tools: Tools,
    pub(crate) key: Key,
    pub(crate) boot_limit: Duration,
    /// A program of this computer that the machine can read as a disk.
    pub(crate) carried: Option<PathBuf>,
}

impl VmSpec {
    fn new(disk: Disk, firmware: Firmware, bus: Bus, tools: &Tools, key: &Key) -> Self {
        let (tools, key) = (tools.clone(), key.clone());
        Self { disk, firmware, bus, kernel: None, tools, key, boot_limit: BOOT_LIMIT, carried: None }
    }

    /// A machine with a layer of its own over an image.
    fn of(image: &VmImage) -> Result<Self> {
        let spec =
            Self::new(Disk::LayerOver(image.base()?), image.firmware, image.bus, &image.tools, &image.key);
        Ok(Self { carried: image.carried.clone(), ..spec })
    }
}

/// A running qemu, and the ssh access to its machine.
#[derive(Debug, Clone)]
struct Running {
    qemu: Arc<Process>,
    ssh: Ssh,
}

/// A virtual machine. Dropping it kills qemu.
#[derive(Debug)]
pub struct VirtualMachine {
    name: String,
    dir: PathBuf,
    spec: VmSpec,
    accelerator: Accelerator,
    /// The size in bytes of the program on its second disk.
    carries: Option<u64>,
    /// `None` while the machine is off.
    running: Mutex<Option<Running>>,
    /// Removed after qemu has ended: fields are dropped in this order.
    folder: Arc<Folder>,
}

impl VirtualMachine {
    /// Boots a machine in a data folder of its own.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn alone(name: &str, image: &VmImage) -> Result<Self> {
        Self::alone_within(name, image, BOOT_LIMIT).await
    }

    /// As [`VirtualMachine::alone`], with a time limit for each boot.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn alone_within(name: &str, image: &VmImage, boot_limit: Duration) -> Result<Self> {
        let environment = Environment::read();
        sweep(&environment)?;
        let folder = Arc::new(Folder::create(&environment)?);
        let spec = VmSpec { boot_limit, ..VmSpec::of(image)? };
        Self::boot(name, spec, folder).await
    }

    /// Boots a machine in this lab's data folder.
    ///
    /// # Errors
    /// qemu does not start, or the machine does not boot in time; the error ends with the end of its serial log.
    pub async fn start(name: &str, image: &VmImage, folder: Arc<Folder>) -> Result<Self> {
        Self::boot(name, VmSpec::of(image)?, folder).await
    }

    async fn boot(name: &str, spec: VmSpec, folder: Arc<Folder>) -> Result<Self> {
        let dir = folder.make(Path::new("vm").join(name))?;
        if let Disk::LayerOver(base) = &spec.disk {
            qemu::make_layer(&spec.tools, &dir, base).await?;
        }
        if spec.firmware == Firmware::Uefi {
            spec.tools.copy_out(qemu::FIRST_VARIABLES, &dir.join(qemu::VARIABLES))?;
        }
        let carries = match &spec.carried {
            Some(program) => Some(carry(program, &dir.join(qemu::CARRIED)).await?),
            None => None,
        };
        let accelerator = qemu::accelerator(&spec.tools, &dir).await?;
        let kernel = spec.kernel.clone();
        let running = Mutex::new(None);
        let machine = Self { name: name.to_owned(), dir, spec, accelerator, carries, running, folder };
        machine.start_qemu(kernel, None).await?;
        machine.wait_booted(None).await?;
        Ok(machine)
    }

    async fn start_qemu(&self, kernel: Option<DirectBoot>, snapshot: Option<&str>) -> Result<()> {
        let log = self.dir.join("qemu.log");
        let mut tries = 0;
        loop {
            let port = free_port(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
            let disk = match &self.spec.disk {
                Disk::LayerOver(_) => qemu::layer(),
                Disk::Itself(file) => qemu::raw(file),
            };
            let start = Start {
                firmware: self.spec.firmware,
                accelerator: self.accelerator,
                memory_mib: MEMORY_MIB,
                disk,
                bus: self.spec.bus,
                kernel: kernel.clone(),
                carries: self.carries.is_some(),
                port,
                snapshot: snapshot.map(str::to_owned),
            };
            let name = format!("qemu of {}", self.name);
            let spec = self.spec.tools.spec(&name, &self.dir, &log, start.command());
            let qemu = Process::spawn(spec, self.folder.path())?;
            let ended = tokio::time::timeout(SETTLE, qemu.wait()).await.is_ok();
            tries += 1;
            if ended && tries < PORTS && tail(&log).contains("host forwarding") {
                continue;
            }
            qemu.check()?;
            let ssh = Ssh { machine: self.name.clone(), key: self.spec.key.clone(), port, shared: None };
            *lock(&self.running) = Some(Running { qemu: Arc::new(qemu), ssh });
            return Ok(());
        }
    }

    fn running(&self) -> Result<Running> {
        let running = lock(&self.running).clone();
        running.ok_or_else(|| Error::Options(format!("machine {} has no power", self.name)))
    }

    /// Waits for a boot other than `last`, and returns its id.
    pub(crate) async fn wait_booted(&self, last: Option<&str>) -> Result<String> {
        let mut running = self.running()?;
        let start = Instant::now();
        if let Some(last) = last {
            self.wait_boot_ends(&running.ssh, last).await?;
        }
        running.ssh.shared = None;
        while start.elapsed() < self.spec.boot_limit {
            running.qemu.check()?;
            self.check_running_kernel()?;
            if running.ssh.answers().await {
                match boot_id(&running.ssh).await {
                    Ok(id) if Some(id.as_str()) != last => {
                        // Shortened, because a socket's path has at most 108 bytes.
                        let socket = self.dir.join(id.chars().take(8).collect::<String>());
                        running.ssh.shared = Some(socket);
                        *lock(&self.running) = Some(running);
                        tracing::info!(machine = %self.name, boot_id = %id, elapsed = ?start.elapsed(), "booted");
                        return Ok(id);
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(error = %client::chain(&error), "not ready"),
                }
            }
            tokio::time::sleep(POLL).await;
        }
        Err(Error::Timeout {
            what: format!("machine {}", self.name),
            waited: start.elapsed(),
            detail: format!(
                "its ssh server did not answer; the end of its serial log {}:\n{}",
                self.serial().display(),
                tail(&self.serial())
            ),
        })
    }

    /// Waits until this boot has ended. A machine that restarts closes no connection, so the
    /// end of the command alone would be seen late.
    async fn wait_boot_ends(&self, ssh: &Ssh, last: &str) -> Result<()> {
        let mark = self.serial_mark()?;
        let limit = self.spec.boot_limit;
        tokio::select! {
            ended = ssh.exec(["sh", "-c", WHILE_BOOTED, "sh", last], limit) => match ended {
                Err(Error::Timeout { waited, .. }) => Err(Error::Timeout {
                    what: format!("the end of a boot of machine {}", self.name),
                    waited,
                    detail: format!("boot {last} still runs; the end of its serial log:\n{}", tail(&self.serial())),
                }),
                // The command ended, or the connection with the machine.
                Ok(_) | Err(_) => Ok(()),
            },
            restarts = self.wait_restart(mark) => restarts,
        }
    }

    /// The machine's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The serial log: everything that firmware, boot loader and kernel printed, in all boots.
    #[must_use]
    pub fn serial(&self) -> PathBuf {
        self.dir.join(qemu::SERIAL)
    }

    /// Reboots as an administrator does, and waits for the next boot.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn reboot(&self) -> Result<String> {
        let last = self.boot_id().await?;
        // The ssh connection ends with the boot, so only the next boot shows whether the command worked.
        let _cut = self.exec(["systemctl", "reboot"]).await?;
        self.wait_booted(Some(&last)).await
    }

    /// Waits until the machine has rebooted by itself. `last` is the id of the boot before.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn rebooted(&self, last: &str) -> Result<String> {
        self.wait_booted(Some(last)).await
    }

    /// Shuts the machine down in order, and waits until it is off.
    ///
    /// # Errors
    /// It is not off in time.
    pub async fn power_off(&self) -> Result<()> {
        let running = self.running()?;
        let _cut = running.ssh.exec(["systemctl", "poweroff"], EXEC_LIMIT).await?;
        if tokio::time::timeout(POWER_OFF_LIMIT, running.qemu.wait()).await.is_err() {
            return Err(Error::Timeout {
                what: format!("the end of machine {}", self.name),
                waited: POWER_OFF_LIMIT,
                detail: tail(&self.serial()),
            });
        }
        *lock(&self.running) = None;
        Ok(())
    }

    /// Cuts the power: what the machine has not flushed to its disk may be lost.
    ///
    /// # Errors
    /// The machine is already off.
    pub async fn power_cut(&self) -> Result<()> {
        let running = self.running()?;
        running.qemu.signal_group(Signal::KILL);
        running.qemu.wait().await;
        *lock(&self.running) = None;
        Ok(())
    }

    /// Switches the machine on and waits until it has booted.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn power_on(&self) -> Result<String> {
        self.switch_on().await?;
        self.wait_booted(None).await
    }

    /// Switches the machine on, without waiting for the boot.
    async fn switch_on(&self) -> Result<()> {
        if self.running().is_ok() {
            return Err(Error::Options(format!("machine {} has power already", self.name)));
        }
        self.start_qemu(None, None).await
    }
}

/// Makes a disk from a program, padded to whole sectors; returns the program's size in bytes. The program is stripped: symbols
/// and debug information are most of an unoptimised program, and the machine need not read them.
async fn carry(program: &Path, disk: &Path) -> Result<u64> {
    run(
        "strip",
        [OsStr::new("--strip-all"), OsStr::new("-o"), disk.as_os_str(), program.as_os_str()],
        COPY_LIMIT,
    )
    .await?;
    let opened = std::fs::File::options().write(true).open(disk).map_err(Error::io("open", disk))?;
    let size = opened.metadata().map_err(Error::io("look at", disk))?.len();
    opened.set_len(size.next_multiple_of(512)).map_err(Error::io("write", disk))?;
    Ok(size)
}

async fn boot_id(ssh: &Ssh) -> Result<String> {
    Ok(ssh.run(["cat", "/proc/sys/kernel/random/boot_id"], EXEC_LIMIT).await?.trim().to_owned())
}

/// Makes the images that all tests with virtual machines need, with progress.
///
/// # Errors
/// As [`VmImage::ordinary`].
pub async fn prepare_virtual_machines(progress: &Reporter) -> Result<()> {
    for machine in [OrdinaryMachine::Grub, OrdinaryMachine::SystemdBoot] {
        VmImage::ordinary(machine, progress).await?;
    }
    OstreeMachine::ensure(progress).await?.build_base(progress).await?;
    crate::delivery::builder_archive(progress).await?;
    Ok(())
}

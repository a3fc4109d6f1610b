//! Whole virtual machines: firmware, boot loader, kernel and an operating system that can be replaced, for what a machine of
//! nspawn cannot show (kernel arguments, boot entries, another kernel, an OS image).
//!
//! Flow: a [`VmImage`] from the cache → [`VirtualMachine::start`] puts a layer over its disk and starts qemu → the machine's
//! own firmware and boot loader boot it → its ssh server answers, under a new boot id → commands, files, reboots, power cuts.
//! qemu uses KVM where that works and emulates the processor elsewhere.
//!
//! Guarantees: nothing of a machine listens anywhere but on this computer's loopback; qemu ends with the lab's process, and
//! the machine's folder (layer, serial log) goes with the lab's.
//!
//! Not here: machines that share this computer's kernel (`machine`), and what is on the disks (`image`).

mod build_registry;
pub(crate) mod cache;
mod grub;
mod image;
mod moments;
mod ostree;
mod qemu;
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
use crate::system::folder::{Folder, sweep};
use crate::system::paths::Environment;
use crate::system::process::{Output, Process, Signal, lock, run, tail};
use crate::vm::qemu::{Accelerator, Bus, DirectBoot, Start};
use crate::vm::ssh::{Key, Ssh};
use crate::vm::tools::Tools;

pub use build_registry::{BuildRegistry, SigningKey};
pub use image::{OrdinaryMachine, VmImage};
pub use moments::SerialMark;
pub use ostree::{OstreeMachine, Registry};
pub use qemu::Firmware;

/// 35 s on two processors that are emulated and idle; ten times that beside builds that keep them busy.
const BOOT_LIMIT: Duration = Duration::from_secs(900);
/// The units' own limit is 10 s; an emulated processor adds to it.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(120);
/// One short command.
const EXEC_LIMIT: Duration = Duration::from_secs(120);
/// A hundred megabytes through an emulated network card and cipher take 20 s.
const COPY_LIMIT: Duration = Duration::from_secs(300);
/// Between two looks at a booting machine.
const POLL: Duration = Duration::from_millis(500);
/// How long a new qemu is watched for a port that somebody else has just taken.
const SETTLE: Duration = Duration::from_secs(1);
/// How many ports are tried.
const PORTS: u32 = 5;
/// Enough for Debian and an update of its OS.
const MEMORY_MIB: u32 = 1280;

/// A machine's disk.
#[derive(Debug, Clone)]
pub(crate) enum Disk {
    /// A layer of its own over this one, which stays as it is.
    LayerOver(String),
    /// This one itself, which is being made.
    Itself(String),
}

/// What a machine is made of.
#[derive(Debug, Clone)]
pub(crate) struct VmSpec {
    pub(crate) disk: Disk,
    pub(crate) firmware: Firmware,
    pub(crate) bus: Bus,
    /// At the first start only.
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

/// A running qemu with the way into its machine.
#[derive(Debug, Clone)]
struct Running {
    qemu: Arc<Process>,
    ssh: Ssh,
}

/// A virtual machine. Dropping it ends it.
#[derive(Debug)]
pub struct VirtualMachine {
    name: String,
    dir: PathBuf,
    spec: VmSpec,
    accelerator: Accelerator,
    /// The bytes of the program that it carries.
    carries: Option<u64>,
    /// `None`: without power.
    running: Mutex<Option<Running>>,
    /// Removed after qemu has ended: fields are dropped in this order.
    folder: Arc<Folder>,
}

impl VirtualMachine {
    /// A machine in a data folder of its own, booted.
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

    /// A machine of the lab with this data folder, booted.
    ///
    /// # Errors
    /// qemu does not start, or the machine does not boot in time: the error ends with what it wrote to its serial port.
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

    async fn start_qemu(&self, kernel: Option<DirectBoot>, moment: Option<&str>) -> Result<()> {
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
                moment: moment.map(str::to_owned),
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

    /// Whether its ssh server answers.
    pub(crate) async fn answers(&self) -> bool {
        match self.running() {
            Ok(running) => running.ssh.answers().await,
            Err(_) => false,
        }
    }

    /// Waits for a boot other than `last`, and returns its id.
    pub(crate) async fn wait_booted(&self, last: Option<&str>) -> Result<String> {
        // The connection that commands share is of the boot before.
        let mut running = self.running()?;
        running.ssh.shared = None;
        let start = Instant::now();
        while start.elapsed() < self.spec.boot_limit {
            running.qemu.check()?;
            if running.ssh.answers().await {
                match boot_id(&running.ssh).await {
                    Ok(id) if Some(id.as_str()) != last => {
                        // No longer than a socket's path may be.
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

    /// The machine's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The log of everything that firmware, boot loader and kernel wrote to the serial port, of all boots.
    #[must_use]
    pub fn serial(&self) -> PathBuf {
        self.dir.join(qemu::SERIAL)
    }

    /// Runs a command in the machine; the exit code is in the output.
    ///
    /// # Errors
    /// The machine has no power, or the command takes more than two minutes.
    pub async fn exec<I: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = I>) -> Result<Output> {
        self.exec_within(command, EXEC_LIMIT).await
    }

    /// As [`VirtualMachine::exec`] with another time limit.
    ///
    /// # Errors
    /// As [`VirtualMachine::exec`].
    pub async fn exec_within<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<Output> {
        self.running()?.ssh.exec(command, limit).await
    }

    /// As [`VirtualMachine::exec`], failing when the command does; returns what it printed.
    ///
    /// # Errors
    /// As [`VirtualMachine::exec`], and when the exit code is not 0.
    pub async fn run<I: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = I>) -> Result<String> {
        self.run_within(command, EXEC_LIMIT).await
    }

    /// As [`VirtualMachine::run`] with another time limit.
    ///
    /// # Errors
    /// As [`VirtualMachine::run`].
    pub async fn run_within<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<String> {
        self.running()?.ssh.run(command, limit).await
    }

    /// Copies a file of this computer into the machine, whole or not at all, with this mode.
    ///
    /// # Errors
    /// The machine has no power, or no space.
    pub async fn copy_in(&self, file: &Path, to: &str, mode: u32) -> Result<()> {
        self.running()?.ssh.put(file, to, mode, COPY_LIMIT).await
    }

    /// Puts the program that the machine carries (see [`VmImage::carrying`]) into its file system, whole or not at all.
    ///
    /// # Errors
    /// It carries none, or has no power or no space.
    pub async fn unload(&self, to: &str, mode: u32) -> Result<()> {
        const UNLOAD: &str = r#"head -c "$1" "$2" > "$3.part" && chmod "$4" "$3.part" && sync "$3.part" &&
            mv "$3.part" "$3" && sync "${3%/*}/""#;
        let none = || Error::Options(format!("machine {} carries no program", self.name));
        let size = self.carries.ok_or_else(none)?.to_string();
        let mode = format!("{mode:o}");
        let words = ["sh", "-c", UNLOAD, "sh", &size, qemu::CARRIED_INSIDE, to, &mode];
        self.run_within(words, COPY_LIMIT).await.map(drop)
    }

    /// Writes a file in the machine.
    ///
    /// # Errors
    /// As [`VirtualMachine::copy_in`].
    pub async fn write(&self, path: &str, content: &str) -> Result<()> {
        let file = self.dir.join("for-the-machine");
        std::fs::write(&file, content).map_err(Error::io("write", &file))?;
        self.copy_in(&file, path, 0o644).await
    }

    /// The text of a file in the machine.
    ///
    /// # Errors
    /// There is no such file, or the machine has no power.
    pub async fn read_file(&self, path: &str) -> Result<String> {
        self.run(["cat", "--", path]).await
    }

    /// The running boot's id.
    ///
    /// # Errors
    /// As [`VirtualMachine::run`].
    pub async fn boot_id(&self) -> Result<String> {
        boot_id(&self.running()?.ssh).await
    }

    /// The running kernel's arguments, in their order.
    ///
    /// # Errors
    /// As [`VirtualMachine::run`].
    pub async fn kernel_arguments(&self) -> Result<Vec<String>> {
        Ok(self.read_file("/proc/cmdline").await?.split_whitespace().map(str::to_owned).collect())
    }

    /// Reboots as an administrator does, and waits for the next boot.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn reboot(&self) -> Result<String> {
        let last = self.boot_id().await?;
        // ssh ends with the machine: only the next boot says whether it worked.
        let _cut = self.exec(["systemctl", "reboot"]).await?;
        self.wait_booted(Some(&last)).await
    }

    /// Waits until the machine has booted by itself, when `last` was the id of the boot before.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn rebooted(&self, last: &str) -> Result<String> {
        self.wait_booted(Some(last)).await
    }

    /// Shuts down in order, and waits until the power is off.
    ///
    /// # Errors
    /// It does not go off in time.
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

    /// Takes the power away at once: what the machine has not flushed to its disk may be lost.
    ///
    /// # Errors
    /// The machine has no power.
    pub async fn power_cut(&self) -> Result<()> {
        let running = self.running()?;
        running.qemu.signal_group(Signal::KILL);
        running.qemu.wait().await;
        *lock(&self.running) = None;
        Ok(())
    }

    /// Gives the power back and waits for the boot.
    ///
    /// # Errors
    /// As [`VirtualMachine::start`].
    pub async fn power_on(&self) -> Result<String> {
        self.switch_on().await?;
        self.wait_booted(None).await
    }

    /// Gives the power back, and does not wait for the boot.
    async fn switch_on(&self) -> Result<()> {
        if self.running().is_ok() {
            return Err(Error::Options(format!("machine {} has power already", self.name)));
        }
        self.start_qemu(None, None).await
    }
}

/// A program as a disk, filled up to whole sectors; returns its bytes. Names of functions are a third of a program without
/// optimisation, and what reads a program's lines is larger than the rest: the machine need not read them.
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

/// Makes everything that tests with virtual machines need, with progress.
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

//! The disks that virtual machines start from: made once, kept in the cache, never written again.
//!
//! Flow of an ordinary machine: root file system by mmdebstrap → disk with partitions → first boot from a kernel that qemu
//! loads, in which the distribution's own tools install the boot loader (`recipes/*-settle.sh`) → powered off and kept.
//!
//! Not here: a machine's own layer over it (`qemu`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::debian::bootstrap;
use crate::system::paths::Environment;
use crate::vm::cache::CacheStep;
use crate::vm::qemu::{self, Bus, DirectBoot, Firmware};
use crate::vm::ssh::Key;
use crate::vm::tools::{Tools, WORK};
use crate::vm::{Disk, VirtualMachine, VmSpec};

/// Two gigabytes are written in 10 s; several times that on a busy disk.
pub(crate) const DISK_LIMIT: Duration = Duration::from_secs(300);
/// Boot loader and menu, 20 s on an emulated processor of its own.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);
/// The disk's name in its folder.
pub(crate) const DISK: &str = "disk.img";

/// A machine whose operating system is changed by files, and whose kernel arguments by its boot loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrdinaryMachine {
    /// Debian 12, GRUB, BIOS: `/etc/default/grub` and `update-grub`.
    Grub,
    /// Debian 12, systemd-boot, UEFI: `/etc/kernel/cmdline` and `kernel-install`.
    SystemdBoot,
}

struct Recipe {
    name: &'static str,
    suite: &'static str,
    packages: &'static [&'static str],
    root: &'static str,
    disk: &'static str,
    settle: &'static str,
    firmware: Firmware,
}

/// What every machine gets in its root.
pub(crate) const MACHINE: &str = include_str!("recipes/machine.sh");
/// What makes the boots of every machine quick.
pub(crate) const QUICK: &str = include_str!("recipes/quick.sh");
/// The same for ordinary machines alone.
const SETTLE: &str = include_str!("recipes/ordinary-settle.sh");

impl OrdinaryMachine {
    fn recipe(self) -> Recipe {
        match self {
            Self::Grub => Recipe {
                name: "grub",
                suite: "bookworm",
                packages: &[
                    "systemd",
                    "systemd-sysv",
                    "dbus",
                    "udev",
                    "kmod",
                    "procps",
                    "iproute2",
                    "openssh-server",
                    "e2fsprogs",
                    "linux-image-cloud-amd64",
                    "initramfs-tools",
                    "grub-pc",
                ],
                root: include_str!("recipes/grub-root.sh"),
                disk: include_str!("recipes/grub-disk.sh"),
                settle: include_str!("recipes/grub-settle.sh"),
                firmware: Firmware::Bios,
            },
            Self::SystemdBoot => Recipe {
                name: "systemd-boot",
                suite: "bookworm",
                packages: &[
                    "systemd",
                    "systemd-sysv",
                    "dbus",
                    "udev",
                    "kmod",
                    "procps",
                    "iproute2",
                    "openssh-server",
                    "e2fsprogs",
                    "dosfstools",
                    "linux-image-cloud-amd64",
                    "initramfs-tools",
                    "systemd-boot",
                ],
                root: include_str!("recipes/systemd-boot-root.sh"),
                disk: include_str!("recipes/systemd-boot-disk.sh"),
                settle: include_str!("recipes/systemd-boot-settle.sh"),
                firmware: Firmware::Uefi,
            },
        }
    }
}

/// A disk in the cache, and what starts from it.
#[derive(Debug, Clone)]
pub struct VmImage {
    pub(crate) disk: PathBuf,
    pub(crate) firmware: Firmware,
    pub(crate) bus: Bus,
    pub(crate) tools: Tools,
    pub(crate) key: Key,
    pub(crate) carried: Option<PathBuf>,
}

impl VmImage {
    /// The image for a machine with a second disk that holds this program, stripped; [`VirtualMachine::unload`] copies it. A
    /// hundred megabytes take half a minute through an emulated network card and cipher, and two seconds from a disk.
    #[must_use]
    pub fn carrying(self, program: &Path) -> Self {
        Self { carried: Some(program.to_owned()), ..self }
    }

    /// The image of an ordinary machine; made when it is not in the cache, three to five minutes.
    ///
    /// # Errors
    /// Not root, no mirror of Debian, or a step fails; the error has its last words.
    pub async fn ordinary(machine: OrdinaryMachine, progress: &Reporter) -> Result<Self> {
        let environment = Environment::read();
        let tools = Tools::ensure(&environment, progress).await?;
        let key = Key::ensure(tools.cache(), progress).await?;
        let recipe = machine.recipe();
        let packages = recipe.packages.join(",");
        let root_recipe = [recipe.suite, &packages, MACHINE, recipe.root, &key.public];
        let root_name = format!("root-{}", recipe.name);
        let root = CacheStep {
            cache: tools.cache(),
            name: &root_name,
            recipe: &root_recipe,
            telling: &format!("building the root of the {} machine (Debian 12, mmdebstrap)", recipe.name),
        };
        let root = root.get(progress, async |part| build_root(&recipe, &key, part).await).await?;
        let root_key = root.to_string_lossy();
        let disk_name = format!("disk-{}", recipe.name);
        let disk = CacheStep {
            cache: tools.cache(),
            name: &disk_name,
            recipe: &[&root_key, recipe.disk, QUICK, SETTLE, recipe.settle],
            telling: &format!("installing the boot loader of the {} machine (first boot)", recipe.name),
        };
        let disk = disk
            .get(progress, async |part| {
                // A future of this size on the heap: it holds a whole machine.
                Box::pin(build_disk(&recipe, &environment, &tools, &key, &root, part)).await
            })
            .await?;
        Ok(Self {
            disk: disk.join(DISK),
            firmware: recipe.firmware,
            bus: Bus::Nvme,
            tools,
            key,
            carried: None,
        })
    }

    /// The disk as the programs see it.
    pub(crate) fn base(&self) -> Result<String> {
        self.tools.inside(&self.disk)
    }

    /// A disk with nothing on it, for what a machine does that does not boot.
    ///
    /// # Errors
    /// As [`VmImage::ordinary`].
    pub async fn blank(firmware: Firmware, progress: &Reporter) -> Result<Self> {
        let tools = Tools::ensure(&Environment::read(), progress).await?;
        let key = Key::ensure(tools.cache(), progress).await?;
        let step = CacheStep {
            cache: tools.cache(),
            name: "disk-blank",
            recipe: &[],
            telling: "making a blank disk",
        };
        let disk = step
            .get(progress, async |part| {
                fs::create_dir(part).map_err(Error::io("create", part))?;
                let disk = part.join(DISK);
                let file = fs::File::create(&disk).map_err(Error::io("create", &disk))?;
                file.set_len(64 << 20).map_err(Error::io("write", &disk))
            })
            .await?;
        Ok(Self { disk: disk.join(DISK), firmware, bus: Bus::Nvme, tools, key, carried: None })
    }
}

async fn build_root(recipe: &Recipe, key: &Key, part: &Path) -> Result<()> {
    bootstrap(recipe.suite, recipe.packages, &root_hook(key, recipe.root), part).await
}

/// What is done in a fresh root: both scripts take the root as `$1`.
pub(crate) fn root_hook(key: &Key, own: &str) -> String {
    format!("set -- \"$1\" '{}'\n{MACHINE}\n{own}", key.public)
}

async fn build_disk(
    recipe: &Recipe,
    environment: &Environment,
    tools: &Tools,
    key: &Key,
    root: &Path,
    part: &Path,
) -> Result<()> {
    fs::create_dir(part).map_err(Error::io("create", part))?;
    let inside = tools.inside(root)?;
    let disk = format!("{WORK}/{DISK}");
    tools.run(part, ["sh", "-c", recipe.disk, "sh", &inside, &disk], DISK_LIMIT).await?;
    let boot = root.join("boot");
    let kernel = DirectBoot {
        kernel: format!("{inside}/boot/{}", named(&boot, "vmlinuz-")?),
        arguments: format!("root=/dev/nvme0n1p2 rw console=ttyS0 {}", qemu::QUICK_ARGUMENTS),
    };
    let disk = Disk::Itself(tools.inside(&part.join(DISK))?);
    let spec = VmSpec { kernel: Some(kernel), ..VmSpec::new(disk, recipe.firmware, Bus::Nvme, tools, key) };
    let folder = std::sync::Arc::new(crate::system::folder::Folder::create(environment)?);
    let machine = VirtualMachine::boot(recipe.name, spec, folder).await?;
    machine.run(["sh", "-c", QUICK, "sh", ""]).await?;
    for script in [SETTLE, recipe.settle] {
        machine.run_within(["sh", "-c", script], SETTLE_LIMIT).await?;
    }
    machine.power_off().await
}

/// The one file of a folder whose name begins so.
fn named(folder: &Path, begin: &str) -> Result<String> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
    match (found.pop(), found.as_slice()) {
        (Some(name), []) => Ok(name),
        _ => Err(Error::Options(format!("{} has not exactly one file {begin}…", folder.display()))),
    }
}

//! The disk images that virtual machines start from. They are made once, kept in the cache, and never changed.
//!
//! Flow for an ordinary machine: mmdebstrap makes a root file system → it is put on a disk with partitions → qemu loads its
//! kernel directly for the first boot, in which the distribution's own tools install the boot loader (`recipes/*-settle.sh`) →
//! the machine powers off, and the disk is kept.
//!
//! Not here: each machine's own layer over the disk (`qemu`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::cache::CacheStep;
use crate::system::debian::bootstrap;
use crate::system::paths::Environment;
use crate::vm::qemu::{self, Bus, DirectBoot, Firmware};
use crate::vm::ssh::Key;
use crate::vm::tools::{Tools, WORK};
use crate::vm::{Disk, VirtualMachine, VmSpec};

/// Writing two gigabytes takes 10 s, and several times that on a busy disk.
pub(crate) const DISK_LIMIT: Duration = Duration::from_secs(300);
/// Installing the boot loader and its menu takes 20 s on an emulated processor.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);
/// The disk image's name in its folder.
pub(crate) const DISK: &str = "disk.img";

/// A machine with an ordinary distribution: its packages manage the operating system, and its boot loader the kernel arguments.
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
    /// Those that it has besides [`PACKAGES`].
    packages: &'static [&'static str],
    root: &'static str,
    disk: &'static str,
    settle: &'static str,
    firmware: Firmware,
}

/// Debian packages of every machine.
pub(crate) const PACKAGES: [&str; 9] =
    ["systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "iproute2", "openssh-server", "e2fsprogs"];
/// Prepares the root file system of every machine.
pub(crate) const MACHINE: &str = include_str!("recipes/machine.sh");
/// Shortens the boots of every machine.
pub(crate) const QUICK: &str = include_str!("recipes/quick.sh");
/// Runs in the first boot of ordinary machines.
const SETTLE: &str = include_str!("recipes/ordinary-settle.sh");

impl OrdinaryMachine {
    fn recipe(self) -> Recipe {
        match self {
            Self::Grub => Recipe {
                name: "grub",
                suite: "bookworm",
                packages: &["linux-image-cloud-amd64", "initramfs-tools", "grub-pc"],
                root: include_str!("recipes/grub-root.sh"),
                disk: include_str!("recipes/grub-disk.sh"),
                settle: include_str!("recipes/grub-settle.sh"),
                firmware: Firmware::Bios,
            },
            Self::SystemdBoot => Recipe {
                name: "systemd-boot",
                suite: "bookworm",
                packages: &["dosfstools", "linux-image-cloud-amd64", "initramfs-tools", "systemd-boot"],
                root: include_str!("recipes/systemd-boot-root.sh"),
                disk: include_str!("recipes/systemd-boot-disk.sh"),
                settle: include_str!("recipes/systemd-boot-settle.sh"),
                firmware: Firmware::Uefi,
            },
        }
    }
}

/// A disk image in the cache, and how a machine starts from it.
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
    /// The same image with a second disk that holds this program, stripped; [`VirtualMachine::unload`] copies it into the
    /// machine. A hundred megabytes take two seconds from a disk, and half a minute over an emulated network card and ssh.
    #[must_use]
    pub fn with_program(self, program: &Path) -> Self {
        Self { carried: Some(program.to_owned()), ..self }
    }

    /// The image of an ordinary machine. If it is not in the cache, it is made, which takes three to five minutes.
    ///
    /// # Errors
    /// Not root, no mirror of Debian, or a step fails; the error has the end of its output.
    pub async fn ordinary(machine: OrdinaryMachine, progress: &Reporter) -> Result<Self> {
        let environment = Environment::read();
        let tools = Tools::ensure(&environment, progress).await?;
        let key = Key::ensure(tools.cache(), progress).await?;
        let recipe = machine.recipe();
        let packages = [&PACKAGES[..], recipe.packages].concat();
        let package_list = packages.join(",");
        let root_recipe = [recipe.suite, &package_list, MACHINE, recipe.root, &key.public];
        let root_name = format!("root-{}", recipe.name);
        let root = CacheStep {
            cache: tools.cache(),
            name: &root_name,
            recipe: &root_recipe,
            telling: &format!("building the root of the {} machine (Debian 12, mmdebstrap)", recipe.name),
        };
        let root = root.get(progress, async |part| build_root(&recipe, &packages, &key, part).await).await?;
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
                // Boxed, because the future holds a whole machine and is large.
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

    /// The disk's path, as the programs in [`Tools`] see it.
    pub(crate) fn base(&self) -> Result<String> {
        self.tools.inside(&self.disk)
    }

    /// An empty disk, for machines that never boot an OS.
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

async fn build_root(recipe: &Recipe, packages: &[&str], key: &Key, part: &Path) -> Result<()> {
    bootstrap(recipe.suite, packages, &root_hook(key, recipe.root), part).await
}

/// The script that changes a fresh root file system. The machine's own part, like the common one, gets the root as `$1`.
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

/// The only file in a folder whose name has this prefix.
fn named(folder: &Path, begin: &str) -> Result<String> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
    match (found.pop(), found.as_slice()) {
        (Some(name), []) => Ok(name),
        _ => Err(Error::Options(format!("{} has not exactly one file {begin}…", folder.display()))),
    }
}

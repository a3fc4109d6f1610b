//! Finds the boot loader of a host, or the reason why the kernel arguments cannot be changed on it. It reads a few
//! small files and starts nothing.
//!
//! Not here: what is written where (see the parent module).
//!
//! Sources: <https://systemd.io/BOOT_LOADER_INTERFACE/>
//! and <https://uapi-group.org/specifications/specs/boot_loader_specification/>.

use std::collections::BTreeMap;

use super::boot_counting;
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::paths::OSTREE_BOOTED;

/// GRUB's and systemd-boot's variables: the name of the boot loader, and the entry that it booted
/// (<https://systemd.io/BOOT_LOADER_INTERFACE/>).
const LOADER_INFO: &str = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
const ENTRY_SELECTED: &str =
    "/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
/// What systemd-boot can do, as bits: the third one means that it counts boots.
const LOADER_FEATURES: &str = "/sys/firmware/efi/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
const COUNTS_BOOTS: u8 = 1 << 2;
/// The entry that somebody has made the default (`bootctl set-default`).
const DEFAULT_ENTRY: &str =
    "/sys/firmware/efi/efivars/LoaderEntryDefault-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
/// Its settings, on the EFI system partition (loader.conf(5)).
const LOADER_SETTINGS: [&str; 3] =
    ["/efi/loader/loader.conf", "/boot/loader/loader.conf", "/boot/efi/loader/loader.conf"];
/// What container managers leave in a container that boots an init system.
const CONTAINER: [&str; 2] = ["/run/systemd/container", "/run/host/container-manager"];
/// The folders of entries, in the order in which systemd looks for the boot partition (bootctl(1)).
pub(super) const ENTRY_FOLDERS: [&str; 3] =
    ["/efi/loader/entries", "/boot/loader/entries", "/boot/efi/loader/entries"];
/// The folders of unified kernel images.
const UKI_FOLDERS: [&str; 3] = ["/efi/EFI/Linux", "/boot/EFI/Linux", "/boot/efi/EFI/Linux"];
/// The folders of GRUB's configuration.
const GRUB_FOLDERS: [&str; 2] = ["/boot/grub", "/boot/grub2"];
/// The program that generates it.
const MKCONFIG: [&str; 4] = [
    "/usr/sbin/grub-mkconfig",
    "/usr/sbin/grub2-mkconfig",
    "/usr/bin/grub-mkconfig",
    "/usr/bin/grub2-mkconfig",
];
/// Debian's command of the administrator. Others may have replaced it with one that does more.
const UPDATE_GRUB: &str = "/usr/sbin/update-grub";
/// Its only command, as the distributions ship it.
const UPDATES_ONLY: &str = "grub-mkconfig -o /boot/grub/grub.cfg";
/// The name sorts after those of other packages: the arguments are added to what the files before it set.
const DROPIN: &str = "/etc/default/grub.d/zz-machine-config.cfg";
const SHARED_SETTINGS: &str = "/etc/default/grub";
/// What entries of kernels that are installed later begin with (kernel-install(8)).
const KERNEL_CMDLINE: &str = "/etc/kernel/cmdline";
const MODEL: &str = "/proc/device-tree/model";
/// The folders of a Raspberry Pi's boot partition.
const FIRMWARE_FOLDERS: [&str; 2] = ["/boot/firmware", "/boot"];

/// How a host boots.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Loader {
    /// GRUB with a generated configuration.
    Grub(Grub),
    /// GRUB or systemd-boot with Boot Loader Specification entries.
    Entries(Entries),
    /// A Raspberry Pi's firmware.
    Firmware {
        /// The file with the command line.
        cmdline: String,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grub {
    /// The program that generates the configuration.
    pub(super) program: &'static str,
    /// The generated configuration.
    pub(super) cfg: String,
    /// GRUB's saved variables.
    pub(super) environment: String,
    /// Where the own arguments stand.
    pub(super) settings: Settings,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settings {
    /// A file of the agent's own.
    DropIn(&'static str),
    /// A block in the host's file, because the program reads no other.
    Shared(&'static str),
}

impl Settings {
    pub(super) fn path(&self) -> &'static str {
        match self {
            Self::DropIn(path) | Self::Shared(path) => path,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entries {
    /// The entries of this host's kernels, without those that rescue it.
    pub(super) files: Vec<String>,
    /// The command line of kernels that are installed later, if the host has such a file.
    pub(super) new_kernels: Option<String>,
    /// GRUB reads the entries, and not systemd-boot.
    pub(super) by_grub: bool,
    /// The boot loader counts the boots of entries that ask for it, and goes on to the next one.
    pub(super) counts: bool,
}

impl Loader {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Grub(_) => "GRUB",
            Self::Entries(Entries { by_grub: true, .. }) => "GRUB with boot loader entries",
            Self::Entries(_) => "systemd-boot",
            Self::Firmware { .. } => "Raspberry Pi firmware",
        }
    }
}

/// Finds it.
///
/// # Errors
/// Why the arguments cannot be changed, with the remedy.
pub(super) fn find(root: &Root) -> Result<Loader, String> {
    match Probe(root).loader() {
        Ok(found) => found,
        Err(error) => {
            Err(format!("the boot loader cannot be examined: {}", api::formats::text::chain(&error)))
        }
    }
}

const BY_HAND: &str =
    "remove the kernel arguments from the MachineConfig, and set them with the distribution's tools";

struct Probe<'r>(&'r Root);

impl Probe<'_> {
    fn is_there(&self, path: &str) -> Result<bool, FsError> {
        Ok(!self.0.found(path)?.is_absent())
    }

    fn loader(&self) -> Result<Result<Loader, String>, FsError> {
        for mark in CONTAINER {
            if self.is_there(mark)? {
                return Ok(Err(format!(
                    "this machine is a container, which runs its host's kernel; {BY_HAND}"
                )));
            }
        }
        if self.is_there(OSTREE_BOOTED)? {
            return Ok(Err(format!("OSTree manages its boot loader; {BY_HAND}")));
        }
        let model = self.0.text(MODEL)?.unwrap_or_default();
        if model.starts_with("Raspberry Pi")
            && let Some(found) = self.firmware()?
        {
            return Ok(found);
        }
        let by_systemd = self.variable(LOADER_INFO)?.is_some_and(|name| name.starts_with("systemd-boot"));
        if let Some(entry) = self.variable(ENTRY_SELECTED)?.filter(|_| by_systemd)
            && is_uki(&entry)
        {
            return Ok(Err(unified(&entry)));
        }
        if !by_systemd {
            for folder in GRUB_FOLDERS {
                let cfg = format!("{folder}/grub.cfg");
                match self.0.found(&cfg)? {
                    PathState::File { .. } => return self.grub(folder, cfg),
                    PathState::Link { target, .. } => {
                        return Ok(Err(format!(
                            "{cfg} is a link to {target}, so another program manages it; {BY_HAND}"
                        )));
                    }
                    _ => {}
                }
            }
        }
        if let Some(found) = self.entries(false)? {
            return Ok(found);
        }
        for folder in UKI_FOLDERS {
            if let Some(image) = self.0.list(folder)?.into_iter().find(|n| is_uki(n)) {
                return Ok(Err(unified(&format!("{folder}/{image}"))));
            }
        }
        Ok(Err(format!(
            "no boot loader was found that is understood (GRUB, systemd-boot, or a Raspberry Pi's firmware, with \
             its partition mounted below /boot or /efi); {BY_HAND}"
        )))
    }

    /// A variable of the firmware: four bytes of attributes, then UTF-16. `None`: the host does not have it.
    fn variable(&self, path: &str) -> Result<Option<String>, FsError> {
        let Some(bytes) = self.0.read_if_there(path)? else { return Ok(None) };
        let units = bytes.get(4..).unwrap_or_default().chunks_exact(2);
        let units: Vec<u16> =
            units.map(|c| c.iter().rev().fold(0, |all, b| all << 8 | u16::from(*b))).collect();
        Ok(Some(String::from_utf16_lossy(&units).trim_end_matches('\0').to_owned()))
    }

    /// The reason why files in a folder cannot be changed.
    fn read_only(&self, folder: &str) -> Result<Option<String>, FsError> {
        let why = format!(
            "{folder} is on a file system that is mounted read-only; mount it writable, or set the kernel arguments \
             where that partition is made"
        );
        Ok(self.0.is_read_only(folder)?.then_some(why))
    }

    fn grub(&self, folder: &str, cfg: String) -> Result<Result<Loader, String>, FsError> {
        if let Some(why) = self.read_only(folder)? {
            return Ok(Err(why));
        }
        let text = self.0.text(&cfg)?.unwrap_or_default();
        if text.lines().any(|l| l.trim() == "blscfg" || l.trim().starts_with("blscfg ")) {
            let none = format!(
                "{cfg} has GRUB read boot loader entries, and there are none of this host; {BY_HAND}"
            );
            return Ok(self.entries(true)?.unwrap_or(Err(none)));
        }
        let mut program = None;
        for path in MKCONFIG {
            if program.is_none() && self.is_there(path)? {
                program = Some(path);
            }
        }
        let Some(program) = program else {
            return Ok(Err(format!(
                "{cfg} exists, and the program that generates it (grub-mkconfig) does not; install it, or {BY_HAND}"
            )));
        };
        if let Some(script) = self.0.text(UPDATE_GRUB)?
            && !script.contains(UPDATES_ONLY)
        {
            return Ok(Err(format!(
                "{UPDATE_GRUB} is not the distribution's own, so something else than {cfg} may decide what boots; \
                 {BY_HAND}"
            )));
        }
        // Debian's program reads the folder of drop-ins; the one of the GRUB project and of Fedora does not.
        let script = self.0.text(program)?.unwrap_or_default();
        let settings = match script.contains("default/grub.d/") {
            true => Settings::DropIn(DROPIN),
            false => Settings::Shared(SHARED_SETTINGS),
        };
        let environment = format!("{folder}/grubenv");
        Ok(Ok(Loader::Grub(Grub { program, cfg, environment, settings })))
    }

    fn entries(&self, by_grub: bool) -> Result<Option<Result<Loader, String>>, FsError> {
        let machine = self.0.text("/etc/machine-id")?.unwrap_or_default();
        let token = self.0.text("/etc/kernel/entry-token")?.unwrap_or_default();
        let names: Vec<&str> = [machine.trim(), token.trim()].into_iter().filter(|n| !n.is_empty()).collect();
        for folder in ENTRY_FOLDERS {
            let mut files = Vec::new();
            for name in self.0.list(folder)?.into_iter().filter(|n| n.ends_with(".conf")) {
                let path = format!("{folder}/{name}");
                let text = self.0.text(&path)?.unwrap_or_default();
                let id = super::entries::value(&text, "machine-id");
                let ours = match id {
                    Some(id) => id == machine.trim(),
                    None => names.iter().any(|n| name.starts_with(n)),
                };
                let boots = super::entries::value(&text, "linux").is_some();
                if ours && boots && !name.contains("-0-rescue") {
                    files.push(path);
                }
            }
            let files = one_for_each(files);
            if files.is_empty() {
                continue;
            }
            if let Some(why) = self.read_only(folder)? {
                return Ok(Some(Err(why)));
            }
            let new_kernels = self.is_there(KERNEL_CMDLINE)?.then(|| KERNEL_CMDLINE.to_owned());
            let counts = !by_grub && self.counts()?;
            return Ok(Some(Ok(Loader::Entries(Entries { files, new_kernels, by_grub, counts }))));
        }
        Ok(None)
    }

    /// Whether the boot loader counts boots, and nobody has told it to boot one entry whatever its counter says.
    fn counts(&self) -> Result<bool, FsError> {
        let features = self.0.read_if_there(LOADER_FEATURES)?.unwrap_or_default();
        let counting = features.get(4).is_some_and(|byte| byte & COUNTS_BOOTS != 0);
        if !counting || self.is_there(DEFAULT_ENTRY)? {
            return Ok(false);
        }
        for settings in LOADER_SETTINGS {
            let text = self.0.text(settings)?.unwrap_or_default();
            let fixed = |key| super::entries::value(&text, key).is_some_and(|value| !value.contains('*'));
            if fixed("default") || fixed("preferred") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A Raspberry Pi's command line. `None`: it does not boot with its firmware's own.
    fn firmware(&self) -> Result<Option<Result<Loader, String>>, FsError> {
        for folder in FIRMWARE_FOLDERS {
            let cmdline = format!("{folder}/cmdline.txt");
            if !matches!(self.0.found(&cmdline)?, PathState::File { .. }) {
                continue;
            }
            if let Some(why) = self.read_only(folder)? {
                return Ok(Some(Err(why)));
            }
            let config = format!("{folder}/config.txt");
            let text = self.0.text(&config)?.unwrap_or_default();
            // Either makes the firmware read another file, and may depend on the model or on the try of a boot.
            let other = |l: &&str| ["cmdline=", "os_prefix="].iter().any(|k| l.trim_start().starts_with(k));
            return Ok(Some(match text.lines().find(other) {
                Some(line) => Err(format!(
                    "{config} says {:?}, so the firmware may read another file than {cmdline}; {BY_HAND}",
                    line.trim()
                )),
                None => Ok(Loader::Firmware { cmdline }),
            }));
        }
        Ok(None)
    }
}

/// For each entry, the file that boots next.
fn one_for_each(files: Vec<String>) -> Vec<String> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let stem = boot_counting::parts(&file).map_or(file.as_str(), |(stem, _)| stem).to_owned();
        all.entry(stem).or_default().push(file);
    }
    let next = |of: &Vec<String>| {
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        boot_counting::next(&of).map(str::to_owned)
    };
    all.values().filter_map(next).collect()
}

fn is_uki(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".efi")
}

fn unified(image: &str) -> String {
    format!(
        "it boots the unified kernel image {image}, whose arguments are part of the (signed) image; remove the kernel \
         arguments from the MachineConfig, and build them into the image"
    )
}

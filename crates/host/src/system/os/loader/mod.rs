//! Kernel arguments of ordinary hosts: those that boot by GRUB, by systemd-boot or by the firmware of a Raspberry Pi,
//! and that take no images.
//!
//! ```text
//! find (which loader, or why none) ─► status: host's arguments + own arguments
//! stage ─► write where the loader reads them ─► generate (GRUB) ─► read back ─► publish
//! ```
//!
//! Only arguments that MachineConfigs set ("own") are changed. Those of the host stay, in their order, and the own ones
//! come after them. Which ones are own is recorded: in GRUB's drop-in itself, else in a file of the agent.
//!
//! Every file is replaced as a whole by one rename, so a power cut leaves the old or the new text. GRUB's own program
//! does not work like that: it writes over the file that the machine boots with. It is therefore given another file,
//! and the result is checked before it replaces the real one.
//!
//! Not here: images, kernels and extensions, which these hosts get from packages.

mod boot_counting;
pub(crate) mod entries;
mod entry_files;
mod find;
mod grub;
mod grub_files;
mod line;
mod replace;

use std::collections::BTreeMap;

use desired::mask::argument;
use desired::{OsField, arguments};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk::attributes::{Attributes, PRIVATE};
use crate::disk::fs_error::FsError;
use crate::disk::root::{Root, hex};
use crate::paths::{GENERATED_GRUB, KERNEL_ARGUMENTS};
use crate::system::os::arguments::booted_arguments;
use crate::system::os::{
    ArgumentRules, ArgumentSyntax, Deployment, OsBackend, OsError, OsStatus, Token, UNSUPPORTED, without,
};
use crate::system::programs::Programs;
use crate::system::pull::Pull;
use find::{Entries, Grub, Loader, find};

/// The longest command line that all architectures keep: x86 and arm64 cut it at 2048 bytes with its end.
const LONGEST: usize = 2047;
/// Mode and owner of a new file of settings.
const SETTINGS: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };

/// The back end of hosts whose kernel arguments can be changed, and nothing else of their operating system.
#[derive(Debug)]
pub struct BootLoader {
    root: Root,
    programs: Box<dyn Programs>,
    /// What this process has staged since the last token.
    staged: Option<Deployment>,
}

/// What undo needs: everything that a change of the arguments writes, as it was.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Before {
    /// The texts of files. `None`: it did not exist.
    files: BTreeMap<String, Option<String>>,
    /// SHA-256 of what was generated from them.
    generated: Option<String>,
    /// The own arguments.
    own: Vec<String>,
}

fn os(why: impl Into<String>) -> OsError {
    OsError::new(why)
}

impl From<FsError> for OsError {
    fn from(error: FsError) -> Self {
        Self { killed: error.killed(), ..Self::new(api::formats::text::chain(&error)) }
    }
}

impl BootLoader {
    /// The back end of this host, which runs the host's programs with `programs`.
    #[must_use]
    pub fn new(root: Root, programs: Box<dyn Programs>) -> Self {
        Self { root, programs, staged: None }
    }

    /// The boot loader of a host, if kernel arguments can be changed there.
    ///
    /// # Errors
    /// Why they cannot, with the remedy.
    pub fn detect(root: &Root) -> Result<&'static str, String> {
        find(root).map(|loader| loader.name())
    }

    fn loader(&self) -> Result<Loader, OsError> {
        find(&self.root).map_err(os)
    }

    fn text(&self, path: &str) -> Result<String, OsError> {
        self.root.text(path)?.ok_or_else(|| os(format!("{path} does not exist any more")))
    }

    /// The arguments that MachineConfigs set.
    fn own(&self, loader: &Loader) -> Result<Vec<String>, OsError> {
        match loader {
            Loader::Grub(grub) => {
                let text = self.root.text(grub.settings.path())?.unwrap_or_default();
                grub::own(&text).map_err(|why| os(format!("{}: {why}", grub.settings.path())))
            }
            Loader::Entries(_) | Loader::Firmware { .. } => match self.root.text(KERNEL_ARGUMENTS)? {
                Some(text) => serde_json::from_str(&text).map_err(|e| {
                    os(format!(
                        "{KERNEL_ARGUMENTS} is damaged ({e}); write the kernel arguments that MachineConfigs set \
                         into it as a JSON list"
                    ))
                }),
                None => Ok(Vec::new()),
            },
        }
    }

    /// The folder of a boot partition that kernels are copied to when they are installed, beside `/boot`. `None`: there is none.
    pub(super) fn kernels_beside_boot(&self) -> Option<String> {
        match self.loader() {
            Ok(Loader::Entries(Entries { files, by_grub: false, .. })) => {
                let folder = files.first()?.strip_suffix(".conf")?.rsplit_once("/loader/entries/")?.0;
                Some(folder.to_owned())
            }
            _ => None,
        }
    }

    /// All arguments of the next boot.
    fn next(&self, loader: &Loader) -> Result<Vec<String>, OsError> {
        let text = match loader {
            Loader::Grub(Grub { cfg, environment, .. }) => {
                let environment = self.root.text(environment)?.unwrap_or_default();
                let text = self.text(cfg)?;
                let list = grub::entries(&text);
                return match grub::default_entry(&list, grub::chosen(&text, &environment)) {
                    Some(entry) => Ok(entry.arguments.clone()),
                    None => Err(os(format!("{cfg} has no entry that boots a kernel"))),
                };
            }
            Loader::Entries(Entries { files, .. }) => {
                let release = self.root.text("/proc/sys/kernel/osrelease")?.unwrap_or_default();
                let mut texts = Vec::new();
                for path in files {
                    texts.push(self.text(path)?);
                }
                let runs = texts.iter().find(|t| entries::value(t, "version") == Some(release.trim()));
                let chosen = runs.or(texts.last()).map(|t| entries::arguments_of(t));
                return chosen.ok_or_else(|| os("there is no boot loader entry any more"));
            }
            Loader::Firmware { cmdline } => self.text(cmdline)?,
        };
        Ok(arguments(&[line::first(&text).to_owned()]))
    }

    /// The files that a change of the arguments writes.
    fn files(&self, loader: &Loader) -> Result<Vec<String>, OsError> {
        Ok(match loader {
            Loader::Grub(grub) => vec![grub.settings.path().to_owned()],
            Loader::Entries(Entries { files, new_kernels, .. }) => {
                let mut all = vec![KERNEL_ARGUMENTS.to_owned()];
                all.extend(new_kernels.clone());
                all.extend(files.iter().cloned());
                all
            }
            Loader::Firmware { cmdline } => vec![KERNEL_ARGUMENTS.to_owned(), cmdline.clone()],
        })
    }

    fn before(&self) -> Result<Before, OsError> {
        let loader = self.loader()?;
        let mut files = BTreeMap::new();
        for path in self.files(&loader)? {
            let text = self.root.text(&path)?;
            files.insert(path, text);
        }
        let generated = match &loader {
            Loader::Grub(grub) => self.root.read_if_there(&grub.cfg)?.map(|b| hex(&Sha256::digest(&b))),
            Loader::Entries(_) | Loader::Firmware { .. } => None,
        };
        Ok(Before { files, generated, own: self.own(&loader)? })
    }

    /// Gives every entry of this host these own arguments instead of those that it has.
    fn change(&mut self, loader: &Loader, had: &[String], own: &[String]) -> Result<(), OsError> {
        match loader {
            Loader::Grub(grub) => {
                self.grub_settings(&grub.settings, own)?;
                self.generate(grub, own)
            }
            Loader::Entries(found) => {
                self.record(own)?;
                if let Some(path) = &found.new_kernels {
                    let text = line::edit(&self.text(path)?, had, own);
                    self.put(path, &text, SETTINGS)?;
                }
                self.change_entries(found, had, own)
            }
            Loader::Firmware { cmdline } => {
                self.record(own)?;
                let text = line::edit_first(&self.text(cmdline)?, had, own);
                self.put(cmdline, &text, SETTINGS)?;
                missing(cmdline, own, &arguments(&[line::first(&self.text(cmdline)?).to_owned()]))
            }
        }
    }

    fn record(&self, own: &[String]) -> Result<(), OsError> {
        let json = serde_json::to_string(own).map_err(|e| os(e.to_string()))?;
        self.put(KERNEL_ARGUMENTS, &json, PRIVATE)
    }
}

/// Checks that a command line has all of these arguments, in their order.
fn missing(place: &str, own: &[String], has: &[String]) -> Result<(), OsError> {
    let mut rest = has.iter();
    match own.iter().find(|a| !rest.any(|b| b == *a)) {
        None => Ok(()),
        Some(lost) => Err(os(format!(
            "{place} does not contain the kernel argument {}; check what else sets the arguments there, such as a file of \
             /etc/default or /etc/grub.d",
            argument(lost)
        ))),
    }
}

impl OsBackend for BootLoader {
    fn name(&self) -> &'static str {
        "boot loader"
    }

    fn refuses(&self, field: OsField) -> Option<String> {
        match field {
            OsField::KernelArguments => find(&self.root).err(),
            OsField::Image | OsField::KernelType | OsField::Extensions => Some(UNSUPPORTED.to_owned()),
        }
    }

    fn argument_rules(&self) -> Result<ArgumentRules, OsError> {
        let loader = self.loader()?;
        let syntax = match loader {
            Loader::Grub(_) | Loader::Entries(Entries { by_grub: true, .. }) => ArgumentSyntax::Grub,
            Loader::Entries(_) | Loader::Firmware { .. } => ArgumentSyntax::Line,
        };
        Ok(ArgumentRules { syntax, longest: Some(LONGEST), own: Some(self.own(&loader)?) })
    }

    fn paths(&self) -> Vec<String> {
        let Ok(loader) = self.loader() else { return Vec::new() };
        let mut all = self.files(&loader).unwrap_or_default();
        if let Loader::Grub(grub) = loader {
            all.push(grub.cfg);
        }
        all
    }

    fn status(&mut self) -> Result<OsStatus, OsError> {
        let loader = self.loader()?;
        let deployment = |kernel_arguments| Deployment {
            kernel_arguments,
            kernel_type: desired::DEFAULT_KERNEL.to_owned(),
            ..Deployment::default()
        };
        let booted = booted_arguments(&self.root)?;
        let next = self.next(&loader)?;
        // Arguments that the loader computes at boot, such as GRUB's variables, cannot be compared.
        let computed = next.iter().any(|a| a.starts_with('$'));
        let next: Vec<String> = next.into_iter().filter(|a| !a.starts_with('$')).collect();
        let more = if computed { Vec::new() } else { without(&booted, &next) };
        let same = more.is_empty() && without(&next, &booted).is_empty();
        let staged = (!same).then(|| deployment(next));
        Ok(OsStatus { booted: deployment(booted), staged, ..OsStatus::default() })
    }

    /// Nothing is fetched, but what could not be written is found before the node is drained.
    fn fetch(&mut self, _: &Deployment, _: &Pull) -> Result<(), OsError> {
        let loader = self.loader()?;
        let mut paths = self.files(&loader)?;
        if let Loader::Grub(grub) = &loader {
            paths.push(grub.cfg.clone());
        }
        for path in paths {
            if self.place(&path)?.is_some() {
                self.has_room(&path, self.text(&path)?.len())?;
            }
        }
        Ok(())
    }

    /// Also removes what a write that was interrupted left: it may hold a password, and an undo may find nothing else.
    fn mark(&mut self) -> Result<Token, OsError> {
        self.staged = None;
        let loader = self.loader()?;
        let mut paths = self.files(&loader)?;
        paths.extend(match loader {
            Loader::Grub(grub) => vec![grub.cfg, GENERATED_GRUB.to_owned()],
            Loader::Entries(_) | Loader::Firmware { .. } => Vec::new(),
        });
        let counted =
            |path: &String| boot_counting::parts(path).map(|(stem, _)| boot_counting::counted(stem));
        let more: Vec<String> = paths.iter().filter_map(counted).collect();
        for path in paths.iter().chain(&more) {
            self.root.discard_temporary(path)?;
        }
        serde_json::to_string(&self.before()?).map(Token).map_err(|e| os(e.to_string()))
    }

    fn stage(&mut self, target: &Deployment) -> Result<(), OsError> {
        if self.staged.as_ref() == Some(target) {
            return Ok(());
        }
        let loader = self.loader()?;
        let had = self.own(&loader)?;
        let status = self.status()?;
        let host = without(&status.next().kernel_arguments, &had);
        let own = after(&target.kernel_arguments, &host);
        self.change(&loader, &had, &own)?;
        self.staged = Some(target.clone());
        Ok(())
    }

    fn has_undo_data(&self) -> Result<bool, OsError> {
        Ok(!self.waiting_entries()?.is_empty())
    }

    fn discard_undo_data(&mut self) -> Result<(), OsError> {
        let waiting = self.waiting_entries()?;
        if waiting.is_empty() {
            return Ok(());
        }
        let discarded = match self.loader() {
            Ok(Loader::Entries(found)) => self.discard_previous_entries(&found),
            Ok(Loader::Grub(_) | Loader::Firmware { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        // An entry that is not counted any more is booted in any case.
        match (discarded, waiting.into_iter().find(|entry| entry.counted)) {
            (Err(error), Some(entry)) if !error.killed => Err(os(format!(
                "the boot loader still counts the boots of {}, although its update was kept: when no tries are left, it \
                 boots the previous entry; {} (this is tried again)",
                entry.path, error.why
            ))),
            (Err(error), None) if !error.killed => {
                tracing::warn!(%error, "the previous entry could not be removed from the boot loader's menu, although the \
                    update was kept");
                Ok(())
            }
            (discarded, _) => discarded,
        }
    }

    fn fell_back(&mut self) -> Option<String> {
        let Ok(Loader::Entries(found)) = self.loader() else { return None };
        let spent = self.without_tries(&found).unwrap_or_default();
        let first = spent.first()?;
        Some(format!(
            "{first} did not boot in any of its tries, so the boot loader went back to the previous entry (boot counting)"
        ))
    }

    fn undo(&mut self, before: &Token) -> Result<(), OsError> {
        let before: Before = serde_json::from_str(&before.0)
            .map_err(|e| os(format!("the journal's token of the boot loader cannot be read: {e}")))?;
        self.staged = None;
        let loader = self.loader()?;
        let own = self.own(&loader)?;
        if let Loader::Entries(found) = &loader {
            self.restore_entries(found, &own, &before)?;
        }
        // The record of our own arguments comes last: an interrupted undo needs it again.
        let (record, others): (Vec<_>, Vec<_>) =
            before.files.iter().partition(|(p, _)| *p == KERNEL_ARGUMENTS);
        for (path, text) in others.into_iter().chain(record) {
            match text {
                Some(_) if boot_counting::parts(path).is_some() => {}
                Some(text) => self.put(path, text, SETTINGS)?,
                None => self.root.remove(path)?,
            }
        }
        match &loader {
            Loader::Grub(grub) if self.before()?.generated != before.generated => {
                self.generate(grub, &before.own)
            }
            _ => Ok(()),
        }
    }
}

/// What follows the host's own arguments: `all` without the first occurrence of each of `host`.
fn after(all: &[String], host: &[String]) -> Vec<String> {
    let mut out = all.to_vec();
    for one in host {
        if let Some(at) = out.iter().position(|a| a == one) {
            out.remove(at);
        }
    }
    out
}

#[cfg(test)]
mod tests;

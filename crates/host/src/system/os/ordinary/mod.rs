//! Ordinary hosts, which take no images: kernel arguments by the boot loader, and extensions and kernels as packages of the
//! distribution (apt, dnf), where a cluster has allowed that.
//!
//! ```text
//! fetch: what comes and goes is resolved to exact versions, checked and downloaded      (in service)
//! mark: these versions, and what was there before  ─► the journal's token
//! stage: install, remove, read back, kernel arguments                                   (drained)
//! undo: end what was interrupted, remove what came, put back what went
//! ```
//!
//! An installation must only add: one that would also upgrade or remove a package of the host is refused, because that cannot
//! be taken back without doubt. What came for MachineConfigs is recorded with its versions; only that is ever removed. A
//! package that the host had before is not recorded, and stays.
//!
//! Unlike a deployment, packages are there as soon as they are installed. The machine reboots nevertheless, and the change is
//! kept or undone after the boot as any other of the operating system.
//!
//! Not here: how kernel arguments are set (see `loader`), and the package managers' words (see `manager`).

mod apt;
mod change;
mod dnf;
mod kernel;
mod manager;
mod packages;
mod record;
mod resolve;

use desired::{DEFAULT_KERNEL, DesiredOs, OsField};
use serde::{Deserialize, Serialize};

use crate::disk::attributes::PRIVATE;
use crate::disk::root::Root;
use crate::paths::FETCHED_PACKAGES;
use crate::system::os::arguments::booted_arguments;
use crate::system::os::extensions::of_extensions;
use crate::system::os::loader::BootLoader;
use crate::system::os::{ArgumentRules, Deployment, OsBackend, OsError, OsStatus, Token, UNSUPPORTED};
use crate::system::programs::Programs;
use crate::system::pull::Pull;
use kernel::kernel_type;
use manager::Manager;
use packages::{Installed, Package, Runner, State};
use record::Record;

const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The back end.
#[derive(Debug)]
pub struct OrdinaryHost {
    root: Root,
    loader: BootLoader,
    programs: Box<dyn Programs>,
    /// What this process has resolved and downloaded for the change that it makes next, or has found resolved and downloaded by an
    /// earlier process. It is part of the next token until it is staged.
    fetched: Option<Fetched>,
    /// What this process has staged since the last token, with all that belongs to it.
    staged: Option<Deployment>,
}

/// What a change of packages does, in exact versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Packages {
    install: Vec<Package>,
    /// Those of them that nobody asked for.
    needed: Vec<String>,
    remove: Vec<Package>,
    /// Packages that had left configuration behind before: it is the host's.
    left: Vec<String>,
}

/// What was resolved and downloaded for a change between two records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fetched {
    had: Record,
    /// What the package manager was asked for.
    names: Vec<String>,
    packages: Packages,
    after: Record,
}

impl Fetched {
    /// Whether it leads from this record to this deployment.
    fn leads(&self, had: &Record, target: &Deployment) -> bool {
        self.had == *had
            && self.after.kernel_type == target.kernel_type
            && self.after.extensions == target.extensions
    }
}

/// What the journal keeps.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Before {
    /// The boot loader's own token. `None`: it is not understood, or not asked for.
    loader: Option<Token>,
    record: Record,
    packages: Packages,
    /// The kernel that ran.
    release: String,
    /// The kernel that booted by default, where grubby says it and that changes.
    #[serde(default)]
    default_kernel: Option<String>,
}

fn os(why: impl Into<String>) -> OsError {
    OsError::new(why)
}

impl OrdinaryHost {
    /// The back end of this host. `programs`: runs the host's programs, for the boot loader and for packages.
    #[must_use]
    pub fn new(root: Root, loader: Box<dyn Programs>, programs: Box<dyn Programs>) -> Self {
        Self { loader: BootLoader::new(root.clone(), loader), root, programs, fetched: None, staged: None }
    }

    /// What changes its packages, for people.
    pub(crate) fn packages(root: &Root) -> String {
        Manager::find(root)
            .map_or_else(|_| String::new(), |m| format!("; its packages are those of {}", m.name()))
    }

    fn manager(&self) -> Result<Manager, OsError> {
        Manager::find(&self.root).map_err(os)
    }

    fn runner(&mut self) -> Runner<'_> {
        Runner { root: &self.root, programs: self.programs.as_mut() }
    }

    fn release(&self) -> Result<String, OsError> {
        Ok(self.root.text(RELEASE)?.unwrap_or_default().trim().to_owned())
    }

    fn has_loader(&self) -> bool {
        self.loader.refuses(OsField::KernelArguments).is_none()
    }

    /// The packages that these extensions are.
    fn names(manager: Manager, extensions: &[String]) -> Vec<String> {
        match manager {
            // The reference's names are those of Red Hat's packages.
            Manager::Dnf => of_extensions(extensions),
            Manager::Apt => extensions.to_vec(),
        }
    }
}

fn is_whole(installed: &Installed, name: &str) -> bool {
    installed.get(name).is_some_and(|(_, state)| *state == State::Whole)
}

impl OsBackend for OrdinaryHost {
    fn name(&self) -> &'static str {
        "boot loader"
    }

    fn refuses(&self, field: OsField) -> Option<String> {
        match field {
            OsField::KernelArguments => self.loader.refuses(field),
            OsField::Image => Some(UNSUPPORTED.to_owned()),
            OsField::Extensions => Manager::find(&self.root).err(),
            OsField::KernelType => {
                let manager = Manager::find(&self.root);
                manager.and_then(|m| m.kernel(&self.root, "realtime")).err()
            }
        }
    }

    fn needs_consent(&self, field: OsField) -> Option<String> {
        let manager = Manager::find(&self.root).ok()?;
        matches!(field, OsField::Extensions | OsField::KernelType).then(|| {
            format!(
                "this host has no image, and {} would install packages; allow that for the pool with the annotation {}: {}, \
                 or remove it from the MachineConfig",
                manager.name(),
                api::names::annotation::HOST_PACKAGES,
                desired::HOST_PACKAGES_ALLOWED
            )
        })
    }

    fn managed(&self, wanted: &DesiredOs) -> Result<DesiredOs, OsError> {
        let record = Record::read(&self.root)?;
        let mut wanted = wanted.clone();
        wanted.extensions.retain(|e| record.extensions.contains(e));
        if record.kernel_type == DEFAULT_KERNEL {
            DEFAULT_KERNEL.clone_into(&mut wanted.kernel_type);
        }
        Ok(wanted)
    }

    fn argument_rules(&self) -> Result<ArgumentRules, OsError> {
        self.loader.argument_rules()
    }

    fn paths(&self) -> Vec<String> {
        let mut all = self.loader.paths();
        if Record::read(&self.root).is_ok_and(|r| !r.is_empty()) {
            all.extend(["/var/lib/dpkg/status", "/var/lib/rpm", "/usr/lib/sysimage/rpm"].map(str::to_owned));
        }
        all
    }

    fn status(&mut self) -> Result<OsStatus, OsError> {
        let mut status = if self.has_loader() {
            self.loader.status()?
        } else {
            let kernel_arguments = booted_arguments(&self.root)?;
            OsStatus {
                booted: Deployment { kernel_arguments, ..Deployment::default() },
                ..OsStatus::default()
            }
        };
        let record = Record::read(&self.root)?;
        let mut extensions = record.extensions.clone();
        if !extensions.is_empty() {
            let manager = self.manager()?;
            let now = manager.installed(&mut self.runner())?;
            let whole = |name: &String| now.get(name).is_some_and(|(_, s)| *s == State::Whole);
            extensions.retain(|e| Self::names(manager, std::slice::from_ref(e)).iter().all(whole));
        }
        // A host that runs such a kernel by itself is left alone.
        let runs = match record.kernel_type.as_str() {
            DEFAULT_KERNEL => DEFAULT_KERNEL,
            _ => kernel_type(&self.release()?),
        };
        for (deployment, kernel) in
            [(Some(&mut status.booted), runs), (status.staged.as_mut(), record.kernel_type.as_str())]
        {
            if let Some(deployment) = deployment {
                deployment.extensions.clone_from(&extensions);
                kernel.clone_into(&mut deployment.kernel_type);
            }
        }
        if status.staged.is_none() && runs != record.kernel_type {
            let next = Deployment { kernel_type: record.kernel_type, ..status.booted.clone() };
            status.staged = Some(next);
        }
        Ok(status)
    }

    fn fetch(&mut self, target: &Deployment, pull: &Pull) -> Result<(), OsError> {
        if self.has_loader() {
            self.loader.fetch(target, pull)?;
        }
        let had = Record::read(&self.root)?;
        let earlier =
            self.root.text(FETCHED_PACKAGES)?.and_then(|t| serde_json::from_str::<Fetched>(&t).ok());
        if let Some(earlier) = earlier.filter(|f| f.leads(&had, target))
            && self.still_holds(&earlier)?
        {
            self.fetched = Some(earlier);
            return Ok(());
        }
        let fetched = self.resolve(target, pull)?;
        if fetched.packages == Packages::default() {
            self.root.remove(FETCHED_PACKAGES)?;
        } else {
            let json = serde_json::to_vec(&fetched).map_err(|e| os(e.to_string()))?;
            self.root.write_bytes(FETCHED_PACKAGES, &json, PRIVATE)?;
        }
        self.fetched = Some(fetched);
        Ok(())
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        self.staged = None;
        let loader = if self.has_loader() { Some(self.loader.mark()?) } else { None };
        let packages = self.fetched.as_ref().map(|f| f.packages.clone()).unwrap_or_default();
        let record = Record::read(&self.root)?;
        let changes = self.fetched.as_ref().is_some_and(|f| f.after.kernel_type != record.kernel_type);
        let default_kernel = if changes { self.grubby("--default-kernel")? } else { None };
        let before = Before { loader, record, packages, release: self.release()?, default_kernel };
        serde_json::to_string(&before).map(Token).map_err(|e| os(e.to_string()))
    }

    fn stage(&mut self, target: &Deployment) -> Result<(), OsError> {
        if self.staged.as_ref() == Some(target) {
            return Ok(());
        }
        let had = Record::read(&self.root)?;
        // What an earlier process has fetched and written down is not read here: the token would not have it, so an undo would
        // leave the packages installed.
        let fetched = self.fetched.take().filter(|f| f.leads(&had, target));
        let Some(Fetched { packages, after, .. }) = fetched else {
            return Err(os(
                "this process did not fetch the packages of the change before it, so nothing is changed",
            ));
        };
        let changes = packages != Packages::default();
        if changes {
            self.change(&packages)?;
        }
        after.write(&self.root)?;
        let next = if self.has_loader() {
            self.loader.status()?.next().kernel_arguments.clone()
        } else {
            target.kernel_arguments.clone()
        };
        if next != target.kernel_arguments {
            self.loader.stage(target)?;
        }
        if changes && had.kernel_type != target.kernel_type {
            self.set_default(&target.kernel_type)?;
        }
        self.staged = Some(target.clone());
        Ok(())
    }

    fn has_undo_data(&self) -> Result<bool, OsError> {
        self.loader.has_undo_data()
    }

    fn discard_undo_data(&mut self) -> Result<(), OsError> {
        self.loader.discard_undo_data()
    }

    fn fell_back(&mut self) -> Option<String> {
        self.loader.fell_back()
    }

    fn undo(&mut self, before: &Token) -> Result<(), OsError> {
        let before = read(before)?;
        self.staged = None;
        self.change_back(&before.packages)?;
        if let Some(path) = before.default_kernel {
            self.grubby(&format!("--set-default={path}"))?;
        }
        before.record.write(&self.root)?;
        match before.loader {
            Some(token) if self.has_loader() => self.loader.undo(&token),
            _ => Ok(()),
        }
    }

    fn runs(&mut self, before: &Token) -> Result<bool, OsError> {
        let before = read(before)?.release;
        Ok(before.is_empty() || kernel_type(&before) == kernel_type(&self.release()?))
    }
}

fn read(token: &Token) -> Result<Before, OsError> {
    // A version that changed no packages kept the boot loader's token alone.
    if serde_json::from_str::<serde_json::Value>(&token.0).is_ok_and(|v| v.get("packages").is_none()) {
        return Ok(Before {
            loader: Some(token.clone()),
            record: Record::default(),
            packages: Packages::default(),
            release: String::new(),
            default_kernel: None,
        });
    }
    serde_json::from_str(&token.0)
        .map_err(|e| os(format!("the journal's token of packages and the boot loader cannot be read: {e}")))
}

#[cfg(test)]
mod tests;

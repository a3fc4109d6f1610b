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
mod dnf;
mod manager;
mod record;

use std::time::Duration;

use desired::{DEFAULT_KERNEL, OsField, OsWanted};
use serde::{Deserialize, Serialize};

use crate::disk::found::Attributes;
use crate::disk::root::Root;
use crate::system::os::arguments::booted_arguments;
use crate::system::os::loader::BootLoader;
use crate::system::os::rpm_ostree::packages::of_extensions;
use crate::system::os::{
    ArgumentRules, Deployment, OsBackend, OsError, OsStatus, Token, UNSUPPORTED, without,
};
use crate::system::programs::Programs;
use crate::system::pull::Pull;
use manager::{Installed, Manager, Package, Runner, State};
use record::Record;

/// Bytes that stay free beside what packages take.
const SPARE: u64 = 64 * 1024 * 1024;
/// What was fetched, for the process that applies it after the drain.
const FETCHED: &str = "/run/machine-config-daemon-packages.json";
const PRIVATE: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
const GRUBBY: &str = "/usr/sbin/grubby";
const SOON: Duration = Duration::from_secs(60);
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The back end.
#[derive(Debug)]
pub struct OrdinaryHost {
    root: Root,
    loader: BootLoader,
    programs: Box<dyn Programs>,
    /// What was resolved and downloaded last.
    fetched: Option<Fetched>,
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

/// The type of a running kernel by its release, such as `6.1.0-25-rt-amd64` or `5.14.0-427.el9.x86_64+rt`.
fn kernel_type(release: &str) -> &'static str {
    if release.contains("-rt-") || release.ends_with("+rt") || release.contains(".rt") {
        "realtime"
    } else if release.ends_with("+64k") {
        "64k-pages"
    } else {
        DEFAULT_KERNEL
    }
}

impl OrdinaryHost {
    /// The back end of this host. `programs`: runs the host's programs, for the boot loader and for packages.
    #[must_use]
    pub fn new(root: Root, loader: Box<dyn Programs>, programs: Box<dyn Programs>) -> Self {
        Self { loader: BootLoader::new(root.clone(), loader), root, programs, fetched: None }
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

    /// Resolves the change to a deployment, and downloads what it needs.
    fn resolve(&mut self, target: &Deployment, pull: &Pull) -> Result<Fetched, OsError> {
        let had = Record::read(&self.root)?;
        let mut after = Record { kernel_type: target.kernel_type.clone(), ..had.clone() };
        after.extensions.clone_from(&target.extensions);
        let (names, packages) = (Vec::new(), Packages::default());
        let mut fetched = Fetched { had, names, packages, after };
        if fetched.had.kernel_type == target.kernel_type
            && fetched.had.extensions.is_empty()
            && target.extensions.is_empty()
        {
            return Ok(fetched);
        }
        let manager = self.manager()?;
        let installed = manager.installed(&mut self.runner())?;
        self.comes(manager, &installed, &mut fetched, pull)?;
        self.goes(manager, &installed, &mut fetched, pull)?;
        Ok(fetched)
    }

    /// What comes.
    fn comes(
        &mut self,
        manager: Manager,
        installed: &Installed,
        fetched: &mut Fetched,
        pull: &Pull,
    ) -> Result<(), OsError> {
        let Fetched { had: _, names, packages, after } = fetched;
        if let Some(bad) = after.extensions.iter().find_map(|name| desired::refused_extension(name)) {
            return Err(os(bad));
        }
        let kernel_type = &after.kernel_type;
        let kernel = manager.kernel(&self.root, kernel_type).map_err(os)?;
        *names = Self::names(manager, &after.extensions);
        names.extend(kernel);
        // What is there is the host's, or came before.
        names.retain(|name| !is_whole(installed, name));
        if names.is_empty() {
            return Ok(());
        }
        let mut runner = Runner { root: &self.root, programs: self.programs.as_mut() };
        let solved = manager.solve(&mut runner, names, pull)?;
        if !solved.is_plain() {
            let replaced: Vec<_> =
                solved.replaced.iter().map(|p| format!("{} {}", p.name, p.version)).collect();
            return Err(os(format!(
                "to install {} {} would also upgrade [{}] and remove [{}], which could not be taken back; upgrade the host \
                 first, or choose other packages",
                names.join(", "),
                manager.name(),
                replaced.join(", "),
                solved.removed.join(", ")
            )));
        }
        if solved.installed.is_empty() {
            return Err(os(format!("{} found nothing to install for {}", manager.name(), names.join(", "))));
        }
        let is_one = |name: &&String| solved.installed.iter().any(|p| p.name == **name);
        if let Some(name) = names.iter().find(|name| !is_one(name)) {
            let comes: Vec<&str> = solved.installed.iter().map(|p| p.name.as_str()).collect();
            return Err(os(format!(
                "{name} is no package, but a name that another package provides: {} would install {}; name the package itself",
                manager.name(),
                comes.join(", ")
            )));
        }
        has_room(runner.root, "/usr/lib", solved.bytes)?;
        if solved.installed.iter().any(|p| manager.is_kernel(&p.name, kernel_type)) {
            has_room(runner.root, "/boot/vmlinuz", kernel_bytes(runner.root)?)?;
            // kernel-install copies it to where systemd-boot can read it.
            if let Some(folder) = self.loader.kernels_beside_boot() {
                has_room(runner.root, &format!("{folder}/linux"), kernel_bytes(runner.root)?)?;
            }
        }
        manager.download(&mut runner, &solved.installed, pull)?;
        let of = |p: &&Package| !names.contains(&p.name);
        packages.needed = solved.installed.iter().filter(of).map(|p| p.name.clone()).collect();
        let left = |p: &&Package| installed.get(&p.name).is_some_and(|(_, s)| *s == State::ConfigFiles);
        packages.left = solved.installed.iter().filter(left).map(|p| p.name.clone()).collect();
        packages.install = solved.installed;
        Ok(())
    }

    /// What goes.
    fn goes(
        &mut self,
        manager: Manager,
        installed: &Installed,
        fetched: &mut Fetched,
        pull: &Pull,
    ) -> Result<(), OsError> {
        let Fetched { had, packages, after, .. } = fetched;
        let gone = Self::names(manager, &without(&had.extensions, &after.extensions));
        let stays = Self::names(manager, &after.extensions);
        // A kernel that the host had before is its own.
        let kernel = manager.kernel(&self.root, &had.kernel_type).unwrap_or_default();
        let leaves_kernel =
            had.kernel_type != after.kernel_type && had.packages.iter().any(|p| kernel.contains(&p.name));
        let of_kernel = |name: &String| leaves_kernel && manager.is_kernel(name, &had.kernel_type);
        let asked: Vec<String> = installed
            .iter()
            .filter(|(name, (_, state))| {
                let ours = had.packages.iter().any(|p| p.name == **name);
                // A later version of the kernel has a name of its own.
                let goes = of_kernel(name) || (ours && gone.contains(name) && !stays.contains(name));
                goes && *state == State::Whole
            })
            .map(|(name, _)| name.clone())
            .collect();
        // The kernel that stays does not go with an extension.
        let kernel_stays = had.kernel_type == after.kernel_type;
        let may: Vec<String> = had
            .packages
            .iter()
            .filter(|p| !stays.contains(&p.name) && is_whole(installed, &p.name))
            .filter(|p| !(kernel_stays && manager.is_kernel(&p.name, &had.kernel_type)))
            .map(|p| p.name.clone())
            .collect();
        let mut runner = Runner { root: &self.root, programs: self.programs.as_mut() };
        let left = removable(manager, &mut runner, &may, &asked, packages.install.is_empty())?;
        packages.remove = left
            .iter()
            .filter_map(|name| {
                let (version, _) = installed.get(name)?;
                let arch = had.packages.iter().find(|p| p.name == *name).map(|p| p.arch.clone());
                let arch = arch.unwrap_or_else(|| manager.architecture().to_owned());
                Some(Package { name: name.clone(), version: version.clone(), arch })
            })
            .collect();
        if !packages.remove.is_empty() {
            manager.keep(&mut runner, &packages.remove, pull)?;
        }
        after.packages.retain(|p| !left.contains(&p.name) && is_whole(installed, &p.name));
        after.packages.extend(packages.install.iter().cloned());
        Ok(())
    }

    /// Whether what was fetched earlier is what would be fetched now: the drain may have taken hours. Nothing is downloaded.
    fn still_holds(&mut self, fetched: &Fetched) -> Result<bool, OsError> {
        let manager = self.manager()?;
        let mut runner = self.runner();
        let now = manager.installed(&mut runner)?;
        let is = |p: &Package| now.get(&p.name).is_some_and(|(v, s)| *v == p.version && *s == State::Whole);
        let whole = |p: &Package| now.get(&p.name).is_some_and(|(_, s)| *s == State::Whole);
        let packages = &fetched.packages;
        if !packages.remove.iter().all(is) || packages.install.iter().any(whole) {
            return Ok(false);
        }
        if packages.install.is_empty() {
            return Ok(true);
        }
        manager.confirms(&mut runner, &fetched.names, &packages.install)
    }

    /// Brings the packages to what was resolved.
    fn change(&mut self, packages: &Packages) -> Result<(), OsError> {
        let manager = self.manager()?;
        let mut runner = self.runner();
        if !packages.install.is_empty() {
            manager.install(&mut runner, &packages.install, &packages.needed)?;
        }
        if !packages.remove.is_empty() {
            let names: Vec<String> = packages.remove.iter().map(|p| p.name.clone()).collect();
            let goes = manager.removes(&mut runner, &names)?;
            if let Some(by) = goes.iter().find(|n| !names.contains(n)) {
                return Err(os(format!(
                    "{} cannot be removed, because {by} needs it; keep that extension in the MachineConfig",
                    names.join(", ")
                )));
            }
            manager.remove(&mut runner, &names, false)?;
        }
        let now = manager.installed(&mut runner)?;
        let has = |p: &Package| now.get(&p.name).is_some_and(|(v, s)| *v == p.version && *s == State::Whole);
        if let Some(lost) = packages.install.iter().find(|p| !has(p)) {
            return Err(os(format!(
                "{} reported success, but {} {} is not installed",
                manager.name(),
                lost.name,
                lost.version
            )));
        }
        match packages.remove.iter().find(|p| has(p)) {
            Some(left) => {
                Err(os(format!("{} reported success, but {} is still installed", manager.name(), left.name)))
            }
            None => Ok(()),
        }
    }

    /// Undoes what [`OrdinaryHost::change`] did, or a part of it.
    fn change_back(&mut self, packages: &Packages) -> Result<(), OsError> {
        if packages.install.is_empty() && packages.remove.is_empty() {
            return Ok(());
        }
        let manager = self.manager()?;
        let mut runner = self.runner();
        // Whatever fails here may be what is undone.
        let new = packages.install.iter().filter(|p| !packages.left.contains(&p.name));
        let brought: Vec<String> = new.map(|p| p.name.clone()).collect();
        match manager.repair(&mut runner, &brought) {
            Err(error) if error.killed => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "the interrupted change of packages is not ended; it is undone");
            }
            Ok(()) => {}
        }
        let now = manager.installed(&mut runner)?;
        let there = |p: &&Package| now.get(&p.name).is_some_and(|(_, s)| *s != State::ConfigFiles);
        let came: Vec<String> = packages.install.iter().filter(there).map(|p| p.name.clone()).collect();
        if !came.is_empty() {
            let goes = manager.removes(&mut runner, &came)?;
            let others: Vec<String> = goes.iter().filter(|n| !came.contains(n)).cloned().collect();
            if !others.is_empty() {
                return Err(os(format!(
                    "{} cannot be taken back, because packages that were installed meanwhile need it: {}; remove those",
                    came.join(", "),
                    others.join(", ")
                )));
            }
            let (kept, whole): (Vec<_>, Vec<_>) = came.into_iter().partition(|n| packages.left.contains(n));
            for (names, purge) in [(whole, true), (kept, false)] {
                if !names.is_empty() {
                    manager.remove(&mut runner, &names, purge)?;
                }
            }
        }
        let gone: Vec<Package> = packages
            .remove
            .iter()
            .filter(|p| now.get(&p.name).is_none_or(|(_, s)| *s != State::Whole))
            .cloned()
            .collect();
        if gone.is_empty() { Ok(()) } else { manager.install(&mut runner, &gone, &[]) }
    }

    /// Asks grubby, which sets the default entry of Red Hat's family. `None`: this host has none.
    fn grubby(&mut self, word: &str) -> Result<Option<String>, OsError> {
        if self.root.found(GRUBBY)?.is_absent() {
            return Ok(None);
        }
        let said = self.runner().run((GRUBBY, &[word.to_owned()]), SOON, &[], &Pull::default());
        said.map(|text| Some(text.trim().to_owned())).map_err(|e| match e.killed {
            true => e,
            false => os(format!("grubby {word}: {}", e.why)),
        })
    }

    /// Lets a kernel of this type boot by default: the newest one. Debian's GRUB does that by itself.
    fn set_default(&mut self, wanted: &str) -> Result<(), OsError> {
        if self.root.found(GRUBBY)?.is_absent() {
            return self.check_default(wanted);
        }
        let name = |file: &String| file.strip_prefix("vmlinuz-").map(str::to_owned);
        let all = self.root.list("/boot")?.iter().filter_map(name).collect::<Vec<_>>();
        let fits = all.into_iter().filter(|r| kernel_type(r) == wanted && !r.contains("rescue"));
        match fits.max_by_key(|release| numbers(release)) {
            Some(release) => self.grubby(&format!("--set-default=/boot/vmlinuz-{release}")).map(drop),
            None => Err(os(format!("there is no kernel of type {wanted} in /boot"))),
        }
    }

    /// What the machine boots by default must be a kernel of this type. Not known of every boot loader.
    fn check_default(&self, wanted: &str) -> Result<(), OsError> {
        let Some(kernel) = self.loader.default_kernel()? else { return Ok(()) };
        if kernel_type(kernel.trim_start_matches("vmlinuz-")) == wanted {
            return Ok(());
        }
        Err(os(format!(
            "the boot loader would boot {kernel}, which is no kernel of type {wanted}; let it boot the newest kernel by \
             default (GRUB_DEFAULT in /etc/default/grub), or remove spec.kernelType from the MachineConfig"
        )))
    }
}

/// The numbers in a text, in order: of two releases of a kernel, the newer one has the greater list.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

fn is_whole(installed: &Installed, name: &str) -> bool {
    installed.get(name).is_some_and(|(_, state)| *state == State::Whole)
}

/// The packages that can go with those that were asked for: `may`, which came for MachineConfigs, if no other needs them.
/// `alone`: nothing comes in the same change. What comes may need them; then they stay until another one goes.
fn removable(
    manager: Manager,
    runner: &mut Runner<'_>,
    may: &[String],
    asked: &[String],
    alone: bool,
) -> Result<Vec<String>, OsError> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let others = |goes: &[String]| -> Vec<String> {
        goes.iter().filter(|n| !may.contains(n) && !asked.contains(n)).cloned().collect()
    };
    let first = manager.removes(runner, asked)?;
    let needed_by = others(&first);
    if !needed_by.is_empty() {
        return Err(os(format!(
            "{} cannot be removed, because packages that stay need it: {}; keep it in spec.extensions, or let those go too (of the \
             host: by hand; of a MachineConfig: there)",
            asked.join(", "),
            needed_by.join(", ")
        )));
    }
    let mut out = asked.to_vec();
    out.extend(first.into_iter().filter(|n| !asked.contains(n)));
    // Dependencies, the last first: what came later needs what came before.
    for name in may.iter().rev().filter(|_| alone) {
        if out.contains(name) {
            continue;
        }
        let more: Vec<String> = out.iter().cloned().chain([name.clone()]).collect();
        if others(&manager.removes(runner, &more)?).is_empty() {
            out = more;
        }
    }
    Ok(out)
}

/// Whether the file system of a path has room for this much, and a little more.
fn has_room(root: &Root, path: &str, bytes: u64) -> Result<(), OsError> {
    let (_, free) = root.space(path)?;
    let need = bytes.saturating_add(SPARE);
    if free >= need {
        return Ok(());
    }
    Err(os(format!(
        "{path}: {need} bytes are needed on its file system for the packages and {free} are free; free space there"
    )))
}

/// What the files of the running kernel take in /boot, as a measure for another one.
fn kernel_bytes(root: &Root) -> Result<u64, OsError> {
    let release = root.text(RELEASE)?.unwrap_or_default();
    let mut all = 0_u64;
    for name in root.list("/boot")?.into_iter().filter(|n| n.contains(release.trim())) {
        all = all.saturating_add(root.len(&format!("/boot/{name}"))?);
    }
    Ok(all)
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

    fn managed(&self, wanted: &OsWanted) -> Result<OsWanted, OsError> {
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
        let earlier = self.root.text(FETCHED)?.and_then(|t| serde_json::from_str::<Fetched>(&t).ok());
        if let Some(earlier) = earlier.filter(|f| f.leads(&had, target))
            && self.still_holds(&earlier)?
        {
            self.fetched = Some(earlier);
            return Ok(());
        }
        let fetched = self.resolve(target, pull)?;
        if fetched.packages == Packages::default() {
            self.root.remove(FETCHED)?;
        } else {
            let json = serde_json::to_vec(&fetched).map_err(|e| os(e.to_string()))?;
            self.root.write_bytes(FETCHED, &json, PRIVATE)?;
        }
        self.fetched = Some(fetched);
        Ok(())
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        let loader = if self.has_loader() { Some(self.loader.mark()?) } else { None };
        let packages = self.fetched.as_ref().map(|f| f.packages.clone()).unwrap_or_default();
        let record = Record::read(&self.root)?;
        let changes = self.fetched.as_ref().is_some_and(|f| f.after.kernel_type != record.kernel_type);
        let default_kernel = if changes { self.grubby("--default-kernel")? } else { None };
        let before = Before { loader, record, packages, release: self.release()?, default_kernel };
        serde_json::to_string(&before).map(Token).map_err(|e| os(e.to_string()))
    }

    fn stage(&mut self, target: &Deployment) -> Result<(), OsError> {
        let had = Record::read(&self.root)?;
        let fetched = self.fetched.take().filter(|f| f.leads(&had, target));
        let Some(Fetched { packages, after, .. }) = fetched else {
            return Err(os("what the change needs was not fetched; this is a defect of this program"));
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
        Ok(())
    }

    fn keep(&mut self) -> Result<(), OsError> {
        if self.has_loader() { self.loader.keep() } else { Ok(()) }
    }

    fn fell_back(&mut self) -> Option<String> {
        self.loader.fell_back()
    }

    fn undo(&mut self, before: &Token) -> Result<(), OsError> {
        let before = read(before)?;
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

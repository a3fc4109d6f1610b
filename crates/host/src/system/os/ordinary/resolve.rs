//! What a change of packages does, in exact versions: what comes, what goes, and what stays because another package needs it. What is
//! needed is downloaded, so that the change itself needs no network.
//!
//! Not here: the change (see `change`).

use super::manager::Manager;
use super::packages::{Installed, Package, Runner, State};
use super::record::Record;
use super::{Fetched, OrdinaryHost, Packages, RELEASE, dnf, is_whole, os};
use crate::disk::root::Root;
use crate::system::os::{Deployment, OsError, without};
use crate::system::pull::Pull;

/// Bytes that stay free beside what packages take.
const SPARE: u64 = 64 * 1024 * 1024;

impl OrdinaryHost {
    /// Resolves the change to a deployment, and downloads what it needs.
    pub(super) fn resolve(&mut self, target: &Deployment, pull: &Pull) -> Result<Fetched, OsError> {
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
        self.resolve_installs(manager, &installed, &mut fetched, pull)?;
        self.resolve_removals(manager, &installed, &mut fetched, pull)?;
        Ok(fetched)
    }

    /// Works out what is installed: the extensions and the kernel that the config names and the host lacks.
    pub(super) fn resolve_installs(
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

    /// Works out what is removed: what the config before brought and this one does not name, unless something else needs it.
    pub(super) fn resolve_removals(
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
        // rpm names what needs a package with its version.
        let whole = |p: &Package| dnf::archive(p).trim_end_matches(".rpm").to_owned();
        let ours: Vec<String> = had.packages.iter().flat_map(|p| [p.name.clone(), whole(p)]).collect();
        let left = removable(manager, &mut runner, (&may, &ours), &asked, packages.install.is_empty())?;
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
            manager.download_for_undo(&mut runner, &packages.remove, pull)?;
        }
        after.packages.retain(|p| !left.contains(&p.name) && is_whole(installed, &p.name));
        after.packages.extend(packages.install.iter().cloned());
        Ok(())
    }

    /// Whether the packages that were fetched earlier are still those that would be fetched now: the drain may have taken
    /// hours. Downloads nothing.
    pub(super) fn still_holds(&mut self, fetched: &Fetched) -> Result<bool, OsError> {
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
}

/// The packages that can go with those that were asked for: `may`, which came for MachineConfigs, if no other needs them.
/// `ours`: all that came for MachineConfigs. One that another extension needs stays as long as that one does. `alone`: nothing
/// comes in the same change. What comes may need them; then they stay until another one goes.
fn removable(
    manager: Manager,
    runner: &mut Runner<'_>,
    (may, ours): (&[String], &[String]),
    asked: &[String],
    alone: bool,
) -> Result<Vec<String>, OsError> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let others = |goes: &[String]| -> Vec<String> {
        goes.iter().filter(|n| !may.contains(n) && !asked.contains(n)).cloned().collect()
    };
    let mut first = manager.removes(runner, asked)?;
    let needed_by = others(&first);
    if let Some(hosts) = needed_by.iter().find(|name| !ours.contains(name)) {
        return Err(os(format!(
            "{} cannot be removed, because {hosts} needs it, which is no package of a MachineConfig; keep it in spec.extensions, \
             or remove {hosts} by hand",
            asked.join(", "),
        )));
    }
    let mut asked = asked.to_vec();
    if !needed_by.is_empty() {
        let mut free = Vec::new();
        for name in &asked {
            if others(&manager.removes(runner, std::slice::from_ref(name))?).is_empty() {
                free.push(name.clone());
            }
        }
        tracing::info!(needed_by = %needed_by.join(", "), "packages that another extension needs stay with it");
        asked = free;
        if asked.is_empty() {
            return Ok(asked);
        }
        first = manager.removes(runner, &asked)?;
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

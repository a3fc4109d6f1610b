//! The package managers that an ordinary host may have, behind one type: what is installed, what an installation would do,
//! and the changes.
//!
//! Not here: which packages a config wants (see the parent module), and the words of each program (see `apt`, `dnf`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{apt, dnf};
use crate::disk::found::{Attributes, Found};
use crate::disk::root::Root;
use crate::fault::{Fault, Point};
use crate::system::os::{OsError, proxy};
use crate::system::os_release::OsRelease;
use crate::system::programs::Programs;
use crate::system::pull::Pull;

/// Where downloaded packages stay. Without it the way back needs a network.
pub(super) const ARCHIVES: &str = "/var/cache/machine-config-daemon/packages";
const FOLDER: Attributes = Attributes { mode: 0o755, uid: 0, gid: 0 };

/// A package in one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Package {
    /// Its name, with the architecture if that is not the host's.
    pub(super) name: String,
    pub(super) version: String,
    pub(super) arch: String,
}

/// How much of a package is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Whole,
    /// A change of it was interrupted, or failed.
    Partly,
    /// It was removed; its configuration is left.
    ConfigFiles,
}

/// The packages of a host by name.
pub(super) type Installed = BTreeMap<String, (String, State)>;

/// What an installation would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Solved {
    /// Packages that come.
    pub(super) installed: Vec<Package>,
    /// Packages that would replace another version of themselves.
    pub(super) replaced: Vec<Package>,
    /// Names of packages that would go.
    pub(super) removed: Vec<String>,
    /// What the packages take when they are installed.
    pub(super) bytes: u64,
}

impl Solved {
    /// Whether it only adds.
    pub(super) fn is_plain(&self) -> bool {
        self.replaced.is_empty() && self.removed.is_empty()
    }
}

/// How the programs of a package manager are run.
pub(super) struct Way {
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Words in a program's error, of which each means this; and what it means for people. The first row that fits counts.
    pub(super) explained: &'static [(&'static [&'static str], &'static str)],
}

impl Way {
    fn explain(&self, why: &str) -> String {
        let fits = |(words, _): &&(&[&str], &str)| words.iter().any(|word| why.contains(word));
        match self.explained.iter().find(fits) {
            Some((_, meaning)) => format!("{meaning} ({why})"),
            None => why.to_owned(),
        }
    }
}

/// Runs the host's programs, with a fault point before and after each.
pub(super) struct Runner<'h> {
    pub(super) root: &'h Root,
    pub(super) programs: &'h mut dyn Programs,
}

impl Runner<'_> {
    fn fault(&self, on: &str, before: bool) -> Result<(), OsError> {
        self.root.faults().at(Point { call: "run", on, before }).map_err(|fault| match fault {
            Fault::Killed => OsError { killed: true, ..OsError::new("killed by a fault point") },
            Fault::Fail(e) => OsError::new(format!("{on}: {e}")),
        })
    }

    /// Runs a program. What it fetches goes through the cluster's proxy.
    pub(super) fn run(
        &mut self,
        (program, args): (&str, &[String]),
        limit: Duration,
        environment: &[(&str, &str)],
        pull: &Pull,
    ) -> Result<String, OsError> {
        self.fault(program, true)?;
        let proxy = proxy::environment(self.root)?;
        let own = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        // Both programs read the names in lower case only.
        let lower = proxy.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
        let all: Vec<(String, String)> = own.chain(lower).collect();
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = self.programs.fetch(program, &words, limit, &all, pull);
        let done = done.map_err(|e| OsError::new(proxy::hidden(&e.why, &proxy)));
        self.fault(program, false)?;
        done.map(|output| output.text)
    }

    /// Runs a program of a package manager. `what`: the command for people, in front of its error.
    pub(super) fn run_as(
        &mut self,
        way: &Way,
        what: &str,
        command: (&str, &[String]),
        limit: Duration,
        pull: &Pull,
    ) -> Result<String, OsError> {
        self.run(command, limit, way.environment, pull).map_err(|e| match e.killed {
            true => e,
            false => OsError::new(format!("{what}: {}", way.explain(&e.why))),
        })
    }

    /// Makes a folder and those above it.
    pub(super) fn make(&self, path: &str) -> Result<(), OsError> {
        if let Found::Dir { .. } = self.root.found(path)? {
            return Ok(());
        }
        self.root.make_parents(path)?;
        Ok(self.root.make_dir(path, FOLDER)?)
    }

    /// Makes the folder of archives. `partial`: with the one that apt downloads to.
    pub(super) fn make_archives(&self, partial: bool) -> Result<(), OsError> {
        self.make(ARCHIVES)?;
        if partial { self.make(&format!("{ARCHIVES}/partial")) } else { Ok(()) }
    }
}

/// A package that goes and could not come back.
pub(super) fn lost(package: &Package) -> OsError {
    OsError::new(format!(
        "{} {} would be removed, but no repository of this host has that version any more, so the change could not be undone; \
         upgrade it to a version that a repository has, or remove it by hand",
        package.name, package.version
    ))
}

/// The package manager of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    Apt,
    Dnf,
}

impl Manager {
    /// The host's.
    ///
    /// # Errors
    /// Why it has none that can be used.
    pub(super) fn find(root: &Root) -> Result<Self, String> {
        let found = |path: &str| root.found(path).map_err(|e| api::text::chain(&e));
        if !found("/usr/bin/apt-get")?.is_absent() {
            return Ok(Self::Apt);
        }
        match found("/usr/bin/dnf")? {
            Found::Link { target, .. } if target.ends_with("dnf5") => {
                Err("dnf of this host is dnf5, which is not supported; install the packages by hand"
                    .to_owned())
            }
            found if !found.is_absent() => Ok(Self::Dnf),
            _ => Err(
                "this host has neither apt nor dnf; remove it from the MachineConfig, or set it with the \
                      distribution's tools"
                    .to_owned(),
            ),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apt => "apt",
            Self::Dnf => "dnf",
        }
    }

    /// The packages of a kernel type.
    ///
    /// # Errors
    /// The distribution has no such kernel.
    pub(super) fn kernel(self, root: &Root, kernel_type: &str) -> Result<Vec<String>, String> {
        let OsRelease { id, .. } = OsRelease::read(root).unwrap_or_default();
        let (arch, is_arm) = (apt::architecture(), std::env::consts::ARCH == "aarch64");
        Ok(match (self, id.as_str(), kernel_type) {
            (_, _, desired::DEFAULT_KERNEL) => Vec::new(),
            (Self::Apt, "debian", "realtime") => vec![format!("linux-image-rt-{arch}")],
            (Self::Dnf, "rhel" | "centos" | "rocky" | "almalinux" | "ol", "realtime") => {
                vec!["kernel-rt".to_owned()]
            }
            (Self::Dnf, "rhel" | "centos" | "rocky" | "almalinux" | "ol", "64k-pages") if is_arm => {
                vec!["kernel-64k".to_owned()]
            }
            _ => {
                return Err(format!(
                    "{} has no package of a kernel for {kernel_type} on {}; remove spec.kernelType from the MachineConfig",
                    if id.is_empty() { "this distribution" } else { &id },
                    std::env::consts::ARCH
                ));
            }
        })
    }

    /// Whether a package is a kernel of this type, or a part of one.
    pub(super) fn is_kernel(self, package: &str, kernel_type: &str) -> bool {
        match (self, kernel_type) {
            (Self::Apt, "realtime") => package.starts_with("linux-image-") && package.contains("-rt-"),
            (Self::Dnf, "realtime") => package == "kernel-rt" || package.starts_with("kernel-rt-"),
            (Self::Dnf, "64k-pages") => package == "kernel-64k" || package.starts_with("kernel-64k-"),
            _ => false,
        }
    }

    pub(super) fn installed(self, runner: &mut Runner<'_>) -> Result<Installed, OsError> {
        match self {
            Self::Apt => apt::installed(runner),
            Self::Dnf => dnf::installed(runner),
        }
    }

    /// Its name of this machine's architecture.
    pub(super) fn architecture(self) -> &'static str {
        match self {
            Self::Apt => apt::architecture(),
            Self::Dnf => std::env::consts::ARCH,
        }
    }

    /// What an installation of these packages would do, in exact versions. dnf says it by downloading it.
    pub(super) fn solve(
        self,
        runner: &mut Runner<'_>,
        names: &[String],
        pull: &Pull,
    ) -> Result<Solved, OsError> {
        match self {
            Self::Apt => apt::solve(runner, names, pull),
            Self::Dnf => dnf::solve(runner, names, pull),
        }
    }

    /// Downloads what was resolved, if that is not there already.
    pub(super) fn download(
        self,
        runner: &mut Runner<'_>,
        packages: &[Package],
        pull: &Pull,
    ) -> Result<(), OsError> {
        match self {
            Self::Apt => apt::download(runner, packages, pull),
            Self::Dnf => Ok(()),
        }
    }

    /// Whether an installation of these packages would still do just this, without a download.
    pub(super) fn confirms(
        self,
        runner: &mut Runner<'_>,
        names: &[String],
        packages: &[Package],
    ) -> Result<bool, OsError> {
        match self {
            Self::Apt => apt::confirms(runner, names, packages),
            Self::Dnf => dnf::confirms(runner, packages),
        }
    }

    /// Has the archives of packages that will go, so that they can come back.
    pub(super) fn keep(
        self,
        runner: &mut Runner<'_>,
        packages: &[Package],
        pull: &Pull,
    ) -> Result<(), OsError> {
        let mut missing = Vec::new();
        for package in packages {
            let name = match self {
                Self::Apt => apt::archive(package),
                Self::Dnf => dnf::archive(package),
            };
            if runner.root.found(&format!("{ARCHIVES}/{name}"))?.is_absent() {
                missing.push(package.clone());
            }
        }
        match self {
            _ if missing.is_empty() => Ok(()),
            Self::Apt => apt::keep(runner, &missing, pull),
            Self::Dnf => dnf::keep(runner, &missing, pull),
        }
    }

    /// Which packages would go if these went, them included.
    pub(super) fn removes(self, runner: &mut Runner<'_>, names: &[String]) -> Result<Vec<String>, OsError> {
        match self {
            Self::Apt => apt::removes(runner, names),
            Self::Dnf => dnf::removes(runner, names),
        }
    }

    /// Installs these packages in their versions. `needed`: those of them that nobody asked for.
    pub(super) fn install(
        self,
        runner: &mut Runner<'_>,
        packages: &[Package],
        needed: &[String],
    ) -> Result<(), OsError> {
        match self {
            Self::Apt => apt::install(runner, packages, needed),
            Self::Dnf => dnf::install(runner, packages, needed),
        }
    }

    /// Removes these packages and no others. `purge`: with the configuration that they brought.
    pub(super) fn remove(
        self,
        runner: &mut Runner<'_>,
        names: &[String],
        purge: bool,
    ) -> Result<(), OsError> {
        match self {
            Self::Apt => apt::remove(runner, names, purge),
            Self::Dnf => dnf::remove(runner, names),
        }
    }

    /// Ends a change that was interrupted, as far as the manager needs that.
    pub(super) fn repair(self, runner: &mut Runner<'_>, brought: &[String]) -> Result<(), OsError> {
        match self {
            Self::Apt => apt::repair(runner, brought),
            Self::Dnf => Ok(()),
        }
    }
}

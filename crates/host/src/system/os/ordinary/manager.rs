//! The package managers that an ordinary host may have, behind one type: what is installed, what an installation would do,
//! and the changes.
//!
//! Not here: which packages a config wants (see the parent module), the words of each program (see `apt`, `dnf`), and how
//! programs are run (see `packages`).

use super::packages::{ARCHIVES, Installed, Package, Runner, SolvedPackages};
use super::{apt, dnf};
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::system::os::OsError;
use crate::system::os_release::OsRelease;
use crate::system::pull::Pull;

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
        let found = |path: &str| root.found(path).map_err(|e| api::formats::text::chain(&e));
        if !found("/usr/bin/apt-get")?.is_absent() {
            return Ok(Self::Apt);
        }
        match found("/usr/bin/dnf")? {
            PathState::Link { target, .. } if target.ends_with("dnf5") => {
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
    ) -> Result<SolvedPackages, OsError> {
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

    /// Downloads the archives of packages that will be removed, so that an undo can install them again.
    pub(super) fn download_for_undo(
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
            Self::Apt => apt::download_for_undo(runner, &missing, pull),
            Self::Dnf => dnf::download_for_undo(runner, &missing, pull),
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

    /// Completes an interrupted change, as far as the package manager needs that.
    pub(super) fn repair(self, runner: &mut Runner<'_>, brought: &[String]) -> Result<(), OsError> {
        match self {
            Self::Apt => apt::repair(runner, brought),
            Self::Dnf => Ok(()),
        }
    }
}

//! Packages by dnf and rpm (RHEL, CentOS, Rocky, Alma, Fedora until 40). Commands, and what their answers mean.
//!
//! ```text
//! fetch: install --downloadonly --destdir, rpm -qp     change: install FILES without repositories, remove
//! ```
//!
//! dnf checks the signatures of what it downloads. What is downloaded is in a folder that only root can write to, and is
//! installed from there, so that nothing else comes, and no network is needed. Weak dependencies are left out.
//!
//! Not here: which packages, and when (see the parent module); dnf5, whose `install` has no `--destdir`.
//!
//! Sources: dnf(8), rpm(8).

use std::collections::BTreeMap;
use std::time::Duration;

use super::packages::{
    ARCHIVES, Installed, ManagerPrograms, Package, Runner, SolvedPackages, State, irretrievable,
};
use crate::system::os::OsError;
use crate::system::programs::MOST_OUTPUT;
use crate::system::pull::Pull;

const DNF: &str = "/usr/bin/dnf";
const RPM: &str = "/usr/bin/rpm";
const ASK: Duration = Duration::from_secs(120);
const CHANGE: Duration = Duration::from_secs(60 * 60);
/// Where a transaction is downloaded to: its packages and no others.
const NEXT: &str = "/var/cache/machine-config-daemon/packages/next";
const FORMAT: &str = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{SIZE}\\n";
const OPTIONS: [&str; 4] = ["-q", "-y", "--setopt=install_weak_deps=False", "--setopt=exit_on_lock=True"];

/// How dnf and rpm are run, and their messages about problems that people can fix.
const WAY: ManagerPrograms = ManagerPrograms {
    environment: &[],
    explained: &[
        (
            &["already locked by", "transaction lock", "Waiting for process"],
            "another program is changing packages: wait until it ends",
        ),
        (
            &["Unable to find a match", "No match for argument"],
            "a package of spec.extensions or spec.kernelType does not exist for dnf on this host: correct its name, or add the \
             repository that has it (dnf repoquery NAME)",
        ),
    ],
};

fn dnf(runner: &mut Runner<'_>, more: &[String], pull: &Pull) -> Result<String, OsError> {
    let verb = more.iter().find(|w| !w.starts_with('-')).cloned().unwrap_or_default();
    let args: Vec<String> = OPTIONS.iter().map(|o| (*o).to_owned()).chain(more.iter().cloned()).collect();
    runner.run_as(&WAY, &format!("dnf {verb}"), (DNF, &args), CHANGE, pull)
}

fn with(first: &[&str], names: &[String]) -> Vec<String> {
    first.iter().map(|w| (*w).to_owned()).chain(names.iter().cloned()).collect()
}

/// Reads what rpm says with [`FORMAT`], and how many bytes all of it takes.
fn packages(text: &str) -> Result<(Vec<Package>, u64), String> {
    let (mut out, mut bytes) = (Vec::new(), 0_u64);
    for line in text.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [name, version, arch, size] = parts.as_slice() else {
            return Err(format!("rpm printed a line that cannot be parsed: {line:?}"));
        };
        let size: u64 =
            size.parse().map_err(|_| format!("rpm printed a line that cannot be parsed: {line:?}"))?;
        bytes = bytes.saturating_add(size);
        // Public keys are no packages.
        if *arch != "(none)" {
            let [name, version, arch] = [name, version, arch].map(|s| (*s).to_owned());
            out.push(Package { name, version, arch });
        }
    }
    match (text.is_empty() || text.ends_with('\n')) && text.len() < MOST_OUTPUT {
        true => Ok((out, bytes)),
        false => Err("rpm answered more than can be read".to_owned()),
    }
}

/// All packages of this host. Of several versions of one package, such as kernels, the last one.
pub(super) fn installed(runner: &mut Runner<'_>) -> Result<Installed, OsError> {
    let args = ["-qa", "--queryformat", FORMAT].map(str::to_owned);
    let text = runner.run_as(&WAY, "rpm -qa", (RPM, &args), ASK, &Pull::default())?;
    let (all, _) = packages(&text).map_err(OsError::new)?;
    let all = all.into_iter().map(|p| (p.name, (p.version, State::Whole)));
    Ok(all.collect::<BTreeMap<_, _>>())
}

/// Downloads what an installation of these packages needs, and reads from that what it would do.
pub(super) fn solve(
    runner: &mut Runner<'_>,
    names: &[String],
    pull: &Pull,
) -> Result<SolvedPackages, OsError> {
    runner.make_archives(false)?;
    for old in runner.root.list(NEXT)? {
        runner.root.remove(&format!("{NEXT}/{old}"))?;
    }
    runner.make(NEXT)?;
    let to = format!("--destdir={NEXT}");
    dnf(runner, &with(&["install", "--downloadonly", &to], names), pull)?;
    let files = runner.root.list(NEXT)?;
    let paths: Vec<String> =
        files.iter().filter(|f| f.ends_with(".rpm")).map(|f| format!("{NEXT}/{f}")).collect();
    if paths.is_empty() {
        return Ok(SolvedPackages::default());
    }
    let args = with(&["-qp", "--queryformat", FORMAT], &paths);
    let text = runner.run_as(&WAY, "rpm -qp", (RPM, &args), ASK, &Pull::default())?;
    let (all, bytes) = packages(&text).map_err(OsError::new)?;
    let has = installed(runner)?;
    let (replaced, installed) =
        all.into_iter().partition(|p| has.contains_key(&p.name) && !stands_beside(&p.name));
    Ok(SolvedPackages { installed, replaced, removed: Vec::new(), bytes })
}

/// Whether all archives are there. What else the packages need by now is found when they are installed.
pub(super) fn confirms(runner: &mut Runner<'_>, packages: &[Package]) -> Result<bool, OsError> {
    for package in packages {
        let name = archive(package);
        if runner.root.found(&format!("{NEXT}/{name}"))?.is_absent()
            && runner.root.found(&format!("{ARCHIVES}/{name}"))?.is_absent()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where the archive of a package is, once it was downloaded.
pub(super) fn archive(package: &Package) -> String {
    let version = package.version.split_once(':').map_or(package.version.as_str(), |(_, v)| v);
    format!("{}-{version}.{}.rpm", package.name, package.arch)
}

/// A package as commands name it.
fn exact(package: &Package) -> String {
    format!("{}-{}.{}", package.name, package.version, package.arch)
}

/// Downloads installed packages in their versions, for the way back.
pub(super) fn download_for_undo(
    runner: &mut Runner<'_>,
    packages: &[Package],
    pull: &Pull,
) -> Result<(), OsError> {
    runner.make_archives(false)?;
    let names: Vec<String> = packages.iter().map(exact).collect();
    let to = format!("--destdir={ARCHIVES}");
    let done = dnf(runner, &with(&["reinstall", "--downloadonly", &to], &names), pull);
    if let Err(error) = done
        && !error.why.contains("No packages marked for reinstall")
    {
        return Err(error);
    }
    for package in packages {
        if runner.root.found(&format!("{ARCHIVES}/{}", archive(package)))?.is_absent() {
            return Err(irretrievable(package));
        }
    }
    Ok(())
}

/// Whether several versions of a package are installed beside each other. Tools and headers of the kernel are not.
fn stands_beside(name: &str) -> bool {
    let several = ["kernel-core", "kernel-modules", "kernel-devel", "kernel-rt", "kernel-64k"];
    name == "kernel" || several.iter().any(|first| name.starts_with(first))
}

/// Which packages would go if these went: an error of rpm names those that need them.
pub(super) fn removes(runner: &mut Runner<'_>, names: &[String]) -> Result<Vec<String>, OsError> {
    // Versions of a kernel stand beside each other.
    let args = with(&["-e", "--test", "--allmatches"], names);
    let done = runner.run_as(&WAY, "rpm -e --test", (RPM, &args), ASK, &Pull::default());
    match done {
        Ok(_) => Ok(names.to_vec()),
        Err(e) if !e.killed && e.why.contains("is needed by") => {
            let needed_by = e.why.split("is needed by (installed) ").skip(1);
            let by = needed_by.filter_map(|rest| rest.split_whitespace().next().map(str::to_owned));
            Ok(names.iter().cloned().chain(by).collect())
        }
        Err(e) => Err(e),
    }
}

/// Installs these packages in their versions. `needed`: those that only others need.
pub(super) fn install(
    runner: &mut Runner<'_>,
    packages: &[Package],
    needed: &[String],
) -> Result<(), OsError> {
    let mut paths = Vec::new();
    for package in packages {
        let (name, kept) = (archive(package), format!("{ARCHIVES}/{}", archive(package)));
        let next = format!("{NEXT}/{name}");
        if !runner.root.found(&next)?.is_absent() {
            runner.root.rename(&next, &kept)?;
        }
        paths.push(kept);
    }
    dnf(runner, &with(&["-C", "--disablerepo=*", "install"], &paths), &Pull::default())?;
    if needed.is_empty() {
        return Ok(());
    }
    dnf(runner, &with(&["-C", "mark", "remove"], needed), &Pull::default()).map(drop)
}

/// Removes these packages, and nothing that only they needed: that was decided before.
pub(super) fn remove(runner: &mut Runner<'_>, names: &[String]) -> Result<(), OsError> {
    let first = [
        "-C",
        "--disablerepo=*",
        "--setopt=clean_requirements_on_remove=False",
        "--setopt=protect_running_kernel=False",
        "remove",
    ];
    dnf(runner, &with(&first, names), &Pull::default()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rpm_says_is_read() {
        let text = "lib\t0:1-1\tnoarch\t10\ntool\t2:1.5-1.el9\tx86_64\t20\ngpg-pubkey\t0:8-1\t(none)\t0\n";
        let (got, bytes) = packages(text).unwrap();
        assert_eq!(bytes, 30);
        let shown: Vec<_> = got.iter().map(|p| (exact(p), archive(p))).collect();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            shown,
            [
                pair("lib-0:1-1.noarch", "lib-1-1.noarch.rpm"),
                pair("tool-2:1.5-1.el9.x86_64", "tool-1.5-1.el9.x86_64.rpm")
            ]
        );
        for bad in ["lib\t1\tnoarch\n", "lib\t0:1-1\tnoarch\tx\n", "lib\t0:1-1\tnoarch\t1"] {
            assert!(packages(bad).is_err(), "{bad}");
        }
    }
}

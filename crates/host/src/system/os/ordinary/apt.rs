//! Packages by apt and dpkg (Debian, Ubuntu). Commands, and what their answers mean.
//!
//! ```text
//! fetch: update, install --simulate, install --download-only     change: install NAME=VERSION, remove, purge
//! after a change that was interrupted: dpkg --configure -a
//! ```
//!
//! Archives go to a folder of the agent, so that what was downloaded stays until it is needed, and what is removed can be put
//! back without a network. Recommended packages are left out: a host gets what was asked for and what that needs.
//!
//! Not here: which packages, and when (see the parent module).
//!
//! Sources: apt-get(8), dpkg-query(1), dpkg(1).

use std::collections::BTreeMap;
use std::time::Duration;

use super::packages::{
    ARCHIVES, Installed, ManagerPrograms, Package, Runner, SolvedPackages, State, irretrievable,
};
use crate::system::os::OsError;
use crate::system::programs::MOST_OUTPUT;
use crate::system::pull::Pull;

const APT: &str = "/usr/bin/apt-get";
const CACHE: &str = "/usr/bin/apt-cache";
const MARK: &str = "/usr/bin/apt-mark";
const DPKG: &str = "/usr/bin/dpkg";
const QUERY: &str = "/usr/bin/dpkg-query";
const ASK: Duration = Duration::from_secs(120);
const CHANGE: Duration = Duration::from_secs(60 * 60);
/// One package in a line; the fields are those of dpkg-query(1).
const FORMAT: &str = "-f=${Package} ${Architecture} ${Version} ${db:Status-Abbrev}\n";
/// What every command of apt-get gets. It waits for another program's lock for a minute.
const OPTIONS: [&str; 13] = [
    "-qq",
    "-y",
    "--no-install-recommends",
    "-o",
    "DPkg::Lock::Timeout=60",
    "-o",
    "DPkg::Options::=--force-confdef",
    "-o",
    "DPkg::Options::=--force-confold",
    "-o",
    "APT::Keep-Downloaded-Packages=true",
    "-o",
    "APT::Get::Show-User-Simulation-Note=false",
];
/// Nobody answers questions, nothing is restarted before the reboot, and the configuration of the host stays.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("APT_LISTCHANGES_FRONTEND", "none"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("NEEDRESTART_SUSPEND", "1"),
    ("UCF_FORCE_CONFFOLD", "1"),
];
/// What apt and dpkg say if another program holds a lock.
const LOCKED: [&str; 4] =
    ["Could not get lock", "Unable to acquire the dpkg", "Unable to lock", "is locked by another process"];
/// apt's messages about a package that does not exist.
const UNKNOWN: [&str; 2] = ["Unable to locate package ", "has no installation candidate"];

/// dpkg's name of this architecture.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64el",
        other => other,
    }
}

fn words(more: &[&str]) -> Vec<String> {
    let archives = format!("Dir::Cache::Archives={ARCHIVES}/");
    let last = ["-o", archives.as_str()];
    OPTIONS.iter().chain(&last).chain(more).map(|w| (*w).to_owned()).collect()
}

/// The package as commands name it, with its version.
fn exact(package: &Package) -> String {
    format!("{}={}", package.name, package.version)
}

/// How apt and dpkg are run, and their messages about problems that people can fix.
const WAY: ManagerPrograms = ManagerPrograms {
    environment: &ENVIRONMENT,
    explained: &[
        (
            &LOCKED,
            "another program is changing packages: wait until it ends, or stop it (its process ID is in the message)",
        ),
        (
            &UNKNOWN,
            "a package of spec.extensions or spec.kernelType does not exist for apt on this host: correct its name, or add the \
             repository that has it (apt-cache policy NAME)",
        ),
    ],
};

fn apt(runner: &mut Runner<'_>, more: &[&str], pull: &Pull) -> Result<String, OsError> {
    let verb = more.iter().find(|w| !w.starts_with('-')).copied().unwrap_or_default();
    runner.run_as(&WAY, &format!("apt-get {verb}"), (APT, &words(more)), CHANGE, pull)
}

/// All packages that dpkg knows on this host.
pub(super) fn installed(runner: &mut Runner<'_>) -> Result<Installed, OsError> {
    let args = ["-W", FORMAT].map(str::to_owned);
    let text = runner.run_as(&WAY, "dpkg-query", (QUERY, &args), ASK, &Pull::default())?;
    known(&text, architecture()).map_err(OsError::new)
}

/// Reads the answer of dpkg-query. A package of another architecture than the host's has it in its name.
fn known(text: &str, own: &str) -> Result<Installed, String> {
    let mut out = BTreeMap::new();
    for line in text.lines() {
        let odd = || format!("dpkg-query printed a line that cannot be parsed: {line:?}");
        let parts: Vec<&str> = line.split(' ').filter(|p| !p.is_empty()).collect();
        let (name, arch, version, status) = match parts.as_slice() {
            // A package that was removed completely, or never installed, has no version.
            [_, status] | [_, _, status] if status.len() == 2 && status.ends_with('n') => continue,
            [name, arch, version, status] => (*name, *arch, *version, *status),
            _ => return Err(odd()),
        };
        let state = match status.chars().nth(1).ok_or_else(odd)? {
            'n' => continue,
            'c' => State::ConfigFiles,
            'i' if status.len() == 2 => State::Whole,
            'i' | 'H' | 'U' | 'F' | 'W' | 't' => State::Partly,
            _ => return Err(odd()),
        };
        let name = if arch == own || arch == "all" { name.to_owned() } else { format!("{name}:{arch}") };
        out.insert(name, (version.to_owned(), state));
    }
    match text.ends_with('\n') && text.len() < MOST_OUTPUT {
        true => Ok(out),
        false => Err("dpkg-query answered more than can be read".to_owned()),
    }
}

/// Reads what `apt-get --simulate` says that it would do.
fn simulated(text: &str) -> Result<SolvedPackages, String> {
    let mut out = SolvedPackages::default();
    for line in text.lines() {
        let odd = || format!("apt-get --simulate printed a line that cannot be parsed: {line:?}");
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match verb {
            "Inst" => {
                let replaces = rest.starts_with('[');
                let (_, new) = rest.split_once('(').ok_or_else(odd)?;
                let new = new.rsplit_once(')').ok_or_else(odd)?.0;
                let version = new.split(' ').next().filter(|v| !v.is_empty()).ok_or_else(odd)?;
                let arch = new.rsplit_once('[').and_then(|(_, a)| a.strip_suffix(']')).ok_or_else(odd)?;
                let package =
                    Package { name: name.to_owned(), version: version.to_owned(), arch: arch.to_owned() };
                if replaces { out.replaced.push(package) } else { out.installed.push(package) }
            }
            "Remv" | "Purg" => out.removed.push(name.to_owned()),
            _ => {}
        }
    }
    Ok(out)
}

/// What an installation of these packages would do, by the newest lists that can be had.
pub(super) fn solve(
    runner: &mut Runner<'_>,
    names: &[String],
    pull: &Pull,
) -> Result<SolvedPackages, OsError> {
    // What is known may be enough, where a repository is away for now.
    if let Err(error) = apt(runner, &["update"], pull) {
        if error.killed || pull.is_cancelled() {
            return Err(error);
        }
        tracing::warn!(%error, "the lists of packages are not renewed");
    }
    let mut args = vec!["install", "--simulate"];
    args.extend(names.iter().map(String::as_str));
    let mut solved = simulated(&apt(runner, &args, pull)?).map_err(OsError::new)?;
    if !solved.is_plain() || solved.installed.is_empty() {
        return Ok(solved);
    }
    solved.bytes = sizes(runner, &solved.installed)?;
    Ok(solved)
}

/// Downloads packages in their versions.
pub(super) fn download(runner: &mut Runner<'_>, packages: &[Package], pull: &Pull) -> Result<(), OsError> {
    let exact: Vec<String> = packages.iter().map(exact).collect();
    let mut args = vec!["install", "--download-only", "--no-remove"];
    args.extend(exact.iter().map(String::as_str));
    runner.make_archives(true)?;
    apt(runner, &args, pull).map(drop)
}

/// Whether an installation of these packages would do just this.
pub(super) fn confirms(
    runner: &mut Runner<'_>,
    names: &[String],
    packages: &[Package],
) -> Result<bool, OsError> {
    let mut args = vec!["install", "--simulate"];
    args.extend(names.iter().map(String::as_str));
    let solved = simulated(&apt(runner, &args, &Pull::default())?).map_err(OsError::new)?;
    Ok(solved.is_plain() && solved.installed == packages)
}

/// How many bytes these packages take when they are installed.
fn sizes(runner: &mut Runner<'_>, packages: &[Package]) -> Result<u64, OsError> {
    let mut args = ["show", "--no-all-versions"].map(str::to_owned).to_vec();
    args.extend(packages.iter().map(exact));
    let text = runner.run_as(&WAY, "apt-cache show", (CACHE, &args), ASK, &Pull::default())?;
    let kib = text.lines().filter_map(|l| l.strip_prefix("Installed-Size:")?.trim().parse::<u64>().ok());
    Ok(kib.sum::<u64>().saturating_mul(1024))
}

/// Where the archive of a package is, once it was downloaded.
pub(super) fn archive(package: &Package) -> String {
    let name = package.name.split(':').next().unwrap_or_default();
    format!("{name}_{}_{}.deb", package.version.replace(':', "%3a"), package.arch)
}

/// Downloads an installed package in its version, for the way back.
pub(super) fn download_for_undo(
    runner: &mut Runner<'_>,
    packages: &[Package],
    pull: &Pull,
) -> Result<(), OsError> {
    let exact: Vec<String> = packages.iter().map(exact).collect();
    let mut args = vec!["install", "--simulate", "--reinstall", "--no-remove"];
    args.extend(exact.iter().map(String::as_str));
    let can = simulated(&apt(runner, &args, pull)?).map_err(OsError::new)?.replaced;
    if let Some(package) = packages.iter().find(|p| !can.iter().any(|c| c.name == p.name)) {
        return Err(irretrievable(package));
    }
    let mut args = vec!["install", "--download-only", "--reinstall", "--no-remove"];
    args.extend(exact.iter().map(String::as_str));
    runner.make_archives(true)?;
    apt(runner, &args, pull).map(drop)
}

/// Which packages would go if these went.
pub(super) fn removes(runner: &mut Runner<'_>, names: &[String]) -> Result<Vec<String>, OsError> {
    let mut args = vec!["remove", "--simulate"];
    args.extend(names.iter().map(String::as_str));
    Ok(simulated(&apt(runner, &args, &Pull::default())?).map_err(OsError::new)?.removed)
}

/// Installs these packages in their versions. `needed`: those that only others need.
pub(super) fn install(
    runner: &mut Runner<'_>,
    packages: &[Package],
    needed: &[String],
) -> Result<(), OsError> {
    let mut asked = Vec::new();
    for package in packages {
        let path = format!("{ARCHIVES}/{}", archive(package));
        // A repository on a disk of the host is read in its place.
        asked.push(if runner.root.found(&path)?.is_absent() { exact(package) } else { path });
    }
    let mut args = vec!["install", "--no-remove", "--allow-downgrades"];
    args.extend(asked.iter().map(String::as_str));
    apt(runner, &args, &Pull::default())?;
    if needed.is_empty() {
        return Ok(());
    }
    let args: Vec<String> = std::iter::once("auto".to_owned()).chain(needed.iter().cloned()).collect();
    runner.run_as(&WAY, "apt-mark", (MARK, &args), ASK, &Pull::default()).map(drop)
}

/// Removes these packages. `purge`: with their configuration, which came with them.
pub(super) fn remove(runner: &mut Runner<'_>, names: &[String], purge: bool) -> Result<(), OsError> {
    let mut args = vec![if purge { "purge" } else { "remove" }];
    args.extend(names.iter().map(String::as_str));
    apt(runner, &args, &Pull::default()).map(drop)
}

/// Ends a change that was interrupted, so that apt works again. `brought`: packages that the change brings. One that dpkg was
/// unpacking when it was killed is neither configured nor removed otherwise.
pub(super) fn repair(runner: &mut Runner<'_>, brought: &[String]) -> Result<(), OsError> {
    let now = installed(runner)?;
    let is_cut = |name: &&String| now.get(*name).is_some_and(|(_, state)| *state == State::Partly);
    let cut: Vec<String> = brought.iter().filter(is_cut).cloned().collect();
    let mut purged = Ok(());
    if !cut.is_empty() {
        let first = ["--force-remove-reinstreq", "--purge"].map(str::to_owned).into_iter();
        let args: Vec<String> = first.chain(cut).collect();
        purged = runner.run_as(&WAY, "dpkg --purge", (DPKG, &args), CHANGE, &Pull::default()).map(drop);
    }
    if purged.as_ref().is_err_and(|e| e.killed) {
        return purged;
    }
    let args = ["--force-confdef", "--force-confold", "--configure", "-a"].map(str::to_owned);
    runner.run_as(&WAY, "dpkg --configure -a", (DPKG, &args), CHANGE, &Pull::default()).map(drop).and(purged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_do_is_read() {
        let text = "Inst lib (1:1.0-1 Debian:12.5/stable [all])\nInst base [1] (2 Debian:12/stable, Security:12 [amd64])\n\
            Remv old [1]\nConf lib (1:1.0-1 Debian:12.5/stable [all])\n";
        let package = |name: &str, version: &str, arch: &str| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            arch: arch.to_owned(),
        };
        let got = simulated(text).unwrap();
        assert_eq!(got.installed, [package("lib", "1:1.0-1", "all")]);
        assert_eq!(got.replaced, [package("base", "2", "amd64")]);
        assert_eq!(got.removed, ["old"]);
        assert_eq!(archive(&got.installed[0]), "lib_1%3a1.0-1_all.deb");
        for bad in ["Inst lib\n", "Inst lib (1\n", "Inst lib (1 Debian)\n"] {
            assert!(simulated(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_installed_is_read_and_a_cut_answer_is_refused() {
        let text = "base all 1 ii \ngone amd64 1 rc \nhalf amd64 2 iF \nheld amd64 3 hi \nlibc6 i386 2 ii \nnever amd64  un \n\
            bad amd64 1 iiR\n";
        let got = known(text, "amd64").unwrap();
        let of = |name: &str| got.get(name).map(|(version, state)| (version.as_str(), *state));
        assert_eq!(of("base"), Some(("1", State::Whole)));
        assert_eq!(of("gone"), Some(("1", State::ConfigFiles)));
        assert_eq!(of("half"), Some(("2", State::Partly)));
        assert_eq!(of("held"), Some(("3", State::Whole)));
        assert_eq!(of("libc6:i386"), Some(("2", State::Whole)));
        assert_eq!(of("bad"), Some(("1", State::Partly)));
        assert_eq!((of("libc6"), of("never")), (None, None));
        for bad in ["base all 1 ii", "base\n", "a b c d e\n", "base all 1 x\n"] {
            assert!(known(bad, "amd64").is_err(), "{bad}");
        }
    }
}

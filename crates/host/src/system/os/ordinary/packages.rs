//! What the package managers of ordinary hosts have in common: packages and their state, what an installation would do, and
//! how programs are run, with a fault point before and after each.
//!
//! Not here: which package manager a host has (see `manager`), and the words of each program (see `apt`, `dnf`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::disk::attributes::Attributes;
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::fault::{Fault, Point};
use crate::system::os::{OsError, proxy};
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
pub(super) struct SolvedPackages {
    /// Packages that come.
    pub(super) installed: Vec<Package>,
    /// Packages that would replace another version of themselves.
    pub(super) replaced: Vec<Package>,
    /// Names of packages that would go.
    pub(super) removed: Vec<String>,
    /// What the packages take when they are installed.
    pub(super) bytes: u64,
}

impl SolvedPackages {
    /// Whether it only adds.
    pub(super) fn is_plain(&self) -> bool {
        self.replaced.is_empty() && self.removed.is_empty()
    }
}

/// How the programs of a package manager are run.
pub(super) struct ManagerPrograms {
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// Words in a program's error, of which each means this; and what it means for people. The first row that fits counts.
    pub(super) explained: &'static [(&'static [&'static str], &'static str)],
}

impl ManagerPrograms {
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
        way: &ManagerPrograms,
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
        if let PathState::Dir { .. } = self.root.found(path)? {
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
pub(super) fn irretrievable(package: &Package) -> OsError {
    OsError::new(format!(
        "{} {} would be removed, but no repository of this host has that version any more, so the change could not be undone; \
         upgrade it to a version that a repository has, or remove it by hand",
        package.name, package.version
    ))
}

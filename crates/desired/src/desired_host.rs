//! A MachineConfig parsed into what a host works with: paths and their contents, units, the core user.
//!
//! What it is not: the rules of what a running machine can apply (see `rules`).

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

use api::v1::MachineConfigSpec;
use ignition::{Config, Owner, ParseError, Unit};
use serde_json::{Map, Value};

use crate::content::Content;
use crate::finding::{Irreconcilable, Scope};
use crate::os::{DesiredOs, kernel_type};
use crate::paths;
use crate::rules;

/// The mode of files whose config sets none, and of all unit files.
pub const FILE_MODE: u32 = 0o644;
/// The target of a masked unit's link.
pub const DEV_NULL: &str = "/dev/null";

/// Where a wanted file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOrigin {
    /// An entry of the config.
    Config,
    /// An entry of the config that is refused (see [`DesiredHost::refused`]). A host that is in the config all the same
    /// was given it by a version with other rules, so the file was not written as it is given here.
    Refused,
    /// The agent itself: no entry of the config names it.
    Agent,
}

/// The wanted state of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum DesiredPath {
    /// A file of the config.
    File {
        /// Contents.
        content: Content,
        /// Permission bits.
        mode: u32,
        /// Owner.
        user: Owner,
        /// Group.
        group: Owner,
        /// Where it comes from, and whether it was written as it is given there.
        origin: FileOrigin,
    },
    /// A folder of the config.
    Dir {
        /// Permission bits and special bits; `None` keeps the present ones, or means 0755 for a new folder.
        mode: Option<u32>,
        /// The owner; if not given, the present one is kept, and a new folder belongs to root.
        user: Owner,
        /// The group; if not given, as for the owner.
        group: Owner,
        /// `false`: only a folder may exist there already.
        overwrite: Option<bool>,
    },
    /// A link of the config.
    Link {
        /// The target: any text; for a hard link an absolute path.
        target: String,
        /// Whether it is a hard link.
        hard: bool,
        /// Owner of a symbolic link.
        user: Owner,
        /// Group of a symbolic link.
        group: Owner,
        /// `false`: nothing may exist there already.
        overwrite: Option<bool>,
    },
    /// A link to `/dev/null`: a masked unit.
    Mask,
    /// Nothing: an emptied drop-in, or a unit that is explicitly not masked.
    Nothing,
}

impl DesiredPath {
    /// Whether an entry was written as it is given when its config was applied, judged by today's rules.
    #[must_use]
    pub fn was_applied(&self) -> bool {
        !matches!(self, Self::File { origin: FileOrigin::Refused, .. })
    }
}

/// Managed paths, each once, in the order in which they are written.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    list: Vec<(String, DesiredPath)>,
    index: HashMap<String, usize>,
}

impl Paths {
    /// Adds a path. If it is there already, it keeps its position and gets the new state.
    pub fn put(&mut self, path: String, want: DesiredPath) {
        match self.index.get(&path).and_then(|i| self.list.get_mut(*i)) {
            Some(earlier) => earlier.1 = want,
            None => {
                self.index.insert(path.clone(), self.list.len());
                self.list.push((path, want));
            }
        }
    }

    /// Each path with its wanted state.
    pub fn iter(&self) -> std::slice::Iter<'_, (String, DesiredPath)> {
        self.list.iter()
    }

    /// Keeps only some of the paths.
    pub fn retain(&mut self, keep: impl FnMut(&(String, DesiredPath)) -> bool) {
        self.list.retain(keep);
        self.index = self.list.iter().enumerate().map(|(i, (p, _))| (p.clone(), i)).collect();
    }
}

impl<'p> IntoIterator for &'p Paths {
    type Item = &'p (String, DesiredPath);
    type IntoIter = std::slice::Iter<'p, (String, DesiredPath)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

thread_local! {
    static PARSED_ENTRIES: Cell<u64> = const { Cell::new(0) };
}

/// How many files, folders, links and units of configs this thread has parsed. Parsing decodes and checks the contents
/// of each, which is most of what a config costs; tests compare the number before and after.
#[must_use]
pub fn parsed_entries() -> u64 {
    PARSED_ENTRIES.get()
}

/// A parsed config.
#[derive(Clone, Default)]
pub struct DesiredHost {
    /// The Ignition config.
    pub config: Config,
    /// Managed paths, in the order in which they are written.
    pub paths: Paths,
    /// What it wants of the operating system.
    pub os: DesiredOs,
    /// Its FIPS flag.
    pub fips: bool,
    /// Entries that cannot be applied to any host, each with its path.
    pub refused: Vec<Irreconcilable>,
}

impl fmt::Debug for DesiredHost {
    /// Leaves out the Ignition config, which holds contents and password hashes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config: _, paths, os, fips, refused } = self;
        let mut out = f.debug_struct("DesiredHost");
        out.field("paths", paths).field("os", os).field("fips", fips).field("refused", refused);
        out.finish_non_exhaustive()
    }
}

impl DesiredHost {
    /// Parses a config. Faults of single files are collected in [`DesiredHost::refused`]. To move to the config, continue
    /// with [`DesiredHost::accepted`]. To compare a host with the config in effect, use [`DesiredHost::as_applied`]. To leave a
    /// config, take it as it is: it was applied once, so faults that this version finds in it must not prevent leaving
    /// it.
    ///
    /// # Errors
    /// The Ignition config as a whole cannot be read.
    pub fn parse(spec: &MachineConfigSpec) -> Result<Self, Vec<Irreconcilable>> {
        let mut bad = Vec::new();
        let mut refuse = |path: &str, why: String, remedy: &str| {
            bad.push(Irreconcilable {
                path: path.to_owned(),
                why,
                remedy: remedy.to_owned(),
                scope: Scope::Config,
            });
        };
        let config = match ignition_config(spec) {
            Ok(config) => config,
            Err(e) => {
                refuse("spec.config", e.to_string(), "correct the Ignition config");
                return Err(bad);
            }
        };
        let storage = &config.storage;
        let entries = storage.files.len() + storage.directories.len() + storage.links.len();
        PARSED_ENTRIES.set(PARSED_ENTRIES.get() + (entries + config.systemd.units.len()) as u64);
        let mut paths = Paths::default();
        let mut want = |path: String, what: DesiredPath| paths.put(path, what);
        // A folder comes before its contents.
        let mut directories: Vec<_> = config.storage.directories.iter().enumerate().collect();
        directories.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
        for (i, d) in directories {
            let mode = match d.mode.map(u32::try_from) {
                None => None,
                Some(Ok(mode)) if mode <= 0o7777 => Some(mode),
                Some(_) => {
                    let m = d.mode.unwrap_or_default();
                    let why = format!("mode {m:o} (octal) of {} is not a file mode", d.path);
                    refuse(&format!("spec.config.storage.directories[{i}].mode"), why, "use 0 to 07777");
                    None
                }
            };
            let (user, group, overwrite) = (d.user.clone(), d.group.clone(), d.overwrite);
            want(d.path.clone(), DesiredPath::Dir { mode, user, group, overwrite });
        }
        for (i, f) in config.storage.files.iter().enumerate() {
            let at = format!("spec.config.storage.files[{i}]");
            let rules = [rules::special_mode_bits(f), rules::unescaped(f)];
            let mut origin = FileOrigin::Config;
            for rule in rules.iter().flatten() {
                refuse(&format!("{at}{}", rule.field), rule.why.clone(), rule.remedy);
                origin = FileOrigin::Refused;
            }
            let [special_bits, unescaped] = rules;
            let mode = f.mode.and_then(|mode| u32::try_from(mode).ok()).filter(|_| special_bits.is_none());
            let content = match f.contents.decode() {
                Ok(bytes) if unescaped.is_none() => bytes,
                Ok(_) => Vec::new(),
                Err(e) => {
                    let at = format!("{at}.contents");
                    refuse(&at, format!("{}: {e}", f.path), "give the contents as a data URL");
                    origin = FileOrigin::Refused;
                    Vec::new()
                }
            };
            let (user, group) = (f.user.clone(), f.group.clone());
            let (content, mode) = (Content::new(content), mode.unwrap_or(FILE_MODE));
            want(f.path.clone(), DesiredPath::File { content, mode, user, group, origin });
        }
        for l in &config.storage.links {
            let (target, hard) = (l.target.clone().unwrap_or_default(), l.hard == Some(true));
            let (user, group, overwrite) = (l.user.clone(), l.group.clone(), l.overwrite);
            want(l.path.clone(), DesiredPath::Link { target, hard, user, group, overwrite });
        }
        for u in &config.systemd.units {
            unit_paths(u, &mut want);
        }
        let os = DesiredOs {
            image: spec.os_image_url.clone(),
            kernel_arguments: spec.kernel_arguments.clone().unwrap_or_default(),
            kernel_type: kernel_type(&spec.kernel_type).to_owned(),
            extensions: spec.extensions.clone().unwrap_or_default(),
            extensions_image: spec.base_os_extensions_container_image.clone(),
        };
        Ok(Self { config, paths, os, fips: spec.fips, refused: bad })
    }

    /// The config, if all of it can be applied.
    ///
    /// # Errors
    /// Everything in it that cannot, with its path.
    pub fn accepted(self) -> Result<Self, Vec<Irreconcilable>> {
        if self.refused.is_empty() { Ok(self) } else { Err(self.refused) }
    }

    /// The config without entries that would be refused today: those were not written as they are given.
    #[must_use]
    pub fn as_applied(mut self) -> Self {
        let mut paths = std::mem::take(&mut self.paths);
        paths.retain(|(_, want)| want.was_applied());
        Self { paths, refused: Vec::new(), ..self }
    }

    /// The wanted state of a path, if it is managed.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&DesiredPath> {
        self.paths.index.get(path).and_then(|i| self.paths.list.get(*i)).map(|(_, w)| w)
    }
}

/// The paths of a unit and its drop-ins.
fn unit_paths(u: &Unit, want: &mut impl FnMut(String, DesiredPath)) {
    let file = |text: &str| DesiredPath::File {
        content: Content::new(text.as_bytes().to_vec()),
        mode: FILE_MODE,
        user: Owner::default(),
        group: Owner::default(),
        origin: FileOrigin::Config,
    };
    for d in &u.dropins {
        let what = match d.contents.as_deref() {
            None | Some("") => DesiredPath::Nothing,
            Some(text) => file(text),
        };
        want(paths::dropin(&u.name, &d.name), what);
    }
    match (u.mask, u.contents.as_deref()) {
        (Some(true), _) => want(paths::unit(&u.name), DesiredPath::Mask),
        (_, Some(text)) if !text.is_empty() => want(paths::unit(&u.name), file(text)),
        (Some(false), _) => want(paths::unit(&u.name), DesiredPath::Nothing),
        _ => {}
    }
}

/// The Ignition config of a MachineConfig. `None`: it has none. `null` and `{}` count as absent.
#[must_use]
pub fn ignition_value(spec: &MachineConfigSpec) -> Option<&Value> {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    spec.config.as_ref().filter(|value| !is_empty(value))
}

/// The Ignition config of a MachineConfig, parsed; an empty one if it has none.
///
/// # Errors
/// It cannot be parsed.
pub fn ignition_config(spec: &MachineConfigSpec) -> Result<Config, ParseError> {
    ignition_value(spec)
        .map_or_else(|| Ok(ignition::empty()), |value| Ok(ignition::parse_value(value)?.config))
}

#[cfg(test)]
mod tests;

//! The links that enable, alias and mask units in the administrator's folder, and which of them belong to a plan.
//!
//! Not here: how they are undone (see `undo`), nor what `[Install]` asks for (see `unit_file`). systemd itself makes
//! the links.
//!
//! Sources: systemctl(1), systemd.unit(5).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::{Root, split};
use crate::paths::{UNIT_DIRS, UNITS_DIR};
use crate::plan::step::Step;
use crate::system::unit_file::{Install, expanded, template_of};

/// The enablement links of units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Links {
    /// Folders of links, such as `.wants`.
    pub(super) dirs: Vec<String>,
    /// Links in these folders and beside them: path, target.
    pub(super) links: Vec<(String, String)>,
    /// The units whose links the change may make or remove. All other links belong to others. `None`: the journal is
    /// of an older version, which did not record this.
    #[serde(default)]
    pub(super) units: Option<BTreeSet<String>>,
}

impl Links {
    /// Reads the administrator's unit folder: aliases, masks, and the links in folders such as `.wants`.
    pub(super) fn read(root: &Root) -> Result<Self, FsError> {
        let mut out = Self::default();
        for name in root.list(UNITS_DIR)? {
            let path = format!("{UNITS_DIR}/{name}");
            match root.found(&path)? {
                PathState::Link { target, .. } => out.links.push((path, target)),
                PathState::Dir { .. }
                    if [".wants", ".requires", ".upholds"].iter().any(|s| name.ends_with(s)) =>
                {
                    for inner in root.list(&path)? {
                        let path = format!("{path}/{inner}");
                        if let PathState::Link { target, .. } = root.found(&path)? {
                            out.links.push((path, target));
                        }
                    }
                    out.dirs.push(path);
                }
                _ => {}
            }
        }
        Ok(out)
    }

    /// Whether a link belongs to one of the change's units: by its own name, or as an alias of the unit that it points
    /// to. An instance belongs to its template, but not the other way round: the other instances may be somebody
    /// else's.
    pub(super) fn belongs_to_change(&self, (path, target): &(String, String)) -> bool {
        let Some(units) = &self.units else { return true };
        [path, target].iter().any(|at| {
            let name = last(at);
            units.contains(name) || template_of(name).is_some_and(|t| units.contains(&t))
        })
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The units that the steps enable, disable or preset, and the units affected with them: through `Also=`, aliases, and
/// the targets of aliases. Unit files are read as they are now and as the steps write them.
pub(super) fn units_of_steps(root: &Root, steps: &[Step]) -> Result<BTreeSet<String>, FsError> {
    let mut out = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut todo: Vec<String> = Vec::new();
    for step in steps {
        if let Step::Units { units, .. } = step {
            todo.extend(units.iter().cloned());
        }
    }
    while let Some(unit) = todo.pop() {
        if !out.insert(unit.clone()) {
            continue;
        }
        let files: Vec<String> = [Some(unit.clone()), template_of(&unit)].into_iter().flatten().collect();
        for file in &files {
            for dir in UNIT_DIRS {
                if let PathState::Link { target, .. } = root.found(&format!("{dir}/{file}"))? {
                    todo.extend(Some(last(&target)).filter(|t| t.contains('.')).map(str::to_owned));
                }
            }
        }
        for text in texts(root, steps, &files)? {
            let install = Install::parse(&text);
            todo.extend(install.also.iter().map(|word| expanded(word, &unit)));
            names.extend(install.alias.iter().map(|word| expanded(word, &unit)));
        }
    }
    out.extend(names);
    Ok(out)
}

/// The texts of the files and drop-ins of a unit, as they are now and as the steps write them.
fn texts(root: &Root, steps: &[Step], files: &[String]) -> Result<Vec<String>, FsError> {
    let mut out = Vec::new();
    for file in files {
        for dir in UNIT_DIRS {
            let path = format!("{dir}/{file}");
            out.extend(root.text(&path)?);
            for name in root.list(&format!("{path}.d"))?.iter().filter(|n| n.ends_with(".conf")) {
                out.extend(root.text(&format!("{path}.d/{name}"))?);
            }
        }
    }
    let is_of = |path: &str| {
        let Ok((dir, name)) = split(path) else { return false };
        let dropin = split(dir).ok().and_then(|(above, d)| Some((above, d.strip_suffix(".d")?)));
        let (dir, name) = dropin.unwrap_or((dir, name));
        UNIT_DIRS.contains(&dir) && files.iter().any(|f| f == name)
    };
    for step in steps {
        match step {
            Step::Write { path, content, .. } if is_of(path) => {
                out.push(String::from_utf8_lossy(content.bytes()).into_owned());
            }
            Step::Copy { from, to, .. } if is_of(to) => out.extend(root.text(from)?),
            _ => {}
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enablement_link_belongs_to_a_unit_by_its_name_or_by_its_target() {
        let units = ["a.service", "t@.service", "i@one.service", "alias.service"].map(str::to_owned);
        let links = Links { units: Some(units.into()), ..Links::default() };
        for (path, target, ours) in [
            ("x.target.wants/a.service", "/usr/lib/systemd/system/a.service", true),
            ("other-name.service", "/usr/lib/systemd/system/a.service", true),
            ("alias.service", "/usr/lib/systemd/system/b.service", true),
            ("x.target.wants/t@one.service", "/usr/lib/systemd/system/t@.service", true),
            ("t@one.service", "/dev/null", true),
            ("x.target.wants/i@one.service", "/usr/lib/systemd/system/i@.service", true),
            ("x.target.wants/i@two.service", "/usr/lib/systemd/system/i@.service", false),
            ("x.target.wants/b.service", "/usr/lib/systemd/system/b.service", false),
            ("b.service", "/dev/null", false),
            ("default.target", "/usr/lib/systemd/system/multi-user.target", false),
        ] {
            let link = (format!("{UNITS_DIR}/{path}"), target.to_owned());
            assert_eq!(links.belongs_to_change(&link), ours, "{path} -> {target}");
            assert!(Links::default().belongs_to_change(&link), "an older version's journal does not say");
        }
    }
}

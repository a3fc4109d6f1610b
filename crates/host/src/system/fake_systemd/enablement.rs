//! Unit files of a [`FakeSystemd`]: where they are, and the links that enabling and disabling them make and remove, as
//! `systemctl --root` does it.
//!
//! Not here: the state of units that run, and the calls (see `fake_systemd`).
//!
//! Sources: systemctl(1), systemd.unit(5).

use super::{FakeSystemd, Result};
use crate::disk::path_state::PathState;
use crate::paths::{UNIT_DIRS, UNITS_DIR, unit as unit_path};
use crate::system::systemd::SystemdError;
use crate::system::unit_file::{Install, instance, is_template, template_of};

impl FakeSystemd {
    /// The path of a unit's file, found by its own name or its template's.
    pub(super) fn fragment(&self, name: &str) -> Result<Option<String>> {
        for name in [Some(name.to_owned()), template_of(name)].into_iter().flatten() {
            for dir in UNIT_DIRS {
                let path = format!("{dir}/{name}");
                if !Self::fs(self.root.found(&path))?.is_absent() {
                    return Ok(Some(path));
                }
            }
        }
        Ok(None)
    }

    /// An instance without a file of its own is masked with its template.
    pub(super) fn is_masked(&self, name: &str) -> Result<bool> {
        let Some(path) = self.fragment(name)? else { return Ok(false) };
        let found = Self::fs(self.root.found(&path))?;
        Ok(matches!(found, PathState::Link { target, .. } if target == "/dev/null"))
    }

    pub(super) fn install(&self, path: &str) -> Result<Install> {
        Ok(Install::parse(&Self::fs(self.root.text(path))?.unwrap_or_default()))
    }

    /// The links that are made when a unit is enabled: `(path, target)`.
    fn links(&self, name: &str) -> Result<Vec<(String, String)>> {
        let Some(path) = self.fragment(name)? else {
            return Err(SystemdError::new("enable", name, "the unit file does not exist"));
        };
        if self.is_masked(name)? {
            return Err(SystemdError::new("enable", name, "the unit is masked"));
        }
        let install = self.install(&path)?;
        let name = match (&install.default_instance, is_template(name)) {
            (Some(i), true) => instance(name, i),
            (None, true) if !install.is_empty() => {
                return Err(SystemdError::new("enable", name, "a template needs an instance to be enabled"));
            }
            _ => name.to_owned(),
        };
        let mut out: Vec<_> = install
            .links
            .iter()
            .map(|(target, kind)| (format!("{UNITS_DIR}/{target}.{kind}/{name}"), path.clone()))
            .collect();
        out.extend(install.alias.iter().map(|a| (unit_path(a), path.clone())));
        for also in &install.also {
            if self.fragment(also)?.is_some() && also != &name {
                let install = self.install(&self.fragment(also)?.unwrap_or_default())?;
                out.extend(install.links.iter().map(|(target, kind)| {
                    (format!("{UNITS_DIR}/{target}.{kind}/{also}"), format!("{UNITS_DIR}/{also}"))
                }));
            }
        }
        Ok(out)
    }

    pub(super) fn enable_one(&mut self, name: &str) -> Result<()> {
        for (path, target) in self.links(name)? {
            if Self::fs(self.root.found(&path))?.is_absent() {
                Self::fs(self.root.link(&path, &target, None))?;
            }
        }
        Ok(())
    }

    /// All links in `.wants` and the like: `(path, name, target)`.
    pub(super) fn all_links(&self) -> Result<Vec<(String, String, String)>> {
        let mut out = Vec::new();
        for dir in Self::fs(self.root.list(UNITS_DIR))? {
            let at = unit_path(&dir);
            if let PathState::Link { target, .. } = Self::fs(self.root.found(&at))? {
                out.push((at, dir, target));
            } else if [".wants", ".requires", ".upholds"].iter().any(|s| dir.ends_with(s)) {
                for name in Self::fs(self.root.list(&at))? {
                    let at = format!("{at}/{name}");
                    if let PathState::Link { target, .. } = Self::fs(self.root.found(&at))? {
                        out.push((at, name, target));
                    }
                }
            }
        }
        Ok(out)
    }

    /// Disables one unit. A masked unit keeps its links, as with systemd, which reports that and continues.
    pub(super) fn disable_one(&mut self, name: &str) -> Result<()> {
        if self.is_masked(name)? {
            return Ok(());
        }
        for (path, link, target) in self.all_links()? {
            let own = link == name || (is_template(name) && template_of(&link).as_deref() == Some(name));
            let alias = target.rsplit('/').next() == Some(name) && link != name && !is_template(name);
            // As systemd does: the masks of a template's instances are removed with their links.
            if own && (is_template(name) || target != "/dev/null") || alias {
                Self::fs(self.root.remove(&path))?;
            }
        }
        Ok(())
    }

    pub(super) fn presets(&self) -> Result<Vec<String>> {
        let dirs = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"];
        let mut files = std::collections::BTreeMap::new();
        for dir in dirs {
            let dir = format!("{dir}/systemd/system-preset");
            for name in Self::fs(self.root.list(&dir))? {
                if name.ends_with(".preset") {
                    files.entry(name.clone()).or_insert(format!("{dir}/{name}"));
                }
            }
        }
        let mut out = Vec::new();
        for path in files.values() {
            out.push(Self::fs(self.root.text(path))?.unwrap_or_default());
        }
        Ok(out)
    }
}

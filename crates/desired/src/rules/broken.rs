//! A rule that a config breaks: which part of the config, the path, and what to do.
//!
//! What it is not: the rules (see the parent module).

use super::section::Section;
use ignition::Config;

/// The field of a file with its mode.
pub(super) const MODE: &str = ".mode";
/// The field of a file that appends to it.
pub(super) const APPEND: &str = ".append";
/// The field of a file that says where its contents come from.
pub(super) const SOURCE: &str = ".contents.source";

/// What the rules compare: an Ignition config and the FIPS flag beside it.
#[derive(Debug, Clone, Copy)]
pub struct ComparedConfig<'a> {
    /// The Ignition config.
    pub config: &'a Config,
    /// `spec.fips`.
    pub fips: bool,
}

/// The part of a config that breaks a rule.
#[derive(Debug, Clone, Copy)]
pub enum ConfigPart<'a> {
    /// A whole section.
    Section(&'static Section),
    /// The file of this path.
    File(&'a str),
    /// The link of this path.
    Link(&'a str),
    /// The directory of this path.
    Directory(&'a str),
    /// The unit of this name.
    Unit(&'a str),
    /// The user of this name.
    User(&'a str),
    /// `spec.fips`.
    Fips,
}

impl ConfigPart<'_> {
    /// The path at which a config sets this part; `None` if it does not set it. If several configs are merged into one,
    /// those that return a path are the ones that ask for it.
    #[must_use]
    pub fn place(&self, of: ComparedConfig<'_>) -> Option<String> {
        let config = of.config;
        let at = |list: &str, index: Option<usize>| Some(format!("spec.config.{list}[{}]", index?));
        match self {
            Self::Section(section) => {
                (section.is_set)(config).then(|| format!("spec.config.{}", section.path))
            }
            Self::File(path) => {
                at("storage.files", config.storage.files.iter().position(|f| f.path == *path))
            }
            Self::Link(path) => {
                at("storage.links", config.storage.links.iter().position(|l| l.path == *path))
            }
            Self::Directory(path) => {
                at("storage.directories", config.storage.directories.iter().position(|d| d.path == *path))
            }
            Self::Unit(name) => {
                at("systemd.units", config.systemd.units.iter().position(|u| u.name == *name))
            }
            Self::User(name) => at("passwd.users", config.passwd.users.iter().position(|u| u.name == *name)),
            Self::Fips => of.fips.then(|| "spec.fips".to_owned()),
        }
    }
}

/// A rule that a config breaks.
#[derive(Debug, Clone)]
pub struct BrokenRule<'a> {
    /// The part that breaks it.
    pub part: ConfigPart<'a>,
    /// The field of that part, such as `.append`; empty for the whole part.
    pub field: &'static str,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: &'static str,
}

impl BrokenRule<'_> {
    /// Whether a file's contents break the rule, rather than its path.
    #[must_use]
    pub fn is_of_contents(&self) -> bool {
        matches!(self.field, APPEND | SOURCE)
    }

    /// The path in a config; for a part that the config has lost, where it would be.
    #[must_use]
    pub fn path(&self, of: ComparedConfig<'_>) -> String {
        let place = self.part.place(of).unwrap_or_else(|| match &self.part {
            ConfigPart::Section(section) => format!("spec.config.{}", section.path),
            ConfigPart::Fips => "spec.fips".to_owned(),
            _ => "spec.config".to_owned(),
        });
        place + self.field
    }
}

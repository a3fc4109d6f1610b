//! [`Baseline`]: what a host in a config must look like, in the few bytes that a comparison needs.
//!
//! Not here: when it is made, and from which record (see `drift::baseline`), and the comparison (see `drift::compare`).

use desired::{DesiredHost, DesiredOs, DesiredPath, has_contents};
use ignition::Owner;

use crate::system::unit_file::Install;

/// What a host in a config must look like: each managed path with the digest of its contents, and the units whose
/// enablement the config sets. It holds no contents.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// The config's name.
    name: String,
    /// The digest of the record that it was made for.
    pub(crate) record: String,
    pub(crate) paths: Vec<(String, Expected)>,
    pub(crate) units: Vec<ExpectedUnit>,
    /// What the config says of the operating system.
    pub(crate) os: DesiredOs,
}

/// What must be at a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    File { len: u64, sha256: String, mode: u32, user: Owner, group: Owner },
    Dir { mode: Option<u32>, user: Owner, group: Owner },
    Link { target: String, hard: bool, user: Owner, group: Owner },
    Mask,
    Nothing,
}

impl Expected {
    fn of(want: &DesiredPath) -> Self {
        match want {
            DesiredPath::File { content, mode, user, group, .. } => Self::File {
                len: content.bytes().len() as u64,
                sha256: content.sha256(),
                mode: *mode,
                user: user.clone(),
                group: group.clone(),
            },
            DesiredPath::Dir { mode, user, group, .. } => {
                Self::Dir { mode: *mode, user: user.clone(), group: group.clone() }
            }
            DesiredPath::Link { target, hard, user, group, .. } => {
                Self::Link { target: target.clone(), hard: *hard, user: user.clone(), group: group.clone() }
            }
            DesiredPath::Mask => Self::Mask,
            DesiredPath::Nothing => Self::Nothing,
        }
    }
}

/// What must be true of a unit besides its files.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpectedUnit {
    pub(crate) name: String,
    pub(crate) enabled: Option<bool>,
    pub(crate) masked: bool,
    /// The `[Install]` section of the unit's text in the config. `None`: the config has no text for it.
    pub(crate) install: Option<Install>,
}

impl Baseline {
    /// The baseline of a parsed config, without the entries that are not written as they are given (see
    /// [`DesiredPath::was_applied`]).
    pub(crate) fn new(name: &str, record: String, wanted: &DesiredHost) -> Self {
        let paths = wanted.paths.iter().filter(|(_, want)| want.was_applied());
        let paths = paths.map(|(path, want)| (path.clone(), Expected::of(want))).collect();
        let units = wanted.config.systemd.units.iter().map(|unit| ExpectedUnit {
            name: unit.name.clone(),
            enabled: unit.enabled,
            masked: unit.mask == Some(true),
            install: has_contents(unit).then(|| Install::parse(unit.contents.as_deref().unwrap_or_default())),
        });
        let os = wanted.os.clone();
        Self { name: name.to_owned(), record, paths, units: units.collect(), os }
    }

    /// The config's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

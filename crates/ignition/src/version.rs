//! The versions of the spec that can be read and written, and the one of the model.
//!
//! What it is not: what came with which version (see the model's tables and `newer`).
//!
//! Source: <https://coreos.github.io/ignition/specs/>.

use crate::model::Config;

/// The version of the model: every config is read into it, and rendered configs are written in it.
pub const VERSION: &str = "3.5.0";

/// A version that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 2.0 to 2.2, read as 2.2.
    V2_2,
    /// 3.0.
    V3_0,
    /// 3.1.
    V3_1,
    /// 3.2.
    V3_2,
    /// 3.3.
    V3_3,
    /// 3.4.
    V3_4,
    /// 3.5.
    V3_5,
    /// 3.6.
    V3_6,
}

impl Version {
    /// That of the model, [`VERSION`]: no host reads a newer one in a MachineConfig.
    pub const MODEL: Self = Self::V3_5;

    /// Every version, oldest first.
    pub const ALL: [Self; 8] =
        [Self::V2_2, Self::V3_0, Self::V3_1, Self::V3_2, Self::V3_3, Self::V3_4, Self::V3_5, Self::V3_6];

    /// As it is written in `ignition.version`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2_2 => "2.2.0",
            Self::V3_0 => "3.0.0",
            Self::V3_1 => "3.1.0",
            Self::V3_2 => "3.2.0",
            Self::V3_3 => "3.3.0",
            Self::V3_4 => "3.4.0",
            Self::V3_5 => "3.5.0",
            Self::V3_6 => "3.6.0",
        }
    }

    /// The minor version within spec 3; 0 for spec 2.
    pub(crate) fn minor(self) -> u8 {
        match self {
            Self::V2_2 | Self::V3_0 => 0,
            Self::V3_1 => 1,
            Self::V3_2 => 2,
            Self::V3_3 => 3,
            Self::V3_4 => 4,
            Self::V3_5 => 5,
            Self::V3_6 => 6,
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        match text {
            "2.0.0" | "2.1.0" => Some(Self::V2_2),
            _ => Self::ALL.into_iter().find(|v| v.as_str() == text),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A config with nothing but the version.
pub fn empty() -> Config {
    let mut config = Config::default();
    VERSION.clone_into(&mut config.ignition.version);
    config
}

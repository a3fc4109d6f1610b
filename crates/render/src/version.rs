//! The build that renders, and how strict it is.
//!
//! What it is not: the versions of Ignition configs (see `ignition::Version`).

/// The build that renders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// The version as people write it. The operator writes it on the ControllerConfig.
    pub raw: String,
    /// The hash of the build. Everything that is generated carries it.
    pub hash: String,
}

impl Versions {
    /// Those of this build.
    pub fn of_this_build() -> Self {
        Self { raw: api::names::VERSION_RAW.to_owned(), hash: api::names::VERSION_HASH.to_owned() }
    }

    /// The values of a build without version information.
    pub fn unknown() -> Self {
        Self { raw: "v0.0.0-was-not-built-properly".to_owned(), hash: "was-not-built-properly".to_owned() }
    }
}

/// How strict rendering is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In a cluster, with running machines: versions must agree, and what no host could apply is refused.
    #[default]
    Cluster,
    /// Before there is a cluster, as the reference implementation renders: what no host could apply is a warning.
    Bootstrap,
}

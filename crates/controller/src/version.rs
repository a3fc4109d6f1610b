//! The version of this build, as it is marked on what it generates. What it is not: the release of the cluster, which
//! the ControllerConfig names.

use render::Versions;

/// Version and hash of this build.
pub(crate) fn versions() -> Versions {
    Versions { raw: api::names::VERSION_RAW.to_owned(), hash: api::names::VERSION_HASH.to_owned() }
}

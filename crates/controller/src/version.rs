//! This build, as it stands on what it generates. What it is not: a release of the cluster, which ControllerConfig names.

use render::Versions;

/// Version and hash of this build.
pub(crate) fn versions() -> Versions {
    Versions { raw: api::names::VERSION_RAW.to_owned(), hash: api::names::VERSION_HASH.to_owned() }
}

//! Why registry settings cannot be rendered.
//!
//! What it is not: what is wrong with a mirror or a signature by itself (see `mirrors`, `signatures`).

use crate::settings::registries::mirrors::MirrorError;
use crate::settings::registries::signatures::SignatureError;

/// Registry settings that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistriesError {
    /// A scope in the Image object.
    #[error("Image cluster: spec.registrySources.{list}: {scope:?} is not a registry: {why}")]
    Scope {
        /// The list.
        list: &'static str,
        /// The scope.
        scope: String,
        /// The rule.
        why: &'static str,
    },
    /// Lists that exclude each other.
    #[error(
        "Image cluster: spec.registrySources: allowedRegistries and blockedRegistries exclude each other"
    )]
    AllowedAndBlocked,
    /// Mirrors.
    #[error(transparent)]
    Mirrors(#[from] MirrorError),
    /// Signatures.
    #[error(transparent)]
    Signatures(#[from] SignatureError),
    /// A template that is not what it should be.
    #[error("template of {path}: {message}")]
    Template {
        /// The file on the host.
        path: &'static str,
        /// What is wrong.
        message: String,
    },
}

//! Looks into images by the registry's API (OCI distribution): [`Registry::inspect`] reads what an image says of itself (its
//! digest, architectures, labels, layers), [`Registry::file`] one file of it. Nothing is pulled to a disk. [`Registry::delete`]
//! deletes an image, and [`Registry::tags`] lists those of a repository.
//!
//! Data flow: [`Reference`] → [`Routes`] (mirrors, blocked registries) → requests with [`Credentials`] and [`Trust`], each
//! under a timeout and a limit of what is read → documents whose digest is verified → [`ImageFacts`], kept by digest in a
//! [`Cache`].
//!
//! HTTP and TLS are those of the Kubernetes client, which the program contains anyway: a second stack would be a megabyte.
//!
//! What it is not: the pull of an image to a host (see `host`), signatures (the node's `policy.json`), or what a pool makes of
//! an image (see `rollout`).
//!
//! Source: <https://github.com/opencontainers/distribution-spec/blob/main/spec.md>.

mod cache;
mod container_tools;
mod credentials;
mod deletion;
mod documents;
mod facts;
mod files;
mod inspect;
mod reference;
mod requests;
mod streams;

#[cfg(test)]
mod fake_registry;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use container_tools::{ContainerTools, ContainerToolsError, FileTrouble};
pub use credentials::{BrokenEntry, Credentials, CredentialsError, Login};
pub use facts::{ImageFacts, LayerFacts, STREAM};
pub use reference::{Digest, Reference, ReferenceError};
pub use requests::error::{RegistryError, RequestFailure};
pub use requests::registry::Registry;
pub use requests::routes::{Routes, RoutesError};
pub use requests::transport::{Limits, Proxies, Settings, Trust, encoded};
pub use streams::{Stream, of_release, pair};

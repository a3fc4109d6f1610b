//! Installs the other parts and keeps them: namespace, CRDs, rights, pods, ControllerConfig, built-in pools.
//!
//! - [`install`]: what `mco install` does once. [`install::settings`] decides what is written into the
//!   ControllerConfig, [`install::plan()`] lists the objects in their order (both pure), and [`install::apply()`] writes
//!   them by server-side apply and waits until the API server serves the new kinds.
//! - [`reconcile`]: what `mco operator start` does all the time. It keeps the config server's CA and certificate
//!   ([`certificates`]), the user data of machines ([`user_data`]), and the namespace of boot tokens ([`boot_tokens`]).
//! - `manifests`: the pods of our parts and their rights.
//!
//! What it is not: the ClusterOperator's status, and upgrades.

pub mod boot_tokens;
pub mod certificates;
pub mod install;
mod manifests;
pub mod reconcile;
pub mod user_data;

pub use manifests::rights::controller as controller_rules;

//! Installs and keeps the other parts: namespace, CRDs, rights, pods, ControllerConfig, built-in pools.
//!
//! What stands here today: [`install`], which `mco install` runs once, and [`keep`], which `mco operator start` runs: the
//! config server's CA and certificate, and user data of machines; [`tokens`]: where boot tokens stand. What does not: ClusterOperator status and
//! upgrades.
//!
//! Flow of an installation: [`settings`] says what stands in the ControllerConfig, [`install::plan`] says which objects are to stand in the cluster, in order (pure); [`install::apply`] puts
//! them there by server-side apply and waits until the API server serves the new kinds.

mod agent;
pub mod certificates;
pub mod install;
pub mod keep;
mod pods;
mod rights;
pub mod settings;
pub mod tokens;
pub mod user_data;

pub use rights::controller as controller_rules;

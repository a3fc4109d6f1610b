//! Installs and keeps the other parts: namespace, CRDs, ControllerConfig, built-in pools.
//!
//! What stands here today: [`install`], which `mco install` runs once. What does not: the running operator with its
//! ClusterOperator status, component manifests and upgrades.
//!
//! Flow: [`install::plan`] says which objects are to stand in the cluster, in order (pure); [`install::apply`] puts
//! them there by server-side apply and waits until the API server serves the new kinds.

mod agent;
pub mod install;

//! Installs the other parts and keeps them, as the settings object says: definitions, ControllerConfig, pools, rights,
//! admission policies, certificates, pods.
//!
//! - [`install`]: what `mco install` does once: the definitions, the operator, and its settings.
//! - [`sync`]: what `mco operator start` does all the time: everything else, in ordered steps, with conditions that say where
//!   it stands.
//! - [`uninstall`]: takes all of it away.
//! - [`manifests`]: the objects of the parts. Pure.
//! - [`settings`]: the settings object, read and checked. [`facts`]: what the cluster says about itself.
//! - [`monitoring`]: alerts, dashboards, and how Prometheus finds the metrics.
//! - [`certificates`], [`user_data`], [`boot_tokens`], [`joining`]: what booting machines need. [`pointer_facts`]: what a pointer
//!   config says that a person asks for.
//!
//! What it is not: rules about nodes.

mod accounts;
pub mod boot_tokens;
mod booting_machines;
pub mod certificates;
pub mod controller_config_values;
mod definitions;
mod facts;
pub mod install;
mod joining;
pub mod manifests;
pub mod monitoring;
mod objects;
mod ownership;
pub mod pointer_facts;
mod reconcile_error;
mod request;
pub mod settings;
mod stored_versions;
pub mod sync;
pub mod uninstall;
pub mod user_data;

pub use manifests::rights::{
    controller as controller_rules, controller_in_namespace as controller_rules_in_namespace,
};

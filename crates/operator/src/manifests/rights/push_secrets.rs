//! The controller's right to read the Secrets that images are pushed with: it deletes old images with them. It is in a Role of its
//! own, because it follows the MachineOSConfigs and the other rights do not. Pure.
//!
//! What it is not: which Secrets these are (see `sync::push_secrets`).

use super::CONTROLLER;
use super::objects::{named, role, subject};
use api::names::NAMESPACE;
use serde_json::Value;
use std::collections::BTreeSet;

/// The Role, and its binding to the controller's account.
pub(crate) const PUSH_SECRETS: &str = "machine-config-controller-push-secrets";

/// The Role for these Secrets, and its binding. Without any it allows nothing: a rule without names would be one for all Secrets.
pub(crate) fn push_secrets(names: &BTreeSet<String>) -> [Value; 2] {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rules = if names.is_empty() { vec![] } else { vec![named("", "secrets", &names, &["get"])] };
    let [role, mut binding] = role(PUSH_SECRETS, NAMESPACE, &rules);
    binding["subjects"] = subject(CONTROLLER);
    [role, binding]
}

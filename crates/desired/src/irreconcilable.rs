//! Differences between two parsed configs that no running machine can apply, besides what the rules find. Pure.
//!
//! What it is not: the rules (see `rules`), or what is in the way on one machine (see `host`).

use crate::desired_host::DesiredHost;
use crate::finding::{Irreconcilable, Scope};
use crate::rules::{ComparedConfig, Overrides, broken};

/// Every difference between two configs that cannot be applied to any running machine, except those that `overrides`
/// accepts.
#[must_use]
pub fn irreconcilable(old: &DesiredHost, new: &DesiredHost, overrides: Overrides) -> Vec<Irreconcilable> {
    let finding = |path: String, why: String, remedy: &str| Irreconcilable {
        path,
        why,
        remedy: remedy.to_owned(),
        scope: Scope::Config,
    };
    let mut bad = Vec::new();
    if let Err(errors) = ignition::validate(&new.config) {
        let errors = errors.0.into_iter();
        bad.extend(
            errors.map(|e| {
                finding(format!("spec.config.{}", e.path), e.message, "correct the Ignition config")
            }),
        );
    }
    let old = ComparedConfig { config: &old.config, fips: old.fips };
    let new = ComparedConfig { config: &new.config, fips: new.fips };
    let rules = broken(Some(old), new, overrides).into_iter();
    bad.extend(rules.map(|b| finding(b.path(new), b.why, b.remedy)));
    bad
}

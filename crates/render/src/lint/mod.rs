//! Everything that can be found in manifests before they reach a cluster. Each finding has an object, a JSON path, a
//! rule and a remedy. Pure.
//!
//! What it is not: new rules. Errors come from `validate_machine_config`, `plan` and the generators; the linter adds
//! only warnings about what is allowed but rarely meant.

mod finding;
mod manifests;
mod pool;
mod schema;
mod suspicious;

pub use finding::{Lint, Severity};
pub use schema::{Extent, lint_by_schema};

use crate::config::check::{host_packages, read_machine_config};
use crate::config::streams;
use crate::error::Rule;
use crate::template::data::Data as TemplateData;
use crate::template::{self, Rendering, TemplateSet};
use crate::tls::TlsProfile;
use crate::version::{Mode, Versions};
use api::formats::selector;
use api::k8s::ResourceExt as _;
use api::names::{ARBITER, MASTER, WORKER, label};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, PinnedImageSet};
use finding::of;
use manifests::read;
use pool::{ParsedConfig, lint_pool};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use suspicious::suspicious;

/// The pools that the roles of MachineConfigs imply, used if there are no manifests of pools. By convention each pool
/// selects its own role, and a custom one also selects `worker`.
pub fn default_pools(configs: &[MachineConfig]) -> Vec<MachineConfigPool> {
    let roles: BTreeSet<&str> =
        configs.iter().filter_map(|c| c.labels().get(label::ROLE)).map(String::as_str).collect();
    let pool = |role: &str| {
        let picked = if matches!(role, MASTER | WORKER | ARBITER) { vec![role] } else { vec![WORKER, role] };
        let selector =
            json!({"matchExpressions": [{"key": label::ROLE, "operator": "In", "values": picked}]});
        let spec = serde_json::from_value(json!({ "machineConfigSelector": selector })).unwrap_or_default();
        MachineConfigPool::new(role, spec)
    };
    roles.into_iter().filter(|r| !r.is_empty()).map(pool).collect()
}

/// Checks manifests, each with the name of the file that it comes from. Errors come first, then by object.
pub fn lint(manifests: &[(String, Value)]) -> Vec<Lint> {
    lint_with(manifests, &TemplateSet::default())
}

/// As [`lint`], together with the MachineConfigs that templates make: what overrides them, and what they result in
/// together. The facts for the templates are in the manifests' ControllerConfig.
pub fn lint_with(manifests: &[(String, Value)], templates: &TemplateSet) -> Vec<Lint> {
    let mut all = Vec::new();
    let read = read(manifests, &mut all);
    let mut bad = BTreeSet::new();
    let mut configs = read.configs;
    let (own, mut picked) = (!read.pools.is_empty(), BTreeSet::new());
    let pools = if own { read.pools } else { default_pools(&configs) };
    let given = configs.len();
    let there: BTreeSet<String> = configs.iter().map(|mc| mc.name_any()).collect();
    let made = made_from(templates, read.controller_config.as_ref(), &mut all);
    // MachineConfigs that were exported with the manifests replace the generated ones.
    configs.extend(made.into_iter().filter(|mc| !there.contains(&mc.name_any())));
    // Each is parsed once, however many pools select it.
    let parsed: Vec<ParsedConfig<'_>> = configs.iter().map(read_machine_config).collect();
    for (component, findings) in parsed.iter().take(given) {
        let mc = component.machine_config;
        all.extend(findings.iter().map(|f| of(Severity::Error, f.clone())));
        let unusable = component.unusable();
        if !(findings.is_empty() && unusable.is_empty()) {
            bad.insert(mc.name_any());
        }
        if findings.is_empty() {
            all.extend(host_packages(mc).into_iter().map(|f| of(Severity::Warning, f)));
            all.extend(component.warnings.iter().map(|f| of(Severity::Warning, f.clone())));
        }
        // The readable parts of one that breaks rules are still checked, so that one run reports everything.
        if findings.is_empty() || component.config.is_some() {
            all.extend(unusable.into_iter().map(|f| of(Severity::Error, f)));
            all.extend(suspicious(component));
        }
    }
    for pool in &pools {
        let worker = pools.iter().find(|p| p.name_any() == WORKER);
        // Manifests without the list of streams are not a complete cluster.
        let stream = read
            .streams
            .as_ref()
            .map(|list| streams::stream(pool, worker, Some(list), &Versions::unknown(), Mode::Bootstrap));
        let stream = match stream.transpose() {
            Ok(stream) => stream.flatten(),
            Err(finding) => {
                all.push(of(Severity::Error, finding));
                None
            }
        };
        let facts = (read.controller_config.as_ref(), stream.as_ref());
        let Some(names) = lint_pool(&mut all, pool, &parsed, &bad, facts) else { continue };
        picked.extend(names);
    }
    // Exported rendered MachineConfigs are results, and those from templates are not the user's.
    let owned = |mc: &MachineConfig| {
        let mut owners = mc.metadata.owner_references.iter().flatten();
        owners.any(|o| matches!(o.kind.as_str(), "MachineConfigPool" | "ControllerConfig"))
    };
    for mc in configs.iter().filter(|mc| !picked.contains(&mc.name_any()) && !owned(mc)) {
        let message = if own {
            "no pool among the manifests selects it"
        } else {
            "has no role label, so no pool selects it"
        };
        let remedy = format!("set metadata.labels[{}] to the name of a pool", label::ROLE);
        let object = format!("MachineConfig {}", mc.name_any());
        let (severity, rule, path) = (Severity::Warning, Rule::NoPool, "metadata.labels".to_owned());
        all.push(Lint { severity, object, path, rule, message: message.to_owned(), remedy });
    }
    // Pools that are only implied follow from roles of MachineConfigs, and say nothing about sets.
    let fits = |set: &PinnedImageSet, pool: &MachineConfigPool| {
        let labels = set.metadata.labels.as_ref();
        selector::matches(pool.spec.machine_config_selector.as_ref(), labels).unwrap_or(true)
    };
    for set in read.pinned.iter().filter(|set| own && !pools.iter().any(|pool| fits(set, pool))) {
        all.push(Lint {
            severity: Severity::Warning,
            object: format!("PinnedImageSet {}", set.name_any()),
            path: "metadata.labels".to_owned(),
            rule: Rule::NoPool,
            message: "no pool among the manifests selects it, so no node pulls its images".to_owned(),
            remedy: format!("set metadata.labels[{}] to the name of a pool", label::ROLE),
        });
    }
    all.sort_by(|a, b| {
        (a.severity, &a.object, &a.path, &a.message).cmp(&(b.severity, &b.object, &b.path, &b.message))
    });
    all.dedup();
    all
}

/// The MachineConfigs that templates make. A template that makes none is an error.
fn made_from(
    templates: &TemplateSet,
    controller_config: Option<&ControllerConfig>,
    all: &mut Vec<Lint>,
) -> Vec<MachineConfig> {
    if templates.is_empty() {
        return Vec::new();
    }
    let default = ControllerConfig::default();
    let tls = TlsProfile::from_api_server(None);
    let controller_config = controller_config.unwrap_or(&default);
    let data = TemplateData { controller_config, pull_secret: None, tls: &tls };
    let versions = Versions { raw: String::new(), hash: String::new() };
    match template::generate(&Rendering::new(templates, data), &versions) {
        Ok(made) => made,
        Err(e) => {
            let (object, path, rule) = (format!("template {}", e.path), String::new(), Rule::Template);
            let remedy = "correct the template, or the ControllerConfig's field that it names".to_owned();
            all.push(Lint { severity: Severity::Error, object, path, rule, message: e.message, remedy });
            Vec::new()
        }
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "helpers of tests")]
mod tests;

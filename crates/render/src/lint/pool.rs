//! What the MachineConfigs of a pool result in together: what rendering refuses, what several of them set, and who can
//! still log in.
//!
//! What it is not: each MachineConfig by itself.

use super::finding::{Lint, Severity, of};
use crate::config::check::Component;
use crate::config::inputs::Inputs;
use crate::config::merge::sort;
use crate::config::plan::{RenderPlan, plan_checked, select};
use crate::config::provenance::{self, Kind};
use crate::config::streams::Stream;
use crate::error::{Finding, Reason, Rule};
use crate::version::{Mode, Versions};
use api::k8s::ResourceExt as _;
use api::names::{CORE_USER, annotation};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use std::collections::{BTreeMap, BTreeSet};

/// A MachineConfig, as far as it can be read, and the rules that it breaks.
pub(super) type ParsedConfig<'a> = (Component<'a>, Vec<Finding>);

/// Checks what the MachineConfigs of a pool result in together; returns the names of those that it selects.
pub(super) fn lint_pool(
    all: &mut Vec<Lint>,
    pool: &MachineConfigPool,
    configs: &[ParsedConfig<'_>],
    bad: &BTreeSet<String>,
    (controller_config, stream): (Option<&ControllerConfig>, Option<&Stream>),
) -> Option<Vec<String>> {
    let picked = match select(pool, configs.iter().map(|(component, _)| component.machine_config)) {
        Ok(picked) => picked,
        Err(e) => {
            all.extend(e.findings.into_iter().map(|f| of(Severity::Error, f)));
            return None;
        }
    };
    let names: Vec<String> = picked.iter().map(|mc| mc.name_any()).collect();
    let good: Vec<&MachineConfig> = picked.into_iter().filter(|mc| !bad.contains(&mc.name_any())).collect();
    let parsed: Vec<&ParsedConfig<'_>> = good
        .iter()
        .filter_map(|mc| configs.iter().find(|(of, _)| std::ptr::eq(of.machine_config, *mc)))
        .collect();
    let mut components: Vec<&Component<'_>> =
        parsed.iter().filter(|(_, findings)| findings.is_empty()).map(|(component, _)| component).collect();
    sort(&mut components);
    contested(all, pool, &components);
    if good.is_empty() {
        if names.is_empty() {
            let message = "selects none of these MachineConfigs";
            let finding =
                Finding::on_pool(Rule::Selector, &pool.name_any(), "spec.machineConfigSelector", message);
            let finding = finding.with_remedy("label one, or correct the selector");
            all.push(of(Severity::Warning, finding));
        }
        return Some(names);
    }
    // Version marks of objects exported from a cluster are taken as they are.
    let note = |annotations: Option<&BTreeMap<String, String>>, key: &str| {
        annotations.and_then(|a| a.get(key)).cloned().unwrap_or_default()
    };
    let default = ControllerConfig::default();
    let controller_config = controller_config.unwrap_or(&default);
    let raw = note(controller_config.metadata.annotations.as_ref(), annotation::GENERATED_BY_VERSION);
    let hash =
        good.iter().map(|c| note(c.metadata.annotations.as_ref(), annotation::GENERATED_BY_CONTROLLER));
    let versions = Versions { raw, hash: hash.max().unwrap_or_default() };
    let inputs =
        Inputs { stream, mode: Mode::Cluster, ..Inputs::new(pool, &good, controller_config, &versions) };
    // Merging moves the parsed configs, and further pools may select the same MachineConfigs.
    let checked = parsed.iter().map(|(component, findings)| match findings.is_empty() {
        true => Ok(component.clone()),
        false => Err(findings.clone()),
    });
    match plan_checked(&inputs, checked, &|| components.iter().copied().cloned().collect()) {
        Ok(plan) => {
            all.extend(nobody_logs_in(pool, &plan, &components));
            all.extend(plan.warnings.into_iter().map(|f| of(Severity::Warning, f)));
        }
        Err(e) if e.reason == Reason::VersionSkew => {}
        Err(e) => all.extend(e.findings.into_iter().map(|f| of(Severity::Error, f))),
    }
    Some(names)
}

/// A pool whose MachineConfigs configure the user core but allow no login: the last password of several is empty or
/// locked, and there is no key. What a change removes is reported if the pool's previous config is known (see
/// [`crate::plan`]).
fn nobody_logs_in(
    pool: &MachineConfigPool,
    plan: &RenderPlan,
    components: &[&Component<'_>],
) -> Option<Lint> {
    let config = &plan.config;
    let has_core = config.passwd.users.iter().any(|u| u.name == CORE_USER);
    if !has_core || desired::has_core_login(config) {
        return None;
    }
    let of_core = || plan.provenance.of(CORE_USER).filter(|o| o.kind == Kind::User);
    let origin = of_core().find(|o| o.field == "passwordHash").or_else(|| of_core().next())?;
    let before = match origin.lost.as_slice() {
        [] => String::new(),
        lost => format!(", in place of what {} says", lost.join(", ")),
    };
    let component = components.iter().find(|c| c.name() == origin.set_by);
    let at = component.and_then(|c| place(c.config.as_ref()?, Kind::User, CORE_USER));
    Some(Lint {
        severity: Severity::Warning,
        object: format!("MachineConfig {}", origin.set_by),
        path: at.map_or_else(|| "spec.config.passwd".to_owned(), |at| format!("spec.config.{at}")),
        rule: Rule::LastLogin,
        message: format!(
            "in pool {} nobody can log in as core: it has no SSH key, and its password is empty or locked{before}",
            pool.name_any()
        ),
        remedy: "give core an SSH key, or a password hash made with mkpasswd".to_owned(),
    })
}

/// One warning for each thing that several MachineConfigs set, however many of its parts they set.
fn contested(all: &mut Vec<Lint>, pool: &MachineConfigPool, components: &[&Component<'_>]) {
    type Thing<'a> = (Kind, &'a str, &'a str, &'a [String]);
    let provenance = provenance::trace(components);
    let mut things: BTreeMap<Thing<'_>, Vec<&str>> = BTreeMap::new();
    // Two MachineConfigs that give the same key agree.
    for o in provenance.contested().filter(|o| o.kind != Kind::SshKey) {
        things.entry((o.kind, &o.name, &o.set_by, &o.lost)).or_default().push(&o.field);
    }
    for ((kind, name, set_by, lost), fields) in things {
        let config = components.iter().find(|c| c.name() == set_by).and_then(|c| c.config.as_ref());
        let path = match (config.and_then(|c| place(c, kind, name)), kind) {
            (Some(at), _) => format!("spec.config.{at}"),
            (None, Kind::Scalar) => format!("spec.{name}"),
            (None, _) => "spec.config".to_owned(),
        };
        let what = if fields == [""] { name.to_owned() } else { format!("{} of {name}", fields.join(", ")) };
        let losers = lost.join(", ");
        all.push(Lint {
            severity: Severity::Warning,
            object: format!("MachineConfig {set_by}"),
            path,
            rule: Rule::Contested,
            message: format!("in pool {} it overrides {losers}, which sets {what}, too", pool.name_any()),
            remedy: format!("set it in one place: remove it from {losers}, or from {set_by}"),
        });
    }
}

fn place(c: &ignition::Config, kind: Kind, name: &str) -> Option<String> {
    let (list, index) = match kind {
        Kind::File => ("storage.files", c.storage.files.iter().position(|f| f.path == name)),
        Kind::Link => ("storage.links", c.storage.links.iter().position(|f| f.path == name)),
        Kind::Directory => ("storage.directories", c.storage.directories.iter().position(|f| f.path == name)),
        Kind::Unit => ("systemd.units", c.systemd.units.iter().position(|u| u.name == name)),
        Kind::User => ("passwd.users", c.passwd.users.iter().position(|u| u.name == name)),
        _ => return None,
    };
    Some(format!("{list}[{}]", index?))
}

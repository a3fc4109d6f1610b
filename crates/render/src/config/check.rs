//! The rules for one MachineConfig before it is merged. Pure; knows nothing of pools.
//!
//! What it is not: Ignition's own rules (see `ignition::validate`).

use crate::error::{Finding, Rule};
use api::k8s::ResourceExt as _;
use api::v1::MachineConfig;
use desired::rules::{special_mode_bits, unescaped};
use desired::{KERNEL_TYPES, ignition_value, packages};
use ignition::{Config, Version, WarningKind};
use serde_json::Value;

/// A MachineConfig that was parsed and obeys the rules.
#[derive(Debug, Clone)]
pub struct Component<'a> {
    /// The object.
    pub machine_config: &'a MachineConfig,
    /// Its Ignition config, where it has one.
    pub config: Option<Config>,
    /// Things that have no effect.
    pub warnings: Vec<Finding>,
}

/// A MachineConfig that was read and checked, or every rule that it breaks.
pub(crate) type Checked<'a> = Result<Component<'a>, Vec<Finding>>;

impl Component<'_> {
    /// The object's name.
    pub fn name(&self) -> &str {
        self.machine_config.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its role label; empty if it has none.
    pub fn role(&self) -> &str {
        self.machine_config.labels().get(api::names::label::ROLE).map_or("", String::as_str)
    }

    /// What no host could apply although it breaks no rule: remote sources, compressed bytes that do not unpack, wrong
    /// hashes, data URLs that hosts do not read, and, in a MachineConfig without an Ignition config, extensions that cannot
    /// be packages (with an Ignition config, only those of the reference are accepted).
    pub fn unusable(&self) -> Vec<Finding> {
        let mut findings = match self.config {
            Some(_) => Vec::new(),
            None => impossible_extensions(self.machine_config),
        };
        for (i, f) in self.config.iter().flat_map(|c| &c.storage.files).enumerate() {
            let at = format!("spec.config.storage.files[{i}]");
            if let Some(b) = unescaped(f) {
                let at = format!("{at}{}", b.field);
                findings
                    .push(Finding::on(Rule::FileContents, self.name(), at, &*b.why).with_remedy(b.remedy));
            }
            let append = f.append.iter().enumerate().map(|(n, r)| (format!("{at}.append[{n}]"), r));
            for (at, resource) in [(format!("{at}.contents"), &f.contents)].into_iter().chain(append) {
                if let Err(e) = resource.check() {
                    findings.push(Finding::on(Rule::from(&e), self.name(), at, format!("{}: {e}", f.path)));
                }
            }
        }
        findings
    }
}

/// Reads and checks one MachineConfig.
///
/// # Errors
/// Every rule that it breaks, with its path.
pub fn validate_machine_config(machine_config: &MachineConfig) -> Result<Component<'_>, Vec<Finding>> {
    let (component, findings) = read_machine_config(machine_config);
    if findings.is_empty() { Ok(component) } else { Err(findings) }
}

/// As [`validate_machine_config`], with what can be read of one that breaks rules.
pub(crate) fn read_machine_config(machine_config: &MachineConfig) -> (Component<'_>, Vec<Finding>) {
    let name = machine_config.name_any();
    let spec = &machine_config.spec;
    let mut findings = Vec::new();
    let kernel = spec.kernel_type.as_str();
    if !kernel.is_empty() && !KERNEL_TYPES.contains(&kernel) {
        let known = KERNEL_TYPES.join(", ");
        let message = format!("{kernel:?} is not known");
        let finding = Finding::on(Rule::KernelType, &name, "spec.kernelType", message);
        findings.push(finding.with_remedy(format!("use one of {known}")));
    }
    let mut component = Component { machine_config, config: None, warnings: Vec::new() };
    if let Some(raw) = ignition_value(spec) {
        findings.extend(unknown_extensions(machine_config));
        let (config, warnings, more) = ignition_config(&name, raw);
        (component.config, component.warnings) = (config, warnings);
        findings.extend(more);
    }
    (component, findings)
}

/// Extensions that are not passed to a package manager.
fn impossible_extensions(machine_config: &MachineConfig) -> Vec<Finding> {
    let extensions = machine_config.spec.extensions.iter().flatten().enumerate();
    let bad = extensions.filter_map(|(i, e)| {
        let why = desired::refused_extension(e)?;
        Some(Finding::on(Rule::Extension, &machine_config.name_any(), format!("spec.extensions[{i}]"), why))
    });
    bad.collect()
}

/// Extensions of a MachineConfig without an Ignition config that the reference does not know: packages of the host's
/// repositories, which may not have them.
pub(crate) fn host_packages(machine_config: &MachineConfig) -> Vec<Finding> {
    let has_config = ignition_value(&machine_config.spec).is_some();
    let extensions = machine_config.spec.extensions.iter().flatten().enumerate();
    let own = extensions.filter(|(_, e)| {
        !has_config && packages::extension(e).is_none() && desired::refused_extension(e).is_none()
    });
    let finding = |(i, e): (usize, &String)| {
        let message = format!(
            "{e:?} is not one of the reference's extensions ({}), so it is treated as a package of the hosts' repositories",
            packages::extension_names()
        );
        Finding::on(Rule::Extension, &machine_config.name_any(), format!("spec.extensions[{i}]"), message)
    };
    own.map(finding).collect()
}

fn unknown_extensions(machine_config: &MachineConfig) -> Vec<Finding> {
    let extensions = machine_config.spec.extensions.iter().flatten().enumerate();
    let unknown = extensions.filter(|(_, e)| packages::extension(e).is_none());
    let finding = |(i, e): (usize, &String)| {
        let message = format!("{e:?} is not a known extension");
        Finding::on(Rule::Extension, &machine_config.name_any(), format!("spec.extensions[{i}]"), message)
            .with_remedy(format!("use some of {}", packages::extension_names()))
    };
    unknown.map(finding).collect()
}

/// Parses an Ignition config and checks it by the spec's rules and ours: the config, if it can be parsed, what has no effect in it,
/// and the rules that it breaks.
fn ignition_config(name: &str, raw: &Value) -> (Option<Config>, Vec<Finding>, Vec<Finding>) {
    let parsed = match ignition::parse_value(raw) {
        Ok(parsed) => parsed,
        Err(e) => {
            let (place, message) = e.place();
            let path =
                if place.is_empty() { "spec.config".to_owned() } else { format!("spec.config.{place}") };
            return (None, vec![], vec![Finding::on(Rule::at(place), name, path, message)]);
        }
    };
    let warnings = parsed.warnings.into_iter().chain(ignition::lint(&parsed.config));
    let warning = |w: ignition::Warning| {
        let rule = match w.kind {
            WarningKind::UnknownField => Rule::UnknownField,
            WarningKind::Effect => Rule::at(&w.path),
        };
        Finding::on(rule, name, format!("spec.config.{}", w.path), w.message)
    };
    let warnings = warnings.map(warning).collect();
    let mut findings = Vec::new();
    if parsed.version > Version::MODEL {
        let message = format!("hosts read Ignition up to {}", Version::MODEL);
        let finding = Finding::on(Rule::Ignition, name, "spec.config.ignition.version", message);
        findings.push(finding.with_remedy(format!("write {} here (3.6 adds no field)", Version::MODEL)));
    }
    if let Err(errors) = ignition::validate_as(&parsed.config, parsed.version) {
        let errors = errors.0.into_iter();
        findings.extend(
            errors
                .map(|e| Finding::on(Rule::at(&e.path), name, format!("spec.config.{}", e.path), e.message)),
        );
    }
    for (i, f) in parsed.config.storage.files.iter().enumerate() {
        if let Some(b) = special_mode_bits(f) {
            let path = format!("spec.config.storage.files[{i}]{}", b.field);
            findings.push(Finding::on(Rule::FileMode, name, path, &*b.why).with_remedy(b.remedy));
        }
    }
    (Some(parsed.config), warnings, findings)
}

//! Which MachineConfigs ask for something that running machines cannot apply. Pure.
//!
//! What it is not: the rules, which are in `desired::rules`, for rendering, linting and the host alike.

use crate::config::check::Component;
use crate::config::provenance::Provenance;
use crate::error::{Finding, RENDERED, Rule};
use desired::Overrides;
use desired::rules::{BrokenRule, ComparedConfig, ConfigPart, broken};

/// For every broken rule of a merged config, names the MachineConfigs that ask for it: those that break it by
/// themselves, else all that set anything in that part.
pub(crate) fn blamed(
    rules: &[BrokenRule<'_>],
    merged: ComparedConfig<'_>,
    components: &[Component<'_>],
) -> Vec<Finding> {
    let empty = ignition::empty();
    let finding = |b: &BrokenRule<'_>| {
        let mut who: Vec<(&str, String, bool)> = Vec::new();
        for c in components {
            let of = ComparedConfig {
                config: c.config.as_ref().unwrap_or(&empty),
                fips: c.machine_config.spec.fips,
            };
            let Some(place) = b.part.place(of) else { continue };
            let alone = broken(None, of, Overrides::default())
                .iter()
                .any(|own| own.field == b.field && own.why == b.why);
            who.push((c.name(), place + b.field, alone));
        }
        if who.iter().any(|(_, _, alone)| *alone) {
            who.retain(|(_, _, alone)| *alone);
        }
        let (object, path) = match who.as_slice() {
            [] => (RENDERED.to_owned(), b.path(merged)),
            [(one, path, _)] => (format!("MachineConfig {one}"), path.clone()),
            many => {
                let names: Vec<&str> = many.iter().map(|(name, _, _)| *name).collect();
                (format!("MachineConfigs {}", names.join(", ")), b.path(merged))
            }
        };
        Finding::new(rule_of(b), object, path, &*b.why).with_remedy(b.remedy)
    };
    rules.iter().map(finding).collect()
}

fn rule_of(broken: &BrokenRule<'_>) -> Rule {
    match broken.part {
        ConfigPart::Unit(_) => Rule::SystemdUnit,
        ConfigPart::File(_) if broken.is_of_contents() => Rule::FileContents,
        ConfigPart::Fips => Rule::MachineConfig,
        ConfigPart::File(_)
        | ConfigPart::Section(_)
        | ConfigPart::Link(_)
        | ConfigPart::Directory(_)
        | ConfigPart::User(_) => Rule::Ignition,
    }
}

/// Files whose contents, compression and hash come from several MachineConfigs and do not fit together. By Ignition's
/// merge rules a hash survives when another MachineConfig replaces the contents without giving its own hash.
pub(crate) fn mismatched_hashes(config: &ignition::Config, provenance: &Provenance) -> Vec<Finding> {
    let files = config.storage.files.iter().enumerate();
    let bad = files.filter_map(|(i, f)| Some((i, f.contents.check().err()?)));
    let finding = |(i, e): (usize, ignition::ResourceError)| {
        let path = format!("storage.files[{i}].contents");
        blame(config, provenance, &ignition::ValidationError { path, message: e.to_string() }).with_remedy(
            "a MachineConfig that replaces the contents must also set compression and verification.hash",
        )
    };
    bad.map(finding).collect()
}

/// Turns a finding about the merged config into one about the MachineConfigs that set that part of it.
pub(crate) fn blame(
    config: &ignition::Config,
    provenance: &Provenance,
    e: &ignition::ValidationError,
) -> Finding {
    let index = |list: &str| -> Option<usize> { e.path.strip_prefix(list)?.split_once(']')?.0.parse().ok() };
    let name = index("storage.files[")
        .and_then(|i| config.storage.files.get(i).map(|f| f.path.as_str()))
        .or_else(|| config.storage.links.get(index("storage.links[")?).map(|l| l.path.as_str()))
        .or_else(|| config.storage.directories.get(index("storage.directories[")?).map(|d| d.path.as_str()))
        .or_else(|| config.systemd.units.get(index("systemd.units[")?).map(|u| u.name.as_str()))
        .unwrap_or_default();
    let mut who: Vec<&str> = provenance.of(name).map(|o| o.set_by.as_str()).collect();
    who.sort_unstable();
    who.dedup();
    let object = match who.as_slice() {
        [] => RENDERED.to_owned(),
        [one] => format!("MachineConfig {one}"),
        many => format!("MachineConfigs {}", many.join(", ")),
    };
    let about = if name.is_empty() { String::new() } else { format!("{name}: ") };
    Finding::new(
        Rule::at(&e.path),
        object,
        format!("spec.config.{}", e.path),
        format!("{about}{}", e.message),
    )
}

//! Which MachineConfigs ask for what machines that run cannot follow. Pure.
//!
//! What it is not: the rules, which `desired::rules` holds for rendering, linting and the host alike.

use crate::config::check::Component;
use crate::error::Finding;
use desired::Overrides;
use desired::rules::{Broken, Compared, broken};

/// Names, for every broken rule of a merged config, the MachineConfigs that ask for it: those that break it by
/// themselves, else all that say something of that part.
pub(crate) fn blamed(
    rules: &[Broken<'_>],
    merged: Compared<'_>,
    components: &[Component<'_>],
) -> Vec<Finding> {
    let empty = ignition::empty();
    let finding = |b: &Broken<'_>| {
        let mut who: Vec<(&str, String, bool)> = Vec::new();
        for c in components {
            let of =
                Compared { config: c.config.as_ref().unwrap_or(&empty), fips: c.machine_config.spec.fips };
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
            [] => ("the rendered MachineConfig".to_owned(), b.path(merged)),
            [(one, path, _)] => (format!("MachineConfig {one}"), path.clone()),
            many => {
                let names: Vec<&str> = many.iter().map(|(name, _, _)| *name).collect();
                (format!("MachineConfigs {}", names.join(", ")), b.path(merged))
            }
        };
        Finding { object, path, message: format!("{}; {}", b.why, b.remedy) }
    };
    rules.iter().map(finding).collect()
}

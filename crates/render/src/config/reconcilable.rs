//! Whether the machines of a pool can apply its new config. The machines are those in the pool's present config, or any
//! machine if the pool has none. Pure.
//!
//! What it is not: the rules of what running machines can apply, which are in `desired::rules`.

use crate::config::blame::blamed;
use crate::config::check::Component;
use crate::config::inputs::Inputs;
use crate::config::merge::{Merged, sort};
use crate::error::{Finding, Reason, Rule};
use crate::version::Mode;
use api::k8s::ResourceExt as _;
use desired::ignition_config;
use desired::rules::{BrokenRule, ComparedConfig, at_install, broken};

/// Whether the machines in the pool's present config can apply the new one; if the pool has none, whether any machine
/// can. Before there is a cluster, or if only newly installed machines would get all of the config, the result is a
/// warning. `components` are what was merged; they are asked for only if something is refused or warned about.
pub(crate) fn reconcilable<'a>(
    inputs: &Inputs<'_>,
    name: &str,
    merged: &Merged,
    components: &dyn Fn() -> Vec<Component<'a>>,
) -> Result<Vec<Finding>, (Reason, Vec<Finding>)> {
    let new = ComparedConfig { config: &merged.config, fips: merged.spec.fips };
    let other = inputs.current.filter(|c| c.metadata.name.as_deref() != Some(name));
    let present = match other {
        None => None,
        Some(other) => {
            let unreadable = |e| {
                let text = format!("the present config: {e}");
                vec![Finding::on(Rule::Ignition, &other.name_any(), "spec.config", text)]
            };
            let config = ignition_config(&other.spec).map_err(|e| (Reason::Irreconcilable, unreadable(e)))?;
            Some((config, other.spec.fips))
        }
    };
    let old = match (inputs.current, &present) {
        (None, _) => None,
        (Some(_), Some((config, fips))) => Some(ComparedConfig { config, fips: *fips }),
        // The pool is in this very config already.
        (Some(_), None) => Some(new),
    };
    let blamed = |rules: &[BrokenRule<'_>]| {
        let mut components = components();
        sort(&mut components);
        blamed(rules, new, &components)
    };
    let broken = broken(old, new, inputs.overrides);
    match (inputs.current, inputs.mode) {
        _ if broken.is_empty() => {}
        (None, Mode::Cluster) => return Err((Reason::Refused, blamed(&broken))),
        (Some(_), _) if other.is_some() => return Err((Reason::Irreconcilable, blamed(&broken))),
        // Before there is a cluster, or if nothing is asked of the machines that was not asked already.
        _ => return Ok(blamed(&broken)),
    }
    let warned = at_install(new);
    let quiet = old.is_some() || inputs.mode == Mode::Bootstrap || warned.is_empty();
    let mut warnings = if quiet { Vec::new() } else { blamed(&warned) };
    if old.is_some_and(|old| desired::removes_last_login(old.config, new.config)) {
        let finding = Finding::on_pool(
            Rule::LastLogin,
            &inputs.pool.name_any(),
            "spec.config.passwd.users",
            "the user core loses its last SSH key and password: on nodes where no other user has one, nobody can log in",
        );
        warnings.push(finding.with_remedy("keep a key in one of this pool's MachineConfigs"));
    }
    Ok(warnings)
}

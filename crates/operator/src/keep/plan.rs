//! What each step wants, out of what was read. Pure.
//!
//! What it is not: writing it (see `pass`).

use super::objects::{Key, marked};
use super::{STEPS, Work};
use crate::install::settings;
use crate::manifests::pods::{Parts, Scaled};
use crate::manifests::{admission, agents, pods, rights};
use crate::settings_object::Wanted;
use api::conditions::is_true;
use api::names::{CONTROLLER_CONFIG, label, pool_condition};
use api::v1::{ControllerConfig, MachineConfigPool};
use serde_json::Value;

/// What the plans are made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The settings.
    pub(crate) wanted: &'a Wanted,
    /// The ControllerConfig; `None`: there is none yet.
    pub(crate) config: Option<&'a ControllerConfig>,
    /// The number of controllers that somebody has set.
    pub(crate) scaled: Option<&'a Scaled>,
    /// The image that this operator runs in. `None`: it is not a pod.
    pub(crate) own_image: Option<&'a str>,
}

impl Inputs<'_> {
    fn topology(&self) -> &str {
        self.config.map(|c| c.spec.control_plane_topology()).unwrap_or_default()
    }

    fn parts(&self) -> Result<Parts<'_>, String> {
        let url = self.config.and_then(|c| settings::api_server_url(&c.spec)).ok_or_else(|| {
            format!(
                "ControllerConfig {CONTROLLER_CONFIG}: spec.infra.status.apiServerInternalURI does not say how machines reach \
                 the API server; set spec.apiServer.url of {}",
                crate::settings_object::name()
            )
        })?;
        Ok(Parts {
            image: &self.wanted.image,
            api_server_url: url,
            require_token: self.wanted.require_token,
            balancers: &self.wanted.balancers,
            controllers: pods::controllers(self.topology()),
            scaled: self.scaled,
        })
    }
}

/// The operator's own Deployment and what belongs to it. An operator that is no pod leaves them alone.
pub(super) fn own(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    if inputs.own_image.is_none() {
        return Ok(vec![]);
    }
    Ok(pods::operator(&inputs.wanted.image, pods::controllers(inputs.topology())))
}

/// Accounts and rights.
pub(super) fn rights(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    let pull_secret = inputs.config.and_then(|c| {
        let secret = c.spec.pull_secret.as_ref()?;
        Some((
            secret.namespace.clone().unwrap_or_else(|| "openshift-config".to_owned()),
            secret.name.clone()?,
        ))
    });
    Ok([rights::operands(inputs.wanted.require_token, pull_secret.as_ref()), agents::rights()].concat())
}

/// Admission policies.
#[allow(clippy::unnecessary_wraps, reason = "a step of the table")]
pub(super) fn policies(_: &Inputs<'_>) -> Result<Vec<Value>, String> {
    Ok(admission::all())
}

/// The controller.
pub(super) fn controller(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    Ok(pods::controller(&inputs.parts()?))
}

/// The config server.
pub(super) fn server(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    Ok(pods::server(&inputs.parts()?))
}

/// The agents, where they are pods.
#[allow(clippy::unnecessary_wraps, reason = "a step of the table")]
pub(super) fn agents(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    Ok(inputs.wanted.agents.as_deref().map(agents::daemon_set).into_iter().collect())
}

/// The keys of all objects that some step wants.
///
/// # Errors
/// The first step that cannot say what it wants. Nothing is pruned then.
pub(super) fn wanted(inputs: &Inputs<'_>) -> Result<Vec<Key>, String> {
    let mut keys = vec![];
    for descriptor in &STEPS {
        if let Work::Objects(plan) | Work::Own(plan) = descriptor.work {
            keys.extend(plan(inputs)?.into_iter().map(marked).map(|o| Key::of(&o)));
        }
    }
    Ok(keys)
}

/// What the pools that an upgrade waits for have not done yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pools {
    /// All are in their configs.
    Done,
    /// Some are on their way; with the number of their nodes.
    Moving { what: String, nodes: u32 },
    /// One cannot get there by waiting.
    Stuck(String),
}

/// Looks at the required pools.
pub(super) fn required_pools(pools: &[MachineConfigPool]) -> Pools {
    let required = |p: &&MachineConfigPool| {
        p.metadata.labels.as_ref().is_some_and(|l| l.contains_key(label::REQUIRED_FOR_UPGRADE))
    };
    let mut moving = vec![];
    let mut nodes = 0;
    for pool in pools.iter().filter(required) {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let status = pool.status.clone().unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default();
        nodes += u32::try_from(status.machine_count).unwrap_or_default();
        let observed = pool.metadata.generation.unwrap_or_default() <= status.observed_generation;
        let updated = observed && is_true(conditions, pool_condition::UPDATED);
        if is_true(conditions, pool_condition::DEGRADED) {
            let why = conditions.iter().find(|c| {
                c.status == "True"
                    && ![pool_condition::UPDATING, pool_condition::DEGRADED].contains(&c.type_.as_str())
            });
            let why = why.map_or_else(String::new, |c| format!(": {}: {}", c.type_, c.message));
            return Pools::Stuck(format!("MachineConfigPool {name} is degraded{why}"));
        }
        if updated {
            continue;
        }
        if pool.spec.paused {
            return Pools::Stuck(format!(
                "MachineConfigPool {name} is paused and cannot get to its config; mco resume {name}"
            ));
        }
        moving.push(format!(
            "MachineConfigPool {name}: {} of {} nodes are in {}",
            status.updated_machine_count,
            status.machine_count,
            if pool.spec.configuration.name.is_empty() {
                "a config, none is rendered yet"
            } else {
                &pool.spec.configuration.name
            }
        ));
    }
    if moving.is_empty() { Pools::Done } else { Pools::Moving { what: moving.join("; "), nodes } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(url: &str) -> ControllerConfig {
        let mut config = settings::unknown();
        config.spec.infra.as_mut().unwrap()["status"]["apiServerInternalURI"] = json!(url);
        config
    }

    fn wanted_of(agents: Option<&str>, require_token: bool) -> Wanted {
        Wanted {
            image: "mco:1".to_owned(),
            agents: agents.map(str::to_owned),
            require_token,
            pools: vec!["worker".to_owned()],
            ..Wanted::default()
        }
    }

    #[test]
    fn what_is_wanted_follows_the_settings_so_that_the_rest_can_be_pruned() {
        let config = config("https://api:6443");
        let keys = |w: &Wanted| {
            let inputs = Inputs { wanted: w, config: Some(&config), scaled: None, own_image: Some("mco:1") };
            wanted(&inputs).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let full = keys(&wanted_of(Some("mco:1"), true));
        for name in [
            "Deployment machine-config-operator",
            "Deployment machine-config-controller",
            "DaemonSet machine-config-server",
            "DaemonSet machine-config-daemon",
            "ValidatingAdmissionPolicy mcn-guards",
            "Role openshift-machine-config-operator-boot-tokens/machine-config-server",
        ] {
            let name =
                name.replace("openshift-machine-config-operator-boot-tokens", api::boot_token::NAMESPACE);
            assert!(full.contains(&name), "{name}: {full:?}");
        }
        let mut unique = full.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), full.len(), "each object has one step");
        let less = keys(&wanted_of(None, false));
        let gone: Vec<&String> = full.iter().filter(|k| !less.contains(k)).collect();
        assert_eq!(gone.len(), 3, "the agents' DaemonSet, the server's Role and its binding: {gone:?}");
    }

    #[test]
    fn without_an_address_of_the_api_server_nothing_is_pruned_and_the_remedy_is_named() {
        let (none, w) = (config("https://127.0.0.1:6443"), wanted_of(None, true));
        let inputs = Inputs { wanted: &w, config: Some(&none), scaled: None, own_image: None };
        let why = wanted(&inputs).unwrap_err();
        assert!(why.contains("set spec.apiServer.url of MachineConfigOperator cluster"), "{why}");
    }

    #[test]
    fn required_pools_are_waited_for_unless_waiting_cannot_help() {
        let pool = |name: &str, required: bool, paused: bool, conditions: Value| -> MachineConfigPool {
            let labels = if required { json!({label::REQUIRED_FOR_UPGRADE: ""}) } else { json!({}) };
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": labels, "generation": 2},
                "spec": {"paused": paused, "configuration": {"name": "rendered-1"}},
                "status": {"observedGeneration": 2, "machineCount": 3, "updatedMachineCount": 1, "conditions": conditions},
            }))
            .unwrap()
        };
        let yes = |kind: &str| json!([{"type": kind, "status": "True", "message": "m"}]);
        assert_eq!(
            required_pools(&[pool("worker", false, false, json!([]))]),
            Pools::Done,
            "nobody waits for it"
        );
        assert_eq!(required_pools(&[pool("master", true, false, yes("Updated"))]), Pools::Done);
        let moving = required_pools(&[pool("master", true, false, yes("Updating"))]);
        assert_eq!(
            moving,
            Pools::Moving {
                what: "MachineConfigPool master: 1 of 3 nodes are in rendered-1".to_owned(),
                nodes: 3
            }
        );
        let paused = required_pools(&[pool("master", true, true, json!([]))]);
        assert!(matches!(&paused, Pools::Stuck(why) if why.contains("mco resume master")), "{paused:?}");
        let degraded = json!([{"type": "Degraded", "status": "True"}, {"type": "NodeDegraded", "status": "True", "message": "n"}]);
        let degraded = required_pools(&[pool("master", true, false, degraded)]);
        assert_eq!(
            degraded,
            Pools::Stuck("MachineConfigPool master is degraded: NodeDegraded: n".to_owned())
        );
    }
}

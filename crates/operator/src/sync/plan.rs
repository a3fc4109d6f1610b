//! What each step wants, out of what was read. Pure.
//!
//! What it is not: writing it (see `pass`).

use super::objects::{Key, marked};
use super::{STEPS, Work};
use crate::install::settings;
use crate::manifests::pods::{Parts, Scaled};
use crate::manifests::{admission, agents, pods, rights};
use crate::monitoring;
use crate::settings_object::Wanted;
use api::conditions::is_true;
use api::k8s::ObjectMeta;
use api::names::annotation::{GENERATED_BY_CONTROLLER, RELEASE_IMAGE_VERSION};
use api::names::topology::HIGHLY_AVAILABLE_ARBITER;
use api::names::{ARBITER, CONTROLLER_CONFIG, label, pool_condition};
use api::v1::{ControllerConfig, MachineConfigPool};
use rollout::Cluster;
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
    /// How much the parts log, if not as usual.
    pub(crate) log: Option<&'a str>,
    /// Which kinds of the Prometheus operator the cluster has.
    pub(crate) prometheus: Prometheus,
    /// Whether the cluster serves MutatingAdmissionPolicies.
    pub(crate) mutates: bool,
}

/// Which kinds of the Prometheus operator the cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Prometheus {
    /// ServiceMonitors.
    pub(crate) monitors: bool,
    /// PrometheusRules.
    pub(crate) rules: bool,
}

impl Prometheus {
    /// By the definitions that the cluster has.
    pub(crate) fn of(definitions: &[Value]) -> Self {
        let has = |name: &str| definitions.iter().any(|d| d["metadata"]["name"] == name);
        Self {
            monitors: has("servicemonitors.monitoring.coreos.com"),
            rules: has("prometheusrules.monitoring.coreos.com"),
        }
    }
}

impl Inputs<'_> {
    fn topology(&self) -> &str {
        self.config.map(|c| c.spec.control_plane_topology()).unwrap_or_default()
    }

    /// The objects, with the argument that says how much their pods log.
    fn logging(&self, mut objects: Vec<Value>) -> Vec<Value> {
        let Some(log) = self.log else { return objects };
        for object in &mut objects {
            let args = object.pointer_mut("/spec/template/spec/containers/0/args");
            if let Some(args) = args.and_then(Value::as_array_mut) {
                args.push(format!("--log={log}").into());
            }
        }
        objects
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
    Ok(inputs.logging(pods::operator(&inputs.wanted.image, pods::controllers(inputs.topology()))))
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

/// Admission policies. Nodes get a taint when they register only where the agents are pods: where none is installed, no
/// node gets into its pool's config, and so none would lose it for minutes. The controller also removes it from nodes that
/// no pool owns. OpenShift's machines register in their pool's config.
pub(super) fn policies(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    let is_plain = Cluster::of(inputs.config.map(|c| &c.spec)) == Cluster::Plain;
    let mut all = admission::all();
    if inputs.mutates && is_plain && inputs.wanted.agents.is_some() {
        all.extend(admission::joining());
    }
    Ok(all)
}

/// The controller.
pub(super) fn controller(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    Ok(inputs.logging(pods::controller(&inputs.parts()?)))
}

/// The config server.
pub(super) fn server(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    Ok(inputs.logging(pods::server(&inputs.parts()?)))
}

/// The agents, where they are pods.
pub(super) fn agents(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    let cluster = inputs.config.map(|config| &config.spec);
    let agents = inputs.wanted.agents.as_ref().map(|pods| agents::daemon_set(pods, cluster));
    Ok(inputs.logging(agents.into_iter().collect()))
}

/// Who may read metrics, how Prometheus finds them, the alerts, the dashboards.
pub(super) fn monitoring(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    let mut all = vec![];
    let wanted = inputs.wanted;
    if wanted.prometheus && inputs.prometheus.monitors {
        all.extend(monitoring::reader());
        if wanted.agents.is_some() {
            all.push(monitoring::agents());
        }
        all.extend(scraped(wanted).into_iter().map(monitoring::monitor));
    }
    if wanted.prometheus && inputs.prometheus.rules {
        all.push(monitoring::prometheus_rule());
    }
    if wanted.dashboards {
        all.extend(monitoring::config_maps());
    }
    Ok(all)
}

/// The dashboard, where the settings ask for it.
#[allow(clippy::unnecessary_wraps, reason = "a step of the table")]
pub(super) fn dashboard(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    let Some(settings) = &inputs.wanted.dashboard else { return Ok(vec![]) };
    let pods = pods::dashboard(&inputs.wanted.image, settings);
    Ok([rights::dashboard(), inputs.logging(pods)].concat())
}

/// The parts that need a certificate for HTTPS within the cluster.
pub(super) fn certified(wanted: &Wanted) -> Vec<&'static str> {
    let mut parts = scraped(wanted);
    parts.extend(wanted.dashboard.as_ref().map(|_| rights::DASHBOARD));
    parts
}

/// The parts that run as pods and have metrics.
pub(super) fn scraped(wanted: &Wanted) -> Vec<&'static str> {
    let mut parts = vec![rights::CONTROLLER, rights::SERVER, rights::OPERATOR];
    parts.extend(wanted.agents.as_ref().map(|_| rights::AGENT));
    parts
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

/// The pools that there are to be: those of the settings, and the arbiter's where the control plane has one.
pub(super) fn pools(named: &[String], config: Option<&ControllerConfig>) -> Vec<String> {
    let mut pools = named.to_vec();
    let has_arbiter = config.is_some_and(|c| c.spec.control_plane_topology() == HIGHLY_AVAILABLE_ARBITER);
    if has_arbiter && !named.iter().any(|name| name == ARBITER) {
        pools.push(ARBITER.to_owned());
    }
    pools
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

/// What a rendered config must be of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The controller's mark on what it renders.
    pub(super) controller: &'a str,
    /// The release that the ControllerConfig names; empty: none.
    pub(super) release: &'a str,
}

impl Target<'_> {
    /// What a rendered config lacks. `None`: it is of this version and release.
    fn lacks(&self, rendered: &ObjectMeta) -> Option<String> {
        let note = |key: &str| {
            rendered.annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str).unwrap_or_default()
        };
        let (by, release) = (note(GENERATED_BY_CONTROLLER), note(RELEASE_IMAGE_VERSION));
        let words = |version: &str, release: &str| match release {
            "" => version.to_owned(),
            release => format!("{version}, release {release}"),
        };
        (by != self.controller || release != self.release).then(|| {
            format!(
                "was rendered by {}, not yet by {}",
                words(by, release),
                words(self.controller, self.release)
            )
        })
    }
}

/// The pools that an upgrade waits for.
pub(super) fn required(pools: &[MachineConfigPool]) -> Vec<MachineConfigPool> {
    let is = |p: &&MachineConfigPool| {
        p.metadata.labels.as_ref().is_some_and(|l| l.contains_key(label::REQUIRED_FOR_UPGRADE))
    };
    pools.iter().filter(is).cloned().collect()
}

/// Looks at the required pools. `rendered`: the metadata of the configs that they name. A pool that the controller has looked
/// at and that has no nodes has nothing to do: whether it could be rendered is said by its own conditions and by Upgradeable.
pub(super) fn required_pools(
    pools: &[MachineConfigPool],
    rendered: &[ObjectMeta],
    target: Target<'_>,
) -> Pools {
    let mut moving = vec![];
    let mut nodes = 0;
    for pool in required(pools) {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let status = pool.status.clone().unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default();
        nodes += u32::try_from(status.machine_count).unwrap_or_default();
        let observed = pool.metadata.generation.unwrap_or_default() <= status.observed_generation;
        if pool.status.is_some() && observed && status.machine_count == 0 {
            continue;
        }
        let updated = observed && is_true(conditions, pool_condition::UPDATED);
        if is_true(conditions, pool_condition::DEGRADED) {
            let why = conditions.iter().find(|c| {
                c.status == "True"
                    && ![pool_condition::UPDATING, pool_condition::DEGRADED].contains(&c.type_.as_str())
            });
            let why = why.map_or_else(String::new, |c| format!(": {}: {}", c.type_, c.message));
            return Pools::Stuck(format!("MachineConfigPool {name} is degraded{why}"));
        }
        let config = pool.spec.configuration.name.as_str();
        let there = rendered.iter().find(|metadata| metadata.name.as_deref() == Some(config));
        let lacks = there.and_then(|metadata| target.lacks(metadata));
        if updated && lacks.is_none() {
            continue;
        }
        if pool.spec.paused {
            return Pools::Stuck(format!(
                "MachineConfigPool {name} is paused and cannot get to its config; mco resume {name}"
            ));
        }
        if let Some(lacks) = lacks {
            let pinned = match rollout::pinned(&pool) {
                Some(_) => format!("; the pool is pinned to it: mco undo {name} --release"),
                None => String::new(),
            };
            moving.push(format!("MachineConfigPool {name}: {config} {lacks}{pinned}"));
            continue;
        }
        moving.push(format!(
            "MachineConfigPool {name}: {} of {} nodes are in {}",
            status.updated_machine_count,
            status.machine_count,
            if config.is_empty() { "a config, none is rendered yet" } else { config }
        ));
    }
    if moving.is_empty() { Pools::Done } else { Pools::Moving { what: moving.join("; "), nodes } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings_object::AgentPods;
    use serde_json::json;

    fn config(url: &str) -> ControllerConfig {
        let mut config = settings::unknown();
        config.spec.infra.as_mut().unwrap()["status"]["apiServerInternalURI"] = json!(url);
        config
    }

    fn wanted_of(agents: Option<&str>, require_token: bool) -> Wanted {
        Wanted {
            image: "mco:1".to_owned(),
            agents: agents.map(|image| AgentPods { image: image.to_owned(), kubeconfig: None }),
            require_token,
            pools: vec!["worker".to_owned()],
            ..Wanted::default()
        }
    }

    #[test]
    fn what_is_wanted_follows_the_settings_so_that_the_rest_can_be_pruned() {
        let config = config("https://api:6443");
        let keys_of = |w: &Wanted, mutates: bool, config: &ControllerConfig| {
            let inputs = Inputs {
                wanted: w,
                config: Some(config),
                scaled: None,
                own_image: Some("mco:1"),
                log: None,
                prometheus: Prometheus::default(),
                mutates,
            };
            wanted(&inputs).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let keys = |w: &Wanted| keys_of(w, true, &config);
        let full = keys(&wanted_of(Some("mco:1"), true));
        for name in [
            "Deployment machine-config-operator",
            "Deployment machine-config-controller",
            "DaemonSet machine-config-server",
            "DaemonSet machine-config-daemon",
            "ValidatingAdmissionPolicy mcn-guards",
            "MutatingAdmissionPolicy machine-config-joining-nodes",
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
        assert_eq!(
            gone.len(),
            5,
            "the agents' DaemonSet, the policy of joining nodes, the server's Role, and two bindings: {gone:?}"
        );
        // Without the kind, and on OpenShift, nodes get no taint when they register.
        let mut of_openshift = config.clone();
        of_openshift.spec.release_image = "quay.io/release:4".to_owned();
        for (mutates, config) in [(false, &config), (true, &of_openshift)] {
            let without = keys_of(&wanted_of(Some("mco:1"), true), mutates, config);
            let gone: Vec<&String> = full.iter().filter(|k| !without.contains(k)).collect();
            assert_eq!(
                gone,
                [
                    "MutatingAdmissionPolicy machine-config-joining-nodes",
                    "MutatingAdmissionPolicyBinding machine-config-joining-nodes-binding"
                ]
            );
        }
    }

    #[test]
    fn the_dashboard_comes_and_goes_with_its_setting() {
        let config = config("https://api:6443");
        let of = |dashboard: Option<crate::settings_object::DashboardSettings>| {
            let wanted_now = Wanted { dashboard, ..wanted_of(None, true) };
            let inputs = Inputs {
                wanted: &wanted_now,
                config: Some(&config),
                scaled: None,
                own_image: None,
                log: None,
                prometheus: Prometheus::default(),
                mutates: true,
            };
            let keys = wanted(&inputs).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
            (
                keys,
                certified(&wanted_now).contains(&rights::DASHBOARD),
                scraped(&wanted_now).contains(&rights::DASHBOARD),
            )
        };
        let (without, certificate, _) = of(None);
        assert!(!certificate && !without.iter().any(|key| key.contains("dashboard")), "{without:?}");
        let (with, certificate, metrics) = of(Some(Default::default()));
        assert!(certificate && !metrics);
        for key in
            ["Deployment", "Service", "NetworkPolicy", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
        {
            assert!(with.contains(&format!("{key} machine-config-dashboard")), "{key}: {with:?}");
        }
    }

    #[test]
    fn prometheus_and_grafana_get_what_the_settings_and_the_clusters_kinds_say() {
        let config = config("https://api:6443");
        let crd = |name: &str| json!({"metadata": {"name": format!("{name}.monitoring.coreos.com")}});
        let both = Prometheus::of(&[crd("servicemonitors"), crd("prometheusrules"), crd("podmonitors")]);
        assert_eq!(both, Prometheus { monitors: true, rules: true });
        assert_eq!(Prometheus::of(&[crd("probes")]), Prometheus::default());
        let kinds = |on: (bool, bool), agents: Option<&str>, prometheus: Prometheus| {
            let w = Wanted { prometheus: on.0, dashboards: on.1, ..wanted_of(agents, true) };
            let inputs = Inputs {
                wanted: &w,
                config: Some(&config),
                scaled: None,
                own_image: None,
                log: None,
                prometheus,
                mutates: false,
            };
            let made = monitoring(&inputs).unwrap();
            let count = |kind: &str| made.iter().filter(|o| o["kind"] == kind).count();
            [
                count("ServiceMonitor"),
                count("PrometheusRule"),
                count("Service"),
                count("Secret"),
                count("ConfigMap"),
            ]
        };
        assert_eq!(kinds((true, false), Some("mco:1"), both), [4, 1, 1, 1, 0]);
        assert_eq!(kinds((true, false), None, both), [3, 1, 0, 1, 0], "agents of hosts are in no Service");
        assert_eq!(kinds((true, false), None, Prometheus::default()), [0; 5]);
        assert_eq!(
            kinds((true, false), None, Prometheus { rules: true, ..Prometheus::default() }),
            [0, 1, 0, 0, 0]
        );
        assert_eq!(kinds((false, true), Some("mco:1"), both), [0, 0, 0, 0, 4]);
        let names: Vec<String> = monitoring::config_maps().iter().map(|o| Key::of(o).name).collect();
        assert_eq!(names, monitoring::CONFIG_MAPS, "the operator's rights name them");
        for part in monitoring::service_monitors().iter().filter(|o| o["kind"] == "ServiceMonitor") {
            let tls = &part["spec"]["endpoints"][0]["tlsConfig"];
            assert!(
                tls.get("insecureSkipVerify").is_none() && tls["ca"]["configMap"]["name"].is_string(),
                "{tls}"
            );
        }
    }

    #[test]
    fn without_an_address_of_the_api_server_nothing_is_pruned_and_the_remedy_is_named() {
        let (none, w) = (config("https://127.0.0.1:6443"), wanted_of(None, true));
        let inputs = Inputs {
            wanted: &w,
            config: Some(&none),
            scaled: None,
            own_image: None,
            log: None,
            prometheus: Prometheus::default(),
            mutates: true,
        };
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
        let target = Target { controller: "v2", release: "4.22.1" };
        let of = |controller: &str, release: &str| -> ObjectMeta {
            serde_json::from_value(json!({"name": "rendered-1", "annotations": {
                GENERATED_BY_CONTROLLER: controller, RELEASE_IMAGE_VERSION: release}}))
            .unwrap()
        };
        let look = |pool: MachineConfigPool| required_pools(&[pool], &[of("v2", "4.22.1")], target);
        assert_eq!(look(pool("worker", false, false, json!([]))), Pools::Done, "nobody waits for it");
        assert_eq!(look(pool("master", true, false, yes("Updated"))), Pools::Done);
        let moving = look(pool("master", true, false, yes("Updating")));
        assert_eq!(
            moving,
            Pools::Moving {
                what: "MachineConfigPool master: 1 of 3 nodes are in rendered-1".to_owned(),
                nodes: 3
            }
        );
        let paused = look(pool("master", true, true, json!([])));
        assert!(matches!(&paused, Pools::Stuck(why) if why.contains("mco resume master")), "{paused:?}");
        let degraded = json!([{"type": "Degraded", "status": "True"}, {"type": "NodeDegraded", "status": "True", "message": "n"}]);
        let stuck = look(pool("master", true, false, degraded.clone()));
        assert_eq!(stuck, Pools::Stuck("MachineConfigPool master is degraded: NodeDegraded: n".to_owned()));
        // Updated, and not yet rendered by this version, or for this release.
        for (controller, release) in [("v1", "4.22.1"), ("v2", "4.22.0"), ("", "")] {
            let found = required_pools(
                &[pool("master", true, false, yes("Updated"))],
                &[of(controller, release)],
                target,
            );
            assert!(
                matches!(&found, Pools::Moving { what, nodes: 3 } if what.contains("rendered-1 was rendered by")
                    && what.ends_with("not yet by v2, release 4.22.1")),
                "{found:?}"
            );
        }
        // Nobody is in it: there is nothing to wait for, unless nobody has counted yet.
        let mut empty = pool("master", true, false, degraded);
        empty.status.as_mut().unwrap().machine_count = 0;
        assert_eq!(look(empty.clone()), Pools::Done);
        empty.metadata.generation = Some(3);
        assert!(matches!(look(empty.clone()), Pools::Stuck(_)), "its status is of an earlier generation");
        empty.status = None;
        assert!(matches!(look(empty), Pools::Moving { nodes: 0, .. }), "no controller has looked at it");
    }
}

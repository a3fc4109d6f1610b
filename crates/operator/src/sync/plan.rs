//! What each step wants, out of what was read. Pure.
//!
//! What it is not: writing it (see `pass`).

use super::down_nodes::DownNodes;
use super::objects::{Key, marked};
use super::{STEPS, Work};
use crate::controller_config_values;
use crate::manifests::parts::Parts;
use crate::manifests::replicas::{self, ReplicaOverride};
use crate::manifests::{admission, agents, pods, rights};
use crate::monitoring;
use crate::settings::object::CheckedSettings;
use api::names::{ARBITER, CONTROLLER_CONFIG};
use api::topology::ControlPlaneTopology;
use api::v1::ControllerConfig;
use rollout::Cluster;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the plans are made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The settings.
    pub(crate) wanted: &'a CheckedSettings,
    /// The ControllerConfig; `None`: there is none yet.
    pub(crate) config: Option<&'a ControllerConfig>,
    /// The number of controllers that somebody has set.
    pub(crate) scaled: Option<&'a ReplicaOverride>,
    /// The image that this operator runs in. `None`: it is not a pod.
    pub(crate) own_image: Option<&'a str>,
    /// How much the parts log, if not as usual.
    pub(crate) log: Option<&'a str>,
    /// Which kinds of the Prometheus operator the cluster has.
    pub(crate) prometheus: Prometheus,
    /// Whether the cluster serves MutatingAdmissionPolicies.
    pub(crate) mutates: bool,
    /// The Secrets that the controller may read to delete old images.
    pub(crate) push_secrets: &'a BTreeSet<String>,
    /// The nodes that are down, for each of the DaemonSets that are being rolled out.
    pub(crate) down: &'a BTreeMap<Key, DownNodes>,
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
    fn topology(&self) -> Option<ControlPlaneTopology> {
        self.config.and_then(|c| c.spec.topology())
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

    /// The DaemonSets, with more room for pods that are unavailable while nodes are down. Pods are not restarted by that: it is not in
    /// their template.
    fn past_down_nodes(&self, mut objects: Vec<Value>) -> Vec<Value> {
        for object in &mut objects {
            let Some(down) = self.down.get(&Key::of(object)) else { continue };
            if let Some(budget) = object.pointer_mut("/spec/updateStrategy/rollingUpdate/maxUnavailable")
                && let Some(more) = down.max_unavailable(budget)
            {
                *budget = more.into();
            }
        }
        objects
    }

    fn parts(&self) -> Result<Parts<'_>, String> {
        let url = self.config.and_then(|c| controller_config_values::api_server_url(&c.spec)).ok_or_else(|| {
            format!(
                "ControllerConfig {CONTROLLER_CONFIG}: spec.infra.status.apiServerInternalURI does not say how machines reach \
                 the API server; set spec.apiServer.url of {}",
                crate::settings::name()
            )
        })?;
        Ok(Parts {
            image: &self.wanted.image,
            api_server_url: url,
            require_token: self.wanted.require_token,
            balancers: &self.wanted.balancers,
            controllers: replicas::controllers(self.topology()),
            scaled: self.scaled,
        })
    }
}

/// The operator's own Deployment and what belongs to it. An operator that is no pod leaves them alone.
pub(super) fn own(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    if inputs.own_image.is_none() {
        return Ok(vec![]);
    }
    Ok(inputs.logging(pods::operator(&inputs.wanted.image, replicas::controllers(inputs.topology()))))
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
    let operands = rights::operands(inputs.wanted.require_token, pull_secret.as_ref());
    Ok([operands, rights::push_secrets(inputs.push_secrets).to_vec(), agents::rights()].concat())
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
    Ok(inputs.past_down_nodes(inputs.logging(pods::server(&inputs.parts()?))))
}

/// The agents, where they are pods.
pub(super) fn agents(inputs: &Inputs<'_>) -> Result<Vec<Value>, String> {
    let cluster = inputs.config.map(|config| &config.spec);
    let agents = inputs.wanted.agents.as_ref().map(|pods| agents::daemon_set(pods, cluster));
    Ok(inputs.past_down_nodes(inputs.logging(agents.into_iter().collect())))
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
        all.extend(parts_with_metrics(wanted).into_iter().map(monitoring::monitor));
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
pub(super) fn parts_with_certificates(wanted: &CheckedSettings) -> Vec<&'static str> {
    let mut parts = parts_with_metrics(wanted);
    parts.extend(wanted.dashboard.as_ref().map(|_| rights::DASHBOARD));
    parts
}

/// The parts that run as pods and have metrics.
pub(super) fn parts_with_metrics(wanted: &CheckedSettings) -> Vec<&'static str> {
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
    let topology = config.and_then(|c| c.spec.topology());
    let has_arbiter = topology == Some(ControlPlaneTopology::HighlyAvailableArbiter);
    if has_arbiter && !named.iter().any(|name| name == ARBITER) {
        pools.push(ARBITER.to_owned());
    }
    pools
}

#[cfg(test)]
mod tests;

//! What `mco install` decides before it writes: the administrator's arguments, over what the cluster has, become the
//! [`Options`] of a plan; and a cluster on which an installation must not begin is refused.
//!
//! Flow: [`Request`] → another operator? → [`detect`] and [`find_existing`] → [`Options::keep_existing`] (pure) → may it be
//! upgraded? → [`plan()`] → does another program keep these objects?
//!
//! What it is not: arguments and kubeconfigs, which the program reads, or the writing (see `apply`).

use super::controller_config_values::{ControllerConfigValues, DEFAULT_DNS_IP};
use super::foreign::{self, Foreign};
use super::payload::{self, OtherImage};
use super::upgradeable::{self, NotUpgradeable};
use super::{Existing, InstallError, Options, Step, find_existing, managers, plan, read_controller_config};
use crate::facts::{DNS_SERVICES, service_addresses};
use api::k8s::Node;
use api::names::CONTROLLER_CONFIG;
use api::topology::ControlPlaneTopology;
use api::v1::{ControllerConfig, MachineConfigPool};
use client::{CallError, call_optional};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use rollout::topology::{self, Topology};
use rollout::view::NodeView;
use serde_json::json;

/// What the administrator asks for. What is not named stays as it is, or gets its default.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The pools to create; empty: none is named.
    pub pools: Vec<String>,
    /// Settings that are given as arguments.
    pub given: ControllerConfigValues,
    /// The image of the operator. `None`: all parts run elsewhere.
    pub image: Option<String>,
    /// The image of the agents' pods.
    pub daemon_image: Option<String>,
    /// Agents run as services of their hosts.
    pub agents_of_hosts: bool,
    /// Install the CRDs of OpenShift's own kinds, too.
    pub openshift_config_crds: bool,
    /// The config server requires boot tokens.
    pub require_token: bool,
    /// The config server serves everybody.
    pub open: bool,
    /// The load balancers that speak PROXY protocol. `None`: those that the installation has.
    pub balancers: Option<Vec<IpNet>>,
    /// Other programs may keep the same objects: they are taken over.
    pub take_over: bool,
    /// Upgrade an installation that says that it must not be upgraded.
    pub allow_not_upgradeable: bool,
}

/// The cluster of an installation.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Its client.
    pub client: &'a Client,
    /// The API server's URL, as the kubeconfig has it.
    pub url: &'a str,
    /// The CA of the API server in PEM, as the kubeconfig has it.
    pub ca: &'a [u8],
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Why an installation does not begin. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Another operator, another program or a newer version keeps these objects.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// The installation says that it must not be upgraded.
    #[error(transparent)]
    NotUpgradeable(#[from] NotUpgradeable),
    /// The release's payload names another image.
    #[error(transparent)]
    OtherImage(#[from] OtherImage),
    /// A request failed, an argument cannot be used, or the ControllerConfig that is there cannot be read.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Request {
    /// The options, as far as the request alone decides them.
    fn options(&self) -> Options {
        let defaults = Options::default();
        Options {
            pools: match (self.pools.is_empty(), &self.image) {
                (false, _) => Some(self.pools.clone()),
                (true, Some(_)) => None,
                (true, None) => defaults.pools.clone(),
            },
            given: self.given.clone(),
            detected: ControllerConfigValues {
                // With an image the operator detects the right value, and a guess would only be in its way.
                cluster_dns_ip: self.image.is_none().then(|| DEFAULT_DNS_IP.to_owned()),
                ..ControllerConfigValues::default()
            },
            daemon_image: self.daemon_image.clone(),
            agents_of_hosts: self.agents_of_hosts,
            image: self.image.clone(),
            openshift_config_crds: self.openshift_config_crds,
            ..defaults
        }
    }
}

impl Options {
    /// Keeps what the installation has, where the request does not name something else. Whether the config server requires
    /// tokens: yes, unless either says otherwise.
    pub(super) fn keep_existing(&mut self, request: &Request, existing: Existing) {
        self.balancers = request.balancers.clone().unwrap_or(existing.balancers);
        if self.daemon_image.is_none() && !self.agents_of_hosts {
            // What starts the agents stays as it is. In versions before the settings object, the only sign of it is whether
            // there is a DaemonSet.
            let before_settings = existing.settings.is_none() && existing.require_token.is_some();
            self.agents_of_hosts = before_settings && existing.agents.is_none();
            self.daemon_image = existing.agents;
        }
        self.settings = existing.settings;
        self.require_token =
            request.require_token || (!request.open && existing.require_token.unwrap_or(true));
        self.pull_secret = existing.pull_secret;
        self.old_tokens = existing.old_tokens;
        self.openshift_namespaces = existing.openshift_namespaces;
    }
}

/// The plan of an installation, with the options that it follows. `target`: `None` for a cluster that does not exist yet.
///
/// # Errors
/// A cluster on which an installation must not begin, an argument that cannot be used, or a request that failed. Nothing has
/// been written.
pub async fn prepare(
    request: &Request,
    target: Option<Target<'_>>,
) -> Result<(Options, Vec<Step>), PrepareError> {
    let mut options = request.options();
    let Some(Target { client, url, ca }) = target else {
        options.keep_existing(request, Existing::default());
        let steps = plan(&options)?;
        return Ok((options, steps));
    };
    options.detected.api_server_url = Some(url.trim_end_matches('/').to_owned());
    options.detected.api_server_ca = Some(ca.to_vec());
    if let Some(foreign) = foreign::find(client, request.take_over).await? {
        return Err(foreign.into());
    }
    Box::pin(detect(client, &mut options)).await?;
    options.keep_existing(request, find_existing(client).await?);
    if let Some(image) = &options.image {
        let held = upgradeable::why_not_upgradeable(options.settings.as_ref(), image);
        if let Some(held) = held.filter(|_| !request.allow_not_upgradeable) {
            return Err(held.into());
        }
        if let Some(other) = payload::find(client, options.settings.as_ref(), image).await? {
            return Err(other.into());
        }
    }
    let steps = plan(&options)?;
    if !request.take_over
        && options.settings.is_none()
        && let Some(foreign) = managers::find(client, &steps).await?
    {
        return Err(foreign.into());
    }
    Ok((options, steps))
}

/// Reads what the cluster says about itself: its ControllerConfig, pools, topology and DNS service.
async fn detect(client: &Client, options: &mut Options) -> Result<(), PrepareError> {
    let resource = ApiResource::erase::<ControllerConfig>(&());
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    let all = ListParams::default();
    let dns = async {
        for name in DNS_SERVICES {
            let what = || format!("read Service kube-system/{name}");
            if let Some(service) = call_optional(what, services.get(name)).await? {
                return Ok(service_addresses(service));
            }
        }
        Ok::<_, CallError>(vec![])
    };
    let (config, pools, nodes, dns) = tokio::try_join!(
        call_optional(|| "read ControllerConfig".to_owned(), configs.get(CONTROLLER_CONFIG)),
        call_optional(|| "read MachineConfigPools".to_owned(), pools.list(&all)),
        call_optional(|| "read Nodes".to_owned(), nodes.list(&all)),
        dns,
    )?;
    options.controller_config = config.map(|c| json!(c));
    options.existing_pools = pools.iter().flatten().map(|pool| pool.name_any()).collect();
    options.detected.cluster_dns_ip =
        dns.into_iter().next().or_else(|| options.detected.cluster_dns_ip.take());
    let views: Vec<NodeView> = nodes.iter().flatten().map(NodeView::from_node).collect();
    let found = Topology::of(&views);
    options.detected.control_plane_topology = found.control_plane.map(str::to_owned);
    options.detected.infrastructure_topology = found.infrastructure.map(str::to_owned);
    let config = options.controller_config.as_ref().map(read_controller_config).transpose()?;
    options.control_plane_topology =
        ControlPlaneTopology::parse(topology::control_plane(config.as_ref(), found));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options of a request, after what is there was kept.
    fn kept(request: &Request, existing: &Existing) -> Options {
        let mut options = request.options();
        options.keep_existing(request, existing.clone());
        options
    }

    #[test]
    fn tokens_are_required_unless_the_server_is_open_already_or_is_to_be() {
        // Columns: --open, --require-token, what the cluster has, whether tokens are required afterwards.
        let rows = [
            (false, false, None, true),
            (true, false, None, false),
            (false, true, None, true),
            (false, false, Some(false), false),
            (false, false, Some(true), true),
            (false, true, Some(false), true),
            (true, false, Some(true), false),
        ];
        for (open, require_token, there, want) in rows {
            let request = Request { open, require_token, ..Request::default() };
            let existing = Existing { require_token: there, ..Existing::default() };
            let found = kept(&request, &existing).require_token;
            assert_eq!(found, want, "{open} {require_token} {there:?}");
        }
    }

    #[test]
    fn agents_stay_as_they_run_unless_the_request_names_something_else() {
        let image = |name: &str| Some(name.to_owned());
        let settings = Some(api::v1alpha1::MachineConfigOperator::default());
        let an_older_one = Existing { require_token: Some(true), ..Existing::default() };
        let its_pods = Existing { agents: image("old"), ..an_older_one.clone() };
        let with_settings = Existing { settings, ..an_older_one.clone() };
        // Columns: --daemon-image, --agents-of-hosts, what is there, and what the plan gets.
        let rows = [
            (None, false, Existing::default(), (None, false)),
            (None, true, Existing::default(), (None, true)),
            (image("new"), false, Existing::default(), (image("new"), false)),
            (None, false, an_older_one, (None, true)),
            (None, false, its_pods.clone(), (image("old"), false)),
            (None, true, its_pods, (None, true)),
            // The settings say it.
            (None, false, with_settings, (None, false)),
        ];
        for (daemon_image, agents_of_hosts, existing, want) in rows {
            let request = Request { daemon_image, agents_of_hosts, ..Request::default() };
            let options = kept(&request, &existing);
            assert_eq!((options.daemon_image, options.agents_of_hosts), want, "{existing:?}");
        }
    }

    #[test]
    fn load_balancers_stay_until_others_or_none_are_named() {
        let [a, b] = ["10.0.0.4/31", "10.1.0.1/32"].map(|n| n.parse::<IpNet>().unwrap());
        for (named, want) in [(None, vec![a]), (Some(vec![b]), vec![b]), (Some(vec![]), vec![])] {
            let request = Request { balancers: named.clone(), ..Request::default() };
            let existing = Existing { balancers: vec![a], ..Existing::default() };
            assert_eq!(kept(&request, &existing).balancers, want, "{named:?}");
        }
    }

    #[test]
    fn without_an_image_the_default_pools_and_dns_address_are_assumed() {
        let none = Request::default().options();
        assert_eq!(none.pools.as_deref().map(<[String]>::len), Some(2));
        assert_eq!(none.detected.cluster_dns_ip.as_deref(), Some(DEFAULT_DNS_IP));
        let with = Request { image: Some("mco:1".to_owned()), ..Request::default() }.options();
        assert_eq!(
            (with.pools, with.detected.cluster_dns_ip),
            (None, None),
            "the settings and the operator say it"
        );
        let named = Request { pools: vec!["infra".to_owned()], ..Request::default() }.options();
        assert_eq!(named.pools, Some(vec!["infra".to_owned()]));
    }

    /// RKE2 has no Service of the name kube-dns.
    #[tokio::test]
    async fn the_dns_service_is_known_by_each_of_its_names() {
        let rows = [
            ("kube-dns", "10.43.0.10", "10.43.0.10"),
            ("rke2-coredns-rke2-coredns", "10.43.0.10", "10.43.0.10"),
            ("coredns", "10.43.0.10", "10.43.0.10"),
            ("coredns", "None", DEFAULT_DNS_IP),
            ("other", "10.43.0.10", DEFAULT_DNS_IP),
        ];
        for (name, address, want) in rows {
            // Everything else is not there.
            let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
                let (code, answer) = match request
                    .uri()
                    .path()
                    .rsplit_once("/namespaces/kube-system/services/")
                {
                    Some((_, asked)) if asked == name => (
                        200,
                        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": address}}),
                    ),
                    _ => (
                        404,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}),
                    ),
                };
                let body = kube::client::Body::from(answer.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
            });
            let mut options = Request::default().options();
            Box::pin(detect(&Client::new(serve, "default"), &mut options)).await.unwrap();
            assert_eq!(options.detected.cluster_dns_ip.as_deref(), Some(want), "{name} {address}");
        }
    }
}

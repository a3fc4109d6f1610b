//! What a cluster's MachineConfiguration says about changes of hosts: what a change of a path, a unit or a key costs, and
//! which changes are accepted although existing machines cannot follow them. Types, the defaults, and the merge of a user's
//! policies into them. Pure.
//!
//! Not here: the total cost of a change (see `host`).
//!
//! Sources: <https://github.com/openshift/api/blob/HEAD/operator/v1/types_machineconfiguration.go>
//! and <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/NodeDisruptionPolicy.md>.

mod pool;

pub use pool::PoolDisruption;

use crate::rules::Overrides;
use api::v1alpha1::Reboots;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The service of the container runtime that the defaults reload.
const CRIO: &str = "crio.service";
/// The service that adds new certificate authorities to the host's trust store.
pub const UPDATE_CA_TRUST: &str = "coreos-update-ca-trust.service";
const KUBELET: &str = "kubelet.service";
const IRI_REGISTRY: &str = "iri-registry.service";

/// Services that the defaults name. If the host does not have one of these, there is nothing to reload or restart. Any
/// other name comes from a user's policy, and a host without that service is reported as a mistake.
pub const DEFAULT_SERVICES: [&str; 4] = [CRIO, UPDATE_CA_TRUST, KUBELET, IRI_REGISTRY];

/// Policies, in the form of `MachineConfiguration.status.nodeDisruptionPolicyStatus.clusterPolicies`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionPolicy {
    /// Policies for files and folders.
    pub files: Vec<FilePolicy>,
    /// Policies for units.
    pub units: Vec<UnitPolicy>,
    /// The policy for keys and password of the core user.
    pub sshkey: KeyPolicy,
    /// `spec.irreconcilableValidationOverrides`, which is not part of the policies' form.
    #[serde(skip)]
    pub overrides: Overrides,
    /// What a change without a policy costs: the annotation [`api::names::annotation::REBOOTS`], which is not part of the
    /// policies' form either.
    #[serde(skip)]
    pub reboots: Reboots,
    /// Whether hosts without an image may get packages of their distribution: the annotation
    /// [`api::names::annotation::HOST_PACKAGES`], which is not part of the policies' form either.
    #[serde(skip)]
    pub host_packages: bool,
    /// Whether an extension that only adds packages takes effect at once where the host can do that: the annotation
    /// [`api::names::annotation::LIVE_EXTENSIONS`], which is not part of the policies' form either.
    #[serde(skip)]
    pub live_extensions: bool,
    /// Whether the machine reboots where otherwise only userspace would be restarted. Not part of the
    /// policies' form: the agent sets it from the roles of its node.
    #[serde(skip)]
    pub only_whole_reboots: bool,
}

/// What a change at or below a path costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePolicy {
    /// The file or folder.
    pub path: String,
    /// The actions, in order.
    pub actions: Vec<PolicyAction>,
}

/// What a change of a unit costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitPolicy {
    /// The unit.
    pub name: String,
    /// The actions, in order.
    pub actions: Vec<PolicyAction>,
}

/// What a change of the core user costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyPolicy {
    /// The actions, in order.
    pub actions: Vec<PolicyAction>,
}

/// One action after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum PolicyAction {
    /// Drain and reboot.
    Reboot,
    /// Drain.
    Drain,
    /// Reload a service.
    Reload {
        /// The service.
        reload: Service,
    },
    /// Restart a service.
    Restart {
        /// The service.
        restart: Service,
    },
    /// Make systemd reload its units.
    DaemonReload,
    /// Nothing.
    None,
    /// Reload the container runtime, and drain unless the change of `registries.conf` is harmless. Only in the
    /// defaults.
    Special,
}

/// The service of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its name with `.service`.
    pub service_name: String,
}

impl PolicyAction {
    /// Reloads a service.
    #[must_use]
    pub fn reload(name: &str) -> Self {
        Self::Reload { reload: Service { service_name: name.to_owned() } }
    }

    /// Restarts a service.
    #[must_use]
    pub fn restart(name: &str) -> Self {
        Self::Restart { restart: Service { service_name: name.to_owned() } }
    }
}

impl Default for DisruptionPolicy {
    /// The cluster's defaults.
    fn default() -> Self {
        use PolicyAction::{DaemonReload, None, Special};
        let file = |path: &str, actions: Vec<PolicyAction>| FilePolicy { path: path.to_owned(), actions };
        let (reload, restart) = (PolicyAction::reload, PolicyAction::restart);
        Self {
            files: vec![
                file(api::paths::PULL_SECRET, vec![None]),
                file("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", vec![reload(CRIO)]),
                file("/etc/containers/policy.json", vec![reload(CRIO)]),
                file(api::paths::REGISTRIES_CONF, vec![Special]),
                file("/etc/containers/registries.d", vec![reload(CRIO)]),
                file("/etc/crio/policies", vec![reload(CRIO)]),
                file("/etc/nmstate/openshift", vec![None]),
                file(
                    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
                    vec![restart(UPDATE_CA_TRUST), restart(CRIO)],
                ),
                file("/etc/kubernetes/credential-providers", vec![restart(KUBELET)]),
                file(
                    "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
                    vec![DaemonReload, restart(KUBELET)],
                ),
                file("/etc/iri-registry", vec![restart(IRI_REGISTRY)]),
                file("/usr/local/bin/load-registry-image.sh", vec![restart(IRI_REGISTRY)]),
                file("/etc/pki/ca-trust/source/anchors/iri-root-ca.crt", vec![restart(UPDATE_CA_TRUST)]),
            ],
            units: vec![UnitPolicy {
                name: IRI_REGISTRY.to_owned(),
                actions: vec![DaemonReload, restart(IRI_REGISTRY)],
            }],
            sshkey: KeyPolicy { actions: vec![None] },
            overrides: Overrides::default(),
            reboots: Reboots::AsReference,
            host_packages: false,
            live_extensions: false,
            only_whole_reboots: false,
        }
    }
}

/// The value of the annotation [`api::names::annotation::HOST_PACKAGES`] that allows packages. Any other one does not.
pub const HOST_PACKAGES_ALLOWED: &str = "Install";

fn host_packages(object: &Value) -> bool {
    object["metadata"]["annotations"][api::names::annotation::HOST_PACKAGES] == HOST_PACKAGES_ALLOWED
}

/// The value of the annotation [`api::names::annotation::LIVE_EXTENSIONS`] that allows it. Any other one does not.
pub const LIVE_EXTENSIONS_ALLOWED: &str = "Apply";

fn live_extensions(object: &Value) -> bool {
    object["metadata"]["annotations"][api::names::annotation::LIVE_EXTENSIONS] == LIVE_EXTENSIONS_ALLOWED
}

/// The setting of an object's annotation. A value that is not known counts as none: it may be a later version's.
fn reboots(object: &Value) -> Reboots {
    let value = object["metadata"]["annotations"].get(api::names::annotation::REBOOTS);
    value.and_then(|v| Reboots::deserialize(v).ok()).unwrap_or_default()
}

/// The setting in this text. One that is not known costs what the reference costs: it may be a later version's.
fn reboots_of(text: &str) -> Reboots {
    use serde::de::IntoDeserializer;
    let text: serde::de::value::StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    Reboots::deserialize(text).unwrap_or_default()
}

impl DisruptionPolicy {
    /// The policies of MachineConfiguration `cluster`, in the form of JSON; without it the defaults. If an operator has written
    /// the status for the current generation, the status is used. Otherwise it is computed here as the operator would write
    /// it.
    ///
    /// # Errors
    /// A policy that cannot be parsed, with its field path.
    pub fn of_cluster(object: Option<&Value>) -> Result<Self, String> {
        let Some(object) = object else { return Ok(Self::default()) };
        let at = |path: &str| object.pointer(path).filter(|v| !v.is_null());
        let is_current = at("/metadata/generation") == at("/status/observedGeneration");
        if let Some(status) = Self::of_status(object)?.filter(|_| is_current) {
            let overrides = Overrides::of_cluster(Some(object));
            return Ok(Self { overrides, ..status }.with_annotations(object));
        }
        Self::effective(object)
    }

    /// The policies in force by the object's spec: the user's, merged into the defaults. The operator writes them into the
    /// status.
    ///
    /// # Errors
    /// A policy that cannot be parsed, with its field path.
    pub fn effective(object: &Value) -> Result<Self, String> {
        let overrides = Overrides::of_cluster(Some(object));
        let merged = match Self::read_at(object, "/spec/nodeDisruptionPolicy")? {
            Some(user) => Self::default().merge(&user),
            None => Self::default(),
        };
        Ok(Self { overrides, ..merged }.with_annotations(object))
    }

    /// The same policies with what the object's annotations say.
    fn with_annotations(self, object: &Value) -> Self {
        Self {
            reboots: reboots(object),
            host_packages: host_packages(object),
            live_extensions: live_extensions(object),
            ..self
        }
    }

    /// The policies in the object's status. `None`: there are none.
    ///
    /// # Errors
    /// A policy that cannot be parsed, with its field path.
    pub fn of_status(object: &Value) -> Result<Option<Self>, String> {
        Self::read_at(object, "/status/nodeDisruptionPolicyStatus/clusterPolicies")
    }

    fn read_at(object: &Value, path: &str) -> Result<Option<Self>, String> {
        let Some(value) = object.pointer(path).filter(|v| !v.is_null()) else { return Ok(None) };
        api::formats::shape::read::<Self>(value).map(Some).map_err(|e| {
            let part = path.replace('/', ".");
            let dot = if e.path.is_empty() { ": " } else { "." };
            format!("MachineConfiguration cluster, {}{dot}{e}", part.trim_start_matches('.'))
        })
    }

    /// No policies at all.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            files: Vec::new(),
            units: Vec::new(),
            sshkey: KeyPolicy::default(),
            overrides: Overrides::default(),
            reboots: Reboots::AsReference,
            host_packages: false,
            live_extensions: false,
            only_whole_reboots: false,
        }
    }

    /// Merges a user's policies into these. A policy for the same path or unit replaces ours, the others are appended.
    /// The user's actions for keys replace ours unless there are none.
    #[must_use]
    pub fn merge(mut self, user: &Self) -> Self {
        for policy in &user.files {
            match self.files.iter_mut().find(|p| p.path == policy.path) {
                Some(ours) => *ours = policy.clone(),
                None => self.files.push(policy.clone()),
            }
        }
        for policy in &user.units {
            match self.units.iter_mut().find(|p| p.name == policy.name) {
                Some(ours) => *ours = policy.clone(),
                None => self.units.push(policy.clone()),
            }
        }
        if !user.sshkey.actions.is_empty() {
            self.sshkey = user.sshkey.clone();
        }
        self
    }

    /// The most specific policy for a path: one for the path itself, or for the deepest folder above it.
    #[must_use]
    pub fn for_path(&self, path: &str) -> Option<&FilePolicy> {
        let covers = |policy: &str| {
            let policy = policy.trim_end_matches('/');
            path == policy || path.strip_prefix(policy).is_some_and(|rest| rest.starts_with('/'))
        };
        self.files.iter().filter(|p| covers(&p.path)).max_by_key(|p| p.path.trim_end_matches('/').len())
    }

    /// The policy for a unit.
    #[must_use]
    pub fn for_unit(&self, name: &str) -> Option<&UnitPolicy> {
        self.units.iter().find(|p| p.name == name)
    }
}

#[cfg(test)]
mod tests;

//! Node disruption policies: what a change of a path, a unit or a key costs. Types, the cluster's defaults, and the
//! merge of a user's policies into them. Pure.
//!
//! Not here: the total cost of a change (see `disruption`).

use serde::{Deserialize, Serialize};

/// The service of the container runtime that the defaults reload.
const CRIO: &str = "crio.service";
/// The service that adds new certificate authorities to the host's trust store.
pub(crate) const UPDATE_CA_TRUST: &str = "coreos-update-ca-trust.service";
const KUBELET: &str = "kubelet.service";
const IRI_REGISTRY: &str = "iri-registry.service";

/// Services that the defaults name. If the host does not have one of these, there is nothing to reload or restart. Any
/// other name comes from a user's policy, and a host without that service is reported as a mistake.
pub(crate) const DEFAULT_SERVICES: [&str; 4] = [CRIO, UPDATE_CA_TRUST, KUBELET, IRI_REGISTRY];

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
                file("/var/lib/kubelet/config.json", vec![None]),
                file("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", vec![reload(CRIO)]),
                file("/etc/containers/policy.json", vec![reload(CRIO)]),
                file("/etc/containers/registries.conf", vec![Special]),
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
        }
    }
}

impl DisruptionPolicy {
    /// No policies at all.
    #[must_use]
    pub fn empty() -> Self {
        Self { files: Vec::new(), units: Vec::new(), sshkey: KeyPolicy::default() }
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
mod tests {
    use super::*;

    fn mk(paths: &[&str]) -> DisruptionPolicy {
        let file = |p: &&str| FilePolicy { path: (*p).to_owned(), actions: vec![PolicyAction::None] };
        DisruptionPolicy { files: paths.iter().map(file).collect(), ..DisruptionPolicy::empty() }
    }

    #[test]
    fn the_nearest_policy_wins() {
        let cases: &[(&str, &[&str], Option<&str>)] = &[
            ("/etc/mco/test", &["/etc/example"], None),
            ("/etc/mco/f1", &["/etc/mco/f0", "/etc/mco/f1", "/etc/mco/f2"], Some("/etc/mco/f1")),
            (
                "/etc/mco/f1/f2/example",
                &["/etc/mco/f1", "/etc/mco/f1/f2", "/etc/mco/f1/f2/f3"],
                Some("/etc/mco/f1/f2"),
            ),
            (
                "/etc/mco/f1/f2/f3",
                &["/etc/mco/f1", "/etc/mco/f1/f2", "/etc/mco/f1/f2/f3"],
                Some("/etc/mco/f1/f2/f3"),
            ),
            ("/etc/mco/f1/f2/f3", &["/etc/mco/f1/test", "/etc/mco/f1/f2/test", "/etc/mco/f1/f2/f3/f4"], None),
            ("/etc/mcox", &["/etc/mco"], None),
            ("/etc/mco/x", &["/etc/mco/"], Some("/etc/mco/")),
            ("/etc/mco/x", &["/"], Some("/")),
        ];
        for (path, policies, want) in cases {
            assert_eq!(mk(policies).for_path(path).map(|p| p.path.as_str()), *want, "{path} in {policies:?}");
        }
    }

    #[test]
    fn a_users_policy_replaces_the_default_for_the_same_path_and_comes_after_otherwise() {
        let user = DisruptionPolicy {
            files: vec![
                FilePolicy {
                    path: "/etc/containers/policy.json".to_owned(),
                    actions: vec![PolicyAction::Reboot],
                },
                FilePolicy {
                    path: "/etc/chrony.conf".to_owned(),
                    actions: vec![PolicyAction::restart("chronyd.service")],
                },
            ],
            units: Vec::new(),
            sshkey: KeyPolicy { actions: vec![PolicyAction::Drain] },
        };
        let merged = DisruptionPolicy::default().merge(&user);
        assert_eq!(merged.files.len(), DisruptionPolicy::default().files.len() + 1);
        assert_eq!(merged.for_path("/etc/containers/policy.json").unwrap().actions, [PolicyAction::Reboot]);
        assert_eq!(merged.files.last().unwrap().path, "/etc/chrony.conf");
        assert_eq!(merged.sshkey.actions, [PolicyAction::Drain]);
        assert_eq!(
            DisruptionPolicy::default().merge(&DisruptionPolicy::empty()),
            DisruptionPolicy::default()
        );
    }

    #[test]
    fn policies_read_as_the_cluster_writes_them() {
        let json = r#"{"files":[{"path":"/etc/x","actions":[{"type":"Restart","restart":{"serviceName":"a.service"}},
            {"type":"DaemonReload"}]}],"sshkey":{"actions":[{"type":"None"}]}}"#;
        let policy: DisruptionPolicy = serde_json::from_str(json).unwrap();
        assert_eq!(
            policy.for_path("/etc/x").unwrap().actions,
            [PolicyAction::restart("a.service"), PolicyAction::DaemonReload]
        );
    }
}

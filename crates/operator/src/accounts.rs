//! The names of the parts' accounts and objects, and what else they have in common.
//!
//! What it is not: what each may do (see `manifests::rights`).

pub(crate) use api::names::PULL_SECRET;
pub(crate) use api::names::part::{AGENT, CONTROLLER, DASHBOARD, OPERATOR, SERVER};

/// What a person needs for the dashboard. Nobody has it before an administrator binds it.
pub(crate) const VIEWER: &str = "machine-config-dashboard-viewer";
/// The account of the pods that build OS images. It may do nothing in the API; on OpenShift a pod's account decides whether it
/// may run as root.
pub(crate) const BUILDER: &str = api::names::BUILDER_ACCOUNT;
/// The account that booting machines use until they have credentials of their own.
pub(crate) const BOOTSTRAPPER: &str = "node-bootstrapper";
/// The Secret with its token, which the config server hands out.
pub(crate) const BOOTSTRAP_TOKEN: &str = "node-bootstrapper-token";
/// The operator's name among OpenShift's ClusterOperators.
pub(crate) const CLUSTER_OPERATOR: &str = "machine-config";
/// The operator's right to finish the move of boot tokens into their own namespace: a Role in the old namespace that names
/// each token there, and nothing else. `mco install` creates it if there are such tokens; the operator deletes it when they
/// are gone.
pub(crate) const TOKEN_MOVE: &str = "machine-config-operator-token-move";
/// The same for config servers of the previous version, which record uses of such tokens until they are replaced.
pub(crate) const TOKEN_USE: &str = "machine-config-server-token-move";
/// Kubernetes' signer of kubelets' client certificates.
pub(crate) const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The port of the metrics over HTTPS, for those who may read them, and of the probes. The reference uses the same.
pub(crate) const METRICS: u16 = 9001;

//! The policy that adds the joining taint to Nodes when they register. It refuses nothing.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>.

use crate::accounts::CONTROLLER;
use api::names::{JOINING_TAINT, JOINING_TAINT_EFFECT, NAMESPACE, label};
use serde_json::{Value, json};

/// The name of the policy of [`joining`].
pub(crate) const JOINING: &str = "machine-config-joining-nodes";

/// The name of its binding.
pub(crate) fn joining_binding() -> String {
    format!("{JOINING}-binding")
}

/// Adds the joining taint to each Node that its own kubelet registers, so that no workload lands on it before it has its pool's
/// config. The controller adds the same taint, but only after the agent has reported.
///
/// Registration never fails because of it, and no taint is added while no controller is running that would remove it: the
/// PodDisruptionBudget of the controller counts the pods that are ready (one of them may still wait for the lease), and goes
/// with their namespace. Windows nodes get none, and of the control plane those whose kubelet registers with its role or taint;
/// from others, which kubeadm labels later, the controller removes it at once.
/// The kind is stable in Kubernetes 1.36, and not served by default before.
pub(crate) fn joining() -> [Value; 2] {
    let api_version = "admissionregistration.k8s.io/v1";
    let roles = format!("['{}', '{}']", label::CONTROL_PLANE_ROLE, label::MASTER_ROLE);
    let taint = format!("{{'key': '{JOINING_TAINT}', 'effect': '{JOINING_TAINT_EFFECT}'}}");
    let condition = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let conditions = [
        condition(
            "registered-by-its-kubelet",
            "request.userInfo.username == 'system:node:' + object.metadata.name".to_owned(),
        ),
        condition(
            "neither-control-plane-nor-windows",
            format!(
                "!has(object.metadata.labels) || !object.metadata.labels.exists(k, k in {roles} || \
                 (k == '{}' && object.metadata.labels[k] == 'windows'))",
                label::OS
            ),
        ),
        condition(
            "no-such-taint-yet",
            format!(
                "!has(object.spec.taints) || \
                 !object.spec.taints.exists(t, t.key in {roles} || t.key == '{JOINING_TAINT}')"
            ),
        ),
        condition(
            "a-controller-is-running",
            "has(params.status) && has(params.status.currentHealthy) && params.status.currentHealthy > 0"
                .to_owned(),
        ),
    ];
    let policy = json!({
        "apiVersion": api_version,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": JOINING},
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "paramKind": {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"},
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "resourceRules": [{
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["nodes"],
                }],
            },
            "matchConditions": conditions,
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": format!(
                        "has(object.spec.taints) ? \
                         [JSONPatch{{op: 'add', path: '/spec/taints/-', value: {taint}}}] : \
                         [JSONPatch{{op: 'add', path: '/spec/taints', value: [{taint}]}}]"
                    ),
                },
            }],
        },
    });
    let binding = json!({
        "apiVersion": api_version,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": joining_binding()},
        "spec": {
            "policyName": JOINING,
            "paramRef": {"name": CONTROLLER, "namespace": NAMESPACE, "parameterNotFoundAction": "Allow"},
        },
    });
    [policy, binding]
}

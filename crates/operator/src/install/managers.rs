//! Whether another program keeps objects that an installation would write: the API server records who wrote which field
//! (`metadata.managedFields`), also where nothing else tells that program from us. [`kept_by`] is pure.
//!
//! What it is not: the signs of another Machine Config Operator that runs as we do (see `foreign`), or the ControllerConfig and
//! the pools, which belong to people and are never written over.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>.

use super::foreign::Foreign;
use super::{Step, WriteMode};
use crate::accounts::{AGENT, CONTROLLER, OPERATOR, SERVER};
use crate::definitions::VERSION;
use crate::objects::{KEPT_BY, Key, api_of};
use crate::ownership::{is_applied_by_us, writers};
use api::names::NAMESPACE;
use client::{CallError, call_optional};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How many objects are read at the same time.
const AT_ONCE: usize = 8;
/// Parts of the cluster itself, which write into objects of anybody.
const CLUSTER: [&str; 5] = [
    "kube-apiserver",
    "kube-controller-manager",
    "clusterrole-aggregation-controller",
    "kubeadm",
    // What the API server calls all that was there before the first apply.
    "before-first-apply",
];
/// Programs by which people write, by how their names begin: what they wrote is what somebody wanted here, perhaps from our own
/// chart. `unknown` is a client that says no name, as ours did once.
const TOOLS: [&str; 18] = [
    "kubectl",
    "oc",
    "helm",
    "argocd",
    "argo-cd",
    "kustomize",
    "flux",
    "terraform",
    "hashicorp",
    "pulumi",
    "ansible",
    "openapi-generator",
    "crossplane",
    "rancher",
    "k9s",
    "node-fetch",
    "mco",
    "unknown",
];

/// Looks at the objects that this plan, and later the operator, would write over, before a first installation. Nothing is written.
/// Where the settings are there, somebody has decided already that these objects are ours, whoever carries them.
///
/// # Errors
/// The API server's answer; `Ok(Some(..))` says why not to begin.
pub(super) async fn find(client: &Client, steps: &[Step]) -> Result<Option<Foreign>, CallError> {
    let found: Vec<Option<Value>> = futures::stream::iter(written(steps).into_values())
        .map(async |object| {
            let Some(api) = api_of(client, &object) else { return Ok(None) };
            let key = Key::of(&object);
            let there = call_optional(|| format!("get {key}"), api.get_metadata(&key.name)).await?;
            Ok::<_, CallError>(there.map(|there| {
                let mut there = json!(there);
                there["kind"] = object["kind"].clone();
                there
            }))
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(found.iter().flatten().find_map(|object| {
        let manager = kept_by(object)?.to_owned();
        Some(Foreign::Kept { object: Key::of(object).to_string(), manager })
    }))
}

/// The objects that are written over. A namespace is the administrator's, whoever made it.
fn written(steps: &[Step]) -> BTreeMap<Key, Value> {
    let planned = steps.iter().filter(|s| s.how == WriteMode::Apply).map(|s| s.object.clone());
    let rbac = "rbac.authorization.k8s.io/v1";
    let later = [OPERATOR, CONTROLLER, SERVER, AGENT].into_iter().flat_map(|name| {
        [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}),
            json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}}),
            json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name}}),
        ]
    });
    let all = planned.chain(later).filter(|o| o["kind"] != "Namespace");
    all.map(|object| (Key::of(&object), object)).collect()
}

/// The other program that keeps this object; `None`: it is ours, or a person's.
fn kept_by(object: &Value) -> Option<&str> {
    let metadata = &object["metadata"];
    let ours = metadata["labels"][KEPT_BY.0] == KEPT_BY.1 || metadata["annotations"][VERSION].is_string();
    if ours || is_applied_by_us(object) {
        return None;
    }
    writers(object).map(|writer| writer.name).find(|name| is_foreign(name))
}

fn is_foreign(manager: &str) -> bool {
    let name = manager.to_ascii_lowercase();
    // `oc` is short: only the whole word counts, or what follows a mark.
    let is_tool = |tool: &str| {
        let rest = name.strip_prefix(tool);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    !CLUSTER.contains(&name.as_str()) && !TOOLS.iter().any(|tool| is_tool(tool))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::FIELD_MANAGER;

    fn object(managers: &[(&str, &str, &str)]) -> Value {
        let managers: Vec<Value> = managers
            .iter()
            .map(|(name, operation, subresource)| {
                json!({"manager": name, "operation": operation, "subresource": subresource})
            })
            .collect();
        json!({"kind": "ClusterRole", "metadata": {"name": CONTROLLER, "managedFields": managers}})
    }

    #[test]
    fn a_foreign_manager_is_told_from_ours_from_people_and_from_the_cluster() {
        for (managers, want) in [
            (&[("acme-operator", "Apply", "")][..], Some("acme-operator")),
            (&[("acme-operator", "Update", ""), ("kubectl-edit", "Update", "")], Some("acme-operator")),
            (&[("kubectl", "Update", ""), ("acme-operator", "Update", "")], Some("acme-operator")),
            // The reference's operator, on a cluster without a ClusterVersion.
            (&[(FIELD_MANAGER, "Update", "")], Some(FIELD_MANAGER)),
            (&[("octavia", "Update", "")], Some("octavia")),
            (&[(FIELD_MANAGER, "Apply", "")], None),
            (&[("acme-operator", "Apply", ""), (FIELD_MANAGER, "Apply", "")], None),
            (&[("acme-operator", "Update", "status"), ("kubectl", "Apply", "")], None),
            (&[("kubectl-client-side-apply", "Update", ""), ("kube-apiserver", "Update", "status")], None),
            (&[("helm", "Update", ""), ("Helm/3.16", "Update", ""), ("oc", "Update", "")], None),
            (&[("kustomize-controller", "Apply", ""), ("argocd-controller", "Apply", "")], None),
            (&[("unknown", "Update", ""), ("before-first-apply", "Update", "")], None),
            (&[("Terraform", "Apply", ""), ("HashiCorp", "Update", "")], None),
            (&[], None),
        ] {
            assert_eq!(kept_by(&object(managers)), want, "{managers:?}");
        }
        let mut marked = object(&[("some-gitops", "Apply", "")]);
        marked["metadata"]["labels"] = json!({KEPT_BY.0: KEPT_BY.1});
        assert_eq!(kept_by(&marked), None, "our own object, by another's hand");
        let mut written = object(&[("some-gitops", "Apply", "")]);
        written["metadata"]["annotations"] = json!({VERSION: "v0.0.1"});
        assert_eq!(kept_by(&written), None);
    }

    #[test]
    fn everything_that_is_applied_is_looked_at_and_what_people_own_is_not() {
        let step = |how, kind: &str| Step {
            how,
            object: json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}}),
        };
        let steps = [
            step(WriteMode::Apply, "ConfigMap"),
            step(WriteMode::Apply, "Namespace"),
            step(WriteMode::CreateIfMissing, "MachineConfigPool"),
            step(WriteMode::Update(json!({})), "ControllerConfig"),
        ];
        let kinds: Vec<String> = written(&steps).into_keys().map(|k| format!("{k}")).collect();
        assert!(kinds.contains(&"ConfigMap x".to_owned()), "{kinds:?}");
        assert!(kinds.contains(&format!("ClusterRole {CONTROLLER}")), "{kinds:?}");
        assert_eq!(kinds.len(), 13, "{kinds:?}");
    }
}

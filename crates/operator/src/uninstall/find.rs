//! Finds what was installed. What it is not: what is done about it (see `plan`).

use super::{Facts, UninstallError, others};
use crate::definitions;
use crate::facts::openshift;
use crate::install::foreign::{self, Foreign};
use crate::install::{PullSecret, pull_secret_in, pull_secret_of};
use crate::manifests::{admission, agents, rights};
use crate::objects::Key;
use crate::sync::cluster::{api_of, config, kept_objects};
use api::first_boot::boot_token;
use api::names::{GROUP, NAMESPACE, label};
use client::{CallError, call, call_optional};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

/// `None`: the object, or its kind, does not exist.
async fn get(client: &Client, like: &Value) -> Result<Option<Value>, CallError> {
    let Some(api) = api_of(client, like) else { return Ok(None) };
    let key = Key::of(like);
    let found = call_optional(|| format!("get {key}"), api.get_metadata(&key.name)).await?;
    Ok(found.map(|found| {
        let mut found = json!(found);
        for field in ["apiVersion", "kind"] {
            found[field] = like[field].clone();
        }
        // By its selector its pods are found.
        found["spec"]["selector"] = like["spec"]["selector"].clone();
        found
    }))
}

async fn list(client: &Client, like: &Value, params: &ListParams) -> Result<Vec<Value>, CallError> {
    let Some(api) = api_of(client, like) else { return Ok(vec![]) };
    let kind = like["kind"].as_str().unwrap_or_default();
    match call(|| format!("list {kind} objects"), api.list_metadata(params)).await {
        Ok(found) => Ok(found
            .items
            .iter()
            .map(|o| {
                let mut object = json!(o);
                for field in ["apiVersion", "kind"] {
                    object[field] = like[field].clone();
                }
                object
            })
            .collect()),
        Err(error) if error.is_not_found() => Ok(vec![]),
        Err(error) => Err(error),
    }
}

fn backwards(
    objects: impl IntoIterator<Item = Value, IntoIter: DoubleEndedIterator>,
) -> impl Iterator<Item = Value> {
    objects.into_iter().rev()
}

/// Everything that an installation may have made besides definitions, namespaces and what stands in our own namespace, in the
/// order in which it goes. `pull_secrets`: those that the controller may have got the right to read.
fn candidates(pull_secrets: &[PullSecret]) -> Vec<Value> {
    let workload = |kind: &str, name: &str| {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": {label::PART: name}}}})
    };
    let mut all = vec![workload("Deployment", rights::OPERATOR)];
    // Nodes that register from now on get no taint any more, which nobody would remove. A policy goes after its binding: a
    // policy without a binding does nothing.
    all.extend(backwards(admission::joining()));
    all.extend([
        workload("Deployment", rights::DASHBOARD),
        // Agents end what they have begun; the controller gives their nodes back meanwhile.
        workload("DaemonSet", rights::AGENT),
        workload("Deployment", rights::CONTROLLER),
        workload("DaemonSet", rights::SERVER),
    ]);
    all.extend(backwards(admission::all()));
    let cluster = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": rights::CLUSTER_OPERATOR}});
    all.push(cluster);
    let openshift = openshift::NAMESPACES;
    let mut given =
        [rights::operands(true, None), agents::rights(), rights::installer(None, &[], &openshift)].concat();
    for secret in pull_secrets {
        let known = |o: &Value| given.iter().any(|g| Key::of(g) == Key::of(o));
        let more: Vec<Value> =
            rights::installer(Some(secret), &[], &[]).into_iter().filter(|o| !known(o)).collect();
        given.extend(more);
    }
    let outside = |o: &Value| {
        let namespace = o["metadata"]["namespace"].as_str();
        let own = [Some(NAMESPACE), Some(boot_token::NAMESPACE)];
        o["kind"] != "Namespace" && !own.contains(&namespace)
    };
    let mut outside: Vec<Value> = given.into_iter().filter(outside).collect();
    // Bindings before what they bind.
    outside.reverse();
    all.extend(outside);
    all
}

/// All Nodes.
pub(super) async fn nodes(client: &Client) -> Result<Vec<Value>, CallError> {
    let nodes: Api<api::k8s::Node> = Api::all(client.clone());
    let found = call(|| "list Nodes".to_owned(), nodes.list(&ListParams::default())).await?;
    Ok(found.items.iter().map(|n| json!(n)).collect())
}

/// The objects of our kinds that have finalizers: their metadata and kind.
pub(super) async fn held(client: &Client) -> Result<Vec<Value>, CallError> {
    let mut all = vec![];
    for (plural, kind) in [
        ("kubeletconfigs", "KubeletConfig"),
        ("containerruntimeconfigs", "ContainerRuntimeConfig"),
        ("machineconfigs", "MachineConfig"),
        ("machineconfigpools", "MachineConfigPool"),
        ("controllerconfigs", "ControllerConfig"),
        ("machineconfignodes", "MachineConfigNode"),
    ] {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match call(|| format!("list {kind} objects"), api.list_metadata(&ListParams::default())).await {
            Ok(found) => {
                let held = found
                    .items
                    .iter()
                    .map(|o| json!(o))
                    .filter(|o| o["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()));
                all.extend(held.map(|mut o| {
                    o["apiVersion"] = json!(format!("{GROUP}/v1"));
                    o["kind"] = json!(kind);
                    o
                }));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Reads what is there of an installation.
///
/// # Errors
/// The API server's answer; another Machine Config Operator where nothing of this one is left.
pub async fn find(client: &Client) -> Result<Facts, UninstallError> {
    let mut facts = Facts::default();
    // The one that the ControllerConfig names, and OpenShift's own, which an installation may have been given before.
    let named = config(client).await?.as_ref().and_then(pull_secret_of);
    let pull_secrets: Vec<PullSecret> =
        named.into_iter().chain(pull_secret_in(&openshift::NAMESPACES)).collect();
    for candidate in candidates(&pull_secrets) {
        facts.objects.extend(get(client, &candidate).await?);
    }
    // What the operator keeps outside of its namespace, of whatever version it is.
    for object in kept_objects(client).await? {
        let key = Key::of(&object);
        let known = facts.objects.iter().any(|o| Key::of(o) == key);
        if !known && ![NAMESPACE, boot_token::NAMESPACE].contains(&key.namespace.as_str()) {
            facts.objects.push(object);
        }
    }
    let definition = |name: &str| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}});
    for name in definitions::names() {
        facts.definitions.extend(get(client, &definition(&name)).await?);
    }
    facts.held = held(client).await?;
    facts.nodes = nodes(client).await?;
    let provider = api::first_boot::user_data::NAMESPACE;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": provider}});
    facts.provider_secrets = list(client, &secret, &ListParams::default()).await?;
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for name in [boot_token::NAMESPACE, NAMESPACE] {
        facts.namespaces.extend(get(client, &namespace(name)).await?);
    }
    for namespace in &facts.namespaces {
        for kind in others::KINDS {
            let like = json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace["metadata"]["name"]}});
            facts.inside.extend(list(client, &like, &ListParams::default()).await?);
        }
    }
    facts.provider = get(client, &namespace(provider)).await?;
    // An installation that took over finds the signs of the other one, too.
    if !facts.is_installed()
        && let Some(Foreign::Other { why }) = foreign::find(client, false).await?
    {
        return Err(UninstallError::Foreign { why });
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_of_nodes_that_register_ends_before_the_controller_that_would_remove_it() {
        let pull_secrets = [("registry", "p"), ("openshift-config", "p"), (NAMESPACE, "p")]
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        let objects = candidates(&pull_secrets);
        let of_controller: Vec<&Value> = objects
            .iter()
            .filter(|o| o["metadata"]["namespace"].is_string() && o["kind"] != "Deployment")
            .filter(|o| o["metadata"]["name"] == rights::CONTROLLER)
            .collect();
        let places: Vec<&str> =
            of_controller.iter().filter_map(|o| o["metadata"]["namespace"].as_str()).collect();
        assert_eq!(
            places,
            ["openshift-config", "openshift-config", "registry", "registry"],
            "its right to read pull secrets goes, too"
        );
        let names: Vec<String> = objects.iter().map(|o| Key::of(o).to_string()).collect();
        let first = |part: &str| names.iter().position(|n| n.contains(part)).unwrap();
        let order = [
            "Deployment machine-config-operator",
            "MutatingAdmissionPolicyBinding machine-config-joining-nodes-binding",
            "MutatingAdmissionPolicy machine-config-joining-nodes",
            "DaemonSet machine-config-daemon",
            "Deployment machine-config-controller",
            "ValidatingAdmissionPolicyBinding mcn-guards-binding",
            "ValidatingAdmissionPolicy mcn-guards",
        ];
        assert!(order.map(first).is_sorted(), "{names:?}");
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "each goes once: {names:?}");
    }
}

//! Whether another Machine Config Operator runs this cluster, or a newer version of this one has installed it: then an
//! installation writes nothing. [`foreign_installation`] is pure.
//!
//! What it is not: another program, such as Helm, that keeps the objects of this installation (see `managers`).

use crate::accounts::{AGENT, CONTROLLER, OPERATOR, SERVER};
use crate::definitions;
use crate::objects::{Key, api_of};
use crate::ownership::writers;
use api::names::{NAMESPACE, VERSION_RAW};
use client::{CallError, call, if_found};
use kube::Client;
use serde_json::{Value, json};

/// Who installs what belongs to OpenShift.
const CVO: &str = "cluster-version-operator";
/// The program of our pods.
const PROGRAM: &str = "/usr/bin/mco";

/// Why an installation must not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// Another one keeps the same objects.
    #[error(
        "another Machine Config Operator runs this cluster: {why}. Nothing was written. Two of them would undo each other's \
        work; stop that one, then run this again with --take-over"
    )]
    Other {
        /// How it is known.
        why: String,
    },
    /// Another program keeps objects that would be written.
    #[error(
        "{object} is managed by {manager}, as its managedFields say. Nothing was written: the two would undo each other's \
         work. If that is another Machine Config Operator, stop it first. Then, or if it only deploys these objects, run \
         this again with --take-over"
    )]
    Kept {
        /// The object.
        object: String,
        /// The program, as the API server knows it.
        manager: String,
    },
    /// A newer version of this one.
    #[error(
        "{object} was written by {version}, and this is {VERSION_RAW}. Nothing was written: the older definitions would drop \
        fields; use `mco` of {version} or newer"
    )]
    Newer {
        /// The object.
        object: String,
        /// Its version.
        version: String,
    },
}

/// Finds another Machine Config Operator in the cluster. `take_over`: another one does not matter.
///
/// # Errors
/// The API server's answer; `Ok(Some(..))` says why not to begin.
pub(crate) async fn find(client: &Client, take_over: bool) -> Result<Option<Foreign>, CallError> {
    let mut found = vec![];
    let workload = |kind: &str, name: &str| json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}});
    let mut wanted = vec![
        json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"}}),
        workload("Deployment", OPERATOR),
        workload("Deployment", CONTROLLER),
        workload("DaemonSet", SERVER),
        workload("DaemonSet", AGENT),
    ];
    wanted.extend(definitions::names().into_iter().map(|name| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}})
    }));
    for object in wanted {
        let Some(api) = api_of(client, &object) else { continue };
        let key = Key::of(&object);
        let is_definition = object["kind"] == "CustomResourceDefinition";
        let there = if is_definition {
            call(|| format!("get {key}"), api.get_metadata(&key.name)).await.map(|o| json!(o))
        } else {
            call(|| format!("get {key}"), api.get(&key.name)).await.map(|o| json!(o))
        };
        if let Some(mut there) = if_found(there)? {
            there["kind"] = object["kind"].clone();
            found.push(there);
        }
    }
    Ok(foreign_installation(&found, take_over))
}

/// Judges what is there.
pub(crate) fn foreign_installation(found: &[Value], take_over: bool) -> Option<Foreign> {
    let definitions = found.iter().filter(|o| o["kind"] == "CustomResourceDefinition");
    if let Some((object, version)) = definitions::newer(definitions) {
        return Some(Foreign::Newer { object: format!("CustomResourceDefinition {object}"), version });
    }
    let why = found.iter().find_map(other).filter(|_| !take_over)?;
    Some(Foreign::Other { why })
}

/// How another one is known by this object.
fn other(object: &Value) -> Option<String> {
    let key = Key::of(object);
    if key.kind == "ClusterVersion" {
        return Some(format!("{key} exists, so this is OpenShift, which installs its own"));
    }
    if writers(object).any(|writer| writer.name == CVO) {
        return Some(format!("{key} is managed by {CVO}"));
    }
    let container = object.pointer("/spec/template/spec/containers/0")?;
    match container.pointer("/command/0") {
        Some(command) => (command != PROGRAM).then(|| format!("{key} runs {command}")),
        // Ours always name their program.
        None => Some(format!("{key} runs the program of image {}", container["image"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_operator_is_known_by_its_objects_and_a_newer_version_by_its_definitions() {
        let deployment = |command: &str, manager: &str| {
            json!({"kind": "Deployment", "metadata": {"name": OPERATOR, "namespace": NAMESPACE, "managedFields": [{"manager": manager}]},
                "spec": {"template": {"spec": {"containers": [{"command": [command]}]}}}})
        };
        let crd = |version: &str, manager: &str| {
            json!({"kind": "CustomResourceDefinition", "metadata": {"name": "x", "annotations": {"machineconfig.dev/version": version},
                "managedFields": [{"manager": manager}]}})
        };
        let version = json!({"kind": "ClusterVersion", "metadata": {"name": "version"}});
        for (object, word) in [
            (deployment(PROGRAM, "kubectl-client-side-apply"), ""),
            (deployment(PROGRAM, "helm"), ""),
            (crd(VERSION_RAW, "kubectl"), ""),
            (
                deployment("/usr/bin/machine-config-operator", "x"),
                "runs \"/usr/bin/machine-config-operator\"",
            ),
            (
                json!({"kind": "Deployment", "metadata": {"name": OPERATOR}, "spec": {"template": {"spec": {"containers": [{"image": "acme/mco"}]}}}}),
                "runs the program of image \"acme/mco\"",
            ),
            (deployment(PROGRAM, CVO), "managed by cluster-version-operator"),
            (crd("", CVO), "managed by cluster-version-operator"),
            (version, "OpenShift"),
        ] {
            let found = foreign_installation(std::slice::from_ref(&object), false)
                .map(|f| f.to_string())
                .unwrap_or_default();
            assert_eq!(found.is_empty(), word.is_empty(), "{object}: {found}");
            assert!(found.contains(word) && (word.is_empty() || found.contains("--take-over")), "{found}");
            assert_eq!(foreign_installation(&[object], true), None, "it was told to");
        }
        let newer = foreign_installation(&[crd("v99.0.0", "x")], true).unwrap().to_string();
        assert!(newer.contains("use `mco` of v99.0.0 or newer"), "{newer}");
    }
}

//! The admission policies: what the API server refuses at once, with the object, the path and the remedy in its answer, so
//! that `kubectl apply` and GitOps see it where the change is made. No webhook is needed. Pure.
//!
//! | policy | refuses |
//! | --- | --- |
//! | `mcn-guards` | a node's write to another node's MachineConfigNode |
//! | `machine-configuration-guards` | a MachineConfiguration that is not named `cluster` |
//! | `custom-machine-config-pool-selector` | a custom pool that does not inherit from `worker` |
//! | `machineconfigpool-osimagestream-reference-validation` | a pool that names a stream that there is not |
//! | `osimagestream-prevent-deletion` | the deletion of the OSImageStream |
//! | `machine-config-pool-selectors` | selectors of pools that no part can read |
//! | `machine-config-contents` | Ignition versions, paths, modes and unit names that can never work |
//! | `generated-machine-config-guards` | writes to generated and rendered MachineConfigs by anyone but the controller |
//! | `image-build-job-guards` | Jobs of the controller in our namespace that could do more than build an image |
//! | `rollout-approval-guards` | approvals of a wave in another person's name |
//! | `machine-os-config-secrets` | a MachineOSConfig that names a Secret of the installation itself, and a spec that the controller writes |
//!
//! The first five have the reference's names, the other ones are ours. [`joining`] refuses nothing: it adds the joining taint to
//! Nodes when they register.
//!
//! Guarantees: one object is refused by one policy, because of several refusals the API server reports any one. An update that
//! changes nothing is never refused (see [`changes_something`]).
//!
//! What it is not: the full check of a config, which is too much for CEL. `mco lint` and rendering do that; what is refused
//! here is refused there too.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>.

mod agent_guard;
mod build_jobs;
mod configs;
mod joining;
mod objects;
mod os_configs;

pub(crate) use agent_guard::agent_guard;
pub(crate) use joining::{JOINING, joining, joining_binding};

use crate::accounts::CONTROLLER;
use api::names::{CLUSTER, NAMESPACE};
use serde_json::{Value, json};

/// The policies' names. The name of a policy's binding is `NAME-binding`.
const NAMES: [&str; 11] = [
    "mcn-guards",
    "machine-configuration-guards",
    "custom-machine-config-pool-selector",
    "machineconfigpool-osimagestream-reference-validation",
    "osimagestream-prevent-deletion",
    "machine-config-pool-selectors",
    "machine-config-contents",
    "generated-machine-config-guards",
    "image-build-job-guards",
    "rollout-approval-guards",
    "machine-os-config-secrets",
];

/// The names of all policies.
pub(crate) fn names() -> &'static [&'static str] {
    &NAMES
}

/// One rule of a policy.
struct Rule {
    /// True: the object is fine.
    expression: String,
    /// What is said when nothing better can be worked out.
    message: &'static str,
    /// Better words, in CEL.
    words: Option<String>,
}

/// What a policy looks at.
struct On<'a> {
    group: &'a str,
    resources: &'a [&'a str],
    operations: &'a [&'a str],
}

fn policy(name: &str, on: &On<'_>, variables: &[(&str, &str)], rules: Vec<Rule>) -> Value {
    let rules: Vec<Value> = rules
        .into_iter()
        .map(|rule| {
            let mut one = json!({"expression": rule.expression, "message": rule.message});
            if let Some(words) = rule.words {
                one["messageExpression"] = json!(words);
            }
            one
        })
        .collect();
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "resourceRules": [{
                "apiGroups": [on.group],
                "apiVersions": ["v1"],
                "operations": on.operations,
                "resources": on.resources,
            }],
        },
        "validations": rules,
    });
    if on.operations.contains(&"UPDATE") {
        spec["matchConditions"] = json!([changes_something()]);
    }
    if !variables.is_empty() {
        let all = variables.iter().map(|(name, expression)| json!({"name": name, "expression": expression}));
        spec["variables"] = all.collect();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Skips an update that leaves the object as it is. Whoever migrates a kind to another stored version (the operator, or
/// Kubernetes' or OpenShift's migrator) sends one for each object, also for those that are older than a policy and would be
/// refused today. One refusal would keep the kind in its old version for ever.
fn changes_something() -> Value {
    let fields = [
        "?spec",
        "metadata.?labels",
        "metadata.?annotations",
        "metadata.?ownerReferences",
        "metadata.?finalizers",
    ];
    let same = fields.map(|field| format!("object.{field} == oldObject.{field}"));
    json!({
        "name": "changes-something",
        "expression": format!("!(request.operation == 'UPDATE' && {})", same.join(" && ")),
    })
}

fn binding(policy: &Value) -> Value {
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    let mut spec = json!({"policyName": name, "validationActions": ["Deny"]});
    if policy["spec"].get("paramKind").is_some() {
        // Without the object there is nothing to compare with: rendering says that the stream is missing.
        spec["paramRef"] = json!({"name": CLUSTER, "parameterNotFoundAction": "Allow"});
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{name}-binding")},
        "spec": spec,
    })
}

/// Each policy with its binding, for a controller that runs as a pod.
pub(crate) fn all() -> Vec<Value> {
    let policies = [
        agent_guard::node_guard(),
        objects::only_cluster(),
        objects::pools_inherit(),
        objects::streams_exist(),
        objects::streams_stay(),
        objects::selectors(),
        configs::contents(),
        configs::generated(),
        build_jobs::build_jobs(),
        objects::approvals(),
        os_configs::secrets(),
    ];
    policies.into_iter().flat_map(|policy| [policy.clone(), binding(&policy)]).collect()
}

/// Adds a condition without which the policy says nothing.
fn also(policy: &mut Value, name: &str, expression: &str) {
    if let Some(all) = policy["spec"]["matchConditions"].as_array_mut() {
        all.push(json!({"name": name, "expression": expression}));
    }
}

fn not_by_the_controller() -> String {
    format!("request.userInfo.username != 'system:serviceaccount:{NAMESPACE}:{CONTROLLER}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_binding_and_every_rule_says_what_to_do() {
        let all = all();
        assert_eq!(all.len(), 2 * NAMES.len());
        for (pair, name) in all.chunks(2).zip(NAMES) {
            assert_eq!(
                (&pair[0]["metadata"]["name"], &pair[1]["spec"]["policyName"]),
                (&json!(name), &json!(name))
            );
            assert_eq!(pair[0]["spec"]["failurePolicy"], "Fail");
            for rule in pair[0]["spec"]["validations"].as_array().unwrap() {
                assert!(
                    rule["message"].as_str().is_some_and(|m| m.len() > 20 && !m.contains('\n')),
                    "{rule}"
                );
            }
        }
    }

    #[test]
    fn an_update_that_changes_nothing_is_skipped_and_two_policies_never_refuse_the_same_object() {
        let conditions = |policy: &Value| -> Vec<(String, String)> {
            let all = policy["spec"]["matchConditions"].as_array().cloned().unwrap_or_default();
            all.iter()
                .map(|c| {
                    (c["name"].as_str().unwrap().to_owned(), c["expression"].as_str().unwrap().to_owned())
                })
                .collect()
        };
        for policy in all().iter().filter(|o| o["kind"] == "ValidatingAdmissionPolicy") {
            let rules = &policy["spec"]["matchConstraints"]["resourceRules"][0];
            let updates = rules["operations"].as_array().unwrap().contains(&json!("UPDATE"));
            let skips = conditions(policy).iter().any(|(name, _)| name == "changes-something");
            // A node's write to the status of another node's object changes something that is not compared.
            let of_nodes = policy["metadata"]["name"] == NAMES[0];
            assert_eq!(skips, updates && !of_nodes, "{}", policy["metadata"]["name"]);
        }
        let (_, refused) = conditions(&configs::generated()).pop().unwrap();
        let left = conditions(&configs::contents());
        let (_, left) = left.iter().find(|(name, _)| name == "not-refused-as-generated").unwrap();
        assert_eq!(
            *left,
            format!("!(({}) && {refused})", configs::is_generated()),
            "what the one refuses, the other leaves"
        );
    }
}

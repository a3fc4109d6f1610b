//! Chooses the node disruption policies that apply in this cluster: the newest part of the MachineConfiguration object
//! that has them. Pure.
//!
//! Not here: what the policies mean, their defaults, and how a user's policies are merged into them (`host`).

use host::DisruptionPolicy;
use serde_json::Value;

/// The policies from the object. If an operator has written the status for the current generation, the status is used.
/// Otherwise the user's policies are merged into the defaults here, which is what the operator would write.
///
/// # Errors
/// A policy that cannot be parsed, with its field path.
pub fn policy(object: Option<&Value>) -> Result<DisruptionPolicy, String> {
    let Some(object) = object else { return Ok(DisruptionPolicy::default()) };
    let at = |path: &str| object.pointer(path).filter(|v| !v.is_null());
    let read = |path: &str, value: &Value| {
        api::shape::read::<DisruptionPolicy>(value).map_err(|e| {
            let part = path.replace('/', ".");
            let dot = if e.path.is_empty() { ": " } else { "." };
            format!("MachineConfiguration cluster, {}{dot}{e}", part.trim_start_matches('.'))
        })
    };
    const STATUS: &str = "/status/nodeDisruptionPolicyStatus/clusterPolicies";
    const SPEC: &str = "/spec/nodeDisruptionPolicy";
    let current = at("/metadata/generation") == at("/status/observedGeneration");
    if let Some(status) = at(STATUS).filter(|_| current) {
        return read(STATUS, status);
    }
    match at(SPEC) {
        Some(user) => Ok(DisruptionPolicy::default().merge(&read(SPEC, user)?)),
        None => Ok(DisruptionPolicy::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::PolicyAction;
    use serde_json::json;

    fn file(path: &str, action: &str) -> Value {
        json!({ "files": [{ "path": path, "actions": [{ "type": action }] }] })
    }

    #[test]
    fn a_status_of_this_generation_counts_and_an_old_one_does_not() {
        let object = |generation, observed| {
            json!({
                "metadata": { "generation": generation },
                "spec": { "nodeDisruptionPolicy": file("/etc/a", "None") },
                "status": {
                    "observedGeneration": observed,
                    "nodeDisruptionPolicyStatus": { "clusterPolicies": file("/etc/a", "Drain") },
                },
            })
        };
        let action = |o: &Value| policy(Some(o)).unwrap().for_path("/etc/a/b").unwrap().actions.clone();
        assert_eq!(action(&object(2, 2)), [PolicyAction::Drain]);
        assert_eq!(action(&object(2, 1)), [PolicyAction::None]);
        // The user's policies are merged into the defaults.
        let merged = policy(Some(&object(2, 1))).unwrap();
        assert!(merged.for_path("/etc/containers/policy.json").is_some());
        assert_eq!(policy(None).unwrap(), DisruptionPolicy::default());
    }

    #[test]
    fn a_policy_that_cannot_be_read_says_where() {
        let object = json!({ "spec": { "nodeDisruptionPolicy": file("/etc/a", "Explode") } });
        let error = policy(Some(&object)).unwrap_err();
        assert_eq!(
            error,
            "MachineConfiguration cluster, spec.nodeDisruptionPolicy.files[0].actions[0].type: expected one of Reboot, Drain, Reload, Restart, DaemonReload, None, Special"
        );
    }
}

//! What the API server refuses from agents: a write to the object of another node.

use super::{NAMES, On, Rule, binding, policy};
use crate::accounts::AGENT;
use api::names::{GROUP, NAMESPACE};
use serde_json::{Value, json};

/// The policy without which agents could write each other's objects, for clusters whose controller runs elsewhere.
pub(crate) fn agent_guard() -> [Value; 2] {
    let policy = node_guard();
    let binding = binding(&policy);
    [policy, binding]
}

/// Each node may only write its own MachineConfigNode.
pub(super) fn node_guard() -> Value {
    let account = format!("system:serviceaccount:{NAMESPACE}:{AGENT}");
    let from_pod = "(has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra && \
                    request.userInfo.extra['authentication.kubernetes.io/node-name'][0] == object.metadata.name)";
    let on = On {
        group: GROUP,
        resources: &["machineconfignodes", "machineconfignodes/status"],
        operations: &["CREATE", "UPDATE"],
    };
    let rule = Rule {
        expression: format!(
            "request.userInfo.username.startsWith('system:node:') ? request.userInfo.username == 'system:node:' + object.metadata.name : {from_pod}"
        ),
        message: "a node may write its own MachineConfigNode only; start the agent with the credentials of its own node",
        words: Some(
            "'MachineConfigNode ' + object.metadata.name + ': metadata.name is not the name of the node that ' + \
             request.userInfo.username + ' speaks for; an agent writes the object of its own node only: start it with that node\\'s credentials'"
                .to_owned(),
        ),
    };
    let mut policy = policy(NAMES[0], &on, &[], vec![rule]);
    // Nothing else: a write of the status leaves everything as it is that `changes_something` compares.
    policy["spec"]["matchConditions"] = json!([{
        "name": "by-a-node",
        "expression": format!(
            "request.userInfo.username.startsWith('system:node:') || request.userInfo.username == '{account}'"
        ),
    }]);
    policy
}

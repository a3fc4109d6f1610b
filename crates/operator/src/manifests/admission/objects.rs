//! What the API server refuses of pools, OS image streams and the MachineConfiguration.

use super::{NAMES, On, Rule, also, policy};
use api::names::{ARBITER, CLUSTER, GROUP, MASTER, WORKER, label, own};
use serde_json::{Value, json};

pub(super) fn only_cluster() -> Value {
    let on = On {
        group: "operator.openshift.io",
        resources: &["machineconfigurations"],
        operations: &["CREATE", "UPDATE"],
    };
    let rule = Rule {
        expression: format!("object.metadata.name == '{CLUSTER}'"),
        message: "the only MachineConfiguration that counts is named cluster; write these settings there",
        words: Some(format!(
            "'MachineConfiguration ' + object.metadata.name + ': nothing reads this object; the only one that counts is \
             named {CLUSTER}: write these settings there'"
        )),
    };
    policy(NAMES[1], &on, &[], vec![rule])
}

const POOLS: On<'_> =
    On { group: GROUP, resources: &["machineconfigpools"], operations: &["CREATE", "UPDATE"] };

/// A custom pool inherits from `worker`, or its nodes would have no base config. A built-in pool selects its own role.
pub(super) fn pools_inherit() -> Value {
    let role = label::ROLE;
    let built_in = label::BUILT_IN;
    let labels = format!(
        "(has(object.spec.machineConfigSelector.matchLabels) && '{role}' in object.spec.machineConfigSelector.matchLabels && \
         (object.spec.machineConfigSelector.matchLabels['{role}'] in ['{MASTER}', '{WORKER}', '{ARBITER}'] || \
         (has(object.metadata.labels) && '{built_in}' in object.metadata.labels && \
         object.spec.machineConfigSelector.matchLabels['{role}'] == object.metadata.name)))"
    );
    let expressions = format!(
        "(has(object.spec.machineConfigSelector.matchExpressions) && \
         object.spec.machineConfigSelector.matchExpressions.exists(e, e.key == '{role}' && \
         ((e.operator == 'In' && has(e.values) && '{WORKER}' in e.values) || \
         (e.operator == 'NotIn' && !(has(e.values) && '{WORKER}' in e.values)))))"
    );
    // An operator that nobody knows is refused by the policy for selectors. A second refusal here would compete with that
    // message: the API server reports only one of them.
    let unknown = "(has(object.spec.machineConfigSelector.matchExpressions) && \
                   object.spec.machineConfigSelector.matchExpressions.exists(e, \
                   !(e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])))";
    let rule = Rule {
        expression: format!(
            "has(object.spec.machineConfigSelector) && ({labels} || {expressions} || {unknown})"
        ),
        message: "a custom pool must inherit from worker: let spec.machineConfigSelector select the role worker, too",
        words: Some(format!(
            "'MachineConfigPool ' + object.metadata.name + ': spec.machineConfigSelector does not select the MachineConfigs of worker, so its nodes would have no base config; select {role} in (worker, ' + object.metadata.name + ')'"
        )),
    };
    policy(NAMES[2], &POOLS, &[], vec![rule])
}

/// A pool's stream is one that the OSImageStream offers.
pub(super) fn streams_exist() -> Value {
    let rule = Rule {
        expression: "!has(object.spec.osImageStream) || (has(params.status) && has(params.status.availableStreams) && \
                     params.status.availableStreams.exists(s, s.name == object.spec.osImageStream.name))"
            .to_owned(),
        message: "spec.osImageStream.name is not a stream of OSImageStream cluster; kubectl get osimagestream cluster -o \
            yaml lists them",
        words: Some(
            "'MachineConfigPool ' + object.metadata.name + ': spec.osImageStream.name ' + object.spec.osImageStream.name \
             + ' is not a stream of OSImageStream cluster; status.availableStreams there lists them'"
                .to_owned(),
        ),
    };
    let mut policy = policy(NAMES[3], &POOLS, &[], vec![rule]);
    policy["spec"]["paramKind"] = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "OSImageStream"});
    policy
}

/// Who approves a wave says so in the own name, or names nobody. A pool that is created is not looked at: a backup brings back
/// what others approved.
pub(super) fn approvals() -> Value {
    let (by, what) = (own::APPROVED_BY, own::APPROVED);
    let at = |object: &str, key: &str| format!("{object}.metadata.?annotations[?'{key}'].orValue('')");
    let by_now = at("object", by);
    let rule = Rule {
        expression: format!("{} == '' || {by_now} in ['', request.userInfo.username]", at("object", what)),
        message: "the annotation machineconfig.dev/approved-by names somebody other than the sender; approve with mco \
            approve",
        words: Some(format!(
            "'MachineConfigPool ' + object.metadata.name + ': the annotation {by} says ' + {by_now} + ', and this is sent by ' + \
             request.userInfo.username + '; approve with `mco approve ' + object.metadata.name + '`, or write your own name'"
        )),
    };
    let on = On { operations: &["UPDATE"], ..POOLS };
    let mut policy = policy(NAMES[9], &on, &[], vec![rule]);
    let changed = [what, by].map(|key| format!("{} != {}", at("object", key), at("oldObject", key)));
    also(&mut policy, "approves", &changed.join(" || "));
    policy
}

pub(super) fn streams_stay() -> Value {
    let on = On { group: GROUP, resources: &["osimagestreams"], operations: &["DELETE"] };
    let rule = Rule {
        expression: "false".to_owned(),
        message: "OSImageStream cluster names the OS images of all pools and cannot be deleted; change its spec instead",
        words: None,
    };
    policy(NAMES[4], &on, &[], vec![rule])
}

/// A selector that no part can read would leave a pool without members and without configs.
pub(super) fn selectors() -> Value {
    let mut rules = vec![];
    for field in ["machineConfigSelector", "nodeSelector"] {
        let readable = format!(
            "!has(object.spec.{field}) || !has(object.spec.{field}.matchExpressions) || \
             object.spec.{field}.matchExpressions.all(e, \
             e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : \
             e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))"
        );
        rules.push(Rule {
            expression: readable,
            message: "a selector's operator is In or NotIn with values, or Exists or DoesNotExist without",
            words: Some(format!(
                "'MachineConfigPool ' + object.metadata.name + ': spec.{field}.matchExpressions cannot be read; an operator is In or NotIn with values, or Exists or DoesNotExist without'"
            )),
        });
        let key = "matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')";
        let keys = format!(
            "!has(object.spec.{field}) || ((!has(object.spec.{field}.matchExpressions) || \
             object.spec.{field}.matchExpressions.all(e, e.key.{key})) && \
             (!has(object.spec.{field}.matchLabels) || object.spec.{field}.matchLabels.all(k, k.{key})))"
        );
        rules.push(Rule {
            expression: keys,
            message: "a selector's key is a label's name",
            words: Some(format!(
                "'MachineConfigPool ' + object.metadata.name + ': a key of spec.{field} is not a valid label name; write \
                 it like node-role.kubernetes.io/worker'"
            )),
        });
    }
    policy(NAMES[5], &POOLS, &[], rules)
}

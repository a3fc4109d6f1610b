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
//!
//! The first five have the reference's names, the last four are ours. [`joining`] refuses nothing: it gives Nodes that
//! register the taint of nodes that join.
//!
//! Guarantees: one object is refused by one policy, because of several refusals the API server reports any one. An update that
//! changes nothing is never refused (see [`changes_something`]).
//!
//! What it is not: the full check of a config, which is too much for CEL. `mco lint` and rendering do that; what is refused
//! here is refused there too.

use super::rights::{AGENT, BOOTSTRAP_TOKEN, CONTROLLER};
use crate::monitoring;
use api::names::annotation::GENERATED_BY_CONTROLLER;
use api::names::{
    ARBITER, CLUSTER, GROUP, JOINING_TAINT, JOINING_TAINT_EFFECT, MASTER, NAMESPACE, WORKER, label,
};
use serde_json::{Value, json};

/// The policies' names. The name of a policy's binding is `NAME-binding`.
const NAMES: [&str; 9] = [
    "mcn-guards",
    "machine-configuration-guards",
    "custom-machine-config-pool-selector",
    "machineconfigpool-osimagestream-reference-validation",
    "osimagestream-prevent-deletion",
    "machine-config-pool-selectors",
    "machine-config-contents",
    "generated-machine-config-guards",
    "image-build-job-guards",
];

/// The names of all policies.
pub(crate) fn names() -> &'static [&'static str] {
    &NAMES
}

/// The name of the policy of [`joining`].
pub(crate) const JOINING: &str = "machine-config-joining-nodes";

/// The name of its binding.
pub(crate) fn joining_binding() -> String {
    format!("{JOINING}-binding")
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
        node_guard(),
        only_cluster(),
        pools_inherit(),
        streams_exist(),
        streams_stay(),
        selectors(),
        contents(),
        generated(),
        build_jobs(),
    ];
    policies.into_iter().flat_map(|policy| [policy.clone(), binding(&policy)]).collect()
}

/// Adds the taint of nodes that join to each Node that its own kubelet registers, so that no workload lands on it before it
/// has its pool's config. The controller adds the same taint, but only after the agent has reported.
///
/// Registration never fails because of it, and no taint is added while no controller is running that would remove it: the
/// PodDisruptionBudget of the controller counts the pods that are ready (one of them may still wait for the lease), and goes
/// with their namespace. Windows nodes get none, and of the control plane those whose kubelet registers with its role or taint; from others, which kubeadm
/// labels later, the controller removes it at once.
///
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

/// The policy without which agents could write each other's objects, for clusters whose controller runs elsewhere.
pub(crate) fn of_agents() -> [Value; 2] {
    let policy = node_guard();
    let binding = binding(&policy);
    [policy, binding]
}

/// Each node may only write its own MachineConfigNode.
fn node_guard() -> Value {
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

fn only_cluster() -> Value {
    let on = On {
        group: "operator.openshift.io",
        resources: &["machineconfigurations"],
        operations: &["CREATE", "UPDATE"],
    };
    let rule = Rule {
        expression: format!("object.metadata.name == '{CLUSTER}'"),
        message: "there is one MachineConfiguration, named cluster; write these settings into it",
        words: Some(format!(
            "'MachineConfiguration ' + object.metadata.name + ': nobody reads it; there is one, named {CLUSTER}: write these settings into that'"
        )),
    };
    policy(NAMES[1], &on, &[], vec![rule])
}

const POOLS: On<'_> =
    On { group: GROUP, resources: &["machineconfigpools"], operations: &["CREATE", "UPDATE"] };

/// A custom pool inherits from `worker`, or its nodes would have no base config. A built-in pool selects its own role.
fn pools_inherit() -> Value {
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
fn streams_exist() -> Value {
    let rule = Rule {
        expression: "!has(object.spec.osImageStream) || (has(params.status) && has(params.status.availableStreams) && \
                     params.status.availableStreams.exists(s, s.name == object.spec.osImageStream.name))"
            .to_owned(),
        message: "spec.osImageStream.name is no stream of OSImageStream cluster; kubectl get osimagestream cluster -o yaml lists them",
        words: Some(
            "'MachineConfigPool ' + object.metadata.name + ': spec.osImageStream.name ' + object.spec.osImageStream.name + \
             ' is no stream of OSImageStream cluster; status.availableStreams there lists them'"
                .to_owned(),
        ),
    };
    let mut policy = policy(NAMES[3], &POOLS, &[], vec![rule]);
    policy["spec"]["paramKind"] = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "OSImageStream"});
    policy
}

fn streams_stay() -> Value {
    let on = On { group: GROUP, resources: &["osimagestreams"], operations: &["DELETE"] };
    let rule = Rule {
        expression: "false".to_owned(),
        message: "OSImageStream cluster names the OS images of all pools and cannot be deleted; change its spec instead",
        words: None,
    };
    policy(NAMES[4], &on, &[], vec![rule])
}

/// A selector that no part can read would leave a pool without members and without configs.
fn selectors() -> Value {
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
                "'MachineConfigPool ' + object.metadata.name + ': a key of spec.{field} is no name of a label; write it like node-role.kubernetes.io/worker'"
            )),
        });
    }
    policy(NAMES[5], &POOLS, &[], rules)
}

/// What can never work on a host, in MachineConfigs that people write. Lists are looked at once each, by tests that cost
/// little for each entry: the API server gives up on a policy that costs too much, and would refuse a large config.
fn contents() -> Value {
    let on = On { group: GROUP, resources: &["machineconfigs"], operations: &["CREATE", "UPDATE"] };
    let variables = [
        ("config", "has(object.spec) && has(object.spec.config) ? object.spec.config : {}"),
        (
            "version",
            "has(variables.config.ignition) && has(variables.config.ignition.version) ? string(variables.config.ignition.version) : ''",
        ),
        (
            "files",
            "has(variables.config.storage) && has(variables.config.storage.files) && type(variables.config.storage.files) == list ? variables.config.storage.files : []",
        ),
        (
            "units",
            "has(variables.config.systemd) && has(variables.config.systemd.units) && type(variables.config.systemd.units) == list ? variables.config.systemd.units : []",
        ),
        ("badPaths", &format!("variables.files.filter(f, !({PATH}))")),
        (
            "badModes",
            "variables.files.filter(f, has(f.mode) && type(f.mode) == int && !(f.mode >= 0 && f.mode <= 4095))",
        ),
        ("badUnits", &format!("variables.units.filter(u, !({UNIT}))")),
    ];
    let at = "'MachineConfig ' + object.metadata.name + ': spec.config.";
    let rules = vec![
        Rule {
            expression: format!("variables.config == {{}} || variables.version.matches('{VERSION}')"),
            message: "spec.config.ignition.version is not one that agents read; write 3.5.0, or another of 2.2 and 3.0 to 3.6",
            words: Some(format!(
                "{at}ignition.version \"' + variables.version + '\" is not one that agents read; write 3.5.0, or another of 2.2 and 3.0 to 3.6'"
            )),
        },
        Rule {
            expression: "size(variables.badPaths) == 0".to_owned(),
            message: "a file's path is absolute and in its simplest form: no //, /./, /../ and no / at the end",
            words: Some(format!(
                "{at}storage.files has the path \"' + (has(variables.badPaths[0].path) ? string(variables.badPaths[0].path) : '') + '\", which no host can have; a path is absolute and in its simplest form: no //, /./, /../ and no / at the end'"
            )),
        },
        Rule {
            expression: "size(variables.badModes) == 0".to_owned(),
            message: "a file's mode is between 0 and 07777 (decimal 4095); JSON has no octal numbers",
            words: Some(format!(
                "{at}storage.files ' + string(variables.badModes[0].path) + ' has the mode ' + string(variables.badModes[0].mode) + '; it must be between 0 and 07777 (decimal 4095), and JSON has no octal numbers: write 420 for 0644'"
            )),
        },
        Rule {
            expression: "size(variables.badUnits) == 0".to_owned(),
            message: "a unit's name is one that systemd loads, such as foo.service",
            words: Some(format!(
                "{at}systemd.units has the name \"' + (has(variables.badUnits[0].name) ? string(variables.badUnits[0].name) : '') + '\", which systemd does not load; a name is made of letters, digits and :-_.\\\\@, and ends in its type, such as .service'"
            )),
        },
    ];
    let mut policy = policy(NAMES[6], &on, &variables, rules);
    // The controller's own are checked when they are rendered, and what it writes must never be held up here.
    also(&mut policy, "not-by-the-controller", &not_by_the_controller());
    also(
        &mut policy,
        "not-refused-as-generated",
        &format!("!(({}) && {})", is_generated(), bound_by_generated()),
    );
    policy
}

/// As `ignition::check_path`: at most one of each test for each path.
const PATH: &str = "has(f.path) && type(f.path) == string && f.path.startsWith('/') && !f.path.contains('//') && \
                    !(f.path + '/').contains('/./') && !(f.path + '/').contains('/../') && (f.path == '/' || !f.path.endsWith('/'))";
/// As `ignition::unit::check_name`.
const UNIT: &str = "has(u.name) && type(u.name) == string && size(u.name) <= 255 && \
    u.name.matches('^[A-Za-z0-9:_\\\\\\\\-][A-Za-z0-9:_.\\\\\\\\@-]*[.](service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$')";
/// As `ignition::Version::parse` reads them.
const VERSION: &str = "^(2[.][0-2]|3[.][0-6])[.]0$";

/// Adds a condition without which the policy says nothing.
fn also(policy: &mut Value, name: &str, expression: &str) {
    if let Some(all) = policy["spec"]["matchConditions"].as_array_mut() {
        all.push(json!({"name": name, "expression": expression}));
    }
}

fn not_by_the_controller() -> String {
    format!("request.userInfo.username != 'system:serviceaccount:{NAMESPACE}:{CONTROLLER}'")
}

/// A MachineConfig that the controller makes, or that it made before this change.
fn is_generated() -> String {
    let made = |object: &str| {
        format!(
            "({object}.metadata.name.startsWith('rendered-') || (has({object}.metadata.annotations) && \
             '{GENERATED_BY_CONTROLLER}' in {object}.metadata.annotations))"
        )
    };
    format!("{} || (request.operation == 'UPDATE' && {})", made("object"), made("oldObject"))
}

/// Who may not write those. Kubernetes' own controllers take owners and finalizers away when owners go. Members of
/// system:masters are bound by no permission either: they break the glass.
fn bound_by_generated() -> String {
    format!(
        "{} && !request.userInfo.username.startsWith('system:serviceaccount:kube-system:') && \
         request.userInfo.username != 'system:kube-controller-manager' && \
         !(has(request.userInfo.groups) && 'system:masters' in request.userInfo.groups)",
        not_by_the_controller()
    )
}

/// Nobody else writes what the controller makes: the next pass would undo it, and a node that was faster would have it.
/// Deletion is allowed: the controller makes what is still needed again.
fn generated() -> Value {
    let on = On { group: GROUP, resources: &["machineconfigs"], operations: &["CREATE", "UPDATE"] };
    let rule = Rule {
        expression: format!("!({})", is_generated()),
        message: "the controller makes this MachineConfig; change what it is made from",
        words: Some(
            "'MachineConfig ' + object.metadata.name + ': the controller makes it and would undo this; write a MachineConfig of your own, or change the KubeletConfig, ContainerRuntimeConfig or template that it is made from (mco explain says which)'"
                .to_owned(),
        ),
    };
    let mut policy = policy(NAMES[7], &on, &[], vec![rule]);
    also(&mut policy, "not-by-the-controller", &bound_by_generated());
    policy
}

/// The controller may create Jobs in our namespace, for builds of images; a right to create them cannot be limited by name. A pod
/// may mount any Secret of its namespace, act as any of its accounts and see its host, so the controller could do all of that.
/// Here it cannot: a build has no account with rights, nothing of its host, and none of the Secrets that the installation itself keeps. Those
/// that the administrator names for pulls and pushes it must have.
fn build_jobs() -> Value {
    let on = On { group: "batch", resources: &["jobs"], operations: &["CREATE"] };
    let ours =
        [api::server_tls::CA, api::server_tls::SERVING, monitoring::CA, monitoring::READER, BOOTSTRAP_TOKEN]
            .map(|name| format!("'{name}'"))
            .join(", ");
    // `PART-metrics-tls`.
    let of_metrics = monitoring::certificate("");
    let is_ours = |name: &str| format!("({name} in [{ours}] || {name}.endsWith('{of_metrics}'))");
    let is_on = |field: &str| format!("(has(variables.pod.{field}) && variables.pod.{field})");
    let variables = [
        ("pod", "object.spec.template.spec"),
        (
            "containers",
            "variables.pod.containers + (has(variables.pod.initContainers) ? variables.pod.initContainers : [])",
        ),
        ("volumes", "has(variables.pod.volumes) ? variables.pod.volumes : []"),
    ];
    let at =
        "'Job ' + object.metadata.name + ': the controller may only build images in this namespace, and ";
    let remedy = "; a Job for another purpose, such as the gate of a RolloutPolicy, belongs into a namespace of its own'";
    let rule = |expression: String, message: &'static str, words: &str| Rule {
        expression,
        message,
        words: Some(format!("{at}{words}{remedy}")),
    };
    let rules = vec![
        rule(
            "(!has(variables.pod.serviceAccountName) || variables.pod.serviceAccountName in ['', 'default', 'machine-os-builder']) && \
             has(variables.pod.automountServiceAccountToken) && !variables.pod.automountServiceAccountToken"
                .to_owned(),
            "the controller may only build images in this namespace, and a build has no rights",
            "a build has no rights: spec.template.spec.serviceAccountName is machine-os-builder or not set, automountServiceAccountToken is false",
        ),
        rule(
            format!(
                "!{} && !{} && !{} && variables.containers.all(c, !has(c.securityContext) || \
                 !has(c.securityContext.privileged) || !c.securityContext.privileged)",
                is_on("hostNetwork"),
                is_on("hostPID"),
                is_on("hostIPC")
            ),
            "the controller may only build images in this namespace, and a build sees nothing of its host",
            "a build sees nothing of its host: no host namespaces, no privileged containers",
        ),
        rule(
            "variables.volumes.all(v, has(v.emptyDir) || has(v.configMap) || has(v.secret))".to_owned(),
            "the controller may only build images in this namespace, and a build has volumes of ConfigMaps and Secrets only",
            "a build has volumes of ConfigMaps, Secrets and empty folders only",
        ),
        rule(
            format!(
                "variables.volumes.all(v, !has(v.secret) || !has(v.secret.secretName) || !{}) && variables.containers.all(c, \
                 (!has(c.env) || c.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef))) && \
                 (!has(c.envFrom) || c.envFrom.all(e, !has(e.secretRef))))",
                is_ours("v.secret.secretName")
            ),
            "the controller may only build images in this namespace, and a build has none of the installation's Secrets",
            "a build has none of the Secrets of the installation itself, and Secrets in volumes only",
        ),
    ];
    let mut policy = policy(NAMES[8], &on, &variables, rules);
    policy["spec"]["matchConstraints"]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    policy["spec"]["matchConditions"] =
        json!([{"name": "by-the-controller", "expression": format!("!({})", not_by_the_controller())}]);
    policy
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
        let (_, refused) = conditions(&generated()).pop().unwrap();
        let left = conditions(&contents());
        let (_, left) = left.iter().find(|(name, _)| name == "not-refused-as-generated").unwrap();
        assert_eq!(
            *left,
            format!("!(({}) && {refused})", is_generated()),
            "what the one refuses, the other leaves"
        );
    }
}

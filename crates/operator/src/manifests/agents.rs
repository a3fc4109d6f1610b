//! What the node agents need in a cluster: the rights of nodes, and the DaemonSet, if agents run as pods. Pure.
//!
//! What it is not: putting these into the cluster (see `install`), nor the units of agents that run as services of
//! their hosts (`deploy/systemd`).
//!
//! An agent uses its node's identity, the kubelet's credentials. The Node authorizer and NodeRestriction limit it to its
//! own Node and its events. The role here adds what it reads, and an admission policy (see `admission`) limits each node to its own
//! MachineConfigNode.

use crate::manifests::parts::METRICS;
use crate::manifests::pods::metrics_volume;
use crate::settings::object::AgentPods;
use api::names::{GROUP, NAMESPACE, label};
use api::v1::ControllerConfigSpec;
use serde_json::{Value, json};

/// The name of the agents' objects.
const NAME: &str = crate::accounts::AGENT;
/// The ConfigMap with the API server's CA for agents.
const KUBECONFIG_DATA: &str = "kubeconfig-data";
/// The allocator returns unused memory at once, because the agent is idle nearly always. As in the systemd unit.
const ALLOCATOR: &str = "narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0";
/// Where the pod finds the certificate of its metrics. The agent keeps this folder open when it enters its host.
const METRICS_FOLDER: &str = "/run/machine-config-daemon-metrics";
/// How long an agent may take to stop: it finishes the running change first.
const GRACE_SECONDS: u32 = 600;

/// The rules of the agents' ClusterRole.
pub(crate) fn rules() -> Vec<Value> {
    let read = ["get", "list", "watch"];
    vec![
        json!({
            "apiGroups": [GROUP],
            "resources": ["machineconfigs", "machineconfigpools", "controllerconfigs", "pinnedimagesets"],
            "verbs": read,
        }),
        json!({
            "apiGroups": [GROUP],
            "resources": ["machineconfignodes", "machineconfignodes/status"],
            "verbs": ["get", "list", "watch", "create", "update", "patch"],
        }),
        json!({"apiGroups": ["operator.openshift.io"], "resources": ["machineconfigurations"], "verbs": read}),
        // To know the hosts that run API servers: a node may join without a role label and be one of them.
        json!({
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "resourceNames": ["kubernetes"],
            "verbs": ["get"],
        }),
    ]
}

/// The rules of their Role in our namespace.
pub(crate) fn rules_in_namespace() -> Vec<Value> {
    vec![
        json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [KUBECONFIG_DATA], "verbs": ["get"]}),
        json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}),
    ]
}

/// The account and rights of the agents, in the order in which they must be written.
pub(crate) fn rights() -> Vec<Value> {
    let subjects = json!([
        {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:nodes"},
        {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE},
    ]);
    let of = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME});
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            // Agents use their node's identity, so the pods need no token.
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": rules(),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": of("ClusterRole"),
            "subjects": subjects,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "rules": rules_in_namespace(),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "roleRef": of("Role"),
            "subjects": subjects,
        }),
    ]
}

/// The cluster's proxy for an agent: registries may be behind it. The API server is where booting machines reach it, or where
/// the proxy's own exceptions say; it is never behind the proxy.
fn proxy(cluster: &ControllerConfigSpec) -> Vec<Value> {
    let Some(proxy) = &cluster.proxy else { return vec![] };
    let own = Some(proxy.no_proxy.trim_matches(',').to_owned()).filter(|own| !own.is_empty());
    let no_proxy: Vec<String> =
        own.into_iter().chain(api::first_boot::user_data::host_names(cluster)).collect();
    if proxy.http_proxy.is_empty() && proxy.https_proxy.is_empty() {
        return vec![];
    }
    let all = [
        ("HTTP_PROXY", proxy.http_proxy.clone()),
        ("HTTPS_PROXY", proxy.https_proxy.clone()),
        ("NO_PROXY", no_proxy.join(",")),
    ];
    let set = all.into_iter().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// The agents as pods: one on each node, which enters its host's namespaces first. `cluster`: where its proxy is read from.
pub(crate) fn daemon_set(agents: &AgentPods, cluster: Option<&ControllerConfigSpec>) -> Value {
    let mut env = vec![
        json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
        json!({"name": "_RJEM_MALLOC_CONF", "value": ALLOCATOR}),
    ];
    env.extend(cluster.map(proxy).unwrap_or_default());
    let AgentPods { image, kubeconfig } = agents;
    let labels = json!({label::PART: NAME});
    let mut args = vec![
        "daemon".to_owned(),
        "start".to_owned(),
        "--root-mount=/rootfs".to_owned(),
        format!("--metrics-secure-listen=:{METRICS}"),
        format!("--metrics-cert={METRICS_FOLDER}/tls.crt"),
        format!("--metrics-key={METRICS_FOLDER}/tls.key"),
    ];
    args.extend(kubeconfig.iter().map(|path| format!("--kubeconfig={path}")));
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {
                        "target.workload.openshift.io/management": "{\"effect\": \"PreferredDuringScheduling\"}",
                        "openshift.io/required-scc": "privileged",
                    },
                },
                "spec": {
                    "serviceAccountName": NAME,
                    "automountServiceAccountToken": false,
                    "hostNetwork": true,
                    "hostPID": true,
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{
                        "name": NAME,
                        "image": image,
                        "command": ["/usr/bin/mco"],
                        "args": args,
                        "ports": [{"name": "metrics", "containerPort": METRICS}],
                        "env": env,
                        "resources": {"requests": {"cpu": "20m", "memory": "50Mi"}},
                        "securityContext": {"privileged": true},
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "volumeMounts": [
                            {"name": "rootfs", "mountPath": "/rootfs", "mountPropagation": "HostToContainer"},
                            {"name": "metrics-certificate", "mountPath": METRICS_FOLDER, "readOnly": true},
                        ],
                    }],
                    "volumes": [{"name": "rootfs", "hostPath": {"path": "/"}}, metrics_volume(NAME)],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_to_read_configs_and_to_write_its_own_progress_only() {
        let role = rights().into_iter().find(|o| o["kind"] == "ClusterRole").unwrap();
        for rule in role["rules"].as_array().unwrap() {
            let writes = rule["verbs"].as_array().unwrap().iter().any(|v| v == "create" || v == "patch");
            let progress = rule["resources"][0] == "machineconfignodes";
            assert_eq!(writes, progress, "{rule}");
            assert!(!rule.to_string().contains('*') && !rule.to_string().contains("secrets"), "{rule}");
        }
    }

    #[test]
    fn an_agent_has_the_clusters_proxy_and_reaches_the_api_server_without_it() {
        let cluster = |proxy: Value| -> ControllerConfigSpec {
            let infra = json!({"status": {"apiServerInternalURI": "https://api-int.example.com:6443"}});
            serde_json::from_value(json!({"clusterDNSIP": "10.96.0.10", "proxy": proxy, "infra": infra}))
                .unwrap()
        };
        for (proxy, env) in [
            (json!(null), json!([])),
            (json!({"noProxy": "a.example.com"}), json!([])),
            (
                json!({"httpsProxy": "http://proxy.example.com:3128", "noProxy": ".corp.example.com,10.0.0.0/8"}),
                json!([
                    {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"},
                    {"name": "NO_PROXY", "value": ".corp.example.com,10.0.0.0/8,api-int.example.com"},
                ]),
            ),
        ] {
            let set = daemon_set(&AgentPods::default(), Some(&cluster(proxy.clone())));
            let all = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
            assert_eq!(json!(all[2..]), env, "{proxy}");
        }
    }

    #[test]
    fn the_pod_enters_the_host_and_is_given_time_to_finish() {
        let mut agents = AgentPods { image: "registry.example.com/mco:1".to_owned(), kubeconfig: None };
        let set = daemon_set(&agents, None);
        let pod = &set["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "registry.example.com/mco:1");
        assert_eq!((&pod["hostPID"], &pod["terminationGracePeriodSeconds"]), (&json!(true), &json!(600)));
        assert!(!set.to_string().contains("--kubeconfig"), "it looks for the kubelet's");
        agents.kubeconfig = Some("/etc/mco/agent.kubeconfig".to_owned());
        assert!(daemon_set(&agents, None).to_string().contains("\"--kubeconfig=/etc/mco/agent.kubeconfig\""));
    }
}

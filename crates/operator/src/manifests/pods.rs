//! Controller, config server and operator as pods: Deployments, the server's DaemonSet, Services, the controller's
//! PodDisruptionBudget, and network policies. Pure.
//!
//! What it is not: their rights (see `rights`) and the agents (see `agents`).

use crate::manifests::rights::{BOOTSTRAP_TOKEN, CONTROLLER, DASHBOARD, OPERATOR, SERVER};
use crate::settings_object::DashboardSettings;
use api::detected::{Detected, REPLICAS};
use api::k8s::ObjectMeta;
use api::names::annotation::FOUND_OUT;
use api::names::topology::SINGLE_REPLICA;
use api::names::{JOINING_TAINT, NAMESPACE, label};
use ipnet::IpNet;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Where a pod finds the certificate of its metrics.
const METRICS_FOLDER: &str = "/etc/ssl/metrics";
/// The path of the templates in the image.
const TEMPLATES: &str = "/usr/share/mco/templates";
/// The port of the metrics over HTTPS, for who may read them, and of the probes. As the reference's.
pub(crate) const METRICS: u16 = 9001;
/// The same of the config server, which shares its host's network with the agent.
pub(crate) const SERVER_SECURE_METRICS: u16 = 9002;
/// The port of the server's `/healthz`, `/readyz` and metrics. The server uses its host's network, and serves these on
/// loopback only.
const SERVER_METRICS: u16 = 8798;
/// The reference's port for plain HTTP.
const PLAIN: u16 = api::user_data::PORT + 1;
/// The port of the dashboard, by HTTPS.
const PAGE: u16 = 9443;
/// The bound of the dashboard's memory. Everybody who may look can have texts of YAML read, which must not take the memory of
/// a control-plane node: a text that needs more ends the pod, which starts again.
const PAGE_MEMORY: &str = "1Gi";
/// The program's own user. No part needs to be root.
const USER: u32 = 65_532;
/// The server's allocator returns unused memory at once: 29 instead of 35 MiB with 20 pools, at the cost of some hundredths
/// of a millisecond for each request. Buffers of TLS records are kept.
const SERVER_ALLOCATOR: &str = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,lg_tcache_max:16";
/// How many controllers run. One leads, and another takes over when its node is drained. With a single control-plane node a
/// second one has nowhere to run, and their PodDisruptionBudget would block a drain of that node.
pub(crate) fn controllers(control_plane_topology: &str) -> u32 {
    if control_plane_topology == SINGLE_REPLICA { 1 } else { 2 }
}

/// The inputs of the pods' manifests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// The image of all of them.
    pub(crate) image: &'a str,
    /// The API server's URL for booting machines.
    pub(crate) api_server_url: &'a str,
    /// Only machines with a boot token get configs, over HTTPS. False: everybody does, also over plain HTTP, as with the
    /// reference.
    pub(crate) require_token: bool,
    /// Load balancers that send the client's address by PROXY protocol.
    pub(crate) balancers: &'a [IpNet],
    /// How many controllers run, see [`controllers`].
    pub(crate) controllers: u32,
    /// Another number that somebody has set.
    pub(crate) scaled: Option<&'a Scaled>,
}

/// The controller, in the order in which its objects must be written.
pub(crate) fn controller(parts: &Parts<'_>) -> Vec<Value> {
    // Who may connect, before there is anything to connect to.
    vec![policy(CONTROLLER, METRICS, &[]), controller_pods(parts), budget(), controller_service()]
}

/// The config server.
pub(crate) fn server(parts: &Parts<'_>) -> Vec<Value> {
    vec![server_pods(parts), server_service(parts)]
}

/// The operator.
pub(crate) fn operator(image: &str, replicas: u32) -> Vec<Value> {
    vec![
        policy(OPERATOR, METRICS, &[]),
        operator_pods(image, replicas),
        service(OPERATOR, &json!([{"name": "metrics", "port": METRICS}])),
    ]
}

/// The dashboard.
pub(crate) fn dashboard(image: &str, settings: &DashboardSettings) -> Vec<Value> {
    vec![
        policy(DASHBOARD, PAGE, &settings.connections_from),
        dashboard_pods(image, settings),
        service(DASHBOARD, &json!([{"name": "https", "port": 443, "targetPort": PAGE}])),
    ]
}

fn labels(name: &str) -> Value {
    json!({"k8s-app": name})
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE, "labels": labels(name)})
}

/// The common fields of all pods.
fn pod(name: &str, image: &str, args: &[String], more: Value) -> Value {
    let mut container = json!({
        "name": name,
        "image": image,
        "command": ["/usr/bin/mco"],
        "args": args,
        "resources": {"requests": {"cpu": "20m", "memory": "50Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    if let (Some(container), Value::Object(more)) = (container.as_object_mut(), more) {
        container.extend(more);
    }
    // A control-plane node may register with the taint of nodes that join, and only a running controller removes it.
    let roles = ["master", "control-plane", "etcd"].map(|role| format!("node-role.kubernetes.io/{role}"));
    let tolerated = roles.into_iter().chain([JOINING_TAINT.to_owned()]);
    let tolerations: Vec<Value> =
        tolerated.map(|key| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"})).collect();
    // One of the labels with any value is enough: k3s sets the value "true".
    let on_control_plane = [label::CONTROL_PLANE_ROLE, label::MASTER_ROLE]
        .map(|key| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}));
    json!({
        "metadata": {
            "labels": labels(name),
            "annotations": {"target.workload.openshift.io/management": "{\"effect\": \"PreferredDuringScheduling\"}"},
        },
        "spec": {
            "serviceAccountName": name,
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": on_control_plane,
            }}},
            "tolerations": tolerations,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    })
}

/// Gives a pod the certificate of its metrics. The operator makes the Secret; until it is there, and without it, the part
/// makes a certificate of its own.
fn with_metrics_certificate(pod: &mut Value, name: &str) {
    let spec = &mut pod["spec"];
    let mut push = |path: &str, item: Value| {
        if spec.pointer(path).is_none_or(Value::is_null) {
            let (parent, key) = path.rsplit_once('/').unwrap_or_default();
            if let Some(parent) = spec.pointer_mut(parent) {
                parent[key] = json!([]);
            }
        }
        if let Some(list) = spec.pointer_mut(path).and_then(Value::as_array_mut) {
            list.push(item);
        }
    };
    push("/containers/0/args", json!(format!("--metrics-cert={METRICS_FOLDER}/tls.crt")));
    push("/containers/0/args", json!(format!("--metrics-key={METRICS_FOLDER}/tls.key")));
    push(
        "/containers/0/volumeMounts",
        json!({"name": "metrics-certificate", "mountPath": METRICS_FOLDER, "readOnly": true}),
    );
    push("/volumes", metrics_volume(name));
}

/// The volume with the certificate of a part's metrics.
pub(crate) fn metrics_volume(name: &str) -> Value {
    let secret = crate::monitoring::certificate(name);
    json!({"name": "metrics-certificate", "secret": {"secretName": secret, "optional": true}})
}

/// A probe in plain HTTP on this host's address, or by HTTPS on the pod's.
fn probe(path: &str, port: u16, host: Option<&str>) -> Value {
    let scheme = if host.is_some() { "HTTP" } else { "HTTPS" };
    json!({
        "httpGet": {"path": path, "port": port, "host": host, "scheme": scheme},
        "periodSeconds": 10, "timeoutSeconds": 5,
    })
}

fn controller_pods(parts: &Parts<'_>) -> Value {
    let args = [
        "controller".to_owned(),
        "start".to_owned(),
        format!("--templates={TEMPLATES}"),
        format!("--metrics-secure-listen=:{METRICS}"),
    ];
    let more = json!({
        "ports": [{"name": "metrics", "containerPort": METRICS}],
        "livenessProbe": probe("/healthz", METRICS, None),
        // A version that cannot read the cluster does not take the place of one that can.
        "readinessProbe": probe("/readyz", METRICS, None),
    });
    let mut pod = pod(CONTROLLER, parts.image, &args, more);
    // The controller drains its own node, too.
    spread(&mut pod, CONTROLLER);
    with_metrics_certificate(&mut pod, CONTROLLER);
    let (replicas, recorded) = match parts.scaled {
        Some(scaled) => (scaled.has, scaled.recorded.clone()),
        None => (parts.controllers, parts.controllers.to_string()),
    };
    let mut record = Detected::default();
    record.set(REPLICAS, recorded);
    let mut metadata = metadata(CONTROLLER);
    metadata["annotations"] = json!({ FOUND_OUT: record.text() });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels(CONTROLLER)},
            "template": pod,
        },
    })
}

/// Somebody has scaled the controllers' Deployment: its number is not the one that was written. It is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scaled {
    /// Its number of replicas.
    has: u32,
    /// The number that was written, from its record. It is kept, so that the Deployment still counts as scaled.
    recorded: String,
}

impl Scaled {
    /// `None`: nobody has scaled it.
    pub(crate) fn of(deployment: &Value) -> Option<Self> {
        let has = deployment.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
        let metadata = ObjectMeta::deserialize(deployment.get("metadata")?).ok()?;
        // Deployments of earlier versions have two and no record.
        let recorded = Detected::of(&metadata).get(REPLICAS).unwrap_or("2").to_owned();
        (has.to_string() != recorded)
            .then_some(Self { has: u32::try_from(has).unwrap_or_default(), recorded })
    }
}

fn budget() -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(CONTROLLER),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": labels(CONTROLLER)},
            // A controller that does not start must not block a drain of its node.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}

/// On different nodes, if there are several.
fn spread(pod: &mut Value, name: &str) {
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels(name)},
    }]);
}

fn operator_pods(image: &str, replicas: u32) -> Value {
    let args = [
        "operator".to_owned(),
        "start".to_owned(),
        // By this the operator knows whether it is the one that the settings name.
        format!("--image={image}"),
        format!("--metrics-secure-listen=:{METRICS}"),
    ];
    let more = json!({
        "ports": [{"name": "metrics", "containerPort": METRICS}],
        "livenessProbe": probe("/healthz", METRICS, None),
        "readinessProbe": probe("/readyz", METRICS, None),
    });
    let mut pod = pod(OPERATOR, image, &args, more);
    spread(&mut pod, OPERATOR);
    with_metrics_certificate(&mut pod, OPERATOR);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(OPERATOR),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels(OPERATOR)},
            // The old one works until a new one is ready: an image that cannot be pulled must not end the operator that
            // says so.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": pod,
        },
    })
}

/// One pod: sessions are in its memory, and a page that was open finds the next one.
fn dashboard_pods(image: &str, settings: &DashboardSettings) -> Value {
    let DashboardSettings { hosts, proxies, connections_from: _ } = settings;
    let mut args = vec![
        "dashboard".to_owned(),
        "--in-cluster".to_owned(),
        format!("--listen=:{PAGE}"),
        format!("--cert={METRICS_FOLDER}/tls.crt"),
        format!("--key={METRICS_FOLDER}/tls.key"),
    ];
    args.extend(hosts.iter().map(|host| format!("--host={host}")));
    args.extend(proxies.iter().map(|net| format!("--trusted-proxy={net}")));
    let more = json!({
        "ports": [{"name": "https", "containerPort": PAGE}],
        "livenessProbe": probe("/healthz", PAGE, None),
        "readinessProbe": probe("/readyz", PAGE, None),
        "volumeMounts": [{"name": "metrics-certificate", "mountPath": METRICS_FOLDER, "readOnly": true}],
    });
    let mut pod = pod(DASHBOARD, image, &args, more);
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({"memory": PAGE_MEMORY});
    pod["spec"]["volumes"] = json!([metrics_volume(DASHBOARD)]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(DASHBOARD),
        "spec": {"replicas": 1, "selector": {"matchLabels": labels(DASHBOARD)}, "template": pod},
    })
}

fn server_pods(parts: &Parts<'_>) -> Value {
    let mut args = vec![
        "server".to_owned(),
        "start".to_owned(),
        format!("--apiserver-url={}", parts.api_server_url),
        format!("--metrics-listen=127.0.0.1:{SERVER_METRICS}"),
        format!("--metrics-secure-listen=:{SERVER_SECURE_METRICS}"),
    ];
    if parts.require_token {
        args.push("--require-token".to_owned());
    } else {
        args.push(format!("--insecure-port={PLAIN}"));
    }
    args.extend(parts.balancers.iter().map(|net| format!("--proxy-protocol-from={net}")));
    let ports: Vec<Value> =
        ports(parts).into_iter().map(|(name, port)| json!({"name": name, "containerPort": port})).collect();
    let here = Some("127.0.0.1");
    let more = json!({
        "env": [{"name": "_RJEM_MALLOC_CONF", "value": SERVER_ALLOCATOR}],
        "ports": ports,
        "livenessProbe": probe("/healthz", SERVER_METRICS, here),
        "readinessProbe": probe("/readyz", SERVER_METRICS, here),
        "volumeMounts": [
            {"name": "certs", "mountPath": "/etc/ssl/mcs", "readOnly": true},
            {"name": "token", "mountPath": "/etc/mcs/bootstrap-token", "readOnly": true},
        ],
    });
    let mut pod = pod(SERVER, parts.image, &args, more);
    pod["spec"]["hostNetwork"] = json!(true);
    pod["spec"]["dnsPolicy"] = json!("ClusterFirstWithHostNet");
    pod["spec"]["volumes"] = json!([
        // The operator creates it; the pod waits for it.
        {"name": "certs", "secret": {"secretName": api::server_tls::SERVING}},
        {"name": "token", "secret": {"secretName": BOOTSTRAP_TOKEN}},
    ]);
    with_metrics_certificate(&mut pod, SERVER);
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(SERVER),
        "spec": {
            "selector": {"matchLabels": labels(SERVER)},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": pod,
        },
    })
}

fn service(name: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name),
        "spec": {"selector": labels(name), "ports": ports},
    })
}

fn controller_service() -> Value {
    service(CONTROLLER, &json!([{"name": "metrics", "port": METRICS}]))
}

fn server_service(parts: &Parts<'_>) -> Value {
    let mut ports: Vec<Value> =
        ports(parts).into_iter().map(|(name, port)| json!({"name": name, "port": port})).collect();
    ports.push(json!({"name": "metrics", "port": SERVER_SECURE_METRICS}));
    service(SERVER, &json!(ports))
}

/// The ports of the config server.
fn ports(parts: &Parts<'_>) -> Vec<(&'static str, u16)> {
    let mut ports = vec![("https", api::user_data::PORT)];
    ports.extend((!parts.require_token).then_some(("http", PLAIN)));
    ports
}

/// A network policy: only the port of the metrics and probes is reached, by these addresses, or by everybody where none is named. The config server needs no policy, as policies do
/// not apply to the host's network, which it uses to serve booting machines.
fn policy(name: &str, port: u16, from: &[IpNet]) -> Value {
    let mut ingress = json!({"ports": [{"protocol": "TCP", "port": port}]});
    if !from.is_empty() {
        ingress["from"] =
            from.iter().map(|net| json!({"ipBlock": {"cidr": net.trunc().to_string()}})).collect();
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name),
        "spec": {
            "podSelector": {"matchLabels": labels(name)},
            "policyTypes": ["Ingress"],
            "ingress": [ingress],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(require_token: bool) -> Vec<Value> {
        let (image, api_server_url) = ("registry.example.com/mco:1", "https://api:6443");
        let balancers = &["10.0.0.0/29".parse().unwrap()];
        let parts = Parts { image, api_server_url, require_token, balancers, controllers: 2, scaled: None };
        [controller(&parts), server(&parts), operator(image, 2)].concat()
    }

    #[test]
    fn pods_run_as_nobody_in_particular_and_with_their_own_account() {
        for object in objects(false).iter().filter(|o| o["spec"].get("template").is_some()) {
            let pod = &object["spec"]["template"]["spec"];
            assert_eq!(pod["serviceAccountName"], object["metadata"]["name"]);
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            assert_eq!(pod["containers"][0]["image"], "registry.example.com/mco:1");
            assert_eq!(
                object["spec"]["selector"]["matchLabels"],
                object["spec"]["template"]["metadata"]["labels"]
            );
        }
    }

    #[test]
    fn controllers_follow_the_topology_until_somebody_scales_them() {
        assert_eq!(
            (controllers("SingleReplica"), controllers("HighlyAvailable"), controllers("")),
            (1, 2, 2)
        );
        let made = objects(false)
            .into_iter()
            .find(|o| o["metadata"]["name"] == CONTROLLER && o["kind"] == "Deployment");
        let made = made.unwrap();
        let with = |replicas: u32, record: Option<&str>| {
            let mut deployment = made.clone();
            deployment["spec"]["replicas"] = json!(replicas);
            deployment["metadata"]["annotations"] =
                record.map_or(Value::Null, |r| json!({ FOUND_OUT: json!({ REPLICAS: r }).to_string() }));
            deployment
        };
        // Columns: replicas, record, wanted number, whether nobody else has scaled it.
        let rows = [
            (2, Some("2"), 1, true),
            (1, Some("1"), 2, true),
            (1, Some("1"), 1, true),
            (2, None, 1, true),
            (1, None, 2, false),
            (0, Some("2"), 1, false),
            (3, Some("2"), 1, false),
        ];
        for (has, record, wanted, ours) in rows {
            let scaled = Scaled::of(&with(has, record));
            assert_eq!(scaled.is_none(), ours, "{has} {record:?}");
            let (image, api_server_url) = ("mco:2", "https://api:6443");
            let parts = Parts {
                image,
                api_server_url,
                require_token: true,
                balancers: &[],
                controllers: wanted,
                scaled: scaled.as_ref(),
            };
            let again = controller_pods(&parts);
            let want = if ours { wanted } else { has };
            assert_eq!(again["spec"]["replicas"], json!(want), "{has} {record:?} {wanted}");
            // After the next write, the Deployment still counts as scaled.
            assert_eq!(Scaled::of(&again), scaled);
        }
    }

    #[test]
    fn an_operator_that_cannot_start_does_not_end_the_one_that_says_so() {
        let all = operator("mco:2", 2);
        let deployment = all.iter().find(|o| o["kind"] == "Deployment").unwrap();
        assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert!(container["args"].to_string().contains("--image=mco:2"), "{container}");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    }

    #[test]
    fn every_part_that_is_rolled_out_says_when_it_is_ready() {
        for object in objects(true).iter().filter(|o| o["spec"].get("template").is_some()) {
            let container = &object["spec"]["template"]["spec"]["containers"][0];
            for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
                assert_eq!(container[probe]["httpGet"]["path"], path, "{container}");
            }
        }
    }

    #[test]
    fn each_pod_starts_without_the_certificate_of_its_metrics_and_finds_it_later() {
        let with_pods = objects(true).into_iter().filter(|o| o["spec"].get("template").is_some());
        for object in with_pods.chain([crate::manifests::agents::daemon_set(&Default::default(), None)]) {
            let name = object["metadata"]["name"].as_str().unwrap();
            let pod = &object["spec"]["template"]["spec"];
            let volumes = pod["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|v| v["name"] == "metrics-certificate").unwrap();
            assert_eq!(
                volume["secret"],
                json!({"secretName": format!("{name}-metrics-tls"), "optional": true})
            );
            let container = &pod["containers"][0];
            let mounts = container["volumeMounts"].as_array().unwrap();
            let mount = mounts.iter().find(|m| m["name"] == "metrics-certificate").unwrap();
            let folder = mount["mountPath"].as_str().unwrap();
            for flag in
                [format!("--metrics-cert={folder}/tls.crt"), format!("--metrics-key={folder}/tls.key")]
            {
                assert_eq!(
                    container["args"].as_array().unwrap().iter().filter(|a| **a == flag).count(),
                    1,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn the_dashboard_is_told_its_names_and_whose_word_counts() {
        let proxies = vec!["10.0.0.7/32".parse().unwrap()];
        let all = dashboard(
            "mco:1",
            &DashboardSettings {
                hosts: vec!["mco.example.com".to_owned()],
                proxies,
                connections_from: vec!["10.0.0.9/8".parse().unwrap()],
            },
        );
        let kinds: Vec<&str> = all.iter().map(|o| o["kind"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            ["NetworkPolicy", "Deployment", "Service"],
            "closed before there is anything to reach"
        );
        let container = &all[1]["spec"]["template"]["spec"]["containers"][0];
        let args = container["args"].to_string();
        for arg in [
            "--in-cluster",
            "--host=mco.example.com",
            "--trusted-proxy=10.0.0.7/32",
            "--cert=/etc/ssl/metrics/tls.crt",
        ] {
            assert!(args.contains(arg), "{arg}: {args}");
        }
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        let resources = json!({"requests": {"cpu": "20m", "memory": "50Mi"}, "limits": {"memory": "1Gi"}});
        assert_eq!(container["resources"], resources, "it takes no control-plane node's memory");
        let port = json!(PAGE);
        assert_eq!(
            all[0]["spec"]["ingress"],
            json!([{"ports": [{"protocol": "TCP", "port": PAGE}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])
        );
        let open = dashboard("mco:1", &DashboardSettings::default());
        assert_eq!(open[0]["spec"]["ingress"][0].get("from"), None, "nobody is named");
        assert_eq!(
            (&container["ports"][0]["containerPort"], &all[2]["spec"]["ports"][0]["targetPort"]),
            (&port, &port)
        );
    }

    #[test]
    fn pods_find_the_control_plane_of_kubeadm_and_k3s() {
        for object in objects(false).iter().filter(|o| o["spec"].get("template").is_some()) {
            let pod = &object["spec"]["template"]["spec"];
            assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}), "no role with a value");
            let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
            for (term, key) in terms.as_array().unwrap().iter().zip(["control-plane", "master"]) {
                let want = json!([{"key": format!("node-role.kubernetes.io/{key}"), "operator": "Exists"}]);
                assert_eq!(term["matchExpressions"], want);
            }
            assert_eq!(terms.as_array().unwrap().len(), 2);
        }
    }

    #[test]
    fn tokens_are_asked_for_by_the_server_where_the_settings_say_so() {
        for (require, parts) in [(false, 0), (true, 1)] {
            let asking =
                objects(require).iter().filter(|o| o.to_string().contains("--require-token")).count();
            assert_eq!(asking, parts);
        }
    }

    #[test]
    fn plain_http_is_open_only_where_the_references_behaviour_is_asked_for() {
        for (require, open) in [(true, false), (false, true)] {
            let text = serde_json::to_string(&objects(require)).unwrap();
            assert_eq!(text.contains("22624"), open, "{text}");
        }
    }

    #[test]
    fn balancers_are_told_to_the_server_and_pods_are_reached_for_metrics_alone() {
        let objects = objects(true);
        let server = objects.iter().find(|o| o["kind"] == "DaemonSet").unwrap();
        assert!(server.to_string().contains("--proxy-protocol-from=10.0.0.0/29"), "{server}");
        let of = |name: &str| {
            objects.iter().find(|o| o["kind"] == "NetworkPolicy" && o["metadata"]["name"] == name)
        };
        for (name, port) in [(OPERATOR, METRICS), (CONTROLLER, METRICS)] {
            assert_eq!(
                of(name).unwrap()["spec"]["ingress"],
                json!([{"ports": [{"protocol": "TCP", "port": port}]}])
            );
        }
        assert!(of(SERVER).is_none(), "it would not hold for a pod with its host's network");
    }
}

//! Controller, config server, operator and dashboard as pods: Deployments, the server's DaemonSet, and the controller's
//! PodDisruptionBudget. Pure.
//!
//! What it is not: how they are reached (see `network`), how many controllers run (see `replicas`), their rights (see `rights`),
//! and the agents (see `agents`).
//!
//! Source: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

use crate::accounts::{BOOTSTRAP_TOKEN, CONTROLLER, DASHBOARD, OPERATOR, SERVER};
use crate::manifests::network::{controller_service, policy, ports, server_service, service};
use crate::manifests::parts::{METRICS, PLAIN, Parts, SERVER_SECURE_METRICS, labels, metadata};
use crate::settings::object::DashboardSettings;
use api::detected::{Detected, REPLICAS};
use api::names::annotation::FOUND_OUT;
use api::names::{JOINING_TAINT, label};
use serde_json::{Value, json};

/// Where a pod finds the certificate of its metrics.
const METRICS_FOLDER: &str = "/etc/ssl/metrics";
/// The path of the templates in the image.
const TEMPLATES: &str = "/usr/share/mco/templates";
/// The port of the server's `/healthz`, `/readyz` and metrics. The server uses its host's network, and serves these on
/// loopback only.
const SERVER_METRICS: u16 = 8798;
/// The dashboard's port, for HTTPS.
const PAGE: u16 = 9443;
/// The memory limit of the dashboard. Everybody who may log in can have YAML parsed, which must not take the memory of a
/// control-plane node: a text that needs more ends the pod, which starts again.
const PAGE_MEMORY: &str = "1Gi";
/// The program's own user. No part needs to be root.
const USER: u32 = 65_532;
/// The server's allocator returns unused memory at once: 29 instead of 35 MiB with 20 pools, at the cost of some hundredths
/// of a millisecond for each request. Buffers of TLS records are kept.
const SERVER_ALLOCATOR: &str = "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,lg_tcache_max:16";
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

/// One pod: sessions are in its memory, and a page that was open reconnects to the next one.
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
    let loopback = Some("127.0.0.1");
    let more = json!({
        "env": [{"name": "_RJEM_MALLOC_CONF", "value": SERVER_ALLOCATOR}],
        "ports": ports,
        "livenessProbe": probe("/healthz", SERVER_METRICS, loopback),
        "readinessProbe": probe("/readyz", SERVER_METRICS, loopback),
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
        {"name": "certs", "secret": {"secretName": api::first_boot::server_tls::SERVING}},
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

#[cfg(test)]
mod tests;

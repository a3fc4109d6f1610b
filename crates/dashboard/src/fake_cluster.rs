//! A fake API server, for tests: a cluster that has a secret in everything that a person can write into.

use kube::Client;
use serde_json::{Value, json};

/// A cluster that answers nothing: what is tested here asks it nothing.
pub(crate) fn no_cluster() -> Client {
    let refuse = |_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
    };
    Client::new(tower::service_fn(refuse), "default")
}

pub(crate) const SECRET: &str = "hunter2secret";
/// The hash of a boot token, in hexadecimal digits and then in base64.
const HASH_BASE64: &str =
    "YWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYg==";
pub(crate) const SECRET_BASE64: &str = "aHVudGVyMnNlY3JldA==";

/// A cluster that has a secret in everything that a person can write into. With `forbidden`, nobody may read anything.
pub(crate) fn seeded(forbidden: bool) -> Client {
    let answer = move |request: http::Request<kube::client::Body>| async move {
        let metadata =
            request.headers().get("accept").is_some_and(|a| a.to_str().unwrap().contains("PartialObject"));
        let (code, value) = match forbidden {
            true => (403, status(403, "User \"oidc:olga@example.com\" cannot read this")),
            false => object(request.uri().path(), metadata)
                .map_or_else(|| (404, status(404, "nothing")), |v| (200, v)),
        };
        let body = kube::client::Body::from(value.to_string().into_bytes());
        Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
    };
    Client::new(tower::service_fn(answer), "default")
}

pub(crate) fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "Forbidden"})
}

/// What is at a path of the API.
pub(crate) fn object(path: &str, metadata: bool) -> Option<Value> {
    const GROUP: &str = "machineconfiguration.openshift.io";
    let said = format!(
        "it failed\npassword={SECRET}\npasswords:\n- {SECRET}\n<password>\n{SECRET}\n</password>\ntoken:\n  {SECRET}\n[auth]\nvalue={SECRET}"
    );
    let condition = json!({"type": "Ready", "status": "False", "reason": "r", "message": said, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let note = |key: &str| format!("{GROUP}/{key}");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u", "annotations": {
            note("state"): "Degraded", note("reason"): said, note("currentConfig"): "rendered-worker-1",
            note("desiredConfig"): "rendered-worker-2", note("drainWait"): said,
            "kubectl.kubernetes.io/last-applied-configuration": said},
            "labels": {"node-role.kubernetes.io/worker": ""}},
        "status": {"conditions": [condition], "nodeInfo": {"kubeletVersion": "v1.36", "osImage": "Debian", "kernelVersion": "6",
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kubeProxyVersion": "", "machineID": "",
            "operatingSystem": "linux", "systemUUID": ""}}});
    let config = |name: &str, seen: &str| {
        let owner = json!([{"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "name": "worker", "uid": "u", "controller": true}]);
        let file = |path: &str, text: &str| json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}});
        let files = json!([
            file("/etc/seen", seen),
            file("/etc/app.conf", &format!("password%3D{SECRET}{seen}%0A")),
            json!({"path": "/etc/closed", "mode": 384, "contents": {"source": format!("data:,{SECRET}{seen}")}})
        ]);
        let origin = |kind, name: &str, lost: &[&str]| render::Origin {
            kind,
            name: name.to_owned(),
            field: String::new(),
            set_by: "50-set".to_owned(),
            lost: lost.iter().map(|l| (*l).to_owned()).collect(),
        };
        let origins = vec![
            origin(render::provenance::Kind::File, "/etc/seen", &["40-lost"]),
            origin(render::provenance::Kind::KernelArgument, &format!("nbd.password={SECRET}"), &[]),
        ];
        // Of the other one it is worked out.
        let kept = name.ends_with('1').then(|| render::Provenance(origins).pack()).flatten();
        let notes: serde_json::Map<_, _> =
            kept.into_iter().map(|packed| (note("provenance"), json!(packed))).collect();
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfig",
            "metadata": {"name": name, "annotations": notes, "ownerReferences": owner, "creationTimestamp": format!("2026-01-01T00:00:0{}Z", &name[name.len() - 1..])},
            "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}},
                "kernelArguments": [format!("nbd.password={SECRET}")]}})
    };
    let pool = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "metadata": {"name": "worker", "uid": "u"},
        "spec": {"configuration": {"name": "rendered-worker-2", "source": [{"name": "rendered-worker-2"}]},
            "machineConfigSelector": {"matchLabels": {"a": "b"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}},
        "status": {"conditions": [condition]}});
    let boot_token = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "boot-token-0123456789ab", "namespace": "machine-config-boot-tokens"},
        "type": api::first_boot::boot_token::TYPE, "stringData": {},
        "data": {"sha256": HASH_BASE64, "pool": "d29ya2Vy", "token": SECRET_BASE64}});
    let settings = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ControllerConfig", "metadata": {"name": "machine-config-controller"},
        "spec": {}, "status": {"observedGeneration": 1, "conditions": [condition],
            "controllerCertificates": [{"subject": "CN=ca", "signer": "CN=ca", "bundleFile": "KubeAPIServerServingCAData", "notAfter": "2030-01-01T00:00:00Z"}]}});
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1"}, "type": "Warning", "reason": "Failed", "message": said});
    let list = |items: Vec<Value>| {
        Some(
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}),
        )
    };
    let partial = |mut value: Value| {
        let metadata = value["metadata"].take();
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
    };
    let configs = || vec![config("rendered-worker-1", "one"), config("rendered-worker-2", "two")];
    let (_, resource) = path.split_once("/v1/").or_else(|| path.split_once("/v1alpha1/"))?;
    match resource {
        "nodes/n1" => Some(node),
        "nodes" => list(vec![node]),
        "events" => list(vec![event]),
        "machineconfigs" if metadata => list(configs().into_iter().map(partial).collect()),
        "machineconfigs" => list(configs()),
        "machineconfigs/rendered-worker-1" => configs().into_iter().next(),
        "machineconfigs/rendered-worker-2" => configs().into_iter().nth(1),
        "machineconfigpools" => list(vec![pool]),
        "machineconfigpools/worker" => Some(pool),
        "machineconfignodes/n1" => Some(
            json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigNode", "metadata": {"name": "n1"},
            "spec": {"node": {"name": "n1"}, "pool": {"name": "worker"}, "configVersion": {"desired": "rendered-worker-2"}},
            "status": {"configVersion": {"current": "rendered-worker-1", "desired": "rendered-worker-2"}, "conditions": [condition]}}),
        ),
        "controllerconfigs" => list(vec![settings]),
        "controllerconfigs/machine-config-controller" => Some(settings),
        "namespaces/machine-config-boot-tokens/secrets" => list(vec![boot_token]),
        "machineconfigoperators/cluster" => {
            Some(json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
            "metadata": {"name": "cluster"}, "status": {"conditions": [condition]}}))
        }
        "namespaces/openshift-machine-config-operator/deployments/machine-config-controller" => Some(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "machine-config-controller"},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "mco:1",
                "env": [{"name": "X", "value": SECRET}]}]}}}, "status": {"availableReplicas": 1}}),
        ),
        "rolloutpolicies" => {
            let said = format!("password={SECRET}");
            list(vec![
                json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "careful"},
                "spec": {"pools": {"names": ["worker"]}, "freezes": [{"name": "f", "from": "2030-01-01T00:00:00Z",
                    "to": "2030-01-02T00:00:00Z", "reason": said}]},
                "status": {"pools": [{"name": "worker", "held": said,
                    "approvals": [{"wave": "w", "config": "rendered-worker-1", "by": "oidc:olga@example.com", "at": "2026-01-01T00:00:00Z"}], "gates": [{"gate": "g", "outcome": "Failed", "message": said}],
                    "rejected": [{"config": "rendered-worker-1", "reason": said, "at": "2026-01-01T00:00:00Z"}]}]}}),
            ])
        }
        "pods" | "poddisruptionbudgets" => list(vec![]),
        _ => None,
    }
}

/// Everything that reads from the cluster, and a word that shows that it did.
pub(crate) const READS: [(&str, &str); 15] = [
    ("/api/images", "rendered-worker-1"),
    ("/api/nodes/n1", "it failed"),
    ("/api/pools/worker", "/etc/app.conf"),
    ("/api/pools/worker", "careful"),
    ("/api/pools/worker", "\"by\":\"oidc:olga@example.com\""),
    ("/api/pools/worker/plan", "n1"),
    ("/api/snapshot", "version"),
    ("/api/configs", "rendered-worker-2"),
    ("/api/configs/rendered-worker-2", "/etc/app.conf"),
    ("/api/configs/rendered-worker-2", "no provenance is stored on it"),
    ("/api/configs/rendered-worker-1", "40-lost"),
    ("/api/compare/rendered-worker-1/rendered-worker-2", "+two"),
    ("/api/trust", "CN=ca"),
    ("/api/operator", "it failed"),
    ("/api/rollouts", "rollouts"),
];

//! An installation by its settings object: what the operator creates, maintains, prunes and reports, on a real API
//! server with the controllers and the scheduler of Kubernetes. Pods are fakes that run as soon as they are bound;
//! the operator is the real program, with its pod's service account.
//!
//! Not here: the installed parts at work (`own_rights`), and errors (`installation_errors`).

use crate::parts::{Part, speak_as};
use crate::product::{Cluster, condition, lab, text};
use serde_json::{Value, json};
use std::path::Path;

const NAMESPACE: &str = "openshift-machine-config-operator";
pub(crate) const IMAGE: &str = "--image=registry.example.com/mco:1";
pub(crate) const URL: &str = "--api-server-url=https://api.lab.test:6443";

/// The settings object.
pub(crate) async fn settings(cluster: &Cluster) -> Value {
    cluster.get("MachineConfigOperator", "cluster").await
}

/// Changes the settings.
pub(crate) async fn set(cluster: &Cluster, spec: Value) {
    cluster.patch("MachineConfigOperator", "cluster", json!({ "spec": spec })).await;
}

/// Waits until a condition of the settings has this status and all of these words; returns its message.
pub(crate) async fn says(cluster: &Cluster, kind: &str, status: &str, words: &[&str]) -> String {
    let what = format!("{kind}={status} {words:?}");
    let found = async || {
        let settings = settings(cluster).await;
        let conditions = settings["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|c| c["type"] == kind && c["status"] == status)?;
        let words_of = format!("{}: {}", text(&found["reason"]), text(&found["message"]));
        let fresh = settings["status"]["observedGeneration"] == settings["metadata"]["generation"];
        (fresh && words.iter().all(|w| words_of.contains(w))).then_some(words_of)
    };
    let end = tokio::time::timeout(std::time::Duration::from_secs(100), async {
        loop {
            if let Some(found) = found().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
    match end.await {
        Ok(found) => found,
        Err(_) => panic!("{what}; the settings are {:#}", settings(cluster).await["status"]),
    }
}

/// A namespaced object of ours; null if there is none.
pub(crate) async fn own_object(cluster: &Cluster, kind: &str, name: &str) -> Value {
    let said =
        cluster.kubectl(&["-n", NAMESPACE, "get", kind, name, "-o", "json", "--ignore-not-found"]).await;
    serde_json::from_str(&said.out).unwrap_or_default()
}

/// A cluster with a control-plane node and a worker, with nothing installed but the operator's permissions and
/// settings.
pub(crate) async fn installed(more: &[&str]) -> Option<(Cluster, tempfile::TempDir, std::path::PathBuf)> {
    let builder = lab()?.nodes(2).simulated().scheduler(true).controller_manager(true);
    let cluster = Cluster::start(builder).await;
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    cluster.patch("Node", "worker-0", role).await;
    let said = cluster.mco(&[&["install", IMAGE, URL, "--no-wait"], more].concat()).await;
    assert_eq!(said.code, 0, "{said:?}");
    let dir = tempfile::tempdir().unwrap();
    let account = speak_as(&cluster, dir.path(), "machine-config-operator").await;
    Some((cluster, dir, account))
}

/// Starts an operator with its pod's service account.
pub(crate) fn operator(dir: &Path, name: &str, account: &Path) -> Part {
    Part::start(dir, name, account, &["operator", "start", "--log=info"])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_is_made_from_its_settings_object() {
    let Some((cluster, dir, account)) = installed(&["--openshift-config-crds"]).await else { return };
    // No operator runs yet: the wait times out and names what it waits for.
    let said = cluster.mco(&["install", IMAGE, "--timeout=2s"]).await;
    assert!(said.code == 4 && said.err.contains("no operator of v"), "{said:?}");

    let first = operator(dir.path(), "first", &account);
    let said = cluster.mco(&["install", IMAGE]).await;
    assert!(said.code == 0 && said.out.contains("Available: Cluster has deployed v"), "{said:?}");
    let wait = ["wait", "--for=condition=Available", "machineconfigoperator/cluster", "--timeout=60s"];
    let said = cluster.kubectl(&wait).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.kubectl(&["get", "machineconfigoperators"]).await;
    assert!(
        said.out.starts_with("NAME      VERSION   AVAILABLE   PROGRESSING   DEGRADED   REASON"),
        "{}",
        said.out
    );

    // The parts were rolled out one after the other.
    let ready = |object: &Value| text(&object["metadata"]["creationTimestamp"]);
    let (controller, server) = (
        own_object(&cluster, "deployment", "machine-config-controller").await,
        own_object(&cluster, "daemonset", "machine-config-server").await,
    );
    assert!(controller["status"]["availableReplicas"].as_i64() >= Some(1), "{controller}");
    assert!(ready(&controller) <= ready(&server), "{controller} {server}");
    assert!(server.to_string().contains("--apiserver-url=https://api.lab.test:6443"));
    let config = cluster.get("ControllerConfig", "machine-config-controller").await;
    assert_eq!(config["spec"]["infra"]["status"]["controlPlaneTopology"], "SingleReplica");
    assert_eq!(controller["spec"]["replicas"], 1, "the topology is followed");
    for pool in ["master", "worker"] {
        assert!(!cluster.get("MachineConfigPool", pool).await.is_null(), "{pool}");
    }

    // The ClusterOperator shows the same to OpenShift's tools.
    let of_openshift = cluster.get("ClusterOperator", "machine-config").await;
    assert!(condition(&of_openshift, "Available").is_some(), "{of_openshift}");
    assert!(
        of_openshift["status"]["relatedObjects"].as_array().is_some_and(|l| l.len() > 5),
        "{of_openshift}"
    );
    assert!(of_openshift["status"]["extension"]["worker"].is_string(), "{of_openshift}");

    joins(&cluster, dir.path()).await;
    keeps(&cluster).await;
    prunes(&cluster).await;
    leaves_alone(&cluster).await;
    logs_as_asked(&cluster).await;

    // When the leading operator dies, another one takes over.
    let second = operator(dir.path(), "second", &account);
    cluster.wait("the second stands by", async || second.log().contains("standing by").then_some(())).await;
    first.kill().await;
    cluster.wait("the second leads", async || second.log().contains(" leading").then_some(())).await;
    cluster.delete("ClusterRole", "machine-config-controller").await;
    cluster
        .wait("what was deleted is there again", async || there(&cluster, "machine-config-controller").await)
        .await;
    let log = second.stop().await;
    assert!(!log.contains("forbidden"), "{log}");
    cluster.stop().await;
}

async fn there(cluster: &Cluster, role: &str) -> Option<()> {
    (!cluster.get("ClusterRole", role).await.is_null()).then_some(())
}

/// The first certificate of a machine that booted with a token is approved only for the node for which the token was
/// made.
pub(crate) async fn joins(cluster: &Cluster, dir: &Path) {
    use api::first_boot::boot_token::{ENTROPY, Record, Token, TokenUse};
    use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
    use k8s_openapi::api::core::v1::Secret;
    use kube::Api;
    use kube::api::PostParams;
    let tokens: Api<Secret> = Api::namespaced(cluster.client.clone(), api::first_boot::boot_token::NAMESPACE);
    let now = k8s_openapi::jiff::Timestamp::now();
    let used = Some(TokenUse { at: now, by: std::net::IpAddr::from([10, 0, 0, 9]) });
    let record = Record::new(&Token::new(&[5; ENTROPY]), "worker");
    let record = Record { node: Some("new-1".to_owned()), single_use: true, used, ..record };
    tokens.create(&PostParams::default(), &record.to_secret()).await.unwrap();
    let as_booting = speak_as(cluster, dir, "node-bootstrapper").await;
    for node in ["new-2", "new-1"] {
        let mut params = rcgen::CertificateParams::default();
        let mut dn = rcgen::DistinguishedName::new();
        dn.push(rcgen::DnType::OrganizationName, "system:nodes");
        dn.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
        params.distinguished_name = dn;
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = api::k8s::ByteString(pem.into_bytes());
        let csr = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": node},
            "spec": {"request": request, "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["client auth", "digital signature"]}});
        let file = dir.join("csr.json");
        std::fs::write(&file, csr.to_string()).unwrap();
        let (file, account) = (file.display().to_string(), as_booting.display().to_string());
        let said = cluster.kubectl(&["create", "-f", &file, "--kubeconfig", &account]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    let requests: Api<CertificateSigningRequest> = Api::all(cluster.client.clone());
    let reasons = async |name: &str| -> Vec<String> {
        let status = requests.get(name).await.unwrap().status.unwrap_or_default();
        status
            .conditions
            .into_iter()
            .flatten()
            .map(|c| format!("{} {}", c.type_, c.reason.unwrap_or_default()))
            .collect()
    };
    cluster
        .wait("the request of new-1 is approved", async || {
            reasons("new-1").await.contains(&"Approved BootToken".to_owned()).then_some(())
        })
        .await;
    assert!(!reasons("new-2").await.contains(&"Approved BootToken".to_owned()), "no token was made for it");
}

/// What somebody deletes or changes is soon restored.
async fn keeps(cluster: &Cluster) {
    for (kind, name) in [
        ("deployment", "machine-config-controller"),
        ("service", "machine-config-server"),
        ("role", "machine-config-controller"),
    ] {
        let before = own_object(cluster, kind, name).await["metadata"]["uid"].clone();
        let said = cluster.kubectl(&["-n", NAMESPACE, "delete", kind, name]).await;
        assert_eq!(said.code, 0, "{said:?}");
        cluster
            .wait(&format!("{kind} {name} is there again"), async || {
                let now = own_object(cluster, kind, name).await;
                (!now.is_null() && now["metadata"]["uid"] != before).then_some(())
            })
            .await;
    }
    let image =
        ["-n", NAMESPACE, "set", "image", "daemonset/machine-config-server", "machine-config-server=other:1"];
    let said = cluster.kubectl(&image).await;
    assert_eq!(said.code, 0, "{said:?}");
    let more = ["label", "clusterrole", "machine-config-server", "mine=yes"];
    assert_eq!(cluster.kubectl(&more).await.code, 0);
    cluster
        .wait("the image is the settings' again", async || {
            let set = own_object(cluster, "daemonset", "machine-config-server").await;
            let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
            (image == "registry.example.com/mco:1").then_some(())
        })
        .await;
    let role = cluster.get("ClusterRole", "machine-config-server").await;
    assert_eq!(role["metadata"]["labels"]["mine"], "yes", "additions of others stay");
    says(cluster, "Degraded", "False", &[]).await;
}

/// Objects that are no longer wanted are deleted, but nothing that the operator did not create.
async fn prunes(cluster: &Cluster) {
    set(cluster, json!({"agents": {"runAs": "Pods"}})).await;
    cluster
        .wait("agents run as pods", async || {
            let set = own_object(cluster, "daemonset", "machine-config-daemon").await;
            (set["status"]["numberAvailable"].as_i64() >= Some(1)).then_some(())
        })
        .await;
    // A user's own object with our label.
    let mine = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "mine", "namespace": NAMESPACE,
        "labels": {"machineconfig.dev/kept-by": "machine-config-operator"}}, "spec": {"ports": [{"port": 1}]}});
    let file = cluster.lab.folder().join("mine.json");
    std::fs::write(&file, mine.to_string()).unwrap();
    let said = cluster.kubectl(&["create", "-f", &file.display().to_string()]).await;
    assert_eq!(said.code, 0, "{said:?}");
    set(cluster, json!({"agents": {"runAs": "HostServices"}, "configServer": {"access": "Everybody"}})).await;
    cluster
        .wait("the agents' pods and the right to tokens are gone", async || {
            let tokens = [
                "-n",
                "machine-config-boot-tokens",
                "get",
                "role",
                "machine-config-server",
                "--ignore-not-found",
            ];
            let gone = own_object(cluster, "daemonset", "machine-config-daemon").await.is_null()
                && cluster.kubectl(&tokens).await.out.is_empty();
            gone.then_some(())
        })
        .await;
    assert!(!own_object(cluster, "service", "mine").await.is_null(), "the operator did not make it");
    assert!(
        !own_object(cluster, "deployment", "machine-config-operator").await.is_null(),
        "the operator never deletes itself"
    );
    says(cluster, "Degraded", "False", &[]).await;
}

/// With managementState Unmanaged, the installation is left as it is.
async fn leaves_alone(cluster: &Cluster) {
    set(cluster, json!({"managementState": "Unmanaged"})).await;
    says(cluster, "Progressing", "False", &["Unmanaged"]).await;
    let said = cluster.kubectl(&["-n", NAMESPACE, "delete", "service", "machine-config-server"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(
        own_object(cluster, "service", "machine-config-server").await.is_null(),
        "it is not created again"
    );
    set(cluster, json!({"managementState": "Managed"})).await;
    cluster
        .wait("it is made again", async || {
            (!own_object(cluster, "service", "machine-config-server").await.is_null()).then_some(())
        })
        .await;
}

/// The parts log as MachineConfiguration `cluster` asks, and as before when it does not any more.
async fn logs_as_asked(cluster: &Cluster) {
    for (level, more) in [("Debug", true), ("Normal", false)] {
        cluster.patch("MachineConfiguration", "cluster", json!({"spec": {"operatorLogLevel": level}})).await;
        for (kind, name) in
            [("deployment", "machine-config-controller"), ("daemonset", "machine-config-server")]
        {
            cluster
                .wait(&format!("{kind} {name} logs at level {level}"), async || {
                    let object = own_object(cluster, kind, name).await;
                    let args = object.pointer("/spec/template/spec/containers/0/args")?.as_array()?;
                    let logs = |argument: &Value| {
                        argument
                            .as_str()
                            .is_some_and(|a| a.starts_with("--log=info,") && a.contains("=debug"))
                    };
                    (args.iter().any(logs) == more).then_some(())
                })
                .await;
        }
    }
    says(cluster, "Degraded", "False", &[]).await;
}

//! Controller, config server and operator as a cluster runs them: what the operator installs, and each part
//! with its service account's token and no other right, through a rollout and a boot. The operator keeps working:
//! objects that somebody deletes are created again, and changes of the inputs of user data are followed.
//!
//! It needs the control plane's programs and the program `mco` (`cargo build -p cli`). The pods' programs run as plain
//! processes, not in pods.

use crate::parts::{Part, free_address, speak_as};
use crate::product::controllers::Controller;
use crate::product::{Cluster, condition, lab, machine_config, one_file, text};
use crate::support;
use crate::support::{Answer, connect_as};
use api::first_boot::boot_token::{ENTROPY, Record, Token};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

const NAMESPACE: &str = "openshift-machine-config-operator";
const PROVIDER: &str = "openshift-machine-api";
const SERVING: &str = "machine-config-server-tls";
const CA: &str = "machine-config-server-ca";
/// With `99-` and `-generated-kubelet` added, this name is longer than a finalizer may be.
const LONG: &str = "a-pool-whose-name-says-at-length-what-its-machines-are-for";

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [system:serviceaccounts]
";

/// The config server's access setting in the installed objects.
fn access(list: &Value) -> String {
    let mut all = list["items"].as_array().unwrap().iter();
    text(&all.find(|o| o["kind"] == "MachineConfigOperator").unwrap()["spec"]["configServer"]["access"])
}

async fn secret(cluster: &Cluster, namespace: &str, name: &str) -> Option<Secret> {
    Api::<Secret>::namespaced(cluster.client.clone(), namespace).get_opt(name).await.unwrap()
}

/// Waits for one field of a Secret.
async fn field(cluster: &Cluster, namespace: &str, name: &str, key: &str) -> Vec<u8> {
    let what = format!("Secret {namespace}/{name} has {key}");
    let read = async || secret(cluster, namespace, name).await?.data?.remove(key).map(|b| b.0);
    cluster.wait(&what, read).await
}

/// The user data of a pool, parsed.
async fn user_data(cluster: &Cluster, pool: &str) -> Value {
    let bytes = field(cluster, PROVIDER, &format!("{pool}-user-data-managed"), "userData").await;
    serde_json::from_slice(&bytes).unwrap()
}

fn trusted(user_data: &Value) -> String {
    user_data["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The requests of our service accounts in the audit log: account, verb, resource, and the status code of the answer.
fn audited(path: &Path) -> Vec<(String, String, u64)> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    lines
        .filter_map(|line| {
            let user = line["user"]["username"].as_str()?;
            let account = user.strip_prefix("system:serviceaccount:openshift-machine-config-operator:")?;
            let of = |key: &str| text_of(&line["objectRef"][key]);
            let what = format!(
                "{} {} {}/{} {}",
                text_of(&line["verb"]),
                of("apiGroup"),
                of("resource"),
                of("subresource"),
                of("name")
            );
            Some((account.to_owned(), what, line["responseStatus"]["code"].as_u64().unwrap_or_default()))
        })
        .collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Boots into a pool with its user data: status and config.
async fn boot(addr: SocketAddr, ca: &[u8], user_data: &Value) -> (u16, Value) {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(ca).unwrap()).unwrap();
    let merge = &user_data["ignition"]["config"]["merge"][0];
    let path = format!("/config/{}", merge["source"].as_str().unwrap().rsplit('/').next().unwrap());
    let header = &merge["httpHeaders"][0];
    let config = support::client(rustls::DEFAULT_VERSIONS, roots).unwrap();
    let here = std::net::Ipv4Addr::LOCALHOST.into();
    let stream = connect_as("api.lab.test", here, addr, config).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: api.lab.test\r\nConnection: close\r\n{}: {}\r\n\
        Accept: application/vnd.coreos.ignition+json;version=3.5.0\r\n\r\n",
        header["name"].as_str().unwrap(),
        header["value"].as_str().unwrap(),
    );
    let answer = Answer::to(stream, &head).await.unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_component_works_with_its_own_rights_and_no_others() {
    let Some(builder) = lab() else { return };
    let dir = tempfile::tempdir().unwrap();
    let audit = dir.path().join("audit.log");
    std::fs::write(dir.path().join("policy.yaml"), POLICY).unwrap();
    let flag = |flag: &str, file: &str| format!("--{flag}={}", dir.path().join(file).display());
    let flags = [
        flag("audit-policy-file", "policy.yaml"),
        flag("audit-log-path", "audit.log"),
        "--audit-log-mode=blocking".to_owned(),
        // As on OpenShift: to create an object with an owner, an account must have permissions on the owner.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement,NodeRestriction".to_owned(),
    ];
    let builder =
        builder.nodes(2).simulated().reboot_time(Duration::from_millis(50)).controller_manager(true);
    let cluster = Cluster::start(builder.api_server_args(flags)).await;
    let said = cluster
        .mco(&[
            "install",
            "--openshift-config-crds",
            "--image=registry.example.com/mco:1",
            "--api-server-url=https://api.lab.test:6443",
            "--no-wait",
        ])
        .await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("apply Deployment machine-config-operator"), "{}", said.out);
    assert!(said.out.contains("apply MachineConfigOperator cluster"), "{}", said.out);

    // kubectl, which refuses unknown fields, must accept the same. (It cannot check our own kinds: they are so new that
    // it does not have their schemas yet.)
    let url = "--api-server-url=https://api.lab.test:6443";
    let said = cluster.mco(&["install", "--image=x", url, "--dry-run", "-o", "json"]).await;
    let mut list: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(access(&list), "BootTokens");
    let ours = |o: &Value| {
        let group = text(&o["apiVersion"]);
        group.starts_with("machineconfiguration.openshift.io/") || group.starts_with("machineconfig.dev/")
    };
    list["items"].as_array_mut().unwrap().retain(|o| !ours(o));
    let file = dir.path().join("install.json");
    std::fs::write(&file, list.to_string()).unwrap();
    let file = file.display().to_string();
    let strict = ["--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict"];
    let said = cluster.kubectl(&[&["apply", "-f", &file], &strict[..]].concat()).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("deployment.apps/machine-config-operator serverside-applied"), "{}", said.out);

    // A boot token in the namespace of the previous version: `mco install` moves it, and names it in the permissions.
    let old = Token::new(&[9; ENTROPY]);
    let mut old = Record::new(&old, "worker").to_secret();
    old.metadata.namespace = Some(NAMESPACE.to_owned());
    let name = old.name_any();
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let tokens: Api<Secret> = Api::namespaced(cluster.client.clone(), api::first_boot::boot_token::NAMESPACE);
    let roles: Api<Role> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &old).await.unwrap();
    let said = cluster.mco(&["install", "--image=registry.example.com/mco:1", url, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(tokens.get_opt(&name).await.unwrap().is_some(), "it is moved");
    for part in ["operator", "server"] {
        let role = roles.get(&format!("machine-config-{part}-token-move")).await.unwrap();
        let rules = role.rules.unwrap();
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].resource_names, Some(vec![name.clone()]), "{part}");
    }

    // The operator creates what the server's pod waits for.
    let operator_account = speak_as(&cluster, dir.path(), "machine-config-operator").await;
    let operator = Part::start(dir.path(), "operator", &operator_account, &["operator", "start"]);
    let pem = field(&cluster, NAMESPACE, SERVING, "tls.crt").await;
    let token = field(&cluster, NAMESPACE, "node-bootstrapper-token", "token").await;

    // The token is revoked: the operator removes the old Secret, and with it its own permissions there.
    tokens.delete(&name, &DeleteParams::default()).await.unwrap();
    cluster
        .wait("the old token and the rights to it are gone", async || {
            let role = async |part: &str| roles.get_opt(&format!("machine-config-{part}-token-move")).await;
            let gone = secrets.get_opt(&name).await.unwrap().is_none()
                && role("operator").await.unwrap().is_none()
                && role("server").await.unwrap().is_none();
            gone.then_some(())
        })
        .await;

    // The operator creates everything else from the settings.
    cluster
        .wait("the operator waits for the controller's pods", async || {
            let settings = cluster.get("MachineConfigOperator", "cluster").await;
            condition(&settings, "Progressing").filter(|m| m.contains("Deployment machine-config-controller"))
        })
        .await;

    // The controller takes the nodes through a rollout that drains a pod.
    let account = speak_as(&cluster, dir.path(), "machine-config-controller").await;
    let controller = Controller::with(&cluster, "mco-controller-as-pod", &account, &[], &[]);
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "guest"},
        "spec": {
            "nodeName": "worker-0", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "example.com/c"}],
        },
    }))
    .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "default");
    cluster.wait("pods can be made", async || accounts.get_opt("default").await.ok()?.map(drop)).await;
    pods.create(&PostParams::default(), &pod).await.unwrap();
    cluster.create(machine_config("50-motd", "worker", one_file("/etc/hello", "hello"))).await;
    cluster.settled("worker", 2, &["50-motd"], &[]).await;
    assert!(pods.get_opt("guest").await.unwrap().is_none(), "the drain evicts it");

    // A KubeletConfig for a pool with a long name, and its removal.
    let layers = json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/template-layers": "kubeadm"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", layers).await;
    cluster.add_pool(LONG, &[]).await;
    cluster.patch("MachineConfigPool", LONG, json!({"metadata": {"labels": {"settings": "long"}}})).await;
    cluster
        .create(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
            "metadata": {"name": "long"},
            "spec": {
                "machineConfigPoolSelector": {"matchLabels": {"settings": "long"}},
                "kubeletConfig": {"maxPods": 111},
            },
        }))
        .await;
    let made = format!("99-{LONG}-generated-kubelet");
    cluster
        .wait("the settings are made", async || {
            (!cluster.get("MachineConfig", &made).await.is_null()).then_some(())
        })
        .await;
    let held = cluster.get("KubeletConfig", "long").await["metadata"]["finalizers"].clone();
    let finalizer = text(&held[0]);
    assert!(finalizer.len() <= 63 && finalizer.starts_with("99-a-pool-"), "{held}");
    cluster.delete("KubeletConfig", "long").await;
    cluster
        .wait("the settings are gone", async || {
            let gone = async |kind, name| cluster.get(kind, name).await.is_null();
            (gone("KubeletConfig", "long").await && gone("MachineConfig", &made).await).then_some(())
        })
        .await;

    // The server serves the proved config to a client with the token from the user data.
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let folder = |name: &str| {
        let folder = dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    };
    let (certs, tokens) = (folder("certs"), folder("token"));
    std::fs::write(certs.join("tls.crt"), &pem).unwrap();
    std::fs::write(certs.join("tls.key"), field(&cluster, NAMESPACE, SERVING, "tls.key").await).unwrap();
    std::fs::write(tokens.join("token"), &token).unwrap();
    std::fs::write(
        tokens.join("ca.crt"),
        field(&cluster, NAMESPACE, "node-bootstrapper-token", "ca.crt").await,
    )
    .unwrap();
    let server_account = speak_as(&cluster, dir.path(), "machine-config-server").await;
    let metrics = free_address();
    let args = [
        "server".to_owned(),
        "start".to_owned(),
        "--apiserver-url=https://api.lab.test:6443".to_owned(),
        format!("--secure-port={port}"),
        "--insecure-port=0".to_owned(),
        "--metrics-listen=off".to_owned(),
        format!("--metrics-secure-listen={metrics}"),
        format!("--metrics-cert={}", certs.join("tls.crt").display()),
        format!("--metrics-key={}", certs.join("tls.key").display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert={}", certs.join("tls.crt").display()),
        format!("--key={}", certs.join("tls.key").display()),
        format!("--bootstrap-token-dir={}", tokens.display()),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let asking = [&args[..], &["--require-token"]].concat();
    let server = Part::start(dir.path(), "server", &server_account, &asking);
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    cluster
        .wait("the server listens", async || tokio::net::TcpStream::connect(addr).await.ok().map(drop))
        .await;
    let ca = field(&cluster, NAMESPACE, CA, "tls.crt").await;
    let worker = user_data(&cluster, "worker").await;
    let config = cluster
        .wait("the pool's config is served", async || {
            let (status, config) = boot(addr, &ca, &worker).await;
            (status == 200).then_some(config)
        })
        .await;
    let files = config["storage"]["files"].as_array().unwrap();
    assert!(files.iter().any(|f| f["path"] == "/etc/hello"));
    let kubeconfig = files.iter().find(|f| f["path"] == "/etc/kubernetes/kubeconfig").unwrap();
    assert!(
        kubeconfig.to_string().contains(&String::from_utf8(token).unwrap()),
        "machines speak as the bootstrapper"
    );

    metrics_are_for_who_may_read_them(&cluster, metrics, &ca).await;
    operator_follows(&cluster).await;

    // Without boot tokens everything still works, with fewer permissions.
    let mut logs = vec![operator.stop().await, server.stop().await];
    let said = cluster.mco(&["install", "--image=x", url, "--open", "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    // Once access is open, it stays open until an administrator changes it.
    let said = cluster.mco(&["install", "--image=x", url, "--dry-run", "-o", "json"]).await;
    assert_eq!(access(&serde_json::from_str(&said.out).unwrap()), "Everybody");
    let operator = Part::start(dir.path(), "operator-2", &operator_account, &["operator", "start"]);
    let server = Part::start(dir.path(), "server-2", &server_account, &args);
    cluster
        .wait("the server serves without tokens", async || {
            tokio::net::TcpStream::connect(addr).await.ok()?;
            let mut open = worker.clone();
            open["ignition"]["config"]["merge"][0]["httpHeaders"] = json!([{"name": "X-None", "value": "x"}]);
            (boot(addr, &ca, &open).await.0 == 200).then_some(())
        })
        .await;
    let provider: Api<Secret> = Api::namespaced(cluster.client.clone(), PROVIDER);
    provider.delete("worker-user-data-managed", &DeleteParams::default()).await.unwrap();
    assert!(!user_data(&cluster, "worker").await.to_string().contains("Authorization"));

    // No request was refused, and nothing reports a refusal.
    logs.extend([operator.stop().await, server.stop().await, controller.log()]);
    controller.stop().await;
    for log in logs {
        assert!(!log.contains("forbidden"), "{log}");
    }
    let asked = audited(&audit);
    for part in ["machine-config-controller", "machine-config-operator", "machine-config-server"] {
        let of: BTreeSet<_> = asked.iter().filter(|(who, ..)| who == part).collect();
        assert!(of.len() > 5, "{part}: {of:?}");
        let refused: Vec<_> = of.iter().filter(|(_, _, code)| *code == 403).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
    cluster.stop().await;
}

/// The API server authenticates and authorises scrapers: an account gets the server's metrics once a role allows it,
/// and nobody gets them without a token.
async fn metrics_are_for_who_may_read_them(cluster: &Cluster, address: SocketAddr, ca: &[u8]) {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "prometheus", "namespace": "default"},
    });
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "default");
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let made = accounts.create_token_request("prometheus", &PostParams::default(), &request).await.unwrap();
    let token = made.status.unwrap().token;
    assert_eq!(scrape(address, ca, None).await.0, 401);
    assert_eq!(scrape(address, ca, Some("made-up")).await.0, 401);
    let (code, said) = scrape(address, ca, token.as_deref()).await;
    assert_eq!((code, said.as_str()), (403, ""), "it may not yet");
    let rbac = "rbac.authorization.k8s.io";
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "scraper"}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }))
    .unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "scraper"},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
    }))
    .unwrap();
    Api::all(cluster.client.clone()).create(&PostParams::default(), &role).await.unwrap();
    Api::all(cluster.client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let told = cluster
        .wait("the scraper gets metrics", async || {
            let (code, said) = scrape(address, ca, token.as_deref()).await;
            (code == 200).then_some(said)
        })
        .await;
    assert!(told.contains("mcs_source_up 1"), "{told}");
}

/// Fetches `/metrics` by HTTPS: status and body.
async fn scrape(address: SocketAddr, ca: &[u8], token: Option<&str>) -> (u16, String) {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(ca).unwrap()).unwrap();
    let config = support::client(rustls::DEFAULT_VERSIONS, roots).unwrap();
    let stream = connect_as("api.lab.test", Ipv4Addr::LOCALHOST.into(), address, config).await.unwrap();
    let header = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: api.lab.test\r\nConnection: close\r\n{header}\r\n");
    let answer = Answer::to(stream, &head).await.unwrap();
    (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
}

/// The operator keeps running: deleted objects are created again, and user data follows the server's certificate.
async fn operator_follows(cluster: &Cluster) {
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let provider: Api<Secret> = Api::namespaced(cluster.client.clone(), PROVIDER);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);

    // A new pool gets user data, and a deleted one blocks nothing.
    user_data(cluster, LONG).await;

    // A new serving certificate of the same CA.
    let before = field(cluster, NAMESPACE, SERVING, "tls.crt").await;
    let trust = trusted(&user_data(cluster, "worker").await);
    secrets.delete(SERVING, &DeleteParams::default()).await.unwrap();
    let after = field(cluster, NAMESPACE, SERVING, "tls.crt").await;
    assert!(before != after, "the certificate is a new one");
    assert_eq!(trusted(&user_data(cluster, "worker").await), trust, "the CA is the same");

    // User data that somebody deletes or overwrites.
    let name = "worker-user-data-managed";
    let original = user_data(cluster, "worker").await;
    provider.delete(name, &DeleteParams::default()).await.unwrap();
    assert_eq!(trusted(&user_data(cluster, "worker").await), trusted(&original));

    // The CA: everything follows it, including the machines' user data.
    let bundle = async || maps.get_opt(CA).await.unwrap().and_then(|m| m.data?.remove("ca-bundle.crt"));
    let old = bundle().await.unwrap();
    let lost = secrets.get(CA).await.unwrap().resource_version();
    secrets.delete(CA, &DeleteParams::default()).await.unwrap();
    cluster
        .wait("there is another CA, and machines are told", async || {
            let new = secrets.get_opt(CA).await.unwrap()?;
            let told = trusted(&user_data(cluster, "worker").await);
            (new.resource_version() != lost && bundle().await? != old && told != trust).then_some(())
        })
        .await;
    let again = field(cluster, NAMESPACE, SERVING, "tls.crt").await;
    assert!(
        again == after,
        "machines with the old CA still connect: their CA's certificate stays for a week"
    );

    // An additional name by which machines reach the server: the certificate is made for it too.
    let uri =
        json!({"spec": {"infra": {"status": {"apiServerInternalURI": "https://api-int.example.com:6443"}}}});
    cluster.patch("ControllerConfig", "machine-config-controller", uri).await;
    cluster
        .wait("the certificate is for the new name, and machines are told it", async || {
            let pem = field(cluster, NAMESPACE, SERVING, "tls.crt").await;
            let told = user_data(cluster, "worker").await.to_string().contains("api-int.example.com:22623");
            (pem != again && told).then_some(())
        })
        .await;
}

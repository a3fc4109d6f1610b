//! Monitoring as the operator sets it up: ServiceMonitors and alerts once their kinds are installed, dashboards when the
//! settings ask for them, and certificates that a scraper can verify.
//!
//! Not here: the alerts and the dashboards themselves (`monitoring`).

use crate::installation::{installed, own_object, says, set};
use crate::parts::{Part, free_address};
use crate::product::{Cluster, text};
use crate::support::{self, Answer, connect_as};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

const PARTS: [&str; 4] = [
    "machine-config-controller",
    "machine-config-daemon",
    "machine-config-operator",
    "machine-config-server",
];

/// A CRD of the Prometheus operator that accepts any fields.
fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com"),
            // The API server requires the approval annotation for CRDs in Kubernetes' own groups only; this group is not one of
            // them.
            "annotations": {}},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// The fields of a Secret.
pub(crate) async fn secret(cluster: &Cluster, name: &str, key: &str) -> Vec<u8> {
    cluster
        .wait(&format!("Secret {name} has {key}"), async || {
            let data = text(&own_object(cluster, "secret", name).await["data"][key]);
            STANDARD.decode(data).ok().filter(|bytes| !bytes.is_empty())
        })
        .await
}

/// What a scraper gets that trusts this bundle and connects by this name. `None`: the certificate is not valid for it.
async fn scrape(address: SocketAddr, bundle: &str, name: &str, token: Option<&str>) -> Option<(u16, String)> {
    ask(address, bundle, name, "/metrics", token).await
}

/// The same for any path.
pub(crate) async fn ask(
    address: SocketAddr,
    bundle: &str,
    name: &str,
    path: &str,
    token: Option<&str>,
) -> Option<(u16, String)> {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = support::client(rustls::DEFAULT_VERSIONS, roots).unwrap();
    let server: &'static str = name.to_owned().leak();
    let stream = connect_as(server, IpAddr::from(Ipv4Addr::LOCALHOST), address, config).await.ok()?;
    let token = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n{token}\r\n");
    let answer = Answer::to(stream, &head).await.ok()?;
    Some((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
}

async fn keep_files(cluster: &Cluster, dir: &Path) {
    for key in ["tls.key", "tls.crt"] {
        let bytes = secret(cluster, "machine-config-operator-metrics-tls", key).await;
        std::fs::write(dir.join(key), bytes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapers_find_every_component_and_can_verify_its_certificate() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    let address = free_address();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let args = [
        "operator".to_owned(),
        "start".to_owned(),
        format!("--metrics-secure-listen={address}"),
        format!("--metrics-cert={}", file("tls.crt")),
        format!("--metrics-key={}", file("tls.key")),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let operator = Part::start(dir.path(), "operator", &account, &args);
    set(&cluster, json!({"agents": {"runAs": "Pods"}})).await;
    says(&cluster, "Available", "True", &[]).await;
    keep_files(&cluster, dir.path()).await;
    assert!(
        own_object(&cluster, "serviceaccount", "machine-config-metrics-reader").await.is_null(),
        "nobody scrapes yet"
    );

    // The kinds are installed after the operator.
    for (plural, kind) in [("servicemonitors", "ServiceMonitor"), ("prometheusrules", "PrometheusRule")] {
        cluster.create(definition(plural, kind)).await;
    }
    let rule = "machine-config-operator";
    let monitors = async || {
        let list = ["-n", "openshift-machine-config-operator", "get", "servicemonitors", "-o", "json"];
        let list: Value = serde_json::from_str(&cluster.kubectl(&list).await.out).unwrap_or_default();
        let mut names: Vec<String> =
            list["items"].as_array().into_iter().flatten().map(|o| text(&o["metadata"]["name"])).collect();
        names.sort();
        names
    };
    cluster
        .wait("the parts' ServiceMonitors and the alerts", async || {
            let rule = own_object(&cluster, "prometheusrule", rule).await;
            (monitors().await == PARTS && rule["spec"]["groups"].is_array()).then_some(())
        })
        .await;

    // As Prometheus does: with the CA, the name and the token from the ServiceMonitor.
    let monitor = own_object(&cluster, "servicemonitor", "machine-config-operator").await;
    let endpoint = &monitor["spec"]["endpoints"][0];
    let (ca, name) = (&endpoint["tlsConfig"]["ca"]["configMap"], text(&endpoint["tlsConfig"]["serverName"]));
    let bundle = text(&own_object(&cluster, "configmap", &text(&ca["name"])).await["data"][text(&ca["key"])]);
    assert!(bundle.starts_with("-----BEGIN CERTIFICATE-----"), "{bundle}");
    let token = &endpoint["authorization"]["credentials"];
    let token = secret(&cluster, &text(&token["name"]), &text(&token["key"])).await;
    let token = String::from_utf8(token).unwrap();
    let metrics = cluster
        .wait("the operator is scraped with its certificate verified", async || {
            scrape(address, &bundle, &name, Some(&token)).await.filter(|(status, _)| *status == 200)
        })
        .await;
    assert!(metrics.1.contains("mco_operator_leader 1"), "{}", metrics.1);
    let status =
        async |name: &str, token: Option<&str>| scrape(address, &bundle, name, token).await.map(|a| a.0);
    assert_eq!(status(&name, None).await, Some(401), "a verified certificate grants no permission");
    assert_eq!(status(&name, Some("guessed")).await, Some(401));
    assert_eq!(
        status("machine-config-server.openshift-machine-config-operator.svc", Some(&token)).await,
        None
    );

    // The settings now ask for dashboards, and no longer for Prometheus objects.
    let dashboards = [
        "-n",
        "openshift-machine-config-operator",
        "get",
        "configmaps",
        "-l",
        "grafana_dashboard=1",
        "-o",
        "name",
    ];
    let dashboards = async || cluster.kubectl(&dashboards).await.out.lines().count();
    assert_eq!(dashboards().await, 0);
    set(&cluster, json!({"monitoring": {"dashboards": "ConfigMaps", "prometheus": "Never"}})).await;
    cluster
        .wait("dashboards are there, and nothing for Prometheus", async || {
            let reader = own_object(&cluster, "serviceaccount", "machine-config-metrics-reader").await;
            let rule = own_object(&cluster, "prometheusrule", rule).await;
            let gone = monitors().await.is_empty() && rule.is_null() && reader.is_null();
            (gone && dashboards().await == 4).then_some(())
        })
        .await;
    set(&cluster, json!({"monitoring": {"prometheus": "WhereServed"}})).await;
    cluster.wait("they are back", async || (monitors().await == PARTS).then_some(())).await;

    // The kinds are deleted, and their objects with them: the operator does not count that as a failure.
    for plural in ["servicemonitors", "prometheusrules"] {
        cluster.delete("CustomResourceDefinition", &format!("{plural}.monitoring.coreos.com")).await;
    }
    set(&cluster, json!({"monitoring": {"dashboards": "Never"}})).await;
    cluster.wait("the dashboards are gone", async || (dashboards().await == 0).then_some(())).await;
    says(&cluster, "Degraded", "False", &[]).await;
    let log = operator.stop().await;
    assert!(!log.contains("forbidden"), "{log}");
    cluster.stop().await;
}

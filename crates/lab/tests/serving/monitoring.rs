//! Monitoring with a real Prometheus (Debian's): each alert fires and stays quiet as `alerts.yaml` says, and each query
//! of the dashboards gets an answer after a rollout that was scraped.
//!
//! Not here: Grafana, which no package registry has (docs/development.md). A unit test of `operator::monitoring` checks the
//! dashboards against its JSON model.
//!
//! Prometheus scrapes an agent and a config server as it does in a cluster: by HTTPS, with an account's token that the API
//! server reviews. Fake: the dashboards' other data comes from static texts, with one series of each metric.

use crate::parts::{Part, free_address};
use crate::product::controllers::Controller;
use crate::product::{Cluster, defined, machine_config, one_file};
use crate::prometheus::{self, query};
use daemon::StartOptions;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use listen::Addresses;
use operator::monitoring::{dashboards, rule_groups};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The namespace of the scraper's account.
const PLACE: &str = "openshift-machine-config-operator";
/// Queries that have results only while nodes are being updated or drains are blocked.
const EMPTY_AT_REST: [&str; 2] = ["Nodes being updated, the longest first", "Drains that wait for pods"];

/// Serves this text in answer to every request.
async fn sample(text: String) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/openmetrics-text; version=1.0.0";
            let _ = stream
                .write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len()).as_bytes())
                .await;
        }
    });
    address
}

async fn promtool(folder: &Path, args: &[&str]) -> Result<(), String> {
    let output = Command::new(folder.join("usr/bin/promtool")).args(args).current_dir(folder).output().await;
    let output = output.map_err(|e| e.to_string())?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_fire_and_dashboards_are_filled() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !prometheus::unpacked(folder).await {
        return;
    }
    alerts(folder).await;

    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(3).simulated().reboot_time(Duration::from_millis(50))).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let metrics = free_address();
    let kubeconfig = cluster.lab.control_plane().kubeconfig().to_owned();
    let args = ["--leader-elect=false", &format!("--metrics-listen={metrics}")];
    let controller = Controller::with(&cluster, "mco-controller-scraped", &kubeconfig, &args, &[]);
    let agent = sample(daemon::metrics_sample().unwrap()).await;
    let server = sample(server::metrics_sample().unwrap()).await;
    let listen = free_address();
    let secure = Secure::start(&cluster, folder, &kubeconfig).await;
    let job = |name: &str, address: SocketAddr| json!({"job_name": name, "static_configs": [{"targets": [address.to_string()]}]});
    let config = json!({
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": ["all.yaml"],
        "scrape_configs": [
            job("machine-config-controller", metrics),
            job("machine-config-daemon", agent),
            job("machine-config-server", server),
            secure.job("agent-https", secure.agent, "token"),
            secure.job("server-https", secure.server, "token"),
            secure.job("agent-refused", secure.agent, "other-token"),
            secure.job("server-refused", secure.server, "other-token"),
        ],
    });
    let _prometheus = prometheus::start(folder, listen, &config);

    cluster.settled("worker", 3, &["00-worker"], &[]).await;
    cluster.create(machine_config("50-motd", "worker", one_file("/etc/hello", "hello"))).await;
    cluster.settled("worker", 3, &["50-motd"], &[]).await;
    cluster
        .wait("Prometheus has seen the end of the rollout, twice", async || {
            let updated = query(listen, "mco_updated_machine_count{pool=\"worker\"} == 3").await.ok()?;
            let leads = query(listen, "count_over_time(mcc_leader[1m]) > 2").await.ok()?;
            (updated.len() == 1 && leads.len() == 1).then_some(())
        })
        .await;
    secure.is_scraped(&cluster, listen).await;
    crate::image_metrics::are_scraped(&cluster, listen).await;
    let (mut asked, mut empty) = (0, vec![]);
    for dashboard in dashboards() {
        let panels = dashboard.model["panels"].as_array().unwrap();
        for panel in panels {
            let title = panel["title"].as_str().unwrap();
            for target in panel["targets"].as_array().unwrap() {
                let expr = target["expr"].as_str().unwrap().replace("$pool", ".*").replace("$instance", ".*");
                let found = query(listen, &expr).await.unwrap_or_else(|e| panic!("{title}: {expr}: {e}"));
                if found.is_empty() && !EMPTY_AT_REST.contains(&title) {
                    empty.push(format!("{title}: {expr}"));
                }
                asked += 1;
            }
        }
    }
    assert_eq!(empty, Vec::<String>::new(), "queries without a series");
    assert!(asked > 25, "{asked}");
    let firing = query(
        listen,
        "ALERTS{alertstate=\"firing\",severity=\"critical\",alertname!=\"MCSCertificateEnds\"}",
    )
    .await;
    assert_eq!(firing.unwrap(), Vec::<Value>::new(), "nothing is wrong");
    a_bug_report_has_everything_but_secrets(&cluster, folder).await;
    controller.stop().await;
    cluster.stop().await;
}

/// `mco bundle` on a cluster with a secret in every place that can hold one.
async fn a_bug_report_has_everything_but_secrets(cluster: &Cluster, folder: &Path) {
    const SEEDED: &str = "hunter2-Zx81Qp0-s3cr3t";
    let mut config = one_file("/etc/app.conf", &format!("anything-{SEEDED}"));
    config["systemd"] = json!({"units": [{"name": "app.service", "contents": format!("[Service]\nEnvironment=A={SEEDED}\n")}]});
    cluster.create(machine_config("60-secret", "worker", config)).await;
    let rendered = cluster.settled("worker", 3, &["60-secret"], &[]).await;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "of-somebody", "annotations": {"note": SEEDED}}, "stringData": {"key-of-it": SEEDED},
    }))
    .unwrap();
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "of-somebody"}, "data": {"settings": format!("free text {SEEDED}")},
    }))
    .unwrap();
    Api::namespaced(cluster.client.clone(), PLACE).create(&PostParams::default(), &secret).await.unwrap();
    Api::namespaced(cluster.client.clone(), PLACE).create(&PostParams::default(), &map).await.unwrap();
    let archive = folder.join("report.tar.gz").display().to_string();
    let said = cluster.mco(&["bundle", "-f", &archive]).await;
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert_eq!(said.out, format!("{archive}\n"));
    let output = Command::new("tar").args(["-xzOf", &archive]).output().await.unwrap();
    let all = String::from_utf8(output.stdout).unwrap();
    assert!(!all.contains("hunter2") && !all.contains("s3cr3t"), "a secret is in it");
    for word in [
        rendered.as_str(),
        "/etc/app.conf",
        "app.service",
        "key-of-it",
        "kind: Node",
        "kind: MachineConfigPool",
        "updated: 3",
    ] {
        assert!(all.contains(word), "{word} is not in it");
    }
    let said = cluster.mco(&["bundle", "-f", &archive]).await;
    assert_eq!(said.code, 1, "an existing file is not overwritten: {said:?}");
}

/// The rules are valid, and each alert fires and stays quiet as its test says.
async fn alerts(folder: &Path) {
    let all = rule_groups();
    std::fs::write(folder.join("all.yaml"), all.to_string()).unwrap();
    promtool(folder, &["check", "rules", "all.yaml"]).await.unwrap();
    // Tests of promtool have to repeat annotations, so the rules are tested without them.
    let mut bare = all.clone();
    for group in bare["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            rule.as_object_mut().unwrap().remove("annotations");
        }
    }
    std::fs::write(folder.join("rules.yaml"), bare.to_string()).unwrap();
    let (short, long) = (include_str!("alerts.yaml"), include_str!("alerts_long.yaml"));
    for tests in [short, long] {
        std::fs::write(folder.join("alerts.yaml"), tests).unwrap();
        promtool(folder, &["test", "rules", "alerts.yaml"]).await.unwrap();
    }
    let names: BTreeSet<&str> = operator::monitoring::ALERTS.iter().map(|a| a.name).collect();
    for name in names {
        for word in ["fires", "is quiet"] {
            let test = format!("- name: {name} {word}\n");
            assert!(short.contains(&test) || long.contains(&test), "{name} {word}: no test");
        }
    }
}

/// An agent and a config server with metrics over HTTPS only, and an account that may read them.
struct Secure {
    folder: PathBuf,
    agent: SocketAddr,
    server: SocketAddr,
    _server: Part,
    _stop: DropGuard,
}

impl Secure {
    /// The name in the certificate.
    const NAME: &str = "metrics.openshift-machine-config-operator.svc";

    async fn start(cluster: &Cluster, folder: &Path, kubeconfig: &Path) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([Self::NAME.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "metrics");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate = write("metrics.crt", &params.self_signed(&key).unwrap().pem());
        let key = write("metrics.key", &key.serialize_pem());
        let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": PLACE}});
        let rbac = "rbac.authorization.k8s.io";
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            account("prometheus"), account("somebody"),
            {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "scraper"},
                "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]},
            {"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "scraper"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "scraper"},
                "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": PLACE}]},
        ]});
        let file = write("scraper.json", &list.to_string()).display().to_string();
        let said = cluster.kubectl(&["create", "-f", &file]).await;
        assert_eq!(said.code, 0, "{said:?}");
        for (account, name) in [("prometheus", "token"), ("somebody", "other-token")] {
            let said = cluster.kubectl(&["-n", PLACE, "create", "token", account]).await;
            assert_eq!(said.code, 0, "{said:?}");
            write(name, said.out.trim());
        }

        // The agent connects as its node, as agents do. There is no Node of this name, so it has nothing to do.
        let node = "no-node-of-this-cluster";
        let of_node =
            cluster.lab.control_plane().identity(&format!("system:node:{node}"), &["system:nodes"]).unwrap();
        let (agent, host) = (free_address(), folder.join("host"));
        std::fs::create_dir_all(&host).unwrap();
        let stop = CancellationToken::new();
        let options = StartOptions {
            kubeconfig: Some(of_node),
            root_mount: host,
            kubelet_healthz: None,
            metrics: Addresses {
                plain: None,
                secure: Some(agent),
                certificate: Some((certificate.clone(), key.clone())),
            },
            ..StartOptions::new(node)
        };
        tokio::spawn(daemon::start(options, stop.clone()));

        let (server, tokens) = (free_address(), folder.join("bootstrap"));
        std::fs::create_dir_all(&tokens).unwrap();
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        let args = [
            "server".to_owned(),
            "start".to_owned(),
            "--apiserver-url=https://api.lab.test:6443".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", free_address().port()),
            "--insecure-port=0".to_owned(),
            "--metrics-listen=off".to_owned(),
            format!("--metrics-secure-listen={server}"),
            file("metrics-cert", &certificate),
            file("metrics-key", &key),
            file("cert", &certificate),
            file("key", &key),
            file("bootstrap-token-dir", &tokens),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let running = Part::start(folder, "server-https", kubeconfig, &args);
        Self { folder: folder.to_owned(), agent, server, _server: running, _stop: stop.drop_guard() }
    }

    /// A Prometheus job that verifies the certificate and sends the token in this file.
    fn job(&self, name: &str, address: SocketAddr, token: &str) -> Value {
        json!({
            "job_name": name, "scheme": "https",
            "tls_config": {"ca_file": self.folder.join("metrics.crt"), "server_name": Self::NAME},
            "authorization": {"credentials_file": self.folder.join(token)},
            "static_configs": [{"targets": [address.to_string()]}],
        })
    }

    /// Prometheus has series of both, and gets nothing with the token of an account without permission.
    async fn is_scraped(&self, cluster: &Cluster, prometheus: SocketAddr) {
        for (job, series) in [("agent-https", "mcd_config_drift"), ("server-https", "mcs_source_up")] {
            let expr = format!("up{{job=\"{job}\"}} == 1 and on (job) {series}{{job=\"{job}\"}}");
            cluster
                .wait(&format!("Prometheus scrapes {job}"), async || {
                    let found = query(prometheus, &expr).await.ok()?;
                    (found.len() == 1).then_some(())
                })
                .await;
        }
        let refused = "count_over_time(up{job=~\".*-refused\"}[1m]) > 2 and max_over_time(up{job=~\".*-refused\"}[1m]) == 0";
        cluster
            .wait("both have refused an account without the right, each time", async || {
                let found = query(prometheus, refused).await.ok()?;
                (found.len() == 2).then_some(())
            })
            .await;
    }
}

//! The dashboard in the cluster: the operator installs it when the settings ask for it, and removes it again. With its own
//! account and no other permissions it shows a real cluster to people who may see it, over HTTPS that clients can verify, and
//! shows nothing to anybody else.
//!
//! Not here: the page (test program `browser`), and attacks on it (crate `dashboard`).

use crate::installation::{installed, operator, own_object, says, set};
use crate::parts::{Part, free_address, speak_as};
use crate::product::{Cluster, text};
use crate::scraping::{ask, secret};
use serde_json::{Value, json};
use std::path::Path;

const NAMESPACE: &str = "openshift-machine-config-operator";
const NAME: &str = "machine-config-dashboard";

/// A token for a person, played by a service account.
async fn token(cluster: &Cluster, dir: &Path, person: &str) -> String {
    let account = ["create", "serviceaccount", person, "-n", NAMESPACE];
    assert_eq!(cluster.kubectl(&account).await.code, 0);
    let file = speak_as(cluster, dir, person).await;
    let kubeconfig: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    text(&kubeconfig["users"][0]["user"]["token"])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_in_the_cluster_shows_the_fleet_to_who_may_see_it_and_to_nobody_else() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    let _operator = operator(dir.path(), "operator", &account);
    set(&cluster, json!({"dashboard": {"run": "InCluster", "hosts": ["mco.example.com"]}})).await;
    says(&cluster, "Available", "True", &[]).await;
    cluster
        .wait("the dashboard's Deployment", async || {
            let deployment = own_object(&cluster, "deployment", NAME).await;
            deployment.to_string().contains("--host=mco.example.com").then_some(())
        })
        .await;
    assert_eq!(own_object(&cluster, "service", NAME).await["spec"]["ports"][0]["port"], 443);
    for key in ["tls.key", "tls.crt"] {
        let bytes = secret(&cluster, &format!("{NAME}-metrics-tls"), key).await;
        std::fs::write(dir.path().join(key), bytes).unwrap();
    }
    let bundle = own_object(&cluster, "configmap", "machine-config-metrics-ca").await;
    let bundle = text(&bundle["data"][api::first_boot::server_tls::BUNDLE]);

    // With its pod's account, as its Deployment starts it.
    let own = speak_as(&cluster, dir.path(), NAME).await;
    let address = free_address();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let args = [
        "dashboard".to_owned(),
        "--in-cluster".to_owned(),
        format!("--listen={address}"),
        format!("--cert={}", file("tls.crt")),
        format!("--key={}", file("tls.key")),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let _part = Part::start(dir.path(), NAME, &own, &args);
    let (jane, joe) = (token(&cluster, dir.path(), "jane").await, token(&cluster, dir.path(), "joe").await);
    let subject = format!("--serviceaccount={NAMESPACE}:jane");
    let role = format!("--clusterrole={NAME}-viewer");
    let bound = ["create", "clusterrolebinding", "jane", &role, &subject];
    assert_eq!(cluster.kubectl(&bound).await.code, 0);

    let name = format!("{NAME}.{NAMESPACE}.svc");
    let get = async |path: &str, token: Option<&str>| ask(address, &bundle, &name, path, token).await;
    let shown = cluster
        .wait("jane sees the fleet", async || {
            let (status, text) = get("/api/snapshot", Some(&jane)).await?;
            (status == 200 && text.contains("\"worker-1\"")).then_some(text)
        })
        .await;
    assert!(shown.contains("\"worker\""), "{shown}");
    for path in
        ["/", "/app.js", "/api/nodes/worker-1", "/api/images", "/api/operator", "/api/trust", "/api/configs"]
    {
        let (status, text) = get(path, Some(&jane)).await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        assert!(!text.contains("may not"), "{path}: {text}");
        // Of boot tokens she sees the ids and the ends.
        assert_eq!(text.contains("\"singleUse\""), path == "/api/trust", "{path}: {text}");
        for (token, want) in [(Some(joe.as_str()), 403), (None, 401), (Some("guessed"), 401)] {
            let (status, text) = get(path, token).await.unwrap();
            assert_eq!(status, want, "{path}");
            assert!(!text.contains("worker-1") && !text.contains("rendered-"), "{path}: {text}");
        }
    }
    // With `kubectl` she cannot read any whole object that may contain a secret.
    for (kind, may) in [
        ("machineconfigs.machineconfiguration.openshift.io", "no"),
        ("controllerconfigs.machineconfiguration.openshift.io", "no"),
        ("pods", "no"),
        ("events", "no"),
        ("secrets", "no"),
        ("machineconfigpools.machineconfiguration.openshift.io", "yes"),
    ] {
        let who = format!("--as=system:serviceaccount:{NAMESPACE}:jane");
        let said = cluster.kubectl(&["auth", "can-i", "list", kind, "--all-namespaces", &who]).await;
        assert_eq!(said.out.trim(), may, "{kind}: {said:?}");
    }
    let elsewhere = format!("{}.svc", "machine-config-server.openshift-machine-config-operator");
    assert!(
        ask(address, &bundle, &elsewhere, "/", Some(&jane)).await.is_none(),
        "the certificate is for its name"
    );

    set(&cluster, json!({"dashboard": {"run": "Never"}})).await;
    cluster
        .wait("what was made for it is gone", async || {
            let mut there = false;
            for kind in ["deployment", "service", "serviceaccount", "networkpolicy"] {
                there |= !own_object(&cluster, kind, NAME).await.is_null();
            }
            there |= !cluster.get("ClusterRole", NAME).await.is_null();
            (!there).then_some(())
        })
        .await;
    cluster.stop().await;
}

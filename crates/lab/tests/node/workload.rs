//! A change that breaks the workload but not the node, on machines that boot: a shop on each node, a real Prometheus (Debian's)
//! that scrapes the shops, and a RolloutPolicy with a gate on Prometheus. One canary is hit and goes back by itself, and no
//! other node is touched. The corrected change goes through all waves.
//!
//! Not here: the other gates, approvals, and rollouts of many nodes (see `cluster/rollout_policy.rs`).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::product::observer::Observer;
use crate::product::policies::{progress, proved};
use crate::product::{
    Cluster, condition, disruption_policies, is_done, machine_config, note, one_file, text, with_controller,
};
use crate::prometheus;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const NODES: usize = 3;
/// The port of the shops.
const PORT: u16 = 8080;
/// The file that changes. The shop reads it at each request, so the change needs no restart.
const PRICE: &str = "/etc/shop/price";
const SOCKET: &str =
    "[Socket]\nListenStream=8080\nAccept=yes\nMaxConnections=32\n[Install]\nWantedBy=sockets.target\n";
const SERVICE: &str = "[Unit]\nCollectMode=inactive-or-failed\n\n[Service]\nExecStart=-/bin/sh /etc/shop.sh\n\
    StandardInput=socket\nStandardError=journal\n";
/// The workload. Its page shows the price, or an error if the price is not a number. Its metric says whether it is open.
const SHOP: &str = r#"read -r method path version
while read -r line; do [ -n "$(printf %s "$line" | tr -d '\r')" ] || break; done
price=$(cat /etc/shop/price)
case $price in ''|*[!0-9]*) status="500 Internal Server Error" open=0 ;; *) status="200 OK" open=1 ;; esac
body="price $price"
[ "$path" != /metrics ] || { status="200 OK"; body="shop_open $open"; }
printf 'HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n' \
    "$status" "$((${#body} + 1))" "$body"
"#;

/// The answer to a GET request: its status and its body.
async fn get(server: SocketAddr, path: &str) -> Result<(String, String), String> {
    let mut stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
    let head = format!("GET {path} HTTP/1.0\r\nHost: shop\r\n\r\n");
    stream.write_all(head.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|e| e.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("no body: {answer}"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    Ok((status.to_owned(), body.trim().to_owned()))
}

/// The instances in the series that a query returns.
async fn instances(prometheus: SocketAddr, query: &str) -> BTreeSet<String> {
    // Prometheus may not listen yet.
    let series = prometheus::query(prometheus, query).await.unwrap_or_default();
    series.iter().map(|s| text(&s["metric"]["instance"])).collect()
}

fn shop(price: &str) -> Value {
    one_file(PRICE, price)
}

fn policy(prometheus: SocketAddr, soak: &str) -> Value {
    json!({
        "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "workers"},
        "spec": {
            "pools": {"names": ["worker"]},
            "waves": [{"name": "canary", "size": 1, "soak": soak}, {"name": "rest"}],
            "gates": [{
                "name": "shops-open", "when": ["Always"], "interval": "2s", "timeout": "2s", "failureLimit": 2,
                "prometheus": {
                    "url": format!("http://{prometheus}"), "query": "shop_open",
                    "bound": {"operator": "AtLeast", "value": "1"},
                },
            }],
            "onFailure": "Rollback",
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_breaks_the_workload_hits_one_canary_which_is_back_by_itself() {
    if !lab::require_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !prometheus::unpacked(folder).await {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder
        .nodes(NODES)
        .real()
        .node_file("/etc/shop.sh", 0o644, SHOP)
        .node_file("/etc/systemd/system/shop.socket", 0o644, SOCKET)
        .node_file("/etc/systemd/system/shop@.service", 0o644, SERVICE)
        .node_unit("shop.socket");
    let cluster = Cluster::start(builder).await;
    let none = json!([{"type": "None"}]);
    cluster.create(disruption_policies(json!([{"path": PRICE, "actions": none}]))).await;
    cluster.create(machine_config("50-shop", "worker", shop("5"))).await;
    let before = cluster.settled("worker", NODES, &["50-shop"], &[]).await;
    let shops: Vec<SocketAddr> =
        (0..NODES).map(|i| (cluster.lab.real_node(i).unwrap().address(), PORT).into()).collect();
    for shop in &shops {
        assert_eq!(get(*shop, "/").await.unwrap(), ("200".to_owned(), "price 5".to_owned()), "{shop}");
    }

    let listen = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let targets: Vec<String> = shops.iter().map(ToString::to_string).collect();
    let scrape = json!({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "shop", "static_configs": [{"targets": targets}]}],
    });
    let _prometheus = prometheus::start(folder, listen, &scrape);
    let all: BTreeSet<String> = targets.into_iter().collect();
    cluster
        .wait("Prometheus to see all shops open", async || {
            (instances(listen, "shop_open == 1").await == all).then_some(())
        })
        .await;
    cluster.create(policy(listen, "1h")).await;
    proved(&cluster, &before).await;

    let observer = Observer::start(&cluster, "worker", 1).await;
    let bad = observer
        .guard(async {
            cluster.patch("MachineConfig", "50-shop", json!({"spec": {"config": shop("cheap")}})).await;
            cluster
                .wait("all nodes to be in the proved config again", async || {
                    let nodes = cluster.list("Node").await;
                    let pool = cluster.get("MachineConfigPool", "worker").await;
                    let told = condition(&pool, "Degraded").unwrap_or_default();
                    let back = |n: &Value| is_done(n) && note(n, "currentConfig") == before;
                    let rejected = told.contains("is rejected: gate shops-open fails");
                    (rejected && nodes.iter().all(back)).then(|| text(&pool["spec"]["configuration"]["name"]))
                })
                .await
        })
        .await;
    assert_ne!(bad, before, "spec is not edited");
    assert_eq!(progress(&cluster).await["rejected"][0]["config"], json!(bad));
    let hit: BTreeSet<String> = observer.starts().into_iter().map(|s| s.node).collect();
    assert_eq!(hit.len(), 1, "one node and no other was sent anywhere: {hit:?}");
    // What Prometheus has recorded: the shop on the canary was closed, and no other one ever was.
    let address = |node: &Value| {
        let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
        let own = addresses.iter().find(|a| a["type"] == "InternalIP").map(|a| text(&a["address"]));
        own.and_then(|a| a.parse::<IpAddr>().ok()).map(|ip| SocketAddr::from((ip, PORT)).to_string())
    };
    let canary = cluster.get("Node", hit.first().unwrap()).await;
    let shut: BTreeSet<String> = address(&canary).into_iter().collect();
    assert_eq!(instances(listen, "min_over_time(shop_open[1h]) == 0").await, shut);
    for shop in &shops {
        assert_eq!(get(*shop, "/").await.unwrap(), ("200".to_owned(), "price 5".to_owned()), "{shop}");
    }

    // The change is corrected. With a short soak, the fleet follows.
    cluster.patch("RolloutPolicy", "workers", json!({"spec": policy(listen, "2s")["spec"]})).await;
    cluster.patch("MachineConfig", "50-shop", json!({"spec": {"config": shop("7")}})).await;
    cluster
        .wait("all shops to have the new price", async || {
            for shop in &shops {
                let (status, page) = get(*shop, "/").await.ok()?;
                if (status.as_str(), page.as_str()) != ("200", "price 7") {
                    return None;
                }
            }
            Some(())
        })
        .await;
    let good = cluster.settled("worker", NODES, &["50-shop"], &[]).await;
    proved(&cluster, &good).await;
    assert_eq!(instances(listen, "min_over_time(shop_open[1h]) == 0").await, shut, "the fleet was never hit");
    cluster.no_panic();
    cluster.stop().await;
}

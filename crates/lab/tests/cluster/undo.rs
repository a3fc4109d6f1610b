//! `mco undo`: a pool is pinned to an earlier config until it is released.
//!
//! Not here: the other tools during a rollout (`rollout_tools`).

use crate::product;
use crate::product::{Cluster, condition, defined, is_done, machine_config, note, one_file, text};
use crate::rollout_tools::{CHANGE, controller};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn undo_pins_a_pool_until_it_is_released() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(2).simulated().reboot_time(Duration::from_secs(1))).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let running = controller(&cluster, free);
    let first = cluster.settled("worker", 2, &["00-worker"], &[]).await;
    cluster.create(machine_config(CHANGE, "worker", one_file("/etc/tools", "new"))).await;
    let second = cluster.settled("worker", 2, &[CHANGE], &[]).await;
    let json = async |args: &[&str]| -> Value {
        let said = cluster.mco(&[args, &["-o", "json"]].concat()).await;
        serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{args:?}: {e}: {said:?}"))
    };

    // `mco history` shows what happened, and who caused it.
    let past = json(&["history", "worker"]).await;
    let newest = &past["configs"][0];
    assert_eq!(
        (&newest["config"], &newest["current"], &newest["nodes"]),
        (&json!(second), &json!(true), &json!(2))
    );
    let change = &newest["changes"][0];
    assert_eq!(
        (&change["machineConfig"], &change["things"][0]["name"]),
        (&json!(CHANGE), &json!("/etc/tools")),
        "{past}"
    );
    assert!(!text(&change["written"]["by"]).is_empty() && !text(&newest["inForce"][0]).is_empty(), "{past}");
    assert!(past["configs"].as_array().unwrap().iter().any(|c| c["config"] == json!(first)), "{past}");
    let said = cluster.mco(&["history", "worker"]).await;
    assert!(said.out.contains(CHANGE) && said.out.contains("file /etc/tools"), "{said:?}");

    // Without a terminal `mco undo` cannot ask for confirmation; and a dry run changes nothing.
    assert_eq!(cluster.mco(&["undo", "worker"]).await.code, 2);
    let said = cluster.mco(&["undo", "worker", "--dry-run", "--to", &first]).await;
    for word in [&*first, "reboot (/etc/tools)", "2 nodes, at most 1 at once", "would be pinned", CHANGE] {
        assert!(said.code == 0 && said.out.contains(word), "{word}: {said:?}");
    }
    let shown = cluster.mco(&["undo", "worker", "--dry-run", "--to", &first, "--show-secrets"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    assert_eq!(cluster.rendered("worker").await, second);
    let said = cluster.mco(&["undo", "worker", "--to", "rendered-worker-nope", "--yes"]).await;
    assert!(said.code == 1 && said.err.contains("mco history worker"), "{said:?}");

    let said = cluster.mco(&["undo", "worker", "--to", &first, "--yes"]).await;
    assert!(said.code == 0 && said.out.contains("is pinned to"), "{said:?}");
    cluster
        .wait("all nodes are back in the first config", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            let nodes = cluster.list("Node").await;
            let back = nodes.iter().all(|n| note(n, "currentConfig") == first && is_done(n));
            (back && pool["status"]["configuration"]["name"] == json!(first)).then_some(())
        })
        .await;

    // Changes in the meantime are rendered but not rolled out; `mco` says why.
    cluster.create(machine_config("60-later", "worker", one_file("/etc/later", "x"))).await;
    let rendered = async || {
        let all = cluster.list("MachineConfig").await;
        all.iter().filter(|c| text(&c["metadata"]["name"]).starts_with("rendered-worker-")).count()
    };
    let before = past["configs"].as_array().unwrap().len();
    cluster.wait("the later change is rendered", async || (rendered().await > before).then_some(())).await;
    cluster.complains("worker", "ConfigPinned", &[&first, "mco undo worker --release"]).await;
    assert_eq!(cluster.rendered("worker").await, first);
    let said = cluster.mco(&["status", "--exit-code"]).await;
    assert!(said.code == 3 && said.out.contains("pinned to"), "{said:?}");
    assert!(cluster.mco(&["plan"]).await.out.contains("pinned to"));
    let said = cluster.mco(&["undo", "worker", "--yes"]).await;
    assert!(said.code == 1 && said.err.contains("--release"), "{said:?}");
    // A pin to a config that does not exist keeps the pool where it is.
    let pin = |config: Value| json!({"metadata": {"annotations": {format!("{}pinned-config", product::MCO): config}}});
    cluster.patch("MachineConfigPool", "worker", pin(json!("rendered-worker-gone"))).await;
    cluster.complains("worker", "RenderDegraded", &["rendered-worker-gone", "--release"]).await;
    assert_eq!(cluster.rendered("worker").await, first);

    let said = cluster.mco(&["undo", "worker", "--release", "--yes"]).await;
    assert!(
        said.code == 0 && said.out.contains("/etc/later") || said.out.contains("follows its MachineConfigs"),
        "{said:?}"
    );
    cluster.settled("worker", 2, &[CHANGE, "60-later"], &[]).await;
    let shown = json(&["status", "worker"]).await;
    assert_eq!(
        (&shown["apiVersion"], &shown["kind"]),
        (&json!("cli.machineconfig.dev/v1"), &json!("Status"))
    );
    assert!(shown["findings"].as_array().unwrap().is_empty(), "{shown}");
    let since = shown["pools"][0]["nodes"].as_array().unwrap();
    assert!(since.iter().all(|n| n["phase"] == "done" && n["since"].is_string()), "{shown}");
    let said = cluster.mco(&["undo", "worker", "--release"]).await;
    assert!(said.code == 0 && said.out.contains("is not pinned"), "{said:?}");

    // A change that was just applied and is not rendered yet is waited for, although everything still looks updated.
    running.kill().await;
    cluster.create(machine_config("60-late", "worker", one_file("/etc/late", "x"))).await;
    let said = cluster.mco(&["status", "worker", "-w", "--until-updated", "--timeout", "2s"]).await;
    assert!(said.code == 4 && said.err.contains("has not created yet"), "{said:?}");
    let running = controller(&cluster, free);
    let said = cluster.mco(&["status", "worker", "-w", "--until-updated", "--timeout", "2m"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    cluster.settled("worker", 2, &["60-late"], &[]).await;

    // If a pool cannot be updated, the wait ends at once; if it takes too long, the wait times out.
    cluster.mco(&["pause", "worker"]).await;
    cluster.create(machine_config("70-never", "worker", one_file("/etc/never", "x"))).await;
    cluster
        .wait("it is rendered", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            condition(&pool, "Updated").is_none().then_some(())
        })
        .await;
    let said = cluster.mco(&["status", "worker", "-w", "--until-updated"]).await;
    assert!(
        said.code == 3 && said.err.contains("cannot complete: pool worker: the pool is paused"),
        "{said:?}"
    );
    running.kill().await;
    cluster.mco(&["resume", "worker"]).await;
    let said = cluster.mco(&["status", "worker", "-w", "--until-updated", "--timeout", "2s"]).await;
    assert!(said.code == 4 && said.err.contains("not updated in time: pool worker, 0 of 2"), "{said:?}");

    let said = cluster.mco(&["retry", "worker-0"]).await;
    assert!(said.code == 0 && said.out.contains("worker-0"), "{said:?}");
    assert!(!note(&cluster.get("Node", "worker-0").await, "retry").is_empty());
    let said = cluster.mco(&["retry", "nope"]).await;
    assert!(said.code == 1 && said.err.contains("nope"), "{said:?}");
    cluster.stop().await;
}

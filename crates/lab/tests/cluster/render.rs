//! Rendering in a cluster, as administrators see it: the cost of a burst of changes, who set a value, what a change would alter,
//! and which old configs are kept.
//!
//! Not here: what is refused (see `render_refused`).

use crate::product::{Cluster, MCO, machine_config, one_file, text, with_controller};
use crate::render_refused::{healthy, object};
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_changes_in_a_second_are_rendered_a_few_times_and_the_last_one_wins() {
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(0)).await;
    cluster.settled("worker", 0, &["00-worker"], &[]).await;
    cluster.create(machine_config("50-burst", "worker", one_file("/etc/burst", "start"))).await;
    cluster.settled("worker", 0, &["50-burst"], &[]).await;
    let lines = || {
        let log = std::fs::read_to_string(cluster.lab.controller_log()).unwrap();
        log.lines().filter(|l| l.contains("rendered") && l.contains("config=\"rendered-worker-")).count()
            + log.lines().filter(|l| l.contains("config=rendered-worker-")).count()
    };
    // A machine that stalls in the middle splits a burst into several. So one of three attempts has to be a single
    // burst.
    for burst in 1.. {
        let renders = one_burst(&cluster, burst, &lines).await;
        // On a machine so busy that the changes take longer, each further second may cause one more.
        if (1..=8 + renders.1.as_secs()).contains(&renders.0) {
            break;
        }
        assert!(burst < 3, "{} renders of 100 changes in {:?}", renders.0, renders.1);
    }
    cluster.no_panic();
    cluster.stop().await;
}

/// A hundred changes: returns how many renders they caused, and how long it took to apply them.
async fn one_burst(cluster: &Cluster, burst: u32, lines: &impl Fn() -> usize) -> (u64, Duration) {
    let before = lines();
    let start = std::time::Instant::now();
    for i in 0..100_u32 {
        let content = format!("data:,change-{burst}-{i}");
        let change = json!({"spec": {"config": {"storage": {"files": [
            {"path": "/etc/burst", "mode": 420, "overwrite": true, "contents": {"source": content}},
        ]}}}});
        cluster.patch("MachineConfig", "50-burst", change).await;
        // One change every ten milliseconds, however long a request takes.
        let next = Duration::from_millis(10) * (i + 1);
        tokio::time::sleep(next.saturating_sub(start.elapsed())).await;
    }
    let took = start.elapsed();
    cluster
        .wait("the last change is rendered", async || {
            let name = cluster.rendered("worker").await;
            let rendered = cluster.get("MachineConfig", &name).await;
            rendered["spec"].to_string().contains(&format!("change-{burst}-99")).then_some(())
        })
        .await;
    // Longer than the longest pause between passes, so all renders are counted.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let renders = lines() - before;
    println!("100 changes in {took:?}: {renders} renders");
    (u64::try_from(renders).unwrap(), took)
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_plan_and_garbage_collection_work_against_a_cluster() {
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(1).simulated().reboot_time(Duration::from_millis(50))).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let mut base = machine_config("40-base", "worker", one_file("/etc/motd", "base"));
    base["spec"]["config"]["systemd"] = json!({"units": [{"name": "a.service", "enabled": true, "contents": "[Unit]\nDescription=a\n[Install]\nWantedBy=multi-user.target\n"}]});
    cluster.create(base).await;
    let mut over = machine_config("50-over", "worker", one_file("/etc/motd", "over"));
    over["spec"]["config"]["systemd"] = json!({"units": [{"name": "a.service", "dropins": [{"name": "10-x.conf", "contents": "[Service]\nNice=1\n"}]}]});
    cluster.create(over).await;
    let config = cluster.settled("worker", 1, &["40-base", "50-over"], &[]).await;
    explained(&cluster, &config).await;
    compared(&cluster, &config).await;
    old_ones(&cluster, &config).await;
    cluster.no_panic();
    cluster.stop().await;
}

async fn explained(cluster: &Cluster, config: &str) {
    let origins = async |what: &str| -> Vec<Value> {
        let said = cluster.mco(&["explain", "worker", what, "-o", "json"]).await;
        assert_eq!(said.code, 0, "{said:?}");
        let found: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((&found["config"], &found["pool"]), (&json!(config), &json!("worker")));
        assert_eq!(found.get("workedOutBecause"), None, "nothing is stored: {found}");
        found["origins"].as_array().unwrap().clone()
    };
    let motd = origins("/etc/motd").await;
    let contents = motd.iter().find(|o| o["field"] == "contents").unwrap();
    assert_eq!((&contents["setBy"], &contents["lost"]), (&json!("50-over"), &json!(["40-base"])));
    let unit = origins("a.service").await;
    let by = |kind: &str| unit.iter().find(|o| o["kind"] == kind).map(|o| text(&o["setBy"]));
    assert_eq!((by("unit").as_deref(), by("dropin").as_deref()), (Some("40-base"), Some("50-over")));
    // Settings from templates, with text as output.
    let said = cluster.mco(&["explain", "worker"]).await;
    assert!(said.code == 0 && said.out.contains("00-worker") && said.out.contains(config), "{said:?}");
    let said = cluster.mco(&["explain", "worker", "/etc/mtod"]).await;
    assert!(said.code == 1 && said.err.contains("nearest: /etc/motd"), "{said:?}");
    let said = cluster.mco(&["explain", "nobody"]).await;
    assert!(
        said.code == 1 && said.err.contains("the pools are: ") && said.err.contains("worker"),
        "{said:?}"
    );
    // A kernel argument, which these hosts would refuse; the pool has no nodes.
    cluster.add_pool("kargs", &[]).await;
    cluster.create(object("50-karg", "kargs", &json!({"kernelArguments": ["nosmt=force", "quiet"]}))).await;
    cluster.settled("kargs", 0, &["50-karg"], &[]).await;
    for what in ["nosmt", "nosmt=force", "quiet"] {
        let said = cluster.mco(&["explain", "kargs", what, "-o", "json"]).await;
        let found: Value = serde_json::from_str(&said.out).unwrap();
        let origin = &found["origins"][0];
        assert_eq!((&origin["kind"], &origin["setBy"]), (&json!("kernelArgument"), &json!("50-karg")));
    }
    // Without the stored provenance it is computed, with a note that says so.
    let name = cluster.rendered("kargs").await;
    let without = json!({"metadata": {"annotations": {format!("{MCO}provenance"): "x"}}});
    let said = {
        cluster
            .patch(
                "ControllerConfig",
                "machine-config-controller",
                json!({"metadata": {"annotations": {"a": "b"}}}),
            )
            .await;
        cluster.patch("MachineConfig", &name, without).await;
        cluster.mco(&["explain", "kargs", "quiet"]).await
    };
    assert!(said.code == 0 && said.out.contains("50-karg"), "{said:?}");
}

async fn compared(cluster: &Cluster, config: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("change.json");
    let write = |object: &Value| std::fs::write(&file, object.to_string()).unwrap();
    let diff = async || {
        cluster
            .mco(&["render", "-f", &file.to_string_lossy(), "--diff", "--pool", "worker", "--exit-code"])
            .await
    };
    // Applying what the cluster has already changes nothing.
    write(&machine_config("60-none", "nobody", one_file("/etc/x", "x")));
    let said = diff().await;
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    write(&machine_config("60-new", "worker", one_file("/etc/motd", "newest")));
    let said = diff().await;
    assert_eq!(said.code, 3, "{said:?}");
    for word in [config, "/etc/motd", "-over", "+newest"] {
        assert!(said.out.contains(word), "no {word:?}: {}", said.out);
    }
    assert!(!said.out.contains("a.service"), "{}", said.out);
    // The rendered config has the name that the plan predicted.
    let foretold: BTreeSet<&str> =
        said.out.split_whitespace().filter(|w| w.starts_with("rendered-worker-")).collect();
    cluster.create(machine_config("60-new", "worker", one_file("/etc/motd", "newest"))).await;
    let now = cluster.settled("worker", 1, &["60-new"], &[]).await;
    assert_eq!(foretold, BTreeSet::from([config, now.as_str()]));
    cluster.delete("MachineConfig", "60-new").await;
    assert_eq!(cluster.settled("worker", 1, &[], &["60-new"]).await, config);
}

/// The annotation's number of old configs is kept, and in addition every config that a node or a pool names.
async fn old_ones(cluster: &Cluster, config: &str) {
    let rendered = async || -> BTreeSet<String> {
        let all = cluster.list("MachineConfig").await.into_iter();
        all.map(|c| text(&c["metadata"]["name"])).filter(|n| n.starts_with("rendered-worker-")).collect()
    };
    let keep = |n: &str| json!({"metadata": {"annotations": {format!("{MCO}keep-rendered-configs"): n}}});
    cluster.patch("ControllerConfig", "machine-config-controller", keep("3")).await;
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"paused": true}})).await;
    let mut last = config.to_owned();
    for i in 0..6 {
        let content = one_file("/etc/motd", &format!("turn-{i}"));
        cluster.patch("MachineConfig", "50-over", json!({"spec": {"config": content}})).await;
        last = cluster
            .wait("a new config", async || {
                let now = cluster.rendered("worker").await;
                (now != last).then_some(now)
            })
            .await;
    }
    cluster
        .wait("three and the node's are left", async || {
            let now = rendered().await;
            (now.len() == 4 && now.contains(config) && now.contains(&last)).then_some(())
        })
        .await;
    // The node is updated, and nothing names its old config any more.
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"paused": false}})).await;
    cluster.settled("worker", 1, &["50-over"], &[]).await;
    cluster
        .wait("the one that the node has left goes", async || {
            let now = rendered().await;
            (now.len() == 3 && !now.contains(config) && now.contains(&last)).then_some(())
        })
        .await;
    // An invalid value deletes nothing.
    cluster.patch("ControllerConfig", "machine-config-controller", keep("none")).await;
    cluster
        .wait("somebody is told", async || {
            let log = std::fs::read_to_string(cluster.lab.controller_log()).ok()?;
            log.contains("not a whole number").then_some(())
        })
        .await;
    assert_eq!(rendered().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_follow_os_image_streams_and_report_one_that_is_not_listed() {
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(0)).await;
    cluster.add_pool("infra", &[]).await;
    cluster.settled("worker", 0, &["00-worker"], &[]).await;
    let image = async |pool: &str| {
        let name = cluster.rendered(pool).await;
        text(&cluster.get("MachineConfig", &name).await["spec"]["osImageURL"])
    };
    let has = async |pool: &str, want: &str| {
        cluster
            .wait(&format!("{pool} is on {want:?}"), async || (image(pool).await == want).then_some(()))
            .await;
    };
    has("worker", "").await;
    let digest = |name: &str| format!("r.example.com/os/{name}@sha256:{}", "a".repeat(64));
    let streams: kube::Api<DynamicObject> = kube::Api::all_with(
        cluster.client.clone(),
        &kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "machineconfiguration.openshift.io",
            "v1",
            "OSImageStream",
        )),
    );
    let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
        "metadata": {"name": "cluster"}, "spec": {"defaultStream": "nine"}});
    streams.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let listed =
        |name: &str| json!({"name": name, "osImage": digest(name), "osExtensionsImage": digest(name)});
    let status =
        json!({"status": {"defaultStream": "nine", "availableStreams": [listed("nine"), listed("ten")]}});
    let patch = kube::api::Patch::Merge(status);
    streams.patch_status("cluster", &kube::api::PatchParams::default(), &patch).await.unwrap();
    has("worker", &digest("nine")).await;
    has("master", &digest("nine")).await;
    // A custom pool inherits from worker.
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"osImageStream": {"name": "ten"}}})).await;
    has("worker", &digest("ten")).await;
    has("infra", &digest("ten")).await;
    for (pool, want) in [("worker", "ten"), ("infra", "ten"), ("master", "nine")] {
        cluster
            .wait(&format!("the status of {pool} names its stream"), async || {
                let status = cluster.get("MachineConfigPool", pool).await["status"].clone();
                (status["osImageStream"]["name"] == want).then_some(())
            })
            .await;
    }
    assert_eq!(image("master").await, digest("nine"));
    cluster.patch("MachineConfigPool", "infra", json!({"spec": {"osImageStream": {"name": "eleven"}}})).await;
    let words = ["MachineConfigPool infra", "spec.osImageStream.name", "eleven", "nine, ten"];
    cluster.complains("infra", "RenderDegraded", &words).await;
    assert_eq!(image("infra").await, digest("ten"), "what was rendered last stays");
    cluster.patch("MachineConfigPool", "infra", json!({"spec": {"osImageStream": null}})).await;
    healthy(&cluster, "infra").await;
    // The same without a cluster.
    let file = tempfile::NamedTempFile::new().unwrap();
    let change = machine_config("50-stream", "worker", one_file("/etc/stream", "x"));
    std::fs::write(file.path(), change.to_string()).unwrap();
    let said =
        cluster.mco(&["render", "--pool", "worker", "--diff", "-f", file.path().to_str().unwrap()]).await;
    assert!(said.out.contains("/etc/stream") && !said.out.contains("osImageURL"), "{said:?}");
    cluster.no_panic();
    cluster.stop().await;
}

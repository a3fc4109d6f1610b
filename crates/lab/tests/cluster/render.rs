//! Rendering in a cluster, as administrators see it: which input is refused and where that is reported, the cost of a
//! burst of changes, who set a value, what a change would alter, and which old configs are kept.

use crate::product::{
    Cluster, MCO, condition, is_done, machine_config, note, one_file, text, with_controller,
};
use base64::Engine as _;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

/// A spec that no host could apply, and what its pool must report.
struct Bad {
    pool: &'static str,
    spec: Value,
    /// The JSON path in the object.
    path: &'static str,
    /// The rule and the remedy.
    words: &'static [&'static str],
}

fn with_files(files: &Value) -> Value {
    json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}})
}

fn with_contents(contents: &Value) -> Value {
    with_files(&json!([{"path": "/etc/bad", "mode": 420, "overwrite": true, "contents": contents}]))
}

/// 65 MiB of zeros, compressed to some ten kilobytes.
fn bomb() -> String {
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
    let block = vec![0_u8; 1024 * 1024];
    (0..65).for_each(|_| gzip.write_all(&block).unwrap());
    let packed = gzip.finish().unwrap();
    format!("data:;base64,{}", base64::engine::general_purpose::STANDARD.encode(packed))
}

fn bad() -> Vec<Bad> {
    let contents = "spec.config.storage.files[0].contents";
    let unit = |name: &str| json!({"name": name, "contents": "[Unit]\nDescription=x\n"});
    vec![
        Bad {
            pool: "data-url",
            spec: with_contents(&json!({"source": "data:,50%zz"})),
            path: "spec.config.storage.files[0].contents.source",
            words: &["% must be followed by two hex digits", "%25"],
        },
        Bad {
            pool: "hash",
            spec: with_contents(
                &json!({"source": "data:,x", "verification": {"hash": format!("sha256-{}", "0".repeat(64))}}),
            ),
            path: contents,
            words: &[
                "/etc/bad",
                "has another hash",
                "sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
            ],
        },
        Bad {
            pool: "no-gzip",
            spec: with_contents(&json!({"source": "data:,plain", "compression": "gzip"})),
            path: contents,
            words: &["/etc/bad", "marked as gzip but does not unpack"],
        },
        Bad {
            pool: "bomb",
            spec: with_contents(&json!({"source": bomb(), "compression": "gzip"})),
            path: contents,
            words: &["/etc/bad", "unpacks to more than 67108864 bytes"],
        },
        Bad {
            pool: "path-twice",
            spec: with_files(&json!([
                {"path": "/etc/bad", "mode": 420, "contents": {"source": "data:,a"}},
                {"path": "/etc/bad", "mode": 420, "contents": {"source": "data:,b"}},
            ])),
            path: "spec.config.storage.files[1].path",
            words: &["/etc/bad", "already in storage.files[0]", "keep one of them"],
        },
        Bad {
            pool: "unit-twice",
            spec: json!({"config": {"ignition": {"version": "3.4.0"}, "systemd": {"units": [unit("a.service"), unit("a.service")]}}}),
            path: "spec.config.systemd.units[1]",
            words: &["a.service", "already in systemd.units[0]", "keep one of them"],
        },
        Bad {
            pool: "extension",
            spec: json!({"config": {"ignition": {"version": "3.4.0"}}, "extensions": ["usbguard", "emacs"]}),
            path: "spec.extensions[1]",
            words: &["emacs", "not a known extension", "usbguard"],
        },
        Bad {
            pool: "bare-extension",
            spec: json!({"extensions": ["emacs", "--reboot"]}),
            path: "spec.extensions[1]",
            words: &["--reboot", "no name of a package"],
        },
        Bad {
            pool: "kernel-type",
            spec: json!({"kernelType": "fast"}),
            path: "spec.kernelType",
            words: &["fast", "default, realtime, 64k-pages"],
        },
        Bad {
            pool: "kernel-clash",
            spec: json!({"kernelType": "realtime", "extensions": ["kernel-devel"]}),
            path: "spec.extensions[0]",
            words: &["kernel-devel", "realtime", "remove one of them"],
        },
        Bad {
            pool: "future",
            spec: json!({"config": {"ignition": {"version": "3.7.0"}}}),
            path: "spec.config.ignition.version",
            words: &["3.7.0", "supported: 2.2, 3.0"],
        },
        Bad {
            pool: "too-new",
            spec: json!({"config": {"ignition": {"version": "3.6.0"}}}),
            path: "spec.config.ignition.version",
            words: &["hosts read Ignition up to 3.5.0", "write 3.5.0"],
        },
    ]
}

fn object(name: &str, role: &str, spec: &Value) -> Value {
    let mut object = machine_config(name, role, Value::Null);
    object["spec"] = spec.clone();
    object
}

/// A MachineConfig with one file of this many bytes.
fn large(name: &str, role: &str, bytes: usize) -> Value {
    machine_config(name, role, one_file(&format!("/etc/{name}"), &"x".repeat(bytes)))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_bad_input_is_reported_on_its_pool_and_the_last_good_config_stays() {
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(2).simulated().reboot_time(Duration::from_millis(50))).await;
    let bad = bad();
    for case in &bad {
        cluster.add_pool(case.pool, &[]).await;
    }
    for pool in ["large", "healthy"] {
        cluster.add_pool(pool, &[]).await;
    }
    // Two pools with a node each: one gets a bad config, and the other continues.
    cluster.put_into("worker-0", "hash").await;
    cluster.put_into("worker-1", "healthy").await;
    let nodes = |pool: &str| usize::from(["hash", "healthy"].contains(&pool));
    let mut before = vec![];
    for case in &bad {
        before.push(cluster.settled(case.pool, nodes(case.pool), &["00-worker"], &[]).await);
    }
    let large_before = cluster.settled("large", 0, &["00-worker"], &[]).await;
    cluster.settled("healthy", 1, &["00-worker"], &[]).await;

    for case in &bad {
        cluster.create(object(&format!("50-{}", case.pool), case.pool, &case.spec)).await;
    }
    for case in &bad {
        let name = format!("MachineConfig 50-{}", case.pool);
        let words: Vec<&str> = case.words.iter().copied().chain([name.as_str(), case.path]).collect();
        cluster.complains(case.pool, "RenderDegraded", &words).await;
        let pool = cluster.get("MachineConfigPool", case.pool).await;
        let conditions = pool["status"]["conditions"].as_array().unwrap();
        let told = conditions.iter().find(|c| c["type"] == "RenderDegraded").unwrap();
        assert_eq!(told["reason"], "Refused", "{told}");
        cluster.complains(case.pool, "Degraded", &[]).await;
    }
    too_large(&cluster, &large_before).await;

    cluster.create(machine_config("50-good", "healthy", one_file("/etc/good", "good"))).await;
    cluster.settled("healthy", 1, &["50-good"], &[]).await;
    for (case, before) in bad.iter().zip(&before) {
        assert_eq!(&cluster.rendered(case.pool).await, before, "{}", case.pool);
    }
    let node = cluster.get("Node", "worker-0").await;
    assert!(is_done(&node), "{node}");
    assert_eq!(note(&node, "currentConfig"), before[1], "{node}");
    assert!(!cluster.lab.node(0).root().join("etc/bad").exists());

    // The bad MachineConfig is deleted, and the pool is as before.
    for (case, before) in bad.iter().zip(&before) {
        cluster.delete("MachineConfig", &format!("50-{}", case.pool)).await;
        healthy(&cluster, case.pool).await;
        assert_eq!(&cluster.rendered(case.pool).await, before, "{}", case.pool);
    }
    cluster.no_panic();
    cluster.stop().await;
}

async fn healthy(cluster: &Cluster, pool: &str) {
    cluster
        .wait(&format!("pool {pool} is healthy"), async || {
            let pool = cluster.get("MachineConfigPool", pool).await;
            ["RenderDegraded", "Degraded"].iter().all(|c| condition(&pool, c).is_none()).then_some(())
        })
        .await;
}

/// Two MachineConfigs that are too large only together; and one that the API server itself refuses.
async fn too_large(cluster: &Cluster, before: &str) {
    cluster.create(large("50-large", "large", 900_000)).await;
    let after = cluster.settled("large", 0, &["50-large"], &[]).await;
    assert_ne!(after, before);
    cluster.create(large("51-large", "large", 800_000)).await;
    let place = "MachineConfig 50-large: spec.config.storage.files[0].contents";
    let words = ["1572864", "compression: gzip", place, "900006 bytes"];
    cluster.complains("large", "RenderDegraded", &words).await;
    let pool = cluster.get("MachineConfigPool", "large").await;
    assert_eq!(pool["spec"]["configuration"]["name"], json!(after));
    let reason = pool["status"]["conditions"].as_array().unwrap().iter();
    assert!(reason.clone().any(|c| c["reason"] == "TooLarge"), "{pool}");

    let giant = large("52-giant", "large", 1_700_000);
    let posted: DynamicObject = serde_json::from_value(giant.clone()).unwrap();
    let answer = cluster.api("MachineConfig").create(&PostParams::default(), &posted).await;
    assert!(answer.is_err(), "the store took 1.7 MB");
    assert_eq!(cluster.get("MachineConfig", "52-giant").await, Value::Null);
    // `mco lint` finds in advance what the API server would refuse.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("giant.json");
    std::fs::write(&file, giant.to_string()).unwrap();
    let mut lint = tokio::process::Command::new(lab::built_mco().unwrap());
    let said = lint.arg("lint").arg("-f").arg(&file).args(["-o", "json"]).output().await.unwrap();
    assert_eq!(said.status.code(), Some(3), "{said:?}");
    let found: Value = serde_json::from_slice(&said.stdout).unwrap();
    let all = found["items"].as_array().unwrap().iter();
    let about = |f: &&Value| f["rule"] == "too-large" && f["object"] == "MachineConfig 52-giant";
    let found = all.clone().find(about).unwrap_or_else(|| panic!("{found}"));
    assert!(
        text(&found["path"]).starts_with("spec.config") && text(&found["remedy"]).contains("gzip"),
        "{found}"
    );

    cluster.delete("MachineConfig", "50-large").await;
    cluster.settled("large", 0, &["51-large"], &["50-large"]).await;
    healthy(cluster, "large").await;
}

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

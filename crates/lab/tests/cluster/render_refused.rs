//! What rendering refuses in a cluster, as administrators see it: each kind of bad input is reported on its pool, and the last
//! good config stays.
//!
//! Not here: rendering that works (see `render`).

use crate::product::{Cluster, condition, is_done, machine_config, note, one_file, text, with_controller};
use base64::Engine as _;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
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

pub(crate) fn object(name: &str, role: &str, spec: &Value) -> Value {
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

pub(crate) async fn healthy(cluster: &Cluster, pool: &str) {
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

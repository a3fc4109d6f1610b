//! `mco status`, and plans from a cluster and from files, make the same of the same objects.
//!
//! Not here: what the plans say (see `rollout`).

use super::*;
use api::images::os_image::OsImage;
use api::names::own;

/// A fake API server that has these objects, and sends the metadata of a kind alone to who asks for that.
fn api_server(objects: &[Value]) -> Client {
    let objects = objects.to_vec();
    let serve = tower::service_fn(move |request: Request<Body>| {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let accept = request.headers().get("accept").and_then(|a| a.to_str().ok()).unwrap_or_default();
        let plural = |o: &Value| {
            let kind = o["kind"].as_str().unwrap().to_lowercase();
            kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"))
        };
        let mut segments = path.rsplit('/');
        let (last, before) = (segments.next().unwrap(), segments.next().unwrap());
        let named = objects.iter().find(|o| plural(o) == before && o["metadata"]["name"] == last);
        let on_node = |o: &&Value| {
            !query.contains("nodeName") || query.ends_with(o["spec"]["nodeName"].as_str().unwrap())
        };
        let listed =
            objects.iter().filter(|o| plural(o) == last).filter(on_node).cloned().map(|mut object| {
                if accept.contains("PartialObjectMetadata") {
                    object.as_object_mut().unwrap().retain(|key, _| key == "metadata");
                }
                object
            });
        let (code, body) = match named {
            Some(object) => (200, object.clone()),
            None => (
                200,
                json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": listed.collect::<Vec<_>>()}),
            ),
        };
        let body = Body::from(body.to_string().into_bytes());
        async move { Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap()) }
    });
    Client::new(serve, "default")
}

/// What the controller has found out about the image of a config, as its annotations.
fn looked(url: &str, refused: &str) -> Value {
    let found = OsImage { of: url.to_owned(), refused: refused.to_owned(), ..OsImage::default() };
    json!({own::OS_IMAGE: found.text()})
}

/// The controller itself is compared with the dump reader beside its node pass.
#[tokio::test]
async fn status_and_plans_from_a_cluster_and_from_files_say_the_same() {
    let (old, new) = ("q.io/os:1", "q.io/os:2");
    let images = |objects: &mut Vec<Value>, refused: &str| {
        for (at, url) in [(1, old), (2, new)] {
            objects[at]["spec"]["osImageURL"] = json!(url);
            objects[at]["metadata"]["annotations"] = looked(url, if url == new { refused } else { "" });
        }
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<Value>);
    // Columns: what is special, how the cluster of two nodes and a budget differs, and what the hold of the pool says.
    let rows: [(&str, Change<'_>, &str); 5] = [
        ("an image that no node can run", &|all| images(all, "it is no OS"), "is refused: it is no OS"),
        (
            "an image that is fetched ahead",
            &|all| {
                images(all, "");
                all[0]["metadata"]["annotations"] = json!({own::PREFETCH: "1"});
            },
            "the next OS image is fetched on the nodes",
        ),
        (
            "a change that may begin outside of the window",
            &|all| {
                all[0]["metadata"]["annotations"] = json!({"machineconfig.dev/reboots": "WhenNeeded"});
                all[2]["spec"] = json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
                    {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,new"}}]}}});
                all[5]["spec"]["windows"] = json!([{"name": "noon", "cron": "0 12 * * *", "duration": "1h"}]);
                all[5]["spec"]["maxDisruption"] = json!("Reload");
            },
            "",
        ),
        (
            "one that may not",
            &|all| {
                all[2]["spec"] = json!({"kernelArguments": ["a"]});
                all[5]["spec"]["windows"] = json!([{"name": "noon", "cron": "0 12 * * *", "duration": "1h"}]);
                all[5]["spec"]["maxDisruption"] = json!("Reload");
            },
            "no maintenance window is open; the next one opens at 1970-01-01T12:00:00Z",
        ),
        (
            "sets of pinned images",
            &|all| {
                all[0]["spec"]["pinnedImageSets"] = json!([{"name": "s"}]);
                let set = |generation: i32| json!({"name": "s", "desiredGeneration": generation, "currentGeneration": generation});
                for (node, generation) in [("a", 2), ("b", 1)] {
                    all.push(json!({"apiVersion": POOLS, "kind": "MachineConfigNode", "metadata": {"name": node},
                        "spec": {"node": {"name": node}, "pool": {"name": "worker"}, "configVersion": {"desired": "rendered-worker-1"}},
                        "status": {"configVersion": {"desired": "rendered-worker-1"}, "pinnedImageSets": [set(generation)]}}));
                }
                all.push(json!({"apiVersion": POOLS, "kind": "PinnedImageSet", "metadata": {"name": "s", "generation": 2},
                    "spec": {"pinnedImages": []}}));
            },
            "",
        ),
    ];
    let now = Timestamp::UNIX_EPOCH;
    for (what, change, hold) in rows {
        let mut objects = cluster(false);
        change(&mut objects);
        let client = api_server(&objects);
        let mut cluster = followed(&client, &objects);
        cluster.fetch_lookups(now).await;
        assert!(cluster.unread().is_empty(), "{what}: {:?}", cluster.unread());
        let shown = cluster.plan(now).plan;
        let held = shown.pools[0].hold.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(if hold.is_empty() { held.is_empty() } else { held.contains(hold) }, "{what}: {held:?}");
        let present = crate::present_situation(&client, &Time(now)).await.unwrap();
        assert_eq!(present.forbidden, [""; 0]);
        for (from, plan) in [
            ("the cluster", present.situation.plan(&Time(now))),
            ("files", from_files(&objects).plan(&Time(now))),
        ] {
            assert_eq!(plan.pools[0].hold, shown.pools[0].hold, "{what}, from {from}");
            assert_eq!(plan.pools[0].nodes, shown.pools[0].nodes, "{what}, from {from}");
            assert_eq!(plan.pools[0].status, shown.pools[0].status, "{what}, from {from}");
        }
        if what.starts_with("sets") {
            let status = shown.pools[0].status.clone().unwrap();
            assert_eq!(status.pool_synchronizers_status.unwrap()[0].updated_machine_count, 1);
        }
    }
}

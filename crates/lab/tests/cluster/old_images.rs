//! What builds have pushed goes from the registry when nothing names it any more, also what a build has pushed that fails after it: the
//! real controller, and Debian's registry, once with deletion and once without it, as it is by default.
//!
//! Fakes: the Job controller with its pods, and the node's agent, as in `image_builds`; the images are real ones, and hold one
//! file. Not here: other answers of registries, what is not known to the caches (beside the code of the controller), and the
//! controller's own rights (`serving/old_images`).

use crate::image_builds::{Builder, NAMESPACE, POOL, imaged, os_config, runs};
use crate::product::{Cluster, with_controller};
use crate::real_registry::Registry;
use base64::Engine as _;
use build::pushed::{LIST, Pushed, PushedContent};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Pushes the image of a build, and has the build succeed with it. Returns the image by its digest.
async fn push(registry: &Registry, jobs: &Builder<'_>, build: &str) -> String {
    let image = registry.push(&format!("team/os:{build}"), &[], ("/usr/lib/build", build));
    jobs.succeed(build, image.split_once('@').unwrap().1).await;
    image
}

async fn list(cluster: &Cluster) -> Vec<Pushed> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let data = maps.get_opt(LIST).await.unwrap().and_then(|map| map.data).unwrap_or_default();
    data.values().map(|text| Pushed::read(text).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_builds_have_pushed_goes_when_nothing_names_it() {
    let Some(builder) = with_controller() else { return };
    if !lab::require_root() {
        return;
    }
    lab::ensure_test_packages(&lab::Reporter::stderr()).await.unwrap();
    let (registry, stubborn) = (Registry::start(true).await, Registry::start(false).await);
    let base = format!("registry.lab.test:5000/base@sha256:{}", "0a".repeat(32));
    let (cluster, agent) = imaged(builder, &base, registry.insecure()).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let secret = json!({
        "metadata": {"name": "push"}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": "{\"auths\":{}}"},
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let with = json!({"metadata": {"annotations": {"machineconfig.dev/image-builder": "registry.lab.test:5000/buildah"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", with).await;

    // Three builds, one after the other.
    let jobs = Builder::new(&cluster);
    cluster.create(os_config(&format!("{}/team/os:latest", registry.name))).await;
    let first = jobs.started("").await;
    let one = push(&registry, &jobs, &first).await;
    runs(&cluster, &one).await;
    // As buildah keeps layers.
    let layer = registry.push(&format!("team/os:{}", "0a".repeat(32)), &[], ("/usr/lib/layer", "a layer"));
    let edit = async |text: &str| {
        let file = json!([{"containerfileArch": "NoArch", "content": format!("FROM configs AS final\nRUN {text}\n")}]);
        cluster.patch("MachineOSConfig", POOL, json!({"spec": {"containerFile": file}})).await;
    };
    edit("two").await;
    let second = jobs.started(&first).await;
    let two = push(&registry, &jobs, &second).await;
    runs(&cluster, &two).await;

    // The build goes in an odd way. Its image is what the node had before.
    cluster.delete("MachineOSBuild", &first).await;
    edit("three").await;
    let third = jobs.started(&second).await;
    assert!(registry.has(&one).await, "the node may still fall back to it");
    let three = push(&registry, &jobs, &third).await;
    runs(&cluster, &three).await;
    cluster.wait("the first image is deleted", async || (!registry.has(&one).await).then_some(())).await;
    cluster.told(POOL, "OldImageDeleted", &[&one]).await;
    assert!(registry.has(&two).await && registry.has(&three).await && registry.has(&layer).await);

    // A build that fails after its push: its tag is on the list before its Job is there, and what is behind it goes.
    edit("four").await;
    let fourth = jobs.started(&third).await;
    let failed = registry.push(&format!("team/os:{fourth}"), &[], ("/usr/lib/build", "failed"));
    let tag = PushedContent::Tag { name: format!("{}/team/os:{fourth}", registry.name) };
    assert!(list(&cluster).await.iter().any(|p| p.what == tag));
    jobs.fail(&fourth, "the registry has another image").await;
    cluster
        .wait("the failed build's image is deleted", async || (!registry.has(&failed).await).then_some(()))
        .await;
    cluster.told(POOL, "OldImageDeleted", &[&failed]).await;
    assert!(registry.has(&two).await && registry.has(&three).await && registry.has(&layer).await);
    assert!(list(&cluster).await.iter().all(|p| p.what != tag));
    // What was built before is wanted again.
    edit("three").await;
    runs(&cluster, &three).await;

    // An image in a registry that deletes nothing, of a build that is long gone.
    let four = stubborn.push("team/os:old", &[], ("/usr/lib/build", "old"));
    let old = Pushed {
        what: PushedContent::Image { name: four.clone(), tag: format!("{}/team/os:old", stubborn.name) },
        secret: "push".to_owned(),
        os_config: POOL.to_owned(),
        pool: POOL.to_owned(),
        kept: None,
    };
    cluster.patch("MachineConfig", "10-base", json!({"spec": {"config": both(&registry, &stubborn)}})).await;
    cluster.settled(POOL, 1, &["10-base"], &[]).await;
    runs(&cluster, &three).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let entry = Patch::Merge(json!({"data": {old.key(): old.text()}}));
    maps.patch(LIST, &PatchParams::default(), &entry).await.unwrap();

    // Without its MachineOSConfig everything goes but for what the node had last.
    cluster.delete("MachineOSConfig", POOL).await;
    runs(&cluster, "").await;
    cluster
        .wait("the second image and the layers are deleted", async || {
            (!registry.has(&two).await && !registry.has(&layer).await).then_some(())
        })
        .await;
    assert!(registry.has(&three).await, "the node may still fall back to it");
    let said = cluster.told(POOL, "OldImageKept", &[&four, "not tried again", "405"]).await;
    eprintln!("{said:?}");
    assert!(stubborn.has(&four).await);
    cluster
        .wait("the list has what is left", async || {
            let all = list(&cluster).await;
            let [a, b] = &all[..] else { return None };
            let kept = |p: &Pushed| p.kept.as_ref().is_some_and(|k| k.for_good);
            let is = |p: &Pushed, image: &str| p.what.to_string().ends_with(image);
            let both = is(a, &three) && is(b, &four) || is(a, &four) && is(b, &three);
            (both && [a, b].iter().all(|p| kept(p) == is(p, &four))).then_some(())
        })
        .await;
    agent.abort();
    cluster.no_panic();
    cluster.stop().await;
}

/// A config with which both registries are talked to without TLS.
fn both(one: &Registry, two: &Registry) -> Value {
    let (mut config, more) = (one.insecure(), two.insecure());
    let text = |config: &Value| {
        let source = config["storage"]["files"][0]["contents"]["source"].as_str().unwrap();
        let data = source.rsplit_once(',').unwrap().1;
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap()
    };
    let data = base64::engine::general_purpose::STANDARD.encode(text(&config) + &text(&more));
    config["storage"]["files"][0]["contents"]["source"] = json!(format!("data:;base64,{data}"));
    config
}

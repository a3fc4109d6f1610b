//! The render pass against a fake API server.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::{answer, shared};
use crate::passes::render::write::create;
use api::v1::PoolConfiguration;
use rollout::view::own;
use serde_json::json;

const CONFIG: &str = "rendered-worker-";

fn spec(argument: &str) -> api::v1::MachineConfigSpec {
    api::v1::MachineConfigSpec { kernel_arguments: Some(vec![argument.to_owned()]), ..Default::default() }
}

/// A pool that is pinned to a rendered config, and a server whose copy of that config has this kernel argument.
fn pinned(stored: &'static str) -> (Rendering, MachineConfigPool, String) {
    let name = render::name("worker", &spec("quiet"));
    assert!(name.starts_with(CONFIG));
    let owner = json!([{"apiVersion": "v1", "kind": "MachineConfigPool", "name": "worker", "uid": "p", "controller": true}]);
    let metadata = json!({"name": name, "uid": "u", "resourceVersion": "1", "ownerReferences": owner});
    let object = json!({"metadata": metadata, "spec": spec(stored)});
    let served = object.clone();
    let shared = shared(move |_| answer(200, &served));
    shared.config_answer(serde_json::from_value(object).unwrap());
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "worker", "uid": "p", "resourceVersion": "1", "annotations": {own::PINNED: name}},
        "spec": {},
    }))
    .unwrap();
    let item = Item { version: 1, uid: "p".to_owned(), value: Arc::new(pool.clone()) };
    shared.stores.pools.apply("worker".to_owned(), item);
    shared.queues.of(Pass::Render).take();
    (Rendering::new(Arc::new(shared)), pool, name)
}

#[tokio::test]
async fn a_pool_that_is_never_rendered_does_not_say_for_ever_that_the_term_cannot_begin() {
    let pool = |condition: &Condition| {
        json!({
            "metadata": {"name": "all", "uid": "p", "resourceVersion": "1"},
            "spec": {"machineConfigSelector": {}},
            "status": {"conditions": [condition]},
        })
    };
    for (reason, wrote) in [(RenderReason::NotStarted, 1), (RenderReason::SettingsRefused, 0)] {
        let written = Arc::new(Mutex::new(vec![]));
        let (writes, condition) = (written.clone(), Condition::new("RenderDegraded", true, reason, "words"));
        let stored = pool(&condition);
        let shared = shared(move |request| {
            writes.lock().unwrap().push(request.uri().path().to_owned());
            answer(200, &stored)
        });
        let value: MachineConfigPool = serde_json::from_value(pool(&condition)).unwrap();
        let value = Arc::new(value);
        shared
            .stores
            .pools
            .apply("all".to_owned(), Item { version: 1, uid: "p".to_owned(), value: value.clone() });
        Rendering::new(Arc::new(shared)).step("all", &value).await.map_err(|e| e.chain()).unwrap();
        let written = written.lock().unwrap();
        assert_eq!(written.iter().filter(|path| path.ends_with("/all/status")).count(), wrote, "{written:?}");
    }
}

#[tokio::test]
async fn a_pool_is_not_held_in_a_config_that_somebody_has_edited() {
    let (rendering, pool, name) = pinned("quiet");
    let pin = Pin::of(&rendering.shared, &pool).await.unwrap();
    assert!(matches!(pin, Pin::To(configuration) if configuration.name == name));
    let (rendering, pool, name) = pinned("debug");
    let pin = Pin::of(&rendering.shared, &pool).await.unwrap();
    assert!(matches!(pin, Pin::Edited(edited) if edited == name));
    // An edit marks the pool, also if the pool does not name the config yet.
    let shared = &rendering.shared;
    let mut edited: MachineConfig = shared.api().get(&name).await.unwrap();
    edited.metadata.resource_version = Some("2".to_owned());
    shared.config_answer(edited);
    assert_eq!(shared.queues.of(Pass::Render).take(), ["worker".to_owned()].into());
}

#[tokio::test]
async fn what_the_api_server_stores_otherwise_than_it_was_sent_is_an_error() {
    let rendered = MachineConfig::new("rendered-worker-1", spec("quiet"));
    for (stored, fine) in [("quiet", true), ("debug", false)] {
        let shared = shared(move |_| {
            answer(
                200,
                &json!({"metadata": {"name": "rendered-worker-1", "resourceVersion": "2"}, "spec": spec(stored)}),
            )
        });
        let pool = MachineConfigPool::new("worker", Default::default());
        let made = create(&shared, &pool, &rendered).await;
        let mut there = rendered.clone();
        there.spec = spec("other");
        let back = restore(&shared, &there, &rendered).await;
        for done in [made, back] {
            let altered = matches!(done, Err(WriteError::Altered { .. }));
            assert_eq!((done.is_ok(), altered), (fine, !fine), "{stored}: {done:?}");
        }
    }
}

/// The late write is not taken for the echo of what is wanted: the pool is rendered again.
#[tokio::test]
async fn a_write_without_an_answer_that_arrives_after_a_revert_is_undone() {
    let config = |name: &str| PoolConfiguration { name: name.to_owned(), ..PoolConfiguration::default() };
    let pool = |name: &str, version: u64| {
        let mut pool = MachineConfigPool::new("worker", Default::default());
        pool.spec.configuration = config(name);
        pool.metadata.resource_version = Some(version.to_string());
        Item { version, uid: "p".to_owned(), value: Arc::new(pool) }
    };
    let requests = Arc::new(Mutex::new(0));
    let count = requests.clone();
    let shared = shared(move |_| {
        *count.lock().unwrap() += 1;
        None
    });
    shared.stores.pools.apply("worker".to_owned(), pool("rendered-worker-1", 1));
    let there = shared.stores.pools.get("worker").unwrap();
    assert!(name_config(&shared, &there, config("rendered-worker-2")).await.is_err(), "it has no answer");
    // Somebody reverts the MachineConfig, and the pool still names the config that is wanted again.
    name_config(&shared, &there, config("rendered-worker-1")).await.unwrap();
    assert_eq!(*requests.lock().unwrap(), 1, "nothing has to be written");
    shared.queues.of(Pass::Render).take();
    let late = shared.stores.pools.apply("worker".to_owned(), pool("rendered-worker-2", 2)).unwrap();
    shared.changed(&Changed::Pool(&late));
    assert_eq!(shared.queues.of(Pass::Render).take(), ["worker".to_owned()].into());
}

//! Tables: what a pool serves in each state of the cluster.

use super::*;
use kube::runtime::watcher::Event;
use serde_json::json;

const URL: &str = "https://api-int:6443";

fn mk_pool(updated: i32, spec: &str, status: &str) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": "worker", "generation": 1},
        "spec": {"configuration": {"name": spec}},
        "status": {"observedGeneration": 1, "updatedMachineCount": updated, "configuration": {"name": status}},
    }))
    .unwrap()
}

fn mk_config(name: &str, version: &str) -> (String, (String, Result<Arc<Rendered>, Unfetched>)) {
    let mut config = MachineConfig::new(name, api::v1::MachineConfigSpec::default());
    config.spec.config = Some(json!({"ignition": {"version": version}}));
    (name.to_owned(), ("1".to_owned(), checked(config)))
}

fn mk_state(pool: MachineConfigPool) -> ClusterState {
    let mut state = ClusterState::default();
    state.set_credentials(Ok(Credentials { token: "t".to_owned(), ca: Some(b"CA".to_vec()) }));
    state.pools.items.insert("worker".to_owned(), Ok(pool));
    for name in ["a", "b"] {
        state.configs.items.insert(name.to_owned(), "1".to_owned());
    }
    state.settings.items.insert(CONTROLLER_CONFIG.to_owned(), Ok(ControllerConfig::default()));
    state
}

fn served(sources: &Sources) -> Result<&str, &'static str> {
    let source = sources.pools.get("worker").unwrap();
    source.as_ref().map(|s| s.rendered.name()).map_err(Refusal::reason)
}

#[test]
fn the_proven_config_is_served() {
    let fetched = Fetched::from([mk_config("a", "3.5.0"), mk_config("b", "3.5.0")]);
    for (updated, want) in [(0, "a"), (1, "b")] {
        let mut state = mk_state(mk_pool(updated, "b", "a"));
        assert_eq!(state.wanted(), BTreeMap::from([(want, "1")]));
        assert_eq!(served(&state.sources(URL, &fetched)), Ok(want));
    }
}

#[test]
fn the_last_good_config_stays_while_the_next_cannot_be_served() {
    let fetched = Fetched::from([mk_config("a", "3.5.0"), mk_config("b", "9.0.0")]);
    let mut state = mk_state(mk_pool(1, "a", "a"));
    assert_eq!(served(&state.sources(URL, &fetched)), Ok("a"));
    let replace = |state: &mut ClusterState, pool| state.pools.items.insert("worker".to_owned(), Ok(pool));

    replace(&mut state, mk_pool(1, "b", "a"));
    let sources = state.sources(URL, &fetched);
    assert_eq!(served(&sources), Ok("a"), "b is not valid");
    assert!(sources.held_back["worker"].contains("9.0.0"), "{:?}", sources.held_back);

    replace(&mut state, mk_pool(1, "missing", "a"));
    assert_eq!(served(&state.sources(URL, &fetched)), Ok("a"), "the next is not there");

    state.pools.items.insert("worker".to_owned(), Err("spec: nonsense".to_owned()));
    assert_eq!(served(&state.sources(URL, &fetched)), Ok("a"), "the pool cannot be read");

    state.configs.items.remove("a");
    assert_eq!(served(&state.sources(URL, &fetched)), Err("InvalidConfig"), "the last good one is gone too");
}

#[test]
fn a_status_that_lags_behind_its_spec_changes_nothing() {
    let fetched = Fetched::from([mk_config("a", "3.5.0"), mk_config("b", "3.5.0")]);
    let mut state = mk_state(mk_pool(1, "b", "a"));
    assert_eq!(served(&state.sources(URL, &fetched)), Ok("b"));
    let mut lagging = mk_pool(1, "c", "a");
    lagging.metadata.generation = Some(2);
    state.pools.items.insert("worker".to_owned(), Ok(lagging));
    assert_eq!(state.wanted(), BTreeMap::from([("b", "1")]));
    assert_eq!(served(&state.sources(URL, &fetched)), Ok("b"));
}

#[test]
fn what_is_missing_is_named() {
    let fetched = Fetched::from([mk_config("a", "3.5.0")]);
    let why = |state: &mut ClusterState| {
        state.sources(URL, &fetched).pools["worker"].as_ref().unwrap_err().to_string()
    };
    assert!(why(&mut mk_state(mk_pool(0, "a", ""))).contains("names no rendered config"));
    assert!(why(&mut mk_state(mk_pool(0, "a", "nosuch"))).contains("nosuch does not exist"));
    let mut state = mk_state(mk_pool(0, "a", "a"));
    state.settings.items.clear();
    assert!(why(&mut state).contains("machine-config-controller does not exist"));
    let mut state = mk_state(mk_pool(0, "a", "a"));
    state.credentials = Some(Err("no token".to_owned()));
    assert!(why(&mut state).contains("no token"));
    let mut state = mk_state(mk_pool(0, "a", "a"));
    state.configs.items.insert("a".to_owned(), "2".to_owned());
    assert!(why(&mut state).contains("is being fetched"), "another version than the one that was fetched");
}

#[test]
fn a_good_token_stays_when_the_next_cannot_be_read() {
    let mut state = ClusterState::default();
    let token = |t: &str| Ok(Credentials { token: t.to_owned(), ca: None });
    assert!(state.set_credentials(Err("not there".to_owned())));
    assert!(state.set_credentials(token("a")));
    assert!(!state.set_credentials(token("a")));
    assert!(!state.set_credentials(Err("gone".to_owned())));
    assert_eq!(state.credentials, Some(token("a")));
    assert!(state.set_credentials(token("b")));
}

#[test]
fn a_layered_pool_boots_into_its_image_once_a_node_has_proved_it() {
    let fetched = Fetched::from([mk_config("a", "3.5.0"), mk_config("b", "3.5.0")]);
    for (updated, known, want) in [(1, true, Some("quay.io/os@sha256:1")), (0, true, None), (1, false, None)]
    {
        let mut state = mk_state(mk_pool(updated, "b", "a"));
        state.internal = known.then(InternalRegistry::default);
        state.os_configs.items.insert(
            "layered".to_owned(),
            OsConfig::new(&json!({
                "metadata": {"name": "layered"}, "spec": {"machineConfigPool": {"name": "worker"}},
                "status": {"currentImagePullSpec": "quay.io/os@sha256:1"},
            })),
        );
        state.os_builds.items.insert(
            "build".to_owned(),
            OsBuild::new(&json!({
                "spec": {"machineOSConfig": {"name": "layered"}, "machineConfig": {"name": "b"}},
                "status": {
                    "digestedImagePushSpec": "quay.io/os@sha256:1",
                    "conditions": [{"type": "Succeeded", "status": "True"}],
                },
            })),
        );
        let sources = state.sources(URL, &fetched);
        let source = sources.pools["worker"].as_ref().unwrap();
        assert_eq!(source.layered_image.as_deref(), want, "{updated} {known}");
    }
}

#[test]
fn a_list_replaces_what_was_known_only_when_it_is_whole() {
    let mut mirror = WatchedObjects::<u8>::default();
    let keep = |name: &str| (name.to_owned(), 0);
    mirror.apply(Event::Init, keep);
    mirror.apply(Event::InitApply("a"), keep);
    assert!(!mirror.ready() && mirror.get("a").is_none());
    mirror.apply(Event::InitDone, keep);
    assert!(mirror.ready() && mirror.get("a").is_some());
    mirror.apply(Event::Apply("b"), keep);
    mirror.apply(Event::Init, keep);
    mirror.apply(Event::InitApply("c"), keep);
    assert!(mirror.get("a").is_some() && mirror.get("c").is_none());
    mirror.apply(Event::InitDone, keep);
    assert_eq!(mirror.items.keys().collect::<Vec<_>>(), ["c"]);
    mirror.apply(Event::Delete("c"), keep);
    assert!(mirror.items.is_empty());
}

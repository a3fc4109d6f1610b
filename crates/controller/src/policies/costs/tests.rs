//! Tests of the costs of changes: how long a cost counts, what is requested and how often, and that none delays another one. The API
//! server is a fake.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::{answer, item, shared};
use api::names::annotation;
use serde_json::json;

fn change(from: &str) -> ChangeAsked {
    ChangeAsked { from: from.into(), to: "new".into() }
}

fn changes(from: &[&str]) -> BTreeSet<ChangeAsked> {
    from.iter().map(|from| change(from)).collect()
}

/// As a plan asks for them in a cluster without pools.
fn key(from: &str) -> CostKey {
    CostKey { change: change(from), pool: PoolDisruption::default() }
}

fn keys(from: &[&str]) -> BTreeSet<CostKey> {
    from.iter().map(|from| key(from)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cost_counts_until_a_newer_one_is_known_and_goes_when_nobody_asks() {
    let (mut state, mut under_way) = (State::default(), UnderWay::new());
    let cost = |certificates| Ok(ChangeCost { least: None, certificates });
    let gone = || Err("it is gone".to_owned());
    let known = |state: &State| {
        let all = state.known(|change| CostKey::of(change, |_| PoolDisruption::default()));
        all.into_iter().filter(|(_, cost)| cost.is_ok()).count()
    };
    state.ask(keys(&["a", "b"]));
    assert_eq!(state.next_try(&under_way), None);
    assert_eq!(state.begin(&mut under_way), [key("a"), key("b")]);
    assert_eq!(state.begin(&mut under_way), [], "they are under way");
    assert!(state.record(&mut under_way, &key("a"), cost(false)));
    assert!(state.record(&mut under_way, &key("b"), gone()), "now it is known why");
    assert_eq!((state.begin(&mut under_way).len(), known(&state)), (0, 1));
    // Each further try waits longer.
    let mut waited = Duration::ZERO;
    for attempt in 0..4 {
        let wait = state.next_try(&under_way).unwrap() - Instant::now();
        let most = AGAIN.longest(attempt);
        assert!(wait > most / 3 && wait <= most, "{attempt}: {wait:?}");
        waited += wait;
        tokio::time::advance(wait).await;
        assert_eq!(state.begin(&mut under_way), [key("b")]);
        assert_eq!(state.next_try(&under_way), None, "while it is under way");
        assert!(!state.record(&mut under_way, &key("b"), gone()), "that is known");
    }
    tokio::time::advance(AGAIN.last).await;
    assert_eq!(state.begin(&mut under_way), [key("b")]);
    assert!(state.record(&mut under_way, &key("b"), cost(false)));
    assert_eq!((state.next_try(&under_way), known(&state)), (None, 2));
    tokio::time::advance(KEPT - waited - AGAIN.last).await;
    // An old one is computed again, and counts meanwhile, also when that fails.
    assert_eq!((state.begin(&mut under_way), known(&state)), (vec![key("a")], 2));
    assert!(!state.record(&mut under_way, &key("a"), gone()));
    assert_eq!((state.begin(&mut under_way).len(), known(&state)), (0, 2));
    tokio::time::advance(AGAIN.first).await;
    assert_eq!(state.begin(&mut under_way), [key("a")]);
    assert!(
        state.record(&mut under_way, &key("a"), cost(true))
            && !state.record(&mut under_way, &key("a"), cost(true))
    );
    state.ask(keys(&["b"]));
    assert_eq!((state.begin(&mut under_way).len(), known(&state)), (0, 1));
    assert!(!state.record(&mut under_way, &key("a"), cost(true)), "nobody asks any more");
    assert_eq!(known(&state), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_task_has_begun_is_looked_up_by_the_next_one() {
    let mut state = State::default();
    state.ask(keys(&["a"]));
    // A task that is stopped finishes the step that it is in, and may begin a lookup in it. Nobody waits for its answer.
    let mut stopped = UnderWay::new();
    assert_eq!(state.begin(&mut stopped), [key("a")]);
    assert_eq!(state.begin(&mut UnderWay::new()), [key("a")]);
}

/// What a fake API server has.
#[derive(Debug, Default)]
struct World {
    /// MachineConfigs.
    configs: BTreeMap<String, serde_json::Value>,
    /// How many requests are answered with 503 first.
    away: usize,
    /// The disruption policy cannot be read.
    no_policy: bool,
    /// The last parts of the paths that were asked for.
    asked: Vec<String>,
}

fn world(configs: &[(&str, &str)]) -> (Arc<Shared>, Arc<Mutex<World>>) {
    let spec = |version: &str| json!({"config": {"ignition": {"version": version}}});
    let configs = configs.iter().map(|(name, version)| ((*name).to_owned(), spec(version))).collect();
    let world = Arc::new(Mutex::new(World { configs, ..World::default() }));
    let served = world.clone();
    let shared = shared(move |request| {
        let mut world = served.lock().unwrap();
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        world.asked.push(name.clone());
        let failure = |code| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"});
        if world.away > 0 {
            world.away -= 1;
            return answer(503, &failure(503));
        }
        match world.configs.get(&name) {
            _ if name.starts_with("broken") || (world.no_policy && name == POLICY) => {
                answer(500, &failure(500))
            }
            None => answer(404, &failure(404)),
            Some(spec) => answer(200, &json!({"metadata": {"name": name}, "spec": spec})),
        }
    });
    (Arc::new(shared), world)
}

fn known(costs: &CostsOfChanges) -> Vec<String> {
    let known = costs.known(&[]).into_iter().filter(|(_, cost)| cost.is_ok());
    known.map(|(change, _)| change.from.to_string()).collect()
}

/// What was asked for since the last look, sorted.
fn asked(world: &Mutex<World>) -> Vec<String> {
    let mut asked = std::mem::take(&mut world.lock().unwrap().asked);
    asked.sort();
    asked
}

const POLICY: &str = "machineconfigurations";

#[tokio::test(start_paused = true)]
async fn a_config_that_is_gone_or_unreadable_or_refused_delays_no_other_change_and_each_object_is_read_once()
{
    let (shared, world) = world(&[("bad", "99.0.0"), ("c", "3.4.0"), ("d", "3.4.0"), ("new", "3.4.0")]);
    let costs = CostsOfChanges::default();
    costs.request(&shared, changes(&["a-gone", "bad", "broken", "c", "d"]));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(known(&costs), ["c", "d"]);
    assert!(!shared.queues.of(crate::queue::Pass::Node).take().is_empty(), "the cluster is planned again");
    assert_eq!(asked(&world), ["a-gone", "bad", "broken", "c", "d", POLICY, "new"]);
    let why = |from: &str| costs.known(&[])[&change(from)].clone().unwrap_err();
    assert!(
        why("a-gone").contains("machineconfig a-gone") && why("broken").contains("500"),
        "{}",
        why("broken")
    );
    // More is asked for while others fail, and what was there is tried again later without being asked for.
    costs.request(&shared, changes(&["a-gone", "bad", "broken", "c", "d", "new"]));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        (known(&costs), asked(&world)),
        (vec!["c".into(), "d".into(), "new".into()], vec![POLICY.into(), "new".into()])
    );
    world.lock().unwrap().configs.insert("a-gone".to_owned(), json!({}));
    tokio::time::sleep(AGAIN.first * 2).await;
    assert_eq!(known(&costs), ["a-gone", "c", "d", "new"]);
    let failing = |costs: &CostsOfChanges| costs.known(&[]).values().filter(|cost| cost.is_err()).count();
    assert_eq!(failing(&costs), 2);
    asked(&world);
    tokio::time::sleep(Duration::from_mins(4)).await;
    let requests = asked(&world).iter().filter(|name| *name == "broken").count();
    assert!((5..=14).contains(&requests), "each wait is longer than the one before: {requests} requests");
    costs.request(&shared, changes(&[]));
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!((known(&costs), asked(&world)), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_asked_again() {
    let (shared, world) = world(&[("a", "3.4.0"), ("new", "3.4.0")]);
    for (away, within) in [(4, Duration::from_mins(1)), (12, Duration::from_mins(10))] {
        world.lock().unwrap().away = away;
        let costs = CostsOfChanges::default();
        costs.request(&shared, changes(&["a"]));
        tokio::time::sleep(within).await;
        assert_eq!(known(&costs), ["a"], "{away} requests fail");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_that_fail_together_are_tried_again_together() {
    let froms: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let configs: Vec<(&str, &str)> = froms.iter().map(|name| (name.as_str(), "3.4.0")).collect();
    let (shared, world) = world(&[configs.as_slice(), &[("new", "3.4.0")]].concat());
    world.lock().unwrap().no_policy = true;
    let costs = CostsOfChanges::default();
    let froms: Vec<&str> = froms.iter().map(String::as_str).collect();
    costs.request(&shared, changes(&froms));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let policies = asked(&world).iter().filter(|name| *name == POLICY).count();
    assert!((10..=35).contains(&policies), "{policies} requests");
    world.lock().unwrap().no_policy = false;
    tokio::time::sleep(AGAIN.last).await;
    assert_eq!(known(&costs).len(), 20);
}

#[tokio::test(start_paused = true)]
async fn what_a_change_costs_under_former_settings_of_the_pool_does_not_count() {
    const OLD: &str = "rendered-worker-00000000000000000000000000000001";
    const NEW: &str = "rendered-worker-00000000000000000000000000000002";
    let (shared, world) = world(&[]);
    let motd = json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
        {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,new"}}]}}});
    world.lock().unwrap().configs.extend([(OLD.to_owned(), json!({})), (NEW.to_owned(), motd)]);
    let put = |version: u64, reboots: &str| {
        let annotations = json!({annotation::REBOOTS: reboots});
        let pool = json!({"metadata": {"name": "worker", "annotations": annotations},
            "spec": {"configuration": {"name": NEW}}});
        let pool = Item { version, ..item(serde_json::from_value(pool).unwrap()) };
        shared.stores.pools.apply("worker".to_owned(), pool);
    };
    let costs = CostsOfChanges::default();
    let asked = ChangeAsked { from: OLD.into(), to: NEW.into() };
    let reboots = || {
        let pools = shared.stores.pools.all();
        let known = costs.known(&pools.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        known.get(&asked).map(|cost| cost.clone().unwrap().least.is_none())
    };
    put(1, "WhenNeeded");
    costs.request(&shared, [asked.clone()].into());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reboots(), Some(false));
    put(2, "Always");
    assert_eq!(reboots(), None, "nobody has computed it for the pool as it is now");
    costs.request(&shared, [asked.clone()].into());
    assert_eq!(reboots(), None, "and it is being computed");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reboots(), Some(true));
}

//! OS images that are on the nodes before the first one is drained.

use super::*;
use rollout::view::{NodeView, own};
use rollout::{Prefetching, Sources, Streams};
use std::collections::BTreeMap;

/// Workers of `v0` in a pool that wants `v1` and fetches images ahead.
fn world(at_once: &str, max: i32, names: &[&str]) -> World {
    let nodes = names.iter().enumerate();
    let nodes = nodes.map(|(i, name)| moved(name, "v0", "v0").created(i64::try_from(i).unwrap()));
    let mut world = World::workers(json!(max), nodes.collect());
    set(&mut world, own::PREFETCH, Some(at_once));
    world
}

/// Sets an annotation of the pool.
fn set(world: &mut World, key: &str, value: Option<&str>) {
    let all = world.pools[0].metadata.annotations.get_or_insert_default();
    match value {
        Some(value) => drop(all.insert(key.to_owned(), value.to_owned())),
        None => drop(all.remove(key)),
    }
}

/// What the nodes' agents are asked, by name; those that have answered are left out.
fn asked(world: &World) -> Vec<String> {
    let open = |n: &&NodeView| match (&n.prefetch, &n.prefetched) {
        (Some(asked), Some(answer)) => !answer.starts_with(&**asked),
        (asked, _) => asked.is_some(),
    };
    let all = world.nodes.iter().filter(open);
    all.map(|n| format!("{}: {}", n.name, n.prefetch.as_deref().unwrap())).collect()
}

/// A node's agent answers what it is asked: the image is there, or why not.
fn answer(world: &mut World, name: &str, failed: Option<&str>) {
    let node = world.nodes.iter_mut().find(|n| &*n.name == name).unwrap();
    let asked = node.prefetch.clone().unwrap();
    node.prefetched = Some(match failed {
        None => asked,
        Some(why) => format!("{asked}; {why}").into(),
    });
}

fn step(plan: &PoolPlan, name: &str) -> Step {
    plan.nodes.iter().find(|n| &*n.node == name).unwrap().step.clone()
}

/// Applies plans until one changes no node.
fn rest(world: &mut World) -> PoolPlan {
    world.settle();
    world.plan_of("worker")
}

#[test]
fn all_nodes_have_the_image_before_the_first_one_goes_and_a_few_fetch_at_a_time() {
    let mut world = world("2", 1, &["a", "b", "c", "d"]);
    let plan = rest(&mut world);
    assert_eq!(asked(&world), ["a: 1 v1", "b: 1 v1"], "the oldest first, as they go");
    assert_eq!(plan.hold, Some(Hold::Prefetch { left: 4, of: 4, at_once: 2 }));
    let wait = |how| Step::Waits(Wait::Prefetch(how));
    assert_eq!(step(&plan, "a"), wait(Prefetching::Now));
    assert_eq!(step(&plan, "d"), wait(Prefetching::Later));
    for (done, then) in [("b", vec!["a", "c"]), ("a", vec!["c", "d"]), ("d", vec!["c"])] {
        answer(&mut world, done, None);
        let plan = rest(&mut world);
        let fetching: Vec<_> = asked(&world).iter().map(|a| a[..1].to_owned()).collect();
        assert_eq!(fetching, then, "{plan}");
        assert!(goes(&plan).is_empty() && plan.hold.is_some(), "{plan}");
    }
    let says = world.plan_of("worker").hold.unwrap().to_string();
    assert!(says.ends_with("on 2 at a time: 1 of 4 are left"), "{says}");
    answer(&mut world, "c", None);
    let plan = world.plan_of("worker");
    assert_eq!((plan.hold.clone(), goes(&plan)), (None, vec!["a".to_owned()]), "{plan}");
    let want = [("desiredConfig", Some("v1")), (own::PREFETCH, None), (own::PREFETCHED, None)];
    assert_eq!(patch(&plan, "a")["metadata"], notes(&want)["metadata"], "in one write");
    assert_eq!(patch(&plan, "b")["metadata"], Value::Null, "it keeps its answer, and is tainted only");
}

#[test]
fn a_node_that_cannot_fetch_holds_up_itself_only_and_is_asked_again() {
    let mut world = world("1", 2, &["a", "b", "c"]);
    rest(&mut world);
    answer(&mut world, "a", Some("no space"));
    rest(&mut world);
    assert_eq!(asked(&world), ["b: 1 v1"], "who has not tried comes before who has failed");
    answer(&mut world, "b", None);
    rest(&mut world);
    answer(&mut world, "c", Some("no route"));
    let plan = world.plan_of("worker");
    assert_eq!((plan.hold.clone(), goes(&plan)), (None, vec!["b".to_owned()]), "{plan}");
    let failed = |why: &str| Step::Waits(Wait::Prefetch(Prefetching::Failed { why: why.to_owned() }));
    assert_eq!((step(&plan, "a"), step(&plan, "c")), (failed("no space"), failed("no route")));
    rest(&mut world);
    assert_eq!(asked(&world), ["a: 2 v1"]);
    assert_eq!(step(&world.plan_of("worker"), "a"), failed("no space"), "it says why while it tries");
    answer(&mut world, "a", Some("no space"));
    rest(&mut world);
    assert_eq!(asked(&world), ["c: 2 v1"], "who was asked less often is asked before");
    answer(&mut world, "c", None);
    let plan = world.plan_of("worker");
    assert_eq!(goes(&plan), ["c"], "{plan}");
    rest(&mut world);
    assert_eq!(asked(&world), ["a: 3 v1"]);
}

#[test]
fn only_nodes_in_service_that_need_the_image_are_waited_for() {
    let image = |n: Mk, image: &str| n.images(Some(image), Some(image));
    let rows = [
        ("in service", moved("a", "v0", "v0"), Layering::default(), true),
        ("not ready", moved("a", "v0", "v0").unready(), Layering::default(), false),
        ("at work", moved("a", "v-1", "v0"), Layering::default(), false),
        ("never had a config", moved("a", "mco-empty-mc", "mco-empty-mc"), Layering::default(), false),
        ("there already", moved("a", "v1", "v1"), Layering::default(), false),
        ("no agent", node("a"), Layering::default(), false),
        ("back to the config's image", image(moved("a", "v0", "v0"), "i"), Layering::default(), true),
        ("to the pool's image", image(moved("a", "v0", "v0"), "i"), built("img1"), true),
        ("in the pool's image", image(moved("a", "v0", "v0"), "img1"), built("img1"), false),
    ];
    for (about, node, layering, fetches) in rows {
        let mut world = world("1", 1, &[]);
        world.nodes = vec![node.view()];
        world.layering.insert("worker".to_owned(), layering);
        let plan = world.plan_of("worker");
        let asked = plan.patches.iter().any(|p| p.prefetch != Change::Keep);
        assert_eq!((asked, matches!(plan.hold, Some(Hold::Prefetch { .. }))), (fetches, fetches), "{about}");
    }
    let mut world = world("1", 1, &["a"]);
    world.nodes = vec![image(moved("a", "v0", "v0"), "i").view()];
    world.layering.insert("worker".to_owned(), built("img1"));
    rest(&mut world);
    assert_eq!(asked(&world), ["a: 1 v1 img1"], "with the image");
}

#[test]
fn what_was_asked_is_taken_back_with_the_wish() {
    let start = || {
        let mut world = world("1", 1, &["a", "b"]);
        rest(&mut world);
        answer(&mut world, "a", None);
        rest(&mut world);
        assert_eq!(asked(&world), ["b: 1 v1"]);
        world
    };
    // Another config: what was asked and answered is about the old one.
    let mut other = start();
    other.pools[0].spec.configuration.name = "v2".to_owned();
    let plan = other.plan_of("worker");
    assert_eq!(
        patch(&plan, "a")["metadata"],
        notes(&[(own::PREFETCH, Some("1 v2")), (own::PREFETCHED, None)])["metadata"]
    );
    assert_eq!(patch(&plan, "b")["metadata"], notes(&[(own::PREFETCH, None)])["metadata"]);
    // Back in the config that they are in.
    let mut back = start();
    back.pools[0].spec.configuration.name = "v0".to_owned();
    let plan = rest(&mut back);
    assert!(plan.nodes.iter().all(|n| n.step == Step::Done), "{plan}");
    assert!(back.nodes.iter().all(|n| n.prefetch.is_none() && n.prefetched.is_none()));
    // The pool no longer asks for it: nodes go as they ever did.
    let mut off = start();
    set(&mut off, own::PREFETCH, None);
    assert_eq!(goes(&off.plan_of("worker")), ["a"]);
    rest(&mut off);
    assert!(off.nodes.iter().all(|n| n.prefetch.is_none()));
    // A paused pool's nodes keep what they have.
    let mut paused = start();
    paused.pools[0].spec.paused = true;
    assert!(paused.plan_of("worker").patches.is_empty());
}

#[test]
fn the_limit_is_a_number_or_a_percentage_and_a_mistake_is_told() {
    for (text, at_once) in [("2", 2), ("50%", 2), ("1%", 1), (" 3 ", 3), ("900%", 4)] {
        let mut world = world(text, 1, &["a", "b", "c", "d"]);
        rest(&mut world);
        assert_eq!(asked(&world).len(), at_once, "{text}");
    }
    for off in ["", "0"] {
        assert_eq!(goes(&world(off, 1, &["a", "b"]).plan_of("worker")), ["a"], "{off:?}");
    }
    for bad in ["many", "-1", "1.5", "%"] {
        let plan = world(bad, 1, &["a"]).plan_of("worker");
        assert_eq!(plan.hold, Some(Hold::PrefetchLimit(bad.to_owned())), "{bad}");
        let updating = plan.status.unwrap().conditions.unwrap();
        let updating = updating.iter().find(|c| c.type_ == "Updating").unwrap();
        assert!(updating.message.contains("machineconfig.dev/prefetch"), "{}", updating.message);
    }
}

#[test]
fn a_config_with_the_same_image_or_none_is_not_waited_for() {
    let mut world = world("1", 1, &["a"]);
    let all = |old: &str, new: &str| -> BTreeMap<String, rollout::ConfigView> {
        let view = |url: &str| rollout::ConfigView {
            pool: None,
            os_image_url: url.into(),
            looked: Default::default(),
        };
        [("v0".to_owned(), view(old)), ("v1".to_owned(), view(new))].into()
    };
    for (old, new, fetches) in
        [("q/a", "q/a", false), ("q/a", "q/b", true), ("", "q/b", true), ("q/a", "", false), ("", "", false)]
    {
        let configs = all(old, new);
        let sources = Sources {
            pools: world.pools.iter().collect(),
            nodes: world.nodes.iter().collect(),
            configs: Some(&configs),
            os_configs: vec![],
            os_builds: vec![],
            controller_config: None,
            streams: Streams::Unknown,
            operator_nodes: vec![],
            masters_schedulable: None,
            etcd: vec![],
            policies: None,
            outlooks: None,
            pins: Default::default(),
            memory: Default::default(),
        };
        let plan = rollout::plan(&sources.inputs(&world.facts, api::k8s::Time(at(1))));
        assert_eq!(plan.pools[0].hold.is_some(), fetches, "{old:?} to {new:?}: {plan}");
    }
    // Who does not read images sees by what was asked that the nodes fetch one.
    world.nodes[0].prefetch = Some("1 v1".into());
    let configs = all("", "");
    let sources = Sources {
        pools: world.pools.iter().collect(),
        nodes: world.nodes.iter().collect(),
        configs: Some(&configs),
        os_configs: vec![],
        os_builds: vec![],
        controller_config: None,
        streams: Streams::Unknown,
        operator_nodes: vec![],
        masters_schedulable: None,
        etcd: vec![],
        policies: None,
        outlooks: None,
        pins: Default::default(),
        memory: Default::default(),
    };
    let plan = rollout::plan(&sources.inputs(&world.facts, api::k8s::Time(at(1))));
    assert_eq!(plan.pools[0].hold, Some(Hold::Prefetch { left: 1, of: 1, at_once: 1 }), "{plan}");
    set(&mut world, own::PREFETCH, None);
    assert_eq!(goes(&world.plan_of("worker")), ["a"]);
}

/// Whatever the agents answer, and in whichever order: never more than the limit fetch at once, no node goes without its image,
/// and in the end all have it.
#[test]
fn every_order_of_answers_ends_and_keeps_the_limit() {
    for seed in 0_u64..64 {
        let names = ["a", "b", "c", "d", "e"];
        let mut world = world("2", 2, &names);
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % u64::try_from(below).unwrap()).unwrap()
        };
        let (mut has, mut rounds) = (vec![], 0);
        while world.nodes.iter().any(|n| n.current_config.as_deref() != Some("v1")) {
            rounds += 1;
            assert!(rounds < 200, "seed {seed}: {}", world.plan());
            let plan = rest(&mut world);
            let open = asked(&world);
            assert!(open.len() <= 2, "seed {seed}: {open:?}");
            for node in &mut world.nodes {
                if node.desired_config.as_deref() == Some("v1") {
                    assert!(
                        has.contains(&node.name),
                        "seed {seed}: {} went without its image: {plan}",
                        node.name
                    );
                    node.current_config = node.desired_config.clone();
                }
            }
            if !open.is_empty() {
                let name = open[next(open.len())].split(':').next().unwrap().to_owned();
                let fails = next(3) == 0;
                answer(&mut world, &name, fails.then_some("cut"));
                if !fails {
                    has.push(name.as_str().into());
                }
            }
        }
    }
}

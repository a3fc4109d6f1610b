//! What a followed cluster looks up for its plan: what follows from refusals, and what is said of what is not known.
//!
//! Not here: the lookups themselves (see the crate `lookups`).

use super::*;

#[tokio::test]
async fn who_may_not_list_pods_is_told_so_and_no_node_waits_for_a_look() {
    let objects = cluster(true);
    let mut cluster = followed(&client(&objects, false), &objects);
    let waits = |cluster: &ClusterWatch| {
        let plan = cluster.plan(Timestamp::UNIX_EPOCH).plan;
        plan.pools[0].nodes.iter().any(|n| n.step == Step::Waits(Wait::DrainOutlook))
    };
    assert!(waits(&cluster), "until somebody has looked");
    cluster.fetch_lookups(Timestamp::UNIX_EPOCH).await;
    assert!(!waits(&cluster));
    assert!(cluster.unread().iter().any(|unread| unread.words.contains("spec.drain")));
}

/// A worker pool whose window is shut. Node `a` is on its way from 1 to 2 and has not begun, and 3 is the pool's config by now.
fn cluster_with_a_window(second: &Value, third: &Value) -> Vec<Value> {
    let mut objects = cluster(false);
    objects[0]["spec"]["configuration"]["name"] = json!("rendered-worker-3");
    objects[2]["spec"] = second.clone();
    objects[3]["metadata"]["annotations"]["machineconfiguration.openshift.io/desiredConfig"] =
        json!("rendered-worker-2");
    objects[5]["spec"]["windows"] = json!([{"name": "noon", "cron": "0 12 * * *", "duration": "1h"}]);
    let third = json!({"apiVersion": POOLS, "kind": "MachineConfig", "metadata": {"name": "rendered-worker-3"}, "spec": third});
    objects.push(third);
    objects
}

#[tokio::test]
async fn a_node_that_reboots_anyway_takes_along_what_waits_for_a_window_as_the_controller_says() {
    let arguments = |all: &[&str]| json!({"kernelArguments": all});
    let motd = json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
        {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,new"}}]}}});
    let when_needed = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {"files": [
            {"path": "/etc/motd", "actions": [{"type": "None"}]}]}}});
    let (pool, goes) = (Step::Waits(Wait::Pool), Step::Goes);
    for (what, second, third, allowed, want) in [
        ("both reboot it", arguments(&["a"]), arguments(&["a", "b"]), true, &goes),
        ("the reboot is what waits", motd.clone(), arguments(&["b"]), true, &pool),
        ("less than the reboot waits", arguments(&["a"]), motd, true, &goes),
        ("nobody may read what they cost", arguments(&["a"]), arguments(&["a", "b"]), false, &pool),
    ] {
        let mut objects = cluster_with_a_window(&second, &third);
        objects.push(when_needed.clone());
        let mut cluster = followed(&client(&objects, allowed), &objects);
        let now = Timestamp::UNIX_EPOCH;
        let step = |plan: &rollout::RolloutPlan| plan.pools[0].nodes.iter().map(|n| n.step.clone()).next();
        assert_eq!(step(&cluster.plan(now).plan).as_ref(), Some(&pool), "{what}: before anything is read");
        cluster.fetch_lookups(now).await;
        let seen = cluster.plan(now).plan;
        assert_eq!(step(&seen).as_ref(), Some(want), "{what}: {}", seen.pools[0]);
        assert_eq!(seen.pools[0].nodes[1].step, pool, "{what}: b waits for the window");
        let unread: Vec<String> = cluster.unread().into_iter().map(|u| u.words).collect();
        assert_eq!(unread.len(), usize::from(!allowed), "{what}: {unread:?}");
        // Files say the same, where what changes cost is computed from the configs among them.
        if allowed {
            let same = from_files(&objects).plan(&Time(now));
            assert_eq!(same.pools[0].nodes, seen.pools[0].nodes, "{what}");
        }
    }
}

/// A cost is that of the pool's present settings: with others it is read again.
#[tokio::test]
async fn a_pool_that_changes_what_disruption_costs_has_its_costs_read_again() {
    let objects =
        cluster_with_a_window(&json!({"kernelArguments": ["a"]}), &json!({"kernelArguments": ["b"]}));
    let mut cluster = followed(&client(&objects, true), &objects);
    let now = Timestamp::UNIX_EPOCH;
    cluster.fetch_lookups(now).await;
    let goes = |cluster: &ClusterWatch| cluster.plan(now).plan.pools[0].nodes[0].step == Step::Goes;
    assert!(goes(&cluster));
    let mut pool = objects[0].clone();
    pool["metadata"]["annotations"] = json!({"machineconfig.dev/reboots": "WhenNeeded"});
    cluster.put_pool(serde_json::from_value(pool).unwrap());
    assert!(!goes(&cluster), "what was read says nothing about the pool as it is now");
    cluster.fetch_lookups(now).await;
    assert!(goes(&cluster));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_for_a_minute() {
    let arguments = |all: &[&str]| json!({"kernelArguments": all});
    let window = cluster_with_a_window(&arguments(&["a"]), &arguments(&["b"]));
    // Columns: the cluster, what is said of the refusal, and which node goes without it.
    for (objects, says, goes) in
        [(cluster(true), "spec.drain", "b"), (window, "it is not known what changes cost", "a")]
    {
        let mut cluster = followed(&client_refused(&objects, 1), &objects);
        let is_refused = |cluster: &ClusterWatch| cluster.unread().iter().any(|u| u.words.contains(says));
        cluster.fetch_lookups(Timestamp::UNIX_EPOCH).await;
        assert!(is_refused(&cluster), "{says}");
        tokio::time::advance(Duration::from_secs(59)).await;
        cluster.fetch_lookups(Timestamp::UNIX_EPOCH).await;
        assert!(is_refused(&cluster), "{says}: not before");
        tokio::time::advance(Duration::from_secs(2)).await;
        cluster.fetch_lookups(Timestamp::UNIX_EPOCH).await;
        assert!(cluster.unread().is_empty(), "{says}: {:?}", cluster.unread());
        let plan = cluster.plan(Timestamp::UNIX_EPOCH).plan;
        let going: Vec<&str> =
            plan.pools[0].nodes.iter().filter(|n| n.step == Step::Goes).map(|n| &*n.node).collect();
        assert_eq!(going, [goes], "{says}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_looked_up_in_time_is_said_not_to_be_known() {
    let arguments = |all: &[&str]| json!({"kernelArguments": all});
    let window = cluster_with_a_window(&arguments(&["a"]), &arguments(&["b"]));
    // Columns: the cluster, what is said, and how often something is asked for: the pods of the second node, because the drain of the
    // first one would wait.
    for (objects, says, rounds) in
        [(window, "it is not known yet what", 1), (cluster(true), "are not read yet", 2)]
    {
        let slow = Duration::from_secs(6);
        let mut cluster = followed(&client_with(&objects, 0, slow), &objects);
        let now = Timestamp::UNIX_EPOCH;
        let began = Instant::now();
        tokio::time::timeout(LOOKUPS_LIMIT, cluster.fetch_lookups(now)).await.expect_err("too early");
        cluster.plan(now);
        let unread = cluster.unread();
        assert!(unread.iter().any(|u| u.words.contains(says)), "{unread:?}");
        // What has been requested is not requested again, and all configs were requested at the same time.
        cluster.fetch_lookups(now).await;
        assert!(cluster.unread().is_empty(), "{:?}", cluster.unread());
        assert!(began.elapsed() < slow * rounds + Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

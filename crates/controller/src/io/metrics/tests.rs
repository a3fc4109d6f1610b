//! Tests of `metrics`: what a former leader reports, and the names that dashboards use.

use super::*;

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[test]
fn a_former_leader_says_nothing_of_pools_and_nodes() {
    let mut registry = Registry::default();
    let m = Metrics::new(&mut registry);
    m.leader.set(1);
    m.boot_image_skew.set(1);
    let (pool, node) = (Pool { pool: "worker".to_owned() }, Node { node: "n1".to_owned() });
    for family in [
        &m.rollout_held,
        &m.machine_count,
        &m.updated_machine_count,
        &m.degraded_machine_count,
        &m.unavailable_machine_count,
        &m.os_image_url_override,
    ] {
        family.get_or_create(&pool).set(1);
    }
    m.drain_err.get_or_create(&node).set(1);
    m.pool_alert.get_or_create(&node).set(1);
    m.drain_waits.set("n1", true);
    let (pool, state, reason) = ("worker".to_owned(), "Degraded".to_owned(), String::new());
    m.rollout_nodes.get_or_create(&PoolState { pool: pool.clone(), state: state.clone() }).set(1);
    m.state.get_or_create(&State { node: "n1".to_owned(), pool, state, reason }).set(1);
    m.success("render", "Sync", "worker", jiff::Timestamp::UNIX_EPOCH);
    m.record_pass("node", Duration::from_millis(3), Duration::from_millis(1));
    m.passes.get_or_create(&Pass { queue: "node".to_owned(), outcome: "done".to_owned() }).inc();
    let before = text(&registry);
    for series in ["mcc_drain_err{node=\"n1\"} 1", "mco_state{", "mcc_leader 1", "mcc_drain_blocked_seconds{"]
    {
        assert!(before.contains(series), "{series} in\n{before}");
    }
    m.clear_for_standby();
    let after = text(&registry);
    assert!(!after.contains("worker") && !after.contains("n1"), "{after}");
    for series in
        ["mcc_leader 0", "mcc_boot_image_skew_enforcement_none 0", "mcc_passes_total{queue=\"node\""]
    {
        assert!(after.contains(series), "{series} in\n{after}");
    }
}

#[test]
fn the_names_that_dashboards_use_are_written_out() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    metrics.machine_count.get_or_create(&Pool { pool: "worker".to_owned() }).set(3);
    metrics.drain_err.get_or_create(&Node { node: "n1".to_owned() }).set(1);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in ["mco_machine_count{pool=\"worker\"} 3", "mcc_drain_err{node=\"n1\"} 1"] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    metrics.drain_waits.set("n1", true);
    metrics.record_pass("node", Duration::from_millis(3), Duration::from_millis(1));
    text.clear();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "mcc_drain_blocked_seconds{node=\"n1\"} 0.",
        "workqueue_queue_duration_seconds_count{name=\"node\"} 1",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    metrics.forget_node("n1");
    text.clear();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(!text.contains("n1"), "{text}");
}

//! Tests of changes: when none of the nodes can apply one, and when a limit refuses it.

use super::*;

#[test]
fn a_change_is_impossible_only_when_no_node_can_apply_it() {
    let never = || Outcome::Irreconcilable { irreconcilable: vec![] };
    let perhaps = || Outcome::Unknown { because: "it is not there".to_owned() };
    // Nodes in each config, whether the pool is empty, whether it is impossible, whether a plan refuses it.
    let rows = [
        (vec![(1, never())], false, true, true),
        (vec![(1, never()), (2, never())], false, true, true),
        (vec![(1, never()), (2, perhaps())], false, false, true),
        (vec![(0, never()), (2, perhaps())], false, false, false),
        (vec![(0, never())], false, false, false),
        (vec![(0, never())], true, false, true),
        (vec![], true, false, false),
    ];
    for (n, (costs, empty, impossible, refused)) in rows.into_iter().enumerate() {
        let cost = |(nodes, outcome)| Cost { from: String::new(), nodes, outcome };
        let change = PoolChange {
            pool: "worker".to_owned(),
            from: String::new(),
            to: String::new(),
            diff: String::new(),
            pulls: None,
            costs: costs.into_iter().map(cost).collect(),
            max_unavailable: 1,
            held: None,
            nodes: vec![],
            drains: vec![],
            policy: None,
            time: None,
            empty,
            warnings: vec![],
            on_trial: vec![],
        };
        assert_eq!((change.is_impossible(), change.is_refused(None)), (impossible, refused), "row {n}");
    }
}

#[test]
fn one_refusal_makes_an_unknown_outcome_refused() {
    let unknown = || Outcome::Unknown { because: "it is not there".to_owned() };
    let applied = |severity| Outcome::Applied { severity, disruption: Disruption::default() };
    let rows = [
        (unknown(), 1, Some(Severity::Reboot), true),
        (unknown(), 0, Some(Severity::Reboot), false),
        (applied(Severity::Drain), 1, Some(Severity::Reboot), false),
        (applied(Severity::Drain), 1, Some(Severity::Drain), true),
        (applied(Severity::Reboot), 1, None, false),
    ];
    for (n, (outcome, nodes, limit, refused)) in rows.into_iter().enumerate() {
        let change = PoolChange {
            pool: "worker".to_owned(),
            from: String::new(),
            to: String::new(),
            diff: String::new(),
            pulls: None,
            costs: vec![Cost { from: String::new(), nodes, outcome }],
            max_unavailable: 1,
            held: None,
            nodes: vec![],
            drains: vec![],
            policy: None,
            time: None,
            empty: false,
            warnings: vec![],
            on_trial: vec![],
        };
        assert_eq!(change.is_refused(limit), refused, "row {n}");
    }
}

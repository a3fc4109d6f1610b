//! What events tell of updates, and what becomes of it beside what MachineConfigNodes show.

use super::super::node_update::{Bar, Part};
use super::super::rollout_rows::{ShownRollout, State};
use super::super::{NodeProgress, Timeline};
use super::*;
use api::names::node_condition as c;
use insight::{Milestone, Progress};
use jiff::SignedDuration;
use serde_json::json;
use std::sync::Arc;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// An event of our agent: its reason, the config that it is about (empty: it does not say), and when.
fn word((reason, config, second): (&str, &str, i64)) -> Option<NodeEvent> {
    let event = json!({"metadata": {"name": "e", "namespace": "x"}, "involvedObject": {"kind": "Node", "name": "n"},
        "reason": reason, "message": format!("{reason} says"), "firstTimestamp": at(second)});
    let mut event: Event = serde_json::from_value(event).unwrap();
    if !config.is_empty() {
        event.related = Some(api::k8s::ObjectReference {
            kind: Some("MachineConfig".to_owned()),
            name: Some(config.to_owned()),
            ..Default::default()
        });
    }
    NodeEvent::of(&event)
}

fn told(events: &[(&str, &str, i64)]) -> EventHistory {
    EventHistory::of(events.iter().filter_map(|event| word(*event)).collect())
}

/// A fleet with this one node, on its way from one config to another or in it.
fn fleet_of(current: &str, desired: &str, phase: Phase) -> Fleet {
    let mut cell = crate::fleet::snapshot::tests::cell("n", phase, "why");
    (cell.row.current, cell.row.desired) = (current.to_owned(), desired.to_owned());
    let pool = crate::fleet::snapshot::tests::pool("worker", desired);
    Fleet {
        nodes: [("n".to_owned(), cell)].into(),
        pools: [(pool.name.clone(), pool)].into(),
        ..Fleet::default()
    }
}

/// A node as it is shown in a rollout: its state and its bars.
type Bars = (State, Vec<(Part, i64, Option<i64>)>);
/// Reason, config and second of an event.
type Happening<'a> = (&'a str, &'a str, i64);

fn bars(shown: &[ShownRollout], config: &str) -> Option<Bars> {
    let line = &shown.iter().find(|one| one.config == config)?.nodes[0];
    let bar = |b: &Bar| (b.part, b.from.as_second(), b.to.map(Timestamp::as_second));
    Some((line.state, line.bars.iter().map(bar).collect()))
}

/// An update of our agent to a config, from second 10 on.
const WHOLE: [(&str, &str, i64); 7] = [
    ("Cordon", "a", 10),
    ("Drain", "a", 10),
    ("Drained", "a", 30),
    ("Reboot", "a", 40),
    ("Rebooted", "", 70),
    ("NodeDone", "a", 75),
    ("Uncordon", "a", 75),
];

#[test]
fn a_dashboard_that_begins_late_shows_the_bars_of_which_only_events_tell() {
    let whole = vec![
        (Part::Drain, 10, Some(30)),
        (Part::Apply, 30, Some(40)),
        (Part::Reboot, 40, Some(70)),
        (Part::Back, 70, Some(75)),
    ];
    let in_a = fleet_of("a", "a", Phase::Done);
    let left = &[("Cordon", "a", 10), ("Drain", "a", 10), ("DrainWaiting", "", 20), ("Cordon", "b", 40)];
    let at_b = fleet_of("old", "b", Phase::Moving);
    // The events, the fleet, and what is shown of config a.
    let rows: [(&str, &[Happening<'_>], &Fleet, Option<Bars>); 9] = [
        ("over", &WHOLE, &in_a, Some((State::Done, whole.clone()))),
        (
            "events come in any order",
            &{
                let mut all = WHOLE;
                all.reverse();
                all
            },
            &in_a,
            Some((State::Done, whole)),
        ),
        (
            "sent elsewhere before it was done",
            left,
            &at_b,
            Some((State::Left, vec![(Part::Drain, 10, Some(40))])),
        ),
        (
            "under way",
            &WHOLE[..4],
            &fleet_of("old", "a", Phase::Moving),
            Some((
                State::Moves,
                vec![(Part::Drain, 10, Some(30)), (Part::Apply, 30, Some(40)), (Part::Reboot, 40, None)],
            )),
        ),
        (
            "it fails",
            &WHOLE[..3],
            &fleet_of("old", "a", Phase::Failing),
            Some((State::Fails, vec![(Part::Drain, 10, Some(30)), (Part::Apply, 30, None)])),
        ),
        (
            "nobody wrote its end down",
            &WHOLE[..4],
            &in_a,
            Some((
                State::Done,
                vec![(Part::Drain, 10, Some(30)), (Part::Apply, 30, Some(40)), (Part::Reboot, 40, Some(40))],
            )),
        ),
        (
            "no reboot",
            &[("SkipReboot", "a", 12), ("NodeDone", "a", 13)],
            &in_a,
            Some((State::Done, vec![(Part::Back, 12, Some(13))])),
        ),
        ("of a reboot that somebody else asked for", &[("Rebooted", "", 70)], &in_a, None),
        ("of another thing", &[("ConfigDriftDetected", "a", 10), ("Unheard", "a", 11)], &in_a, None),
    ];
    for (what, events, fleet, wanted) in rows {
        let shown = Timeline::default().shown(at(100), fleet, &told(events));
        assert_eq!(bars(&shown, "a"), wanted, "{what}");
    }
    let shown = Timeline::default().shown(at(100), &at_b, &told(left));
    let line = &shown.iter().find(|one| one.config == "a").unwrap().nodes[0];
    assert_eq!((line.left, &*line.waited), (Some(at(40)), "DrainWaiting says"));
    // A node that is gone, and a second way to the same config: the newest counts.
    let gone = Timeline::default().shown(at(100), &Fleet::default(), &told(&WHOLE));
    assert_eq!(gone, []);
    let again = [
        &WHOLE[..],
        &[("Cordon", "b", 80), ("NodeDone", "b", 81), ("Drained", "a", 90), ("NodeDone", "a", 95)],
    ]
    .concat();
    let shown = Timeline::default().shown(at(100), &in_a, &told(&again));
    assert_eq!(bars(&shown, "a").unwrap().1, [(Part::Apply, 90, Some(95))]);
}

#[test]
fn what_machine_config_nodes_show_stays_and_events_fill_what_is_missing() {
    let done = |config: &str, second: i64| Progress {
        config: config.to_owned(),
        done: None,
        step: None,
        degraded: None,
        pull: None,
        steps: vec![Milestone { step: c::UPDATED.to_owned(), done: true, since: at(second) }],
        updates: vec![],
        pins: vec![],
        turn: None,
    };
    let timeline = |progress: Progress| {
        let mut timeline = Timeline::default();
        let (progress, desired) = (&Arc::new(progress), "a");
        timeline.note(NodeProgress { pool: "worker", node: "n", desired, progress, waits_for: None });
        timeline
    };
    let filled = vec![
        (Part::Drain, 10, Some(30)),
        (Part::Apply, 30, Some(40)),
        (Part::Reboot, 40, Some(70)),
        (Part::Back, 70, Some(75)),
    ];
    let in_a = fleet_of("a", "a", Phase::Done);
    let unnamed = WHOLE.map(|(reason, _, second)| (reason, "", second));
    // Its end alone is known, as of an agent of another implementation; clocks differ a little.
    for (what, events, end, wanted) in [
        ("the same way", &WHOLE, 77, filled.clone()),
        ("the same way, whose events do not name the config", &unnamed, 77, filled),
        ("an older way", &WHOLE, 5000, vec![]),
        ("an older way without a name", &unnamed, 5000, vec![]),
    ] {
        let shown = timeline(done("a", end)).shown(at(9000), &in_a, &told(events));
        assert_eq!(bars(&shown, "a"), Some((State::Done, wanted)), "{what}");
        assert_eq!(shown.len(), 1, "{what}");
    }
    // What a node has written down itself is more exact.
    let update = rollout::PastUpdate {
        config: "a".to_owned(),
        began: at(11),
        drained: Some(20),
        applied: Some(28),
        rebooted: Some(60),
        done: 65,
        ..rollout::PastUpdate::default()
    };
    let shown =
        timeline(Progress { updates: vec![update], ..done("a", 76) }).shown(at(100), &in_a, &told(&WHOLE));
    let (_, bars) = bars(&shown, "a").unwrap();
    assert_eq!(bars[1..3], [(Part::Apply, 31, Some(39)), (Part::Reboot, 39, Some(71))]);
}

#[test]
fn who_may_not_list_events_is_told_so_and_sees_the_rest() {
    let mut timeline = Timeline::default();
    let (told, fleet) = (told(&WHOLE), fleet_of("a", "a", Phase::Done));
    let hidden = EventHistory::hidden("Events may not be listed");
    // Both are asked for within the same second.
    for _ in 0..2 {
        let (all, rest) = (timeline.json(at(100), &fleet, &told), timeline.json(at(100), &fleet, &hidden));
        assert!(all.contains("\"config\":\"a\"") && all.contains("\"unread\":null"), "{all}");
        assert!(!rest.contains("\"config\":\"a\"") && rest.contains("Events may not be listed"), "{rest}");
    }
    let whole = |told: &EventHistory| timeline.rollout_json(("worker", "a"), at(100), &fleet, told);
    assert!(whole(&told).is_some_and(|text| text.contains("drain")) && whole(&hidden).is_none());
}

#[test]
fn of_a_node_the_last_ways_are_kept() {
    let configs: Vec<String> = (0..30).map(|n| format!("c{n}")).collect();
    let events: Vec<_> = configs.iter().zip(0..).map(|(config, n)| ("Cordon", &**config, 10 * n)).collect();
    let told = told(&events);
    let all: Vec<_> = told.updates["n"].iter().map(|update| update.config.as_deref().unwrap()).collect();
    assert_eq!((all.len(), all[0], all[KEPT - 1]), (KEPT, "c20", "c29"));
    let length = SignedDuration::from_secs(10);
    let track = &told.updates["n"][0].track;
    assert_eq!(track.left.unwrap().duration_since(track.first().unwrap()), length);
}

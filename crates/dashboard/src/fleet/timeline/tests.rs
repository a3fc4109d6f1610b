//! What the timeline keeps of rollouts, in which order, and for how long.

use super::node_update::{Bar, Part};
use super::rollout_rows::{MOST, ShownRollout, State};
use super::*;
use crate::fleet::snapshot::Fleet;
use insight::Phase;
use serde_json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn progress(config: &str, steps: &[(&str, bool, i64)]) -> Progress {
    let steps = steps.iter().map(|(step, done, since)| Milestone {
        step: (*step).to_owned(),
        done: *done,
        since: at(*since),
    });
    Progress {
        config: config.to_owned(),
        done: None,
        step: None,
        degraded: None,
        pull: None,
        steps: steps.collect(),
        updates: vec![],
        pins: vec![],
        turn: None,
    }
}

fn note(timeline: &mut Timeline, node: &str, desired: &str, progress: &Progress) {
    note_waiting(timeline, node, desired, progress, None);
}

/// The same, with what its drain waits for.
fn note_waiting(
    timeline: &mut Timeline,
    node: &str,
    desired: &str,
    progress: &Progress,
    waits_for: Option<&str>,
) {
    let (progress, waits_for) = (&Arc::new(progress.clone()), waits_for.map(Arc::from));
    timeline.note(NodeProgress { pool: "worker", node, desired, progress, waits_for: waits_for.as_ref() });
}

/// Of a fleet in which nothing waits.
fn look(timeline: &Timeline, now: Timestamp) -> Vec<ShownRollout> {
    timeline.shown(now, &Fleet::default(), &EventHistory::default())
}

#[test]
fn the_phases_of_an_update_are_known_as_far_as_they_were_seen() {
    let mut timeline = Timeline::default();
    let waits = "pod a/b: its budget";
    let states: [&[(&str, bool, i64)]; 6] = [
        &[(c::UPDATE_PREPARED, true, 10)],
        &[(c::UPDATE_PREPARED, true, 10), (c::CORDONED, true, 11), (c::DRAINED, false, 11)],
        &[(c::CORDONED, true, 11), (c::DRAINED, true, 31), (c::APPLIED_FILES_AND_OS, false, 32)],
        &[
            (c::CORDONED, true, 11),
            (c::DRAINED, true, 31),
            (c::APPLIED_FILES_AND_OS, true, 40),
            (c::REBOOTED_NODE, false, 41),
        ],
        &[(c::REBOOTED_NODE, true, 80), (c::UNCORDONED, true, 85)],
        &[(c::UPDATED, true, 86)],
    ];
    for (n, steps) in states.into_iter().enumerate() {
        let config = if n == 5 { "new" } else { "old" };
        // The controller says what the drain waits for, and takes it back when that is over; the watch of Nodes may be late.
        let waits_for = [None, Some(waits), Some("something else"), None, None, None][n];
        note_waiting(&mut timeline, "n", "new", &progress(config, steps), waits_for);
    }
    let shown = look(&timeline, at(100));
    let line = &shown[0].nodes[0];
    let bars: Vec<_> = line.bars.iter().map(|b| (b.part, b.from, b.to)).collect();
    let bar = |part, from, to| (part, at(from), Some(at(to)));
    assert_eq!(
        bars,
        [
            bar(Part::Drain, 11, 31),
            bar(Part::Apply, 32, 40),
            bar(Part::Reboot, 41, 80),
            bar(Part::Back, 80, 85)
        ]
    );
    assert_eq!((line.seconds, line.done, &*line.waited), (75, Some(at(86)), waits));
}

#[test]
fn what_has_not_changed_is_noted_once_and_anew_when_its_pool_comes_back() {
    let mut timeline = Timeline::default();
    let moving = Arc::new(progress("old", &[(c::CORDONED, true, 11)]));
    let seen =
        |desired| NodeProgress { pool: "worker", node: "n", desired, progress: &moving, waits_for: None };
    timeline.note(seen("a"));
    timeline.rollouts.clear();
    timeline.note(seen("a"));
    assert_eq!(timeline.rollouts.len(), 0, "it is known");
    timeline.note(seen("b"));
    assert_eq!(timeline.rollouts.len(), 1, "it goes elsewhere");
    timeline.retain(&BTreeSet::new(), |_| true);
    timeline.note(seen("b"));
    assert_eq!(timeline.rollouts.len(), 1, "its pool is back");
}

#[test]
fn what_a_node_waited_for_before_is_told_while_it_is_under_way() {
    let mut timeline = Timeline::default();
    let turn = |config: &str| {
        Some(rollout::PastWaits { config: config.to_owned(), waits: vec![("a free slot".to_owned(), 40)] })
    };
    for (config, shown) in [("older", 0), ("new", 1), ("new", 1)] {
        let moving = Progress { turn: turn(config), ..progress("old", &[(c::CORDONED, true, 11)]) };
        note(&mut timeline, "n", "new", &moving);
        assert_eq!(look(&timeline, at(20))[0].nodes[0].turn.len(), shown, "{config}");
    }
}

#[test]
fn the_stuck_and_the_slowest_come_first_and_what_goes_on_has_no_end() {
    let mut timeline = Timeline::default();
    let moving = |since| progress("old", &[(c::CORDONED, true, since)]);
    note(&mut timeline, "fast", "new", &moving(90));
    note(&mut timeline, "slow", "new", &moving(10));
    note(&mut timeline, "over", "new", &progress("new", &[(c::UPDATED, true, 50)]));
    note(&mut timeline, "stuck", "new", &Progress { degraded: Some(at(95)), ..moving(94) });
    let shown = look(&timeline, at(100));
    let order: Vec<_> = shown[0].nodes.iter().map(|l| (&*l.node, l.seconds)).collect();
    assert_eq!(order, [("stuck", 6), ("slow", 90), ("fast", 10), ("over", 0)]);
    assert_eq!(shown[0].nodes[1].bars, [Bar { part: Part::Drain, from: at(10), to: None }]);
}

#[test]
fn a_node_that_goes_elsewhere_before_it_is_done_is_stuck_there_no_more() {
    let mut timeline = Timeline::default();
    let way = |since| progress("old", &[(c::CORDONED, true, since), (c::DRAINED, true, since + 2)]);
    note(&mut timeline, "n", "a", &Progress { degraded: Some(at(15)), ..way(10) });
    let of = |timeline: &Timeline, config: &str| {
        let shown = look(timeline, at(100));
        let line = &shown.iter().find(|r| r.config == config).unwrap().nodes[0];
        (line.state == State::Fails, line.left, line.seconds)
    };
    assert_eq!(of(&timeline, "a"), (true, None, 90));
    // It goes to b, and gets there.
    note(&mut timeline, "n", "b", &way(40));
    note(&mut timeline, "n", "b", &progress("b", &[(c::UPDATED, true, 60)]));
    assert_eq!(of(&timeline, "a"), (false, Some(at(40)), 30));
    assert_eq!(of(&timeline, "b"), (false, None, 20));
    // Back to a once more.
    note(&mut timeline, "n", "a", &progress("b", &[(c::CORDONED, true, 70)]));
    assert_eq!(of(&timeline, "a"), (false, None, 30));
    assert_eq!(of(&timeline, "b"), (false, None, 20), "it was done there");
    let whole = |timeline: &Timeline, config| {
        timeline.rollout_json(("worker", config), at(100), &Fleet::default(), &EventHistory::default())
    };
    let text = whole(&timeline, "a").unwrap();
    assert!(text.contains("\"node\":\"n\"") && whole(&timeline, "c").is_none());
}

#[test]
fn a_second_way_to_a_config_begins_anew_and_only_the_last_rollouts_are_kept() {
    let mut timeline = Timeline::default();
    note(&mut timeline, "n", "a", &progress("a", &[(c::UPDATED, true, 5)]));
    note(&mut timeline, "n", "a", &progress("b", &[(c::CORDONED, true, 20)]));
    assert_eq!(look(&timeline, at(30))[0].nodes[0].seconds, 10);
    for n in 0..2 * KEPT {
        note(&mut timeline, "n", &format!("c{n}"), &progress("b", &[(c::CORDONED, true, 20)]));
    }
    let shown = look(&timeline, at(30));
    assert_eq!((shown.len(), &*shown[0].config), (KEPT, "c19"));
}

#[test]
fn what_was_seen_of_one_pool_outlives_what_other_pools_show_and_goes_with_its_node() {
    let mut timeline = Timeline::default();
    let steps = [
        (c::CORDONED, true, 10),
        (c::DRAINED, true, 20),
        (c::APPLIED_FILES_AND_OS, false, 21),
        (c::APPLIED_FILES_AND_OS, true, 30),
        (c::REBOOTED_NODE, false, 31),
        (c::REBOOTED_NODE, true, 50),
        (c::UNCORDONED, true, 55),
    ];
    let note = |timeline: &mut Timeline, pool: &str, node: &str, desired: &str, progress: &Progress| {
        let progress = &Arc::new(progress.clone());
        timeline.note(NodeProgress { pool, node, desired, progress, waits_for: None });
    };
    note(&mut timeline, "p0", "n", "new", &progress("old", &steps));
    let done = |config: &str| progress(config, &[(c::UPDATED, true, 60)]);
    let bars = |timeline: &Timeline| {
        let shown = look(timeline, at(100));
        let one = shown.iter().find(|r| r.pool == "p0" && r.config == "new");
        one.map(|r| r.nodes.iter().map(|l| l.bars.len()).sum::<usize>())
    };
    for _ in 0..2 {
        for p in 0..=11 {
            note(&mut timeline, &format!("p{p}"), "n", "new", &done("new"));
        }
    }
    assert_eq!(bars(&timeline), Some(4), "other pools");
    // Nodes of one pool that have not begun stand in more configs than are kept.
    for _ in 0..2 {
        for n in 0..=KEPT {
            note(&mut timeline, "p0", &format!("n{n}"), "new", &done(&format!("c{n}")));
        }
    }
    assert_eq!(bars(&timeline), Some(4), "older configs");
    timeline.retain(&BTreeSet::from(["p0"]), |node| node == "n");
    assert_eq!((timeline.rollouts.len(), bars(&timeline)), (1, Some(4)));
    timeline.retain(&BTreeSet::new(), |_| true);
    assert_eq!(timeline.rollouts.len(), 0);
}

#[test]
fn what_was_over_before_it_began_to_look_is_read_from_the_nodes() {
    let update = |n: i64| PastUpdate {
        config: format!("c{n}"),
        began: at(100 * n),
        drained: Some(20),
        applied: Some(28),
        rebooted: Some(67),
        uncordoned: Some(72),
        done: 75,
        waited: "pod a/b: its budget".to_owned(),
        turn: vec![("gate shop".to_owned(), 60), ("password=hunter2secret".to_owned(), 1)],
    };
    let progress = |updates: Vec<PastUpdate>, steps: &[(&str, bool, i64)]| Progress {
        updates,
        ..progress(&format!("c{KEPT}"), steps)
    };
    let all: Vec<PastUpdate> = (1..=10).map(update).collect();
    let over = progress(all.clone(), &[(c::UPDATED, true, 1075)]);
    let mut timeline = Timeline::default();
    // The nodes of a pool need not have gone through the same; the newest ten rollouts are kept, whoever is read first.
    let older = progress((-20..=-5).map(update).collect(), &[(c::UPDATED, true, -425)]);
    let older = Progress { config: "c-5".to_owned(), ..older };
    let desired = format!("c{KEPT}");
    for _ in 0..2 {
        note(&mut timeline, "older", "c-5", &older);
        note(&mut timeline, "n", &desired, &over);
    }
    let shown = look(&timeline, at(2000));
    let configs: Vec<_> = shown.iter().map(|r| &*r.config).collect();
    assert_eq!(configs, ["c10", "c9", "c8", "c7", "c6", "c5", "c4", "c3", "c2", "c1"]);
    let line = &shown[9].nodes[0];
    let bars: Vec<_> = line.bars.iter().map(|b| (b.part, b.from, b.to)).collect();
    let bar = |part, from, to| (part, at(from), Some(at(to)));
    assert_eq!(
        bars,
        [
            bar(Part::Wait, 39, 100),
            bar(Part::Drain, 100, 120),
            bar(Part::Apply, 120, 128),
            bar(Part::Reboot, 128, 167),
            bar(Part::Back, 167, 172)
        ]
    );
    assert_eq!((line.seconds, line.done, &*line.waited), (75, Some(at(175)), "pod a/b: its budget"));
    // What it waited for before; a reason has no secret in it.
    assert_eq!((&*line.turn[0].0, line.turn[0].1, line.turn.len()), ("gate shop", 60, 2));
    assert!(!line.turn[1].0.contains("hunter2"), "{:?}", line.turn);
    // A light one: nothing was drained, nothing rebooted.
    let light = PastUpdate {
        drained: None,
        rebooted: None,
        uncordoned: None,
        applied: Some(3),
        done: 4,
        ..update(11)
    };
    let next = progress(vec![light], &[(c::UPDATED, true, 1104)]);
    note(&mut timeline, "n", "c11", &next);
    let bars: Vec<_> =
        look(&timeline, at(2000))[0].nodes[0].bars.iter().map(|b| (b.part, b.from, b.to)).collect();
    assert_eq!(
        bars,
        [bar(Part::Wait, 1039, 1100), bar(Part::Apply, 1100, 1103), bar(Part::Back, 1103, 1104)]
    );
    // What is under way is not taken for over: it goes to c10 once more.
    let under_way = progress(all, &[(c::CORDONED, true, 1200)]);
    // The Node says still that it is to be in c10, where it is: that rollout is over.
    note(&mut timeline, "n", "c10", &under_way);
    assert!(
        look(&timeline, at(1210)).into_iter().find(|r| r.config == "c10").unwrap().nodes[0].done.is_some()
    );
    note(&mut timeline, "n", "c10", &Progress { config: "c11".to_owned(), ..under_way });
    let again = look(&timeline, at(1210)).into_iter().find(|r| r.config == "c10").unwrap();
    assert_eq!((again.nodes[0].done, again.nodes[0].seconds), (None, 10));
}

#[test]
fn a_large_pool_is_cut_and_masked_and_is_written_once_a_second() {
    let mut timeline = Timeline::default();
    let waits = "pod a/b: password=hunter2-s3cr3t-Zx81Qp0";
    let drain = progress("old", &[(c::CORDONED, true, 10), (c::DRAINED, false, 11)]);
    for n in 0..=MOST {
        note_waiting(&mut timeline, &format!("n{n}"), "new", &drain, Some(waits));
    }
    let told = EventHistory::default();
    let text = timeline.json(at(20), &Fleet::default(), &told);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let one = &value["rollouts"][0];
    assert_eq!((one["nodes"].as_array().unwrap().len(), &one["total"]), (MOST, &json!(MOST + 1)));
    assert!(!text.contains("hunter2"));
    note(&mut timeline, "late", "new", &drain);
    assert!(Arc::ptr_eq(&text, &timeline.json(at(20), &Fleet::default(), &told)), "the same second");
    assert!(!Arc::ptr_eq(&text, &timeline.json(at(21), &Fleet::default(), &told)), "the next");
}

#[test]
fn what_a_quick_agent_writes_at_once_with_the_end_is_filled_in_from_what_its_node_keeps() {
    // What was seen of it before it ended: nothing after the change, the beginning of the reboot, or its end as well.
    let seen: [&[(&str, bool, i64)]; 3] = [
        &[(c::CORDONED, true, 11), (c::DRAINED, true, 31), (c::APPLIED_FILES_AND_OS, false, 32)],
        &[
            (c::CORDONED, true, 11),
            (c::DRAINED, true, 31),
            (c::APPLIED_FILES_AND_OS, true, 40),
            (c::REBOOTED_NODE, false, 41),
        ],
        &[
            (c::CORDONED, true, 11),
            (c::DRAINED, true, 31),
            (c::APPLIED_FILES_AND_OS, true, 40),
            (c::REBOOTED_NODE, true, 80),
        ],
    ];
    let kept = PastUpdate {
        config: "new".to_owned(),
        began: at(11),
        drained: Some(20),
        applied: Some(29),
        rebooted: Some(69),
        uncordoned: Some(74),
        done: 75,
        waited: "pod a/b: its budget".to_owned(),
        turn: vec![("a free slot".to_owned(), 8)],
    };
    for (n, steps) in seen.into_iter().enumerate() {
        for together in [false, true] {
            let mut timeline = Timeline::default();
            note(&mut timeline, "n", "new", &progress("old", &steps[..1]));
            note(&mut timeline, "n", "new", &progress("old", steps));
            let updates = vec![kept.clone()];
            // The agent writes the update down first and withdraws its conditions then; a watch may tell of both at once.
            if !together {
                note(
                    &mut timeline,
                    "n",
                    "new",
                    &Progress { updates: updates.clone(), ..progress("old", steps) },
                );
            }
            let done = Progress { updates, ..progress("new", &[(c::UPDATED, true, 86)]) };
            note(&mut timeline, "n", "new", &done);
            let shown = look(&timeline, at(100));
            let line = &shown[0].nodes[0];
            let parts: Vec<_> = line.bars.iter().map(|b| (b.part, b.from, b.to.unwrap())).collect();
            let wanted = [
                (Part::Wait, at(3), at(11)),
                (Part::Drain, at(11), at(31)),
                (Part::Apply, if n == 0 { at(32) } else { at(31) }, at(40)),
                (Part::Reboot, if n == 1 { at(41) } else { at(40) }, at(80)),
                (Part::Back, at(80), at(85)),
            ];
            assert_eq!(parts, wanted, "{n} {together}");
            assert_eq!((line.state, line.seconds), (State::Done, 75), "{n} {together}");
            assert_eq!(&*line.waited, "pod a/b: its budget");
        }
    }
    // An earlier way to the same config is no end of the one that is under way.
    let mut timeline = Timeline::default();
    note(&mut timeline, "n", "new", &progress("old", &[(c::CORDONED, true, 200)]));
    let again = Progress { updates: vec![kept], ..progress("old", &[(c::CORDONED, true, 200)]) };
    note(&mut timeline, "n", "new", &again);
    let line = &look(&timeline, at(210))[0].nodes[0];
    assert_eq!((line.state, line.seconds, line.bars.len()), (State::Moves, 10, 1));
}

#[test]
fn nodes_that_have_not_begun_are_in_the_rollout_with_how_long_they_wait_and_the_stuck_first() {
    let mut timeline = Timeline::default();
    note(&mut timeline, "moves", "new", &progress("old", &[(c::CORDONED, true, 90)]));
    note(&mut timeline, "over", "new", &progress("new", &[(c::UPDATED, true, 95)]));
    // It was there before, and has to go there again.
    note(&mut timeline, "again", "new", &progress("new", &[(c::UPDATED, true, 20)]));
    let cell = |name: &str, phase: Phase, since: Option<i64>, stuck: bool| {
        let mut cell = crate::fleet::snapshot::tests::cell(name, phase, "why");
        (cell.row.since, cell.row.stuck) = (since.map(at), stuck);
        (name.to_owned(), cell)
    };
    let pool = crate::fleet::snapshot::tests::pool("worker", "new");
    let fleet = Fleet {
        pools: [(pool.name.clone(), pool)].into(),
        nodes: [
            cell("moves", Phase::Moving, Some(90), false),
            cell("over", Phase::Done, Some(95), false),
            cell("again", Phase::Waits, Some(60), false),
            cell("first", Phase::Waits, Some(50), false),
            cell("broken", Phase::Waits, Some(70), true),
            cell("sent", Phase::Goes, None, false),
            cell("silent", Phase::Moving, Some(80), false),
            cell("cordoned", Phase::Unavailable, None, true),
        ]
        .into(),
        ..Fleet::default()
    };
    let shown = timeline.shown(at(100), &fleet, &EventHistory::default());
    let lines: Vec<_> = shown[0].nodes.iter().map(|l| (&*l.node, l.state, l.seconds)).collect();
    assert_eq!(
        lines,
        [
            ("broken", State::Stuck, 30),
            ("moves", State::Moves, 10),
            ("silent", State::Moves, 0),
            ("sent", State::Goes, 0),
            ("first", State::Waits, 50),
            ("again", State::Waits, 40),
            ("over", State::Done, 0),
        ]
    );
    assert_eq!(shown[0].nodes[4].bars, [Bar { part: Part::Wait, from: at(50), to: None }]);
    let counts =
        [(State::Stuck, 1), (State::Moves, 2), (State::Goes, 1), (State::Waits, 2), (State::Done, 1)];
    assert_eq!((shown[0].total, &*shown[0].counts), (7, &counts[..]));

    // A rollout of which nothing has begun, such as that of a paused pool.
    let nothing = Timeline::default();
    let shown = nothing.shown(at(100), &fleet, &EventHistory::default());
    assert_eq!((shown.len(), shown[0].total, &*shown[0].config), (1, 6, "new"));
    let whole =
        |config: &str| nothing.rollout_json(("worker", config), at(100), &fleet, &EventHistory::default());
    assert!(whole("new").is_some_and(|text| text.contains("\"first\"")) && whole("old").is_none());
}

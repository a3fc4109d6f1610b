//! The protocol under a RolloutPolicy: every order of daemons, plans, node patches, status writes, checks of a gate, ends of
//! a soak, crashes of the controller, and an edit. The first change does harm: the gate fails as long as a node is in it, or
//! as long as several are; or it does none, and is replaced when it has reached any number of nodes. The policy has a canary
//! that soaks, perhaps a second wave of one node, a gate before waves and in the soak, and rolls back.
//!
//! Checked in every state: never more nodes are out than allowed, on the way there and on the way back; only the canary is
//! ever asked to be in a config whose harm shows at once; no plan sends a node to a config that is stored as rejected, or
//! to a wave before the stored progress is there and all nodes of the waves before are done, and no patch that arrives late
//! sends one to a config that was rejected meanwhile. And from every state the end
//! can be reached: all nodes are in the second config and it counts as proved, or, if nobody corrects the change, all are
//! back in the first one.
//!
//! In one model the drain of a node does not end until somebody removes what blocks it: the node is put aside, the others go
//! on, and it follows when its drain can end. In another one, another pool has rejected the change: no node goes before a
//! person approves it.
//!
//! In one model the patches of a leader that died arrive under the next one, which writes to the nodes that they could send
//! before it sends others.
//!
//! In one model the policy has a window and a freeze, which come and go at any moment, and a person reboots a node at any moment.
//! Checked there: no plan lets a node begin outside of the window or within the freeze; none marks a node, to take along what
//! waits, whose turn it is not; none calls back a node that is under way; and what is rejected is not taken along. A change of
//! certificates goes within the freeze.
//!
//! What it is not: caches that lag; the other models of this test have those.

mod checks;
mod model;
mod state;
mod steps;

use model::Model;

const CONFIGS: [&str; 3] = ["rendered-worker-0", "rendered-worker-1", "rendered-worker-2"];
/// The config that does harm.
const BAD: u8 = 1;
const NOON: &str = "2026-07-01T12:00:00Z";

/// Faults that the search must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A gate that has not been checked counts as passed.
    TrustsSilence,
    /// The controller still uses the result of a gate that no longer has to be checked.
    KeepsOldResults,
    /// A rejection is not stored.
    Forgets,
    /// A drain that does not end is never given up.
    WaitsForEver,
    /// Configs that other pools have rejected are ignored.
    LooksNowhere,
    /// Nodes that are on their way count as done.
    SeesNodesDone,
    /// The same on the way back only.
    SeesNodesBack,
    /// A new leader does not make void what an earlier one may still have under way.
    SealsNothing,
    /// The controller's clock stands: it does not see a window close, or a freeze begin.
    SeesNoCalendar,
    /// Marks of what nodes take along are never removed.
    LeavesMarks,
}

/// What a model is about besides the rollout itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct About {
    /// Somebody corrects the change at some time.
    edits: bool,
    /// The first change does harm. If not, it may be replaced when it has reached any node.
    harms: bool,
    /// The drain of this node does not end.
    stuck: Option<usize>,
    /// The node is never freed; the rollout goes on without it.
    for_good: bool,
    /// Another pool has rejected the first change.
    elsewhere: bool,
    /// The harm shows when so many nodes are in the change. 0: at once.
    shows_at: usize,
    /// So many nodes may be out. 0: one.
    max: usize,
    /// A wave of one node is between the canary and the rest.
    second: bool,
    /// Patches of a leader that died arrive under the next one.
    late: bool,
    /// The policy has a window and a freeze.
    calendar: bool,
    /// How often a person reboots a node.
    reboots: u8,
    /// The changes are about certificates.
    certificates: bool,
}

impl About {
    fn max(self) -> usize {
        self.max.max(1)
    }

    /// The wave of this node.
    fn wave(self, node: usize) -> usize {
        node.min(1 + usize::from(self.second))
    }
}

/// The waves, as far as a model has them.
fn waves(about: About) -> Vec<&'static str> {
    let second = about.second.then_some("second");
    ["canary"].into_iter().chain(second).chain(["rest"]).collect()
}

#[test]
fn a_harmful_config_hits_the_canary_only_and_the_end_is_always_reached() {
    for (edits, harms, least) in [(false, true, 80), (true, true, 300), (true, false, 300)] {
        let states = Model::new(3, None, About { edits, harms, ..About::default() }).explore();
        assert!(states > least, "{states}");
    }
}

#[test]
fn harm_that_shows_late_takes_all_nodes_back_within_the_bound_and_wave_by_wave_it_goes_out() {
    // Nobody corrects the change here: a gate that fails because of what an abandoned change has left behind holds the pool.
    for (nodes, shows_at, max, second) in
        [(3, 2, 1, false), (4, 2, 1, true), (4, 3, 2, false), (4, 3, 2, true)]
    {
        let about = About { harms: true, shows_at, max, second, ..About::default() };
        let states = Model::new(nodes, None, about).explore();
        assert!(states > 100, "{about:?}: {states}");
    }
    let about = About { second: true, max: 2, edits: true, ..About::default() };
    let states = Model::new(4, None, about).explore();
    assert!(states > 100, "{about:?}: {states}");
}

#[test]
fn a_node_whose_drain_does_not_end_is_put_aside_and_the_others_go_on() {
    for for_good in [false, true] {
        // The canary may be the node whose drain is blocked. Then it proves nothing, and nobody waits for it.
        for (stuck, edits, harms) in [(1, false, false), (2, true, false), (1, true, true), (0, false, true)]
        {
            if for_good && stuck == 0 {
                continue;
            }
            let about = About { stuck: Some(stuck), for_good, edits, harms, ..About::default() };
            let states = Model::new(3, None, about).explore();
            assert!(states > 80, "{about:?}: {states}");
        }
    }
}

#[test]
fn patches_of_a_dead_leader_that_arrive_late_keep_the_bound_and_the_end() {
    for (nodes, edits, harms, shows_at, max) in
        [(3, false, true, 0, 1), (3, true, false, 0, 1), (3, false, true, 2, 2)]
    {
        let about = About { late: true, edits, harms, shows_at, max, ..About::default() };
        let states = Model::new(nodes, None, about).explore();
        assert!(states > 100, "{about:?}: {states}");
    }
}

#[test]
fn nothing_begins_outside_of_a_window_and_what_is_under_way_ends() {
    let calendar = About { calendar: true, ..About::default() };
    for about in [
        calendar,
        About { harms: true, reboots: 1, ..calendar },
        About { certificates: true, ..calendar },
        About { harms: true, late: true, ..calendar },
    ] {
        let states = Model::new(2, None, about).explore();
        assert!(states > 200, "{about:?}: {states}");
    }
}

/// The same with more nodes, and with all events combined.
#[test]
#[ignore = "minutes"]
fn nothing_begins_outside_of_a_window_whatever_happens() {
    let calendar = About { calendar: true, ..About::default() };
    for (nodes, about) in [
        (2, About { reboots: 1, ..calendar }),
        (3, About { harms: true, reboots: 1, ..calendar }),
        (3, About { harms: true, edits: true, ..calendar }),
        (2, About { harms: true, edits: true, ..calendar }),
        (2, About { harms: true, edits: true, late: true, reboots: 1, ..calendar }),
        (2, About { harms: true, certificates: true, reboots: 1, ..calendar }),
    ] {
        let states = Model::new(nodes, None, about).explore();
        assert!(states > 200, "{about:?}: {states}");
    }
}

#[test]
fn what_another_pool_has_rejected_reaches_no_node_before_a_person_says_so() {
    for (edits, harms) in [(false, true), (false, false), (true, true)] {
        let states =
            Model::new(3, None, About { elsewhere: true, edits, harms, ..About::default() }).explore();
        assert!(states > 50, "{states}");
    }
}

#[test]
fn the_search_finds_what_goes_wrong_without_each_guard() {
    let harms = About { harms: true, ..About::default() };
    for (fault, about) in [
        (Fault::TrustsSilence, harms),
        (Fault::KeepsOldResults, harms),
        (Fault::Forgets, harms),
        (Fault::WaitsForEver, About { stuck: Some(1), for_good: true, ..About::default() }),
        (Fault::LooksNowhere, About { elsewhere: true, ..About::default() }),
        (Fault::SeesNodesBack, About { shows_at: 2, ..harms }),
        (Fault::SeesNodesDone, About { second: true, ..About::default() }),
        (Fault::SealsNothing, About { late: true, edits: true, ..About::default() }),
        (Fault::SeesNoCalendar, About { calendar: true, ..About::default() }),
        (Fault::LeavesMarks, About { calendar: true, reboots: 1, ..harms }),
    ] {
        let found = std::panic::catch_unwind(|| Model::new(3, Some(fault), about).explore());
        assert!(found.is_err(), "{fault:?} is not found");
    }
}

//! Random histories of a node: restarts, failures, changes of the desired config, people who cordon, a slow
//! controller. Whatever happened, once nothing changes any more the node must end in the desired config, uncordoned,
//! and say so.

use super::{
    Action, Cordon, Cost, DiskFacts, EMPTY_CONFIG, Failure, FailureKind, Job, NodeFacts, Phase, RebootFact,
    View, Waiting, step,
};
use crate::protocol::clock::Moment;
use crate::protocol::join::first_annotations;
use api::names::annotation as a;
use jiff::SignedDuration;

/// More histories find nothing more; these take a moment.
const HISTORIES: u64 = 4000;
/// A whole update takes about a dozen steps; this is an endless loop.
const TOO_MANY: usize = 60;

/// Numerical Recipes' generator: enough for choosing, and the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What moving between two configs costs: the names say it.
fn cost(from: &str, to: &str) -> Cost {
    let costly = [from, to].iter().any(|c| c.ends_with("costly"));
    Cost { drain: costly, reboot: costly }
}

struct World {
    view: View,
    /// The person's own cordon.
    person: bool,
}

impl World {
    fn new(dice: &mut Dice) -> Self {
        let node = NodeFacts { seen: true, ready: dice.roll(2) == 0, ..NodeFacts::default() };
        let now = Moment::START;
        let view = View {
            now,
            node,
            disk: DiskFacts::default(),
            checked: false,
            phase: Phase::Idle,
            trouble: None,
            silent_since: None,
        };
        Self { view, person: false }
    }

    fn restart(&mut self) {
        self.view.phase = Phase::Idle;
        self.view.checked = false;
    }

    fn controller_answers(&mut self) {
        let n = &mut self.view.node;
        if n.desired_drain != n.last_applied_drain {
            n.last_applied_drain = n.desired_drain.clone();
            n.unschedulable = n.desired_drain.starts_with("drain-") || self.person || n.own_cordon;
        }
    }

    fn fail(&mut self, job: Job) {
        let retry_at = self.view.now + SignedDuration::from_secs(5);
        let (kind, reason) = (FailureKind::Degraded, "broken".to_owned());
        self.view.phase = Phase::Failed(Failure { job, kind, reason, tries: 1, retry_at });
    }

    fn write(&mut self, changes: super::Changes) {
        let now = self.view.now;
        let n = &mut self.view.node;
        for (key, value) in changes {
            match key {
                a::CURRENT_CONFIG => n.current = value,
                a::DESIRED_CONFIG => n.desired = value,
                a::STATE => {
                    assert!(value != "Done" || !self.view.disk.open, "a host between two configs is done");
                    n.state = value;
                }
                a::REASON => n.reason = value,
                a::POST_CONFIG_ACTION => n.post_action = value,
                a::DESIRED_DRAIN => n.desired_drain = value,
                a::LAST_APPLIED_DRAIN => n.last_applied_drain = value,
                other => panic!("{other} is not ours to write"),
            }
        }
        if let Phase::Prepared { asked, .. } = &mut self.view.phase {
            asked.get_or_insert(now);
        }
    }

    /// Does one action as the agent would; `broken`: the host work of it fails. `false`: it waits.
    fn act(&mut self, broken: bool) -> bool {
        let v = &mut self.view;
        match step(v) {
            Action::Idle => return false,
            Action::Wait { why: Waiting::Retry { .. }, until } => v.now = until.unwrap(),
            Action::Wait { why: Waiting::Kubelet, .. } => v.node.boot_id = "two".into(),
            Action::Wait { .. } => return false,
            Action::Write { changes, cordon, conditional, .. } => {
                assert!(
                    !changes.is_empty() || cordon.is_some(),
                    "an empty write would be made for ever: {v:?}"
                );
                assert!(conditional || cordon.is_none(), "a person's cordon may be overruled: {v:?}");
                if let Some(cordon) = cordon {
                    let begins = cordon == Cordon::Begin;
                    assert!(
                        !begins || !v.node.unschedulable,
                        "a cordon of another's is called its own: {v:?}"
                    );
                    (v.node.own_cordon, v.node.unschedulable) = (begins, begins);
                }
                self.write(changes);
            }
            Action::Recover if broken => self.fail(Job::Recover),
            Action::Recover => {
                (v.disk.open, v.checked) = (false, false);
                if matches!(&v.phase, Phase::Failed(Failure { job: Job::Recover, .. })) {
                    v.phase = Phase::Idle;
                }
            }
            Action::AdoptFile => v.disk.annotations_file = false,
            Action::Join => {
                let changes = first_annotations(&v.node, "a-costly", cost(EMPTY_CONFIG, "a-costly"));
                self.write(changes);
            }
            Action::Check { config, .. } if broken => self.fail(Job::Check { config }),
            Action::Check { config, record } => {
                if record {
                    v.disk.current = Some(config);
                }
                (v.checked, v.phase) = (true, Phase::Idle);
            }
            Action::Prepare(pair) | Action::Fetch(pair) | Action::Apply(pair) if broken => {
                self.fail(Job::Update(pair));
            }
            Action::Fetch(_) => {
                assert!(!v.node.own_cordon || v.node.desired_drain.starts_with("drain-"), "{v:?}");
                let Phase::Prepared { to_fetch, .. } = &mut v.phase else { panic!("{v:?}") };
                *to_fetch = false;
            }
            Action::Prepare(pair) => {
                let cost = cost(&pair.from, &pair.to);
                v.phase = Phase::Prepared { cost, to_fetch: cost.reboot, pair, asked: None };
                v.checked = true;
            }
            Action::Apply(pair) => {
                let c = cost(&pair.from, &pair.to);
                let answered = v.node.last_applied_drain == format!("drain-{}", pair.to);
                let drained = answered && v.node.unschedulable;
                assert!(!c.drain || drained, "changed before the pods had left: {v:?}");
                if c.reboot {
                    v.disk.reboot = RebootFact::Owed { config: pair.to.clone(), tries: 0, cleared: true };
                }
                v.disk.current = Some(pair.to.clone());
                (v.checked, v.phase) = (true, Phase::Applied { config: pair.to, asked: None });
            }
            Action::Reboot { config, .. } if broken => self.fail(Job::Reboot { config }),
            Action::Reboot { config, .. } => {
                assert!(!v.disk.open, "rebooted in the middle of a change: {v:?}");
                // A person may have uncordoned it since it was announced; nobody can tell.
                v.disk.reboot = RebootFact::Rebooted { config, boot_id: "one".into(), began: None };
                self.restart();
            }
            Action::RecordCleared { cleared, .. } => {
                let RebootFact::Owed { cleared: known, .. } = &mut v.disk.reboot else { panic!("{v:?}") };
                assert_ne!(*known, cleared, "it would be written for ever");
                *known = cleared;
            }
            Action::ForgetReboot { .. } => {
                v.disk.reboot = RebootFact::None;
                v.checked = false;
            }
        }
        true
    }

    fn something_happens(&mut self, dice: &mut Dice) {
        let names = ["a-costly", "b-free", "c-free", "d-costly"];
        match dice.roll(12) {
            9 => self.view.disk.open = true,
            11 => self.view.node.desired_image = if dice.roll(2) == 0 { "image" } else { "" }.to_owned(),
            10 => {
                self.person = false;
                self.view.node.unschedulable = false;
            }
            0 if !self.view.node.current.is_empty() => {
                let pick = usize::try_from(dice.roll(4)).unwrap();
                names[pick].clone_into(&mut self.view.node.desired);
            }
            1 => self.restart(),
            2 => self.controller_answers(),
            3 => self.view.now += SignedDuration::from_mins(40),
            8 => self.view.trouble = (dice.roll(2) == 0).then(|| "a certificate".to_owned()),
            4 => {
                self.person = !self.person;
                let n = &mut self.view.node;
                n.unschedulable = self.person || n.own_cordon || n.last_applied_drain.starts_with("drain-");
            }
            n => {
                self.act(n == 5);
            }
        }
    }
}

#[test]
fn every_history_ends_in_the_config_that_is_wanted() {
    for seed in 0..HISTORIES {
        let mut dice = Dice(seed);
        let mut world = World::new(&mut dice);
        for _ in 0..dice.roll(60) {
            world.something_happens(&mut dice);
        }
        world.view.trouble.take_if(|_| dice.roll(2) == 0);
        world.view.node.desired_image.clear();
        for left in (0..TOO_MANY).rev() {
            let waits = !world.act(false);
            let asked = world.view.node.desired_drain.clone();
            world.controller_answers();
            if waits && world.view.node.last_applied_drain == asked && step(&world.view) == Action::Idle {
                break;
            }
            assert!(left > 0, "seed {seed} goes round in circles: {:?}", world.view);
        }
        let View { node, disk, .. } = &world.view;
        let at = disk.current.clone().unwrap_or(EMPTY_CONFIG.to_owned());
        assert_eq!((&node.current, &node.desired), (&at, &at), "seed {seed}");
        let (state, reason) = match &world.view.trouble {
            None => ("Done", ""),
            Some(why) => ("Degraded", why.as_str()),
        };
        assert_eq!(
            (node.state.as_str(), node.reason.as_str(), node.post_action.as_str()),
            (state, reason, "")
        );
        assert_eq!(disk.reboot, RebootFact::None, "seed {seed}");
        assert!(!node.desired_drain.starts_with("drain-"), "seed {seed}: still drained: {node:?}");
        assert!(!node.own_cordon, "seed {seed}: still cordoned: {node:?}");
    }
}

//! Random histories of a node: restarts, failures, changes of the desired config, people who cordon, a slow
//! controller, changes on trial, an API server that does not answer, and a Node object that is made again. Whatever happened,
//! once nothing changes any more the node must end in the desired config, uncordoned, and say so.

use super::super::{
    Action, Cordon, Cost, DiskFacts, EMPTY_CONFIG, Failure, FailureKind, Job, NodeFacts, Phase, RebootFact,
    StateBefore, TrialFacts, TrialObservation, TriedFacts, View, Waiting, step,
};
use super::Dice;
use crate::protocol::clock::Moment;
use crate::protocol::join::first_annotations;
use api::names::{annotation as a, own};
use desired::config_and_image;
use host::{Check, UnitRun, UnitState};
use jiff::SignedDuration;

/// More histories find nothing more; these take a moment.
const HISTORIES: u64 = 6000;
/// A whole update takes about a dozen steps; this is an endless loop.
const TOO_MANY: usize = 60;

/// How often a node on trial is looked at.
const BETWEEN_LOOKS: SignedDuration = SignedDuration::from_secs(5);

/// What moving between two configs costs: the names say it.
fn cost(from: &str, to: &str) -> Cost {
    let ((from, had), (to, has)) = (config_and_image(from), config_and_image(to));
    let costly = had != has || [from, to].iter().any(|c| c.ends_with("costly"));
    Cost { drain: costly, reboot: costly }
}

/// Whether a change to this config is tried: one that costs a reboot, and one that does not.
fn is_tried(to: &str) -> bool {
    ["b-free", "d-costly"].contains(&config_and_image(to).0)
}

struct World {
    view: View,
    /// The person's own cordon.
    person: bool,
    /// What was on the disk before the change that is on trial.
    before: Option<String>,
    /// How many changes were kept and how many were undone.
    trials: (usize, usize),
    /// How many requests to leave the host were answered.
    left: usize,
}

impl World {
    fn new(dice: &mut Dice) -> Self {
        let node = NodeFacts { seen: true, ready: dice.roll(2) == 0, ..NodeFacts::default() };
        let now = Moment::START;
        let disk = DiskFacts { takes_images: dice.roll(2) == 0, ..DiskFacts::default() };
        let view = View {
            now,
            node,
            disk,
            checked: false,
            phase: Phase::Idle,
            trouble: None,
            silent_since: None,
            leave_again: None,
            prefetch_failed: None,
        };
        Self { view, person: false, before: None, trials: (0, 0), left: 0 }
    }

    fn restart(&mut self) {
        self.view.phase = Phase::Idle;
        self.view.checked = false;
    }

    /// The Node object is deleted and registered again. A write that the agent has just sent may arrive at the new one: only a
    /// conditional write names the object that it is for.
    fn node_is_made_again(&mut self) {
        let sent = step(&self.view);
        let old = std::mem::take(&mut self.view.node);
        self.view.node =
            NodeFacts { seen: old.seen, ready: old.ready, boot_id: old.boot_id, ..NodeFacts::default() };
        self.person = false;
        if let Action::Write { changes, conditional: false, .. } = sent {
            self.write(changes);
        }
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

    fn write(&mut self, changes: super::super::Changes) {
        let now = self.view.now;
        let n = &mut self.view.node;
        for (key, value) in changes {
            match key {
                a::CURRENT_CONFIG => n.current = value,
                a::DESIRED_CONFIG => n.desired = value,
                a::CURRENT_IMAGE => n.current_image = value,
                a::DESIRED_IMAGE => n.desired_image = value,
                own::PREVIOUS_IMAGE => n.previous_image = value,
                a::STATE => {
                    let open = self.view.disk.open || self.view.disk.trial.is_some();
                    assert!(value != "Done" || !open, "a host between two configs is done");
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
            Action::Wait { why: Waiting::Confirmation, until } => {
                let until = until.unwrap();
                let Some(trial) = &mut v.disk.trial else { panic!("{v:?}") };
                trial.left = (trial.left - BETWEEN_LOOKS).max(SignedDuration::ZERO);
                v.now = until;
            }
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
            Action::Prefetch(pair) => panic!("nobody asked for {pair:?}"),
            Action::Fetch(_) => {
                assert!(!v.node.own_cordon || v.node.desired_drain.starts_with("drain-"), "{v:?}");
                let Phase::Prepared { to_fetch, .. } = &mut v.phase else { panic!("{v:?}") };
                *to_fetch = false;
            }
            Action::Prepare(pair) if v.disk.tried.as_ref().is_some_and(|t| t.config == pair.to) => {
                let (job, reason) = (Job::Update(pair), "went back".to_owned());
                let retry_at = v.now + SignedDuration::from_mins(5);
                let kind = FailureKind::Degraded;
                v.phase = Phase::Failed(Failure { job, kind, reason, tries: 1, retry_at });
            }
            Action::Prepare(pair) => {
                let cost = cost(&pair.from, &pair.to);
                v.phase = Phase::Prepared { cost, to_fetch: cost.reboot, pair, asked: None };
                v.checked = true;
            }
            Action::Apply(pair) => {
                let c = cost(&pair.from, &pair.to);
                let answered = v.node.last_applied_drain == format!("drain-{}", config_and_image(&pair.to).0);
                let drained = answered && v.node.unschedulable;
                assert!(!c.drain || drained, "changed before the pods had left: {v:?}");
                if c.reboot {
                    v.disk.reboot = RebootFact::Owed { config: pair.to.clone(), tries: 0, cleared: true };
                }
                v.disk.tried = None;
                self.before = v.disk.current.replace(pair.to.clone());
                v.disk.trial = is_tried(&pair.to).then(|| mk_trial(&pair.to, c.reboot, v.node.ready));
                (v.checked, v.phase) = (true, Phase::Applied { config: pair.to, asked: None });
            }
            Action::Reboot { config, .. } if broken => self.fail(Job::Reboot { config }),
            Action::Reboot { config, .. } => {
                assert!(!v.disk.open, "rebooted in the middle of a change: {v:?}");
                if let Some(trial) = &mut v.disk.trial {
                    assert!(trial.reboots && !trial.begun, "{trial:?}");
                    trial.begun = true;
                }
                // A person may have uncordoned it since it was announced; the agent cannot know.
                v.disk.reboot = RebootFact::Rebooted { config, boot_id: "one".into(), began: None };
                self.restart();
            }
            Action::RecordCleared { cleared, .. } => {
                let RebootFact::Owed { cleared: known, .. } = &mut v.disk.reboot else { panic!("{v:?}") };
                assert_ne!(*known, cleared, "it would be written for ever");
                *known = cleared;
            }
            Action::ForgetReboot { .. } => {
                assert_eq!(v.disk.trial, None, "the trial does not know any more that it has rebooted");
                v.disk.reboot = RebootFact::None;
                v.checked = false;
            }
            Action::ObserveTrial => {
                let earlier = match std::mem::replace(&mut v.phase, Phase::Idle) {
                    Phase::OnTrial { last, .. } => Some(last),
                    _ => None,
                };
                v.phase = Phase::OnTrial { last: mk_look(v.now, broken), earlier };
                v.silent_since = broken.then_some(v.now);
            }
            Action::ConfirmTrial => {
                let Phase::OnTrial { last, .. } = &v.phase else { panic!("{v:?}") };
                assert!(last.api.is_ok(), "kept without an API server: {v:?}");
                (v.disk.trial, v.disk.reboot_of_trial, v.phase) = (None, false, Phase::Idle);
                self.trials.0 += 1;
            }
            Action::FailTrial { check, .. } => {
                let Some(trial) = v.disk.trial.take() else { panic!("{v:?}") };
                v.disk.current.clone_from(&self.before);
                v.disk.tried = Some(TriedFacts { config: trial.config, check, retry: false, in_doubt: true });
                v.disk.reboot_of_trial = trial.reboots;
                if trial.reboots {
                    let config = self.before.clone().unwrap_or(EMPTY_CONFIG.to_owned());
                    v.disk.reboot = RebootFact::Owed { config, tries: 0, cleared: true };
                }
                (v.checked, v.phase) = (false, Phase::Idle);
                v.silent_since = (check == Check::Api).then_some(v.now);
                self.trials.1 += 1;
            }
            Action::Leave { asked } => {
                assert!(!v.disk.open && v.disk.trial.is_none() && v.disk.reboot == RebootFact::None, "{v:?}");
                if broken {
                    return false;
                }
                v.node.left = asked;
                self.left += 1;
            }
            Action::ForgetTried => {
                v.disk.tried = None;
                if let Phase::Failed(_) = v.phase {
                    v.phase = Phase::Idle;
                }
            }
        }
        true
    }

    fn something_happens(&mut self, dice: &mut Dice) {
        let names = ["a-costly", "b-free", "c-free", "d-costly"];
        match dice.roll(15) {
            14 if dice.roll(4) == 0 => self.node_is_made_again(),
            9 => self.view.disk.open = true,
            11 => {
                let images = ["", "q.io/os@sha256:a", "q.io/os@sha256:b"];
                let pick = usize::try_from(dice.roll(3)).unwrap();
                images[pick].clone_into(&mut self.view.node.desired_image);
            }
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
            12 if self.view.disk.trial.is_some() => {
                // The API server is away for the rest of the time.
                for _ in 0..40 {
                    self.act(matches!(step(&self.view), Action::ObserveTrial));
                    if let Some(trial) = &mut self.view.disk.trial {
                        trial.left = (trial.left - SignedDuration::from_mins(1)).max(SignedDuration::ZERO);
                    }
                }
            }
            13 => {
                match &mut self.view.disk.tried {
                    Some(tried) => tried.retry = true,
                    // The product is about to be removed.
                    None => self.view.node.leave = format!("{:?}", self.view.now),
                }
            }
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

fn mk_trial(config: &str, reboots: bool, ready: bool) -> TrialFacts {
    let within = SignedDuration::from_mins(10);
    TrialFacts {
        config: config.to_owned(),
        begun: !reboots,
        reboots,
        within,
        left: within,
        units: vec![UnitRun { unit: "kubelet.service".to_owned(), invocation: "a".to_owned() }],
        before: StateBefore { ready, heard: None, person: false, api_server: None },
    }
}

fn mk_look(at: Moment, broken: bool) -> TrialObservation {
    let state = UnitState { active: "active".to_owned(), invocation: "a".to_owned() };
    let api = if broken { Err("no answer".to_owned()) } else { Ok(()) };
    TrialObservation { at, api, units: vec![("kubelet.service".to_owned(), state)], logins: None }
}

#[test]
fn every_random_history_ends_in_the_desired_config() {
    let (mut trials, mut in_images, mut left) = ((0, 0), 0, 0);
    for seed in 0..HISTORIES {
        let mut dice = Dice(seed);
        let mut world = World::new(&mut dice);
        for _ in 0..dice.roll(60) {
            world.something_happens(&mut dice);
        }
        world.view.trouble.take_if(|_| dice.roll(2) == 0);
        // A host that cannot run it keeps telling so.
        if !world.view.disk.takes_images {
            world.view.node.desired_image.clear();
        }
        world.view.silent_since = None;
        if let Some(tried) = &mut world.view.disk.tried {
            tried.retry = true;
        }
        for left in (0..TOO_MANY).rev() {
            let waits = !world.act(false);
            // The time of a trial may have been over before anybody looked at the node again: a person asks once more.
            if let Some(tried) = &mut world.view.disk.tried {
                tried.retry = true;
            }
            let asked = world.view.node.desired_drain.clone();
            world.controller_answers();
            if waits && world.view.node.last_applied_drain == asked && step(&world.view) == Action::Idle {
                break;
            }
            assert!(left > 0, "seed {seed} goes round in circles: {:?}", world.view);
        }
        let View { node, disk, .. } = &world.view;
        let at = disk.current.clone().unwrap_or(EMPTY_CONFIG.to_owned());
        assert_eq!((&node.current_state(), &node.desired_state()), (&at, &at), "seed {seed}");
        in_images += usize::from(!node.current_image.is_empty());
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
        assert!(disk.trial.is_none() && disk.tried.is_none(), "seed {seed}: {disk:?}");
        assert_eq!(node.left, node.leave, "seed {seed}: the request to leave the host has no answer");
        left += world.left;
        trials = (trials.0 + world.trials.0, trials.1 + world.trials.1);
    }
    assert!(in_images > 300, "too few histories end in an image: {in_images}");
    assert!(left > 1000, "too few requests to leave the host: {left}");
    assert!(trials.0 > 500 && trials.1 > 100, "too few changes are kept or undone: {trials:?}");
}

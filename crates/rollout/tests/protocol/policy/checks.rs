//! What must be true of every plan and every state of the model, and the search through all of its states.
//!
//! What it is not: what can happen in a state (see `steps`).

use super::model::Model;
use super::state::{Hours, Node, St, State};
use super::{BAD, CONFIGS, waves};
use api::v1alpha1::PoolProgress;
use rollout::PoolPlan;
use std::collections::{HashMap, VecDeque};

impl Model {
    /// Whether the calendar lets a change begin.
    fn is_open(&self, hours: Hours) -> bool {
        match hours {
            Hours::Open => true,
            Hours::Shut => false,
            Hours::Frozen => self.about.certificates,
        }
    }

    /// Checks what must be true of every node that a plan sends.
    pub(super) fn is_allowed(&self, s: &State, node: usize, config: u8, plan: &PoolPlan) {
        let back = plan.policy.as_ref().is_some_and(|p| p.back);
        // One that was sent before and has changed nothing yet is disturbed anyway.
        let Node { cur, des, .. } = s.nodes[node];
        let along = s.hours == Hours::Shut && cur != des;
        assert!(
            back || along || self.is_open(s.hours),
            "n{node} begins while the pool is {:?}: {plan}",
            s.hours
        );
        self.is_its_turn(s, node, config, plan);
    }

    /// Checks what must be true of every node that a plan marks: it could go, were it not for the window.
    pub(super) fn is_allowed_later(&self, s: &State, node: usize, config: u8, plan: &PoolPlan) {
        assert_eq!(s.hours, Hours::Shut, "n{node} is marked: {plan}");
        assert_eq!(s.target, config, "n{node} is marked with another config: {plan}");
        self.is_its_turn(s, node, config, plan);
    }

    /// Checks that what is under way ends: a node turns round only if its drain was given up, or its config is rejected.
    pub(super) fn ends_what_is_under_way(&self, s: &State, node: usize, config: u8, plan: &PoolPlan) {
        let Node { cur, des, quarantined, .. } = s.nodes[node];
        let back = plan.policy.as_ref().is_some_and(|p| p.back);
        let turns = cur != des && config == cur;
        assert!(!turns || back || quarantined == Some(des), "n{node} is called back: {plan}");
    }

    /// Checks what a node takes along that a person reboots.
    pub(super) fn may_take(&self, s: &State, node: usize, config: u8) {
        let progress: PoolProgress = serde_json::from_str(&s.progress).unwrap();
        let rejected = progress.rejected.iter().any(|r| r.config == CONFIGS[config as usize]);
        assert!(!rejected, "n{node} takes along a config that is rejected: {s:?}");
        let unseen = !self.about.harms || self.about.shows_at > 1;
        assert!(unseen || config != BAD || node == 0, "the harm spreads to n{node} by a reboot: {s:?}");
    }

    fn is_its_turn(&self, s: &State, node: usize, config: u8, plan: &PoolPlan) {
        let progress: PoolProgress = serde_json::from_str(&s.progress).unwrap();
        let name = CONFIGS[config as usize];
        let rejected = progress.rejected.iter().any(|r| r.config == name);
        assert!(!rejected, "a rejected config reaches n{node}: {plan}");
        if config == s.target && progress.proved.as_deref() != Some(name) {
            assert_eq!(progress.config.as_deref(), Some(name), "its rollout is not recorded: {plan}");
            // What the change before has left in another config goes by wave, too, unless it is rejected.
            let leaves = [s.nodes[node].cur, s.nodes[node].des]
                .iter()
                .any(|c| progress.rejected.iter().any(|r| r.config == CONFIGS[*c as usize]));
            let at = waves(self.about).iter().position(|w| progress.wave.as_deref() == Some(*w)).unwrap_or(0);
            let own = self.about.wave(node);
            assert!(leaves || own <= at, "n{node} goes before its wave has begun: {plan}");
            let there = |(i, n): (usize, &Node)| {
                // Nobody waits for a node that is put aside.
                let quarantined = n.quarantined.is_some() || self.about.stuck == Some(i);
                // Nor for one that was there and is rebooted by a person.
                let rests = n.st == St::Done || n.person;
                self.about.wave(i) >= own || quarantined || rests && (n.cur, n.des) == (config, config)
            };
            let proved = s.nodes.iter().enumerate().all(there);
            assert!(leaves || proved, "n{node} goes before the waves before it are proved: {plan}");
        }
        let approved = progress.approvals.iter().any(|a| a.wave == "canary");
        assert!(!self.about.elsewhere || config != BAD || approved, "nobody has let the canary go: {plan}");
        let unseen = !self.about.harms || self.about.shows_at > 1;
        assert!(unseen || config != BAD || node == 0, "the harm spreads to n{node}: {plan}");
    }

    pub(super) fn explore(&mut self) -> usize {
        let mut index: HashMap<State, usize> = HashMap::new();
        let (mut before, mut ends): (Vec<Vec<usize>>, Vec<usize>) = (vec![], vec![]);
        let mut queue = VecDeque::from([(0, self.start())]);
        index.insert(self.start(), 0);
        before.push(vec![]);
        while let Some((id, s)) = queue.pop_front() {
            // What a person reboots is that person's.
            let out = s.nodes.iter().filter(|n| !n.person && (n.st != St::Done || n.cur != n.des)).count();
            assert!(out <= self.about.max(), "{out} nodes are out: {s:?}");
            let at = |config: u8| {
                let is_in = |n: &Node, config| *n == Node::at(config);
                // A node that is put aside for good waits in service, in the config that it had.
                let waits = |i: usize, n: &Node| {
                    let quarantined = self.about.for_good && self.about.stuck == Some(i);
                    quarantined && n.st == St::Done && n.cur == n.des
                };
                s.nodes.iter().enumerate().all(|(i, n)| is_in(n, config) || waits(i, n))
            };
            let progress: PoolProgress = serde_json::from_str(&s.progress).unwrap();
            let proved = progress.proved.as_deref();
            if at(2) && s.target == 2 && proved == Some(CONFIGS[2])
                || at(0) && !self.about.edits && progress.rejected.iter().any(|r| r.config == CONFIGS[1])
                || at(1) && !self.about.edits && !self.about.harms && proved == Some(CONFIGS[1])
            {
                ends.push(id);
            }
            for t in self.steps(&s) {
                let next = index.len();
                let to = *index.entry(t.clone()).or_insert_with(|| {
                    before.push(vec![]);
                    queue.push_back((next, t));
                    next
                });
                before[to].push(id);
            }
        }
        let mut can_end = vec![false; before.len()];
        while let Some(id) = ends.pop() {
            if !std::mem::replace(&mut can_end[id], true) {
                ends.extend(&before[id]);
            }
        }
        let stuck: Vec<&State> = index.iter().filter(|(_, id)| !can_end[**id]).map(|(s, _)| s).collect();
        assert!(stuck.is_empty(), "{} states with no way to the end: {:#?}", stuck.len(), stuck[0]);
        eprintln!("{} states", before.len());
        before.len()
    }
}

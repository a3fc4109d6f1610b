//! The model: a policy, the state that it begins in, and the plan that the controller makes in a state.
//!
//! What it is not: what can happen in a state (see `steps`).

use super::state::{Hours, Node, St, State, drain};
use super::{About, BAD, CONFIGS, Fault, NOON};
use crate::common::{moved, pool, pool as other_pool};
use api::v1::MachineConfigPool;
use api::v1alpha1::{PoolProgress, RolloutPolicySpec};
use rollout::drain::Outlook;
use rollout::policy::{
    ApprovalRequest, ChangeAsked, ChangeCost, Costs, GateState, Policy, PolicyFacts, PolicyInput, parse,
};
use rollout::view::{DaemonState, NodeView};
use rollout::{Cluster, Facts, Inputs, PoolInput, PoolPlan, Unanswered, plan};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(super) struct Model {
    pub(super) policy: Policy,
    pub(super) fault: Option<Fault>,
    pub(super) about: About,
    pub(super) views: Vec<NodeView>,
    pub(super) plans: HashMap<State, PoolPlan>,
}

impl Model {
    pub(super) fn new(nodes: usize, fault: Option<Fault>, about: About) -> Self {
        let mut waves = vec![json!({"name": "canary", "size": 1, "soak": "1h"})];
        waves.extend(about.second.then(|| json!({"name": "second", "size": 1})));
        // Harm that shows late is found by a soak at the end.
        let soak = (about.shows_at > 1).then_some("1h");
        waves.push(json!({"name": "rest", "soak": soak}));
        let spec: RolloutPolicySpec = serde_json::from_value(json!({
            "pools": {"names": ["worker"]},
            "waves": waves,
            "gates": [{"name": "ok", "failureLimit": 1, "http": {"url": "http://a"}}],
            "onFailure": "Rollback",
            "drain": about.stuck.map(|_| json!({"after": "1h", "then": "Quarantine"})),
            "windows": if about.calendar {
                json!([{"name": "noon", "cron": "0 12 * * *", "timeZone": "UTC", "duration": "1h"}])
            } else {
                json!([])
            },
            "freezes": if about.calendar {
                json!([{"name": "stop", "from": "2026-07-01T12:30:00Z", "to": "2026-07-01T12:40:00Z", "allowCertificates": true}])
            } else {
                json!([])
            },
        }))
        .unwrap();
        let view = |i: usize| moved(&format!("n{i}"), CONFIGS[0], CONFIGS[0]).created(i as i64).view();
        Self {
            policy: parse("p", &spec).unwrap(),
            fault,
            about,
            views: (0..nodes).map(view).collect(),
            plans: HashMap::new(),
        }
    }

    pub(super) fn start(&self) -> State {
        let progress = PoolProgress {
            name: "worker".to_owned(),
            proved: Some(CONFIGS[0].to_owned()),
            ..PoolProgress::default()
        };
        State {
            nodes: vec![Node::at(0); self.views.len()],
            target: BAD,
            progress: serde_json::to_string(&progress).unwrap(),
            patches: vec![],
            statuses: vec![],
            gate: None,
            freed: false,
            approved: false,
            late: vec![],
            sealed: vec![true; self.views.len()],
            hours: Hours::Open,
            reboots: self.about.reboots,
        }
    }

    pub(super) fn plan(&mut self, s: &State) -> PoolPlan {
        if let Some(known) = self.plans.get(s) {
            return known.clone();
        }
        let nodes = s.nodes.iter().zip(&self.views).map(|(node, view)| NodeView {
            current_config: Some(CONFIGS[node.cur as usize].into()),
            desired_config: Some(CONFIGS[node.des as usize].into()),
            // One that a person reboots says nothing of it.
            state: if node.st == St::Done || node.person && node.cur == node.des {
                DaemonState::Done
            } else {
                DaemonState::Working
            },
            not_ready: (node.st == St::Out).then(|| "Ready is False".into()),
            // As long as it works and is not out, it waits for its drain.
            desired_drain: (node.st != St::Done).then(|| drain(node.des)),
            last_applied_drain: (node.st == St::Out).then(|| drain(node.des)),
            quarantine: node.quarantined.map(|config| CONFIGS[config as usize].into()),
            waiting: node.mark.map(|config| CONFIGS[config as usize].into()),
            ..view.clone()
        });
        let mut nodes: Vec<NodeView> = nodes.collect();
        let progress: PoolProgress = serde_json::from_str(&s.progress).unwrap();
        let blind = match self.fault {
            Some(Fault::SeesNodesBack) => !progress.rejected.is_empty(),
            fault => fault == Some(Fault::SeesNodesDone),
        };
        if blind {
            for node in &mut nodes {
                node.current_config.clone_from(&node.desired_config);
                (node.state, node.not_ready) = (DaemonState::Done, None);
            }
        }
        let mut pool = pool("worker", CONFIGS[s.target as usize], json!(self.about.max()));
        let source = |pool: &mut MachineConfigPool, name: &str| {
            pool.spec.configuration.source = serde_json::from_value(json!([{"name": name}])).unwrap();
        };
        // The second change is another MachineConfig.
        source(&mut pool, if s.target == BAD { "harm" } else { "good" });
        let mut other = other_pool("other", CONFIGS[BAD as usize], json!(1));
        source(&mut other, "harm");
        let rejected = json!([{"config": CONFIGS[BAD as usize], "reason": "harm", "at": NOON}]);
        let of_other = PolicyFacts {
            progress: PoolProgress {
                rejected: serde_json::from_value(rejected).unwrap(),
                ..PoolProgress::default()
            },
            ..PolicyFacts::default()
        };
        let state = |passes| if passes { GateState::Passed } else { GateState::Failed("harm".to_owned()) };
        let trusts = (self.fault == Some(Fault::TrustsSilence)).then_some(true);
        let gates: BTreeMap<Arc<str>, GateState> = s
            .gate
            .map(|(_, passes)| passes)
            .or(trusts)
            .map(|passes| ("ok".into(), state(passes)))
            .into_iter()
            .collect();
        let baselines = gates.keys().map(|gate| (gate.clone(), vec![])).collect();
        let approval =
            s.approved.then(|| ApprovalRequest::parse(&format!("{}/canary", CONFIGS[BAD as usize]), None));
        let change = |from: &str, to: &str| ChangeAsked { from: from.into(), to: to.into() };
        let cost = ChangeCost { least: None, certificates: self.about.certificates };
        let costs: Costs =
            CONFIGS.iter().flat_map(|from| CONFIGS.map(|to| (change(from, to), Ok(cost)))).collect();
        let facts = PolicyFacts { gates, baselines, progress, approval, costs, ..PolicyFacts::default() };
        let moves = Unanswered { moves: true, overdue: false };
        let cluster = Facts {
            cluster: Cluster::Plain,
            unanswered: s.patches.iter().map(|f| (self.views[f.what.node].name.clone(), moves)).collect(),
            outlooks: self.outlooks(s),
            looks: true,
            ..Facts::default()
        };
        let with = |pool, facts| PoolInput {
            policy: Some(PolicyInput::InForce { policy: &self.policy, facts }),
            ..PoolInput::of(pool)
        };
        let mut pools = vec![with(&pool, &facts)];
        if self.about.elsewhere && self.fault != Some(Fault::LooksNowhere) {
            pools.push(with(&other, &of_other));
        }
        let inputs = Inputs {
            pools,
            nodes: nodes.iter().collect(),
            facts: &cluster,
            now: if self.fault == Some(Fault::SeesNoCalendar) { Hours::Open.now() } else { s.hours.now() },
        };
        let plan = plan(&inputs).pools.remove(0);
        self.plans.insert(s.clone(), plan.clone());
        plan
    }

    /// What the drain of each node would do, which is what a plan may ask for.
    pub(super) fn outlooks(&self, s: &State) -> BTreeMap<Arc<str>, Outlook> {
        let looks = self.about.stuck.is_some();
        let seen = |(i, view): (usize, &NodeView)| {
            let waits = self.about.stuck == Some(i) && !s.freed;
            let outlook = if waits { Outlook::Waits("a budget".to_owned()) } else { Outlook::Ends };
            (view.name.clone(), outlook)
        };
        self.views.iter().enumerate().filter(|_| looks).map(seen).collect()
    }
}

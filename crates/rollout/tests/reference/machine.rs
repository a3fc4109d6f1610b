//! The reference's update controller over one pool, and over the two pools of a control plane with an arbiter.
//!
//! What it is not: the pools and nodes that it is tested with.

use crate::common::{self, Mk, World, node, pool};
use api::v1::MachineConfigPoolStatus;
use rollout::{BuildState, Layering};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A Node's annotations and the rest, as the reference reads them.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) notes: BTreeMap<&'static str, String>,
    pub(crate) conditions: Vec<(&'static str, &'static str)>,
    pub(crate) unschedulable: bool,
    pub(crate) zone: Option<&'static str>,
    pub(crate) created: i64,
    pub(crate) tainted: bool,
}

impl Node {
    pub(crate) fn note(&self, key: &str) -> Option<&str> {
        self.notes.get(key).map(String::as_str)
    }

    pub(crate) fn ready(&self) -> bool {
        let fine = |(type_, status): &(&str, &str)| match *type_ {
            "Ready" => *status == "True",
            "DiskPressure" | "NetworkUnavailable" => *status == "False",
            _ => true,
        };
        self.conditions.iter().all(fine) && !self.unschedulable
    }

    pub(crate) fn equal(&self, a: &str, b: &str) -> bool {
        let text = |key| self.note(key).unwrap_or_default();
        !text(a).is_empty() && text(a) == text(b)
    }

    pub(crate) fn done(&self) -> bool {
        let no_images = self.note("currentImage").is_none() && self.note("desiredImage").is_none();
        self.equal("currentConfig", "desiredConfig")
            && (no_images || self.equal("currentImage", "desiredImage"))
            && self.note("state") == Some("Done")
    }

    pub(crate) fn bad(&self) -> bool {
        matches!(self.note("state"), Some("Degraded" | "Unreconcilable"))
    }

    pub(crate) fn failing(&self) -> bool {
        let text = |key| self.note(key).unwrap_or_default();
        text("currentConfig") != text("desiredConfig") && self.bad()
    }

    pub(crate) fn unavailable(&self) -> bool {
        !self.ready() || (!self.done() && !self.failing())
    }

    pub(crate) fn mk(&self, roles: &[&str]) -> Mk {
        let mut mk = node(&self.name).roles(roles).created(self.created);
        for (key, value) in &self.notes {
            mk = mk.note(key, value);
        }
        if let Some(zone) = self.zone {
            mk = mk.label("topology.kubernetes.io/zone", zone);
        }
        if self.tainted {
            mk = mk.taint("UpdateInProgress", "PreferNoSchedule");
        }
        mk = mk.with_conditions(&self.conditions);
        if self.unschedulable { mk.cordoned() } else { mk }
    }
}

/// The reference's view of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) target: &'static str,
    pub(crate) paused: bool,
    pub(crate) max: Value,
    pub(crate) layering: Layering,
    pub(crate) nodes: Vec<Node>,
    pub(crate) status: MachineConfigPoolStatus,
}

impl Reference {
    pub(crate) fn is_true(&self, type_: &str) -> bool {
        api::conditions::is_true(self.status.conditions.as_deref().unwrap_or_default(), type_)
    }

    pub(crate) fn equals_build(&self, n: &Node) -> bool {
        let (Some(config), Some(build)) = (&self.layering.config, &self.layering.build) else { return false };
        let image = n.note("desiredImage").unwrap_or_default();
        !image.is_empty()
            && *config.image == *image
            && n.note("desiredConfig") == Some(&*build.machine_config)
    }

    pub(crate) fn updated(&self, n: &Node) -> bool {
        let wanted = n.done() && n.note("desiredConfig") == Some(self.target);
        match self.layering.is_layered() {
            false => wanted && n.note("desiredImage").is_none(),
            true => wanted && self.equals_build(n),
        }
    }

    pub(crate) fn candidate(&self, n: &Node) -> bool {
        match self.layering.is_layered() {
            false => n.note("desiredConfig") != Some(self.target) || n.note("desiredImage").is_some(),
            true => !self.equals_build(n),
        }
    }

    pub(crate) fn at_target(&self, n: &Node) -> bool {
        let images = n.note("currentImage").is_some() && n.note("desiredImage").is_some();
        match self.layering.is_layered() {
            false => n.note("desiredConfig") == Some(self.target) && !images,
            true => self.equals_build(n),
        }
    }

    /// May nodes go to the image?
    pub(crate) fn goes_on(&self) -> bool {
        if !self.layering.is_layered() {
            return true;
        }
        let (Some(config), Some(build)) = (&self.layering.config, &self.layering.build) else { return false };
        !config.image.is_empty() && build.state == BuildState::Succeeded && build.image == config.image
    }

    pub(crate) fn max(&self) -> usize {
        let max = match &self.max {
            Value::Null => 1,
            Value::Number(n) => usize::try_from(n.as_u64().unwrap()).unwrap(),
            Value::String(text) => {
                self.nodes.len()
                    * text.trim_end_matches('%').trim_start_matches('+').parse::<usize>().unwrap()
                    / 100
            }
            _ => panic!(),
        };
        max.max(1)
    }

    /// One pass over the pool.
    pub(crate) fn sync(&mut self) {
        if !self.paused && self.goes_on() {
            self.taint();
            self.send(self.max());
        }
        self.tell();
    }

    pub(crate) fn taint(&mut self) {
        for i in 0..self.nodes.len() {
            self.nodes[i].tainted = !self.at_target(&self.nodes[i]);
        }
    }

    /// It needs the update and is in service, but reports a fault in its present config: we update it in the slot that
    /// it holds, the reference does not.
    pub(crate) fn drifted(&self, n: &Node) -> bool {
        self.candidate(n) && n.ready() && n.unavailable() && n.bad()
    }

    /// Those of them that are updated: as many as there are slots left by nodes that are really out of service.
    fn drifted_first(&self, max: usize) -> Vec<usize> {
        let out = |n: &&Node| n.unavailable() && !self.drifted(n) || n.failing() && !self.candidate(n);
        let mut all: Vec<usize> = (0..self.nodes.len()).filter(|i| self.drifted(&self.nodes[*i])).collect();
        all.sort_by_key(|i| {
            let n = &self.nodes[*i];
            (n.zone.is_none(), n.zone, n.created, n.name.clone())
        });
        all.truncate(max.saturating_sub(self.nodes.iter().filter(out).count()));
        all
    }

    /// Sends nodes; returns how many could have been sent.
    pub(crate) fn send(&mut self, max: usize) -> usize {
        self.give(self.drifted_first(max));
        let (candidates, chosen) = self.chosen(max);
        self.give(chosen);
        candidates
    }

    fn give(&mut self, chosen: Vec<usize>) {
        for i in chosen {
            let (config, image) = match (&self.layering.config, &self.layering.build) {
                (Some(config), Some(build)) => (build.machine_config.to_string(), config.image.to_string()),
                _ => (self.target.to_owned(), String::new()),
            };
            self.nodes[i].notes.insert("desiredConfig", config);
            match image.is_empty() {
                true => self.nodes[i].notes.remove("desiredImage"),
                false => self.nodes[i].notes.insert("desiredImage", image),
            };
        }
    }

    pub(crate) fn chosen(&self, max: usize) -> (usize, Vec<usize>) {
        let unavailable = self.nodes.iter().filter(|n| n.unavailable()).count();
        if unavailable >= max {
            return (0, vec![]);
        }
        let capacity = max - unavailable;
        let failing = self.nodes.iter().filter(|n| !self.candidate(n) && n.failing()).count();
        if failing >= capacity {
            return (0, vec![]);
        }
        let capacity = capacity - failing;
        let can = |i: &usize| self.candidate(&self.nodes[*i]) && self.nodes[*i].ready();
        let mut all: Vec<usize> = (0..self.nodes.len()).filter(can).collect();
        all.sort_by_key(|i| {
            let n = &self.nodes[*i];
            (n.zone.is_none(), n.zone, n.created, n.name.clone())
        });
        let candidates = all.len();
        all.truncate(capacity);
        (candidates, all)
    }

    pub(crate) fn tell(&mut self) {
        let count = |pick: &dyn Fn(&Node) -> bool| {
            i32::try_from(self.nodes.iter().filter(|n| pick(n)).count()).unwrap()
        };
        let (total, updated) = (count(&|_| true), count(&|n| self.updated(n)));
        let (ready, unavailable) = (count(&|n| self.updated(n) && n.ready()), count(&Node::unavailable));
        let degraded = count(&Node::bad);
        let build = self.layering.config.as_ref().and(self.layering.build.as_ref());
        let building = build.is_some_and(|b| match b.state {
            BuildState::Building | BuildState::Prepared | BuildState::Failed => true,
            BuildState::Succeeded => {
                !b.image.is_empty() && b.image != self.layering.config.as_ref().unwrap().image
            }
            _ => false,
        });
        let all = updated == total && ready == total && unavailable == 0 && !building;
        let mut updating = !all && !self.paused;
        if self.layering.config.is_some() {
            let held = ["RenderDegraded", "NodeDegraded", "PinnedImageSetsDegraded"];
            updating = match self.layering.build.as_ref().map(|b| b.state) {
                _ if !self.paused && held.iter().any(|t| self.is_true(t)) => false,
                None | Some(BuildState::Prepared | BuildState::Building | BuildState::Initial) => true,
                Some(BuildState::Succeeded) if self.paused => false,
                Some(BuildState::Succeeded) if all => updating,
                Some(BuildState::Succeeded) => true,
                Some(BuildState::Failed | BuildState::Interrupted) => false,
            };
        }
        let was = self.is_true("ImageBuildDegraded");
        let cleared = match (&self.layering.config, self.layering.build.as_ref().map(|b| b.state)) {
            (_, Some(BuildState::Building | BuildState::Prepared | BuildState::Succeeded)) => true,
            (_, None) => was,
            _ => false,
        };
        let build_degraded = was && !cleared;
        let any = degraded > 0 || self.is_true("RenderDegraded") || build_degraded;
        let mut list = self.status.conditions.clone().unwrap_or_default();
        for (type_, value) in [
            ("Updated", Some(all)),
            ("Updating", Some(updating)),
            ("NodeDegraded", Some(degraded > 0)),
            ("ImageBuildDegraded", (was || cleared).then_some(build_degraded)),
            ("Degraded", Some(any)),
        ] {
            if let Some(value) = value {
                let condition = api::conditions::Condition::new(type_, value, "", String::new());
                api::conditions::set(&mut list, condition, &api::k8s::Time(common::at(0)));
            }
        }
        self.status.conditions = Some(list);
        let s = &mut self.status;
        (s.machine_count, s.updated_machine_count, s.ready_machine_count) = (total, updated, ready);
        (s.unavailable_machine_count, s.degraded_machine_count) = (unavailable, degraded);
        if all {
            s.configuration.name = self.target.to_owned();
        }
    }

    /// What is compared.
    pub(crate) fn outcome(&self) -> Value {
        let nodes = self.nodes.iter().map(|n| {
            json!({"name": n.name, "config": n.note("desiredConfig"), "image": n.note("desiredImage"), "tainted": n.tainted})
        });
        json!({"nodes": nodes.collect::<Vec<_>>(), "status": status(&self.status)})
    }

    pub(crate) fn ours(&self) -> Value {
        let mut pool = pool("infra", self.target, self.max.clone());
        pool.spec.paused = self.paused;
        pool.status = Some(self.status.clone());
        let mut world =
            World::new(vec![pool], self.nodes.iter().map(|n| n.mk(&["worker", "infra"])).collect());
        world.layering.insert("infra".to_owned(), self.layering.clone());
        world.settle();
        let nodes = world.nodes.iter().map(|n| {
            json!({"name": n.name, "config": n.desired_config, "image": n.desired_image, "tainted": n.has_update_taint()})
        });
        json!({"nodes": nodes.collect::<Vec<_>>(), "status": status(world.pools[0].status.as_ref().unwrap())})
    }
}

/// Two masters and an arbiter, for example: one quorum.
#[derive(Clone, Debug)]
pub(crate) struct Quorum {
    pub(crate) master: Reference,
    pub(crate) arbiter: Reference,
}

impl Quorum {
    /// Whether a master is out. A master that has drifted does not count while arbiters have only drifted and so keep
    /// the masters where they are.
    fn masters_out(&self) -> bool {
        let first = self.arbiter_first();
        self.master.nodes.iter().any(|n| n.unavailable() && !(first && self.master.drifted(n)))
    }

    fn arbiter_first(&self) -> bool {
        let mut out = self.arbiter.nodes.iter().filter(|n| n.unavailable()).peekable();
        out.peek().is_some() && out.all(|n| self.arbiter.drifted(n))
    }

    /// The two keys of the reference's queue.
    pub(crate) fn sync(&mut self) {
        self.sync_master();
        if self.master.paused && !self.masters_out() {
            self.arbiter.sync();
        } else {
            self.arbiter.tell();
        }
    }

    pub(crate) fn sync_master(&mut self) {
        if self.master.paused {
            return self.master.tell();
        }
        let away = self.arbiter.nodes.iter().any(Node::unavailable);
        self.master.taint();
        let (out, first) = (self.masters_out(), self.arbiter_first());
        let candidates = self.master.send(usize::from(!away));
        self.master.tell();
        if self.arbiter.paused {
            return self.arbiter.tell();
        }
        self.arbiter.taint();
        if !out && (candidates == 0 || first) {
            self.arbiter.send(1);
        }
        self.arbiter.tell();
    }

    pub(crate) fn ours(&self) -> Value {
        let mut world = World::default();
        for (name, of) in [("master", &self.master), ("arbiter", &self.arbiter)] {
            let mut pool = pool(name, of.target, json!(1));
            pool.spec.paused = of.paused;
            pool.status = Some(of.status.clone());
            world.pools.push(pool);
            world.nodes.extend(of.nodes.iter().map(|n| n.mk(&[name]).view()));
        }
        world.facts.control_plane_topology = "HighlyAvailableArbiter".into();
        world.settle();
        let both = world.pools.iter().map(|p| status(p.status.as_ref().unwrap()));
        let nodes = world
            .nodes
            .iter()
            .map(|n| json!([n.name, n.desired_config, n.desired_image, n.has_update_taint()]));
        json!([both.collect::<Vec<_>>(), nodes.collect::<Vec<_>>()])
    }

    pub(crate) fn outcome(&self) -> Value {
        let all = self.master.nodes.iter().chain(&self.arbiter.nodes);
        let nodes = all.map(|n| json!([n.name, n.note("desiredConfig"), n.note("desiredImage"), n.tainted]));
        json!([[status(&self.master.status), status(&self.arbiter.status)], nodes.collect::<Vec<_>>()])
    }
}

pub(crate) fn status(s: &MachineConfigPoolStatus) -> Value {
    let list = s.conditions.as_deref().unwrap_or_default();
    let conditions =
        ["Updated", "Updating", "Degraded", "NodeDegraded", "RenderDegraded", "ImageBuildDegraded"]
            .map(|t| api::conditions::get(list, t).map(|c| c.status.clone()));
    json!({"counts": [s.machine_count, s.updated_machine_count, s.ready_machine_count,
                      s.unavailable_machine_count, s.degraded_machine_count],
           "configuration": s.configuration.name, "conditions": conditions})
}

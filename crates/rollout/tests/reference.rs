//! The reference's update controller once more, step by step as its behaviour was written down (which nodes it finds
//! unavailable, whom it taints and sends, what it counts and says), run to rest on any pool and nodes beside the real
//! plan. Both must come to the same Nodes and the same status.
//!
//! What it is not: the recorded situations (`recorded.rs`), or what we do otherwise on purpose: bounds that cannot be read
//! or are negative, pools of the control plane, nodes under their update's own cordon, configs whose names say that they
//! were rendered for the same pool, builds that are an error and not paused (there the reference writes no status at all).
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on ends.
mod common;

use api::v1::MachineConfigPoolStatus;
use common::{Mk, World, node, pool};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::{option, prop_assert_eq};
use rollout::{BuildState, Layering, OsBuildView, OsConfigView};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A Node's annotations and the rest, as the reference reads them.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    notes: BTreeMap<&'static str, String>,
    conditions: Vec<(&'static str, &'static str)>,
    unschedulable: bool,
    zone: Option<&'static str>,
    created: i64,
    tainted: bool,
}

impl Node {
    fn note(&self, key: &str) -> Option<&str> {
        self.notes.get(key).map(String::as_str)
    }

    fn ready(&self) -> bool {
        let fine = |(type_, status): &(&str, &str)| match *type_ {
            "Ready" => *status == "True",
            "DiskPressure" | "NetworkUnavailable" => *status == "False",
            _ => true,
        };
        self.conditions.iter().all(fine) && !self.unschedulable
    }

    fn equal(&self, a: &str, b: &str) -> bool {
        let text = |key| self.note(key).unwrap_or_default();
        !text(a).is_empty() && text(a) == text(b)
    }

    fn done(&self) -> bool {
        let no_images = self.note("currentImage").is_none() && self.note("desiredImage").is_none();
        self.equal("currentConfig", "desiredConfig")
            && (no_images || self.equal("currentImage", "desiredImage"))
            && self.note("state") == Some("Done")
    }

    fn bad(&self) -> bool {
        matches!(self.note("state"), Some("Degraded" | "Unreconcilable"))
    }

    fn failing(&self) -> bool {
        let text = |key| self.note(key).unwrap_or_default();
        text("currentConfig") != text("desiredConfig") && self.bad()
    }

    fn unavailable(&self) -> bool {
        !self.ready() || (!self.done() && !self.failing())
    }

    fn mk(&self) -> Mk {
        let mut mk = node(&self.name).roles(&["worker", "infra"]).created(self.created);
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
struct Reference {
    target: &'static str,
    paused: bool,
    max: Value,
    layering: Layering,
    nodes: Vec<Node>,
    status: MachineConfigPoolStatus,
}

impl Reference {
    fn is_true(&self, type_: &str) -> bool {
        api::conditions::is_true(self.status.conditions.as_deref().unwrap_or_default(), type_)
    }

    fn equals_build(&self, n: &Node) -> bool {
        let (Some(config), Some(build)) = (&self.layering.config, &self.layering.build) else { return false };
        let image = n.note("desiredImage").unwrap_or_default();
        !image.is_empty()
            && *config.image == *image
            && n.note("desiredConfig") == Some(&*build.machine_config)
    }

    fn updated(&self, n: &Node) -> bool {
        let wanted = n.done() && n.note("desiredConfig") == Some(self.target);
        match self.layering.is_layered() {
            false => wanted && n.note("desiredImage").is_none(),
            true => wanted && self.equals_build(n),
        }
    }

    fn candidate(&self, n: &Node) -> bool {
        match self.layering.is_layered() {
            false => n.note("desiredConfig") != Some(self.target) || n.note("desiredImage").is_some(),
            true => !self.equals_build(n),
        }
    }

    fn at_target(&self, n: &Node) -> bool {
        let images = n.note("currentImage").is_some() && n.note("desiredImage").is_some();
        match self.layering.is_layered() {
            false => n.note("desiredConfig") == Some(self.target) && !images,
            true => self.equals_build(n),
        }
    }

    /// May nodes go to the image?
    fn goes_on(&self) -> bool {
        if !self.layering.is_layered() {
            return true;
        }
        let (Some(config), Some(build)) = (&self.layering.config, &self.layering.build) else { return false };
        !config.image.is_empty() && build.state == BuildState::Succeeded && build.image == config.image
    }

    fn max(&self) -> usize {
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
    fn sync(&mut self) {
        if !self.paused && self.goes_on() {
            for i in 0..self.nodes.len() {
                self.nodes[i].tainted = !self.at_target(&self.nodes[i]);
            }
            for i in self.chosen() {
                let (config, image) = match (&self.layering.config, &self.layering.build) {
                    (Some(config), Some(build)) => {
                        (build.machine_config.to_string(), config.image.to_string())
                    }
                    _ => (self.target.to_owned(), String::new()),
                };
                self.nodes[i].notes.insert("desiredConfig", config);
                match image.is_empty() {
                    true => self.nodes[i].notes.remove("desiredImage"),
                    false => self.nodes[i].notes.insert("desiredImage", image),
                };
            }
        }
        self.tell();
    }

    fn chosen(&self) -> Vec<usize> {
        let max = self.max();
        let unavailable = self.nodes.iter().filter(|n| n.unavailable()).count();
        if unavailable >= max {
            return vec![];
        }
        let capacity = max - unavailable;
        let failing = self.nodes.iter().filter(|n| !self.candidate(n) && n.failing()).count();
        if failing >= capacity {
            return vec![];
        }
        let capacity = capacity - failing;
        let can = |i: &usize| self.candidate(&self.nodes[*i]) && self.nodes[*i].ready();
        let mut all: Vec<usize> = (0..self.nodes.len()).filter(can).collect();
        all.sort_by_key(|i| {
            let n = &self.nodes[*i];
            (n.zone.is_none(), n.zone, n.created, n.name.clone())
        });
        all.truncate(capacity);
        all
    }

    fn tell(&mut self) {
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
    fn outcome(&self) -> Value {
        let nodes = self.nodes.iter().map(|n| {
            json!({"name": n.name, "config": n.note("desiredConfig"), "image": n.note("desiredImage"), "tainted": n.tainted})
        });
        json!({"nodes": nodes.collect::<Vec<_>>(), "status": status(&self.status)})
    }

    fn ours(&self) -> Value {
        let mut pool = pool("infra", self.target, self.max.clone());
        pool.spec.paused = self.paused;
        pool.status = Some(self.status.clone());
        let mut world = World::new(vec![pool], self.nodes.iter().map(Node::mk).collect());
        world.layering.insert("infra".to_owned(), self.layering.clone());
        world.settle();
        let nodes = world.nodes.iter().map(|n| {
            json!({"name": n.name, "config": n.desired_config, "image": n.desired_image, "tainted": n.has_update_taint()})
        });
        json!({"nodes": nodes.collect::<Vec<_>>(), "status": status(world.pools[0].status.as_ref().unwrap())})
    }
}

fn status(s: &MachineConfigPoolStatus) -> Value {
    let list = s.conditions.as_deref().unwrap_or_default();
    let conditions =
        ["Updated", "Updating", "Degraded", "NodeDegraded", "RenderDegraded", "ImageBuildDegraded"]
            .map(|t| api::conditions::get(list, t).map(|c| c.status.clone()));
    json!({"counts": [s.machine_count, s.updated_machine_count, s.ready_machine_count,
                      s.unavailable_machine_count, s.degraded_machine_count],
           "configuration": s.configuration.name, "conditions": conditions})
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(list: &'static [T]) -> impl Strategy<Value = T> {
    (0..list.len()).prop_map(move |i| list[i])
}

fn any_node(i: usize, images: bool) -> impl Strategy<Value = Node> {
    let config = || option::weighted(0.9, one_of(&["old", "old", "new", "new", "other", ""]));
    let image =
        move || option::weighted(if images { 0.6 } else { 0.05 }, one_of(&["img0", "img1", "img1", ""]));
    let state = one_of(&[
        Some("Done"),
        Some("Done"),
        Some("Done"),
        Some("Working"),
        Some("Degraded"),
        Some("Unreconcilable"),
        Some("Rebooting"),
        Some("Bogus"),
        Some(""),
        None,
    ]);
    let conditions = one_of::<&[(&str, &str)]>(&[
        &[("Ready", "True")],
        &[("Ready", "True"), ("DiskPressure", "False"), ("MemoryPressure", "True")],
        &[("Ready", "True"), ("MemoryPressure", "False"), ("NetworkUnavailable", "False")],
        &[],
        &[("Ready", "False")],
        &[("Ready", "Unknown")],
        &[("Ready", "True"), ("DiskPressure", "Unknown")],
        &[("Ready", "True"), ("NetworkUnavailable", "True")],
    ]);
    let zone = option::of(one_of(&["a", "b", "c"]));
    let steady = any::<bool>();
    let notes = (config(), config(), image(), image(), state, steady);
    (notes, conditions, 0..8_u8, zone, 0..20_i64, any::<bool>()).prop_map(
        move |(
            (current, desired, current_image, desired_image, state, steady),
            conditions,
            cordon,
            zone,
            created,
            tainted,
        )| {
            // Half of them are at rest: otherwise there would be no room for anybody.
            let (desired, desired_image) =
                if steady { (current, current_image) } else { (desired, desired_image) };
            let notes = [
                ("currentConfig", current),
                ("desiredConfig", desired),
                ("currentImage", current_image),
                ("desiredImage", desired_image),
                ("state", state),
            ];
            Node {
                name: format!("n{i}"),
                notes: notes.into_iter().filter_map(|(k, v)| Some((k, v?.to_owned()))).collect(),
                conditions: conditions.to_vec(),
                unschedulable: cordon == 0,
                zone,
                created,
                tainted,
            }
        },
    )
}

fn any_layering() -> impl Strategy<Value = Layering> {
    let config = option::weighted(0.9, one_of(&["", "img1", "img1", "img1"]));
    let states = [
        BuildState::Initial,
        BuildState::Prepared,
        BuildState::Building,
        BuildState::Succeeded,
        BuildState::Succeeded,
        BuildState::Succeeded,
        BuildState::Failed,
        BuildState::Interrupted,
    ];
    let build = option::weighted(
        0.9,
        ((0..states.len()).prop_map(move |i| states[i]), one_of(&["", "img1", "img1", "img0"])),
    );
    (config, build).prop_map(|(config, build)| Layering {
        config: config.map(|image| OsConfigView { name: "mosc".into(), image: image.into() }),
        // The build that is looked at is the one for the pool's config.
        build: build.filter(|_| config.is_some()).map(|(state, image)| OsBuildView {
            name: "mosb".into(),
            machine_config: "new".into(),
            state,
            image: image.into(),
        }),
    })
}

fn any_pool() -> impl Strategy<Value = Reference> {
    let max = prop_oneof![
        Just(Value::Null),
        (0..8).prop_map(|n| json!(n)),
        (0..130).prop_map(|n| json!(format!("{n}%"))),
        (0..130).prop_map(|n| json!(format!("+{n}%"))),
    ];
    let layering = prop_oneof![3 => Just(Layering::default()), 2 => any_layering()];
    let conditions = (0..6_u8, 0..6_u8);
    (max, 0..5_u8, layering, conditions, 0..9_usize).prop_flat_map(
        |(max, paused, layering, conditions, n)| {
            let nodes = (0..n).map(|i| any_node(i, layering.is_layered())).collect::<Vec<_>>();
            (nodes, Just((max, paused, layering, conditions))).prop_map(
                |(nodes, (max, paused, layering, (render, build)))| {
                    let mut list = vec![];
                    for (type_, on) in [("RenderDegraded", render == 0), ("ImageBuildDegraded", build == 0)] {
                        if on {
                            let condition = api::conditions::Condition::new(type_, true, "", String::new());
                            api::conditions::set(&mut list, condition, &api::k8s::Time(common::at(0)));
                        }
                    }
                    let status = MachineConfigPoolStatus {
                        conditions: Some(list),
                        ..MachineConfigPoolStatus::default()
                    };
                    Reference { target: "new", paused: paused == 0, max, layering, nodes, status }
                },
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn any_situation_ends_as_the_reference_would_leave_it(mut reference in any_pool()) {
        let failed = reference.layering.build.as_ref().is_some_and(|b| b.state == BuildState::Failed);
        if failed && !reference.paused {
            return Ok(());
        }
        let ours = reference.ours();
        for _ in 0..12 {
            reference.sync();
        }
        prop_assert_eq!(ours, reference.outcome(), "{:#?}", reference);
    }
}

//! MachineConfigNodes are created, corrected and removed with their nodes, and a step changes only its own conditions.

use crate::common::{at, moved, node};
use api::k8s::Time;
use api::v1::{MachineConfigNode, MachineConfigNodeStatus};
use rollout::machine_config_nodes::{Action, Progress, advance, lifecycle, new};

fn condition<'a>(status: &'a MachineConfigNodeStatus, type_: &str) -> &'a api::v1::NodeStepCondition {
    status.conditions.as_ref().unwrap().iter().find(|c| c.type_ == type_).unwrap()
}

#[test]
fn each_node_has_a_machine_config_node_that_is_deleted_with_it() {
    let have = |node: &rollout::view::NodeView, pool| {
        let mut object = new(node, Some(pool));
        object.metadata.uid = Some(format!("mcn-{}", node.name));
        object
    };
    let (a, b, c) = (moved("a", "v0", "v1").view(), moved("b", "v0", "v1").view(), node("c").view());
    let mut pending = node("pending").view();
    pending.pending = true;
    let mut reborn = have(&moved("r", "v0", "v0").view(), "worker");
    reborn.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
    let r = moved("r", "v0", "v0").view();
    let (kept, moved_pool, gone) =
        (have(&a, "worker"), have(&b, "worker"), have(&node("gone").view(), "worker"));
    let existing = [&kept, &moved_pool, &gone, &reborn];
    let pools =
        [(&a, Some("worker")), (&b, Some("infra")), (&c, None), (&pending, None), (&r, Some("worker"))];
    let actions = lifecycle(pools, &existing);
    let told: Vec<_> = actions
        .iter()
        .map(|a| match a {
            Action::Create(object) => format!("create {} {}", a.name(), object.spec.pool.name),
            Action::Spec { spec, .. } => format!("spec {} {}", a.name(), spec.pool.name),
            Action::Delete { uid, .. } => format!("delete {} {}", a.name(), uid.as_deref().unwrap()),
        })
        .collect();
    assert_eq!(told, ["spec b infra", "create c not-yet-set", "delete r mcn-r", "delete gone mcn-gone"]);
    let owner = &new(&a, None).metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Node", "uid-a", None));
    assert_eq!(new(&c, None).spec.config_version.desired, "not-yet-set");
    let mut early: MachineConfigNode = new(&c, None);
    early.spec.config_version.desired = "v1".to_owned();
    assert!(lifecycle([(&c, None)], &[&early]).is_empty(), "fields of other writers stay");
}

#[test]
fn a_step_is_written_once_and_changes_only_its_own_times() {
    let node = moved("a", "v0", "v1").view();
    let cordoned = Progress::part(("UpdateExecuted", "Unknown"), ("Cordoned", "True"), "cordoned");
    let step = |old: Option<&MachineConfigNodeStatus>, progress: &Progress, second| {
        advance(old, progress, &node, 7, &Time(at(second)))
    };
    let first = step(None, &cordoned, 1).unwrap();
    assert_eq!(first.conditions.as_ref().unwrap().len(), 14, "all types are there from the start");
    assert_eq!(condition(&first, "Cordoned").reason, "UpdateExecutedCordoned");
    assert_eq!(condition(&first, "UpdateExecuted").reason, "Cordoned");
    assert_eq!(condition(&first, "Resumed").reason, "NotYetOccurred");
    assert_eq!(first.observed_generation, Some(7));
    let versions = first.config_version.as_ref().unwrap();
    assert_eq!((versions.current.as_str(), versions.desired.as_str()), ("v0", "v1"));
    assert_eq!(step(Some(&first), &cordoned, 2), None, "nothing changed, so nothing is written");
    let drained = Progress::part(("UpdateExecuted", "Unknown"), ("Drained", "True"), "cordoned");
    let second = step(Some(&first), &drained, 3).unwrap();
    assert_eq!(
        condition(&second, "Drained").last_transition_time,
        Time(at(3)),
        "a child condition is never dropped"
    );
    assert_eq!(condition(&second, "UpdateExecuted").last_transition_time, Time(at(1)));
    let updated = step(Some(&second), &Progress::of("Updated", "True", "done"), 4).unwrap();
    let open: Vec<_> = updated.conditions.as_ref().unwrap().iter().filter(|c| c.status != "False").collect();
    assert_eq!(open.len(), 1, "a finished update leaves no step in progress");
    assert_eq!(condition(&updated, "Drained").message, "Action during update to v1: cordoned");
    let again = Progress::of("Updated", "True", "done");
    assert_eq!(step(Some(&updated), &again, 5), None, "what has ended is left as it is");
    let twice = step(Some(&step(Some(&updated), &drained, 5).unwrap()), &again, 6).unwrap();
    assert_eq!(condition(&twice, "Drained").message, "Action during update to v1: cordoned");
    let next = step(Some(&updated), &cordoned, 5).unwrap();
    assert_eq!(condition(&next, "Updated").status, "False");
    let refused = Progress::of("UpdatePrepared", "Unknown", "cannot be done to a running machine");
    assert_eq!(step(Some(&next), &refused, 6).unwrap().config_version.unwrap().desired, "not-yet-set");
}

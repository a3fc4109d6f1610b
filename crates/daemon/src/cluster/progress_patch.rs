//! The JSON patch that turns one MachineConfigNode status into another. It addresses each condition by its index and
//! tests that the condition is still the one that was there when the patch was computed. Concurrent writes to other
//! fields (the spec, other conditions) cause no conflict.
//!
//! Not here: the rules of those conditions (`rollout::mcn`).

use api::v1::MachineConfigNodeStatus;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, TestOperation};
use serde_json::{Value, json};

/// A JSON patch (RFC 6902) from `old` to `new`. `None`: `old` has no conditions to test, or `new` does not have all of
/// them at the same indexes. Then the whole status must be written, bound to the object's resource version.
pub(crate) fn patch(old: &MachineConfigNodeStatus, new: &MachineConfigNodeStatus) -> Option<Patch> {
    let before = old.conditions.as_ref().filter(|list| !list.is_empty())?;
    let after = new.conditions.as_ref()?;
    let mut steps = vec![];
    for (place, old) in before.iter().enumerate() {
        let new = after.get(place).filter(|new| new.type_ == old.type_)?;
        if new != old {
            let path = at(["status", "conditions", &place.to_string()]);
            steps.push(PatchOperation::Test(TestOperation { path: path.clone(), value: json!(old) }));
            steps.push(PatchOperation::Replace(ReplaceOperation { path, value: json!(new) }));
        }
    }
    // The list has one condition of each type. If somebody else adds the same type meanwhile, the result is invalid
    // and the patch is refused.
    for new in &after[before.len()..] {
        steps.push(add(["status", "conditions", "-"], json!(new)));
    }
    if new.config_version != old.config_version {
        steps.push(add(["status", "configVersion"], json!(new.config_version)));
    }
    if new.observed_generation != old.observed_generation {
        steps.push(add(["status", "observedGeneration"], json!(new.observed_generation)));
    }
    Some(Patch(steps))
}

fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: at(path), value })
}

fn at<const N: usize>(path: [&str; N]) -> PointerBuf {
    PointerBuf::from_tokens(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::k8s::Time;
    use api::names::node_condition as c;
    use api::v1::NodeStepCondition;
    use jiff::Timestamp;
    use rollout::mcn::{Progress, advance};
    use rollout::view::NodeView;

    fn step(old: Option<&MachineConfigNodeStatus>, type_: &str, second: i64) -> MachineConfigNodeStatus {
        let node = NodeView { desired_config: Some("rendered-worker-2".into()), ..NodeView::default() };
        let at = Time(Timestamp::from_second(second).unwrap());
        advance(old, &Progress::of(type_, "True", "said"), &node, second, &at).unwrap()
    }

    #[test]
    fn a_patch_makes_the_new_status_of_the_old_one() {
        let first = step(None, c::UPDATE_PREPARED, 1);
        for type_ in [c::UPDATED, c::REBOOTED_NODE, c::NODE_DEGRADED] {
            let next = step(Some(&first), type_, 2);
            let mut object = json!({"spec": {"moved": "on"}, "status": first});
            json_patch::patch(&mut object, &patch(&first, &next).unwrap()).unwrap();
            assert_eq!(object, json!({"spec": {"moved": "on"}, "status": next}));
        }
    }

    #[test]
    fn a_condition_that_is_missing_is_added() {
        let mut short = step(None, c::UPDATE_PREPARED, 1);
        short.conditions.as_mut().unwrap().pop();
        let next = step(Some(&short), c::UPDATED, 2);
        let mut object = json!({"status": short});
        json_patch::patch(&mut object, &patch(&short, &next).unwrap()).unwrap();
        assert_eq!(object, json!({"status": next}));
    }

    #[test]
    fn what_another_has_written_there_refuses_it_and_elsewhere_does_not() {
        let first = step(None, c::UPDATE_PREPARED, 1);
        let next = step(Some(&first), c::REBOOTED_NODE, 2);
        let patch = patch(&first, &next).unwrap();
        let other = |type_: &str| {
            let mut status = first.clone();
            let list = status.conditions.as_mut().unwrap();
            let one: &mut NodeStepCondition = list.iter_mut().find(|c| c.type_ == type_).unwrap();
            one.message = "of somebody else".to_owned();
            json!({ "status": status })
        };
        let mut elsewhere = other("PinnedImageSetsDegraded");
        json_patch::patch(&mut elsewhere, &patch).unwrap();
        let texts = elsewhere.to_string();
        assert!(texts.contains("of somebody else") && texts.contains("said"), "{texts}");
        json_patch::patch(&mut other(c::REBOOTED_NODE), &patch).unwrap_err();
    }

    #[test]
    fn a_status_with_nothing_to_guard_is_written_whole() {
        let new = step(None, c::UPDATED, 1);
        assert_eq!(patch(&MachineConfigNodeStatus::default(), &new), None);
        let mut turned = new.clone();
        turned.conditions.as_mut().unwrap().reverse();
        assert_eq!(patch(&turned, &new), None);
    }
}

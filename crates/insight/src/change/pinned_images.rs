//! What a change of PinnedImageSets does: which nodes pull which images. It updates no node, so it is
//! reported beside the changes of pools.
//!
//! What it is not: whether the images exist or how large they are, which manifests do not say.

use crate::objects::{Objects, is};
use api::names::GROUP;
use api::v1::{MachineConfigPool, PinnedImageSet, not_pinnable};
use rollout::pinned_images::selected;
use rollout::{Index, Owners, Situation};
use std::collections::BTreeSet;

/// One line for each PinnedImageSet among the manifests. `had`: the objects as they are.
pub(super) fn notes(given: &Objects, deleted: bool, had: &Objects, situation: &Situation) -> Vec<String> {
    let read = |value: &serde_json::Value| -> Option<PinnedImageSet> {
        is(value, GROUP, "PinnedImageSet").then(|| serde_json::from_value(value.clone()).ok()).flatten()
    };
    let selectors =
        situation.pools.iter().map(|(name, pool)| (name.as_str(), pool.spec.node_selector.as_ref()));
    let index = Index::new(situation.facts.cluster, selectors);
    let all = given.iter().filter_map(|(_, value)| read(value));
    all.map(|set| {
        let name = set.metadata.name.clone().unwrap_or_default();
        let is_for = |pool: &MachineConfigPool| selected(pool, [&set]).is_ok_and(|found| !found.is_empty());
        let fits: Vec<bool> = situation.pools.values().map(is_for).collect();
        let pools: Vec<&str> = situation
            .pools
            .keys()
            .zip(&fits)
            .filter(|(_, fits)| **fits)
            .map(|(name, _)| name.as_str())
            .collect();
        // A node of a custom pool has the sets of worker, too.
        let owned = situation.nodes.values().map(|node| index.owners(&node.labels));
        let mine = |owners: &Owners| {
            [owners.primary, owners.secondary].into_iter().flatten().any(|i| fits.get(i) == Some(&true))
        };
        let nodes = owned.filter(mine).count();
        let images = |set: &PinnedImageSet| -> BTreeSet<String> {
            set.spec.pinned_images.iter().map(|image| image.name.clone()).collect()
        };
        let before = had
            .iter()
            .filter_map(|(_, value)| read(value))
            .find(|old| old.metadata.name == set.metadata.name);
        let (now, before) = (images(&set), before.map(|old| images(&old)).unwrap_or_default());
        let refused = set.spec.pinned_images.iter().find_map(|i| Some((&i.name, not_pinnable(&i.name)?)));
        let to_whom = format!("the {} of {}", counted(nodes, "node"), pools.join(", "));
        let what = match (&*pools, refused) {
            (_, Some((image, why))) => format!("the API server refuses it: image {image:?} {why}"),
            ([], None) => {
                "no pool's machineConfigSelector fits its labels, so no node pulls its images".to_owned()
            }
            _ if deleted => format!("{to_whom} unpin its {}", counted(now.len(), "image")),
            _ => {
                let (new, gone) = (now.difference(&before).count(), before.difference(&now).count());
                let pull = format!(
                    "{to_whom} keep its {}, and pull the {new} that are new",
                    counted(now.len(), "image")
                );
                if gone > 0 { format!("{pull}; {gone} are unpinned") } else { pull }
            }
        };
        format!("PinnedImageSet {name}: {what}; no node is drained or rebooted for it")
    })
    .collect()
}

fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(role: &str, images: &[&str]) -> Value {
        let digest = "0".repeat(64);
        let images: Vec<Value> = images
            .iter()
            .map(|i| json!({"name": format!("registry.example.com/{i}@sha256:{digest}")}))
            .collect();
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "PinnedImageSet",
            "metadata": {"name": "apps", "labels": {"role": role}}, "spec": {"pinnedImages": images}})
    }

    #[test]
    fn a_plan_says_which_nodes_pull_what() {
        let of = |value: Value| -> Objects { vec![("f".to_owned(), value)] };
        let labels = json!({"node-role.kubernetes.io/worker": ""});
        let node = |name: &str| {
            (
                "n".to_owned(),
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
            "labels": labels, "annotations": {"machineconfiguration.openshift.io/currentConfig": "r"}}}),
            )
        };
        let pool = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"}, "spec": {
                "nodeSelector": {"matchLabels": labels}, "machineConfigSelector": {"matchLabels": {"role": "worker"}}}});
        let objects = vec![("p".to_owned(), pool), node("a"), node("b")];
        let situation = crate::situation(&objects).unwrap();
        let mut bad = set("worker", &[]);
        bad["spec"]["pinnedImages"] = json!([{"name": "registry.example.com/x:1"}]);
        for (given, deleted, had, want) in [
            (
                set("worker", &["x", "y"]),
                false,
                vec![],
                "the 2 nodes of worker keep its 2 images, and pull the 2 that are new;",
            ),
            (
                set("worker", &["x"]),
                false,
                of(set("worker", &["x", "y"])),
                "its 1 image, and pull the 0 that are new; 1 are unpinned;",
            ),
            (
                set("worker", &["x"]),
                true,
                of(set("worker", &["x"])),
                "the 2 nodes of worker unpin its 1 image;",
            ),
            (set("infra", &["x"]), false, vec![], "no pool's machineConfigSelector fits its labels"),
            (
                bad,
                false,
                vec![],
                "the API server refuses it: image \"registry.example.com/x:1\" has no digest",
            ),
        ] {
            let told = notes(&of(given), deleted, &had, &situation);
            assert!(
                told.len() == 1 && told[0].contains(want) && told[0].contains("no node is drained"),
                "{told:?}"
            );
        }
    }
}

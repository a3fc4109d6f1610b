//! PinnedImageSets: writes into each pool which sets are for it (`spec.pinnedImageSets`).
//!
//! What it is not: the pulling and pinning, which each node's agent does (`daemon`, `pinned_images/`), or the counts in the pool's status
//! (the node pass).

use crate::cache::store::KNOWN_AGAIN;
use crate::cache::stores::Stores;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::WriteContext as _;
use crate::flight::pools::set_condition;
use crate::kind;
use crate::passes::descriptor::{Descriptor, stateless};
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::conditions::{self, Condition};
use api::k8s::ResourceExt;
use api::names::pool_condition::PINNED_IMAGE_SETS_DEGRADED;
use api::v1::{MachineConfigNode, MachineConfigPool, NamedRef, PinnedImageSet, PinnedImageSetState};
use client::{CallError, call};
use kube::api::{Patch, PatchParams};
use rollout::pinned_images::{PinFacts, selected};
use serde_json::json;
use std::sync::Arc;

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::PinnedImages,
    work: Work { name: "pinnedimages", ..Work::QUIET },
    reads: &[&inputs::POOLS, &inputs::PINNED_IMAGE_SETS],
    rights: &[Right::new("patch", kind::POOLS), Right::new("patch", kind::POOLS).on("status")],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| stateless(shared, pass),
};

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
    match changed {
        Changed::Pool(change) => {
            // Neither a status nor a rollout says anything about sets.
            let read = |p: &Option<Arc<MachineConfigPool>>| {
                p.as_ref().map(|p| {
                    let spec = &p.spec;
                    (spec.machine_config_selector.clone(), spec.pinned_image_sets.clone(), is_degraded(p))
                })
            };
            if change.new.is_some() && read(&change.old) != read(&change.new) {
                marks.mark(Pass::PinnedImages, &change.name);
            }
        }
        Changed::PinnedImageSet(change) => {
            let read = |s: &Option<Arc<PinnedImageSet>>| {
                s.as_ref().map(|s| (s.metadata.labels.clone(), s.metadata.deletion_timestamp.is_some()))
            };
            if read(&change.old) != read(&change.new) {
                marks.mark_all(Pass::PinnedImages, known.stores.pools.names());
            }
        }
        Changed::TermBegins => marks.mark_all(Pass::PinnedImages, known.stores.pools.names()),
        _ => {}
    }
}

fn is_degraded(pool: &MachineConfigPool) -> bool {
    let all = pool.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    conditions::is_true(all, PINNED_IMAGE_SETS_DEGRADED)
}

/// What a node says of PinnedImageSets.
pub(crate) fn states(node: &Option<Arc<MachineConfigNode>>) -> Option<&[PinnedImageSetState]> {
    node.as_ref()?.status.as_ref()?.pinned_image_sets.as_deref()
}

/// PinnedImageSets, and how far nodes are with them.
pub(crate) fn facts(stores: &Stores) -> PinFacts {
    let sets = stores.pinned_image_sets.all();
    let said = stores.machine_config_nodes.all().into_iter().filter_map(|node| {
        let states = states(&Some(node.clone())).map(<[_]>::to_vec)?;
        Some((node.name_any().as_str().into(), states))
    });
    PinFacts {
        generations: sets.iter().map(|set| (set.name_any(), set.generation())).collect(),
        nodes: said.collect(),
    }
}

/// One pass over one pool.
async fn pass(shared: Arc<Shared>, name: String) -> Outcome {
    // Without a list of the sets, every pool would lose its own.
    if !shared.stores.pinned_image_sets.is_known() {
        return Outcome::After(KNOWN_AGAIN);
    }
    match carry_out(&shared, &name).await {
        Ok(()) => Outcome::Done,
        Err(e) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn carry_out(shared: &Shared, name: &str) -> Result<(), CallError> {
    let Some(pool) = shared.stores.pools.get(name) else { return Ok(()) };
    if pool.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let sets = shared.stores.pinned_image_sets.all();
    let found = match selected(&pool, sets.iter().map(AsRef::as_ref)) {
        Ok(found) => found,
        Err(error) => {
            let text = format!(
                "the PinnedImageSets of pool {name} cannot be determined: spec.machineConfigSelector.{error}; correct the selector"
            );
            let condition = Condition::new(PINNED_IMAGE_SETS_DEGRADED, true, "", text);
            return match sets.is_empty() {
                true => Ok(()),
                false => set_condition(shared, &pool, condition).await,
            };
        }
    };
    let wanted: Vec<NamedRef> = found.iter().map(|set| NamedRef { name: set.name_any() }).collect();
    let have = pool.spec.pinned_image_sets.as_deref().unwrap_or_default();
    if have != wanted {
        let list = (!wanted.is_empty()).then_some(&wanted);
        let version = pool.metadata.resource_version.as_deref();
        let body = Patch::Merge(json!({
            "metadata": {"resourceVersion": version},
            "spec": {"pinnedImageSets": list},
        }));
        let what = || format!("spec.pinnedImageSets of machineconfigpool {name}");
        let api = shared.api::<MachineConfigPool>();
        let answer = call(what, api.patch(name, &PatchParams::default(), &body)).await?;
        // The condition is written with the next pass, which this answer asks for.
        shared.pool_answer(answer);
        return Ok(());
    }
    // A pool without sets needs no condition about them, unless it has one that is no longer true.
    if wanted.is_empty() && !is_degraded(&pool) {
        return Ok(());
    }
    set_condition(shared, &pool, Condition::new(PINNED_IMAGE_SETS_DEGRADED, false, "", String::new())).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::Item;
    use crate::fake_server::{answer, shared};
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// The pass over pool `worker` with this spec and status, and the requests that it made.
    async fn written(
        spec: Value,
        status: Value,
        known: bool,
        sets: &[(&str, &str)],
    ) -> (Outcome, Vec<String>) {
        let asked = Arc::new(Mutex::new(vec![]));
        let (log, pool) = (
            asked.clone(),
            json!({"metadata": {"name": "worker", "resourceVersion": "5"}, "spec": spec, "status": status}),
        );
        let stored = pool.clone();
        let shared = Arc::new(shared(move |request| {
            log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            let mut next = stored.clone();
            next["metadata"]["resourceVersion"] = json!("6");
            answer(200, &next)
        }));
        let value = Arc::new(serde_json::from_value(pool).unwrap());
        shared.stores.pools.apply("worker".to_owned(), Item { version: 5, uid: String::new(), value });
        let set = |(name, role): &(&str, &str)| {
            let object = json!({"metadata": {"name": name, "labels": {"role": role}}});
            let value: Arc<PinnedImageSet> = Arc::new(serde_json::from_value(object).unwrap());
            ((*name).to_owned(), Item { version: 1, uid: (*name).to_owned(), value })
        };
        if known {
            shared.stores.pinned_image_sets.replace(sets.iter().map(set).collect::<BTreeMap<_, _>>());
        }
        let outcome = pass(shared, "worker".to_owned()).await;
        let asked = asked.lock().unwrap().clone();
        (outcome, asked)
    }

    #[tokio::test]
    async fn a_pool_names_the_sets_that_its_selector_fits() {
        let pools = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools/worker";
        let (spec, status) = (format!("PATCH {pools}"), format!("PATCH {pools}/status"));
        let selector = json!({"matchLabels": {"role": "worker"}});
        let with = |sets: Value| json!({"machineConfigSelector": selector, "pinnedImageSets": sets});
        let broken =
            json!({"machineConfigSelector": {"matchExpressions": [{"key": "role", "operator": "Like"}]}});
        let none = || json!({});
        let false_ = json!({"conditions": [{"type": PINNED_IMAGE_SETS_DEGRADED, "status": "False", "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let mine: &[(&str, &str)] = &[("b", "worker"), ("a", "worker"), ("m", "master")];
        for (about, pool, status_now, known, sets, want) in [
            ("sets that it does not name", with(json!(null)), none(), true, mine, vec![spec.clone()]),
            ("those that it names", with(json!([{"name": "a"}, {"name": "b"}])), false_, true, mine, vec![]),
            (
                "without a condition",
                with(json!([{"name": "a"}, {"name": "b"}])),
                none(),
                true,
                mine,
                vec![status.clone()],
            ),
            ("a set that has gone", with(json!([{"name": "x"}])), none(), true, &[], vec![spec]),
            ("no set at all", with(json!(null)), none(), true, &[], vec![]),
            ("sets that are not known", with(json!([{"name": "x"}])), none(), false, &[], vec![]),
            ("a selector that cannot be read", broken.clone(), none(), true, mine, vec![status]),
            ("the same without sets", broken, none(), true, &[], vec![]),
        ] {
            let outcome = if known { Outcome::Done } else { Outcome::After(KNOWN_AGAIN) };
            assert_eq!(written(pool, status_now, known, sets).await, (outcome, want), "{about}");
        }
    }

    #[tokio::test]
    async fn while_the_watch_of_sets_fails_no_pool_loses_one_and_it_is_looked_again() {
        let shared = Arc::new(shared(|request| panic!("nothing is asked: {}", request.uri())));
        let pool = json!({
            "metadata": {"name": "worker"},
            "spec": {"machineConfigSelector": {"matchLabels": {"role": "worker"}}, "pinnedImageSets": [{"name": "a"}]},
        });
        let value = Arc::new(serde_json::from_value(pool).unwrap());
        shared.stores.pools.apply("worker".to_owned(), Item { version: 5, uid: String::new(), value });
        shared.stores.pinned_image_sets.replace(BTreeMap::new());
        shared.stores.pinned_image_sets.set_trouble(Some("refused".to_owned()));
        assert_eq!(pass(shared, "worker".to_owned()).await, Outcome::After(KNOWN_AGAIN));
    }
}

//! Deletes rendered configs that no node or pool uses any more: each can take over a megabyte in etcd.
//!
//! Kept are configs that a pool's spec or status names, that any node names (current, desired, or first booted into),
//! that an image build names, or that a RolloutPolicy would go back to, and the newest few of each pool, for a rollback. The caches show which configs could
//! go. Before anything is deleted, nodes, pools and builds are read from the API server itself, because a machine may
//! have booted into an old config a moment ago. Deletions are bound to the version that was looked at.
//!
//! What it is not: a part of the rollout. It runs after a new config was rendered or a node has left one, and nothing
//! waits for it.

use crate::cache::trimmed::Config;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::kind;
use crate::passes::descriptor::{Descriptor, stateless};
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::k8s::{Node, ObjectMeta, ResourceExt};
use api::names::annotation;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::{CallError, Pages, call};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Preconditions};
use rollout::view::NodeView;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many configs of each pool are kept although nothing names them: enough to look back over a bad week. The
/// annotation [`annotation::KEEP_RENDERED_CONFIGS`] on the ControllerConfig overrides the number.
const KEEP: usize = 10;

/// A rendered config, as far as the choice needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    name: String,
    /// Seconds since 1970.
    created: i64,
    /// The resource version. A burst creates several configs in one second, and the older ones of these go first.
    version: u64,
}

/// The configs to delete, oldest first: not among the newest `keep`, and named by nothing.
fn choose(mut all: Vec<Candidate>, named: &BTreeSet<String>, keep: usize) -> Vec<String> {
    all.sort_by(|a, b| (b.created, b.version, &b.name).cmp(&(a.created, a.version, &a.name)));
    let unused = all.into_iter().skip(keep).filter(|c| !named.contains(&c.name));
    let mut names: Vec<String> = unused.map(|c| c.name).collect();
    names.reverse();
    names
}

/// How many to keep: the annotation's number or the default, and what is wrong with the annotation.
fn number_to_keep(config: Option<&ControllerConfig>) -> (usize, Option<String>) {
    let Some(said) = config.and_then(|c| c.annotations().get(annotation::KEEP_RENDERED_CONFIGS)) else {
        return (KEEP, None);
    };
    match said.trim().parse() {
        Ok(keep) => (keep, None),
        Err(_) => {
            (KEEP, Some(format!("{} is {said:?}, not a whole number", annotation::KEEP_RENDERED_CONFIGS)))
        }
    }
}

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Garbage,
    work: Work { name: "garbage", ..Work::QUIET },
    reads: &[
        &inputs::CONTROLLER_CONFIGS,
        &inputs::POOLS,
        &inputs::NODES,
        &inputs::CONFIGS,
        &inputs::OS_BUILDS,
        &inputs::ROLLOUT_POLICIES,
    ],
    rights: &[Right::new("delete", kind::CONFIGS)],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| stateless(shared, pass),
};

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
    match changed {
        Changed::Pool(change) => {
            let reached = |p: &MachineConfigPool| p.status.as_ref().map(|s| s.configuration.name.clone());
            if let (Some(old), Some(new)) = (&change.old, &change.new)
                && reached(old) != reached(new)
            {
                // Maybe nothing names the pool's previous config any more.
                marks.mark(Pass::Garbage, &change.name);
            }
        }
        Changed::Node(change) => {
            let config = |node: &Option<Arc<NodeView>>| node.as_ref().and_then(|n| n.current_config.clone());
            let left = config(&change.old).filter(|left| config(&change.new).as_ref() != Some(left));
            let left = left.and_then(|name| known.stores.configs.get(&name));
            if let Some(Config::Rendered(left)) = left.as_deref() {
                marks.mark(Pass::Garbage, &left.pool);
            }
        }
        Changed::ConfigNamed(pool) => marks.mark(Pass::Garbage, pool),
        Changed::ControllerConfig(_) | Changed::TermBegins => {
            marks.mark_all(Pass::Garbage, known.stores.pools.names());
        }
        _ => {}
    }
}

/// One pass over one pool's rendered configs.
pub(crate) async fn pass(shared: Arc<Shared>, pool: String) -> Outcome {
    match collect(&shared, &pool).await {
        Ok(()) => Outcome::Done,
        Err(e) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn collect(shared: &Shared, pool: &str) -> Result<(), CallError> {
    let (keep, wrong) = number_to_keep(shared.stores.controller_config().as_deref());
    if let Some(wrong) = wrong {
        tracing::warn!("ControllerConfig: annotation {wrong}; {keep} rendered configs a pool are kept");
    }
    let all: Vec<Candidate> = shared
        .stores
        .configs
        .all()
        .iter()
        .filter_map(|config| match &**config {
            Config::Rendered(r) if r.pool == pool => Some(Candidate {
                name: r.metadata.name.clone().unwrap_or_default(),
                created: r.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
                version: r
                    .metadata
                    .resource_version
                    .as_ref()
                    .and_then(|v| v.parse().ok())
                    .unwrap_or_default(),
            }),
            _ => None,
        })
        .collect();
    // In most passes there is nothing to delete, and the API server is not asked.
    if choose(all.clone(), &in_use(shared), keep).is_empty() {
        return Ok(());
    }
    let mut named = named_now(shared).await?;
    // Read after the lists, so that a config that was named meanwhile is seen.
    named.extend(in_use(shared));
    let api = shared.api::<MachineConfig>();
    for name in choose(all, &named, keep) {
        let Some(config) = shared.stores.configs.get(&name) else { continue };
        let Config::Rendered(rendered) = &*config else { continue };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: rendered.metadata.resource_version.clone(),
                uid: rendered.metadata.uid.clone(),
            }),
            ..DeleteParams::default()
        };
        call(|| format!("delete machineconfig {name}"), api.delete(&name, &params)).await?;
        tracing::info!(pool, name, "deleted an unused rendered config");
    }
    Ok(())
}

fn pool_names(pool: &MachineConfigPool) -> impl Iterator<Item = String> + '_ {
    let status = pool.status.iter().map(|s| s.configuration.name.clone());
    status
        .chain([pool.spec.configuration.name.clone()])
        .chain(rollout::pinned_config(pool).map(str::to_owned))
}

/// The config that a drain request names: the one that the node moves to.
fn of_request(request: &str) -> Option<String> {
    request.split_once('-').map(|(_, name)| name.to_owned())
}

/// The configs that are named, as far as the caches know.
fn in_use(shared: &Shared) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for pool in shared.stores.pools.all() {
        named.extend(pool_names(&pool));
    }
    for node in shared.stores.nodes.all() {
        for name in
            [&node.current_config, &node.desired_config, &node.first_pivot_config].into_iter().flatten()
        {
            named.insert(name.to_string());
        }
        for request in [&node.desired_drain, &node.last_applied_drain].into_iter().flatten() {
            named.extend(of_request(request));
        }
    }
    for policy in shared.stores.rollout_policies.all() {
        // Only this controller writes them, so its cache knows.
        let pools = policy.status.iter().flat_map(|status| &status.pools);
        named.extend(pools.filter_map(|pool| pool.proved.clone()));
    }
    named
}

/// The configs that are named in the cluster, read from the API server. A config goes from a build or a pool to the nodes, so nodes
/// are read last.
async fn named_now(shared: &Shared) -> Result<BTreeSet<String>, CallError> {
    let mut named = builds(shared).await?;
    let pools = shared.api::<MachineConfigPool>();
    let list = call(|| "list of machineconfigpools".to_owned(), pools.list(&ListParams::default())).await?;
    named.extend(list.iter().flat_map(pool_names));
    let nodes = shared.api::<Node>();
    let mut pages = Pages::of(ListParams::default());
    while let Some(params) = pages.next() {
        let page = call(|| "list of nodes".to_owned(), nodes.list_metadata(&params)).await;
        named.extend(pages.take(page)?.iter().flat_map(|node| node_names(&node.metadata)));
    }
    Ok(named)
}

fn node_names(metadata: &ObjectMeta) -> Vec<String> {
    let note = |key: &str| metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned();
    let configs = [annotation::CURRENT_CONFIG, annotation::DESIRED_CONFIG, annotation::FIRST_PIVOT_CONFIG];
    let requests = [annotation::DESIRED_DRAIN, annotation::LAST_APPLIED_DRAIN];
    let requests = requests.into_iter().filter_map(note).filter_map(|r| of_request(&r));
    configs.into_iter().filter_map(note).chain(requests).collect()
}

/// The configs that image builds name; none if that kind is not installed.
async fn builds(shared: &Shared) -> Result<BTreeSet<String>, CallError> {
    let api: Api<DynamicObject> = Api::all_with(shared.client.clone(), &kind::OS_BUILDS.resource());
    match call(|| "list of machineosbuilds".to_owned(), api.list(&ListParams::default())).await {
        Ok(list) => Ok(list
            .iter()
            .filter_map(|b| b.data.pointer("/spec/machineConfig/name")?.as_str().map(str::to_owned))
            .chain(list.iter().filter_map(|b| b.labels().get(api::names::label::BUILD_OF).cloned()))
            .collect()),
        Err(e) if e.is_not_found() => Ok(BTreeSet::new()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_so_does_whatever_is_named() {
        let mk = |i| Candidate { name: format!("r{i}"), created: i, version: 7 };
        let all = || (0..5).map(mk).collect::<Vec<_>>();
        let named = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        for (keep, names, want) in [
            (5, &[][..], &[][..]),
            (2, &[], &["r0", "r1", "r2"]),
            (2, &["r1", "r4"], &["r0", "r2"]),
            (0, &["r0", "r1", "r2", "r3", "r4"], &[]),
        ] {
            assert_eq!(choose(all(), &named(names), keep), want, "keep {keep}, named {names:?}");
        }
    }

    #[test]
    fn of_those_made_in_one_second_the_earlier_go_first_whatever_their_names() {
        let mk = |(name, version): (&str, u64)| Candidate { name: name.to_owned(), created: 1, version };
        let all = [("z", 9), ("a", 10), ("m", 11)].map(mk).to_vec();
        assert_eq!(choose(all, &BTreeSet::new(), 1), ["z", "a"]);
    }

    #[test]
    fn the_annotation_says_how_many_are_kept_and_nonsense_changes_nothing() {
        let with = |said: Option<&str>| {
            let mut config = ControllerConfig::new("c", api::v1::ControllerConfigSpec::default());
            let said = said.map(|s| (annotation::KEEP_RENDERED_CONFIGS.to_owned(), s.to_owned()));
            config.metadata.annotations = Some(said.into_iter().collect());
            config
        };
        for (said, want, fine) in
            [(None, 10, true), (Some("3"), 3, true), (Some("0"), 0, true), (Some("-1"), 10, false)]
        {
            let (keep, wrong) = number_to_keep(Some(&with(said)));
            assert_eq!((keep, wrong.is_none()), (want, fine), "{said:?}");
        }
        assert_eq!(number_to_keep(None).0, 10);
    }

    #[test]
    fn a_node_names_what_it_is_in_goes_to_came_from_and_drains_for() {
        let annotations = [
            (annotation::CURRENT_CONFIG, "rendered-w-1"),
            (annotation::DESIRED_CONFIG, "rendered-w-2"),
            (annotation::FIRST_PIVOT_CONFIG, "rendered-w-0"),
            (annotation::DESIRED_DRAIN, "drain-rendered-w-3"),
            (annotation::STATE, "Done"),
        ];
        let annotations = annotations.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let metadata = ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
        let mut names = node_names(&metadata);
        names.sort();
        assert_eq!(names, ["rendered-w-0", "rendered-w-1", "rendered-w-2", "rendered-w-3"]);
    }

    #[tokio::test]
    async fn what_a_policy_would_go_back_to_stays() {
        let shared = crate::fake_server::shared(|_| {
            crate::fake_server::answer(404, &serde_json::json!({"kind": "Status", "code": 404}))
        });
        let policy: api::v1alpha1::RolloutPolicy = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
            "status": {"pools": [{"name": "worker", "config": "rendered-w-2", "proved": "rendered-w-1"}]},
        }))
        .unwrap();
        shared.stores.rollout_policies.apply("p".to_owned(), crate::cache::stores::untrimmed(policy));
        assert!(in_use(&shared).contains("rendered-w-1"), "{:?}", in_use(&shared));
    }
}

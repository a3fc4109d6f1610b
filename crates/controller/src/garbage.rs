//! Rendered configs that nobody uses any more are deleted: each can be over a megabyte in etcd.
//!
//! Kept: what a pool's spec or status names, what any node names (in effect, wanted, or first booted into), what an
//! image build names, and the newest few of each pool, to go back to. Deletions are bound to the version that was
//! looked at.
//!
//! What it is not: a part of the rollout. It runs after a new config was rendered and nothing waits for it.

use crate::call::{CallError, call};
use crate::context::{Config, Context};
use crate::queue::Outcome;
use api::k8s::ResourceExt;
use api::v1::MachineConfig;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::core::GroupVersionKind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Configs kept for each pool although nobody names them: enough to look back over a bad week.
const KEEP: usize = 10;

/// A rendered config, as far as the choice needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    name: String,
    /// Seconds since 1970.
    created: i64,
}

/// Those to delete, oldest first: not among the newest `keep` and named by nobody.
fn choose(mut all: Vec<Candidate>, named: &BTreeSet<String>, keep: usize) -> Vec<String> {
    all.sort_by(|a, b| (b.created, &b.name).cmp(&(a.created, &a.name)));
    let unused = all.into_iter().skip(keep).filter(|c| !named.contains(&c.name));
    let mut names: Vec<String> = unused.map(|c| c.name).collect();
    names.reverse();
    names
}

/// One pass over one pool's rendered configs.
pub(crate) async fn pass(context: Arc<Context>, pool: String) -> Outcome {
    match collect(&context, &pool).await {
        Ok(()) => Outcome::Done,
        Err(e) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn collect(context: &Context, pool: &str) -> Result<(), CallError> {
    let all: Vec<Candidate> = context
        .stores
        .configs
        .all()
        .iter()
        .filter_map(|config| match &**config {
            Config::Rendered(r) if r.pool == pool => Some(Candidate {
                name: r.metadata.name.clone().unwrap_or_default(),
                created: r.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
            }),
            _ => None,
        })
        .collect();
    if all.len() <= KEEP {
        return Ok(());
    }
    let mut named = builds(context).await?;
    // Read after the builds: a name that was given meanwhile is seen.
    named.extend(in_use(context));
    let api = context.api::<MachineConfig>();
    for name in choose(all, &named, KEEP) {
        let Some(config) = context.stores.configs.get(&name) else { continue };
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

fn in_use(context: &Context) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for pool in context.stores.pools.all() {
        named.insert(pool.spec.configuration.name.clone());
        named.extend(pool.status.as_ref().map(|s| s.configuration.name.clone()));
    }
    for node in context.stores.nodes.all() {
        for name in
            [&node.current_config, &node.desired_config, &node.first_pivot_config].into_iter().flatten()
        {
            named.insert(name.to_string());
        }
        // A drain request names the config that the node moves to.
        for request in [&node.desired_drain, &node.last_applied_drain].into_iter().flatten() {
            named.extend(request.split_once('-').map(|(_, name)| name.to_owned()));
        }
    }
    named
}

/// Configs that image builds name; none where that kind does not exist.
async fn builds(context: &Context) -> Result<BTreeSet<String>, CallError> {
    let kind = GroupVersionKind::gvk(api::names::GROUP, "v1", "MachineOSBuild");
    let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &ApiResource::from_gvk(&kind));
    match call(|| "list of machineosbuilds".to_owned(), api.list(&ListParams::default())).await {
        Ok(list) => Ok(list
            .iter()
            .filter_map(|b| b.data.pointer("/spec/machineConfig/name")?.as_str().map(str::to_owned))
            .chain(list.iter().filter_map(|b| {
                b.labels().get("machineconfiguration.openshift.io/rendered-machine-config").cloned()
            }))
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
        let all = || (0..5).map(|i| Candidate { name: format!("r{i}"), created: i }).collect::<Vec<_>>();
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
}

//! The versions in which objects of our kinds are stored. When the version of a definition that objects are written in
//! changes, each object is written again as it is, and the definition's `status.storedVersions` then names that version alone:
//! only then may a later version of the definition leave the older one out. [`plan`] and [`stale`] are pure; [`migrate`] acts.
//!
//! Flow: the definition gets the new version to store → [`SETTLE`] passes, in which every API server begins to write it →
//! each object is rewritten → the other versions leave the status.
//!
//! Guarantees: a version in which objects are stored is never dropped. The definition has both until each object is rewritten,
//! and a run that ends anywhere is begun again by the next one. An object is patched with nothing, so that no write of anybody
//! else is lost.
//!
//! Assumption: an API server that works sees a changed definition within five seconds. Kubernetes assumes the same: before it
//! calls a new kind established, it waits five seconds where several API servers run. Nobody can ask each of them through a
//! load balancer, and Kubernetes' own migrator does not either.
//!
//! What it is not: conversion, which is the API server's.

use crate::objects::{marked, resource};
use client::{CallError, Pages, call, if_found, retry};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, PartialObjectMeta};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Writes in flight. Rewriting is no hurry, and others have the API server too.
const AT_ONCE: usize = 4;
/// How long a request is repeated while the API server serves nobody. The next pass goes on after that.
const OUTAGE: Duration = Duration::from_secs(10);

/// How long a definition must have been as it is before objects are rewritten. An API server that does not know it yet writes
/// the old version, also over an object that has been rewritten: five seconds until it knows, and the 60 seconds that a
/// request may last by default (`--request-timeout`), because one that has begun is encoded as it began.
const SETTLE: Duration = Duration::from_secs(65);

/// How a definition gets to what is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    /// It is applied.
    Apply,
    /// Objects are stored in versions that the wanted definition no longer has. This one has both: it is applied first, the
    /// objects are rewritten, and then what is wanted is applied.
    Between(Value),
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

/// Plans the way from the definition that is there, with its status, to the one that is wanted.
pub(crate) fn plan(wanted: &Value, there: Option<&Value>) -> Plan {
    let Some(there) = there else { return Plan::Apply };
    let has = |name: &str| versions(wanted).any(|v| v["name"] == name);
    let dropped: Vec<&str> =
        texts(&there["status"]["storedVersions"]).into_iter().filter(|name| !has(name)).collect();
    if dropped.is_empty() {
        return Plan::Apply;
    }
    let mut both = wanted.clone();
    for old in versions(there).filter(|v| v["name"].as_str().is_some_and(|name| dropped.contains(&name))) {
        let mut old = old.clone();
        old["storage"] = json!(false);
        if let Some(list) = both["spec"]["versions"].as_array_mut() {
            list.push(old);
        }
    }
    Plan::Between(marked(both))
}

/// A definition with objects that may be stored in another version than the one that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StaleVersions {
    /// The definition's name.
    name: String,
    /// Which state of its spec this is.
    generation: Option<i64>,
    /// Its resource version: the status is written only if nobody has changed the definition since.
    resource_version: String,
    /// The kind, in the version that is written.
    resource: ApiResource,
    /// Whether its objects are in namespaces.
    namespaced: bool,
    /// The other versions.
    others: Vec<String>,
}

/// Why objects are not rewritten yet.
#[derive(Debug)]
pub(super) enum Hold {
    /// API servers may still write the old version, for so long.
    Settling(Duration),
    /// An object could not be rewritten.
    Refused(Box<CallError>),
}

/// Since when this process has known definitions as they are. The clocks of API servers are not asked: they may be wrong.
#[derive(Debug, Default)]
pub(super) struct Settling(HashMap<String, (Option<i64>, Instant)>);

impl Settling {
    /// How long objects must not be rewritten yet. `None`: every API server writes the version of today.
    pub(super) fn time_left(&mut self, stale: &StaleVersions, now: Instant) -> Option<Duration> {
        let known = self.0.get(&stale.name).filter(|(generation, _)| *generation == stale.generation);
        let since = known.map_or(now, |(_, since)| *since);
        self.0.insert(stale.name.clone(), (stale.generation, since));
        Some(SETTLE.saturating_sub(now - since)).filter(|left| !left.is_zero())
    }
}

impl StaleVersions {
    /// The definition's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The sentence about it, for the condition Upgradeable.
    pub(super) fn sentence(&self, hold: &Hold) -> String {
        let why = match hold {
            Hold::Settling(_) => format!(
                "the operator rewrites them a minute after the definition was changed, when every API server writes {}",
                self.resource.version
            ),
            Hold::Refused(error) => format!("rewriting them fails and is tried again: {}", error.chain()),
        };
        format!(
            "CustomResourceDefinition {}: status.storedVersions has {}, and objects may be stored in it, which a later version may \
             not know any more; {why}",
            self.name,
            self.others.join(", ")
        )
    }
}

/// What is stored in another version than the one that is written. `None`: nothing is.
pub(super) fn stale(there: &Value) -> Option<StaleVersions> {
    let text = |path: &str| there.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let storage = versions(there).find(|v| v["storage"] == true)?["name"].as_str()?.to_owned();
    let others: Vec<String> = texts(&there["status"]["storedVersions"])
        .into_iter()
        .filter(|name| *name != storage)
        .map(str::to_owned)
        .collect();
    if others.is_empty() {
        return None;
    }
    let group = text("/spec/group");
    Some(StaleVersions {
        name: text("/metadata/name"),
        generation: there["metadata"]["generation"].as_i64(),
        resource_version: text("/metadata/resourceVersion"),
        resource: ApiResource {
            api_version: format!("{group}/{storage}"),
            group,
            version: storage,
            kind: text("/spec/names/kind"),
            plural: text("/spec/names/plural"),
        },
        namespaced: there["spec"]["scope"] == "Namespaced",
        others,
    })
}

/// The definition, with its status. `None`: there is none.
pub(crate) async fn definition(client: &Client, name: &str) -> Result<Option<Value>, CallError> {
    let like = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    let Some(resource) = resource(&like) else { return Ok(None) };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = call(|| format!("get CustomResourceDefinition {name}"), api.get_opt(name)).await?;
    Ok(found.map(|object| json!(object)))
}

/// Rewrites all objects, and takes the other versions out of the definition's status. Returns the number of objects.
///
/// # Errors
/// The first object that cannot be rewritten. Those before it are; the status stays, so that the next run begins again.
pub(super) async fn migrate(client: &Client, stale: &StaleVersions) -> Result<usize, CallError> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &stale.resource);
    // An object that is created meanwhile is written in the present version from its beginning.
    let mut pages = Pages::of(ListParams::default());
    let mut count = 0;
    while let Some(params) = pages.next() {
        let what = || format!("list {} in pages", stale.resource.plural);
        let list = || call(what, all.list_metadata(&params));
        let page = pages.take(retry::on_outage(OUTAGE, drop, list).await)?;
        count += page.len();
        futures::stream::iter(page)
            .map(|object| rewrite(client, stale, object))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
    }
    let like = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    let Some(definitions) = resource(&like) else { return Ok(count) };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &definitions);
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": stale.resource_version},
        "status": {"storedVersions": [stale.resource.version]},
    }));
    let what = || format!("patch status.storedVersions of CustomResourceDefinition {}", stale.name);
    call(what, api.patch_status(&stale.name, &PatchParams::default(), &patch)).await?;
    Ok(count)
}

/// Has the API server write an object as it is. It encodes it in the present version, and writes when that differs from what
/// is stored.
async fn rewrite(
    client: &Client,
    stale: &StaleVersions,
    object: PartialObjectMeta<DynamicObject>,
) -> Result<(), CallError> {
    let name = object.name_any();
    let api: Api<DynamicObject> = match object.namespace().filter(|_| stale.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &stale.resource),
        None => Api::all_with(client.clone(), &stale.resource),
    };
    let (params, nothing) = (PatchParams::default(), Patch::Merge(json!({})));
    let what = || format!("rewrite {} {name} in {}", stale.resource.kind, stale.resource.version);
    let write = || call(what, api.patch_metadata(&name, &params, &nothing));
    // It may have been deleted meanwhile.
    if_found(retry::on_outage(OUTAGE, drop, write).await).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(versions: &[(&str, bool)], stored: &[&str]) -> Value {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(name, storage)| json!({"name": name, "served": true, "storage": storage}))
            .collect();
        json!({
            "metadata": {"name": "things.example.com", "resourceVersion": "7"},
            "spec": {"group": "example.com", "scope": "Cluster", "versions": versions,
                "names": {"kind": "Thing", "plural": "things"}},
            "status": {"storedVersions": stored},
        })
    }

    fn error(code: u16) -> CallError {
        let status = kube::core::Status::failure("no", "Why").with_code(code);
        CallError::Api {
            what: "rewrite Thing a in v1".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn a_version_in_which_objects_are_stored_is_dropped_only_after_they_are_rewritten() {
        let names = |definition: &Value| -> Vec<(String, bool)> {
            versions(definition)
                .map(|v| (v["name"].as_str().unwrap().to_owned(), v["storage"] == true))
                .collect()
        };
        let wanted = definition(&[("v1", true)], &[]);
        for (there, between) in [
            (None, None),
            (Some(definition(&[("v1", true)], &["v1"])), None),
            // It was the version of storage once, and no object is in it any more.
            (Some(definition(&[("v1", true), ("v1beta1", false)], &["v1"])), None),
            (
                Some(definition(&[("v1", true), ("v1beta1", false)], &["v1beta1", "v1"])),
                Some(vec![("v1".to_owned(), true), ("v1beta1".to_owned(), false)]),
            ),
            // What is there knows nothing of the new version yet.
            (
                Some(definition(&[("v1alpha1", false), ("v1beta1", true)], &["v1beta1"])),
                Some(vec![("v1".to_owned(), true), ("v1beta1".to_owned(), false)]),
            ),
        ] {
            let found = match plan(&wanted, there.as_ref()) {
                Plan::Apply => None,
                Plan::Between(both) => {
                    assert_ne!(
                        both["metadata"]["annotations"],
                        marked(wanted.clone())["metadata"]["annotations"],
                        "the next pass still has something to write"
                    );
                    Some(names(&both))
                }
            };
            assert_eq!(found, between, "{there:?}");
        }
    }

    #[test]
    fn objects_in_another_version_are_told_with_the_definition_and_what_is_done() {
        assert_eq!(stale(&definition(&[("v1", true)], &["v1"])), None);
        assert_eq!(stale(&definition(&[("v1", true)], &[])), None, "it has just been made");
        let found = stale(&definition(&[("v1", true), ("v1beta1", false)], &["v1beta1", "v1"])).unwrap();
        assert_eq!((found.resource.api_version.as_str(), found.namespaced), ("example.com/v1", false));
        let words = found.sentence(&Hold::Settling(SETTLE));
        assert!(
            words.starts_with(
                "CustomResourceDefinition things.example.com: status.storedVersions has v1beta1, "
            ) && words.ends_with("when every API server writes v1"),
            "{words}"
        );
        let words = found.sentence(&Hold::Refused(Box::new(error(422))));
        assert!(words.contains("fails and is tried again: rewrite Thing a in v1"), "{words}");
    }

    #[test]
    fn objects_are_rewritten_when_every_api_server_writes_the_new_version() {
        let at = |generation: i64| {
            let mut there = definition(&[("v1", true), ("v1beta1", false)], &["v1beta1", "v1"]);
            there["metadata"]["generation"] = json!(generation);
            stale(&there).unwrap()
        };
        let mut settling = Settling::default();
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(
            settling.time_left(&at(2), begin),
            Some(SETTLE),
            "an operator that has just begun knows nothing"
        );
        assert_eq!(settling.time_left(&at(2), begin + 60 * second), Some(SETTLE - 60 * second));
        assert_eq!(
            settling.time_left(&at(3), begin + 64 * second),
            Some(SETTLE),
            "somebody has changed it since"
        );
        assert_eq!(settling.time_left(&at(3), begin + 64 * second + SETTLE), None);
        assert_eq!(settling.time_left(&at(3), begin + 640 * second), None);
    }
}

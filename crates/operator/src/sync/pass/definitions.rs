//! The step of the definitions: each is applied unless a newer version wrote it, and objects that are stored in another version
//! are rewritten, whoever applied the definition: this operator, `mco install`, Helm or kubectl.
//!
//! What it is not: the way from one definition to another, and the rewriting (see `storage`).

use super::step_error::{StepError, failed};
use super::{PassResult, Syncer};
use crate::definitions;
use crate::install::established;
use crate::stored_versions::{self, Hold, Settling, StaleVersions};
use crate::sync::objects::{Key, differs, marked};
use crate::sync::{Stop, cluster};
use api::names::VERSION_RAW;
use client::chain;
use serde_json::{Value, json};
use std::collections::HashMap;
use tokio::time::Instant;

/// What is known of the versions in which objects are stored, from one pass to the next. All of it can be lost.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Definitions of which it is known that their objects are stored in one version: their resource versions, by name.
    settled: HashMap<String, String>,
    /// Since when definitions are as they are.
    settling: Settling,
}

/// Of the present definitions only the metadata was read: definitions are large, and the digest tells whether they differ.
fn only_metadata(object: &Value) -> Value {
    json!({"metadata": {
        "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
    }})
}

/// How the operator becomes as new as the definitions are.
fn newer_remedy(follows_payload: bool, version: &str) -> String {
    if follows_payload {
        return format!(
            "apply the payload of a release whose image machineConfigOperator is of {version} or newer, or set spec.imageFrom of {} \
             to Settings and spec.image to such an image",
            crate::settings::name()
        );
    }
    format!("run `mco install` of {version} or newer")
}

impl Syncer {
    /// `follows_payload`: the image is the release's, so that `mco install` alone does not bring another one.
    pub(super) async fn definitions(
        &mut self,
        follows_payload: bool,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let seen = std::mem::take(&mut passed.seen.definitions);
        let done = self.all_definitions(&seen, follows_payload, passed).await;
        passed.seen.definitions = seen;
        done
    }

    async fn all_definitions(
        &mut self,
        seen: &[Value],
        follows_payload: bool,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let broken = |e: api::crds::CrdError| failed(format!("the CRDs in this build are broken: {e}"));
        let wanted: Vec<Value> = definitions::all(false).map_err(broken)?.into_iter().map(marked).collect();
        let name = |o: &Value| o["metadata"]["name"].clone();
        let of = |object: &Value| seen.iter().find(|d| name(d) == name(object));
        if let Some((name, version)) = definitions::newer(wanted.iter().filter_map(of)) {
            return Err(failed(format!(
                "CustomResourceDefinition {name} was written by {version}, and this operator is {VERSION_RAW}: objects may have \
                 fields that the older definition would drop; {}",
                newer_remedy(follows_payload, &version)
            )));
        }
        let mut waits = None;
        for object in wanted.iter().filter(|object| differs(&only_metadata(object), of(object))) {
            let there = match of(object) {
                Some(_) => stored_versions::definition(&self.client, &Key::of(object).name).await?,
                None => None,
            };
            match self.definition(object, there.as_ref(), passed).await {
                // The others need not wait for this one.
                Err(StepError::Stop(Stop::Waiting(what))) => waits = waits.or(Some(what)),
                done => done?,
            }
        }
        waits.map_or(Ok(()), |what| Err(StepError::Stop(Stop::Waiting(what))))
    }

    /// Applies one definition. Where it has no longer the version in which objects are stored, they are rewritten first.
    async fn definition(
        &mut self,
        object: &Value,
        there: Option<&Value>,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let key = Key::of(object);
        if let stored_versions::Plan::Between(both) = stored_versions::plan(object, there) {
            if differs(&only_metadata(&both), there) {
                self.apply_definition(&both).await?;
            }
            let there = stored_versions::definition(&self.client, &key.name).await?;
            if let Some(stale) = there.as_ref().and_then(stored_versions::stale) {
                match self.migrated(&stale, passed).await {
                    Ok(()) => {}
                    Err(Hold::Settling(left)) => {
                        return Err(StepError::Stop(Stop::Waiting(stale.sentence(&Hold::Settling(left)))));
                    }
                    Err(Hold::Refused(error)) => return Err((*error).into()),
                }
            }
        }
        self.apply_definition(object).await?;
        passed.done.push(key.to_string());
        Ok(())
    }

    async fn apply_definition(&self, object: &Value) -> Result<(), StepError> {
        cluster::apply(&self.client, object).await?;
        self.metrics.applied.inc();
        established(&self.client, object).await.map_err(|e| failed(chain(&e)))
    }

    /// Rewrites the objects of a kind, if all API servers write the version of today by now. What holds that up is noted for
    /// Upgradeable.
    async fn migrated(&mut self, stale: &StaleVersions, passed: &mut PassResult) -> Result<(), Hold> {
        let hold = match self.stored.settling.time_left(stale, Instant::now()) {
            Some(left) => {
                passed.settles = Some(passed.settles.map_or(left, |first| first.min(left)));
                Hold::Settling(left)
            }
            None => match stored_versions::migrate(&self.client, stale).await {
                Ok(count) => {
                    passed.done.push(format!("{count} objects of {} in the present version", stale.name()));
                    return Ok(());
                }
                Err(error) => Hold::Refused(Box::new(error)),
            },
        };
        passed.stored.push(stale.sentence(&hold));
        Err(hold)
    }

    /// Has objects stored in the present version. No step waits for it, and no upgrade should begin before it.
    pub(super) async fn stored_versions(&mut self, passed: &mut PassResult) {
        let names = definitions::names();
        let seen: Vec<(String, String)> = passed
            .seen
            .definitions
            .iter()
            .map(|d| {
                (Key::of(d).name, d["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
            })
            .filter(|(name, version)| names.contains(name) && self.stored.settled.get(name) != Some(version))
            .collect();
        for (name, version) in seen {
            let there = match stored_versions::definition(&self.client, &name).await {
                Ok(there) => there,
                Err(error) => {
                    tracing::debug!("the stored versions are not known: {}", error.chain());
                    passed.stored_read = false;
                    continue;
                }
            };
            match there.as_ref().and_then(stored_versions::stale) {
                // Only if this is what was listed: else the next pass looks again.
                None => drop(self.stored.settled.insert(name, version)),
                // What holds it up is in the report.
                Some(stale) => drop(self.migrated(&stale, passed).await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_operator_names_who_can_replace_it() {
        assert_eq!(newer_remedy(false, "v2.0.0"), "run `mco install` of v2.0.0 or newer");
        let of_payload = newer_remedy(true, "v2.0.0");
        assert!(of_payload.starts_with("apply the payload of a release"), "{of_payload}");
        assert!(!of_payload.contains("mco install"), "it is refused there");
    }
}

//! The built-in pools, and the wait for those that an upgrade of the cluster needs.
//!
//! What it is not: which pools there are to be (see `plan`), and when one is done (see `required_pools`).

use super::step_error::{StepError, failed, misshapen};
use super::{PassResult, ROLLOUT, Syncer, config_of};
use crate::install::pool_object;
use crate::settings::object::CheckedSettings;
use crate::sync::plan;
use crate::sync::required_pools::{self, Pools};
use crate::sync::{Step, Stop, cluster};
use api::formats::shape;
use client::{call, chain};
use kube::api::{DynamicObject, PostParams};

impl Syncer {
    pub(super) async fn pools(
        &self,
        wanted: &CheckedSettings,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let is_there =
            |name: &String| passed.seen.pools.iter().any(|p| p.metadata.name.as_ref() == Some(name));
        let config = config_of(&passed.seen)?;
        let pools = plan::pools(&wanted.pools, config.as_ref());
        let missing: Vec<&String> = pools.iter().filter(|name| !is_there(name)).collect();
        let some_are_new = !missing.is_empty();
        for name in missing {
            let object = pool_object(name).map_err(|e| failed(chain(&e)))?;
            let Some(api) = cluster::api_of(&self.client, &object) else { continue };
            let typed: DynamicObject =
                shape::read(&object).map_err(|e| misshapen(&format!("MachineConfigPool {name}"), &e))?;
            call(|| format!("create MachineConfigPool {name}"), api.create(&PostParams::default(), &typed))
                .await?;
            passed.done.push(format!("MachineConfigPool {name}"));
        }
        if some_are_new {
            // The steps after this one see them.
            passed.seen.pools = cluster::pools(&self.client).await?;
        }
        Ok(())
    }

    pub(super) async fn required_pools(&mut self, passed: &PassResult) -> Result<(), StepError> {
        let rendered = cluster::rendered(&self.client, &required_pools::required(&passed.seen.pools)).await?;
        let release = passed.seen.config.as_ref().and_then(|config| {
            config["metadata"]["annotations"][api::names::annotation::RELEASE_IMAGE_VERSION].as_str()
        });
        let target = required_pools::Target {
            controller: api::names::VERSION_HASH,
            release: release.unwrap_or_default(),
        };
        match required_pools::required_pools(&passed.seen.pools, &rendered, target) {
            Pools::Done => Ok(()),
            Pools::Stuck(why) => Err(failed(why)),
            Pools::Moving { what, nodes } => {
                // The reference's limit: ten minutes a node. Pools without nodes have nothing to wait for.
                let (since, limit) =
                    (self.waited(Step::RequiredPools, &super::goal(passed)), ROLLOUT * nodes);
                if nodes > 0 && since > limit {
                    // Not the time so far: each minute would be news.
                    return Err(failed(format!(
                        "{what}, after more than {} minutes; mco status says why",
                        limit.as_secs() / 60
                    )));
                }
                Err(StepError::Stop(Stop::Waiting(what)))
            }
        }
    }
}

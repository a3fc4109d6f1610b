//! What a person was shown of a pool, and a patch of the pool that is made only while that is so.
//!
//! What it is not: what the patch is for (see `pause` and `undo`).

use crate::ActionError;
use api::v1::MachineConfigPool;
use client::{call, retry};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What of a pool decides what it means to let its nodes go. Two pools with the same mean the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSubject {
    /// Its UID.
    pub uid: Option<String>,
    /// Its config.
    pub config: String,
    /// The config that it is pinned to, if it is.
    pub pin: Option<String>,
}

impl PoolSubject {
    /// That of a pool as it is.
    pub fn of(pool: &MachineConfigPool) -> Self {
        Self {
            uid: pool.metadata.uid.clone(),
            config: pool.spec.configuration.name.clone(),
            pin: rollout::pinned_config(pool).map(str::to_owned),
        }
    }

    /// Patches the pool if it is still as it was shown. It is read again before each try, and the patch is bound to what was read:
    /// while nodes move, the pool's status changes often.
    ///
    /// # Errors
    /// The pool is another one, or keeps changing; a request that failed.
    pub(crate) async fn patch(
        &self,
        client: &Client,
        name: &str,
        patch: Value,
    ) -> Result<MachineConfigPool, ActionError> {
        let pools: Api<MachineConfigPool> = Api::all(client.clone());
        let params = PatchParams::default();
        let change = || async {
            let pool = call(|| format!("get machineconfigpool {name}"), pools.get(name)).await?;
            if Self::of(&pool) != *self {
                return Ok(None);
            }
            let mut bound = patch.clone();
            bound["metadata"]["resourceVersion"] = json!(pool.resource_version());
            let what = || format!("cannot change machineconfigpool {name}");
            call(what, pools.patch(name, &params, &Patch::Merge(&bound))).await.map(Some)
        };
        match retry::on_conflict(change).await {
            Ok(Some(pool)) => Ok(pool),
            Ok(None) => Err(ActionError::Refused(format!(
                "pool {name} changed since this was shown, so nothing was done: look at it again"
            ))),
            Err(error) if error.is_conflict() => Err(ActionError::Refused(format!(
                "pool {name} keeps changing: nothing was written; try again"
            ))),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn pool(uid: &str) -> Value {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker", "uid": uid, "resourceVersion": "7"}, "spec": {}})
    }

    /// An API server with this pool, which answers so many patches with 409 and these words. Also returns how many there were.
    fn server(uid: &'static str, conflicts: usize, said: &'static str) -> (Client, Arc<AtomicUsize>) {
        let patches = Arc::new(AtomicUsize::new(0));
        let count = patches.clone();
        let serve = tower::service_fn(move |request: http::Request<Body>| {
            let is_patch = request.method() == http::Method::PATCH;
            let refused = is_patch && count.fetch_add(1, Ordering::SeqCst) < conflicts;
            let (code, answer) = match refused {
                true => (409, json!({"kind": "Status", "status": "Failure", "code": 409, "message": said})),
                false => (200, pool(uid)),
            };
            let body = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap()) }
        });
        (Client::new(serve, "default"), patches)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_is_changed_only_as_it_was_shown_and_a_denial_is_no_race() {
        let changed = "the object has been modified";
        let denied = "admission webhook \"w\" denied the request: not today";
        // Columns: the pool; how many patches fail, and why; what comes of it, and how many patches were sent.
        for (uid, conflicts, said, want, patches) in [
            ("shown", 0, changed, "done", 1),
            ("shown", 12, changed, "done", 13),
            ("shown", usize::MAX, changed, "keeps changing", 21),
            ("shown", usize::MAX, denied, denied, 1),
            ("another", 0, changed, "changed since this was shown", 0),
        ] {
            let (client, asked) = server(uid, conflicts, said);
            let shown = PoolSubject { uid: Some("shown".to_owned()), config: String::new(), pin: None };
            let done = shown.patch(&client, "worker", json!({"spec": {"paused": false}})).await;
            let found = done.map_or_else(|error| client::chain(&error), |_| "done".to_owned());
            assert!(found.contains(want), "{uid} {conflicts} {said}: {found}");
            assert_eq!(asked.load(Ordering::SeqCst), patches, "{uid} {conflicts} {said}");
        }
    }
}

//! The request that evicts a pod, or deletes it where the policy says so, and its answer.
//!
//! What it is not: which pods go, and when again (see `rollout::drain`).

use client::call;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Preconditions};
use rollout::drain::{Answer, Evict};

/// Evicts one pod, with a precondition on its UID.
pub(super) async fn evict(api: &Api<k8s_openapi::api::core::v1::Pod>, pod: &Evict) -> Answer {
    let params = EvictParams {
        delete_options: Some(DeleteParams {
            grace_period_seconds: pod.grace.and_then(|g| u32::try_from(g).ok()),
            preconditions: Some(Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }),
            ..DeleteParams::default()
        }),
        ..EvictParams::default()
    };
    let request = async {
        match (pod.past_budget, params.delete_options.as_ref()) {
            (true, Some(options)) => api.delete(&pod.name, options).await.map(drop),
            _ => api.evict(&pod.name, &params).await.map(drop),
        }
    };
    let Err(error) = call(|| format!("evict pod {}", pod.name), request).await else {
        return Answer::Accepted;
    };
    match error.status() {
        Some(status) if pod.past_budget && error.is_forbidden() => Answer::Failed(format!(
            "its budget does not allow it, and the controller may not delete it; give its service account the right to delete \
             pods: {}",
            status.message
        )),
        Some(status) => Answer::from_status(status.code, &status.message),
        None => Answer::Failed(error.chain()),
    }
}

//! The ConfigMap with the list of what builds have pushed, read and written. Nothing is decided here.

use crate::shared::Shared;
use api::k8s::{ConfigMap, ObjectMeta};
use api::names::NAMESPACE;
use build::pushed::{LIST, Pushed};
use client::{CallError, call};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;

fn maps(shared: &Shared) -> Api<ConfigMap> {
    Api::namespaced(shared.client.clone(), NAMESPACE)
}

/// The list. What is no entry of ours is left alone.
pub(super) async fn read(shared: &Shared) -> Result<BTreeMap<String, Pushed>, CallError> {
    let found = call(|| format!("get configmap {LIST}"), maps(shared).get_opt(LIST)).await?;
    let all = found.and_then(|map| map.data).unwrap_or_default();
    Ok(all.into_iter().filter_map(|(key, text)| Some((key, Pushed::read(&text)?))).collect())
}

/// Writes these keys of the list in one request, and leaves all other keys as they are; `None` removes a key.
pub(in crate::passes) async fn write_entries(
    shared: &Shared,
    entries: &[(String, Option<String>)],
) -> Result<(), CallError> {
    if entries.is_empty() {
        return Ok(());
    }
    let data: BTreeMap<&str, Option<&str>> =
        entries.iter().map(|(key, text)| (key.as_str(), text.as_deref())).collect();
    let (api, params, patch) = (maps(shared), PatchParams::default(), Patch::Merge(json!({ "data": data })));
    let patched = || call(|| format!("patch configmap {LIST}"), api.patch(LIST, &params, &patch));
    match patched().await {
        Err(e) if e.is_not_found() => {}
        other => return other.map(drop),
    }
    let data: BTreeMap<String, String> =
        entries.iter().filter_map(|(key, text)| Some((key.clone(), text.clone()?))).collect();
    if data.is_empty() {
        return Ok(());
    }
    let metadata = ObjectMeta { name: Some(LIST.to_owned()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    match call(|| format!("create configmap {LIST}"), api.create(&PostParams::default(), &map)).await {
        // Another pass was first.
        Err(e) if e.is_conflict() => patched().await.map(drop),
        other => other.map(drop),
    }
}

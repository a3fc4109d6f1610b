//! `mco render`: manifests in, rendered configs or a diff out.

use crate::args::render::Render;
use crate::input::manifests;
use crate::{connect, exit};
use anyhow::{Context, bail};
use api::names::{self, ARBITER, GROUP, MASTER, WORKER};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use render::bootstrap::{Manifests, plan_only};
use render::{TemplateSet, Versions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// An API server that needs longer for a list is as good as away.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) type Documents = Vec<(String, Value)>;
/// The rendered config of each pool.
pub(super) type Rendered = BTreeMap<String, MachineConfig>;

pub(super) async fn run(a: Render) -> anyhow::Result<u8> {
    if a.exit_code && !a.diff && a.diff_with.is_empty() {
        bail!("--exit-code is about a difference: add --diff or --diff-with");
    }
    let given = manifests::read(&a.manifests.files)?;
    let templates = match &a.templates {
        Some(folder) => TemplateSet::from_map(manifests::tree(folder)?),
        None => TemplateSet::default(),
    };
    if a.diff {
        let client = connect::connect(&a.cluster).await?;
        let live = tokio::time::timeout(REQUEST_TIMEOUT, live(&client)).await.map_err(|_| {
            anyhow::anyhow!("no answer from the API server within {} s", REQUEST_TIMEOUT.as_secs())
        })??;
        let after = rendered(laid_over(live.objects, given), &templates, &a.pools)?;
        return show(&a, &live.rendered, &after);
    }
    let after = rendered(given, &templates, &a.pools)?;
    if !a.diff_with.is_empty() {
        let before = rendered(manifests::read(&a.diff_with)?, &templates, &a.pools)?;
        return show(&a, &before, &after);
    }
    let mut out = String::new();
    for mc in after.values() {
        out += if out.is_empty() { "" } else { "---\n" };
        out += &api::yaml::to_string(mc)?;
    }
    std::io::stdout().lock().write_all(out.as_bytes())?;
    Ok(exit::OK)
}

fn show(a: &Render, before: &Rendered, after: &Rendered) -> anyhow::Result<u8> {
    let mut out = String::new();
    let pools: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for pool in pools.into_iter().filter(|p| a.pools.is_empty() || a.pools.contains(p)) {
        let (old, new) = (before.get(pool), after.get(pool));
        let text = render::diff(old, new, a.show.secrets()).map_err(|e| anyhow::anyhow!("{e}"))?;
        if !text.is_empty() {
            let name =
                |mc: Option<&MachineConfig>| mc.map_or_else(|| "(none)".to_owned(), ResourceExt::name_any);
            out += &format!("pool {pool}: {} → {}\n{text}", name(old), name(new));
        }
    }
    std::io::stdout().lock().write_all(out.as_bytes())?;
    Ok(if a.exit_code && !out.is_empty() { exit::FINDINGS } else { exit::OK })
}

/// Is this a pool's rendered config, and which pool's?
pub(super) fn pool_of(value: &Value) -> Option<String> {
    let is_config = value.get("kind").and_then(Value::as_str) == Some("MachineConfig");
    let name = value.pointer("/metadata/name").and_then(Value::as_str).filter(|_| is_config)?;
    let (pool, hash) = name.strip_prefix("rendered-")?.rsplit_once('-')?;
    (hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit())).then(|| pool.to_owned())
}

/// Renders each pool of the manifests. Rendered configs among them stand for their pool where nothing else does.
pub(super) fn rendered(
    documents: Documents,
    templates: &TemplateSet,
    only: &[String],
) -> anyhow::Result<Rendered> {
    let (all, warnings) = render_all(documents, templates, only)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(all)
}

/// The same, with the warnings as values.
pub(super) fn render_all(
    documents: Documents,
    templates: &TemplateSet,
    only: &[String],
) -> anyhow::Result<(Rendered, Vec<String>)> {
    let (done, mut documents): (Documents, Documents) =
        documents.into_iter().partition(|(_, v)| pool_of(v).is_some());
    let (mut all, mut warnings) = (Rendered::new(), vec![]);
    for (origin, value) in done {
        if let Some(pool) = pool_of(&value) {
            let mc =
                api::shape::read(&value).with_context(|| format!("{origin}: rendered config of {pool}"))?;
            all.insert(pool, mc);
        }
    }
    complete(&mut documents)?;
    let pool_name =
        |v: &Value| v.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut there: Vec<String> =
        documents.iter().filter(|(_, v)| is(v, "MachineConfigPool")).map(|(_, v)| pool_name(v)).collect();
    there.extend(all.keys().cloned());
    if let Some(missing) = only.iter().find(|p| !there.contains(p)) {
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        bail!("there is no pool {missing:?} in the manifests; there is: {there}");
    }
    if !only.is_empty() {
        // A broken pool that was not asked for stands in nobody's way. Custom pools inherit the OS stream of `worker`.
        let inherits = only.iter().any(|p| ![MASTER, WORKER, ARBITER].contains(&p.as_str()));
        let asked = |v: &Value| only.contains(&pool_name(v));
        documents
            .retain(|(_, v)| !is(v, "MachineConfigPool") || asked(v) || inherits && pool_name(v) == WORKER);
        for (_, value) in documents.iter_mut().filter(|(_, v)| is(v, "MachineConfigPool") && !asked(v)) {
            *value = stream_alone(value);
        }
    }
    if documents.iter().any(|(_, v)| is(v, "MachineConfigPool")) {
        let versions = Versions { raw: names::VERSION_RAW.to_owned(), hash: names::VERSION_HASH.to_owned() };
        let output = plan_only(&Manifests::read(documents)?, templates, None, &versions, only)?;
        warnings = output.warnings.iter().map(ToString::to_string).collect();
        let by_name: BTreeMap<String, MachineConfig> =
            output.machine_configs.into_iter().map(|mc| (mc.name_any(), mc)).collect();
        for pool in output.pools {
            if let Some(mc) = by_name.get(&pool.spec.configuration.name) {
                all.insert(pool.name_any(), mc.clone());
            }
        }
    }
    Ok((all, warnings))
}

/// A pool with nothing but what others inherit from it.
fn stream_alone(pool: &Value) -> Value {
    let mut alone = json!({
        "apiVersion": pool["apiVersion"], "kind": pool["kind"], "metadata": {"name": pool["metadata"]["name"]}, "spec": {}
    });
    if let Some(stream) = pool.pointer("/spec/osImageStream") {
        alone["spec"]["osImageStream"] = stream.clone();
    }
    alone
}

fn is(value: &Value, kind: &str) -> bool {
    let group = value.get("apiVersion").and_then(Value::as_str).and_then(|v| v.split('/').next());
    group == Some(GROUP) && value.get("kind").and_then(Value::as_str) == Some(kind)
}

/// Adds pools and a ControllerConfig where there are none.
fn complete(documents: &mut Documents) -> anyhow::Result<()> {
    if !documents.iter().any(|(_, v)| is(v, "MachineConfigPool")) {
        let configs: Vec<MachineConfig> = documents
            .iter()
            .filter(|(_, v)| is(v, "MachineConfig"))
            .map(|(origin, v)| api::shape::read(v).with_context(|| origin.clone()))
            .collect::<Result<_, _>>()?;
        for pool in render::default_pools(&configs) {
            documents.push(("default pools".to_owned(), typed(&pool, "MachineConfigPool")));
        }
    }
    add_controller_config(documents);
    Ok(())
}

/// Adds that of a plain cluster where there is none.
pub(super) fn add_controller_config(documents: &mut Documents) {
    if !documents.iter().any(|(_, v)| is(v, "ControllerConfig")) {
        let config = operator::install::settings::unknown();
        documents.push(("default ControllerConfig".to_owned(), typed(&config, "ControllerConfig")));
    }
}

/// An object as it stands in a manifest.
pub(super) fn typed<T: serde::Serialize>(object: &T, kind: &str) -> Value {
    let mut value = json!(object);
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!(format!("{GROUP}/v1")));
        map.insert("kind".to_owned(), json!(kind));
    }
    value
}

/// What a cluster has.
struct Live {
    objects: Documents,
    rendered: Rendered,
}

async fn live(client: &kube::Client) -> anyhow::Result<Live> {
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let settings: Api<ControllerConfig> = Api::all(client.clone());
    let all = ListParams::default();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "OSImageStream"));
    let streams: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let streams = async {
        match streams.get(names::CLUSTER).await {
            Ok(found) => Ok(Some(found)),
            // The object, or its kind.
            Err(kube::Error::Api(e)) if e.code == 404 => Ok(None),
            Err(e) => Err(e),
        }
    };
    let (configs, pools, settings, streams) =
        tokio::try_join!(configs.list(&all), pools.list(&all), settings.list(&all), streams)?;
    let by_name: BTreeMap<String, &MachineConfig> = configs.items.iter().map(|c| (c.name_any(), c)).collect();
    let in_force = |p: &MachineConfigPool| {
        by_name.get(&p.spec.configuration.name).map(|mc| (p.name_any(), (*mc).clone()))
    };
    let rendered = pools.items.iter().filter_map(in_force).collect();
    let origin = || "the cluster".to_owned();
    let mut objects: Documents =
        configs.items.iter().map(|c| (origin(), typed(c, "MachineConfig"))).collect();
    objects.retain(|(_, v)| pool_of(v).is_none());
    objects.extend(pools.items.iter().map(|p| (origin(), typed(p, "MachineConfigPool"))));
    objects.extend(settings.items.iter().map(|c| (origin(), typed(c, "ControllerConfig"))));
    objects.extend(streams.map(|s| (origin(), typed(&s, "OSImageStream"))));
    Ok(Live { objects, rendered })
}

/// What an object is told apart by: kind, namespace, name.
pub(super) fn key(v: &Value) -> (String, String, String) {
    let text = |p: &str| v.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// The manifests over the cluster's objects: those of the same kind and name take their places.
pub(super) fn laid_over(mut objects: Documents, given: Documents) -> Documents {
    objects.retain(|(_, v)| !given.iter().any(|(_, g)| key(g) == key(v)));
    objects.extend(given);
    objects
}

//! `mco render`: manifests in, rendered configs or a diff out.

use crate::args::render::Render;
use crate::input::manifests;
use crate::{connect, exit, output};
use anyhow::bail;
use api::names::{self, GROUP};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use insight::{Objects, Rendered, merged_over, object, pool_of};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use render::TemplateSet;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// An API server that needs longer for a list counts as unreachable.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn run(a: Render) -> anyhow::Result<u8> {
    if a.exit_code && !a.diff && a.diff_with.is_empty() {
        bail!("--exit-code needs a diff: add --diff or --diff-with");
    }
    let given = manifests::read(&a.manifests.files)?;
    let templates = templates(a.templates.as_deref())?;
    if a.diff {
        let client = connect::connect(&a.cluster).await?;
        let live = tokio::time::timeout(REQUEST_TIMEOUT, live(&client)).await.map_err(|_| {
            anyhow::anyhow!("no answer from the API server within {} s", REQUEST_TIMEOUT.as_secs())
        })??;
        let after = rendered(merged_over(live.objects, given), &templates, &a.pools)?;
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

/// The templates in a folder.
pub(crate) fn templates(folder: Option<&Path>) -> anyhow::Result<TemplateSet> {
    Ok(match folder {
        Some(folder) => TemplateSet::from_map(manifests::tree(folder)?),
        None => TemplateSet::default(),
    })
}

/// Each pool of the objects, rendered; what has no effect is logged.
pub(crate) fn rendered(
    objects: Objects,
    templates: &TemplateSet,
    only: &[String],
) -> anyhow::Result<Rendered> {
    let controller_config = operator::install::settings::unknown();
    let with = insight::RenderWith { templates, controller_config: &controller_config };
    let (all, warnings) = insight::rendered(objects, with, only)?;
    output::warn(&warnings);
    Ok(all)
}

/// The objects of a cluster.
struct Live {
    objects: Objects,
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
    let mut objects: Objects = configs.items.iter().map(|c| (origin(), object(c, "MachineConfig"))).collect();
    objects.retain(|(_, v)| pool_of(v).is_none());
    objects.extend(pools.items.iter().map(|p| (origin(), object(p, "MachineConfigPool"))));
    objects.extend(settings.items.iter().map(|c| (origin(), object(c, "ControllerConfig"))));
    objects.extend(streams.map(|s| (origin(), object(&s, "OSImageStream"))));
    Ok(Live { objects, rendered })
}

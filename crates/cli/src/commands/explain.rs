//! `mco explain`.

use crate::args_render::Explain;
use crate::output::Kind;
use crate::{connect, exit, output, tables};
use anyhow::{Context, bail};
use api::names::annotation;
use api::v1::{MachineConfig, MachineConfigPool};
use insight::{Explanation, Source};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use render::{Provenance, validate_machine_config};
use std::time::Duration;

/// An API server that needs longer is as good as away.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(a: Explain) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let explanation =
        tokio::time::timeout(REQUEST_TIMEOUT, gather(&client, &a.pool)).await.map_err(|_| {
            anyhow::anyhow!("no answer from the API server within {} s", REQUEST_TIMEOUT.as_secs())
        })??;
    let explanation = explanation.only(a.what.as_deref(), a.contested)?.masked(a.show.secrets());
    output::print(a.output, Kind::Explanation, &explanation, || tables::explanation(&explanation))?;
    Ok(exit::OK)
}

async fn gather(client: &kube::Client, pool_name: &str) -> anyhow::Result<Explanation> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let Some(pool) = pools.get_opt(pool_name).await? else {
        let there = pools.list(&ListParams::default()).await?;
        let names: Vec<String> = there.items.iter().map(ResourceExt::name_any).collect();
        bail!("there is no pool {pool_name:?}; there is: {}", names.join(", "));
    };
    let name = pool.spec.configuration.name.clone();
    if name.is_empty() {
        let conditions = pool.status.and_then(|s| s.conditions).unwrap_or_default();
        let why = conditions.iter().find(|c| c.type_ == "RenderDegraded" && c.status == "True");
        let why = why.map_or("is the controller running?", |c| c.message.as_str());
        bail!("pool {pool_name} has no rendered config yet: {why}");
    }
    let rendered = configs.get_opt(&name).await?.with_context(|| {
        format!("pool {pool_name} names {name}, which does not exist; the controller makes it anew")
    })?;
    let stored = rendered.annotations().get(annotation::PROVENANCE);
    let (provenance, source) = match stored.map(|s| Provenance::unpack(s)) {
        Some(Ok(provenance)) => (provenance, Source::Stored),
        Some(Err(e)) => {
            (worked_out(&configs, &pool).await?, Source::WorkedOut(format!("what is stored {e}")))
        }
        None => (worked_out(&configs, &pool).await?, Source::WorkedOut("nothing is stored on it".to_owned())),
    };
    Ok(Explanation::new(pool_name, &name, provenance, &source))
}

/// From the MachineConfigs that the pool names, as they are now.
async fn worked_out(configs: &Api<MachineConfig>, pool: &MachineConfigPool) -> anyhow::Result<Provenance> {
    let mut sources = Vec::new();
    for name in pool.spec.configuration.source.iter().flatten().filter_map(|s| s.name.as_deref()) {
        sources.push(configs.get(name).await.with_context(|| {
            format!("nothing stored says who set what, and MachineConfig {name} is gone; wait for the next rendering")
        })?);
    }
    let mut components: Vec<_> = sources.iter().filter_map(|mc| validate_machine_config(mc).ok()).collect();
    render::sort(&mut components);
    Ok(render::provenance::trace(&components))
}

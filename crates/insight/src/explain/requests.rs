//! The requests that fill an [`Explanation`]: a pool, its rendered config and, where that does not say who set what, the
//! MachineConfigs that it names.
//!
//! What it is not: the tracing of origins (see [`render::provenance`]).

use crate::explain::{Explanation, Source};
use api::conditions;
use api::names::{annotation, pool_condition::RENDER_DEGRADED};
use api::rendered::owning_pool;
use api::v1::{MachineConfig, MachineConfigPool};
use client::{CallError, call};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use render::{Provenance, validate_machine_config};
use std::time::Duration;

/// For a handful of objects. An API server that takes longer is treated as unreachable.
const REQUESTS: Duration = Duration::from_secs(30);

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The pool does not exist.
    #[error("there is no pool {pool:?}; the pools are: {}", there.join(", "))]
    NoPool {
        /// What was asked for.
        pool: String,
        /// The pools that exist.
        there: Vec<String>,
    },
    /// Nothing was rendered for the pool yet.
    #[error("pool {pool} has no rendered config yet: {why}")]
    NotRendered {
        /// The pool.
        pool: String,
        /// What its condition `RenderDegraded` says, or what to look at.
        why: String,
    },
    /// The pool's rendered config was deleted.
    #[error("pool {pool} names {config}, which does not exist; the controller creates it again")]
    Gone {
        /// The pool.
        pool: String,
        /// The config that it names.
        config: String,
    },
    /// Nothing is stored, and one of the MachineConfigs that the config was rendered from was deleted.
    #[error("no provenance is stored, and MachineConfig {0} no longer exists; wait for the next rendering")]
    SourceGone(String),
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The requests take too long.
    #[error("no answer from the API server within {} s", REQUESTS.as_secs())]
    Late,
}

/// Asks the API server who set what in the rendered config of a pool.
///
/// # Errors
/// No such pool or config, a request that failed, or no answer in time.
pub async fn explain(client: &Client, pool: &str) -> Result<Explanation, ExplainError> {
    tokio::time::timeout(REQUESTS, gather(client, pool)).await.map_err(|_| ExplainError::Late)?
}

/// Who set what in a rendered config, as stored on it. `None`: it belongs to no pool.
///
/// # Errors
/// Why nothing stored can be used.
pub fn explain_stored(rendered: &MachineConfig) -> Option<Result<Explanation, String>> {
    let pool = owning_pool(rendered.metadata.owner_references.as_deref())?;
    let of = |origins| Explanation::new(pool, &rendered.name_any(), origins, &Source::Stored);
    Some(stored(rendered).map(of))
}

async fn gather(client: &Client, pool_name: &str) -> Result<Explanation, ExplainError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let pool = call(|| format!("get machineconfigpool {pool_name}"), pools.get_opt(pool_name)).await?;
    let Some(pool) = pool else {
        let all = ListParams::default();
        let there = call(|| "list machineconfigpools".to_owned(), pools.list(&all)).await?;
        let there = there.items.iter().map(ResourceExt::name_any).collect();
        return Err(ExplainError::NoPool { pool: pool_name.to_owned(), there });
    };
    let config = named(&pool)?;
    let rendered = call(|| format!("get machineconfig {config}"), configs.get_opt(config)).await?;
    let Some(rendered) = rendered else {
        return Err(ExplainError::Gone { pool: pool_name.to_owned(), config: config.to_owned() });
    };
    let (provenance, source) = match stored(&rendered) {
        Ok(provenance) => (provenance, Source::Stored),
        Err(why) => (computed(&configs, &pool).await?, Source::Computed(why)),
    };
    Ok(Explanation::new(pool_name, config, provenance, &source))
}

/// The rendered config that a pool names.
fn named(pool: &MachineConfigPool) -> Result<&str, ExplainError> {
    let config = &pool.spec.configuration.name;
    if !config.is_empty() {
        return Ok(config);
    }
    let conditions = pool.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let why = conditions::get_true(conditions, RENDER_DEGRADED);
    let why = why.map_or("is the controller running?", |c| c.message.as_str());
    Err(ExplainError::NotRendered { pool: pool.name_any(), why: why.to_owned() })
}

/// What is stored on a rendered config, or why that cannot be used.
fn stored(rendered: &MachineConfig) -> Result<Provenance, String> {
    match rendered.annotations().get(annotation::PROVENANCE) {
        None => Err("no provenance is stored on it".to_owned()),
        Some(packed) => Provenance::unpack(packed).map_err(|e| format!("its provenance {e}")),
    }
}

/// From the MachineConfigs that the pool names, as they are now.
async fn computed(
    configs: &Api<MachineConfig>,
    pool: &MachineConfigPool,
) -> Result<Provenance, ExplainError> {
    let mut sources = vec![];
    for name in pool.spec.configuration.source.iter().flatten().filter_map(|s| s.name.as_deref()) {
        let found = call(|| format!("get machineconfig {name}"), configs.get_opt(name)).await?;
        sources.push(found.ok_or_else(|| ExplainError::SourceGone(name.to_owned()))?);
    }
    let mut components: Vec<_> = sources.iter().filter_map(|mc| validate_machine_config(mc).ok()).collect();
    render::sort(&mut components);
    Ok(render::provenance::trace(&components))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_that_names_no_config_says_why_in_the_words_of_its_condition() {
        let pool = |config: &str, status: &str| -> MachineConfigPool {
            let condition = json!({"type": "RenderDegraded", "status": status, "message": "50-a is broken", "reason": "r",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(json!({
                "metadata": {"name": "w"},
                "spec": {"configuration": {"name": config}},
                "status": {"conditions": [condition]},
            }))
            .unwrap()
        };
        assert_eq!(named(&pool("rendered-w-1", "True")).unwrap(), "rendered-w-1");
        let text = |pool: &MachineConfigPool| named(pool).unwrap_err().to_string();
        assert_eq!(text(&pool("", "True")), "pool w has no rendered config yet: 50-a is broken");
        assert!(text(&pool("", "False")).ends_with("is the controller running?"));
    }

    #[test]
    fn stored_provenance_is_used_or_its_error_is_reported() {
        let config = |stored: Option<&str>| {
            let mut config = MachineConfig::new("rendered-w-1", Default::default());
            let packed = stored.map(|s| (annotation::PROVENANCE.to_owned(), s.to_owned()));
            config.metadata.annotations = Some(packed.into_iter().collect());
            config
        };
        assert_eq!(stored(&config(None)).unwrap_err(), "no provenance is stored on it");
        assert!(stored(&config(Some("?"))).unwrap_err().starts_with("its provenance "));
    }
}

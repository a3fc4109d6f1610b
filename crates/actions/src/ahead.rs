//! What it costs the nodes to be let go on: by a resume, an approval, or another try. Nothing is written.
//!
//! What it is not: the words (see `words`), or a forecast of what others do meanwhile.

use crate::{ActionError, Approval};
use api::k8s::Time;
use api::names::own;
use desired::mask::Secrets;
use insight::{ChangeView, Listed, PoolChange};
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;

/// What would be done.
#[derive(Debug, Clone, Copy)]
pub enum Letting<'a> {
    /// A pool that is paused goes on.
    Resume {
        /// The pool.
        pool: &'a str,
    },
    /// A wave that waits is approved.
    Approve(&'a Approval),
    /// The agent of a node tries again.
    Retry {
        /// The node.
        node: &'a str,
    },
}

impl Letting<'_> {
    /// The pool that is changed; `None`: none is.
    fn pool(&self) -> Option<&str> {
        match self {
            Self::Resume { pool } => Some(pool),
            Self::Approve(approval) => Some(&approval.pool),
            Self::Retry { .. } => None,
        }
    }
}

/// What lies ahead of nodes once they are let go on.
#[derive(Debug, Clone)]
pub struct Ahead {
    /// What it means for the pool and its nodes; `None`: there is nothing to go to.
    pub change: Option<PoolChange>,
    /// Kinds that may not be listed, and were taken for absent.
    pub forbidden: Vec<String>,
}

/// Works out what lies ahead.
///
/// # Errors
/// There is no such pool or node; an object that cannot be read, configs that cannot be compared; a request that failed.
pub async fn ahead(client: &Client, what: Letting<'_>) -> Result<Ahead, ActionError> {
    let Listed { mut objects, forbidden } = insight::for_planning(client, true).await?;
    if let Some(name) = what.pool() {
        let pools = objects.iter_mut().map(|(_, object)| object).filter(|o| o["kind"] == "MachineConfigPool");
        pools.filter(|o| o["metadata"]["name"] == *name).for_each(|object| let_go(object, what));
    }
    let situation = insight::situation(&objects)?;
    let configs = insight::configs(&objects)?;
    let policy = insight::disruption_policy(&objects)?;
    let now = Time(jiff::Timestamp::now());
    let (pool, from, to) = match what {
        Letting::Resume { .. } | Letting::Approve(_) => {
            let name = what.pool().unwrap_or_default();
            let Some(pool) = situation.pools.get(name) else {
                return Err(ActionError::Refused(format!("there is no pool {name:?}")));
            };
            let last = pool.status.as_ref().map(|status| status.configuration.name.clone());
            (name.to_owned(), last.unwrap_or_default(), pool.spec.configuration.name.clone())
        }
        Letting::Retry { node: name } => {
            let Some(node) = situation.nodes.get(name) else {
                return Err(ActionError::Refused(format!("there is no node {name:?}")));
            };
            let text = |config: &Option<Arc<str>>| config.as_deref().map(str::to_owned).unwrap_or_default();
            let forecast = situation.forecast(&now);
            let pool = forecast.pools.iter().find(|pool| pool.nodes.iter().any(|n| &*n.node == name));
            let pool = pool.map(|pool| pool.pool.to_string());
            (pool.unwrap_or_default(), text(&node.current_config), text(&node.desired_config))
        }
    };
    let Some(target) = configs.get(&to).filter(|_| !pool.is_empty()) else {
        return Ok(Ahead { change: None, forbidden });
    };
    let view = ChangeView { configs: &configs, policy: &policy, now: &now, secrets: Secrets::Hide };
    let change = PoolChange::of(view, &situation, &pool, &from, target)?;
    Ok(Ahead { change: Some(change), forbidden })
}

/// The pool as it would be.
fn let_go(object: &mut Value, what: Letting<'_>) {
    match what {
        Letting::Resume { .. } => object["spec"]["paused"] = json!(false),
        Letting::Approve(Approval { config, wave, by, .. }) => {
            object["metadata"]["annotations"][own::APPROVED] = json!(format!("{config}/{wave}"));
            object["metadata"]["annotations"][own::APPROVED_BY] = json!(by);
        }
        Letting::Retry { .. } => {}
    }
}

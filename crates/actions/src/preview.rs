//! Previews what a pool or a node does once it may continue: after a resume, an approval, or a retry. Nothing is written.
//!
//! What it is not: the text about it (see `messages`), or a forecast of what other controllers and people do meanwhile.

use crate::{ActionError, Approval};
use api::k8s::Time;
use api::names::own;
use desired::mask::Secrets;
use insight::{ChangeView, Listed, PoolChange};
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;

/// What would let a pool or a node continue.
#[derive(Debug, Clone)]
pub enum Continue {
    /// A paused pool is resumed.
    Resume {
        /// The pool.
        pool: String,
    },
    /// A waiting wave is approved.
    Approve(Box<Approval>),
    /// The agent of a node retries.
    Retry {
        /// The node.
        node: String,
    },
}

impl Continue {
    /// The pool that is changed, if one is.
    fn pool(&self) -> Option<&str> {
        match self {
            Self::Resume { pool } => Some(pool),
            Self::Approve(approval) => Some(&approval.pool),
            Self::Retry { .. } => None,
        }
    }
}

/// What nodes do once they may continue.
#[derive(Debug, Clone)]
pub struct Preview {
    /// What it means for the pool and its nodes; `None`: there is no config to go to.
    pub change: Option<PoolChange>,
    /// Kinds that may not be listed, and were taken for absent.
    pub forbidden: Vec<String>,
}

/// Computes the preview.
///
/// # Errors
/// The pool or node does not exist, an object cannot be read, two configs cannot be compared, or a request failed.
pub async fn preview(client: &Client, what: Continue) -> Result<Preview, ActionError> {
    let listed = insight::for_planning(client).await?;
    crate::worked_out(move || of(listed, &what)).await
}

fn of(listed: Listed, what: &Continue) -> Result<Preview, ActionError> {
    let Listed { mut objects, forbidden } = listed;
    if let Some(name) = what.pool() {
        let pools = objects.iter_mut().map(|(_, object)| object).filter(|o| o["kind"] == "MachineConfigPool");
        pools.filter(|o| o["metadata"]["name"] == *name).for_each(|object| allow(object, what));
    }
    let situation = insight::situation(&objects)?;
    let configs = insight::configs(&objects)?;
    let policy = insight::disruption_policy(&objects)?;
    let now = Time(jiff::Timestamp::now());
    let (pool, from, to) = match what {
        Continue::Resume { .. } | Continue::Approve(_) => {
            let name = what.pool().unwrap_or_default();
            let Some(pool) = situation.pools.get(name) else {
                return Err(ActionError::Refused(format!(
                    "there is no pool {name:?}; `mco status` lists the pools"
                )));
            };
            let last = pool.status.as_ref().map(|status| status.configuration.name.clone());
            (name.to_owned(), last.unwrap_or_default(), pool.spec.configuration.name.clone())
        }
        Continue::Retry { node: name } => {
            let Some(node) = situation.nodes.get(name) else {
                return Err(ActionError::Refused(format!(
                    "there is no node {name:?}; `mco status --all` lists the nodes"
                )));
            };
            let text = |config: &Option<Arc<str>>| config.as_deref().map(str::to_owned).unwrap_or_default();
            let forecast = situation.forecast(&now);
            let pool = forecast.pools.iter().find(|pool| pool.nodes.iter().any(|n| *n.node == **name));
            let pool = pool.map(|pool| pool.pool.to_string());
            (pool.unwrap_or_default(), text(&node.current_config), text(&node.desired_config))
        }
    };
    let Some(target) = configs.get(&to).filter(|_| !pool.is_empty()) else {
        return Ok(Preview { change: None, forbidden });
    };
    let view = ChangeView { configs: &configs, policy: &policy, now: &now, secrets: Secrets::Hide };
    let change = PoolChange::of(view, &situation, &pool, &from, target)?;
    Ok(Preview { change: Some(change), forbidden })
}

/// Changes the pool as the action would.
fn allow(object: &mut Value, what: &Continue) {
    match what {
        Continue::Resume { .. } => object["spec"]["paused"] = json!(false),
        Continue::Approve(approval) => {
            let Approval { config, wave, by, .. } = &**approval;
            object["metadata"]["annotations"][own::APPROVED] = json!(format!("{config}/{wave}"));
            object["metadata"]["annotations"][own::APPROVED_BY] = json!(by);
        }
        Continue::Retry { .. } => {}
    }
}

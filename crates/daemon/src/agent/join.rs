//! How a node gets its first config: from the annotations that its first boot left, or from the pool that selects it.
//!
//! Not here: which pool that is (see `protocol::join`).

use super::planned_ahead::PlannedAhead;
use super::update::PlanError;
use super::{Agent, Next};
use crate::cluster::calls::is_ours;
use crate::node::machine::{Machine, MachineError};
use crate::protocol::clock::Moment;
use crate::protocol::join::{self, Membership};
use crate::protocol::{ConfigPair, Cost, EMPTY_CONFIG, FailureKind, Job, signed};
use api::names::annotation;
use client::spread;
use std::time::Duration;

/// How often a node without a pool, or a pool without a config, is checked again.
const JOIN_POLL: Duration = Duration::from_secs(15);

impl Agent {
    pub(super) async fn adopt_file(&mut self) -> Next {
        let notes = match self.host(Machine::first_annotations).await {
            Ok(notes) => notes,
            Err(e) => return self.failed(Job::AdoptFile, e.kind, None, e.text).await,
        };
        // A Node that has a config keeps its annotations: the file is from an earlier installation of this machine.
        if self.view.node.current.is_empty() {
            let notes = notes.into_iter().filter(|(k, _)| is_ours(k)).collect();
            match self.cluster.annotate_from_file(&notes, &self.view.node).await {
                Ok(node) => self.take_answer(&node),
                Err(error) => return self.write_failed(&error).await,
            }
        }
        match self.host(|m| m.retire_first_annotations().and_then(|()| m.facts())).await {
            Ok(disk) => self.view.disk = disk,
            Err(e) => return self.failed(Job::AdoptFile, e.kind, None, e.text).await,
        }
        Next::Step
    }

    pub(super) async fn join(&mut self) -> Next {
        let pools = match self.cluster.pools().await {
            Ok(pools) => pools,
            // The MachineConfigPool CRD does not exist yet: the installation is still in progress.
            Err(error) if error.is_not_found() => return self.not_yet("there are no MachineConfigPools yet"),
            Err(error) => return self.call_failed(Job::Join, &error).await,
        };
        let cluster = match self.cluster.kind().await {
            Ok(cluster) => cluster,
            Err(error) => return self.call_failed(Job::Join, &error).await,
        };
        let member = match join::membership(&self.view.node.labels, &pools, cluster) {
            Ok(member) => member,
            Err(error) => {
                return self.failed(Job::Join, FailureKind::Degraded, None, error.to_string()).await;
            }
        };
        match self.why_not_yet(&member).await {
            Ok(None) => {}
            Ok(Some(why)) => return self.not_yet(&why),
            Err(e) => return self.failed(Job::Join, e.kind, e.event, e.text).await,
        }
        let Membership::Pool { config, .. } = member else { return self.not_yet("it is in no pool") };
        let pair = ConfigPair { from: EMPTY_CONFIG.to_owned(), to: config.clone() };
        let cost = match self.plan(&pair).await {
            Ok((cost, work)) => {
                self.planned_ahead = Some(PlannedAhead::new(pair, work));
                cost
            }
            Err(PlanError::Call(error)) => return self.call_failed(Job::Join, &error).await,
            // The update itself will be refused for the same reason, and report it on the Node.
            Err(PlanError::Machine(_)) => Cost::default(),
        };
        let changes = join::first_annotations(&self.view.node, &config, cost);
        tracing::info!(%config, ?cost, first = ?changes.get(annotation::DESIRED_CONFIG), "first contact");
        self.write(changes, vec![], None, true).await
    }

    /// Why a node of this membership does not join yet. `None`: it joins now.
    pub(super) async fn why_not_yet(&self, member: &Membership) -> Result<Option<String>, MachineError> {
        let (pool, config, assumed) = match member {
            Membership::Pool { pool, config, assumed } => (pool, config, *assumed),
            Membership::NoPool => return Ok(Some("no MachineConfigPool selects this node".to_owned())),
            Membership::Unknown => {
                let why = "there is no ControllerConfig yet, so the node's pool is unknown";
                return Ok(Some(why.to_owned()));
            }
        };
        if config.is_empty() {
            return Ok(Some(format!("MachineConfigPool {pool} has no rendered config yet")));
        }
        if !assumed {
            return Ok(None);
        }
        let waits =
            |what: &str| format!("{what} indicates a control-plane host, but its Node has no role label yet");
        if let Some(path) = self.host(Machine::control_plane).await? {
            return Ok(Some(waits(&path)));
        }
        let found = match (self.cluster.api_servers().await, self.cluster.own_node().await) {
            (Ok(None), _) => {
                tracing::debug!("cannot read which hosts run API servers; deciding by what is on the disk");
                None
            }
            (Ok(Some(servers)), Ok(node)) => join::serves_the_api(&node, &servers),
            (Err(error), _) | (_, Err(error)) => return Ok(Some(error.chain())),
        };
        Ok(found.map(|address| waits(&format!("an API server at {address}"))))
    }

    fn not_yet(&self, why: &str) -> Next {
        tracing::info!(%why, "waiting for a config");
        Next::Wait(Some(Moment::now() + signed(spread(JOIN_POLL))))
    }
}

//! The agent's last work while its machine shuts down: it applies a config that waits for a window, so that the reboot that
//! somebody else has asked for serves both.
//!
//! Flow: the agent is told to stop → systemd says that the whole machine stops → the Node is read again → the change is planned →
//! `desiredConfig` is written to the Node (only if nobody has changed it since) → the change is applied. From then on it is an
//! update like all others whose reboot has begun.
//!
//! A change that needs no reboot waits for its window. So does a change of the operating system, which takes longer than a
//! shutdown. If the change cannot be made, the Node says so. After a power cut at that moment, the node's desired config is
//! the new one: the agent applies it after the boot, as if the window were open.
//!
//! Not here: which nodes may do this (see `protocol::waiting_config`), nor the reboot.

use super::Agent;
use crate::node::machine::PlannedUpdate;
use crate::protocol::waiting_config::applicable_at_shutdown;
use crate::protocol::{AgentNote, Changes, ConfigPair};
use api::events::AgentEvent;
use api::names::{annotation, own, state};
use std::time::Duration;

/// How long reading and planning may take: a machine that shuts down waits for it.
const LIMIT: Duration = Duration::from_secs(20);

impl Agent {
    /// Applies the config that waits for a window, if the whole machine shuts down.
    pub(super) async fn apply_waiting_config(&mut self) {
        if self.view.node.waiting.is_empty() || applicable_at_shutdown(&self.view).is_none() {
            return;
        }
        match self.host(|m| Ok(m.host().is_stopping()?)).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "whether the machine shuts down is not known: the waiting config is not applied");
                return;
            }
        }
        let planned = match tokio::time::timeout(LIMIT, self.plan_waiting_config()).await {
            Ok(planned) => planned,
            Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
        };
        let (pair, work) = match planned {
            Ok(Some(planned)) => planned,
            Ok(None) => return,
            Err(why) => {
                tracing::warn!(%why, "the waiting config cannot be planned while the machine shuts down, and is not applied");
                return;
            }
        };
        let told = Changes::from([
            (annotation::DESIRED_CONFIG, pair.to.clone()),
            (annotation::STATE, state::WORKING.to_owned()),
            // Its time is counted from now, not from an earlier way to the same config.
            (own::SENT, format!("{} {}", pair.to, jiff::Timestamp::now())),
        ]);
        let at = self.view.node.resource_version.clone();
        match self.cluster.annotate(&told, None, Some(&at)).await {
            Ok(node) => self.take_answer(&node),
            Err(error) => {
                tracing::warn!(
                    error = error.chain(),
                    "the Node cannot be written, so the waiting config is not applied"
                );
                return;
            }
        }
        tracing::info!(from = %pair.from, to = %pair.to, "the machine shuts down: applying the config that waits for a window");
        let (rules, before) = self.trial_of_next();
        match self.host(move |m| m.apply(work, &rules, &before)).await {
            Ok(notes) => {
                self.report_events(&notes);
                let text = format!(
                    "Applied the waiting config {} while this machine was shutting down, so that one reboot is enough for \
                     both",
                    pair.to
                );
                self.report_events(&[AgentNote::new(AgentEvent::WaitingConfigTaken, text)]);
            }
            Err(error) => {
                tracing::error!(%error, to = %pair.to, "the waiting config cannot be applied");
                let back = Changes::from([
                    (annotation::DESIRED_CONFIG, pair.from),
                    (annotation::STATE, state::DONE.to_owned()),
                ]);
                if let Err(error) = self.cluster.annotate(&back, None, None).await {
                    tracing::error!(error = error.chain(), "desiredConfig of the Node could not be set back");
                }
            }
        }
    }

    /// Plans the waiting config, by the Node as it is now. `None`: it is not applied at this shutdown.
    async fn plan_waiting_config(&mut self) -> Result<Option<(ConfigPair, PlannedUpdate)>, String> {
        let node = self.cluster.own_node().await.map_err(|error| error.chain())?;
        self.take_answer(&node);
        self.read_disk_state().await;
        let Some(pair) = applicable_at_shutdown(&self.view) else { return Ok(None) };
        let (cost, work) = self.plan(&pair).await.map_err(|error| error.to_string())?;
        if !cost.reboot || work.needs_fetch() {
            tracing::info!(to = %pair.to, "the waiting config needs no reboot, or another operating system: it is not applied at this shutdown");
            return Ok(None);
        }
        Ok(Some((pair, work)))
    }
}

//! The agent's last work while its machine shuts down: it takes along the config that waits for a window, so that the reboot that
//! somebody else has asked for does for both.
//!
//! Flow: the agent is told to stop → systemd says that the whole machine stops → the Node is read anew → the change is planned →
//! the Node is told (`desiredConfig`, only if nobody has changed it since) → the change is applied. From then on it is an update
//! like all others, whose reboot has begun.
//!
//! A change that needs no reboot waits for its window, and so does one that changes the operating system, which takes longer than
//! a shutdown. If the change cannot be made, the Node is told so. A power cut in that moment leaves the node with a config that it
//! is sent to: it takes that when it is back, as if the window were open.
//!
//! Not here: who may (see `protocol::along`), nor the reboot.

use super::Agent;
use crate::node::machine::{Machine, Work};
use crate::protocol::along::takes_along;
use crate::protocol::{Changes, Note, Pair};
use api::events::AgentEvent;
use api::names::{annotation, own, state};
use std::time::Duration;

/// How long reading and planning may take: a machine that shuts down waits for it.
const LIMIT: Duration = Duration::from_secs(20);

impl Agent {
    /// Takes along what waits, if the machine shuts down.
    pub(super) async fn take_along(&mut self) {
        if self.view.node.waiting.is_empty() || takes_along(&self.view).is_none() {
            return;
        }
        match self.host(Machine::is_stopping).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "whether the machine shuts down is not known; what waits for a window goes on waiting");
                return;
            }
        }
        let planned = match tokio::time::timeout(LIMIT, self.plan_along()).await {
            Ok(planned) => planned,
            Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
        };
        let (pair, work) = match planned {
            Ok(Some(planned)) => planned,
            Ok(None) => return,
            Err(why) => {
                tracing::warn!(%why, "what waits for a window goes on waiting: it cannot be planned while the machine shuts down");
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
                    "the Node cannot be told what is taken along, so nothing is"
                );
                return;
            }
        }
        tracing::info!(from = %pair.from, to = %pair.to, "the machine reboots: taking along what waits for a window");
        let (rules, before) = self.trial_of_next();
        match self.host(move |m| m.apply(work, &rules, &before)).await {
            Ok(notes) => {
                self.tell(&notes);
                let text = format!(
                    "Took config {} along, which waited for a window, because this machine was rebooted: one reboot does for both",
                    pair.to
                );
                self.tell(&[Note::new(AgentEvent::WaitingConfigTaken, text)]);
            }
            Err(error) => {
                tracing::error!(%error, to = %pair.to, "what waits for a window cannot be taken along");
                let back = Changes::from([
                    (annotation::DESIRED_CONFIG, pair.from),
                    (annotation::STATE, state::DONE.to_owned()),
                ]);
                if let Err(error) = self.cluster.annotate(&back, None, None).await {
                    tracing::error!(
                        error = error.chain(),
                        "the Node still says that it is sent to that config"
                    );
                }
            }
        }
    }

    /// Plans what waits, by the Node as it is now. `None`: it does not take that along.
    async fn plan_along(&mut self) -> Result<Option<(Pair, Work)>, String> {
        let node = self.cluster.own_node().await.map_err(|error| error.chain())?;
        self.take_answer(&node);
        self.look().await;
        let Some(pair) = takes_along(&self.view) else { return Ok(None) };
        let (cost, work) = self.plan(&pair).await.map_err(|error| error.to_string())?;
        if !cost.reboot || work.needs_fetch() {
            tracing::info!(to = %pair.to, "what waits for a window needs no reboot, or another operating system: it goes on waiting");
            return Ok(None);
        }
        Ok(Some((pair, work)))
    }
}

//! The agent's last work while its machine shuts down: it applies a config that waits for a window, so that the reboot that
//! somebody else has asked for serves both.
//!
//! Flow: the agent is told to stop → systemd says that the whole machine stops → the Node is read again → the change is planned →
//! `desiredConfig` is written to the Node (only if nobody has changed it since) → the change is applied. From then on it is an
//! update like all others whose reboot has begun.
//!
//! A change that needs no reboot waits for its window. So does a change of the operating system, which takes longer than a
//! shutdown. If the change cannot be made, an event says why, `desiredConfig` is set back, and the config goes on waiting. After a
//! power cut, or if the API server does not answer at that moment, the node's desired config may be the new one: the agent applies
//! it after the boot, as if the window were open.
//!
//! Not here: which nodes may do this (see `protocol::waiting_config`), nor the reboot.

use super::Agent;
use crate::node::machine::PlannedUpdate;
use crate::protocol::waiting_config::{AfterFailure, after_failure, applicable_at_shutdown};
use crate::protocol::{AgentNote, Changes, ConfigPair, NodeFacts};
use api::events::AgentEvent;
use api::names::{annotation, own};
use api::node_state::NodeState;
use client::CallError;
use std::time::Duration;

/// How long reading and planning may take, and setting `desiredConfig` back: a machine that shuts down waits for it.
const LIMIT: Duration = Duration::from_secs(20);
/// How often the change is planned when others write to the Node meanwhile, for example the kubelet.
const TRIES: u32 = 3;

impl Agent {
    /// Applies the config that waits for a window, if the whole machine shuts down.
    pub(super) async fn apply_waiting_config(&mut self) {
        if applicable_at_shutdown(&self.view).is_none() {
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
        let mut tries = 0;
        let (pair, work) = loop {
            let planned = match tokio::time::timeout(LIMIT, self.plan_waiting_config()).await {
                Ok(planned) => planned,
                Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
            };
            let (pair, work) = match planned {
                Ok(Some(planned)) => planned,
                Ok(None) => return,
                Err(why) => return self.report_not_taken(&self.view.node.waiting, &why),
            };
            tries += 1;
            match self.announce(&pair).await {
                Ok(()) => break (pair, work),
                // Somebody else has written to the Node since it was read.
                Err(error) if error.is_conflict() && tries < TRIES => {}
                Err(error) => {
                    // It may have been written all the same.
                    if error.is_unanswered() {
                        self.set_back(&pair, true).await;
                    }
                    return self.report_not_taken(&pair.to, &error.chain());
                }
            }
        };
        tracing::info!(from = %pair.from, to = %pair.to, "the machine shuts down: applying the config that waits for a window");
        let (rules, before) = self.trial_of_next();
        match self.host(move |m| m.apply(work, &rules, &before)).await {
            Ok(notes) => {
                self.report_events(&notes);
                self.report_taken(&pair.to);
            }
            Err(error) => self.waiting_config_failed(&pair, &error.to_string()).await,
        }
    }

    /// Reports a change that failed, and takes it back on the Node unless the host is in its new config all the same.
    async fn waiting_config_failed(&mut self, pair: &ConfigPair, why: &str) {
        self.read_disk_state().await;
        match after_failure(&self.view.disk, pair) {
            AfterFailure::InNewConfig => {
                tracing::error!(%why, to = %pair.to, "the waiting config is applied, but a later step has failed");
                self.report_taken(&pair.to);
            }
            AfterFailure::Undone => {
                self.set_back(pair, true).await;
                self.report_not_taken(&pair.to, why);
            }
            AfterFailure::Unfinished => {
                self.set_back(pair, false).await;
                self.report_not_taken(
                    &pair.to,
                    &format!("{why}. What is not undone yet is undone after the boot"),
                );
            }
        }
    }

    /// Writes to the Node that it is on its way to the config, unless anybody has changed it since it was read.
    async fn announce(&mut self, pair: &ConfigPair) -> Result<(), CallError> {
        let told = Changes::from([
            (annotation::DESIRED_CONFIG, pair.to.clone()),
            (annotation::STATE, NodeState::Working.to_string()),
            // Its time is counted from now, not from an earlier way to the same config.
            (own::SENT, format!("{} {}", pair.to, jiff::Timestamp::now())),
        ]);
        let node = self.cluster.annotate(&told, None, &self.view.node, true).await?;
        self.take_answer(&node);
        Ok(())
    }

    fn report_taken(&self, config: &str) {
        let text = format!(
            "Applied the waiting config {config} while this machine was shutting down, so that one reboot is enough for both"
        );
        self.report_events(&[AgentNote::new(AgentEvent::WaitingConfigTaken, text)]);
    }

    fn report_not_taken(&self, config: &str, why: &str) {
        tracing::error!(to = %config, %why, "the waiting config is not applied");
        let text = format!(
            "The waiting config {config} was not applied while this machine was shutting down: {why}"
        );
        self.report_events(&[AgentNote::new(AgentEvent::WaitingConfigNotTaken, text)]);
    }

    /// Sets `desiredConfig` back to the config that the host is in, unless somebody has sent the node elsewhere meanwhile. With
    /// `done`: nothing of the change is left on the host.
    async fn set_back(&mut self, pair: &ConfigPair, done: bool) {
        match tokio::time::timeout(LIMIT, self.try_set_back(pair, done)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(error = error.chain(), "desiredConfig of the Node could not be set back");
            }
            Err(_) => tracing::error!(
                "desiredConfig of the Node could not be set back: no answer within {} s",
                LIMIT.as_secs()
            ),
        }
    }

    async fn try_set_back(&mut self, pair: &ConfigPair, done: bool) -> Result<(), CallError> {
        // It is not on its way any more: if it is sent again, its time is counted from then.
        let mut back =
            Changes::from([(annotation::DESIRED_CONFIG, pair.from.clone()), (own::SENT, String::new())]);
        if done {
            back.insert(annotation::STATE, NodeState::Done.to_string());
        }
        let cluster = &self.cluster;
        let answer = client::retry::on_conflict(|| async {
            let node = cluster.own_node().await?;
            let seen = NodeFacts::of(&node);
            if seen.desired_state() != pair.to || seen.current_state() != pair.from {
                return Ok(node);
            }
            cluster.annotate(&back, None, &seen, true).await
        });
        let node = answer.await?;
        self.take_answer(&node);
        Ok(())
    }

    /// Plans the waiting config, by the Node as it is now. `None`: it is not applied at this shutdown.
    async fn plan_waiting_config(&mut self) -> Result<Option<(ConfigPair, PlannedUpdate)>, String> {
        let node = self.cluster.own_node().await.map_err(|error| error.chain())?;
        self.take_answer(&node);
        self.read_disk_state().await;
        let Some(pair) = applicable_at_shutdown(&self.view) else { return Ok(None) };
        let (cost, work) = self.plan(&pair).await.map_err(|error| error.to_string())?;
        if !cost.reboot || work.needs_fetch() {
            tracing::info!(to = %pair.to, "the waiting config is not applied at this shutdown: it needs no reboot, or it changes the operating system");
            return Ok(None);
        }
        Ok(Some((pair, work)))
    }
}

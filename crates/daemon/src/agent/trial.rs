//! The agent's part in the trial of a change: it looks at the node, and does what `protocol::trial` decides.
//!
//! Not here: that decision, the clock and the undo (see `host`), nor the unit that undoes the change if this process does
//! not run (see `entry::trial`).

use super::{Agent, Next};
use crate::protocol::clock::Moment;
use crate::protocol::{AgentNote, Changes, Job, Phase, StateBefore, TrialObservation};
use api::events::AgentEvent;
use api::names::own;
use api::trial::TrialRules;
use host::Check;
use std::time::Duration;
use tokio::net::TcpStream;

/// The time limit for a new connection to the API server.
const CONNECT: Duration = Duration::from_secs(5);
/// The time limit for its answer. It is shorter than that of other requests: together with the connection it has to fit into
/// the time that the host's own watch leaves the agent after the end of a trial (see `entry::trial`).
const ANSWER: Duration = Duration::from_secs(8);
/// How soon the host is asked again that could not be left: another process may be changing it.
const LEAVE_AGAIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);
/// The longest that a look may take.
#[cfg(test)]
pub(crate) const LONGEST_LOOK: Duration = CONNECT.saturating_add(ANSWER);

impl Agent {
    /// How the next change is tried, and how the node is before it. Settings that cannot be read are reported, and the
    /// defaults apply.
    pub(super) fn trial_of_next(&self) -> (TrialRules, StateBefore) {
        let node = &self.view.node;
        let rules = TrialRules::parse(&node.trial).unwrap_or_else(|why| {
            let text = format!("{}: {why}; the defaults apply", api::names::own::TRIAL);
            self.report_events(&[AgentNote::new(AgentEvent::TrialRulesInvalid, text)]);
            TrialRules::default()
        });
        let api_server = self.settings.api_server.clone();
        (rules, StateBefore { ready: node.ready, heard: node.heard, person: false, api_server })
    }

    /// Looks at the node whose change is on trial.
    pub(super) async fn observe_trial(&mut self) -> Next {
        let api = self.ask_api_server().await;
        match self.host(|m| m.observe_trial().and_then(|looked| Ok((looked, m.facts()?)))).await {
            Ok(((units, logins), disk)) => {
                self.view.disk = disk;
                let last = TrialObservation { at: Moment::now(), api, units, logins };
                let earlier = match std::mem::take(&mut self.view.phase) {
                    Phase::OnTrial { last, .. } => Some(last),
                    _ => None,
                };
                if earlier.is_none() {
                    tracing::info!(looked = ?last, "a change is on trial");
                }
                self.view.phase = Phase::OnTrial { last, earlier };
                Next::Step
            }
            Err(e) => self.failed(Job::Confirm, e.kind, e.event, e.text).await,
        }
    }

    /// Whether the API server can be reached anew, and what it says about the Node. A firewall may keep connections that
    /// exist and refuse others.
    async fn ask_api_server(&mut self) -> Result<(), String> {
        let connected = match self.settings.api_server.clone() {
            None => Ok(()),
            Some((host, port)) => {
                match tokio::time::timeout(CONNECT, TcpStream::connect((host.as_str(), port))).await {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(error)) => Err(format!("no new connection to {host}:{port}: {error}")),
                    Err(_) => {
                        Err(format!("no new connection to {host}:{port} within {} s", CONNECT.as_secs()))
                    }
                }
            }
        };
        let answered = match connected {
            Err(why) => Err((why, true)),
            Ok(()) => match tokio::time::timeout(ANSWER, self.cluster.own_node()).await {
                Err(_) => Err((format!("no answer within {} s", ANSWER.as_secs()), true)),
                Ok(Ok(node)) => {
                    self.take_answer(&node);
                    Ok(())
                }
                // The answer is that there is no such Node.
                Ok(Err(error)) if error.is_not_found() => Ok(()),
                Ok(Err(error)) => {
                    let silent = error.is_outage();
                    Err((error.chain(), silent))
                }
            },
        };
        answered.map_err(|(why, silent)| {
            if silent {
                self.view.silent_since.get_or_insert_with(Moment::now);
            }
            why
        })
    }

    /// Keeps the change.
    pub(super) async fn confirm_trial(&mut self) -> Next {
        match self.host(|m| m.confirm_trial().and_then(|config| Ok((config, m.facts()?)))).await {
            Ok((config, disk)) => {
                tracing::info!(config = config.as_deref().unwrap_or_default(), "the change is confirmed");
                (self.view.disk, self.view.phase) = (disk, Phase::Idle);
                // What could not be ended now, such as the counting of boots, is told by the comparison of the disk.
                self.view.checked = false;
                Next::Step
            }
            Err(e) => self.failed(Job::Confirm, e.kind, e.event, e.text).await,
        }
    }

    /// Undoes the change. The reboot that this may need is recorded on the disk.
    pub(super) async fn fail_trial(&mut self, check: Check, why: String) -> Next {
        let text =
            format!("The update is undone, because it can cut the node off and was not confirmed: {why}");
        let done = self.host(move |m| Ok(m.host().fail_trial(check, &why)?)).await;
        self.read_disk_state().await;
        self.view.checked = false;
        self.report_events(&[AgentNote::new(AgentEvent::TrialFailed, text)]);
        match done {
            Ok(_) => {
                self.view.phase = Phase::Idle;
                if check == Check::Api {
                    // From here on the old config is what does not reach the API server.
                    self.view.silent_since = Some(Moment::now());
                }
                Next::Step
            }
            Err(e) => self.failed(Job::Confirm, e.kind, e.event, e.text).await,
        }
    }

    /// Takes from the host what was brought for trials, and says so on the Node.
    pub(super) async fn leave_host(&mut self, asked: String) -> Next {
        if let Err(error) = self.host(|m| m.leave_host()).await {
            tracing::warn!(%error, "the units that continue a trial after a boot could not be removed from the host; trying \
                again");
            self.view.leave_again = Some(Moment::now() + LEAVE_AGAIN);
            // A person may have begun a trial by hand.
            self.read_disk_state().await;
            return Next::Step;
        }
        self.view.leave_again = None;
        tracing::info!(
            "the units for trials were removed from the host, because the product is being uninstalled"
        );
        self.write(Changes::from([(own::LEFT, asked)]), vec![], None, false).await
    }

    /// Has a config tried again that was undone.
    pub(super) async fn forget_tried(&mut self) -> Next {
        tracing::info!(tried = ?self.view.disk.tried, "the record of a config that was tried and undone is removed");
        let forgotten = self.host(|m| {
            m.host().forget_trial_failure()?;
            m.facts()
        });
        match forgotten.await {
            Ok(disk) => {
                self.view.disk = disk;
                // The refusal of that config is no reason to wait any more.
                if let Phase::Failed(_) = self.view.phase {
                    self.view.phase = Phase::Idle;
                }
                Next::Step
            }
            Err(e) => self.failed(Job::Recover, e.kind, e.event, e.text).await,
        }
    }
}

//! A candidacy: how a process runs for leadership, waits for it, notices its loss, and gives it up at its end.
//!
//! What it is not: the Lease itself (see [`crate::lease`]), or what is done in a term.

use crate::lease::{ByLease, Count, Handover, Role, TermSignals, always, campaign};
use kube::Client;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A process's candidacy, followed by a task of its own until [`Candidacy::end`].
#[derive(Debug)]
pub struct Candidacy {
    lead: watch::Receiver<Role>,
    give_up: CancellationToken,
    task: JoinHandle<()>,
}

impl Candidacy {
    /// Begins to run for the Lease of this name in [`api::names::NAMESPACE`]. While it is held, the results of `count` are written on it.
    pub fn by_lease(client: Client, name: &'static str, terms: Arc<TermSignals>, count: Count) -> Self {
        let me = ByLease::new(client, name, terms, count);
        Self::begin(|leading, give_up| tokio::spawn(campaign(me, leading, give_up)))
    }

    /// The candidacy of a process that is known to be the only one: it leads at once, as long as it runs.
    pub fn alone() -> Self {
        Self::begin(|leading, give_up| tokio::spawn(always(leading, give_up)))
    }

    fn begin(follow: impl FnOnce(watch::Sender<Role>, CancellationToken) -> JoinHandle<()>) -> Self {
        let leading = watch::Sender::new(Role::Standby);
        let (lead, give_up) = (leading.subscribe(), CancellationToken::new());
        Self { lead, task: follow(leading, give_up.clone()), give_up }
    }

    /// Waits until this process leads. `None`: `stop` came first, or the task ended by itself.
    pub async fn until_leader(&mut self, stop: &CancellationToken) -> Option<Handover> {
        let role = tokio::select! {
            // A process that ends begins no further term.
            biased;
            () = stop.cancelled() => return None,
            role = self.lead.wait_for(Role::leads) => role.map(|role| *role),
        };
        match role {
            Ok(Role::Leads(handover)) => Some(handover),
            Ok(Role::Standby) | Err(_) => None,
        }
    }

    /// Waits until this process no longer leads.
    pub async fn until_lost(&mut self) {
        // An error means that the task has ended: the Lease is no longer renewed.
        let _ = self.lead.wait_for(|role| !role.leads()).await;
    }

    /// Gives leadership up, so that the next candidate need not wait until the Lease expires.
    pub async fn end(self) {
        self.give_up.cancel();
        if let Err(error) = self.task.await {
            tracing::error!("leader election ended abnormally: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_single_candidate_holds_the_lease_until_it_ends() {
        let (mut candidacy, stop) = (Candidacy::alone(), CancellationToken::new());
        assert_eq!(candidacy.until_leader(&stop).await, Some(Handover::Clean));
        assert_eq!(candidacy.until_leader(&stop).await, Some(Handover::Clean), "it still leads");
        stop.cancel();
        for _ in 0..32 {
            assert_eq!(
                candidacy.until_leader(&stop).await,
                None,
                "a process that is ending does not acquire the lease"
            );
        }
        let mut lead = candidacy.lead.clone();
        candidacy.end().await;
        assert!(!lead.borrow_and_update().leads());
    }

    #[tokio::test(start_paused = true)]
    async fn a_candidate_stops_at_once_when_asked_and_a_lost_lease_is_noticed() {
        let (sender, stop) = (watch::Sender::new(Role::Standby), CancellationToken::new());
        let task = tokio::spawn(std::future::pending());
        let mut candidacy = Candidacy { lead: sender.subscribe(), give_up: CancellationToken::new(), task };
        stop.cancel();
        assert_eq!(candidacy.until_leader(&stop).await, None);
        sender.send_replace(Role::Leads(Handover::Unclean));
        assert_eq!(candidacy.until_leader(&CancellationToken::new()).await, Some(Handover::Unclean));
        let second = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(second, candidacy.until_lost()).await.is_err(), "it leads");
        sender.send_replace(Role::Standby);
        candidacy.until_lost().await;
        candidacy.task.abort();
    }
}

//! Approvals: what a person wrote into a pool's annotations, and whether a wave may begin by it.
//!
//! What it is not: who may write them (see the admission policies of the operator).

use super::Evaluation;
use crate::hold::Hold;
use crate::policy::rejected_elsewhere::{RejectedElsewhere, holds_without_waves};
use crate::policy::time;
use crate::policy::waves::Group;
use api::formats::text::cut;
use api::v1alpha1::{PoolProgress, WaveApproval};

/// A person's consent, as a pool's annotations hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The rendered config that it is for.
    pub config: String,
    /// The wave.
    pub wave: String,
    /// Who; empty if the annotation does not say.
    pub by: String,
}

impl ApprovalRequest {
    /// Reads the values of the two annotations.
    pub fn parse(value: &str, by: Option<&str>) -> Self {
        let (config, wave) = value.trim().split_once('/').unwrap_or((value.trim(), ""));
        let by = by.unwrap_or_default().trim();
        Self { config: config.to_owned(), wave: wave.to_owned(), by: cut(by, 1000).into_owned() }
    }
}

impl Evaluation<'_> {
    /// Why a wave may not begin, as far as people decide that.
    pub(super) fn approval(&self, group: &Group<'_>, progress: &mut PoolProgress) -> Option<Hold> {
        if !self.policy.has_progress() {
            // Nothing of its rollouts is stored, so an approval is not either.
            return holds_without_waves(self.about.elsewhere, self.about.pool);
        }
        let elsewhere = self.rejected_elsewhere(group);
        let needed = group.wave.is_some_and(|w| w.needs_approval);
        if !needed && elsewhere.is_none() {
            return None;
        }
        let stored = self.facts.progress.approvals.iter();
        if stored.filter(|a| a.config == self.config).any(|a| *a.wave == *group.name) {
            return None;
        }
        progress.approval_needed = !needed;
        let hold = self.take_approval(group, progress);
        match (hold, elsewhere) {
            (Hold::Approval { wrong: None, .. }, Some(elsewhere)) => Some(elsewhere),
            (hold, _) => Some(hold),
        }
    }

    /// Why the pool's first wave waits although its policy lets it go: another pool has rejected the same change.
    fn rejected_elsewhere(&self, group: &Group<'_>) -> Option<Hold> {
        let mut waves = self.policy.waves.iter();
        let is_first = waves.next().is_none_or(|w| *w.name == *group.name);
        let other = |e: &&RejectedElsewhere<'_>| Some(e.pool) != self.about.pool.metadata.name.as_deref();
        let mut others = self.about.elsewhere.iter().filter(other);
        others.find_map(|e| e.holds(self.about.pool, Some(&group.name))).filter(|_| is_first)
    }

    /// Records an approval of this wave, if there is one. Returns why the wave is held until then: the approval is missing, or
    /// is being written.
    fn take_approval(&self, group: &Group<'_>, progress: &mut PoolProgress) -> Hold {
        let wave = group.name.clone();
        match &self.facts.approval {
            Some(ask) if ask.config == self.config && *ask.wave == *wave => {
                let by = if ask.by.is_empty() { "somebody who did not say" } else { &ask.by };
                progress.approvals.retain(|a| *a.wave != *wave);
                progress.approvals.push(WaveApproval {
                    wave: wave.to_string(),
                    config: self.config.to_owned(),
                    by: by.to_owned(),
                    at: time(self.now),
                });
                progress.approval_needed = false;
                self.recording()
            }
            // An approval of an earlier wave of this rollout has done its work.
            Some(ask)
                if ask.config == self.config && self.policy.waves.iter().any(|w| *w.name == *ask.wave) =>
            {
                Hold::Approval { wave, wrong: None }
            }
            other => {
                let wrong = other.as_ref().map(|a| format!("{}/{}", a.config, a.wave));
                Hold::Approval { wave, wrong }
            }
        }
    }
}

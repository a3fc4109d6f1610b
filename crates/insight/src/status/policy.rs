//! Where a pool stands in its RolloutPolicy: the wave, what its gates said last, and whether its windows let nodes begin. Values
//! and words.
//!
//! What it is not: the policy itself, or why the pool is held: the plan says that (see `PoolRow::held`).

use api::v1alpha1::{GateOutcome, GateResult};
use jiff::Timestamp;
use rollout::policy::{Hours, Policy};
use rollout::{Hold, PoolPlan};
use serde::Serialize;
use std::fmt;

/// Where a pool stands in its policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRow {
    /// The RolloutPolicy.
    pub name: String,
    /// The wave that moves or soaks, or that begins next; absent: no config is being rolled out, or the policy has no waves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<WaveRow>,
    /// What each gate said last, as long as it is checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// Whether new updates may begin at this time; absent: the policy has neither windows nor freezes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<Hours>,
}

/// A wave of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveRow {
    /// Its name.
    pub name: String,
    /// Its place among the policy's waves, from 1; 0: the policy no longer has this wave.
    pub place: usize,
    /// How many waves the policy has.
    pub of: usize,
    /// What it does.
    #[serde(flatten)]
    pub state: WaveState,
}

/// What a wave does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum WaveState {
    /// A person has to let it begin.
    NeedsApproval,
    /// It has not begun, because its preconditions are not met yet.
    NotBegun,
    /// It has begun, but no further node of it goes now: the pool says why.
    Held,
    /// Its nodes may go.
    Moves,
    /// All of its nodes are done. It has to prove itself.
    Soaks {
        /// Until when.
        until: Timestamp,
    },
}

/// The row of a pool whose plan follows a policy. `policy`: what people ask for, where it can be read.
pub(super) fn row(plan: &PoolPlan, policy: Option<&Policy>, now: Timestamp) -> Option<PolicyRow> {
    let of_plan = plan.policy.as_ref()?;
    let progress = &of_plan.progress;
    let waves = policy.map(|p| p.waves.as_slice()).unwrap_or_default();
    let wave = progress.wave.as_ref().map(|name| {
        let place = waves.iter().position(|wave| *wave.name == **name).map_or(0, |at| at + 1);
        let soaks = progress.soak_until.as_ref().map(|until| until.0).filter(|until| *until > now);
        let state = match (&plan.hold, soaks) {
            (Some(Hold::Approval { .. } | Hold::RejectedElsewhere { wave: Some(_), .. }), _) => {
                WaveState::NeedsApproval
            }
            (_, Some(until)) => WaveState::Soaks { until },
            // Whether it has begun is stored only where a gate is asked before.
            (None, None) => WaveState::Moves,
            (Some(_), None) if !progress.wave_begun => WaveState::NotBegun,
            (Some(_), None) => WaveState::Held,
        };
        WaveRow { name: name.clone(), place, of: waves.len(), state }
    });
    Some(PolicyRow {
        name: of_plan.policy.to_string(),
        wave,
        gates: progress.gates.clone(),
        hours: policy.and_then(|p| p.hours(now)),
    })
}

impl PolicyRow {
    /// Whether there is a wave, a gate or a time to show.
    pub fn says_something(&self) -> bool {
        self.wave.is_some() || !self.gates.is_empty() || self.hours.is_some()
    }

    /// Its texts that were written by people or workloads, for masking.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let reason = match &mut self.hours {
            Some(Hours::Frozen { reason, .. }) => Some(reason),
            _ => None,
        };
        self.gates.iter_mut().map(|gate| &mut gate.message).chain(reason)
    }
}

impl fmt::Display for WaveRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wave {}", self.name)?;
        if self.place > 0 {
            write!(f, " ({} of {})", self.place, self.of)?;
        }
        match &self.state {
            WaveState::NeedsApproval => write!(f, " waits for an approval"),
            WaveState::NotBegun => write!(f, " has not begun"),
            WaveState::Held => write!(f, " has begun, and is held"),
            WaveState::Moves => write!(f, ": its nodes may go"),
            WaveState::Soaks { until } => write!(f, " has to prove itself until {until}"),
        }
    }
}

impl fmt::Display for PolicyRow {
    /// One line: `RolloutPolicy prod: wave canary (1 of 2): its nodes may go; gate shop passed; open until …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wave = self.wave.iter().map(ToString::to_string);
        let gates = self.gates.iter().map(|GateResult { gate, outcome, message }| {
            let said = match outcome {
                GateOutcome::Passed => "passed",
                GateOutcome::Failed => "failed",
                GateOutcome::Failing => "fails, but not often enough in a row yet",
                GateOutcome::NoAnswer => "has no answer yet",
            };
            let why = if message.is_empty() { String::new() } else { format!(" ({message})") };
            format!("gate {gate} {said}{why}")
        });
        let parts: Vec<String> =
            wave.chain(gates).chain(self.hours.iter().map(ToString::to_string)).collect();
        write!(f, "RolloutPolicy {}: {}", self.name, parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1alpha1::PoolProgress;
    use rollout::policy::{Freeze, Members, PolicyPlan, Wave, Window};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_wave_the_gates_and_the_hours_of_a_pool_are_told() {
        let now = at("2026-07-01T23:00:00Z");
        let night =
            Window::new("0 22 * * *", jiff::tz::TimeZone::UTC, jiff::SignedDuration::from_hours(6)).unwrap();
        let wave = |name: &str| Wave {
            name: name.into(),
            members: Members::Rest,
            max_unavailable: None,
            soak: jiff::SignedDuration::ZERO,
            needs_approval: false,
        };
        let policy = Policy {
            name: "prod".into(),
            waves: vec![wave("canary"), wave("rest")],
            windows: vec![night],
            ..Policy::default()
        };
        let progress = PoolProgress { wave: Some("rest".to_owned()), ..PoolProgress::default() };
        let plan = |progress: PoolProgress, hold: Option<Hold>| PoolPlan {
            hold,
            policy: Some(PolicyPlan { policy: "prod".into(), progress, ..PolicyPlan::default() }),
            ..PoolPlan::default()
        };
        let approval = || Hold::Approval { wave: "rest".into(), wrong: None };
        let begun = PoolProgress { wave_begun: true, ..progress.clone() };
        let soak =
            |until: &str| PoolProgress { soak_until: Some(api::k8s::Time(at(until))), ..begun.clone() };
        let gate = GateResult {
            gate: "shop".to_owned(),
            outcome: GateOutcome::Failed,
            message: "2 of 3 pods".to_owned(),
        };
        let gates = PoolProgress { wave: None, gates: vec![gate], ..PoolProgress::default() };
        let open = "updates may begin until 2026-07-02T04:00:00Z";
        for (progress, hold, says) in [
            (progress.clone(), None, "wave rest (2 of 2): its nodes may go; "),
            (progress.clone(), Some(Hold::Paused), "wave rest (2 of 2) has not begun; "),
            (progress, Some(approval()), "wave rest (2 of 2) waits for an approval; "),
            (begun.clone(), None, "wave rest (2 of 2): its nodes may go; "),
            (begun.clone(), Some(Hold::Paused), "wave rest (2 of 2) has begun, and is held; "),
            (
                soak("2026-07-01T23:30:00Z"),
                None,
                "wave rest (2 of 2) has to prove itself until 2026-07-01T23:30:00Z; ",
            ),
            // The next plan ends it.
            (soak("2026-07-01T22:59:00Z"), None, "wave rest (2 of 2): its nodes may go; "),
            (gates, None, "gate shop failed (2 of 3 pods); "),
            (PoolProgress::default(), None, ""),
        ] {
            let row = row(&plan(progress, hold), Some(&policy), now).unwrap();
            assert_eq!(row.to_string(), format!("RolloutPolicy prod: {says}{open}"));
        }
        assert_eq!(row(&PoolPlan::default(), Some(&policy), now), None, "no policy is in force");
        // A wave that is gone, of a policy that cannot be read.
        let unknown = row(&plan(begun, None), None, now).unwrap();
        assert_eq!(unknown.to_string(), "RolloutPolicy prod: wave rest: its nodes may go");

        let hours = |policy: &Policy, now: &str| policy.hours(at(now)).map(|hours| hours.to_string());
        let shut = hours(&policy, "2026-07-01T12:00:00Z").unwrap();
        assert_eq!(shut, "its next window opens at 2026-07-01T22:00:00Z");
        let freeze = Freeze {
            from: at("2026-07-01T00:00:00Z"),
            until: Some(at("2026-07-03T00:00:00Z")),
            reason: "year end".to_owned(),
            certificates: true,
        };
        let frozen = Policy { freezes: vec![freeze], ..policy };
        let shown = hours(&frozen, "2026-07-01T23:00:00Z").unwrap();
        assert_eq!(
            shown,
            "frozen until 2026-07-03T00:00:00Z: year end (changes of certificates alone may begin all the same)"
        );
        let shut = hours(&frozen, "2026-07-02T12:00:00Z").unwrap();
        assert_eq!(shut, "frozen until 2026-07-03T00:00:00Z: year end", "the window is shut as well");
        let window = |cron: &str, minutes| {
            let lasts = jiff::SignedDuration::from_mins(minutes);
            let windows = vec![Window::new(cron, jiff::tz::TimeZone::UTC, lasts).unwrap()];
            Policy { windows, ..Policy::default() }
        };
        // Monday; starts that come sooner than the window ends.
        for (cron, minutes, until) in [
            ("* 8-17 * * 1-5", 10, "2026-07-06T18:09:00Z"),
            ("*/5 * * * 1-5", 10, "2026-07-07T00:05:00Z"),
            ("0 8 * * 1-5", 60, "2026-07-06T09:00:00Z"),
        ] {
            let got = hours(&window(cron, minutes), "2026-07-06T08:30:00Z").unwrap();
            assert!(got.starts_with("updates may begin until 2026-07-"), "{cron}: {got}");
            if !cron.starts_with("*/5") {
                assert_eq!(got, format!("updates may begin until {until}"), "{cron}");
            }
        }
        let daily = |zone: jiff::tz::TimeZone| {
            Window::new("0 0 * * *", zone, jiff::SignedDuration::from_hours(24)).unwrap()
        };
        let always = Policy { windows: vec![daily(jiff::tz::TimeZone::UTC)], ..Policy::default() };
        assert_eq!(hours(&always, "2026-07-01T23:00:00Z").unwrap(), "updates may begin", "day after day");
        assert_eq!(hours(&Policy::default(), "2026-07-01T23:00:00Z"), None);
    }
}

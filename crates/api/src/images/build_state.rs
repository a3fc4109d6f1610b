//! How far the build of an OS image is, as its conditions say it.
//!
//! What it is not: what follows from that (see `build` for the build, and `rollout` for the nodes).

use crate::conditions::StatusCondition;
use crate::v1::MachineOSBuild;
use serde::{Deserialize, Serialize};

/// The progress of a build: which of its conditions is `True`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BuildState {
    /// None is `True`.
    #[default]
    Initial,
    /// `Prepared`: its Job exists, and no pod of it runs yet.
    Prepared,
    /// `Building`: a pod builds.
    Building,
    /// `Succeeded`: the image is pushed.
    Succeeded,
    /// `Failed`: it is not tried again.
    Failed,
    /// `Interrupted`: another build took its place, or somebody deleted its Job.
    Interrupted,
}

/// A build has one of them. If it has several, the one that ends the build counts.
const BY_WEIGHT: [(&str, BuildState); 5] = [
    ("Failed", BuildState::Failed),
    ("Interrupted", BuildState::Interrupted),
    ("Succeeded", BuildState::Succeeded),
    ("Building", BuildState::Building),
    ("Prepared", BuildState::Prepared),
];

impl BuildState {
    /// The state of a build.
    pub fn of(build: &MachineOSBuild) -> Self {
        let status = build.status.as_ref();
        Self::from_conditions(status.and_then(|s| s.conditions.as_deref()).unwrap_or_default())
    }

    /// The state of a build with these conditions.
    pub fn from_conditions<C: StatusCondition>(conditions: &[C]) -> Self {
        Self::from_true(conditions.iter().filter(|c| c.is_true()).map(StatusCondition::kind))
    }

    /// The state of a build with these types of conditions that are `True`.
    fn from_true<'a>(types: impl IntoIterator<Item = &'a str>) -> Self {
        let types: Vec<&str> = types.into_iter().collect();
        let counts = BY_WEIGHT.iter().find(|(type_, _)| types.contains(type_));
        counts.map_or(Self::Initial, |(_, state)| *state)
    }

    /// Whether the build has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Interrupted)
    }

    /// Whether a build may go from this state to another one. A Job's pod may come and go, but a build does not go back.
    pub fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Initial, _) => next != Self::Initial,
            (Self::Prepared, Self::Building) => true,
            (Self::Prepared | Self::Building, _) => next.is_terminal(),
            (Self::Succeeded | Self::Failed | Self::Interrupted, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BuildState::{self, Building, Failed, Initial, Interrupted, Prepared, Succeeded};

    #[test]
    fn a_build_goes_forward_and_a_build_that_has_ended_stays() {
        let all = [Initial, Prepared, Building, Succeeded, Failed, Interrupted];
        for from in all {
            for to in all {
                let may = match (from, to) {
                    (Initial, to) => to != Initial,
                    (Prepared, Building) => true,
                    (Prepared | Building, to) => [Succeeded, Failed, Interrupted].contains(&to),
                    _ => false,
                };
                assert_eq!(from.may_become(to), may, "{from:?} → {to:?}");
            }
        }
    }

    #[test]
    fn of_several_conditions_the_one_that_ends_the_build_counts() {
        for (types, want) in [
            (&[] as &[&str], Initial),
            (&["Prepared"], Prepared),
            (&["Prepared", "Building"], Building),
            (&["Building", "Succeeded"], Succeeded),
            (&["Succeeded", "Failed"], Failed),
            (&["Ready"], Initial),
        ] {
            assert_eq!(BuildState::from_true(types.iter().copied()), want, "{types:?}");
        }
    }
}

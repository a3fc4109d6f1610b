//! What a MachineConfigNode says of this node's PinnedImageSets: conditions, and the state of each set. Pure.
//!
//! Not here: when it is written (see `manager`).
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types_machineconfignode.go>.

use super::plan::PinnedSet;
use api::formats::text::cut;
use api::names::node_condition as c;
use api::v1::PinnedImageSetState;
use rollout::machine_config_nodes::StepCondition;
use std::collections::BTreeMap;

/// The longest error of a set. The API allows more, but it is kept once for each node.
const LONGEST_ERROR: usize = 2048;
/// How many images of a set an error names.
const NAMED: usize = 3;

/// How far a round is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Images are being pulled: how many are there, and how many there will be. `waits`: why none is pulled at present.
    Working { done: usize, all: usize, waits: Option<String> },
    /// Everything is pulled and pinned. `remark`: what the runtime cannot do.
    Done { remark: Option<String> },
    /// Something failed.
    Failed(Failures),
    /// The runtime does not answer. It may be restarting.
    Lost(Failures),
}

/// What failed, and for which sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failures {
    /// Everything that is missing, for one reason. The images are missing.
    All { missing: Vec<String>, why: String },
    /// Some images, each for its own reason.
    Images(BTreeMap<String, String>),
}

impl Failures {
    /// Why a set is not complete; `None` if it is.
    fn of(&self, set: &PinnedSet) -> Option<String> {
        match self {
            Self::All { missing, why } => set.images.iter().any(|i| missing.contains(i)).then(|| why.clone()),
            Self::Images(failed) => {
                let mine: Vec<_> = set.images.iter().filter_map(|i| Some((i, failed.get(i)?))).collect();
                let text = mine.iter().map(|(image, why)| format!("failed to pull image {image}: {why}"));
                (!mine.is_empty()).then(|| api::formats::text::statements(text, NAMED))
            }
        }
    }
}

/// What is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The two conditions, as far as they change.
    pub(super) conditions: Vec<StepCondition>,
    /// The state of each set.
    pub(super) sets: Vec<PinnedImageSetState>,
}

/// What is to be said of these sets, given what was said before.
pub(super) fn report(
    node: &str,
    sets: &[PinnedSet],
    outcome: &Outcome,
    before: &[PinnedImageSetState],
) -> Report {
    let condition = |type_: &str, status: &str, reason: &str, message: String| StepCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
    };
    let fetching = |more: &str| {
        let text = format!("node is prefetching images: {node}{more}");
        condition(c::PINNED_PROGRESSING, "True", "ImagePrefetch", text)
    };
    let conditions = match outcome {
        Outcome::Working { done, all, waits } => {
            let waits = waits.as_ref().map(|why| format!("; it waits: {why}")).unwrap_or_default();
            vec![fetching(&format!(" ({done} of {all} are there{waits})"))]
        }
        Outcome::Done { remark } => {
            let remark = remark.as_ref().map(|text| format!("; {text}")).unwrap_or_default();
            let text = format!("All pinned image sets complete{remark}");
            vec![
                condition(c::PINNED_PROGRESSING, "False", "AsExpected", text),
                condition(c::PINNED_DEGRADED, "False", "AsExpected", "All is good".to_owned()),
            ]
        }
        Outcome::Failed(failures) | Outcome::Lost(failures) => {
            let failed: Vec<&str> =
                sets.iter().filter(|set| failures.of(set).is_some()).map(|set| &*set.name).collect();
            let text = format!(
                "PinnedImageSets that are not complete on this node: {}; status.pinnedImageSets says why, and they are tried again",
                failed.join(", ")
            );
            vec![fetching(""), condition(c::PINNED_DEGRADED, "True", "PrefetchFailed", text)]
        }
    };
    let sets = sets.iter().map(|set| {
        let had = before.iter().find(|state| state.name == set.name);
        // A set that was deleted and made anew begins again with its first generation.
        let had = had.filter(|state| state.desired_generation <= Some(set.generation));
        let old = had.cloned().unwrap_or_default();
        let state =
            PinnedImageSetState { name: set.name.clone(), desired_generation: Some(set.generation), ..old };
        let complete = |state| PinnedImageSetState {
            current_generation: Some(set.generation),
            last_failed_generation: None,
            last_failed_generation_error: None,
            ..state
        };
        match outcome {
            Outcome::Working { .. } => state,
            Outcome::Done { .. } => complete(state),
            Outcome::Failed(failures) | Outcome::Lost(failures) => match failures.of(set) {
                None => complete(state),
                Some(why) => PinnedImageSetState {
                    last_failed_generation: Some(set.generation),
                    last_failed_generation_error: Some(cut(&why, LONGEST_ERROR).into_owned()),
                    ..state
                },
            },
        }
    });
    Report { conditions, sets: sets.collect() }
}

/// Whether the states cannot be written over the ones before, because a generation would decrease, which the API refuses.
pub(super) fn must_be_cleared_first(before: &[PinnedImageSetState], after: &[PinnedImageSetState]) -> bool {
    before.iter().any(|old| {
        let new = after.iter().find(|new| new.name == old.name);
        new.is_some_and(|new| new.desired_generation < old.desired_generation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, generation: i32, images: &[&str]) -> PinnedSet {
        PinnedSet {
            name: name.to_owned(),
            generation,
            images: images.iter().map(|i| (*i).to_owned()).collect(),
        }
    }

    /// Desired, current and failed generation of a set.
    type Generations = (i32, Option<i32>, Option<i32>);

    fn shown(report: &Report) -> (String, Vec<Generations>) {
        let conditions: Vec<_> =
            report.conditions.iter().map(|c| format!("{}={} {}", c.type_, c.status, c.reason)).collect();
        let sets = report.sets.iter().map(|s| {
            (s.desired_generation.unwrap_or_default(), s.current_generation, s.last_failed_generation)
        });
        (conditions.join("; "), sets.collect())
    }

    #[test]
    fn a_set_is_complete_only_when_none_of_its_images_failed() {
        let sets = [set("a", 3, &["x", "y"]), set("b", 2, &["z"])];
        let had = |name: &str, generation| PinnedImageSetState {
            name: name.to_owned(),
            desired_generation: Some(generation),
            current_generation: Some(generation),
            ..PinnedImageSetState::default()
        };
        let before = [had("a", 2), had("b", 2)];
        let fetching = "PinnedImageSetsProgressing=True ImagePrefetch";
        let failed = Outcome::Failed(Failures::Images([("y".to_owned(), "refused".to_owned())].into()));
        let all = Outcome::Failed(Failures::All { missing: vec!["z".to_owned()], why: "full".to_owned() });
        let degraded = format!("{fetching}; PinnedImageSetsDegraded=True PrefetchFailed");
        let done = "PinnedImageSetsProgressing=False AsExpected; PinnedImageSetsDegraded=False AsExpected";
        for (outcome, conditions, states) in [
            (
                Outcome::Working { done: 1, all: 3, waits: None },
                fetching,
                vec![(3, Some(2), None), (2, Some(2), None)],
            ),
            (Outcome::Done { remark: None }, done, vec![(3, Some(3), None), (2, Some(2), None)]),
            (failed.clone(), &degraded, vec![(3, Some(2), Some(3)), (2, Some(2), None)]),
            (all, &degraded, vec![(3, Some(3), None), (2, Some(2), Some(2))]),
        ] {
            assert_eq!(shown(&report("n", &sets, &outcome, &before)), (conditions.to_owned(), states));
        }
        let told = report("n", &sets, &failed, &before);
        assert_eq!(
            told.sets[0].last_failed_generation_error.as_deref(),
            Some("failed to pull image y: refused")
        );
        assert!(told.conditions[1].message.contains("not complete on this node: a;"), "{told:?}");
        // The failure goes with the success.
        let again = report("n", &sets, &Outcome::Done { remark: None }, &told.sets);
        assert_eq!(again.sets[0].last_failed_generation_error, None);
    }

    #[test]
    fn people_read_how_far_it_is() {
        let text = |outcome| report("worker-1", &[], &outcome, &[]).conditions[0].message.clone();
        let working =
            |waits: Option<&str>| Outcome::Working { done: 2, all: 5, waits: waits.map(str::to_owned) };
        assert_eq!(text(working(None)), "node is prefetching images: worker-1 (2 of 5 are there)");
        assert!(
            text(working(Some("the node is not Ready")))
                .ends_with("(2 of 5 are there; it waits: the node is not Ready)")
        );
        assert_eq!(text(Outcome::Done { remark: None }), "All pinned image sets complete");
    }

    #[test]
    fn a_set_that_was_made_anew_begins_anew() {
        let old = PinnedImageSetState {
            name: "a".to_owned(),
            desired_generation: Some(7),
            current_generation: Some(7),
            ..PinnedImageSetState::default()
        };
        let outcome = Outcome::Working { done: 0, all: 1, waits: None };
        let new = report("n", &[set("a", 1, &["x"])], &outcome, std::slice::from_ref(&old)).sets;
        assert_eq!((new[0].desired_generation, new[0].current_generation), (Some(1), None));
        assert!(must_be_cleared_first(std::slice::from_ref(&old), &new));
        assert!(!must_be_cleared_first(&new, &[old]) && !must_be_cleared_first(&new, &[]));
    }

    #[test]
    fn an_error_names_a_few_images_and_is_not_endless() {
        let images: Vec<String> = (0..9).map(|i| format!("image-{i}")).collect();
        let names: Vec<&str> = images.iter().map(String::as_str).collect();
        let failed = images.iter().map(|i| (i.clone(), "x".repeat(900))).collect();
        let told = report("n", &[set("a", 1, &names)], &Outcome::Failed(Failures::Images(failed)), &[]);
        let text = told.sets[0].last_failed_generation_error.clone().unwrap();
        assert!(
            text.chars().count() <= LONGEST_ERROR + 3
                && text.contains("image-1")
                && !text.contains("image-4")
        );
    }
}

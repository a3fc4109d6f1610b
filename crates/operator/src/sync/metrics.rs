//! The operator's metrics. Names and labels are part of the interface.
//!
//! What it is not: serving them (see `run`).

use super::Step;
use client::ProcessCounts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// `step`: a word of [`Step`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StepName {
    pub(super) step: String,
}

/// `result`: `done`, `waiting`, `failed` or `conflict`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Outcome {
    pub(super) result: &'static str,
}

/// All metrics of the operator.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) leader: Gauge,
    pub(super) passes: Family<Outcome, Counter>,
    pub(super) stopped: Family<StepName, Gauge>,
    pub(super) applied: Counter,
    pub(super) deleted: Counter,
}

impl Metrics {
    /// Registers them.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { leader, passes, stopped, applied, deleted } = &metrics;
        registry.register(
            "mco_operator_leader",
            "1 where this operator holds the Lease and acts",
            leader.clone(),
        );
        registry.register(
            "mco_operator_passes",
            "Passes through all steps, by their outcome",
            passes.clone(),
        );
        registry.register(
            "mco_operator_step_failed",
            "1 for the step that has failed, whether or not others wait for it",
            stopped.clone(),
        );
        registry.register(
            "mco_operator_applied",
            "Objects that were applied because they differed from the settings",
            applied.clone(),
        );
        registry.register(
            "mco_operator_deleted",
            "Objects that were deleted because the settings no longer ask for them",
            deleted.clone(),
        );
        metrics
    }

    /// What the process has counted, with its passes.
    pub(super) fn count(&self, counts: ProcessCounts) -> ProcessCounts {
        let ended = |result| self.passes.get_or_create(&Outcome { result }).get();
        let failed = ended("failed");
        let passes = failed + ended("done") + ended("waiting") + ended("conflict");
        ProcessCounts { passes, failed, ..counts }
    }

    /// Records that this step has failed; `None`: none has.
    pub(super) fn failed(&self, step: Option<Step>) {
        self.stopped.clear();
        if let Some(step) = step {
            self.stopped.get_or_create(&StepName { step: step.to_string() }).set(1);
        }
    }
}

/// One series of each metric, in the text format of OpenMetrics: for the reference page.
///
/// # Errors
/// A bug in the library that writes the text.
pub fn sample() -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    metrics.passes.get_or_create(&Outcome { result: "done" }).inc();
    metrics.failed(Some(Step::Rights));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

//! What a schema cannot express: rules in CEL that the API server checks, each with what it tells the user.
//!
//! What it is not: limits of single fields (see their `schemars` attributes).

use crate::definition::Cel;

pub(super) const ONE_TARGET: Cel = Cel {
    rule: "has(self.names) != has(self.selector)",
    message: "give either names, or a selector that selects pools by their labels",
};
pub(super) const SELECTS: Cel = Cel {
    rule: "!has(self.selector) || (has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || \
           (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
    message: "an empty selector selects no pool; give it matchLabels or matchExpressions",
};
pub(super) const ONE_SIZE: Cel = Cel {
    rule: "!(has(self.nodeSelector) && has(self.size))",
    message: "a wave has a nodeSelector or a size, not both; split it into two waves",
};
pub(super) const REST_IS_LAST: Cel = Cel {
    rule: "self.all(w, has(w.nodeSelector) || has(w.size) || w.name == self[size(self) - 1].name)",
    message: "a wave with neither nodeSelector nor size takes all nodes that are left, so only the last can be one",
};
pub(super) const AT_MOST_ALL: Cel = Cel {
    rule: "self.map(w, has(w.size) && type(w.size) == string ? int(string(w.size).replace('%', '')) : 0).sum() <= 100",
    message: "the waves' percentages are more than 100% together",
};
pub(super) const ONE_GATE: Cel = Cel {
    rule: "[has(self.nodeCondition), has(self.workloads), has(self.prometheus), has(self.http), \
           has(self.job)].filter(g, g).size() == 1",
    message: "a gate has exactly one of nodeCondition, workloads, prometheus, http and job; write one gate for each",
};
pub(super) const ALWAYS_ALONE: Cel = Cel {
    rule: "!('Always' in self.when) || size(self.when) == 1",
    message: "Always includes BeforeWave and Soak; write it alone",
};
pub(super) const JOB_NOT_ALWAYS: Cel = Cel {
    rule: "!has(self.job) || !('Always' in self.when)",
    message: "a job runs once a node; use it with BeforeWave or Soak",
};
pub(super) const TIMEOUT_FITS: Cel = Cel {
    rule: "has(self.job) || duration(self.timeout) <= duration(self.interval)",
    message: "timeout is longer than interval: the next check would begin before the last one has ended",
};
pub(super) const WORKLOADS_SELECT: Cel = Cel {
    rule: "(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || \
           (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
    message: "an empty selector selects no workload; give it matchLabels or matchExpressions",
};
pub(super) const SOME_TIME: Cel =
    Cel { rule: "duration(self) > duration('0s')", message: "must be longer than 0s" };
pub(super) const ENDS_LATER: Cel =
    Cel { rule: "self.from < self.to", message: "to must be after from, or the freeze never takes effect" };
pub(super) const NEEDS_WINDOWS: Cel = Cel {
    rule: "!has(self.maxDisruption) || (has(self.windows) && size(self.windows) > 0)",
    message: "maxDisruption applies outside of windows, but there are none; add windows, or remove maxDisruption",
};
pub(super) const SOAK_GATES_NEED_A_SOAK: Cel = Cel {
    rule: "!has(self.gates) || self.gates.all(g, !('Soak' in g.when) || size(g.when) > 1) || \
           has(self.waves) && self.waves.exists(w, has(w.soak))",
    message: "a gate is checked during the soak only, but no wave has a soak; give a wave a soak, or check \
        the gate at other times",
};

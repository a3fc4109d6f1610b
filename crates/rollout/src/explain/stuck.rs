//! Whether a pool can reach its config unless a person changes something. `mco status --until-updated` stops when it
//! cannot.
//!
//! What it is not: a guess at how long something takes. A node that fails is tried again and may succeed the next time;
//! only what stays as it is until somebody decides otherwise counts.

use crate::hold::{Hold, Reason, Wait};
use crate::plan::{NodeStep, PoolPlan, Step};
use crate::view::DaemonState;
use std::collections::BTreeSet;

impl Hold {
    /// Whether it stays like this until a person changes something.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::SelectsAll
            | Self::Deleting
            | Self::Paused
            | Self::MaxUnavailable(_)
            | Self::PrefetchLimit(_)
            | Self::NoMasterPool
            | Self::Approval { .. }
            | Self::EmptyWave { .. }
            | Self::RejectedElsewhere { .. }
            | Self::Policy(_)
            | Self::Rejected { .. }
            | Self::Frozen { until: None, .. }
            | Self::OutsideWindow { opens: None, .. }
            | Self::Selector { .. } => true,
            Self::Image(wait) => wait.is_error(),
            Self::OsImage(wait) => wait.needs_a_person(),
            Self::NothingRendered
            | Self::ConfigMissing(_)
            | Self::Masters(_)
            | Self::Arbiter(_)
            | Self::Frozen { until: Some(_), .. }
            | Self::OutsideWindow { opens: Some(_), .. }
            | Self::Gate { .. }
            | Self::Soak { .. }
            | Self::Prefetch { .. }
            | Self::Recording { .. }
            | Self::NodeFailed { .. }
            | Self::Refused(_) => false,
        }
    }
}

impl Reason {
    fn needs_a_person(&self) -> bool {
        matches!(self, Self::Cordoned | Self::Daemon(DaemonState::Unreconcilable, _))
    }
}

impl Step {
    /// Whether it stays like this until a person changes something, whatever other nodes do.
    fn needs_a_person(&self) -> bool {
        match self {
            Self::Unavailable(why) | Self::Failing(why) | Self::Waits(Wait::Node(why)) => {
                why.needs_a_person()
            }
            _ => false,
        }
    }
}

impl PoolPlan {
    /// Why the pool cannot reach its config until a person changes something; `None` if it may, or has reached it.
    pub fn stuck(&self) -> Option<String> {
        let left: Vec<&NodeStep> = self.nodes.iter().filter(|n| n.step != Step::Done).collect();
        if let Some(hold) = self.hold.as_ref().filter(|hold| hold.needs_a_person()) {
            // Nodes that were sent before still finish.
            let waits = left.iter().any(|n| n.step == Step::Waits(Wait::Pool));
            return (waits || self.target.is_none()).then(|| hold.to_string());
        }
        let stuck: BTreeSet<&str> =
            left.iter().filter(|n| n.step.needs_a_person()).map(|n| &*n.node).collect();
        if stuck.is_empty() {
            return None;
        }
        // The others come to rest behind these, or continue.
        let behind = |n: &&NodeStep| match &n.step {
            Step::Waits(Wait::Capacity { by, .. }) => by.iter().all(|node| stuck.contains(&**node)),
            _ => stuck.contains(&*n.node),
        };
        if !left.iter().all(behind) {
            return None;
        }
        let first = left.iter().find(|n| n.step.needs_a_person())?;
        let more = match stuck.len() {
            1 => String::new(),
            2 => "; and 1 more node".to_owned(),
            n => format!("; and {} more nodes", n - 1),
        };
        Some(format!("node {first}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;
    use std::sync::Arc;

    #[test]
    fn a_node_is_stuck_only_when_a_person_must_act() {
        let cordoned = || Step::Waits(Wait::Node(Reason::Cordoned));
        let behind = |by: &[&str]| {
            Step::Waits(Wait::Capacity { max: 1, by: by.iter().map(|n| Arc::from(*n)).collect() })
        };
        let state = |s| Step::Failing(Reason::Daemon(s, Some("why".into())));
        let moving = || Step::Moving { state: DaemonState::Working, rebooting: false, drain: None };
        type Row<'r> = (&'r str, Option<Hold>, Vec<Step>, Option<&'r str>);
        let rows: Vec<Row<'_>> = vec![
            ("done", None, vec![Step::Done], None),
            ("goes on", None, vec![Step::Done, moving(), behind(&["n1"])], None),
            ("paused", Some(Hold::Paused), vec![Step::Done, Step::Waits(Wait::Pool)], Some("paused")),
            ("paused, and all are there", Some(Hold::Paused), vec![Step::Done], None),
            ("paused, and the last one finishes", Some(Hold::Paused), vec![moving()], None),
            ("rendered in a moment", Some(Hold::NothingRendered), vec![Step::Waits(Wait::Pool)], None),
            (
                "a write that is retried",
                Some(Hold::Refused("x".to_owned())),
                vec![Step::Waits(Wait::Pool)],
                None,
            ),
            ("tried again", None, vec![state(DaemonState::Degraded), behind(&["n0"])], None),
            (
                "cannot be applied",
                None,
                vec![state(DaemonState::Unreconcilable), behind(&["n0"])],
                Some("n0"),
            ),
            (
                "one goes on",
                None,
                vec![state(DaemonState::Unreconcilable), moving(), behind(&["n0", "n1"])],
                None,
            ),
            (
                "a person's cordon",
                None,
                vec![cordoned(), cordoned(), behind(&["n0"])],
                Some("and 1 more node"),
            ),
            ("comes back by itself", None, vec![Step::Unavailable(Reason::NotReady("x".into()))], None),
        ];
        for (about, hold, steps, want) in rows {
            let nodes = steps.into_iter().enumerate();
            let nodes = nodes.map(|(i, step)| NodeStep { node: format!("n{i}").into(), step }).collect();
            let plan = PoolPlan { hold, nodes, target: Some(Target::default()), ..PoolPlan::default() };
            let said = plan.stuck();
            match want {
                None => assert_eq!(said, None, "{about}"),
                Some(want) => assert!(said.as_ref().is_some_and(|s| s.contains(want)), "{about}: {said:?}"),
            }
        }
    }
}

//! Whether a machine that somebody else reboots applies the config that waits for a window, so that one reboot serves both. Pure.
//!
//! The controller marks the nodes that may do so ([`own::WAITING`](api::names::own::WAITING)): they wait for nothing but a
//! window of their pool's RolloutPolicy. Only a host that is done with its present config, and has nothing else in progress,
//! applies it.
//!
//! What it is not: the execution (see `agent::waiting_config`), nor whether the change needs a reboot (its plan says that).

use super::facts::{DiskFacts, EMPTY_CONFIG, RebootFact, View};
use super::phase::{ConfigPair, Phase};
use api::node_state::NodeState;

/// The change that a host applies while it shuts down; `None`: none.
pub(crate) fn applicable_at_shutdown(view: &View) -> Option<ConfigPair> {
    let (node, disk) = (&view.node, &view.disk);
    let to = node.waiting.as_str();
    let is_done = node.seen
        && !node.deleted
        && node.leave.is_empty()
        && node.said_state() == Some(NodeState::Done)
        && node.current == node.desired
        && node.current != EMPTY_CONFIG
        && disk.current.as_deref() == Some(node.current.as_str());
    // Whoever uses images waits for their build.
    let plain = node.current_image.is_empty() && node.desired_image.is_empty();
    let owes = disk.open || disk.trial.is_some() || disk.reboot != RebootFact::None || disk.force;
    let refused = disk.tried.as_ref().is_some_and(|tried| tried.config == to) || view.trouble.is_some();
    let drifted = matches!(view.phase, Phase::Failed(_));
    let takes = !to.is_empty() && to != node.current && is_done && plain && !owes && !refused && !drifted;
    takes.then(|| ConfigPair { from: node.current.clone(), to: to.to_owned() })
}

/// What a change that failed during a shutdown has left on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// Nothing.
    Undone,
    /// Something that is undone after the boot. Whoever cannot read the disk assumes this.
    Unfinished,
    /// All of it: what failed came after the commit.
    InNewConfig,
}

/// See [`AfterFailure`].
pub(crate) fn after_failure(disk: &DiskFacts, pair: &ConfigPair) -> AfterFailure {
    match disk.current.as_ref() {
        _ if disk.open => AfterFailure::Unfinished,
        Some(current) if *current == pair.to => AfterFailure::InNewConfig,
        _ => AfterFailure::Undone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::clock::Moment;
    use crate::protocol::{Failure, FailureKind, Job, NodeFacts, TriedFacts};

    fn view() -> View {
        View {
            now: Moment::START,
            node: NodeFacts {
                seen: true,
                current: "a".into(),
                desired: "a".into(),
                state: NodeState::Done.to_string(),
                waiting: "b".into(),
                ..NodeFacts::default()
            },
            disk: DiskFacts { current: Some("a".into()), ..DiskFacts::default() },
            checked: true,
            phase: Phase::Idle,
            trouble: None,
            silent_since: None,
            leave_again: None,
            prefetch_failed: None,
        }
    }

    #[test]
    fn what_a_failed_change_has_left_is_read_from_the_disk() {
        let pair = ConfigPair { from: "a".into(), to: "b".into() };
        for (open, current, want) in [
            (false, Some("a"), AfterFailure::Undone),
            (false, None, AfterFailure::Undone),
            (false, Some("b"), AfterFailure::InNewConfig),
            (true, Some("a"), AfterFailure::Unfinished),
            (true, Some("b"), AfterFailure::Unfinished),
        ] {
            let disk = DiskFacts { open, current: current.map(str::to_owned), ..DiskFacts::default() };
            assert_eq!(after_failure(&disk, &pair), want, "{open} {current:?}");
        }
    }

    #[test]
    fn a_host_that_is_done_takes_what_waits_and_one_that_is_busy_does_not() {
        let pair = ConfigPair { from: "a".into(), to: "b".into() };
        assert_eq!(applicable_at_shutdown(&view()), Some(pair));
        let failed = Failure {
            job: Job::Check { config: "a".into() },
            kind: FailureKind::Degraded,
            reason: "drift".into(),
            tries: 1,
            retry_at: Moment::START,
        };
        let tried = TriedFacts { config: "b".into(), check: host::Check::Api, retry: false, in_doubt: false };
        type Happens = Box<dyn Fn(&mut View)>;
        let rows: Vec<(&str, Happens)> = vec![
            ("nothing waits", Box::new(|v| v.node.waiting.clear())),
            ("it is in it already", Box::new(|v| v.node.waiting = "a".into())),
            ("it is on its way", Box::new(|v| v.node.desired = "c".into())),
            ("it is not done", Box::new(|v| v.node.state = NodeState::Degraded.to_string())),
            ("another image", Box::new(|v| v.node.desired_image = "q.io/os@sha256:a".into())),
            ("the disk is in another", Box::new(|v| v.disk.current = Some("c".into()))),
            ("an open change", Box::new(|v| v.disk.open = true)),
            (
                "a reboot of its own",
                Box::new(|v| {
                    v.disk.reboot = RebootFact::Owed { config: "a".into(), tries: 0, cleared: true };
                }),
            ),
            ("it was tried and undone", Box::new(move |v| v.disk.tried = Some(tried.clone()))),
            ("it has drifted", Box::new(move |v| v.phase = Phase::Failed(failed.clone()))),
            ("it leaves", Box::new(|v| v.node.leave = "now".into())),
            ("the Node is not known", Box::new(|v| v.node.seen = false)),
        ];
        for (what, happens) in rows {
            let mut view = view();
            happens(&mut view);
            assert_eq!(applicable_at_shutdown(&view), None, "{what}");
        }
    }
}

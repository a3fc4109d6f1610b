//! Which nodes each wave has, and when nodes may begin at all: windows and freezes.
//!
//! What it is not: whose turn it is (see `progress`), or the choice among those nodes (see `decide`).

use crate::hold::Hold;
use crate::node::Flags;
use crate::order::order;
use crate::policy::calendar::{Freeze, WindowState};
use crate::policy::gates::first_and_count;
use crate::policy::{Policy, ZoneLimit, earlier, time};
use crate::view::NodeView;
use api::k8s::{IntOrString, LabelSelector};
use api::names::EMPTY_CONFIG;
use api::v1alpha1::MaxDisruption;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;

/// Nodes that go before others.
#[derive(Clone, Debug)]
pub struct Wave {
    /// Its name, for people and for approvals.
    pub name: Arc<str>,
    /// Which nodes it takes, out of those that no earlier wave takes.
    pub members: Members,
    /// How many of its nodes may be on their way at once, never more than the pool's own `maxUnavailable`; `None` means
    /// that one.
    pub max_unavailable: Option<IntOrString>,
    /// How long all its nodes must have been done before the next wave begins.
    pub soak: SignedDuration,
    /// It begins only once a person has approved it, for this very config.
    pub needs_approval: bool,
}

/// Which nodes a wave takes.
#[derive(Clone, Debug)]
pub enum Members {
    /// Those with these labels.
    Selected(LabelSelector),
    /// This many, in the order in which nodes go: by zone, then by age.
    Number(usize),
    /// This percentage of the pool's nodes, rounded up, in the same order.
    Percent(u8),
    /// All that are left.
    Rest,
}

/// What a policy allows now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowance {
    /// Nothing new begins.
    pub(crate) hold: Option<Hold>,
    /// The wave whose turn it is, and the nodes that may go; `None`: all nodes.
    pub(crate) turn: Option<(Arc<str>, HashSet<Arc<str>>)>,
    /// The wave's own limit, as it is written in the policy.
    pub(crate) max_unavailable: Option<IntOrString>,
    /// How many nodes of one zone may be out.
    pub(crate) zones: Option<ZoneLimit>,
    /// Nodes without any config get this one, whatever else is held: it is proved, and they carry no workload yet.
    pub(crate) joins: Option<Arc<str>>,
    /// Nodes that take what waits for a window, because what they are on their way to costs as much (see `progress::windows`).
    pub(crate) along: HashSet<Arc<str>>,
    /// All that nodes wait for is a window: those that may go then take what waits if somebody reboots them.
    pub(crate) only_window: bool,
    /// What the change costs is not known yet, so whether it waits for a window is not either.
    pub(crate) costs_unknown: bool,
    /// Nodes leave a rejected config: the newest first, and those that are out of service because of it, too.
    pub(crate) back: bool,
    /// Nodes are looked at before they are cordoned.
    pub(crate) looks: bool,
    /// When to plan again although nothing has changed.
    pub(crate) look_again: Option<Timestamp>,
}

impl Allowance {
    /// The config that a node without any gets, if one is proved.
    pub(crate) fn joining(&self, node: &NodeView) -> Option<&Arc<str>> {
        self.joins.as_ref().filter(|_| node.current_config.as_deref() == Some(EMPTY_CONFIG))
    }

    /// Whether this node may begin.
    pub(crate) fn allows(&self, node: &str) -> bool {
        self.turn.as_ref().is_none_or(|(_, nodes)| nodes.contains(node))
    }
}

/// The name of the nodes that no wave takes, unless a wave has it.
const REST: &str = "rest";

/// A name for the nodes that no wave takes that no wave has: progress is stored by name.
fn rest(waves: &[Wave]) -> Arc<str> {
    let taken = |name: &str| waves.iter().any(|wave| &*wave.name == name);
    let others = (2..=waves.len().saturating_add(2)).map(|n| format!("{REST}-{n}"));
    let free = std::iter::once(REST.to_owned()).chain(others).find(|name| !taken(name));
    free.unwrap_or_default().into()
}

/// A wave and its nodes.
pub(super) struct Group<'a> {
    pub(super) name: Arc<str>,
    /// `None`: the nodes that no wave takes.
    pub(super) wave: Option<&'a Wave>,
    pub(super) nodes: HashSet<Arc<str>>,
}

impl Group<'_> {
    pub(super) fn soak(&self) -> SignedDuration {
        self.wave.map_or(SignedDuration::ZERO, |w| w.soak)
    }
}

/// All waves with their nodes, in order; each node is in one. This does not depend on the nodes' progress. Waves without
/// nodes are there, too.
pub(super) fn groups<'a>(waves: &'a [Wave], nodes: &[(&NodeView, Flags)]) -> Vec<Group<'a>> {
    let mut left: Vec<&NodeView> = nodes.iter().map(|(n, _)| *n).collect();
    left.sort_unstable_by(|a, b| order(a, b));
    let all = left.len();
    let mut groups = vec![];
    for wave in waves {
        let others = match &wave.members {
            Members::Selected(selector) => {
                let (mine, others) = left.into_iter().partition(|n: &&NodeView| {
                    let label = |key: &str| n.labels.get(key);
                    api::formats::selector::matches_by(Some(selector), &label).unwrap_or(false)
                });
                left = mine;
                others
            }
            Members::Number(number) => left.split_off((*number).min(left.len())),
            Members::Percent(percent) => {
                let number = all.saturating_mul(usize::from(*percent)).div_ceil(100);
                left.split_off(number.min(left.len()))
            }
            Members::Rest => vec![],
        };
        let nodes = left.iter().map(|n| n.name.clone()).collect();
        groups.push(Group { name: wave.name.clone(), wave: Some(wave), nodes });
        left = others;
    }
    if !left.is_empty() || groups.is_empty() {
        let nodes = left.iter().map(|n| n.name.clone()).collect();
        groups.push(Group { name: rest(waves), wave: None, nodes });
    }
    groups
}

/// Waves whose selectors pick the same nodes, in words with the remedy. Such a node goes with the first of them, which may
/// not be what was meant.
pub(crate) fn overlap(waves: &[Wave], nodes: &[(&NodeView, Flags)]) -> Option<String> {
    let selectors: Vec<(&Wave, &LabelSelector)> = waves
        .iter()
        .filter_map(|wave| match &wave.members {
            Members::Selected(selector) => Some((wave, selector)),
            Members::Number(_) | Members::Percent(_) | Members::Rest => None,
        })
        .collect();
    if selectors.len() < 2 {
        return None;
    }
    let (mut shared, mut named) = (vec![], vec![false; selectors.len()]);
    for (node, _) in nodes {
        let label = |key: &str| node.labels.get(key);
        let picks = |s: &LabelSelector| api::formats::selector::matches_by(Some(s), &label).unwrap_or(false);
        let by: Vec<bool> = selectors.iter().map(|(_, selector)| picks(selector)).collect();
        if by.iter().filter(|picked| **picked).count() > 1 {
            shared.push(&*node.name);
            named.iter_mut().zip(by).for_each(|(named, by)| *named |= by);
        }
    }
    if shared.is_empty() {
        return None;
    }
    shared.sort_unstable();
    let waves = selectors.iter().zip(named).filter(|(_, named)| *named);
    let waves: Vec<&str> = waves.map(|((wave, _), _)| &*wave.name).collect();
    Some(format!(
        "waves {} select the same nodes ({}), and each of these goes with the first of them; if that is not meant, leave them \
         out of the later nodeSelector, for example with NotIn",
        waves.join(" and "),
        first_and_count(&shared)
    ))
}

/// What windows and freezes say about a point in time.
#[derive(Debug, Default)]
pub(super) struct CalendarAnswer {
    /// Why no node may begin, each reason with the changes that are exempt from it. A change has to be exempt from all of
    /// them.
    pub(super) holds: Vec<(Hold, Option<Exemption>)>,
    /// When this changes.
    pub(super) look_again: Option<Timestamp>,
}

/// Changes that windows and freezes let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exemption {
    /// Those of certificates and of nothing else.
    Certificates,
    /// Those that cost a node no more than this.
    UpTo(MaxDisruption),
}

/// Why no node may begin at this time, if none may, and when that changes. What passes a freeze still waits for a window.
pub(super) fn calendar(policy: &Policy, now: Timestamp) -> CalendarAnswer {
    let mut in_force: Vec<&Freeze> = policy.freezes.iter().filter(|f| f.holds(now)).collect();
    // A freeze without exemptions comes first. Among those, the one that ends last.
    in_force.sort_by_key(|f| (f.certificates, std::cmp::Reverse(f.until.unwrap_or(Timestamp::MAX))));
    let mut when = CalendarAnswer::default();
    if let Some(freeze) = in_force.first() {
        let hold =
            Hold::Frozen { until: freeze.until.map(time), reason: freeze.reason.clone(), unknown: None };
        when.holds.push((hold, freeze.certificates.then_some(Exemption::Certificates)));
        when.look_again = freeze.until;
        if !freeze.certificates {
            return when;
        }
    }
    let freezes = policy.freezes.iter().map(|f| f.from).filter(|from| *from > now).min();
    if policy.windows.is_empty() {
        when.look_again = earlier(when.look_again, freezes);
        return when;
    }
    let openings: Vec<WindowState> = policy.windows.iter().map(|w| w.at(now)).collect();
    // The window that closes last.
    let closes =
        openings.iter().filter_map(|o| if let WindowState::Open(end) = o { Some(*end) } else { None });
    match closes.max() {
        Some(closes) => when.look_again = earlier(when.look_again, earlier(freezes, Some(closes))),
        None => {
            let opens =
                openings.iter().filter_map(|o| if let WindowState::Shut(at) = o { *at } else { None });
            let opens = opens.min();
            let hold = Hold::OutsideWindow { opens: opens.map(time), unknown: None };
            when.holds.push((hold, policy.max_disruption.map(Exemption::UpTo)));
            when.look_again = earlier(when.look_again, opens);
        }
    }
    when
}

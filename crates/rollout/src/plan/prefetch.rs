//! Images that are on the nodes before they are needed: which nodes of a pool fetch the next OS image now, and which of them
//! have to before they go. Pure.
//!
//! Flow: the pool's annotation says on how many nodes at once. A node in service that needs another image is asked by an
//! annotation, and its agent answers by another (`api::images::prefetch`). No node is sent before all of them have answered; then those
//! go that have the image, and the others are asked again, those first that were asked least.
//!
//! Guarantees: no more nodes fetch at once than the annotation says, unless it was lowered. A node that cannot fetch holds up
//! itself only. A node that is out of service, or at work, is not waited for: it fetches in its turn, as without all this.
//!
//! What it is not: the fetch, its progress, or the pause before an agent tries again (see `daemon`).

use crate::hold::{Hold, Prefetching};
use crate::inputs::PoolInput;
use crate::node::Flags;
use crate::order::order;
use crate::patch::{Change, NodePatch};
use crate::plan::capacity::max_unavailable;
use crate::target::Target;
use crate::view::{DaemonState, NodeView, own};
use api::images::prefetch::{Answer, Request};
use api::k8s::IntOrString;
use api::names::EMPTY_CONFIG;
use std::collections::HashMap;
use std::sync::Arc;

/// What the nodes of a pool fetch. By default nothing, and what was asked for is taken back.
#[derive(Debug, Default)]
pub(super) struct Prefetch {
    /// What for; `None`: nothing is fetched ahead.
    target: Option<Target>,
    /// What nodes are newly asked.
    asks: HashMap<Arc<str>, Arc<str>>,
    /// The nodes that do not go yet.
    waits: HashMap<Arc<str>, Prefetching>,
    /// Why none goes.
    pub(super) hold: Option<Hold>,
}

/// On how many nodes at once; `None`: the pool does not ask for it.
///
/// # Errors
/// The annotation cannot be read; its text.
pub(super) fn limit(pool: &PoolInput<'_>, nodes: usize) -> Result<Option<usize>, String> {
    let text = pool.pool.metadata.annotations.as_ref().and_then(|all| all.get(own::PREFETCH));
    let Some(text) = text.map(|text| text.trim()).filter(|text| !text.is_empty()) else { return Ok(None) };
    let value = text.parse().map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int);
    if matches!(value, IntOrString::Int(0)) {
        return Ok(None);
    }
    max_unavailable(pool.name(), Some(&value), nodes).map(Some)
}

/// Whether holds of a policy leave the nodes free to fetch: whoever waits for a time, a wave or a consent is ready then.
pub(super) fn goes_on_while(hold: Option<&Hold>) -> bool {
    match hold {
        None => true,
        Some(hold) => matches!(
            hold,
            Hold::OutsideWindow { .. }
                | Hold::Gate { .. }
                | Hold::Approval { .. }
                | Hold::Soak { .. }
                | Hold::Recording { .. }
        ),
    }
}

impl Prefetch {
    /// What a pool's nodes fetch now for this target.
    pub(super) fn of(
        pool: &PoolInput<'_>,
        target: Target,
        at_once: usize,
        nodes: &[(&NodeView, Flags)],
    ) -> Self {
        let (mut busy, mut untried, mut failed) = (0, vec![], vec![]);
        let (mut of, mut left) = (0, 0);
        let mut waits = HashMap::new();
        // A reader of the cluster that does not inspect images can see from the requests on the nodes that there is
        // something to fetch.
        let is_asked = |(node, _): &(&NodeView, Flags)| {
            request(node, &target).is_some() || answer(node, &target).is_some()
        };
        let asked = nodes.iter().any(is_asked);
        for (node, flags) in nodes {
            if !fetches(pool, node, *flags, &target, asked) {
                continue;
            }
            of += 1;
            let (asked, answer) = (request(node, &target), answer(node, &target));
            let waiting = match (asked, answer) {
                (_, Some(Answer { failed: None, .. })) => continue,
                (Some(asked), answer) if answer.is_none_or(|a| a.request.attempt < asked.attempt) => {
                    busy += 1;
                    answer.and_then(|a| a.failed).map_or(Prefetching::Now, fails)
                }
                (_, Some(Answer { failed: Some(why), request })) => {
                    failed.push((request.attempt, *node));
                    fails(why)
                }
                (_, None) => {
                    untried.push(*node);
                    Prefetching::Later
                }
            };
            left += usize::from(answer.is_none());
            waits.insert(node.name.clone(), waiting);
        }
        untried.sort_unstable_by(|a, b| order(a, b));
        failed.sort_unstable_by(|(tries, a), (more, b)| tries.cmp(more).then_with(|| order(a, b)));
        let untried = untried.into_iter().map(|node| (0, node));
        let mut asks = HashMap::new();
        for (tries, node) in untried.chain(failed).take(at_once.saturating_sub(busy)) {
            let request = Request {
                attempt: tries.saturating_add(1),
                config: &target.config,
                image: target.image.as_deref().unwrap_or_default(),
            };
            if tries == 0 {
                waits.insert(node.name.clone(), Prefetching::Now);
            }
            asks.insert(node.name.clone(), Arc::from(request.to_string()));
        }
        // Once a node is in the new config, or on its way there, each of the others waits for itself only.
        let begun = nodes.iter().any(|(_, flags)| flags.at_target);
        let hold = (left > 0 && !begun).then_some(Hold::Prefetch { left, of, at_once });
        Self { target: Some(target), asks, waits, hold }
    }

    /// Why this node does not go yet.
    pub(super) fn wait(&self, node: &str) -> Option<&Prefetching> {
        self.waits.get(node)
    }

    /// Asks a node, takes back what it was asked for something else, and removes an answer that is about something else.
    /// `stays`: it needs the config still, and is not sent to it by this plan.
    pub(super) fn adjust(&self, node: &NodeView, stays: bool, patch: &mut NodePatch) {
        let target = self.target.as_ref().filter(|_| stays);
        if let Some(ask) = self.asks.get(&node.name).filter(|_| stays) {
            patch.prefetch = Change::Set(ask.clone());
        } else if node.prefetch.is_some() && target.is_none_or(|t| request(node, t).is_none()) {
            patch.prefetch = Change::Remove;
        }
        if node.prefetched.is_some() && target.is_none_or(|t| answer(node, t).is_none()) {
            patch.prefetched = Change::Remove;
        }
    }
}

fn fails(why: &str) -> Prefetching {
    Prefetching::Failed { why: why.to_owned() }
}

/// What a node was asked for this target.
fn request<'a>(node: &'a NodeView, target: &Target) -> Option<Request<'a>> {
    let request = Request::parse(node.prefetch.as_deref()?)?;
    request.is_for(&target.config, target.image.as_deref()).then_some(request)
}

/// What its agent answered.
fn answer<'a>(node: &'a NodeView, target: &Target) -> Option<Answer<'a>> {
    let answer = Answer::parse(node.prefetched.as_deref()?)?;
    answer.request.is_for(&target.config, target.image.as_deref()).then_some(answer)
}

/// Whether a node has to fetch an image for this target, and its agent has the time for it.
fn fetches(pool: &PoolInput<'_>, node: &NodeView, flags: Flags, target: &Target, asked: bool) -> bool {
    let current = node.current_config.as_deref().filter(|config| *config != EMPTY_CONFIG);
    let rests = flags.done && node.state == DaemonState::Done && node.not_ready.is_none();
    let Some(current) = current.filter(|_| flags.candidate && rests) else { return false };
    match (&target.image, &node.current_image) {
        (Some(image), runs) => runs.as_ref() != Some(image),
        (None, Some(_)) => true,
        (None, None) => asked || pool.other_image.as_ref().is_none_or(|configs| configs.contains(current)),
    }
}

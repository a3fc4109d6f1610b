//! The fetch of the next OS image while the node is in its config and in service: when the agent does what it is asked.
//!
//! Not here: which nodes are asked, and how often (`rollout`), nor the texts of question and answer (`api::images::prefetch`).

use super::action::Action;
use super::facts::View;
use super::phase::ConfigPair;
use api::images::prefetch::{Answer, Request};
use desired::with_image;

/// What to fetch now. `None`: nothing is asked, or it is answered, or it failed a moment ago.
pub(super) fn prefetch(view: &View) -> Option<Action> {
    let asked = Request::parse(&view.node.prefetch)?;
    let to = with_image(asked.config, asked.image);
    let answered = Answer::parse(&view.node.prefetched).is_some_and(|answer| answer.request == asked);
    let pauses = view.prefetch_failed.as_ref().is_some_and(|(of, until)| *of == to && view.now < *until);
    let from = view.config_on_disk();
    (!answered && !pauses).then_some(Action::Prefetch(ConfigPair { from, to }))
}

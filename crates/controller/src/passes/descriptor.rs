//! What the rest of the controller knows of a pass: one value, declared beside the pass's code. A new pass is a file
//! with a [`Descriptor`], its `mod` line, and a line in the list of all passes ([`crate::queue::every_pass`]).

use crate::change::{Effects, Marker, Reaction};
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::input::Input;
use client::lease::Handover;
use futures::future::BoxFuture;
use std::sync::Arc;

/// The description of a pass.
pub(crate) struct Descriptor {
    /// Which pass it is.
    pub(crate) pass: Pass,
    /// How its queue is worked off.
    pub(crate) work: Work,
    /// What it reads, from caches or from the API server. The watches that start, and rights to read, follow from it.
    pub(crate) reads: &'static [&'static Input],
    /// The rights that it needs besides reading that.
    pub(crate) rights: &'static [Right],
    /// Which keys a change marks.
    pub(crate) marked_by: Marker,
    /// What else it does when something changes, such as to forget what another leader may have changed.
    pub(crate) effects: Effects<Shared>,
    /// Creates the function that runs over one key. Called once for each term.
    pub(crate) start: fn(&Arc<Shared>, Handover) -> Run,
}

/// The function that runs over one key.
pub(crate) type Run = Box<dyn Fn(String) -> BoxFuture<'static, Outcome> + Send + Sync>;

impl Descriptor {
    /// How the pass answers to a change.
    pub(crate) const fn reaction(&self) -> Reaction<Shared> {
        Reaction { pass: self.pass, marked_by: self.marked_by, effects: self.effects }
    }

    /// All rights that the pass needs.
    pub(crate) fn all_rights(&self) -> impl Iterator<Item = Right> {
        self.reads.iter().flat_map(|input| input.rights()).chain(self.rights.iter().copied())
    }
}

/// A pass that remembers nothing between runs.
pub(crate) fn stateless<F, Fut>(shared: &Arc<Shared>, pass: F) -> Run
where
    F: Fn(Arc<Shared>, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let shared = shared.clone();
    Box::new(move |key| Box::pin(pass(shared.clone(), key)))
}

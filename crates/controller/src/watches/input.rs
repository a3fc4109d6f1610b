//! Something that passes read, as their descriptors name it: the right to read it and the watch that keeps it in a cache both follow
//! from this value.
//!
//! What it is not: the list of what there is to read (see `inputs`).

use super::Watches;
use crate::cache::settings::Setting;
use crate::cache::watch::ReadRequirement;
use crate::kind::Kind;
use crate::rights::{Place, Right};

/// Something that passes read: the objects of a kind, or some of them, or something that is no object.
#[derive(Debug)]
pub(crate) struct Input {
    /// The kind. `None`: it is no object of the API server.
    pub(crate) kind: Option<Kind>,
    /// Where these objects are.
    place: Place,
    /// The names of these objects; empty: all of the kind.
    names: &'static [&'static str],
    pub(crate) way: Way,
}

/// How passes get to see it.
#[derive(Debug)]
pub(crate) enum Way {
    /// A watch keeps it in a cache for as long as this process lives.
    Watched {
        /// What happens when it cannot be read.
        need: ReadRequirement,
        /// Starts the watch.
        start: Start,
    },
    /// The same for a setting of the cluster: all of these are watched in one way.
    Setting(Setting),
    /// A task of its own notices that it has changed, and keeps nothing of it. Passes read it when they need it.
    Followed(Follow),
    /// Passes request it when they need it. No change of it marks a pass.
    Requested,
}

/// Starts a watch of a kind.
pub(crate) type Start = fn(&Watches<'_>, Kind, ReadRequirement);

/// Starts the task that follows something.
pub(crate) type Follow = fn(&Watches<'_>);

/// The verbs that watching and reading a kind requires.
const READ: [&str; 3] = ["get", "list", "watch"];

impl Input {
    /// A kind that is watched.
    pub(super) const fn watched(kind: Kind, need: ReadRequirement, start: Start) -> Self {
        Self { way: Way::Watched { need, start }, ..Self::requested(kind) }
    }

    /// A setting of the cluster.
    pub(super) const fn setting(setting: Setting) -> Self {
        Self { way: Way::Setting(setting), ..Self::requested(setting.kind) }
    }

    /// A kind that is requested.
    pub(super) const fn requested(kind: Kind) -> Self {
        Self { kind: Some(kind), place: Place::Cluster, names: &[], way: Way::Requested }
    }

    /// Something that is no object of the API server.
    pub(super) const fn outside(follow: Follow) -> Self {
        Self { kind: None, place: Place::Cluster, names: &[], way: Way::Followed(follow) }
    }

    /// The same, with a task that notices changes.
    pub(super) const fn followed(self, follow: Follow) -> Self {
        Self { way: Way::Followed(follow), ..self }
    }

    /// The same in our own namespace only.
    pub(super) const fn in_own_namespace(self) -> Self {
        Self { place: Place::OwnNamespace, ..self }
    }

    /// The same, limited to objects with these names.
    pub(super) const fn with_names(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }

    /// The rights to read it.
    pub(crate) fn rights(&self) -> impl Iterator<Item = Right> {
        let Self { kind, place, names, way: _ } = self;
        let of = |kind: Kind| READ.map(|verb| Right { place: *place, names, ..Right::new(verb, kind) });
        kind.map(of).into_iter().flatten()
    }
}

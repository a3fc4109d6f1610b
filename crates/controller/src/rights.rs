//! What the controller may do with which kinds of objects, and where: the values that descriptors of passes are made of.
//!
//! What it is not: which pass needs which right (see `passes`).

use crate::kind::Kind;

/// Where a right holds, or where the objects are that a pass reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the whole cluster.
    Cluster,
    /// In the controller's own namespace.
    OwnNamespace,
}

/// A right that a part of the controller needs.
///
/// The right to update `finalizers` is for API servers with the admission plugin OwnerReferencesPermissionEnforcement. They ask for it
/// when an object gets an owner that must not be deleted before it. The objects that are made from these kinds have such owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Where it holds.
    pub place: Place,
    /// The API group; empty: the core group.
    pub group: &'static str,
    /// The plural of the kind.
    pub plural: &'static str,
    /// The subresource; empty: the object itself.
    pub subresource: &'static str,
    /// The verb.
    pub verb: &'static str,
    /// The names of the objects that it is limited to; empty: all objects of the kind.
    pub names: &'static [&'static str],
}

impl Right {
    /// A right to all objects of a kind.
    pub(crate) const fn new(verb: &'static str, kind: Kind) -> Self {
        let Kind { group, plural, .. } = kind;
        Self { place: Place::Cluster, group, plural, subresource: "", verb, names: &[] }
    }

    /// A right to the objects of a kind with these names.
    pub(crate) const fn named(verb: &'static str, kind: Kind, names: &'static [&'static str]) -> Self {
        Self { names, ..Self::new(verb, kind) }
    }

    /// The same right to a subresource.
    pub(crate) const fn on(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    /// The same right in the controller's own namespace only.
    pub(crate) const fn in_own_namespace(self) -> Self {
        Self { place: Place::OwnNamespace, ..self }
    }

    /// The kind as rules name it: the plural, with the subresource after a slash.
    pub fn resource(&self) -> String {
        match self.subresource {
            "" => self.plural.to_owned(),
            subresource => format!("{}/{subresource}", self.plural),
        }
    }
}

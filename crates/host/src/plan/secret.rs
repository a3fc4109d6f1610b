//! A text that is part of a plan and is never shown: a hash of a password, or somebody's own keys.
//!
//! Not here: the masking of secrets in texts (see `desired::mask`).

use serde::{Serialize, Serializer};
use std::fmt;

/// A secret text: neither printed nor serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str("<secret>")
    }
}

//! Contents of files: compared by value, never printed.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Contents of a file: compared by value, shown only by their length. A hash would confirm a guess of a secret; it is
/// shown, together with the path, only for files that everybody may read.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(Arc<[u8]>);

impl Content {
    /// Takes bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// SHA-256 in hex.
    #[must_use]
    pub fn sha256(&self) -> String {
        sha256(&self.0)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{self:?}"))
    }
}

/// SHA-256 in hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    api::formats::text::hex(&Sha256::digest(bytes))
}

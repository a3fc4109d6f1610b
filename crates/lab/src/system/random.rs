//! Random numbers, for names and subnets that two labs should not choose at the same time.
//!
//! Not here: anything that must not be guessed.

/// A random number without a library: the keys of the standard library's hasher are random.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

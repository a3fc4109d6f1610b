//! Chance, as much of it as waits need so that nodes do not act at the same instant.
//!
//! What it is not: random numbers for anything else.

/// A number from 0 to 1, different for each process and call: the hasher's random keys are the source, as nothing
/// here needs more than that nodes do not act at the same instant.
pub(crate) fn jitter() -> f64 {
    use std::hash::{BuildHasher, Hasher};
    let bits = std::collections::hash_map::RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

//! A term as leader: the lease, the proof at the start that the caches are up to date, and the fence against late
//! requests of an earlier leader.

pub(crate) mod catch_up;
pub(crate) mod fence;
pub(crate) mod readiness;

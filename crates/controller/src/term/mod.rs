//! A term as leader: the lease, caches that are proved up to date at its begin, and an end to what an earlier leader
//! has sent.

pub(crate) mod catch_up;
pub(crate) mod fence;
pub(crate) mod leader;

//! What machines need to boot into a pool.

pub(crate) mod pointer;
pub(crate) mod token;

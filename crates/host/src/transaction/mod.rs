//! One change of a host, all of it or nothing: its journal, the lock, and what it takes back.
//!
//! What it is not: what the change is (see `plan`), nor a single change of a file (see `disk`).

pub(crate) mod apply;
pub(crate) mod journal;
pub(crate) mod lock;
pub(crate) mod reboot;
pub(crate) mod recover;
pub(crate) mod shadow;

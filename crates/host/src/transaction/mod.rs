//! One change of a host, all of it or nothing: the journal, the lock, applying and undoing.
//!
//! Not here: what the change consists of (see `plan`), nor a single change of a file (see `disk`).

mod after_boot;
pub(crate) mod apply;
pub(crate) mod effects;
pub(crate) mod etc_merge;
pub(crate) mod journal;
pub(crate) mod live_extensions;
pub(crate) mod lock;
mod os_drift;
pub(crate) mod reboot;
pub(crate) mod recover;
pub(crate) mod shadow;
pub(crate) mod trial;
mod trial_units;

//! Talking to the API server: one request under a timeout ([`call`]), what its error means ([`CallError`]), the wait
//! before the next attempt ([`Backoff`]), an error with its causes as one line ([`chain`]), a patch of what differs ([`merge_patch`]), a typed object from an
//! untyped one ([`decode`]), what a process counts of its requests ([`ProcessCounts`]), the proxy that leads there
//! ([`settle_proxy`]), the right that is missing ([`MissingRight`]), the answer to a watch that failed ([`watch_status`]), when a
//! watch works again ([`WatchStarts`]),
//! and which of several processes acts ([`lease`]).
//!
//! What it is not: retries, caches or credentials. The caller decides whether and when to try again.

mod backoff;
mod call;
mod chain;
mod decode;
pub mod lease;
pub mod merge_patch;
mod missing_right;
mod process_counts;
mod proxy;
mod watch_starts;
mod watch_status;

pub use backoff::{Backoff, Series, jitter};
pub use call::{CallError, REQUEST_TIMEOUT, call, call_optional, call_within, if_found};
pub use chain::{chain, chain_without_refusal};
pub use decode::decode;
pub use missing_right::MissingRight;
pub use process_counts::{ProcessCounts, Requests, counted};
pub use proxy::{names_proxy, settle_proxy};
pub use watch_starts::{WatchStarts, is_answer, is_answered, watch_with_starts, with_watch_starts};
pub use watch_status::{watch_code, watch_status};

//! Talking to the API server: one request under a timeout ([`call`]), what its error means ([`CallError`]), the wait before the next
//! attempt ([`Backoff`]), a request that is sent again ([`retry`]), an error with its causes as one line ([`chain`]), a patch of what
//! differs ([`merge_patch`]), a list in pages ([`pages()`]), a typed object from an untyped one ([`decode`]), what a process counts of
//! its requests ([`ProcessCounts`]), the proxy that leads there ([`settle_proxy`]), the right that is missing ([`MissingRight`]), a
//! watch that begins again after a failure ([`watch`]), what its error means ([`watch_status`], [`watch_is_outage`]), when it works
//! again ([`WatchStarts`]), and which of several processes acts ([`lease`]).
//!
//! What it is not: caches or credentials. [`call`] never sends a request twice: the caller decides whether and when that is right.

mod backoff;
mod call;
mod chain;
mod decode;
pub mod lease;
pub mod merge_patch;
mod missing_right;
mod pages;
mod process_counts;
mod proxy;
pub mod retry;
mod watch_starts;
mod watch_status;
mod watch_stream;

pub use backoff::{Backoff, Series, jitter, spread};
pub use call::{CallError, REQUEST_TIMEOUT, call, call_optional, call_within, if_found};
pub use chain::{chain, chain_without_refusal};
pub use decode::decode;
pub use missing_right::MissingRight;
pub use pages::{PAGE, Pages, pages};
pub use process_counts::{ProcessCounts, Requests, counted};
pub use proxy::{names_proxy, settle_proxy};
pub use watch_starts::{WatchStarts, is_answer, is_answered, watch_with_starts, with_watch_starts};
pub use watch_status::{watch_code, watch_is_expired, watch_is_outage, watch_status};
pub use watch_stream::watch;

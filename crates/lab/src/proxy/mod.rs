//! Proxies that stand between a client and the API server: one cuts and swallows connections, the other refuses requests,
//! loses answers and expires watches.
//!
//! What it is not: a part of any lab that a test does not ask for.

pub(crate) mod api_proxy;
pub(crate) mod fault_proxy;

//! Proxies between a client and the API server. One cuts connections and swallows data. The other refuses requests,
//! loses answers and expires watches.
//!
//! A lab has a proxy only if a test asks for one.

pub(crate) mod api_proxy;
pub(crate) mod fault_proxy;

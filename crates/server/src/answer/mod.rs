//! From the head of a request to its answer: the path, the version that the client accepts, its boot token, and the
//! response or the refusal.
//!
//! What it is not: sockets and TLS (see `listen`), and the bytes of a config (see `prepared`).

pub mod accept_header;
pub(crate) mod boot_tokens;
pub(crate) mod respond;
pub mod route;

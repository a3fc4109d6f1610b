//! Serving by HTTP: connections, which request gets which answer, and the page's own files.
//!
//! Not here: who may ask (see `access`), what is answered (see `answers` and `fleet`), and the form of answers (see `response`).

pub(crate) mod https;
pub(crate) mod page;
pub(crate) mod routes;

//! The HTTPS config server: hands booting machines their Ignition config.
//!
//! Data flow: a source of configs ([`bootstrap`]: a directory; [`start`]: the cluster) fills a board of answers →
//! a request is a path and an `Accept` header, a look-up and a write. Everything that decides is a pure function:
//! `accept` (which version), `route` (which pool), `proven` (which rendered config), `prepare` (which bytes).
//!
//! What it is not: rendering (see `render`), and who may join the cluster (the kubeconfig that is served holds a
//! bootstrap token; what that may do is the cluster's decision).

pub mod accept;
pub mod document;
pub mod prepare;
pub mod refusal;
pub mod route;

//! The HTTPS config server: hands booting machines their Ignition config.
//!
//! Data flow: a source of configs ([`bootstrap`]: a directory; [`start`]: the cluster) fills a board of answers →
//! a request is a path and an `Accept` header, a look-up and a write. Everything that decides is a pure function:
//! [`accept`] (which version), [`route`] (which pool), [`proven`] (which rendered config), [`prepare`] (which bytes).
//!
//! What it is not: rendering (see `render`), and who may join the cluster (the kubeconfig that is served holds a
//! bootstrap token; what that may do is the cluster's decision).

pub mod accept;
mod balancer;
mod board;
mod bootstrap;
mod cluster;
mod crowd;
pub mod document;
mod error;
mod gate;
pub mod kubeconfig;
pub mod layered;
mod listen;
mod metrics;
pub mod prepare;
pub mod proven;
pub mod refusal;
mod respond;
pub mod route;
mod scrape;
mod stall;
mod tls;
mod view;
mod warm;

pub use bootstrap::{BootstrapOptions, BootstrapServer, bootstrap};
pub use cluster::{StartOptions, StartServer, start, start_with, tune};
pub use error::ServerError;
pub use listen::{Limits, ListenOptions};
pub use metrics::Metrics;
pub use scrape::Scrape;
pub use tls::TlsProfile;

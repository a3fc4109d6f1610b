//! The HTTPS config server: hands booting machines their Ignition config.
//!
//! Data flow: a [`source`] of configs ([`bootstrap`]: a directory; [`start`]: the cluster) fills the cache of
//! [`prepared`] configs. `listen` takes connections, and [`answer`] turns each request into a look-up and a response.
//!
//! Everything that decides is a pure function: [`answer::accept_header`] (which version), [`answer::route`] (which
//! pool), [`source::cluster::served_config`] (which rendered config), [`prepared::prepare`] (which bytes).
//!
//! What it is not: rendering (see `render`), and who may join the cluster (the kubeconfig that is served holds a
//! bootstrap token; what that may do is the cluster's decision).

pub mod answer;
mod error;
mod listen;
mod metrics;
pub mod prepared;
pub mod refusal;
pub mod source;
mod watched_objects;

pub use self::listen::{Limits, ListenOptions, TlsProfile};
pub use error::ServerError;
pub use metrics::{Metrics, metrics_sample};
pub use source::bootstrap::{BootstrapOptions, BootstrapServer, bootstrap};
pub use source::cluster::{StartOptions, StartServer, start, start_with, tune};

//! The answers to requests: a node, a pool, its forecast, rollouts and the installation, worked out when somebody asks; the stream of
//! what changes in the fleet; and what a person does.
//!
//! Not here: the fleet itself (see `fleet`), and who may ask (see `access`).

pub(crate) mod details;
pub(crate) mod forecast;
pub(crate) mod installation;
pub(crate) mod page_actions;
pub(crate) mod pool_policies;
pub(crate) mod rollouts;
pub(crate) mod stream;

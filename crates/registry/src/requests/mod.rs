//! Requests to registries: which places of an image are asked, how often, with which login and over which connection, and how
//! that fails.
//!
//! Data flow: `tries` takes the places of an image from `routes`, one after the other → `request` asks one of them, and logs in
//! if it answers with a `challenge` → `transport` sends one HTTP request. `registry` has what requests share, `error` how they
//! fail.
//!
//! What it is not: what is asked for, and what an answer means (see `inspect`, `files`, `streams` and `deletion`).

mod challenge;
pub(crate) mod error;
pub(crate) mod registry;
mod request;
pub(crate) mod routes;
pub(crate) mod transport;
mod tries;

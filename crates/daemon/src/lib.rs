//! The node agent: its own Node in, host changes out.
//!
//! What it is: [`protocol`] decides (pure), `agent` does what it says with the API server and the `host` crate.
//! What it is not: the roll-out (who moves when is the controller's), and the changing of files (the `host` crate's).

pub mod join;
pub mod protocol;

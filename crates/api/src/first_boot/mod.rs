//! What new machines need for their first boot: tokens, the address of the config server and the names of the objects with
//! its certificates, and which machines are expected. Pure.
//!
//! Not here: the server that answers them (see `server`).

pub mod boot_token;
pub mod expected_nodes;
pub mod server_tls;
pub mod user_data;

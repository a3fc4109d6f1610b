//! Boot tokens as an administrator and the operator handle them: created, listed, revoked, and moved out of the namespace
//! where earlier versions kept them.
//!
//! What it is not: what a token is, and the check of one that a machine presents (see `api::first_boot::boot_token` and the server).

mod manage;
mod migration;

pub use manage::{NewToken, TokenError, TokenList, create, expect_node, list, revoke};
pub(crate) use migration::{keep_namespace, labelled, move_tokens, take_back};

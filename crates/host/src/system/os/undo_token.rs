//! The token of back ends with deployments: which one the next boot came up in before a change.

use serde::{Deserialize, Serialize};

use crate::system::os::{OsError, Token};

/// The deployment that the next boot comes up in.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UndoToken {
    pub(crate) id: String,
}

impl UndoToken {
    /// As the journal keeps it.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub(crate) fn token(&self) -> Result<Token, OsError> {
        serde_json::to_string(self).map(Token).map_err(|e| OsError::new(e.to_string()))
    }

    /// Reads a token of the back end `name`.
    ///
    /// # Errors
    /// It is another back end's, or damaged.
    pub(crate) fn read(token: &Token, name: &str) -> Result<Self, OsError> {
        serde_json::from_str(&token.0)
            .map_err(|e| OsError::new(format!("the journal's token of {name} cannot be read: {e}")))
    }
}

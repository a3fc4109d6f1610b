//! The token of back ends with deployments: which one the next boot came up in before a change.

use serde::{Deserialize, Serialize};

use crate::system::os::{OsError, Token};

/// The deployment that the next boot comes up in.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UndoToken {
    pub(crate) id: String,
    /// That deployment was only staged, by a change that is kept: its packages were in the running system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<LiveBefore>,
}

/// Packages that a change had brought into the running system, and that were staged for the next boot.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveBefore {
    /// The deployment that ran.
    pub(crate) booted: String,
    /// The commit that was in the running system. `None`: nothing more than the deployment that ran. It need not be the commit that
    /// was staged: that one is another if its packages were staged again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The packages that were asked for.
    pub(crate) packages: Vec<String>,
}

impl UndoToken {
    /// As the journal keeps it.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub(crate) fn token(&self) -> Result<Token, OsError> {
        serde_json::to_string(self).map(Token).map_err(|e| OsError::new(e.to_string()))
    }

    /// The folder of the deployment. `None`: the token names none.
    pub(crate) fn folder(&self) -> Option<String> {
        let (stateroot, deployment) = self.id.rsplit_once('-')?;
        (!stateroot.is_empty()).then(|| format!("/ostree/deploy/{stateroot}/deploy/{deployment}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_the_folder_of_its_deployment() {
        for (id, folder) in [
            ("debian-ab12.0", Some("/ostree/deploy/debian/deploy/ab12.0")),
            ("fedora-coreos-ab12.3", Some("/ostree/deploy/fedora-coreos/deploy/ab12.3")),
            ("-ab12.3", None),
            ("", None),
        ] {
            let token = UndoToken { id: id.to_owned(), live: None };
            assert_eq!(token.folder().as_deref(), folder, "{id}");
        }
    }
}

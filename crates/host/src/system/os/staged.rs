//! Which staged deployment is the agent's own. Another program or a person may stage one at any time; that one is
//! neither replaced nor dropped.
//!
//! The record is in `/run`, as a staged deployment is: both are gone after the boot. It is begun before each command
//! that stages, because the agent may end before the command does.

use serde::{Deserialize, Serialize};

use crate::disk::attributes::PRIVATE;
use crate::disk::root::Root;
use crate::paths::STAGED;
use crate::system::os::{DEPLOYMENTS, Deployment, OsError};

#[derive(Serialize, Deserialize)]
struct Staged {
    /// Empty: a command that stages was begun, and its result is not recorded. Nothing of others was staged before
    /// it, so what is staged is its result.
    id: String,
    /// Its kernel arguments. They are in no file that is made for reading before OSTree finalises it.
    arguments: Vec<String>,
    /// SHA-256 of the deployment that was requested and of OSTree's record of what is staged for it, if all of it is staged.
    /// `None`: more commands may have to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    complete: Option<String>,
}

/// What is different if another deployment is requested, or if somebody has staged something since. OSTree gives a deployment that is
/// staged later the id of one that was dropped, so the id alone does not tell.
fn digest(root: &Root, requested: &Deployment) -> Result<String, OsError> {
    let mut all = serde_json::to_vec(requested).map_err(|e| OsError::new(e.to_string()))?;
    all.extend(root.read_if_there(DEPLOYMENTS[1])?.unwrap_or_default());
    Ok(desired::sha256(&all))
}

fn recorded(root: &Root) -> Result<Option<Staged>, OsError> {
    let Some(text) = root.text(STAGED)? else { return Ok(None) };
    let read = serde_json::from_str(&text);
    read.map(Some).map_err(|e| OsError::new(format!("{STAGED} is damaged ({e}); remove it")))
}

/// Records that the agent is about to stage a deployment. Nothing may be staged then, or only what the agent staged.
pub(super) fn begin(root: &Root, arguments: &[String]) -> Result<(), OsError> {
    record(root, "", arguments)
}

/// Removes the record: nothing is staged by us, so a deployment that is staged later is somebody else's.
pub(super) fn forget(root: &Root) -> Result<(), OsError> {
    Ok(root.remove(STAGED)?)
}

/// Records a deployment that the agent staged.
pub(super) fn record(root: &Root, id: &str, arguments: &[String]) -> Result<(), OsError> {
    write(root, &Staged { id: id.to_owned(), arguments: arguments.to_vec(), complete: None })
}

/// Records a deployment that the agent staged, and that it has all that was requested.
pub(super) fn record_complete(
    root: &Root,
    id: &str,
    arguments: &[String],
    requested: &Deployment,
) -> Result<(), OsError> {
    let complete = Some(digest(root, requested)?);
    write(root, &Staged { id: id.to_owned(), arguments: arguments.to_vec(), complete })
}

/// Called when a change begins: what an earlier one has staged may be a part of it only.
pub(super) fn begin_change(root: &Root) -> Result<(), OsError> {
    match recorded(root)? {
        Some(staged) if staged.complete.is_some() => write(root, &Staged { complete: None, ..staged }),
        _ => Ok(()),
    }
}

fn write(root: &Root, staged: &Staged) -> Result<(), OsError> {
    let json = serde_json::to_vec(staged).map_err(|e| OsError::new(e.to_string()))?;
    Ok(root.write_bytes(STAGED, &json, PRIVATE)?)
}

/// Whether this staged deployment is all that was requested, so that nothing is left to do.
pub(super) fn is_complete(root: &Root, id: &str, requested: &Deployment) -> Result<bool, OsError> {
    let Some(staged) = recorded(root)?.filter(|s| s.id == id && s.complete.is_some()) else {
        return Ok(false);
    };
    Ok(staged.complete == Some(digest(root, requested)?))
}

/// The kernel arguments of this deployment, if the agent staged it.
pub(super) fn arguments(root: &Root, id: &str) -> Result<Option<Vec<String>>, OsError> {
    Ok(recorded(root)?.filter(|s| s.id.is_empty() || s.id == id).map(|s| s.arguments))
}

/// Refuses to go on if somebody else staged this deployment. `remedy`: how that one is looked at and dropped.
pub(super) fn refuse_foreign(root: &Root, staged: Option<&str>, remedy: &str) -> Result<(), OsError> {
    match staged {
        Some(id) if arguments(root, id)?.is_none() => {
            Err(OsError::new(format!("the deployment {id} is staged, and not by a MachineConfig; {remedy}")))
        }
        _ => Ok(()),
    }
}

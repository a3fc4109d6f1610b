//! The credentials with which OSTree pulls images: the node's pull secret, unless the host has its own.
//!
//! Source: containers-auth.json(5).

use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::system::os::OsError;

/// Where OSTree looks for them.
const PLACES: [&str; 2] = ["/etc/ostree/auth.json", LINK];
const LINK: &str = "/run/ostree/auth.json";
/// The pull secrets of the node, best first.
const PULL_SECRETS: [&str; 2] = [desired::paths::INTERNAL_PULL_SECRET, desired::paths::PULL_SECRET];

/// The file with the credentials of this host, for programs that take its path. `None`: the host has none.
pub(super) fn file(root: &Root) -> Result<Option<&'static str>, OsError> {
    for path in PLACES.into_iter().chain(PULL_SECRETS) {
        let text = root.text(path)?;
        if text.is_some_and(|t| serde_json::from_str::<serde::de::IgnoredAny>(&t).is_ok()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Links the node's pull secret to where OSTree looks. A file of the host's own there stays.
pub(super) fn link(root: &Root) -> Result<(), OsError> {
    for path in PLACES {
        match root.found(path)? {
            PathState::Absent | PathState::NoParentFolder { .. } => {}
            PathState::Link { target, .. } if PULL_SECRETS.contains(&target.as_str()) => {}
            _ => return Ok(()),
        }
    }
    for secret in PULL_SECRETS {
        let text = root.text(secret)?;
        if text.is_some_and(|t| serde_json::from_str::<serde::de::IgnoredAny>(&t).is_ok()) {
            root.make_parents(LINK)?;
            return Ok(root.link(LINK, secret, Some((0, 0)))?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_secret_is_used_unless_the_host_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let put = |path: &str, text: &str| {
            let at = dir.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        };
        let linked = || std::fs::read_link(dir.path().join("run/ostree/auth.json")).ok();
        link(&root).unwrap();
        assert_eq!(linked(), None);
        put(PULL_SECRETS[1], "{\"auths\": {}}");
        link(&root).unwrap();
        assert_eq!(linked().unwrap().to_str(), Some(PULL_SECRETS[1]));
        put(PULL_SECRETS[0], "not json");
        link(&root).unwrap();
        assert_eq!(linked().unwrap().to_str(), Some(PULL_SECRETS[1]));
        put(PULL_SECRETS[0], "{}");
        link(&root).unwrap();
        assert_eq!(linked().unwrap().to_str(), Some(PULL_SECRETS[0]));
        std::fs::remove_file(dir.path().join("run/ostree/auth.json")).unwrap();
        put(PLACES[0], "{}");
        link(&root).unwrap();
        assert_eq!(linked(), None);
    }
}

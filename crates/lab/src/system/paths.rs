//! The paths of the lab's data. Only this module reads the environment.
//!
//! Not here: what is stored there.

use std::path::{Path, PathBuf};

/// The environment's settings, read once by [`Environment::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `MCO_LAB_BIN`: a folder with built programs, searched first.
    pub programs: Option<PathBuf>,
    /// The user's cache folder for the lab: `$XDG_CACHE_HOME/mco-lab`, or else `~/.cache/mco-lab`.
    pub cache: PathBuf,
    /// The folder for the data folders of running labs: `$MCO_LAB_DATA`, or else one folder per user in the system's
    /// temporary folder.
    pub data: PathBuf,
    /// Whether `CI` is set: a test that cannot run fails instead of being skipped.
    pub ci: bool,
}

impl Environment {
    /// Reads the process's environment.
    #[must_use]
    pub fn read() -> Self {
        Self::from_lookup(|key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from))
    }

    /// As [`Environment::read`], from any source of variables.
    pub fn from_lookup(get: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let temporary = get("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        let user = rustix::process::geteuid().as_raw();
        let cache = get("XDG_CACHE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| get("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(|| temporary.join(format!("cache-{user}")));
        Self {
            programs: get("MCO_LAB_BIN"),
            cache: cache.join("mco-lab"),
            data: get("MCO_LAB_DATA").unwrap_or_else(|| temporary.join(format!("mco-lab-{user}"))),
            ci: get("CI").is_some_and(|value| value.as_os_str() == "true" || value.as_os_str() == "1"),
        }
    }
}

/// The Go modules that pin the control plane's programs, in this repository.
#[must_use]
pub fn go_modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/control-plane")
}

/// Our CustomResourceDefinitions as `mco install` applies them, in this repository.
#[must_use]
pub(crate) fn our_definitions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kustomize/base/crds.yaml")
}

/// The crate of `ostree container`, in this repository.
#[must_use]
pub(crate) fn ostree_container() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/ostree-container")
}

/// Cargo's folder for downloads: `$CARGO_HOME`, or else `~/.cargo`.
#[must_use]
pub(crate) fn cargo_home() -> PathBuf {
    let get = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    get("CARGO_HOME").unwrap_or_else(|| get("HOME").unwrap_or_else(|| PathBuf::from("/root")).join(".cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_follows_xdg_then_home() {
        let cases = [
            (vec![("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/x/mco-lab"),
            (vec![("XDG_CACHE_HOME", "relative"), ("HOME", "/h")], "/h/.cache/mco-lab"),
            (vec![("HOME", "/h")], "/h/.cache/mco-lab"),
        ];
        for (variables, want) in cases {
            let environment = Environment::from_lookup(|key| {
                variables.iter().find(|(name, _)| *name == key).map(|(_, value)| PathBuf::from(value))
            });
            assert_eq!(environment.cache, Path::new(want), "{variables:?}");
        }
    }

    #[test]
    fn the_go_modules_are_in_the_repository() {
        for module in ["kube", "etcd"] {
            assert!(go_modules().join(module).join("go.sum").is_file(), "{module}");
        }
    }
}

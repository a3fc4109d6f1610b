//! Rendered MachineConfigs: their names, and the pool that owns them.
//!
//! What it is not: how the hash is computed (see `render`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfigController.md>.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// What stands before the pool in a rendered config's name.
const PREFIX: &str = "rendered-";
/// Hexadecimal digits of the hash that the controller writes.
const HASH_DIGITS: usize = 32;

/// The name `rendered-POOL-HASH`. A pool's name may hold hyphens, a hash does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderedName<'a> {
    /// The pool that it was rendered for.
    pub pool: &'a str,
    /// The hash of its content. People name configs by hand, so it need not be one that a controller writes.
    pub hash: &'a str,
}

impl<'a> RenderedName<'a> {
    /// `None`: the name is not of this form.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (pool, hash) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
        Some(Self { pool, hash })
    }

    /// Whether the hash has the form of those that the controller writes.
    pub fn is_generated(&self) -> bool {
        self.hash.len() == HASH_DIGITS && self.hash.bytes().all(|b| b.is_ascii_hexdigit())
    }
}

/// Whether both are names of rendered configs of one pool.
pub fn of_one_pool(a: Option<&str>, b: &str) -> bool {
    let pool = |name| RenderedName::parse(name).map(|n| n.pool);
    a.and_then(pool).is_some_and(|a| Some(a) == pool(b))
}

/// The pool that owns a MachineConfig, by its owner references. `None`: it is a source, written by a person or by the
/// controller, and not rendered.
pub fn owning_pool(owners: Option<&[OwnerReference]>) -> Option<&str> {
    let mut owners = owners.into_iter().flatten();
    owners.find(|o| o.controller == Some(true) && o.kind == "MachineConfigPool").map(|o| o.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_read_from_a_rendered_name_also_when_it_has_hyphens() {
        for (name, pool, generated) in [
            ("rendered-worker-09391e685c8156b307840ece8e224768", Some("worker"), true),
            ("rendered-infra-gpu-09391e685c8156b307840ece8e224768", Some("infra-gpu"), true),
            ("rendered-worker-1", Some("worker"), false),
            ("rendered-worker", None, false),
            ("99-worker-ssh", None, false),
        ] {
            let parsed = RenderedName::parse(name);
            assert_eq!(parsed.map(|n| n.pool), pool, "{name}");
            assert_eq!(parsed.is_some_and(|n| n.is_generated()), generated, "{name}");
        }
    }

    #[test]
    fn only_a_pool_that_controls_it_owns_a_config() {
        let owner = |kind: &str, controller| OwnerReference {
            kind: kind.to_owned(),
            name: "worker".to_owned(),
            controller,
            ..OwnerReference::default()
        };
        assert_eq!(owning_pool(Some(&[owner("MachineConfigPool", Some(true))])), Some("worker"));
        assert_eq!(owning_pool(Some(&[owner("MachineConfigPool", None)])), None);
        assert_eq!(owning_pool(Some(&[owner("KubeletConfig", Some(true))])), None);
        assert_eq!(owning_pool(None), None);
    }
}

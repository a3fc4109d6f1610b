//! Finds origins in a provenance by the names that people use. Pure.

use crate::config::provenance::{Kind, Origin, Provenance};
use crate::similar_names::nearest;
use std::collections::BTreeSet;

/// How many names are suggested when one is not found.
const OFFERED: usize = 5;
/// How similar a name must be to be suggested; found by experiment.
const LIKENESS: f64 = 0.5;

impl Provenance {
    /// The origins that a word means: a path, a unit (with its drop-ins), `UNIT/DROPIN`, a user (with the keys), a
    /// kernel argument or the name before its `=`, an extension, a field of the spec.
    pub fn find(&self, what: &str) -> Vec<&Origin> {
        let belongs = |o: &Origin| match o.kind {
            Kind::Dropin | Kind::SshKey => {
                o.name == what || o.name.strip_prefix(what).is_some_and(|rest| rest.starts_with('/'))
            }
            Kind::KernelArgument => o.name == what || o.name.split('=').next() == Some(what),
            Kind::Scalar | Kind::Section => o.name.eq_ignore_ascii_case(what),
            _ => o.name == what,
        };
        self.0.iter().filter(|o| belongs(o)).collect()
    }

    /// The names that are most similar to one that does not exist; else the first few in its folder.
    pub fn nearest(&self, what: &str) -> Vec<&str> {
        let names: BTreeSet<&str> = self.0.iter().map(|o| o.name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let near = nearest(what, names.iter().copied(), OFFERED, LIKENESS);
        if !near.is_empty() {
            return near;
        }
        let within =
            names.into_iter().filter(|n| n.contains(what.trim_start_matches('/')) && !what.is_empty());
        within.take(OFFERED).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(kind: Kind, name: &str) -> Origin {
        let (field, set_by, lost) = (String::new(), "a".to_owned(), Vec::new());
        Origin { kind, name: name.to_owned(), field, set_by, lost }
    }

    #[test]
    fn things_are_found_by_what_people_call_them() {
        let all = Provenance(vec![
            mk(Kind::File, "/etc/motd"),
            mk(Kind::Unit, "kubelet.service"),
            mk(Kind::Dropin, "kubelet.service/10-a.conf"),
            mk(Kind::SshKey, "core/ssh-ed25519 …x"),
            mk(Kind::User, "core"),
            mk(Kind::KernelArgument, "nosmt=force"),
            mk(Kind::Scalar, "kernelType"),
        ]);
        for (what, found) in [
            ("/etc/motd", 1),
            ("kubelet.service", 2),
            ("kubelet.service/10-a.conf", 1),
            ("core", 2),
            ("nosmt", 1),
            ("nosmt=force", 1),
            ("kerneltype", 1),
            ("/etc", 0),
            ("kubelet", 0),
        ] {
            assert_eq!(all.find(what).len(), found, "{what}");
        }
        assert_eq!(all.nearest("/etc/mtod").first(), Some(&"/etc/motd"));
        assert!(all.nearest("kubelet").contains(&"kubelet.service"));
        assert!(all.nearest("zzzzzz").is_empty());
    }
}

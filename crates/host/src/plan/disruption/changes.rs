//! The differences between two configs that disruption policies distinguish. Pure.
//!
//! What it is not: what they cost (see `by_rule`).

use std::collections::BTreeSet;

use desired::{DesiredHost, OsField};

/// The differences between two configs that disruption policies distinguish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The changed fields of the operating system.
    pub(crate) os: Vec<OsField>,
    /// The paths of changed files.
    pub(crate) files: BTreeSet<String>,
    /// The names of changed units.
    pub(crate) units: BTreeSet<String>,
    /// Units whose files somebody else has changed and which are written again: the running service may use other contents.
    pub(crate) drifted_units: BTreeSet<String>,
    /// Whether keys or password of the core user changed.
    pub(crate) passwd: bool,
    /// Whether the change of the operating system can take effect without a reboot, by [`crate::plan::live_extensions`].
    pub(crate) live: bool,
}

impl Changes {
    /// The differences between two configs. The order of entries does not matter. Another encoding of the same bytes
    /// is a difference.
    pub(crate) fn between(old: &DesiredHost, new: &DesiredHost) -> Self {
        let mut os = Vec::new();
        let mut differs = |field, differs: bool| {
            if differs {
                os.push(field);
            }
        };
        let (a, b) = (&old.os, &new.os);
        differs(OsField::Image, a.image != b.image);
        differs(OsField::KernelArguments, a.kernel_arguments != b.kernel_arguments);
        differs(OsField::KernelType, a.kernel_type != b.kernel_type);
        differs(OsField::Extensions, a.extensions != b.extensions);
        let (a, b) = (&old.config.storage, &new.config.storage);
        let mut files = keyed(&a.files, &b.files, |f| &f.path);
        files.extend(keyed(&a.directories, &b.directories, |d| &d.path));
        files.extend(keyed(&a.links, &b.links, |l| &l.path));
        let units = keyed(&old.config.systemd.units, &new.config.systemd.units, |u| &u.name);
        let passwd = old.config.passwd != new.config.passwd;
        Self { os, files, units, drifted_units: BTreeSet::new(), passwd, live: false }
    }
}

/// The keys of elements that differ between the two sides or exist on one only.
fn keyed<T: PartialEq>(old: &[T], new: &[T], key: impl Fn(&T) -> &String) -> BTreeSet<String> {
    let find = |list: &[T], k: &String| list.iter().rposition(|x| key(x) == k);
    let all = old.iter().chain(new).map(&key).collect::<BTreeSet<_>>();
    let same = |k: &&&String| match (find(old, k), find(new, k)) {
        (Some(a), Some(b)) => old.get(a) == new.get(b),
        _ => false,
    };
    all.iter().filter(|k| !same(k)).map(|k| (*k).clone()).collect()
}

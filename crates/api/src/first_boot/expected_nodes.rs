//! The annotation of a pool with the nodes that it expects to boot into its config: their names, with commas between them.
//!
//! What it is not: what becomes of such a node (see `rollout`).

use crate::names::annotation::FIRST_BOOT_NODES;
use std::collections::BTreeMap;

/// The names in a list.
pub fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The nodes that a pool with these annotations expects.
pub fn expected(annotations: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = &str> {
    annotations.and_then(|a| a.get(FIRST_BOOT_NODES)).into_iter().flat_map(|list| names(list))
}

/// The list of these names.
pub fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    Vec::from_iter(names).join(",")
}

/// The list of expected nodes with one more. `None`: it has that one already.
pub fn with(annotations: Option<&BTreeMap<String, String>>, node: &str) -> Option<String> {
    let has = expected(annotations).any(|name| name == node);
    (!has).then(|| list(expected(annotations).chain([node])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_people_write_it_and_grows_by_one_name_once() {
        for (text, want) in [
            (None, Some("n")),
            (Some(""), Some("n")),
            (Some("a"), Some("a,n")),
            (Some(" a , ,b,"), Some("a,b,n")),
            (Some("a, n"), None),
            (Some("n.example.com"), Some("n.example.com,n")),
        ] {
            let annotations =
                text.map(|text| BTreeMap::from([(FIRST_BOOT_NODES.to_owned(), text.to_owned())]));
            assert_eq!(with(annotations.as_ref(), "n").as_deref(), want, "{text:?}");
        }
        assert_eq!(list(names("a, b")), "a,b");
    }
}

//! Who keeps an object, as the API server records it (`metadata.managedFields`): which programs wrote to the object itself, and
//! whether ours has applied it. Pure.
//!
//! What it is not: the owner of one field (see `facts::owners`), and what follows: what is pruned, what is deleted, and where an
//! installation does not begin.

use crate::objects::FIELD_MANAGER;
use serde_json::Value;

/// A program that wrote to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// It applies. Otherwise it updates.
    pub(crate) applies: bool,
}

/// Who wrote to the object itself. What is written to a subresource, such as the status, says nothing about who keeps it.
pub(crate) fn writers(object: &Value) -> impl Iterator<Item = Writer<'_>> {
    entries(object).filter_map(|entry| {
        Some(Writer { name: entry["manager"].as_str()?, applies: entry["operation"] == "Apply" })
    })
}

/// The entries of `managedFields` that are about the object itself.
pub(crate) fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    let all = object["metadata"]["managedFields"].as_array();
    all.into_iter().flatten().filter(|entry| entry["subresource"].as_str().unwrap_or_default().is_empty())
}

/// Whether our field manager has applied this object. The reference's operator has the same name, but it updates where we apply.
pub(crate) fn is_applied_by_us(object: &Value) -> bool {
    writers(object).any(|writer| writer.applies && writer.name == FIELD_MANAGER)
}

/// Whether, besides, nobody else has written to it: what we found and only labelled is not ours to delete.
pub(crate) fn is_ours_alone(object: &Value) -> bool {
    is_applied_by_us(object) && writers(object).all(|writer| writer.name == FIELD_MANAGER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_ours_if_we_applied_it_and_not_only_its_status() {
        const US: &str = FIELD_MANAGER;
        for (managers, ours, alone) in [
            (&[(US, "Apply", None)][..], true, true),
            (&[(US, "Apply", Some(""))], true, true),
            (&[(US, "Apply", Some("status"))], false, false),
            (&[("kubectl", "Update", None), (US, "Apply", Some("status"))], false, false),
            (&[(US, "Update", None)], false, false),
            (&[(US, "Apply", None), ("kube-controller-manager", "Update", Some("status"))], true, true),
            (&[(US, "Apply", None), ("kubectl-edit", "Update", None)], true, false),
            (&[("kubectl-edit", "Apply", None)], false, false),
            (&[], false, false),
        ] {
            let entry = |(manager, operation, subresource): &(&str, &str, Option<&str>)| {
                let mut entry = json!({"manager": manager, "operation": operation});
                if let Some(subresource) = subresource {
                    entry["subresource"] = json!(subresource);
                }
                entry
            };
            let entries: Vec<Value> = managers.iter().map(entry).collect();
            let object = json!({"metadata": {"managedFields": entries}});
            assert_eq!((is_applied_by_us(&object), is_ours_alone(&object)), (ours, alone), "{managers:?}");
        }
        assert!(!is_applied_by_us(&json!({})));
    }
}

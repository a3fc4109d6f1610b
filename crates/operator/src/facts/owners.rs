//! Which changes of the ControllerConfig are ours to make: a field that somebody else owns, by the API server's record in
//! `metadata.managedFields`, is left to them. Pure.
//!
//! What it is not: the values (see `openshift`).
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>.

use super::openshift::ControllerConfigFields;
use crate::objects::FIELD_MANAGER;
use serde_json::{Map, Value, json};

/// Those who write what the cluster says and not what a person wants: we, the controller (the topology, by the nodes), and
/// OpenShift's installer. The reference's operator has our name; earlier versions of our controller had none, for which the API
/// server puts `unknown`.
const AUTOMATED_MANAGERS: [&str; 4] =
    [FIELD_MANAGER, "machine-config-controller", "cluster-bootstrap", "unknown"];

/// The merge patch that brings a ControllerConfig to what is wanted, as far as that is ours; `{}`: nothing is to be done.
pub(crate) fn patch(there: &Value, wanted: &ControllerConfigFields) -> Value {
    let owners = Owners::of(there);
    let mut patch = Map::new();
    let mut spec = wanted.spec.clone();
    for (field, value) in &wanted.once {
        if there["spec"][field].as_str().is_none_or(str::is_empty) {
            spec.insert(field.clone(), value.clone());
        }
    }
    let mut path = vec!["spec".to_owned()];
    let none = Map::new();
    let has = there["spec"].as_object().unwrap_or(&none);
    let mut change = Map::new();
    for (field, value) in &spec {
        path.push(field.clone());
        if let Some(value) = difference(has.get(field), value, &mut path, &owners) {
            change.insert(field.clone(), value);
        }
        path.pop();
    }
    if !change.is_empty() {
        patch.insert("spec".to_owned(), change.into());
    }
    let notes = &there["metadata"]["annotations"];
    let differ: Map<String, Value> = wanted
        .annotations
        .iter()
        .filter(|(key, value)| notes[*key] != **value)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if !differ.is_empty() {
        patch.insert("metadata".to_owned(), json!({ "annotations": differ }));
    }
    patch.into()
}

/// What has to change from one value to the other. `None`: nothing, or it is not ours to change.
fn difference(has: Option<&Value>, wanted: &Value, path: &mut Vec<String>, owners: &Owners) -> Option<Value> {
    let has = has.filter(|v| !v.is_null());
    match (has, wanted) {
        (None, Value::Null) => None,
        (Some(has), wanted) if has == wanted => None,
        (Some(Value::Object(has)), Value::Object(wanted)) => {
            let mut change = Map::new();
            for (key, value) in wanted {
                path.push(key.clone());
                if let Some(value) = difference(has.get(key), value, path, owners) {
                    change.insert(key.clone(), value);
                }
                path.pop();
            }
            // What we did not write is a default of the API server, or somebody else's.
            for key in has.keys().filter(|key| !wanted.contains_key(*key)) {
                path.push(key.clone());
                if owners.is_written_automatically(path) && !owners.is_written_by_people(path) {
                    change.insert(key.clone(), Value::Null);
                }
                path.pop();
            }
            (!change.is_empty()).then(|| change.into())
        }
        // Empty text is what the API server has where there is none.
        (None, Value::String(text)) if text.is_empty() => None,
        (_, wanted) => (!owners.is_written_by_people(path)).then(|| wanted.clone()),
    }
}

/// Who has written which fields.
struct Owners {
    automated: Vec<Value>,
    people: Vec<Value>,
}

impl Owners {
    fn of(object: &Value) -> Self {
        let mut owners = Self { automated: vec![], people: vec![] };
        for entry in crate::ownership::entries(object) {
            let by = entry["manager"].as_str().unwrap_or_default();
            let list =
                if AUTOMATED_MANAGERS.contains(&by) { &mut owners.automated } else { &mut owners.people };
            list.push(entry["fieldsV1"].clone());
        }
        owners
    }

    fn is_written_by_people(&self, path: &[String]) -> bool {
        self.people.iter().any(|fields| owns(fields, path))
    }

    fn is_written_automatically(&self, path: &[String]) -> bool {
        self.automated.iter().any(|fields| owns(fields, path))
    }
}

/// Whether a set of fields has this one, a part of it, or the whole that it is a part of.
fn owns(fields: &Value, path: &[String]) -> bool {
    let mut at = fields;
    for key in path {
        // An atomic whole has no parts in the record.
        if at.as_object().is_some_and(Map::is_empty) {
            return true;
        }
        match at.get(format!("f:{key}")) {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(managers: &[(&str, Value)]) -> Value {
        let managed: Vec<Value> =
            managers.iter().map(|(name, fields)| json!({"manager": name, "fieldsV1": fields})).collect();
        json!({
            "metadata": {"managedFields": managed, "annotations": {"a": "1"}},
            "spec": {"clusterDNSIP": "10.0.0.1", "releaseImage": "first",
                "infra": {"status": {"apiServerURL": "https://theirs", "cpuPartitioning": "None", "old": "x"}}},
        })
    }

    #[test]
    fn a_field_that_somebody_else_owns_stays_and_so_do_defaults() {
        let ours = json!({"f:spec": {"f:clusterDNSIP": {}, "f:infra": {"f:status": {"f:old": {}}}}});
        let url = json!({"f:spec": {"f:infra": {"f:status": {"f:apiServerURL": {}}}}});
        let dns = json!({"f:spec": {"f:clusterDNSIP": {}}});
        let wanted = ControllerConfigFields {
            spec: serde_json::from_value(json!({
                "clusterDNSIP": "10.0.0.2", "proxy": null, "platform": "none",
                "infra": {"status": {"apiServerURL": "https://found", "etcdDiscoveryDomain": "e"}},
            }))
            .unwrap(),
            once: serde_json::from_value(json!({"releaseImage": "second"})).unwrap(),
            annotations: serde_json::from_value(json!({"a": "1", "b": "2"})).unwrap(),
        };
        let rest = |patch: Value| patch["spec"].clone();
        let all = json!({"clusterDNSIP": "10.0.0.2", "platform": "none",
            "infra": {"status": {"apiServerURL": "https://found", "etcdDiscoveryDomain": "e", "old": null}}});
        let found = patch(&there(&[(FIELD_MANAGER, ours.clone())]), &wanted);
        assert_eq!(rest(found.clone()), all, "the default of cpuPartitioning is nobody's");
        assert_eq!(found["metadata"]["annotations"], json!({"b": "2"}));
        let found =
            rest(patch(&there(&[(FIELD_MANAGER, ours.clone()), ("kubectl-edit", url.clone())]), &wanted));
        assert_eq!(found["infra"], json!({"status": {"etcdDiscoveryDomain": "e", "old": null}}));
        let found = rest(patch(&there(&[("argocd-controller", dns), (FIELD_MANAGER, ours)]), &wanted));
        assert_eq!(found.get("clusterDNSIP"), None);
        // The installer's words are nobody's.
        assert_eq!(
            rest(patch(&there(&[("cluster-bootstrap", url)]), &wanted))["infra"]["status"]["apiServerURL"],
            "https://found"
        );
        // A whole that somebody owns has no parts in the record.
        let whole = json!({"f:spec": {"f:infra": {}}});
        assert_eq!(rest(patch(&there(&[("kubectl", whole)]), &wanted)).get("infra"), None);
    }

    #[test]
    fn what_stands_there_already_is_no_write() {
        let wanted = ControllerConfigFields {
            spec: serde_json::from_value(
                json!({"clusterDNSIP": "10.0.0.1", "cloudProviderConfig": "", "proxy": null}),
            )
            .unwrap(),
            ..ControllerConfigFields::default()
        };
        assert_eq!(patch(&there(&[]), &wanted), json!({}));
    }
}

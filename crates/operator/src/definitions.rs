//! The CustomResourceDefinitions as this version installs them, each with the version that wrote it. Pure.
//!
//! An older version never writes over the definitions of a newer one: objects may have fields by then that the old schema
//! would drop.
//!
//! What it is not: the schemas (see `api::crds`).

use api::crds::{Crd, CrdError};
use api::names::VERSION_RAW;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) use api::names::own::VERSION;

/// The definitions of our kinds, and of OpenShift's where they are asked for too.
///
/// # Errors
/// A bug in this build's own data.
pub(crate) fn all(of_openshift: bool) -> Result<Vec<Value>, CrdError> {
    let wanted = |crd: &Crd| crd.ours || of_openshift;
    let all = api::crds::all()?.into_iter().filter(wanted);
    Ok(all
        .map(|crd| {
            let mut object = crd.object;
            object["metadata"]["annotations"][VERSION] = json!(VERSION_RAW);
            object
        })
        .collect())
}

/// The names of the definitions of our kinds.
pub(crate) fn names() -> Vec<String> {
    let all = api::crds::all().unwrap_or_default();
    all.iter().filter(|crd| crd.ours).map(Crd::name).collect()
}

/// Our kinds by group, in the form that URLs have.
pub(crate) fn kinds() -> BTreeMap<String, Vec<String>> {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for crd in api::crds::all().unwrap_or_default().into_iter().filter(|crd| crd.ours) {
        kinds.entry(crd.group).or_default().push(crd.plural);
    }
    kinds
}

/// The three numbers of a version such as `v1.2.3`; a suffix does not count. `None`: it is not of that form.
pub(crate) fn numbers(version: &str) -> Option<[u64; 3]> {
    let plain = version.trim_start_matches('v').split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(|p| p.parse::<u64>().ok());
    let all = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(all)
}

/// Whether a version is newer than this build. One that cannot be read is not known to be.
pub(crate) fn is_newer(version: &str) -> bool {
    match (numbers(version), numbers(VERSION_RAW)) {
        (Some(theirs), Some(ours)) => theirs > ours,
        _ => false,
    }
}

/// The newer version that wrote one of these objects, with the object's name.
pub(crate) fn newer<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Option<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let versions = objects
        .into_iter()
        .map(|o| (text(&o["metadata"]["name"]), text(&o["metadata"]["annotations"][VERSION])));
    versions.into_iter().find(|(_, version)| is_newer(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        for (text, want) in [
            ("v1.2.3", Some([1, 2, 3])),
            ("0.10.0-rc.1", Some([0, 10, 0])),
            ("v1.2", None),
            ("v1.2.3.4", None),
            ("", None),
            ("next", None),
        ] {
            assert_eq!(numbers(text), want, "{text}");
        }
        assert!(is_newer("v99.0.0") && !is_newer(VERSION_RAW) && !is_newer("v0.0.1") && !is_newer("what"));
    }

    #[test]
    fn every_definition_says_which_version_wrote_it() {
        let all = all(false).unwrap();
        assert_eq!(all.len(), names().len());
        assert!(all.iter().all(|o| o["metadata"]["annotations"][VERSION] == VERSION_RAW));
        let mut theirs = all;
        assert_eq!(newer(&theirs), None);
        theirs[3]["metadata"]["annotations"][VERSION] = json!("v99.0.0");
        let name = theirs[3]["metadata"]["name"].as_str().unwrap();
        assert_eq!(newer(&theirs), Some((name.to_owned(), "v99.0.0".to_owned())));
    }
}

//! The kustomize base, `deploy/kustomize/base`, and a component for each of OpenShift's namespaces. An overlay lists the
//! components of the namespaces that its cluster has.

use super::{Values, in_namespaces, parts, yaml};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of the base and the components.
pub(crate) const FOLDER: &str = "deploy/kustomize";

pub(super) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new(FOLDER);
    let values = Values::placeholders();
    let steps = values.plan()?;
    let (definitions, others) = parts(&steps);
    let head = "# Made by `cargo xtask gen` of what `mco install` applies; do not edit.\n";
    let base = format!(
        "{head}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - crds.yaml\n  - mco.yaml\n"
    );
    let mut files = BTreeMap::from([
        (folder.join("base/kustomization.yaml"), base),
        (folder.join("base/crds.yaml"), head.to_owned() + &yaml(definitions.iter().map(|s| &s.object))?),
        (folder.join("base/mco.yaml"), head.to_owned() + &yaml(others.iter().map(|s| &s.object))?),
    ]);
    let component = format!(
        "{head}apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources:\n  - rights.yaml\n"
    );
    for (namespace, objects) in in_namespaces(&values)? {
        let folder = folder.join("namespaces").join(namespace);
        files.insert(folder.join("kustomization.yaml"), component.clone());
        files.insert(folder.join("rights.yaml"), head.to_owned() + &yaml(&objects)?);
    }
    Ok(files)
}

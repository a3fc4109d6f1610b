//! The kustomize base, `deploy/kustomize`, and an example of an overlay that makes it an installation.

use super::{Values, parts, yaml};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where both are.
pub(crate) const FOLDER: &str = "deploy/kustomize";

/// Their files.
pub(super) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new(FOLDER);
    let values = Values::placeholders();
    let steps = values.plan()?;
    let (definitions, others) = parts(&steps);
    let head = "# Made by `cargo xtask gen` of what `mco install` applies; do not edit.\n";
    let base = format!(
        "{head}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - crds.yaml\n  - mco.yaml\n"
    );
    Ok(BTreeMap::from([
        (folder.join("base/kustomization.yaml"), base),
        (folder.join("base/crds.yaml"), head.to_owned() + &yaml(definitions.iter().map(|s| &s.object))?),
        (folder.join("base/mco.yaml"), head.to_owned() + &yaml(others.iter().map(|s| &s.object))?),
    ]))
}

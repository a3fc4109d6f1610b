//! Generated MachineConfigs that nothing needs any more.
//!
//! What it is not: what is generated, and what an object that is being deleted has made (see `objects`).

use super::objects::names::parse;
use super::objects::{Kind, owner, text};
use super::{Inputs, Plan, Removal};
use api::k8s::ResourceExt as _;
use api::names::annotation;
use std::collections::{BTreeMap, BTreeSet};

/// Generated MachineConfigs that nothing needs any more: of deleted pools, of removed settings, of other versions, and
/// with the names of old releases.
pub(super) fn stale(inputs: &Inputs<'_>, plan: &mut Plan) {
    let wanted: BTreeSet<&str> = plan.wanted.iter().filter_map(|c| c.metadata.name.as_deref()).collect();
    let leaving: BTreeSet<&str> = plan.gone.iter().map(|r| r.name.as_str()).collect();
    let known: BTreeMap<&str, Kind> = inputs
        .settings
        .kubelet_configs
        .iter()
        .map(|o| (text(o, "/metadata/uid"), Kind::KubeletConfig))
        .chain(
            inputs
                .settings
                .runtime_configs
                .iter()
                .map(|o| (text(o, "/metadata/uid"), Kind::ContainerRuntimeConfig)),
        )
        .collect();
    let mut gone = Vec::new();
    for config in &inputs.existing {
        let name = config.name_any();
        let version = config.annotations().get(annotation::GENERATED_BY_CONTROLLER);
        // Without the mark it is somebody's own, or comes from a bootstrap whose settings may not have arrived yet.
        let Some(version) = version.filter(|v| !v.is_empty()) else { continue };
        if wanted.contains(name.as_str()) || leaving.contains(name.as_str()) || plan.kept.contains(&name) {
            continue;
        }
        let why = match (parse(&name), owner(config)) {
            (Some(("97" | "98", ..)), _) => "its pool, or the templates' kubelet config, no longer exists",
            (Some((_, _, "registries")), _) => {
                "there are no registry settings any more, or its pool no longer exists"
            }
            (Some(_), Some(owner)) if known.contains_key(owner.uid.as_str()) => continue,
            (Some(_), Some(_)) => "the object that it was generated from no longer exists",
            (Some(_), None) if *version != inputs.versions.hash => {
                "it is of another version, and nothing generates it now"
            }
            (Some(_), None) => continue,
            (None, _) if is_old_name(inputs, &name) => {
                "it has the name of an old release, and the new one exists"
            }
            (None, _) => continue,
        };
        gone.push(Removal { name, why: why.to_owned() });
    }
    plan.gone.extend(gone);
}

/// `99-POOL-UID-kubelet` and so on.
fn is_old_name(inputs: &Inputs<'_>, name: &str) -> bool {
    inputs.pools.iter().any(|pool| {
        let (pool, Some(uid)) = (pool.name_any(), pool.metadata.uid.as_deref()) else { return false };
        let rest = name.get(2..).and_then(|r| r.strip_prefix(&format!("-{pool}-{uid}-")));
        matches!(
            (name.get(..2), rest),
            (Some("97" | "98" | "99"), Some("kubelet"))
                | (Some("99"), Some("containerruntime" | "registries"))
        )
    })
}

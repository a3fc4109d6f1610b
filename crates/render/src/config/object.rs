//! The rendered MachineConfig as an object: name, owner, annotations, provenance, and whether the API server can store
//! it.
//!
//! What it is not: its spec (see `merge`).

use crate::config::provenance::Provenance;
use crate::error::{Finding, Rule};
use crate::size;
use crate::version::Versions;
use api::k8s::{ObjectReference, OwnerReference, ResourceExt as _};
use api::names::{GROUP, MAX_RENDERED_BYTES, annotation};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, MachineConfigSpec};
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) fn rendered(
    pool: &MachineConfigPool,
    controller_config: &ControllerConfig,
    versions: &Versions,
    name: &str,
    spec: MachineConfigSpec,
) -> MachineConfig {
    let release = controller_config.metadata.annotations.as_ref();
    let release = release.and_then(|a| a.get(annotation::RELEASE_IMAGE_VERSION)).cloned().unwrap_or_default();
    let annotations = BTreeMap::from([
        (annotation::GENERATED_BY_CONTROLLER.to_owned(), versions.hash.clone()),
        (annotation::RELEASE_IMAGE_VERSION.to_owned(), release),
    ]);
    let pool_name = pool.name_any();
    let mut mc = MachineConfig::new(name, spec);
    mc.metadata.annotations = Some(annotations);
    mc.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{GROUP}/v1"),
        kind: "MachineConfigPool".to_owned(),
        name: pool_name,
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    mc
}

/// Stores the provenance on the object if both fit. A config is never refused because of it.
pub(crate) fn store_provenance(rendered: &mut MachineConfig, provenance: &Provenance) {
    let Some(packed) = provenance.pack() else { return };
    let annotations = rendered.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::PROVENANCE.to_owned(), packed);
    if size::of(rendered) > MAX_RENDERED_BYTES
        && let Some(annotations) = &mut rendered.metadata.annotations
    {
        annotations.remove(annotation::PROVENANCE);
    }
}

/// A reference to a MachineConfig in the form that pools use.
pub fn reference(machine_config: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{GROUP}/v1")),
        kind: Some("MachineConfig".to_owned()),
        name: Some(machine_config.to_owned()),
        ..ObjectReference::default()
    }
}

/// The files that take the most space in what is too large.
pub(crate) fn largest(order: &[&MachineConfig]) -> Vec<Finding> {
    const SHOWN: usize = 3;
    let files = order.iter().flat_map(|mc| {
        let files = mc.spec.config.as_ref().and_then(|c| c.pointer("/storage/files")?.as_array());
        files.into_iter().flatten().enumerate().map(|(i, f)| {
            let text = |at: &str| f.pointer(at).and_then(Value::as_str).unwrap_or_default();
            (text("/contents/source").len(), mc.name_any(), i, text("/path"))
        })
    });
    let mut files: Vec<_> = files.collect();
    files.sort_by(|a, b| b.cmp(a));
    let finding = |(size, name, i, path): (usize, String, usize, &str)| {
        let message = format!("{path} takes {size} bytes of at most {MAX_RENDERED_BYTES} for all");
        Finding::on(Rule::TooLarge, &name, format!("spec.config.storage.files[{i}].contents"), message)
            .with_remedy("make it smaller, pack it (compression: gzip), or leave it to a container image")
    };
    // A small file is not the cause.
    files.into_iter().take(SHOWN).filter(|f| f.0 > MAX_RENDERED_BYTES / 20).map(finding).collect()
}

/// Whether the API server can store the object. A warning if it nearly cannot.
pub(crate) fn fits(rendered: &MachineConfig) -> Result<Option<Finding>, Finding> {
    let size = size::of(rendered);
    let message = format!("{size} bytes of at most {MAX_RENDERED_BYTES}");
    let finding = Finding::on_rendered(Rule::TooLarge, "", message).with_remedy(
        "make files smaller, pack them (compression: gzip), or leave large ones to a container image",
    );
    match size {
        n if n > MAX_RENDERED_BYTES => Err(finding),
        n if n > MAX_RENDERED_BYTES / 5 * 4 => Ok(Some(finding)),
        _ => Ok(None),
    }
}

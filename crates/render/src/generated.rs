//! What controllers generate for one pool from cluster-wide settings: `97-`, `98-` and `99-` MachineConfigs. Pure.
//!
//! What it is not: templates (see `template`) and who may have how many objects once there is a cluster.

use crate::Versions;
use crate::bootstrap::BootstrapError;
use crate::container_runtime::{self, ContainerRuntimeConfig};
use crate::kubelet;
use crate::kubelet_config::KubeletConfig;
use crate::mirrors::MirrorSets;
use crate::registries::{self, Sources};
use crate::template::{self, TemplateSet};
use crate::template_data::Data;
use api::k8s::ResourceExt as _;
use api::names::label;
use api::v1::{MachineConfig, MachineConfigPool};
use serde_json::Value;
use std::collections::BTreeMap;

/// What MachineConfigs are generated from.
pub(crate) struct Settings<'a> {
    pub(crate) templates: &'a TemplateSet,
    pub(crate) data: Data<'a>,
    pub(crate) gates: BTreeMap<String, bool>,
    pub(crate) node: Option<Value>,
    pub(crate) sources: Sources,
    pub(crate) mirrors: MirrorSets,
    pub(crate) kubelet_configs: Vec<KubeletConfig<'a>>,
    pub(crate) runtime_configs: Vec<ContainerRuntimeConfig>,
    pub(crate) versions: &'a Versions,
}

impl Settings<'_> {
    /// The MachineConfigs of a pool.
    pub(crate) fn generated(&self, pool: &MachineConfigPool) -> Result<Vec<MachineConfig>, BootstrapError> {
        let name = pool.name_any();
        let of_role = template::generate_role(self.templates, &self.data, self.versions, &name)?;
        let mut all = self.kubelet(pool, &of_role)?;
        let mut own = Vec::new();
        for crc in &self.runtime_configs {
            if crc.is_for(pool)? {
                own.push(crc);
            }
        }
        if let Some(crc) = only(&own, &name, "ContainerRuntimeConfig", |c| c.name())? {
            let storage = kubelet::template_file(&of_role, container_runtime::STORAGE_CONF);
            all.push(crc.machine_config(pool, storage.as_deref(), self.versions)?);
        }
        if pool.labels().contains_key(label::BUILT_IN) {
            all.push(self.registries(&name, &of_role)?);
        }
        Ok(all)
    }

    fn kubelet(
        &self,
        pool: &MachineConfigPool,
        of_role: &[MachineConfig],
    ) -> Result<Vec<MachineConfig>, BootstrapError> {
        let (name, node) = (pool.name_any(), self.node.as_ref());
        // Where the templates leave the kubelet's config to others, so do we.
        let Some(original) = kubelet::original(of_role) else { return Ok(Vec::new()) };
        let mut all = vec![
            kubelet::node_config(pool, &original, node, self.versions)?,
            kubelet::feature_gates(pool, &original, &self.gates, node, self.versions)?,
        ];
        let mut own = Vec::new();
        for kc in &self.kubelet_configs {
            if kc.is_for(pool)? {
                own.push(kc);
            }
        }
        if let Some(kc) = only(&own, &name, "KubeletConfig", |kc| kc.name())? {
            let base = kubelet::with_gates(&name, &original, &self.gates, node)?;
            all.push(kc.machine_config(pool, base, self.versions)?);
        }
        Ok(all)
    }

    fn registries(&self, pool: &str, of_role: &[MachineConfig]) -> Result<MachineConfig, BootstrapError> {
        let template = |path: &str| kubelet::template_file(of_role, path);
        let (conf, policy) = (template(registries::REGISTRIES_CONF), template(registries::POLICY_JSON));
        let templates = registries::Templates { registries: conf.as_deref(), policy: policy.as_deref() };
        let release = &self.data.controller_config.spec.release_image;
        let files = registries::files(&self.sources, &self.mirrors, release, templates)?;
        let files: Vec<Value> =
            files.iter().map(|(path, text)| kubelet::file(path, text.as_bytes())).collect();
        // Without the version, so that the controller in the cluster makes it anew.
        Ok(kubelet::generated(&format!("99-{pool}-generated-registries"), pool, &files, None))
    }
}

/// The one object of its kind for a pool.
fn only<'a, T>(
    own: &[&'a T],
    pool: &str,
    kind: &'static str,
    name: impl Fn(&T) -> &str,
) -> Result<Option<&'a T>, BootstrapError> {
    match own {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        many => {
            let names: Vec<&str> = many.iter().map(|o| name(o)).collect();
            Err(BootstrapError::Several { pool: pool.to_owned(), kind, names: names.join(", ") })
        }
    }
}

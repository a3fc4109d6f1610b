//! The MachineConfiguration `cluster` where there is none, and its status.
//!
//! What it is not: what is computed from it (see `sync::machine_configuration`).

use super::step_error::{StepError, failed};
use super::{PassResult, Syncer, config_of};
use crate::sync::{boot_images, cluster, machine_configuration, objects};
use api::names::CLUSTER;
use client::call;
use kube::api::{Patch, PatchParams};
use serde_json::json;

impl Syncer {
    /// The MachineConfiguration where there is none, and its status.
    pub(super) async fn machine_configuration(&self, passed: &mut PassResult) -> Result<(), StepError> {
        let new = machine_configuration::new();
        let Some(api) = cluster::api_of(&self.client, &new) else { return Ok(()) };
        let there = match passed.seen.machine_configuration.take() {
            Some(there) => there,
            None => {
                let params = PatchParams::apply(objects::FIELD_MANAGER);
                let what = || format!("apply MachineConfiguration {CLUSTER}");
                let made = json!(call(what, api.patch(CLUSTER, &params, &Patch::Apply(&new))).await?);
                passed.done.push(format!("MachineConfiguration {CLUSTER}"));
                made
            }
        };
        let setting = passed.seen.settings.as_ref().map(|s| s.spec.reboots).unwrap_or_default();
        let there = match machine_configuration::annotation(&there, setting) {
            None => there,
            Some(patch) => {
                let what = || format!("patch the annotations of MachineConfiguration {CLUSTER}");
                let manager = Some(objects::FIELD_MANAGER.to_owned());
                let params = PatchParams { field_manager: manager, ..PatchParams::default() };
                let patched = json!(call(what, api.patch(CLUSTER, &params, &Patch::Merge(patch))).await?);
                passed.done.push(format!("the annotations of MachineConfiguration {CLUSTER}"));
                patched
            }
        };
        let config = config_of(&passed.seen)?;
        let of_images = boot_images::Cluster {
            installed: passed.installed.as_deref(),
            platform: config.as_ref().map(|c| c.spec.platform_type()).unwrap_or_default(),
            topology: config.as_ref().and_then(|c| c.spec.topology()),
        };
        let skew = boot_images::enforcement(&there, of_images);
        let status = machine_configuration::status(&there, &skew);
        let mut then = there.clone();
        then["status"][boot_images::FIELD] = skew;
        passed.boot_images_read = true;
        passed.boot_images = boot_images::too_old(&then, passed.seen.release.cluster_version.as_deref());
        let version = there["metadata"]["resourceVersion"].clone();
        let degraded = machine_configuration::degraded(&there);
        // The later steps read from it how much the parts log.
        passed.seen.machine_configuration = Some(there);
        if let Some(status) = status.map_err(failed)? {
            let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
            let what = || format!("patch the status of MachineConfiguration {CLUSTER}");
            let manager = Some(objects::FIELD_MANAGER.to_owned());
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            call(what, api.patch_status(CLUSTER, &params, &patch)).await?;
            passed.done.push(format!("the status of MachineConfiguration {CLUSTER}"));
        }
        degraded.map_or(Ok(()), |why| Err(failed(why)))
    }
}

//! Merges MachineConfigs, in order, into one spec. Pure.
//!
//! Sources: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfigController.md>
//! and <https://coreos.github.io/ignition/configuration-v3_5/>.

use crate::config::check::Component;
use crate::error::{Finding, Rule};
use api::names::{WORKER, annotation};
use api::v1::MachineConfigSpec;
use desired::DEFAULT_KERNEL;
use ignition::Config;
use std::borrow::Borrow;

/// The images that hosts run if no MachineConfig says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsImages {
    /// The OS.
    pub os: String,
    /// Its extensions.
    pub extensions: String,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The merged spec, including its `config`.
    pub spec: MachineConfigSpec,
    /// The merged Ignition config.
    pub config: Config,
}

/// Sorts MachineConfigs into merge order: first those of the role `worker`, then all others, each group by name. So a
/// custom pool's own MachineConfigs override those that it takes from `worker`, whatever their names.
pub fn sort<'a>(components: &mut [impl Borrow<Component<'a>>]) {
    components.sort_by(|a, b| {
        let (a, b): (&Component<'a>, &Component<'a>) = (a.borrow(), b.borrow());
        (a.role() != WORKER)
            .cmp(&(b.role() != WORKER))
            .then_with(|| a.name().as_bytes().cmp(b.name().as_bytes()))
    });
}

/// Merges MachineConfigs that are in merge order.
///
/// # Errors
/// A combination that no host can apply.
pub fn merge(mut components: Vec<Component<'_>>, images: &OsImages) -> Result<Merged, Finding> {
    let config = ignition_config(&mut components);
    let specs = || components.iter().map(|c| &c.machine_config.spec);
    let kernel_type =
        specs().rev().map(|s| desired::kernel_type(&s.kernel_type)).find(|k| *k != DEFAULT_KERNEL);
    let kernel_type = kernel_type.unwrap_or(DEFAULT_KERNEL).to_owned();
    let extensions: Vec<String> = specs().flat_map(|s| s.extensions.iter().flatten().cloned()).collect();
    if kernel_type != DEFAULT_KERNEL {
        let devel = components.iter().find_map(|c| {
            Some((c, c.machine_config.spec.extensions.iter().flatten().position(|e| e == "kernel-devel")?))
        });
        if let Some((c, i)) = devel {
            let message = format!("kernel-devel cannot be combined with kernelType {kernel_type}");
            let finding = Finding::on(Rule::Extension, c.name(), format!("spec.extensions[{i}]"), message);
            return Err(finding.with_remedy("remove one of them"));
        }
    }
    // Generated MachineConfigs of old releases set images. Only those of users count.
    let users = || components.iter().filter(|c| !is_generated(c)).map(|c| &c.machine_config.spec);
    let last = |field: fn(&MachineConfigSpec) -> &String, default: &String| {
        users().rev().map(field).find(|v| !v.is_empty()).unwrap_or(default).clone()
    };
    let written =
        config.to_value().map_err(|e| Finding::on_rendered(Rule::Ignition, "spec.config", e.to_string()))?;
    let spec = MachineConfigSpec {
        os_image_url: last(|s| &s.os_image_url, &images.os),
        base_os_extensions_container_image: last(
            |s| &s.base_os_extensions_container_image,
            &images.extensions,
        ),
        config: Some(written),
        kernel_arguments: Some(specs().flat_map(|s| s.kernel_arguments.iter().flatten().cloned()).collect()),
        extensions: Some(extensions),
        fips: specs().any(|s| s.fips),
        kernel_type,
    };
    Ok(Merged { spec, config })
}

/// Whether a controller made it, and not a user.
pub(crate) fn is_generated(c: &Component<'_>) -> bool {
    let annotations = c.machine_config.metadata.annotations.as_ref();
    annotations.and_then(|a| a.get(annotation::GENERATED_BY_CONTROLLER)).is_some_and(|v| !v.is_empty())
}

/// Moves the configs out of the components.
fn ignition_config(components: &mut [Component<'_>]) -> Config {
    let mut rest = components.iter_mut();
    let mut merged = rest.next().and_then(|c| c.config.take()).unwrap_or_else(ignition::empty);
    let mut any = false;
    for config in rest.filter_map(|c| c.config.take()) {
        any = true;
        merged = ignition::merge(merged, plain_unless_packed(config));
    }
    for f in &mut merged.storage.files {
        if any && f.contents.compression.as_deref() == Some("") {
            f.contents.compression = None;
        }
        f.overwrite.get_or_insert(true);
    }
    merged
}

/// Sets "no compression" explicitly, so that an uncompressed file also replaces the compression of the file that it
/// overrides.
fn plain_unless_packed(mut config: Config) -> Config {
    for f in &mut config.storage.files {
        f.contents.compression.get_or_insert_default();
    }
    config
}

//! MachineOSConfig and MachineOSBuild: a pool's own OS image, and one build of it.
//!
//! Objects that others wrote may lack any field: a single one that cannot be read must not end a watch. What the API
//! server refuses is in the published schemas and in [`crate::crds::rules`].
//!
//! What it is not: the build itself, or what a rollout makes of these objects.
//!
//! Sources: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types_machineosconfig.go>
//! and <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types_machineosbuild.go>.

use crate::k8s::{MetaCondition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NamedRef;

crate::definition::resource::resource!(
    /// The OS image that a pool's nodes run: how it is built, and where it is pushed to. Named as its pool.
    MachineOSConfig, MachineOSConfigSpec, MachineOSConfigStatus,
    "machineconfiguration.openshift.io", "v1", "machineosconfigs"
);

crate::definition::resource::resource!(
    /// One build of a pool's OS image, for one rendered MachineConfig.
    MachineOSBuild, MachineOSBuildSpec, MachineOSBuildStatus,
    "machineconfiguration.openshift.io", "v1", "machineosbuilds"
);

/// What is built, and where it goes. The build's name is a hash that covers it, so what is absent must stay absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSConfigSpec {
    /// The pool whose nodes get the image.
    #[serde(default)]
    pub machine_config_pool: NamedRef,
    /// What builds the image.
    #[serde(default)]
    pub image_builder: MachineOSImageBuilder,
    /// The Secret with which the base image is pulled. Default: `global-pull-secret-copy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_image_pull_secret: Option<NamedRef>,
    /// The Secret with which the image is pushed.
    #[serde(default)]
    pub rendered_image_push_secret: NamedRef,
    /// Where the image is pushed to: repository and tag. Each build has a tag of its own in that repository.
    #[serde(default)]
    pub rendered_image_push_spec: String,
    /// What is added to the image of the pool's config, as Containerfiles. The one for `NoArch` is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_file: Option<Vec<MachineOSContainerfile>>,
}

impl MachineOSConfigSpec {
    /// The Containerfile that is built; empty if there is none.
    pub fn containerfile(&self) -> &str {
        let all = self.container_file.iter().flatten();
        all.filter(|f| f.containerfile_arch == NO_ARCH).map(|f| f.content.as_str()).next().unwrap_or_default()
    }
}

/// The architecture of a Containerfile that is for all of them.
const NO_ARCH: &str = "NoArch";

fn no_arch() -> String {
    NO_ARCH.to_owned()
}

/// What builds an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSImageBuilder {
    /// The kind of builder: `Job`.
    #[serde(default)]
    pub image_builder_type: String,
}

impl Default for MachineOSImageBuilder {
    fn default() -> Self {
        Self { image_builder_type: "Job".to_owned() }
    }
}

/// A Containerfile for one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSContainerfile {
    /// The architecture that this content is for; only `NoArch` is built.
    #[serde(default = "no_arch")]
    pub containerfile_arch: String,
    /// The Containerfile's text; `FROM configs AS final` begins at the pool's image.
    #[serde(default)]
    pub content: String,
}

/// A reference to an object, by its resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReference {
    /// The API group; empty: the core group.
    #[serde(default)]
    pub group: String,
    /// The plural.
    #[serde(default)]
    pub resource: String,
    /// The namespace of an object that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name.
    #[serde(default)]
    pub name: String,
}

/// The image in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSConfigStatus {
    /// `Seeded`: the first image was not built here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<MetaCondition>>,
    /// The generation of the spec that the builder has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The image that the pool's nodes are to run, by digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_image_pull_spec: Option<String>,
    /// The build that this image is of.
    #[serde(rename = "machineOSBuild", default, skip_serializing_if = "Option::is_none")]
    pub machine_os_build: Option<ResourceReference>,
}

/// What is built. It never changes: another input is another build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSBuildSpec {
    /// The rendered MachineConfig that the image is built from.
    #[serde(default)]
    pub machine_config: NamedRef,
    /// The MachineOSConfig that asked for the build.
    #[serde(rename = "machineOSConfig", default)]
    pub machine_os_config: NamedRef,
    /// Where the image is pushed to: repository, and the build's name as its tag.
    #[serde(default)]
    pub rendered_image_push_spec: String,
}

/// How far a build is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSBuildStatus {
    /// Prepared, Building, Failed, Interrupted, Succeeded: at most one is `True`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<MetaCondition>>,
    /// What builds the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder: Option<MachineOSBuilder>,
    /// Objects that were made for the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related_objects: Option<Vec<ResourceReference>>,
    /// When the build began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_start: Option<Time>,
    /// When the build ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_end: Option<Time>,
    /// The image that came out, by digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digested_image_push_spec: Option<String>,
}

/// What builds one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineOSBuilder {
    /// The kind of builder: `Job`.
    #[serde(default)]
    pub image_builder_type: String,
    /// The Job that builds the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<ResourceReference>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_without_its_fields_is_read_and_only_the_noarch_containerfile_counts() {
        let bare: MachineOSConfig = serde_json::from_value(json!({"metadata": {"name": "x"}})).unwrap();
        assert_eq!(bare.spec.containerfile(), "");
        let full: MachineOSConfigSpec = serde_json::from_value(json!({
            "containerFile": [{"containerfileArch": "ARM64", "content": "arm"}, {"content": "any"}],
        }))
        .unwrap();
        assert_eq!(full.containerfile(), "any");
        let build: MachineOSBuild = serde_json::from_value(json!({
            "metadata": {"name": "x"}, "spec": {"machineOSConfig": {"name": "worker"}},
        }))
        .unwrap();
        assert_eq!(json!(build)["spec"]["machineOSConfig"]["name"], "worker");
    }
}

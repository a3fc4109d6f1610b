//! What a plan of image builds is made from. Nothing is decided here.

use crate::job::JobFacts;
use crate::report::Report;
use api::k8s::Time;
use api::names::annotation;
use api::v1::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use std::collections::{BTreeMap, BTreeSet};

/// What an image depends on in a rendered MachineConfig. A change of anything else needs no new image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// `spec.osImageURL`.
    pub os_image: Box<str>,
    /// `spec.baseOSExtensionsContainerImage`.
    pub extensions_image: Box<str>,
    /// `spec.kernelType`.
    pub kernel_type: Box<str>,
    /// `spec.kernelArguments`.
    pub kernel_arguments: Vec<String>,
    /// `spec.extensions`.
    pub extensions: Vec<String>,
    /// The annotation `release-image-version`.
    pub release: Box<str>,
}

impl Base {
    /// From a rendered MachineConfig.
    pub fn of(config: &MachineConfig) -> Self {
        let notes = config.metadata.annotations.as_ref();
        let release = notes.and_then(|a| a.get(annotation::RELEASE_IMAGE_VERSION));
        let spec = &config.spec;
        Self {
            os_image: spec.os_image_url.as_str().into(),
            extensions_image: spec.base_os_extensions_container_image.as_str().into(),
            kernel_type: desired::kernel_type(&spec.kernel_type).into(),
            kernel_arguments: spec.kernel_arguments.clone().unwrap_or_default(),
            extensions: spec.extensions.clone().unwrap_or_default(),
            release: release.map(|r| r.as_str().into()).unwrap_or_default(),
        }
    }

    /// Whether an image for this config does not fit another one. The reference compares the same four fields.
    pub(crate) fn needs_another_image(&self, new: &Self) -> bool {
        (&self.os_image, &self.kernel_type, &self.kernel_arguments, &self.extensions)
            != (&new.os_image, &new.kernel_type, &new.kernel_arguments, &new.extensions)
    }
}

/// Everything that a plan is made from.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// Its MachineOSConfig.
    pub config: Option<&'a MachineOSConfig>,
    /// The builds of that MachineOSConfig, or those of the pool if there is none.
    pub builds: Vec<&'a MachineOSBuild>,
    /// The rendered configs that the pool and these builds name, as far as they exist.
    pub rendered: BTreeMap<&'a str, &'a Base>,
    /// The Jobs of these builds.
    pub jobs: Vec<&'a JobFacts>,
    /// Builds whose Job is not there, as the API server says: a cache may not have it yet, or may have lost it.
    pub absent: BTreeSet<&'a str>,
    /// The base images of builds whose pods have failed, as these found them behind a tag.
    pub bases: BTreeMap<&'a str, String>,
    /// What keeps pods of these builds from starting.
    pub why_not_started: BTreeMap<&'a str, String>,
    /// What the pods of Jobs that have ended say, by the build's name.
    pub reports: BTreeMap<&'a str, Report>,
    /// Images that a node runs or is to run.
    pub in_use: BTreeSet<&'a str>,
    /// The image that holds bash and buildah. Without one nothing is built here, and nothing is touched.
    pub builder: Option<&'a str>,
    /// The time.
    pub now: &'a Time,
}

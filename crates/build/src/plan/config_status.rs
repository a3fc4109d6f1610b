//! What is written to a MachineOSConfig about its builds: the build and the image that are in force.

use super::{BuildPlan, OsConfigUpdate, Step, note, reference};
use crate::build_reason::BuildReason;
use crate::names;
use api::k8s::{MetaCondition, Time};
use api::names::annotation;
use api::v1::{MachineOSConfig, ResourceReference};

impl BuildPlan {
    /// Has the MachineOSConfig name a build, and its image if there is one. `seeded`: when that image was taken over.
    pub(super) fn point(
        &mut self,
        config: &MachineOSConfig,
        build: &str,
        image: Option<&str>,
        seeded: Option<&Time>,
    ) {
        let old = config.status.clone().unwrap_or_default();
        let mut new = old.clone();
        if let Some(image) = image {
            new.current_image_pull_spec = Some(image.to_owned());
            new.machine_os_build = Some(ResourceReference {
                namespace: None,
                ..reference(api::names::GROUP, "machineosbuilds", build)
            });
        }
        new.observed_generation = new.observed_generation.max(config.metadata.generation);
        let known = |c: &MetaCondition| c.type_ == "Seeded";
        if let Some(now) = seeded.filter(|_| !old.conditions.iter().flatten().any(known)) {
            let list = new.conditions.get_or_insert_default();
            list.push(MetaCondition {
                type_: "Seeded".to_owned(),
                status: "True".to_owned(),
                reason: BuildReason::Seeded.text().to_owned(),
                message: "the pool runs an image that was not built here".to_owned(),
                last_transition_time: now.clone(),
                observed_generation: None,
            });
        }
        let mut clear = vec![];
        if note(config, names::REBUILD).is_some() {
            clear.push(names::REBUILD);
        }
        let current = note(config, annotation::CURRENT_BUILD);
        if note(config, names::PRE_BUILT).is_some()
            && current.is_some()
            && old.current_image_pull_spec.is_some()
        {
            clear.push(names::PRE_BUILT);
        }
        let status = (new != old).then_some(new);
        if current != Some(build) || !clear.is_empty() || status.is_some() {
            self.steps.push(Step::UpdateOsConfig(Box::new(OsConfigUpdate {
                build: build.to_owned(),
                clear,
                status,
            })));
        }
    }
}

//! Steps that write down the config in effect, its image, the values of kernel parameters from before, and the reboot that is due.
//! Pure.
//!
//! Not here: the form of these records (see `record`).

use api::v1::MachineConfigSpec;
use desired::{Content, config_and_image};

use crate::disk::attributes::{PLAIN, PRIVATE};
use crate::paths;
use crate::plan::disruption::Disruption;
use crate::plan::step::Step;
use crate::plan::steps::Steps;
use crate::record::{CurrentConfig, Names, PendingReboot};

impl Steps<'_> {
    /// Adds the records of the config in effect and of a pending reboot.
    pub(crate) fn bookkeeping(
        &mut self,
        names: &Names,
        desired: &MachineConfigSpec,
        disruption: &Disruption,
    ) {
        for path in [paths::OS_FAILURE, paths::TRIAL_FAILURE, paths::LIVE_REFUSED] {
            if !self.found(path).is_absent() {
                let (path, why) = (path.to_owned(), "left over from an earlier try");
                self.steps.push(Step::Remove { path, why });
            }
        }
        let config = CurrentConfig { name: names.desired.clone(), spec: desired.clone() };
        match config.to_json() {
            Ok(json) => self.write(paths::CURRENT_CONFIG, Content::new(json), PRIVATE),
            Err(why) => self.refuse("spec", why, "correct the MachineConfig"),
        }
        match config_and_image(&names.desired).1 {
            "" if self.found(paths::CURRENT_IMAGE).is_absent() => {}
            "" => {
                let (path, why) =
                    (paths::CURRENT_IMAGE.to_owned(), "the machine runs its config's own image");
                self.steps.push(Step::Remove { path, why });
            }
            image => self.write(paths::CURRENT_IMAGE, Content::new(image.as_bytes().to_vec()), PLAIN),
        }
        if let Some(before) = &disruption.parameters_before {
            match serde_json::to_vec(before) {
                Ok(json) => self.write(paths::PARAMETERS_BEFORE, Content::new(json), PRIVATE),
                Err(e) => self.refuse(paths::PARAMETERS_BEFORE, e.to_string(), "remove the file"),
            }
        }
        if disruption.needs_reboot() {
            let pending = PendingReboot {
                config: names.desired.clone(),
                boot: self.facts.boot.clone(),
                because: disruption.reboot.clone(),
                tries: 0,
                cleared: self.facts.cleared,
                soft: disruption.soft,
                back: false,
                returns: 0,
            };
            match serde_json::to_vec(&pending) {
                Ok(json) => self.write(paths::REBOOT_PENDING, Content::new(json), PRIVATE),
                Err(e) => self.refuse(paths::REBOOT_PENDING, e.to_string(), "correct the MachineConfig"),
            }
        }
    }
}

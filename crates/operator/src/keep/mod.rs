//! The running operator: keeps everything that is installed as the settings object says, in one loop of ordered steps.
//!
//! Flow: something changes, or [`AGAIN`] passes → the cluster is read ([`cluster::look`]) → each step of [`STEPS`] plans what
//! it wants ([`plan`], pure) → what differs is written and waited for ([`pass`]) → the conditions are computed ([`status`],
//! pure) and written where they changed ([`report`]).
//!
//! Guarantees: a step begins when all before it are done, so operands are rolled out one after the other; a pass that ends
//! at any point is taken up by the next one; only the holder of the Lease acts.
//!
//! What it is not: the manifests (see `manifests`), and `mco install`, which writes what the operator itself needs.

pub(crate) mod cluster;
mod metrics;
pub(crate) mod objects;
mod pass;
mod plan;
mod report;
mod run;
pub(crate) mod status;

pub use metrics::sample as metrics_sample;
pub use run::{Options, StartError, once, run};

use std::fmt;
use std::time::Duration;

/// A pass is made at least this often: certificates age for years without any change in the cluster, and the API server
/// does not tell of everything that a pass looks at.
const AGAIN: Duration = Duration::from_secs(3600);

/// A step of the installation. Its name is the reason of the condition that says why the operator cannot go on:
/// `RightsFailed` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The settings object makes sense.
    Settings,
    /// The operator's own Deployment has the image that the settings name.
    MachineConfigOperator,
    /// The definitions of our kinds.
    CustomResourceDefinitions,
    /// What the cluster is, for rendering and templates.
    ControllerConfig,
    /// The built-in pools.
    MachineConfigPools,
    /// Accounts and rights of the other parts.
    Rights,
    /// What the API server refuses.
    AdmissionPolicies,
    /// The config server's CA and certificate.
    Certificates,
    /// User data and boot tokens of machines.
    UserData,
    /// The controller, and its rollout.
    MachineConfigController,
    /// The config server, and its rollout.
    MachineConfigServer,
    /// The agents, and their rollout.
    MachineConfigDaemon,
    /// What is no longer wanted goes.
    Prune,
    /// The pools that an upgrade of the cluster waits for are in their configs.
    RequiredPools,
}

impl Step {
    /// The reason of a condition when this step has failed.
    pub fn failed(self) -> String {
        format!("{self}Failed")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Why a pass stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// What was begun takes its time; a change of the cluster continues it.
    Waiting(String),
    /// It cannot go on: the object, the cause and the remedy.
    Failed(String),
}

/// Where a pass has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// At which step.
    pub step: Step,
    /// Why.
    pub stop: Stop,
}

/// Which settings a step needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// None: it works where the parts were started by hand, too.
    Nothing,
    /// The settings object.
    Settings,
}

/// What a step does.
#[derive(Clone, Copy)]
enum Work {
    /// Its objects are written where they differ, and waited for where they are workloads.
    Objects(fn(&plan::Inputs<'_>) -> Result<Vec<serde_json::Value>, String>),
    /// As [`Self::Objects`], for the operator itself: everything else is left to the operator of the new image.
    Own(fn(&plan::Inputs<'_>) -> Result<Vec<serde_json::Value>, String>),
    /// The definitions, unless a newer version wrote them.
    Definitions,
    /// The ControllerConfig.
    ControllerConfig,
    /// Pools are created and never changed.
    Pools,
    /// Certificates.
    Certificates,
    /// User data.
    UserData,
    /// Objects that no step wants are deleted.
    Prune,
    /// Pools are looked at.
    RequiredPools,
}

/// One step: what it needs, and what it does.
struct Descriptor {
    step: Step,
    needs: Needs,
    work: Work,
}

const fn step(step: Step, needs: Needs, work: Work) -> Descriptor {
    Descriptor { step, needs, work }
}

/// All steps, in their order. The settings are read before the first one.
const STEPS: [Descriptor; 13] = {
    use Needs::{Nothing, Settings};
    [
        // First: what follows is for the operator of the image that is wanted.
        step(Step::MachineConfigOperator, Settings, Work::Own(plan::own)),
        step(Step::CustomResourceDefinitions, Settings, Work::Definitions),
        step(Step::ControllerConfig, Settings, Work::ControllerConfig),
        step(Step::MachineConfigPools, Settings, Work::Pools),
        step(Step::Rights, Settings, Work::Objects(plan::rights)),
        step(Step::AdmissionPolicies, Settings, Work::Objects(plan::policies)),
        // Before the parts: the config server's pods wait for the certificate.
        step(Step::Certificates, Nothing, Work::Certificates),
        step(Step::UserData, Nothing, Work::UserData),
        step(Step::MachineConfigController, Settings, Work::Objects(plan::controller)),
        step(Step::MachineConfigServer, Settings, Work::Objects(plan::server)),
        step(Step::MachineConfigDaemon, Settings, Work::Objects(plan::agents)),
        step(Step::Prune, Settings, Work::Prune),
        step(Step::RequiredPools, Settings, Work::RequiredPools),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_comes_once_and_the_parts_are_rolled_out_in_their_order() {
        let order: Vec<Step> = STEPS.iter().map(|d| d.step).collect();
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(order, sorted, "as the enum says it");
        assert_eq!(Step::Rights.failed(), "RightsFailed");
        let without: Vec<Step> = STEPS.iter().filter(|d| d.needs == Needs::Nothing).map(|d| d.step).collect();
        assert_eq!(without, [Step::Certificates, Step::UserData]);
    }
}

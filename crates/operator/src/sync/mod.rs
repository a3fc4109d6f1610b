//! The running operator: keeps everything that is installed as the settings object says, in one loop of ordered steps.
//!
//! Flow: something changes, or [`AGAIN`] passes → the cluster is read ([`cluster::read`]) → each step of [`STEPS`] plans what
//! it wants ([`plan`], pure) → what differs is written and waited for ([`pass`]) → the conditions are computed ([`status`],
//! pure) and written where they changed ([`report`]).
//!
//! Guarantees: a step begins when all before it are done, so operands are rolled out one after the other (a failure of a step
//! that no other one needs is remembered, and reported at the end: [`Step::is_needed`]); a pass that ends at any point is taken
//! up by the next one; only the holder of the Lease acts.
//!
//! What it is not: the manifests (see `manifests`), and `mco install`, which writes what the operator itself needs.

pub(crate) mod boot_images;
pub(crate) mod cluster;
mod down_nodes;
mod followed;
mod image_builds;
mod machine_configuration;
mod metrics;
pub(crate) mod objects;
mod options;
mod pass;
mod pass_failures;
mod plan;
pub mod progress;
mod push_secrets;
mod report;
mod required_pools;
mod rotation;
mod run;
pub(crate) mod status;
mod watches;

pub use metrics::sample as metrics_sample;
pub use options::Options;
pub use run::{StartError, run, run_once};

use std::fmt;
use std::time::Duration;

/// A pass is made at least this often: certificates age for years without any change in the cluster, and the API server
/// does not tell of everything that a pass looks at.
const AGAIN: Duration = Duration::from_secs(3600);

/// A step of the installation. Its name is the reason of the condition that says what has failed: `RightsFailed` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The objects that a pass works with are read.
    Read,
    /// The watches work that tell of changes. Where one does not, passes look for changes.
    Watch,
    /// The certificates of machines that join are approved, after all other steps and whatever has become of these.
    Joining,
    /// The CAs that administrators keep themselves do not end soon. It is looked at with the certificates.
    CaLifetime,
    /// The settings object is valid.
    Settings,
    /// The operator's own Deployment has the image that the settings name.
    MachineConfigOperator,
    /// The definitions of our kinds.
    CustomResourceDefinitions,
    /// What the cluster is, for rendering and templates.
    ControllerConfig,
    /// What a change costs nodes: the policies in force, in the status of MachineConfiguration `cluster`.
    MachineConfiguration,
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
    /// The version and the images of the release reach the ControllerConfig, and with it the pools.
    Release,
    /// What is no longer wanted goes.
    Prune,
    /// Prometheus and Grafana are told of the parts.
    Monitoring,
    /// The dashboard, and its rollout.
    MachineConfigDashboard,
    /// The pools that an upgrade of the cluster waits for are in their configs.
    RequiredPools,
}

impl Step {
    /// Whether later steps need this one. Nodes must get their rights, certificates and agents whatever somebody wrote into the
    /// MachineConfiguration, into the user data of machines that do not exist yet, or into objects of Prometheus, and although changes
    /// are seen late; a dashboard that does not start is no reason not to look at pools.
    fn is_needed(self) -> bool {
        self.is_of_installation()
            && !matches!(
                self,
                Self::MachineConfiguration | Self::UserData | Self::Monitoring | Self::MachineConfigDashboard
            )
    }

    /// Whether something is not installed as it is to be when this has failed. Otherwise a version is reached nevertheless.
    fn is_of_installation(self) -> bool {
        !matches!(self, Self::Watch | Self::Joining | Self::CaLifetime)
    }

    /// All of them, in their order.
    const ALL: [Self; 22] = [
        Self::Read,
        Self::Watch,
        Self::Joining,
        Self::CaLifetime,
        Self::Settings,
        Self::MachineConfigOperator,
        Self::CustomResourceDefinitions,
        Self::ControllerConfig,
        Self::MachineConfiguration,
        Self::MachineConfigPools,
        Self::Rights,
        Self::AdmissionPolicies,
        Self::Certificates,
        Self::UserData,
        Self::MachineConfigController,
        Self::MachineConfigServer,
        Self::MachineConfigDaemon,
        Self::Release,
        Self::Prune,
        Self::Monitoring,
        Self::MachineConfigDashboard,
        Self::RequiredPools,
    ];

    /// The reason of a condition when this step has failed.
    pub fn failed(self) -> String {
        format!("{self}Failed")
    }

    /// The step that a condition's reason is about: it waits, or it has failed.
    pub fn of_reason(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| reason == step.to_string() || reason == step.failed())
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
    /// It has failed: the object, the cause and the remedy.
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
    /// The ControllerConfig, without what the release says.
    ControllerConfig,
    /// What the release says, in the ControllerConfig.
    Release,
    /// The MachineConfiguration is created, and its status is kept.
    MachineConfiguration,
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
const STEPS: [Descriptor; 17] = {
    use Needs::{Nothing, Settings};
    [
        // First: what follows is for the operator of the image that is wanted.
        step(Step::MachineConfigOperator, Settings, Work::Own(plan::own)),
        step(Step::CustomResourceDefinitions, Settings, Work::Definitions),
        step(Step::ControllerConfig, Settings, Work::ControllerConfig),
        step(Step::MachineConfiguration, Settings, Work::MachineConfiguration),
        step(Step::MachineConfigPools, Settings, Work::Pools),
        step(Step::Rights, Settings, Work::Objects(plan::rights)),
        step(Step::AdmissionPolicies, Settings, Work::Objects(plan::policies)),
        // Before the parts: the config server's pods wait for the certificate.
        step(Step::Certificates, Nothing, Work::Certificates),
        step(Step::UserData, Nothing, Work::UserData),
        step(Step::MachineConfigController, Settings, Work::Objects(plan::controller)),
        step(Step::MachineConfigServer, Settings, Work::Objects(plan::server)),
        step(Step::MachineConfigDaemon, Settings, Work::Objects(plan::agents)),
        // After all parts, and before pools are waited for: they are rendered once, by a controller of this version, from the
        // templates and images of one release.
        step(Step::Release, Settings, Work::Release),
        step(Step::Prune, Settings, Work::Prune),
        // Last of all objects: whoever refuses these keeps nothing else from being there.
        step(Step::Monitoring, Settings, Work::Objects(plan::monitoring)),
        step(Step::MachineConfigDashboard, Settings, Work::Objects(plan::dashboard)),
        step(Step::RequiredPools, Settings, Work::RequiredPools),
    ]
};

#[cfg(test)]
mod tests {
    use super::pass_failures::PassFailures;
    use super::*;
    use std::ops::ControlFlow;

    #[test]
    fn a_release_goes_from_the_operator_over_its_parts_to_the_pools() {
        let at = |step: Step| STEPS.iter().position(|d| d.step == step).unwrap();
        let order = [
            // The new operator, by the image that the payload names; everything else is its own work.
            Step::MachineConfigOperator,
            Step::CustomResourceDefinitions,
            Step::Rights,
            Step::MachineConfigController,
            Step::MachineConfigServer,
            Step::MachineConfigDaemon,
            // The OS image and the version that may render reach the controller: nothing is rendered of the release before.
            Step::Release,
            // And they are waited for.
            Step::RequiredPools,
        ];
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
        // Whatever stops one of them keeps the release from the pools: none of these is passed over.
        for step in order.into_iter().take_while(|s| *s != Step::Release) {
            let mut failures = PassFailures::default();
            let stop = Stop::Waiting("its pods".to_owned());
            assert_eq!(failures.record(Stopped { step, stop }), ControlFlow::Break(()), "{step}");
            let stop = Stop::Failed("an image that does not exist".to_owned());
            assert_eq!(
                PassFailures::default().record(Stopped { step, stop }),
                ControlFlow::Break(()),
                "{step}"
            );
        }
        assert_eq!(at(Step::RequiredPools), STEPS.len() - 1, "the pools come last");
    }

    #[test]
    fn the_guide_lists_the_steps_and_those_that_hold_up_no_other_one() {
        let guide = include_str!("../../../../docs/operations.md");
        // The names between the two texts.
        let names = |from: &str, to: &str| -> Vec<String> {
            let (_, after) = guide.split_once(from).unwrap();
            let (list, _) = after.split_once(to).unwrap();
            list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let all = [Step::Settings].into_iter().chain(STEPS.iter().map(|d| d.step));
        let all: Vec<String> = all.map(|step| step.to_string()).collect();
        assert_eq!(names("The steps, in their order:", ".\n"), all);
        let passed_over = STEPS.iter().filter(|d| !d.step.is_needed());
        let passed_over: Vec<String> = passed_over.map(|d| d.step.to_string()).collect();
        assert_eq!(names("A failure of", "holds up no other step"), passed_over);
    }

    #[test]
    fn the_alert_and_its_page_name_the_steps_that_hold_up_no_other_one() {
        let alert =
            crate::monitoring::ALERTS.iter().find(|alert| alert.name == "MCOOperatorDegraded").unwrap();
        let page = include_str!("../../../../docs/runbooks/MCOOperatorDegraded.md");
        for (text, begin, end) in
            [(alert.description, "No step waits for ", ". "), (page, "No other step waits for ", ". When")]
        {
            let (_, after) = text.split_once(begin).unwrap();
            let (list, _) = after.split_once(end).unwrap();
            let list = list.replace('`', "").replace(" and ", ", ");
            let passed_over = Step::ALL.into_iter().filter(|step| !step.is_needed());
            let passed_over: Vec<String> = passed_over.map(|step| step.to_string()).collect();
            assert_eq!(list.split(", ").collect::<Vec<_>>(), passed_over);
        }
    }

    #[test]
    fn all_steps_are_among_all_steps() {
        // Whoever adds a step is told here by the compiler, and gives it the next number.
        let number = |step: Step| match step {
            Step::Read => 0,
            Step::Watch => 1,
            Step::Joining => 2,
            Step::CaLifetime => 3,
            Step::Settings => 4,
            Step::MachineConfigOperator => 5,
            Step::CustomResourceDefinitions => 6,
            Step::ControllerConfig => 7,
            Step::MachineConfiguration => 8,
            Step::MachineConfigPools => 9,
            Step::Rights => 10,
            Step::AdmissionPolicies => 11,
            Step::Certificates => 12,
            Step::UserData => 13,
            Step::MachineConfigController => 14,
            Step::MachineConfigServer => 15,
            Step::MachineConfigDaemon => 16,
            Step::Release => 17,
            Step::Prune => 18,
            Step::Monitoring => 19,
            Step::MachineConfigDashboard => 20,
            Step::RequiredPools => 21,
        };
        // Its length is that of the list above.
        let all: [usize; 22] = std::array::from_fn(|number| number);
        assert_eq!(Step::ALL.map(number), all);
        assert!(Step::ALL.is_sorted(), "as the enum says it");
        for step in Step::ALL {
            assert_eq!(Step::of_reason(&step.to_string()), Some(step));
            assert_eq!(Step::of_reason(&step.failed()), Some(step));
        }
        // Those that a pass does not carry out in its turn.
        let carried_out = STEPS.iter().map(|d| d.step);
        let others = [Step::Read, Step::Watch, Step::Joining, Step::CaLifetime, Step::Settings].into_iter();
        assert!(others.chain(carried_out).eq(Step::ALL));
    }

    #[test]
    fn each_step_comes_once_and_the_parts_are_rolled_out_in_their_order() {
        let order: Vec<Step> = STEPS.iter().map(|d| d.step).collect();
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(order, sorted, "as the enum says it");
        assert_eq!(Step::Rights.failed(), "RightsFailed");
        assert_eq!(Step::of_reason("AsExpected"), None);
        let without: Vec<Step> = STEPS.iter().filter(|d| d.needs == Needs::Nothing).map(|d| d.step).collect();
        assert_eq!(without, [Step::Certificates, Step::UserData]);
    }
}

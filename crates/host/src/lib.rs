//! Changes one machine from one config to another: what must change, what that costs, and how it is applied so that a
//! crash at any instruction leaves the old state or the new one.
//!
//! ```text
//! Host::inspect ─► Facts ─┐
//! current, desired ───────┼─► plan ─► HostPlan ─► (the caller drains) ─► Host::apply ─► (the caller reboots)
//! DisruptionPolicy ───────┘                                                  │
//! at start-up: Host::recover ◄──────────── journal ◄─────────────────────────┘
//! ```
//!
//! This crate knows nothing of Kubernetes. It is synchronous: async callers run it on a blocking thread.

mod baseline;
mod disk;
mod drift;
mod error;
pub mod fault;
mod host;
mod inspect;
pub mod paths;
mod plan;
mod record;
mod system;
mod transaction;

pub use baseline::Baseline;
pub use desired::{Content, DesiredOs, Irreconcilable, OsField, Scope};
pub use desired::{DisruptionPolicy, FilePolicy, KeyPolicy, PolicyAction, Service, UnitPolicy};
pub use disk::attributes::Attributes;
pub use disk::fs_error::FsError;
pub use disk::obstacle::Obstacle;
pub use disk::path_state::PathState;
pub use disk::root::{Options, Root};
pub use drift::baseline::{Drifted, applied, parsed};
pub use drift::difference::Drift;
pub use drift::watch::{DiskEvent, Stop, Watch};
pub use error::Error;
pub use host::Host;
pub use plan::cut_off::{CutOff, cut_offs};
pub use plan::disruption::{Disruption, Rule, RuleDecision, ServiceDisruption};
pub use plan::effects::{Effect, Planned, UnitVerb};
pub use plan::facts::{EffectFacts, Facts, PathFacts};
pub use plan::least_disruption::{LeastDisruption, least_disruption};
pub use plan::os::OsChange;
pub use plan::preview::{Severity, preview, warnings};
pub use plan::secret::Secret;
pub use plan::sshd::{Answer, SshdAnswers};
pub use plan::step::{Replaces, Step, UnitAction};
pub use plan::trust::TrustTool;
pub use plan::{Change, HostPlan};
pub use record::{
    Boot, Check, CurrentConfig, LiveRefusal, LoginUnit, MOST_REBOOTS, Names, OsFailure, PendingReboot,
    RebootStatus, Trial, TrialFailure, UndoneTrialCheck, UnitRun,
};
pub use system::dbus::DbusSystemd;
pub use system::fake_os::FakeOs;
pub use system::fake_systemd::FakeSystemd;
pub use system::os::argument_rules::{ArgumentRules, ArgumentSyntax};
pub use system::os::loader::BootLoader;
pub use system::os::ordinary::OrdinaryHost;
pub use system::os::origin::{OsOrigin, RecordedOs};
pub use system::os::{Deployment, OsBackend, OsError, OsStatus, Token, Unsupported};
pub use system::os_choice::{OsCandidate, OsChoice, Runners, choose_os};
pub use system::os_release::OsRelease;
pub use system::programs::{HostPrograms, Output, ProgramError, Programs};
pub use system::pull::{KubernetesVersion, Pull, Pulled};
pub use system::systemd::{Rationale, ServiceAction, Systemd, SystemdError, UnitFileState, UnitState};
pub use system::users::{User, Users};
pub use transaction::apply::Applied;
pub use transaction::lock::AgentLock;
pub use transaction::recover::Recovery;
pub use transaction::trial::{OpenTrial, TRIAL_UNIT};

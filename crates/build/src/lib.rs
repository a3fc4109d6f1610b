//! Image builds: a pool's OS image, made of its rendered MachineConfig, the base image and a Containerfile.
//!
//! What it is: pure functions. [`plan`] says what happens next to the builds of one pool: which one is created, started,
//! reused, interrupted or deleted, and which image is in force. [`pushed::clean_up`] says which images go from registries. [`objects`] makes the Job and the ConfigMaps of a build,
//! [`containerfile`] the Containerfile. A build's name is a hash of its inputs (`render::build_name`), the same in every
//! implementation.
//!
//! What it is not: the network or a clock, or the rollout of an image (see `rollout`). The caller carries the plan out.

mod build_counts;
mod build_reason;
pub mod containerfile;
mod inputs;
mod job;
pub mod names;
pub mod objects;
mod ownership;
mod plan;
mod prune;
pub mod pushed;
mod remedy;
mod report;
mod state;

pub use build_counts::{BuildCounts, BuildObservation, CurrentBuild, PushResult, observation};
pub use inputs::{Base, Inputs};
pub use job::{JobFacts, JobFailure, StartCheck};
pub use plan::{BuildPlan, OsConfigUpdate, Step, Wait, plan, refused, unseen_jobs};
pub use report::{ConfigMapDigest, Report, Warning, base_of, last_lines, why_not_started};
pub use state::{State, is_ended};

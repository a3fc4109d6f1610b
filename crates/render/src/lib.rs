//! Turns MachineConfigs and templates into one rendered MachineConfig for each pool.
//!
//! What it is: pure functions. [`select`] picks a pool's MachineConfigs; [`plan`] checks, merges and names them, and
//! records where everything comes from. [`template`] makes MachineConfigs from templates, [`generated`] from the
//! cluster's settings. [`bootstrap`] renders whole sets of manifests, and [`lint()`] reports what is wrong with them.
//!
//! What it is not: the network, clocks or files. The caller writes the result.

pub mod bootstrap;
mod config;
mod error;
mod go_yaml;
mod lint;
mod settings;
mod similar_names;
mod size;
pub mod template;
mod tls;
mod version;

pub use config::check::{Component, validate_machine_config};
pub use config::diff::{DiffSide, diff, diff_parsed};
pub use config::inputs::Inputs;
pub use config::merge::{Merged, OsImages, merge, sort};
pub use config::name::{BuildBase, build_name, name, os_config_hash};
pub use config::object::reference;
pub use config::plan::{RenderPlan, plan, select};
pub use config::provenance::{Origin, Provenance, ProvenanceError};
pub use config::streams::Stream;
pub use config::{history, provenance, streams};
pub use desired::{KERNEL_TYPES, Overrides};
pub use error::{Finding, Reason, RenderError, Rule};
pub use lint::{Extent, Lint, Severity, default_pools, lint, lint_by_schema, lint_with};
pub use settings::container_runtime::ContainerRuntimeError;
pub use settings::kubelet_config::KubeletConfigError;
pub use settings::registries::RegistriesError;
pub use settings::registries::mirrors::MirrorError;
pub use settings::registries::signatures::{Conflict, SignatureError};
pub use settings::{generated, kubelet};
pub use template::data::Data as TemplateData;
pub use template::{TemplateError, TemplateSet};
pub use tls::TlsProfile;
pub use version::{Mode, Versions};

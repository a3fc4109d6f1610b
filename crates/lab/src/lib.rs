//! A real local cluster for the demo, tests and benchmarks: a control plane of the real programs, nodes that are
//! directories or real machines, and the guarantee that nothing of it is left behind.
//!
//! Not here: product logic. The product's programs are started as a user starts them.
//!
//! Flow: [`Environment`] → [`Programs`] (found or built) → [`ControlPlane`] in a [`Folder`] → nodes → `Lab`.

mod api_proxy;
mod base_root;
mod certs;
mod cgroup;
mod control_plane;

mod error;
mod fault_proxy;
mod first_boot;
mod folder;
mod handle;
mod image;
mod kubelet_standin;
mod lab;
mod machine;
mod memory;
mod network;
mod packages;
mod paths;
mod pod_standin;
mod process;
mod programs;
mod progress;
mod real_kubelet;
mod real_node;
mod simulated;
mod spec;
mod supervise;
mod testing;

pub use api_proxy::{ApiProxy, Call, Verdict};
pub use base_root::Distribution;
pub use certs::{Authority, Pair};
pub use client::chain;
pub use control_plane::{ControlPlane, ControlPlaneOptions, client};
pub use error::{Error, Result};
pub use fault_proxy::{Fault, FaultProxy};
pub use first_boot::{BareMachine, IgnitionLog};
pub use folder::{Folder, ProcessKey, Record, recorded, sweep};
pub use handle::{NodeHandle, NodeKind};
pub use image::{PAUSE_IMAGE, program_image};
pub use kubelet_standin::{KubeletStandIn, NodeSpec, new_boot_id};
pub use lab::Lab;
pub use machine::{Machine, MachineState};
pub use network::Bridge;
pub use packages::{ensure_packages, ensure_test_packages, install_packages, is_root, missing_packages};
pub use paths::{Environment, go_modules};
pub use pod_standin::PodStandIn;
pub use process::{Output, Process, Signal};
pub use programs::{KUBERNETES_VERSION, Program, Programs};
pub use progress::{Progress, Reporter, Step};
pub use real_kubelet::KUBELET_UNIT;
pub use real_node::{DAEMON_UNIT, FIRSTBOOT_UNIT, NodeFile, RECOVER_UNIT, RealNode};
pub use simulated::{EMPTY_CONFIG, NodeNews};
pub use spec::{Kubelet, LabBuilder, LabSpec};
pub use supervise::{Attached, down, running, supervise, up};
pub use testing::{built_mco, require, require_root, shared, unique_name};

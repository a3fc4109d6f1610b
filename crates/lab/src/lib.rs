//! A real local cluster for the demo, tests and benchmarks: a control plane of the real programs, nodes that are
//! folders or machines that boot, and the guarantee that nothing of it is left behind.
//!
//! Not here: product logic. The product's programs are started as a user starts them.
//!
//! Flow: [`Environment`] → [`Programs`] (found or built) → [`ControlPlane`] in a [`Folder`] → nodes → `Lab`. A [`Kubeadm`]
//! cluster has its control plane in its nodes instead.

mod browser;
mod builder;
mod control_plane;
mod delivery;
mod error;
mod kubeadm;
mod lab;
mod machine;
mod progress;
mod proxy;
mod simulated;
mod system;
mod testing;
mod vm;

pub use browser::Chromium;
pub use builder::Builder;
pub use client::chain;
pub use control_plane::certs::{Authority, Pair};
pub use control_plane::programs::{KUBERNETES_VERSION, Program, Programs};
pub use control_plane::{ControlPlane, ControlPlaneOptions, client};
pub use delivery::packages::PackageRecipe;
pub use delivery::plugin::PluginArchive;
pub use delivery::{
    BUILDER_IMAGE, BuiltImage, CERTIFICATES_IN_IMAGE, DebianPackage, ImageRecipe, PRODUCT_IMAGE,
    PROGRAM_IN_IMAGE, TEMPLATES_IN_IMAGE, architecture, builder_archive, builder_image, product_image,
};
pub use error::{Error, FullLog, Result};
pub use kubeadm::Kubeadm;
pub use kubeadm::spec::{KubeadmBuilder, KubeadmSpec};
pub use lab::Lab;
pub use lab::fake_ostree::PULL as OSTREE_PULL;
pub use lab::spec::{Kubelet, LabBuilder, LabSpec, Request};
pub use lab::supervise::{Attached, down, running, supervise, up, up_until};
pub use lab::virtual_node::VirtualNode;
pub use machine::base_root::{Distribution, base_root, package_root};
pub use machine::first_boot::{BareMachine, IgnitionLog};
pub use machine::handle::NodeHandle;
pub use machine::image::PAUSE_IMAGE;
pub use machine::layout::Layout;
pub use machine::node_file::NodeFile;
pub use machine::real_kubelet::KUBELET_UNIT;
pub use machine::real_node::{DAEMON_UNIT, FIRSTBOOT_UNIT, RECOVER_UNIT, RealNode};
pub use machine::{Machine, MachineState};
pub use progress::{Progress, Reporter, Step};
pub use proxy::api_proxy::{ApiProxy, Call, Verdict};
pub use proxy::fault_proxy::{Fault, FaultProxy};
pub use simulated::fake_kubelet::FakeKubelet;
pub use simulated::fake_pods::FakePods;
pub use simulated::fleet_api::FleetApi;
pub use simulated::node_spec::{NodeSpec, new_boot_id};
pub use simulated::{EMPTY_CONFIG, NodeNews};
pub use system::command::Output;
pub use system::folder::{Folder, NodeKind, ProcessKey, Record, recorded, sweep};
pub use system::network::Bridge;
pub use system::packages::{
    axe, ensure_browser, ensure_packages, ensure_test_packages, install_packages, is_root, missing_packages,
    unpack_package,
};
pub use system::paths::{Environment, go_modules};
pub use system::polling::pause_after;
pub use system::process::{Process, Signal};
pub use testing::{built_mco, delivered_mco, require, require_root, shared, unique_name};
pub use vm::{
    BuildRegistry, Firmware, OrdinaryMachine, OstreeMachine, Registry, SerialMark, SigningKey,
    VirtualMachine, VmImage, prepare_virtual_machines,
};

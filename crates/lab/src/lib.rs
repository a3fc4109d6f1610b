//! A real local cluster for the demo, tests and benchmarks: a control plane of the real programs, nodes that are
//! directories or real machines, and the guarantee that nothing of it is left behind.
//!
//! Not here: product logic. The product's programs are started as a user starts them.
//!
//! Flow: [`Environment`] → [`Programs`] (found or built) → [`ControlPlane`] in a [`Folder`] → nodes → `Lab`.

mod certs;
mod control_plane;
mod error;
mod folder;
mod paths;
mod process;
mod programs;
mod progress;

pub use certs::{Authority, Pair};
pub use control_plane::{ControlPlane, ControlPlaneOptions, client};
pub use error::{Error, Result, chain};
pub use folder::{Folder, ProcessKey, Record, recorded, sweep};
pub use paths::{Environment, go_modules};
pub use process::{Output, Process, Signal};
pub use programs::{KUBERNETES_VERSION, Program, Programs};
pub use progress::{Progress, Reporter, Step};

//! Spec 2.2: its model, and the conversion to and from the 3.5 model. Spec 2 has other defaults.
//!
//! What it is not: versions 2.3 to 2.5, which machines of this API never had.
//!
//! Source: <https://coreos.github.io/ignition/configuration-v2_2/>.

mod model;
mod read;
mod write;

pub(crate) use model::Config;
pub use read::V2Error;
pub(crate) use read::{notes, to_v3};
pub(crate) use write::{DIRECTORY_MODE, Roots, from_v3};

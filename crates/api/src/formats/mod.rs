//! Formats: YAML, JSON that is read without quoting a value (`shape`), certificates, kubeconfigs, selectors, names of objects and images,
//! networks, and texts for objects and people (`text`). Pure.
//!
//! Not here: the Kubernetes types themselves (see [`crate::v1`]), and Ignition's (see `ignition`).

pub mod image_name;
pub mod kubeconfig;
pub mod network;
pub mod object_name;
pub mod pem;
pub mod selector;
pub mod shape;
pub mod text;
pub mod yaml;

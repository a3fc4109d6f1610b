//! Images of operating systems: their builds, what is known of one, which are fetched ahead or were pushed, as objects say it; and what
//! goes wrong with a registry, as programs say it. Pure.
//!
//! Not here: the names of images (see [`crate::formats::image_name`]), and requests to registries (see `registry`).

pub mod build_state;
pub mod image_builds;
pub mod os_image;
pub mod prefetch;
pub mod pushed_images;
pub mod registry_trouble;

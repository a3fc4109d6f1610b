//! `mco image inspect`: what a node would get with an image, by the registry's API.
//!
//! Credentials, mirrors and authorities are those of this computer's container tools (see `registry::ContainerTools`).

use crate::args::image::inspect::Inspect;
use crate::exit;
use registry::{ContainerTools, Reference, Registry, Settings};

pub(crate) async fn run(a: Inspect) -> anyhow::Result<u8> {
    let image = Reference::parse(&a.image)?;
    let tools = ContainerTools {
        home: a.home.as_deref(),
        runtime: a.runtime.as_deref(),
        authfile: a.registry.authfile.as_deref(),
    };
    let settings =
        Settings { insecure: a.registry.insecure, ..Settings::of_container_tools(&tools, &image)? };
    let facts = Box::pin(Registry::new(settings).inspect(&image, a.architecture.as_deref())).await?;
    crate::output::print_object(a.output, &*facts, || facts.to_string())?;
    Ok(exit::OK)
}

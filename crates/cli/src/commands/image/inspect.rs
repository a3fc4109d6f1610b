//! `mco image inspect`: what a node would get with an image.

use crate::args::image::Inspect;
use crate::commands::image::output;
use crate::exit;
use ::build::{ImageFacts, Inspected, Manifest, names};
use anyhow::Context;
use std::time::Duration;

/// Three small requests; a registry that needs longer is as good as away.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn run(a: Inspect) -> anyhow::Result<u8> {
    let facts = facts(&a).await.with_context(|| format!("image {}", a.image))?;
    crate::output::print_object(a.output, &facts, || facts.to_string())?;
    Ok(exit::OK)
}

async fn facts(a: &Inspect) -> anyhow::Result<ImageFacts> {
    let ask = |image: &str, raw: bool| {
        let mut arguments = vec!["inspect".to_owned()];
        arguments.extend(a.registry.arguments());
        arguments.extend(raw.then(|| "--raw".to_owned()));
        arguments.push(format!("docker://{image}"));
        async move { output("skopeo", &arguments, LIMIT).await }
    };
    let inspected = Inspected::read(&ask(&a.image, false).await?)?;
    // From here on by digest: a tag may move between two requests.
    let mut image = names::by_digest(&a.image, &inspected.digest);
    for _ in 0..2 {
        match Manifest::read(&ask(&image, true).await?, &inspected.architecture)? {
            Manifest::One(layers) => return Ok(inspected.with_layers(layers)),
            Manifest::Listed(digest) => image = names::by_digest(&a.image, &digest),
        }
    }
    anyhow::bail!("a list of images in a list of images")
}

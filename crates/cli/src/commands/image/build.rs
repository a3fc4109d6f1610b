//! `mco image build`: builds a pool's OS image on this computer, from manifests. The same functions as for a Job in a cluster
//! make the Containerfile and the context.

use crate::args::image::build::{Build, Builder};
use crate::commands::image::show;
use crate::commands::manifests::render;
use crate::input::manifests;
use crate::{exit, output};
use ::build::{names, objects};
use anyhow::{Context, bail};
use api::v1::{ControllerConfig, MachineConfig, MachineOSConfig};
use std::path::Path;
use std::time::Duration;

/// The time limit of a Job, too.
const LIMIT: Duration = Duration::from_secs(objects::DEADLINE_SECONDS.unsigned_abs());
const CONTAINERFILE: &str = "Containerfile";

pub(crate) async fn run(a: Build) -> anyhow::Result<u8> {
    let mut given = manifests::read(&a.manifests.files)?;
    let is = |v: &serde_json::Value, kind: &str| v["kind"] == kind;
    let mut configs = vec![];
    for (origin, value) in given.extract_if(.., |(_, v)| is(v, "MachineOSConfig")) {
        let config: MachineOSConfig =
            api::formats::shape::read(&value).with_context(|| format!("{origin}: MachineOSConfig"))?;
        configs.push(config);
    }
    configs.retain(|c| a.pool.as_ref().is_none_or(|pool| *pool == c.spec.machine_config_pool.name));
    let config = match configs.as_slice() {
        [] => None,
        [one] => Some(one),
        _ => bail!("the manifests have several MachineOSConfigs; say which with --pool"),
    };
    let Some(pool) = a.pool.clone().or_else(|| Some(config?.spec.machine_config_pool.name.clone())) else {
        bail!("there is no MachineOSConfig among the manifests; say which pool's image is built with --pool");
    };
    let user = match &a.containerfile {
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => config.map(|c| c.spec.containerfile().to_owned()).unwrap_or_default(),
    };
    ::build::containerfile::check(&user)?;
    let cluster = given.iter().find(|(_, v)| is(v, "ControllerConfig"));
    let cluster: Option<ControllerConfig> = cluster.map(|(_, v)| api::formats::shape::read(v)).transpose()?;
    let templates = render::templates(a.templates.as_deref())?;
    let rendered = render::rendered(given, &templates, std::slice::from_ref(&pool))?;
    let rendered: &MachineConfig = rendered
        .get(&pool)
        .with_context(|| format!("pool {pool} cannot be rendered from these manifests"))?;
    let context = objects::context(&pool, &user, rendered, cluster.as_ref().map(|c| &c.spec))?;
    if let Some(folder) = &a.write_to {
        write(folder, &context)?;
        return Ok(exit::OK);
    }
    let tag = a
        .tag
        .clone()
        .or_else(|| Some(config?.spec.rendered_image_push_spec.clone()))
        .filter(|t| !t.is_empty());
    let Some(tag) = tag else { bail!("the image needs a name; give it with --tag") };
    let folder = tempfile::tempdir().context("cannot make a folder for the context")?;
    write(folder.path(), &context)?;
    let program = program(a.with);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut arguments: Vec<String> = vec!["build".to_owned(), "--layers".to_owned()];
    arguments.extend(a.registry.arguments());
    arguments.extend(["--tag".to_owned(), tag.clone(), "--file".to_owned(), at(CONTAINERFILE), at("")]);
    show(program, &arguments, LIMIT).await?;
    if !a.push {
        return Ok(exit::OK);
    }
    let digest = at("digest");
    let mut arguments: Vec<String> = vec!["push".to_owned(), "--digestfile".to_owned(), digest.clone()];
    arguments.extend(a.registry.arguments());
    arguments.push(tag.clone());
    show(program, &arguments, LIMIT).await?;
    let digest = std::fs::read_to_string(&digest).with_context(|| format!("{program} left no digest"))?;
    let digest = digest.trim();
    if !names::is_digest(digest) {
        bail!("{program} reported {digest:?}, which is not a sha256 digest");
    }
    output::write(&format!("{}\n", names::by_digest(&tag, digest)))?;
    Ok(exit::OK)
}

fn program(with: Option<Builder>) -> &'static str {
    let there = |name: &str| {
        let run = std::process::Command::new(name).arg("--version").output();
        run.is_ok_and(|out| out.status.success())
    };
    match with {
        Some(Builder::Podman) => "podman",
        None if !there("buildah") && there("podman") => "podman",
        Some(Builder::Buildah) | None => "buildah",
    }
}

/// Writes the files that the context of a Job's pod has.
fn write(folder: &Path, context: &objects::Context) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    file(CONTAINERFILE, context.containerfile.as_bytes())?;
    file(objects::MACHINE_CONFIG, context.machine_config.as_bytes())?;
    context.trust_bundle.iter().try_for_each(|bundle| file(objects::BUNDLE, bundle))
}

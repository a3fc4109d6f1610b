//! `mco render`: manifests in, rendered configs or a diff out.

use crate::args::manifests::render::Render;
use crate::input::manifests;
use crate::{connect, exit, output};
use anyhow::bail;
use api::v1::MachineConfig;
use insight::{Objects, Rendered, merged_over};
use kube::ResourceExt;
use render::TemplateSet;
use std::io::Write;
use std::path::Path;

pub(crate) async fn run(a: Render) -> anyhow::Result<u8> {
    if a.exit_code && !a.diff && a.diff_with.is_empty() {
        bail!("--exit-code needs a diff: add --diff or --diff-with");
    }
    let given = manifests::read(&a.manifests.files)?;
    let templates = templates(a.templates.as_deref())?;
    if a.diff {
        let client = connect::connect(&a.cluster).await?;
        let listed = insight::for_rendering(&client).await?;
        // An exit code for scripts must not rest on a guess.
        if a.exit_code && !listed.forbidden.is_empty() {
            bail!(
                "you may not list {}, so the diff may be wrong: ask for the right, or leave out --exit-code",
                listed.forbidden.join(" and ")
            );
        }
        output::not_allowed(&listed.forbidden);
        let (before, objects) = insight::in_force(listed.objects)?;
        let after = rendered(merged_over(objects, given), &templates, &a.pools)?;
        return show(&a, &before, &after);
    }
    let after = rendered(given, &templates, &a.pools)?;
    if !a.diff_with.is_empty() {
        let before = rendered(manifests::read(&a.diff_with)?, &templates, &a.pools)?;
        return show(&a, &before, &after);
    }
    let mut out = String::new();
    for mc in after.values() {
        out += if out.is_empty() { "" } else { "---\n" };
        out += &api::formats::yaml::to_string(mc)?;
    }
    std::io::stdout().lock().write_all(out.as_bytes())?;
    Ok(exit::OK)
}

fn show(a: &Render, before: &Rendered, after: &Rendered) -> anyhow::Result<u8> {
    let mut out = String::new();
    let pools: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for pool in pools.into_iter().filter(|p| a.pools.is_empty() || a.pools.contains(p)) {
        let (old, new) = (before.get(pool), after.get(pool));
        let text = render::diff(old, new, a.show.secrets()).map_err(|e| anyhow::anyhow!("{e}"))?;
        if !text.is_empty() {
            let name =
                |mc: Option<&MachineConfig>| mc.map_or_else(|| "(none)".to_owned(), ResourceExt::name_any);
            out += &format!("pool {pool}: {} → {}\n{text}", name(old), name(new));
        }
    }
    std::io::stdout().lock().write_all(out.as_bytes())?;
    Ok(if a.exit_code && !out.is_empty() { exit::FINDINGS } else { exit::OK })
}

/// The templates in a folder.
pub(crate) fn templates(folder: Option<&Path>) -> anyhow::Result<TemplateSet> {
    Ok(match folder {
        Some(folder) => TemplateSet::from_map(manifests::tree(folder)?),
        None => TemplateSet::default(),
    })
}

/// Each pool of the objects, rendered; what has no effect is logged.
pub(crate) fn rendered(
    objects: Objects,
    templates: &TemplateSet,
    only: &[String],
) -> anyhow::Result<Rendered> {
    let controller_config = operator::install::controller_config_values::unknown();
    let with = insight::RenderWith { templates, controller_config: &controller_config };
    let (all, warnings) = insight::rendered(objects, with, only)?;
    output::warn(&warnings);
    Ok(all)
}

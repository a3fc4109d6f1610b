//! `mco plan`: what the controller does now, or what a change would do; from a cluster or from files. Nothing is written.
//!
//! What it is not: a decision. [`Situation::forecast`] makes the controller's plans, and [`insight::ChangePlan`]
//! says what a change does and costs.

use crate::args::shared::Refuse;
use crate::args::show::plan::Plan;
use crate::input::manifests;
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::bail;
use api::k8s::Time;
use insight::{ChangePlan, Dump, Listed, Objects, PresentSituation, needs_templates};
use render::TemplateSet;
use rollout::Situation;
use std::path::Path;

/// Where the image of the controller has its templates.
const DEFAULT_TEMPLATES: &str = "/usr/share/mco/templates";

pub(crate) async fn run(a: Plan) -> anyhow::Result<u8> {
    let now = Time(jiff::Timestamp::now());
    let (situation, objects) = input(&a, &now).await?;
    if let Some(missing) = a.pools.iter().find(|p| !situation.pools.contains_key(*p)) {
        let there: Vec<&str> = situation.pools.keys().map(String::as_str).collect();
        bail!("there is no pool {missing:?}; the pools are: {}", there.join(", "));
    }
    if a.files.is_empty() {
        let mut forecast = situation.forecast(&now);
        if !a.pools.is_empty() {
            forecast.pools.retain(|p| a.pools.iter().any(|o| **o == *p.pool));
        }
        output::print(a.output, Kind::Forecast, &forecast, || forecast.to_string())?;
        return Ok(exit::OK);
    }
    let changes = changes(&a, &objects, &situation, &now)?;
    let refused = changes.pools.iter().any(|p| p.is_refused(a.refuse.map(Refuse::severity)));
    output::print(a.output, Kind::ChangePlan, &changes, || {
        actions::messages::plan(&changes, actions::messages::as_it_is)
    })?;
    Ok(if refused { exit::FINDINGS } else { exit::OK })
}

/// The cluster, and its objects: of one that is not a dump, only if manifests are to be planned over them.
async fn input(a: &Plan, now: &Time) -> anyhow::Result<(Situation, Objects)> {
    let (mut situation, objects, notes) = if !a.from.is_empty() {
        let Dump { objects, notes } = Dump::read(&a.from)?;
        (insight::situation(&objects)?, objects, notes)
    } else {
        let client = connect::connect(&a.cluster).await?;
        let (situation, objects, forbidden) = if a.files.is_empty() {
            let PresentSituation { situation, forbidden } = insight::present_situation(&client, now).await?;
            (situation, vec![], forbidden)
        } else {
            let Listed { objects, forbidden } = insight::for_planning(&client).await?;
            (insight::situation(&objects)?, objects, forbidden)
        };
        output::not_allowed(&forbidden);
        (situation, objects, vec![])
    };
    if situation.pools.is_empty() {
        let notes: String = notes.iter().map(|n| format!("; {n}")).collect();
        bail!("the input has no MachineConfigPool{notes}");
    }
    situation.notes.splice(0..0, notes);
    Ok((situation, objects))
}

fn changes(a: &Plan, objects: &Objects, situation: &Situation, now: &Time) -> anyhow::Result<ChangePlan> {
    let given = manifests::read(&a.files)?;
    if given.is_empty() {
        bail!("no manifest was found in the files that -f names");
    }
    let templates = templates(a.templates.as_deref(), &given)?;
    let change = insight::Manifests {
        given: &given,
        deleted: a.delete,
        pools: &a.pools,
        controller_config: &operator::install::controller_config_values::unknown(),
        templates: templates.as_ref(),
    };
    let plan = ChangePlan::by_manifests(objects, situation, change, now, a.show.secrets())?;
    output::warn(&plan.warnings);
    Ok(plan)
}

/// The templates that a change needs; `None`: none.
fn templates(named: Option<&Path>, given: &Objects) -> anyhow::Result<Option<TemplateSet>> {
    let folder = match (named, given.iter().find(|(_, v)| needs_templates(v))) {
        (Some(folder), _) => folder,
        (None, None) => return Ok(None),
        (None, Some(_)) if Path::new(DEFAULT_TEMPLATES).is_dir() => Path::new(DEFAULT_TEMPLATES),
        (None, Some((origin, value))) => bail!(
            "{origin}: a {} becomes MachineConfigs by templates: pass the controller's template folder with \
             --templates DIR ({DEFAULT_TEMPLATES} in its image, templates/ in the source tree)",
            value["kind"].as_str().unwrap_or_default()
        ),
    };
    Ok(Some(TemplateSet::from_map(manifests::tree(folder)?)))
}

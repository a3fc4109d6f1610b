//! `mco undo`: pins a pool to a config that it had, or takes the pin away. See `rollout::pinned` for what a pin is.
//!
//! What it is not: a change of MachineConfigs. Those are named, with who wrote them last, to be corrected where they come
//! from.

use super::history::{line, rendered_of};
use super::plan::{self, PoolChange};
use super::plan_objects::from_cluster;
use super::render::{pool_of, rendered};
use crate::args_change::Undo;
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::k8s::{ObjectMeta, Time};
use api::v1::{MachineConfig, MachineConfigPool};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use render::TemplateSet;
use render::history::{Change, step};
use rollout::view::own;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

/// One request.
const CALL: Duration = Duration::from_secs(30);
/// A pool's status changes often while nodes move, and with it the version that a patch is bound to.
const TRIES: usize = 10;

/// What is to be done, and whether it was.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Undoing {
    pool: String,
    /// The config that the pool is pinned to then; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<String>,
    /// What it means for the pool; absent where its config stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<PoolChange>,
    /// The MachineConfigs that say otherwise than the pinned config.
    machine_configs: Vec<Change>,
    /// It was done.
    done: bool,
}

pub(super) async fn run(a: Undo) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let objects = from_cluster(&client, true).await?;
    let situation = plan::situation(&objects)?;
    let Some(pool) = situation.pools.get(&a.pool).cloned() else {
        let there: Vec<&str> = situation.pools.keys().map(String::as_str).collect();
        bail!("there is no pool {:?}; there is: {}", a.pool, there.join(", "));
    };
    let configs = plan::configs(&objects)?;
    let all: Vec<MachineConfig> = configs.values().cloned().collect();
    let from = pool.spec.configuration.name.clone();
    // What the MachineConfigs say as they are now.
    let sources = objects.iter().filter(|(_, v)| pool_of(v).is_none()).cloned().collect();
    let said =
        rendered(plan::without_settings(sources), &TemplateSet::default(), std::slice::from_ref(&a.pool));
    let (pin, to) = if a.release {
        if rollout::pinned(&pool).is_none() {
            output::write(&format!("pool {} is not pinned: it follows its MachineConfigs\n", a.pool))?;
            return Ok(exit::OK);
        }
        let mut said = said.context("what its MachineConfigs say cannot be rendered; correct that first")?;
        (None, said.remove(&a.pool).context("its MachineConfigs render to nothing")?)
    } else {
        let to = choose(&pool, &rendered_of(&pool, &all), a.to.as_deref())?;
        (Some(to.name_any()), to.clone())
    };
    let now = Time(jiff::Timestamp::now());
    let policy = plan::policy(objects.iter().map(|(_, v)| v))?;
    let then = plan::situation(&objects)?.with_target(&a.pool, &to.name_any());
    let change = (from != to.name_any())
        .then(|| plan::change(&a.pool, &from, &to, &configs, &policy, &then, &now, a.show.secrets()))
        .transpose()?;
    let metadata: BTreeMap<&str, &ObjectMeta> =
        all.iter().filter_map(|c| Some((c.metadata.name.as_deref()?, &c.metadata))).collect();
    let machine_configs = match (&pin, configs.get(&from)) {
        (Some(_), Some(current)) => step(Some(&to), current, &metadata).changes,
        _ => vec![],
    };
    let mut undoing = Undoing { pool: a.pool.clone(), pin, change, machine_configs, done: false };
    if undoing.change.as_ref().is_some_and(|c| c.is_impossible()) {
        output::print(a.output, Kind::Undo, &undoing, || undoing.text())?;
        eprintln!("mco: nothing was done: no running host can apply it");
        return Ok(exit::FINDINGS);
    }
    if !a.dry_run {
        if !a.yes {
            eprint!("{}", undoing.text());
            match ask(&undoing)? {
                None => {
                    eprintln!("mco: nobody can be asked here: add --yes, or --dry-run to look");
                    return Ok(exit::USAGE);
                }
                Some(false) => return Ok(exit::FINDINGS),
                Some(true) => {}
            }
        }
        write(&client, &pool, undoing.pin.as_deref()).await?;
        undoing.done = true;
    }
    output::print(a.output, Kind::Undo, &undoing, || undoing.text())?;
    Ok(exit::OK)
}

/// The config to go back to.
fn choose<'a>(
    pool: &MachineConfigPool,
    rendered: &[&'a MachineConfig],
    to: Option<&str>,
) -> anyhow::Result<&'a MachineConfig> {
    let (name, current) = (pool.name_any(), &pool.spec.configuration.name);
    if to.is_none()
        && let Some(pinned) = rollout::pinned(pool)
    {
        bail!("pool {name} is pinned to {pinned} already; --release it, or say --to which config");
    }
    let existing: Vec<&str> = rendered.iter().filter_map(|c| c.metadata.name.as_deref()).collect();
    let Some(wanted) = to.or_else(|| rollout::before(pool, &existing)) else {
        bail!("there is no other rendered config of pool {name} than {current:?}: nothing to go back to");
    };
    let found = rendered.iter().copied().find(|c| c.metadata.name.as_deref() == Some(wanted));
    found.with_context(|| {
        format!(
            "{wanted} is no rendered config of pool {name}; `mco history {name}` lists those that there are"
        )
    })
}

/// Asks a person; `None`: there is none.
fn ask(undoing: &Undoing) -> anyhow::Result<Option<bool>> {
    if !std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let what = match &undoing.pin {
        Some(config) => format!("Pin pool {} to {config}?", undoing.pool),
        None => format!("Let pool {} follow its MachineConfigs again?", undoing.pool),
    };
    eprint!("{what} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
}

/// Writes the pin, if the pool is still in the config that was looked at.
async fn write(client: &kube::Client, seen: &MachineConfigPool, pin: Option<&str>) -> anyhow::Result<()> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let name = seen.name_any();
    let what = || format!("cannot annotate machineconfigpool {name}");
    for _ in 0..TRIES {
        let pool =
            tokio::time::timeout(CALL, pools.get(&name)).await.with_context(what)?.with_context(what)?;
        let same = pool.spec.configuration.name == seen.spec.configuration.name
            && rollout::pinned(&pool) == rollout::pinned(seen)
            && pool.metadata.uid == seen.metadata.uid;
        if !same {
            bail!("pool {name} has moved on meanwhile; look again");
        }
        let version = &pool.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": {own::PINNED: pin}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let answer =
            tokio::time::timeout(CALL, pools.patch(&name, &params, &patch)).await.with_context(what)?;
        match answer {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => return other.map(drop).with_context(what),
        }
    }
    bail!("pool {name} changes all the time: nothing was written; try again")
}

impl Undoing {
    fn text(&self) -> String {
        let mut out = String::new();
        let pool = &self.pool;
        if let (Some(change), false) = (&self.change, self.done) {
            out += &change.text();
        }
        let _ = match (&self.pin, self.done) {
            (Some(config), true) => {
                writeln!(out, "pool {pool} is pinned to {config}: the controller sends its nodes there")
            }
            (None, true) => writeln!(out, "pool {pool} follows its MachineConfigs again"),
            (None, false) => writeln!(out, "pool {pool} would follow its MachineConfigs again"),
            (Some(config), false) => writeln!(out, "pool {pool} would be pinned to {config}"),
        };
        if !self.machine_configs.is_empty() {
            out += "the MachineConfigs still say otherwise; correct these where they come from:\n";
            self.machine_configs.iter().for_each(|c| out += &format!("  {}\n", line(c)));
        }
        if self.pin.is_some() {
            let _ = writeln!(out, "until `mco undo {pool} --release` no change of them is rolled out");
        }
        out
    }
}

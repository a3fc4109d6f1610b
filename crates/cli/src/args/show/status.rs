//! The arguments of `mco status`. They are used in `commands::show::status`.

use crate::args::shared::{Cluster, duration};
use crate::output::Format;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use insight::Phase;
use k8s_openapi::jiff::SignedDuration;

/// Reads a phase by its name.
fn phase() -> impl TypedValueParser<Value = Phase> {
    let names = Phase::ALL.map(|phase| PossibleValue::new(phase.name()).help(phase.meaning()));
    PossibleValuesParser::new(names)
        .try_map(|name| Phase::ALL.into_iter().find(|phase| phase.name() == name).ok_or("unknown phase"))
}

#[derive(Debug, Args)]
#[command(
    after_help = "Nodes that are done are counted but not listed: --all lists all nodes, --phase and --node \
        select some. JSON and YAML hold all nodes, or those that --phase and --node select.\n\nExit codes:\n  0  \
        shown; with --until-updated: every pool shown is updated\n  1  failed\n  2  wrong command line\n  \
    3  with --exit-code: a pool is degraded or held, a node fails, a drain has been waiting for more than 10 s, \
    several pools select one node, or a node is in no pool (field findings of the JSON)\n     with \
    --until-updated: a pool cannot reach its config until somebody changes something; the reason is on standard \
    error\n  \
    4  --timeout is over; standard error says what is still awaited\n\nExamples:\n  mco status\n  mco status \
    worker -w\n  \
    mco status --phase failing --phase moving\n  mco status worker -w --until-updated --timeout 30m\n  \
    mco status -o json | jq '.pools[] | {name, updated, machines}'\n  mco status -o json | jq '.findings[].message'\n  \
    mco status --exit-code || alert"
)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Only these pools
    #[arg(value_name = "POOL")]
    pub(crate) pools: Vec<String>,
    /// Also list the nodes that are done
    #[arg(long, conflicts_with_all = ["phases", "nodes"])]
    pub(crate) all: bool,
    /// List only nodes in this phase; may be given several times
    #[arg(long = "phase", value_parser = phase(), value_name = "PHASE")]
    pub(crate) phases: Vec<Phase>,
    /// List only this node; may be given several times
    #[arg(long = "node", value_name = "NAME")]
    pub(crate) nodes: Vec<String>,
    /// Keep showing changes; on a terminal the table is updated in place
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With --watch: exit when every pool shown is updated, or cannot be until somebody changes something
    #[arg(long, requires = "watch")]
    pub(crate) until_updated: bool,
    /// With --until-updated: exit after this time, like 90s, 30m or 2h, and print what is still awaited
    #[arg(long, requires = "until_updated", value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<SignedDuration>,
    /// Exit with 3 when something needs attention, see below
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

//! The arguments of `mco bundle`. They are used in `commands::show::bundle`.

use crate::args::shared::Cluster;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "The archive holds our objects, the nodes, the objects of our namespace, events, the logs of our pods, and \
        what `mco status` says. Contents of files and units, Secrets, values of ConfigMaps and of environment variables are \
        left out, and so is every line that looks like a secret. Still, look through it before you share it. What you \
        may not read is named in errors.txt.\n\nLogs of hosts are not in it: journalctl -u \
        machine-config-daemon\n\nExamples:\n  mco bundle\n  mco bundle -f report.tar.gz\n  mco bundle -f - | tar -tz"
)]
pub(crate) struct Bundle {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The archive to write, a gzip-compressed tar; `-` for standard output [default: mco-bundle-TIME.tar.gz]
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

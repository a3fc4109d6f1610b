//! An agent that manages a plain folder instead of a host, for experiments: `folder_agent NODE FOLDER`, with
//! `$KUBECONFIG`. systemd is faked. A reboot appends a line to `FOLDER/var/boots`, which is how the recorded cases
//! count reboots.

use anyhow::{Context, Result};
use daemon::{AgentOptions, Exit, run_with};
use host::fault::NoFaults;
use host::{FakeSystemd, Host, Options, Root, Unsupported};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_env_filter("daemon=info,host=warn").init();
    let mut args = std::env::args().skip(1);
    let (node, folder) = args.next().zip(args.next()).context("folder_agent NODE FOLDER")?;
    let client = kube::Client::try_default().await?;
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stopper.cancel();
    });
    loop {
        let root = Root::open_with(&folder, Options { sync: false, owners: true }, Arc::new(NoFaults))?;
        let mut systemd = FakeSystemd::new(&root);
        let host = Host::new(root, Box::new(systemd.clone()), Box::new(Unsupported::default()));
        match run_with(client.clone(), AgentOptions::new(&node, host), stop.clone()).await? {
            Exit::Stopped => return Ok(()),
            Exit::Rebooting => {
                systemd.complete_reboot()?;
                let boots = Path::new(&folder).join("var/boots");
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(boots)?;
                writeln!(file, "boot-")?;
            }
        }
    }
}

//! A config server for a folder, without the rest of the program: quick to build for work on its speed.
//! `cargo run --release -p server --example folder -- FOLDER PORT`, where FOLDER has `cert`, `key`, `kubeconfig` and
//! `base/` (see `bootstrap`).

use anyhow::Context as _;
use server::BootstrapOptions;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().context("FOLDER")?);
    let mut options = BootstrapOptions {
        server_basedir: folder.join("base"),
        bootstrap_kubeconfig: folder.join("kubeconfig"),
        ..BootstrapOptions::default()
    };
    options.listen.cert = folder.join("cert");
    options.listen.key = folder.join("key");
    options.listen.secure_port = arguments.next().context("PORT")?.parse()?;
    options.listen.insecure_port = 0;
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(server::bootstrap(options, CancellationToken::new()))?;
    Ok(())
}

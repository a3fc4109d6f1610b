//! The controller by itself, for development: `alone crds` prints the CustomResourceDefinitions, `alone run
//! KUBECONFIG TEMPLATES [METRICS_ADDRESS [no-election]]` runs until Ctrl-C, `alone bootstrap --manifest-dir …` renders
//! without a cluster. Users run `mco controller start` and `mco controller bootstrap`.

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["crds"] => {
            for crd in api::crds::all()? {
                println!("---\n{}", api::formats::yaml::to_string(&crd.object)?);
            }
            Ok(())
        }
        ["run", kubeconfig, templates, rest @ ..] => {
            let options = controller::Options {
                kubeconfig: Some((*kubeconfig).into()),
                metrics_addresses: listen::Addresses {
                    plain: rest.first().map(|a| a.parse()).transpose().context("METRICS_ADDRESS")?,
                    ..listen::Addresses::default()
                },
                leader_elect: rest.len() < 2,
                ..controller::Options::new(*templates)
            };
            let shutdown = CancellationToken::new();
            let signal = shutdown.clone();
            tokio::spawn(async move {
                let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    Some(_) = async { match term.as_mut() { Some(t) => t.recv().await, None => None } } => {}
                }
                signal.cancel();
            });
            Ok(controller::start(options, shutdown).await?)
        }
        ["bootstrap", rest @ ..] => {
            let flag = |name: &str| {
                let at = rest.iter().position(|a| *a == name).context(format!("{name} is missing"))?;
                rest.get(at + 1).map(std::path::PathBuf::from).context(format!("{name} needs a value"))
            };
            let args = controller::bootstrap::BootstrapArgs {
                manifest_dir: flag("--manifest-dir")?,
                dest_dir: flag("--dest-dir")?,
                pull_secret: flag("--pull-secret")?,
                templates: flag("--templates")?,
            };
            for warning in controller::bootstrap::run(&args)? {
                eprintln!("warning: {warning}");
            }
            Ok(())
        }
        _ => anyhow::bail!("usage: alone crds | alone run KUBECONFIG TEMPLATES [METRICS_ADDRESS]"),
    }
}

//! The command line of `ostree-ext` as a program: pulls container images into an OSTree host, deploys them, and makes images of
//! OSTree commits. A tool of the lab's virtual machines, no part of the product.

use std::process::ExitCode;

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(ostree_ext::cli::run_from_iter(std::env::args_os())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

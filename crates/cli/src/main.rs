//! The binary `mco`: argument zero, crypto provider, run, exit code. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(std::env::args_os())
}

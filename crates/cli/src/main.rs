//! The binary `mco`: allocator, argument zero, run, exit code. Everything else is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main(std::env::args_os())
}

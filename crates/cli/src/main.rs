//! The binary `mco`: allocator, argument zero, run, exit code. Everything else is in the library.

use std::process::ExitCode;
use tikv_jemalloc_ctl::{Access, AsName};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main(std::env::args_os(), keep_freed_memory)
}

/// Gives nothing back to the kernel from now on, for a command that is soon at its end: taking it again costs as much as
/// using it. There is one arena (`.cargo/config.toml`).
fn keep_freed_memory() {
    const NEVER: isize = -1;
    // Where it fails the command is slower, and does the same.
    let _ = b"arena.0.dirty_decay_ms\0".name().write(NEVER);
}

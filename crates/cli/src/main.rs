//! The binary `mco`: allocator, what a panic does, argument zero, run, exit code. Everything else is in the library.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use tikv_jemalloc_ctl::{Access, AsName};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    without_backtraces();
    end_at_a_panic();
    cli::main(std::env::args_os(), keep_freed_memory)
}

/// Starts once more without the variables that ask for backtraces, if one is set. The delivered program has no tables by which the
/// stack could be unwound (`link/no-unwind-tables.ld`): with the variable it would abort where it should print its error.
fn without_backtraces() {
    const ASK: [&str; 2] = ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"];
    if cfg!(debug_assertions) || ASK.iter().all(|name| std::env::var_os(name).is_none()) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut args = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = args.next() {
        again.arg0(name);
    }
    for name in ASK {
        again.env_remove(name);
    }
    // If that fails, it continues as it is.
    let _ = again.args(args).exec();
}

/// A panic is a bug, and what the process knows may be wrong after it. So it ends, in every build and on every thread, with
/// the message on standard error. systemd or the kubelet starts it again: the agent goes on by its journal, the controller
/// by what is in the cluster.
fn end_at_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Returns no memory to the kernel from now on, for a command that ends soon: taking it again costs as much as using it. There is one arena (`.cargo/config.toml`).
fn keep_freed_memory() {
    const NEVER: isize = -1;
    // If it fails, the command is only slower.
    let _ = b"arena.0.dirty_decay_ms\0".name().write(NEVER);
}

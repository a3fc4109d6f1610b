//! Whole virtual machines: the lab's own, and the product on them where only firmware, boot loader and kernel can show its
//! effect.
//!
//! Not here: machines that share this computer's kernel (`tests/node`). Every test here needs root and takes minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod machines;
mod ostree;
mod product;

use lab::{OrdinaryMachine, Reporter, VirtualMachine, VmImage};
use tokio::sync::{Semaphore, SemaphorePermit};

/// For plain `cargo test`: most computers emulate a machine's processor, and two machines at once would slow each other down.
static PLACE: Semaphore = Semaphore::const_new(1);

/// A booted machine with `mco`, and its permit to run.
struct Booted {
    vm: VirtualMachine,
    _place: SemaphorePermit<'static>,
}

/// Boots a machine. `None`: skipped, with a message.
async fn boot(machine: OrdinaryMachine) -> Option<Booted> {
    if !lab::require_root() {
        return None;
    }
    let place = PLACE.acquire().await.unwrap();
    let image =
        VmImage::ordinary(machine, &Reporter::stderr()).await.unwrap().with_program(&product::program());
    let start = std::time::Instant::now();
    let vm = VirtualMachine::alone("ordinary", &image).await.unwrap();
    eprintln!("booted in {:.0} s", start.elapsed().as_secs_f32());
    Some(Booted { vm, _place: place })
}

/// Awaits the future, and prints how long it took.
async fn timed<T>(what: &str, doing: impl Future<Output = T>) -> T {
    let start = std::time::Instant::now();
    let done = doing.await;
    eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f32());
    done
}

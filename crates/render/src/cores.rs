//! The same work on many things that know nothing of each other, on all cores.
//!
//! What it is not: a pool of threads. They are begun for one piece of work and end with it, which takes a tenth of a
//! millisecond: as long as reading or rendering a few objects.

use std::num::NonZero;

/// More threads than this wait for the disk and for memory.
const MOST_THREADS: usize = 4;

/// What becomes of each, in their order. Each thread takes at least `least` of them.
///
/// # Panics
/// Where `one` does.
pub fn side_by_side<T: Sync, R: Send>(all: &[T], least: usize, one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(MOST_THREADS).min(all.len() / least.max(1)).max(1);
    let mut shares = all.chunks(all.len().div_ceil(threads).max(1));
    let own = shares.next().unwrap_or_default();
    let all_of = |share: &[T]| share.iter().map(&one).collect::<Vec<R>>();
    std::thread::scope(|scope| {
        let others: Vec<_> = shares.map(|share| scope.spawn(|| all_of(share))).collect();
        let mut done = all_of(own);
        done.extend(others.into_iter().flat_map(|other| joined(other.join())));
        done
    })
}

/// What a thread came to. A panic goes on where the thread was begun.
pub(crate) fn joined<T>(ended: std::thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_in_order_however_many_there_are() {
        for (count, least) in [(0, 1), (1, 1), (2, 1), (7, 3), (100, 16), (3, 0)] {
            let all: Vec<usize> = (0..count).collect();
            let done = side_by_side(&all, least, |n| n * 2);
            assert_eq!(done, all.iter().map(|n| n * 2).collect::<Vec<_>>(), "{count} by {least}");
        }
    }
}

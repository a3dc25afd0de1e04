//! Threads of the ranks of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, Yield};

/// Threads for one of the ranks: its share of the pool that the process has, at least one. A rank runs inside
/// them: an op that needs one thread wakes and waits for none, which takes longer than a small op.
pub(crate) fn of_rank(number: usize, ranks: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    let count = share(rayon::current_num_threads(), number, ranks);
    let name = move |thread| format!("rank {number} thread {thread}");
    let threads = ThreadPoolBuilder::new()
        .num_threads(count)
        .thread_name(name);
    threads.build()
}

fn share(threads: usize, number: usize, ranks: usize) -> usize {
    (threads / ranks + usize::from(number < threads % ranks)).max(1)
}

/// While it lives, the other threads of a rank look for work instead of falling asleep between two ops:
/// waking one takes longer than many ops do. They give their processor to whoever else wants it.
pub(crate) struct Awake(Arc<AtomicBool>);

/// To be called, and dropped, by a rank in its threads.
pub(crate) fn awake() -> Awake {
    let is_over = Arc::new(AtomicBool::new(false));
    let (own, over) = (rayon::current_thread_index(), Arc::clone(&is_over));
    if rayon::current_num_threads() > 1 {
        rayon::spawn_broadcast(move |broadcast| {
            // the rank itself may look for work while it waits for a part of an op
            if Some(broadcast.index()) == own {
                return;
            }
            while !over.load(Ordering::Relaxed) {
                if rayon::yield_now() != Some(Yield::Executed) {
                    thread::yield_now();
                }
            }
        });
    }
    Awake(is_over)
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_threads_and_have_one_each_at_least() {
        for (threads, shares) in [
            (1, vec![1]),
            (2, vec![2]),
            (2, vec![1, 1, 1]),
            (7, vec![3, 2, 2]),
            (8, vec![4, 4]),
        ] {
            let ranks = shares.len();
            let found: Vec<usize> = (0..ranks).map(|n| share(threads, n, ranks)).collect();
            assert_eq!(found, shares, "{threads} threads");
        }
    }
}

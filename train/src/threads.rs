//! Threads of the ranks of a process.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

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

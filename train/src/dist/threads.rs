//! Thread pools: each rank has its own.

use crate::panics;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, Yield};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Threads for one of the ranks: its share of the pool that the process has, at least one. A rank runs inside
/// them: an op that needs one thread wakes and waits for none, which takes longer than a small op.
pub(crate) fn of_rank(number: usize, ranks: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    let count = share(rayon::current_num_threads(), number, ranks);
    let name = move |thread| format!("rank {number} thread {thread}");
    let threads = ThreadPoolBuilder::new()
        .num_threads(count)
        .thread_name(name)
        .start_handler(|_| panics::expect_on_this_thread());
    threads.build()
}

/// Runs a rank inside its threads, whose other threads busy-wait for work as long as it runs: a step has hundreds
/// of ops, and waking a thread takes as long as a small one.
///
/// A thread busy-waits only if it comes before the rank begins. One that comes later may do so in the middle of an op that
/// waits for another thread: rayon runs any job there. The op would not go on before the rank ends, which waits for it.
pub(crate) fn work<R: Send>(threads: &ThreadPool, rank: impl FnOnce() -> R + Send) -> R {
    threads.install(|| {
        let others = threads.current_num_threads() - 1;
        if others == 0 {
            return rank();
        }
        let state = Mutex::new(State::default());
        let is_over = AtomicBool::new(false);
        let own = rayon::current_thread_index();
        rayon::scope(|scope| {
            scope.spawn_broadcast(|_, thread| {
                if Some(thread.index()) != own && comes_in_time(&state) {
                    look_for_work(&is_over);
                }
            });
            begin(&state, others);
            // set whether the rank returns or panics
            let _end = End(&is_over);
            rank()
        })
    })
}

/// Before the rank begins, and after.
#[derive(Default)]
struct State {
    /// Threads that busy-wait.
    came: usize,
    has_begun: bool,
}

/// Counts this thread among those that busy-wait, unless the rank has begun.
fn comes_in_time(state: &Mutex<State>) -> bool {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.came += usize::from(!state.has_begun);
    !state.has_begun
}

/// Waits a moment for the other threads. On a busy machine some may not come in time; they work as rayon's threads do.
fn begin(state: &Mutex<State>, others: usize) {
    let start = Instant::now();
    loop {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.came == others || start.elapsed() > WAKING {
            state.has_begun = true;
            return;
        }
        drop(state);
        std::thread::yield_now();
    }
}

/// Most time that a rank waits for its threads to wake up.
const WAKING: Duration = Duration::from_millis(1);
/// After this time without work a thread polls only now and then: the rank waits for others, or for a disk.
const PATIENCE: Duration = Duration::from_millis(5);
/// Polling interval after that.
const NAP: Duration = Duration::from_micros(200);

/// Runs queued work; without any, yields the core to other threads.
fn look_for_work(is_over: &AtomicBool) {
    let mut last = Instant::now();
    while !is_over.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            last = Instant::now();
        } else if last.elapsed() < PATIENCE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}

/// Stops the threads that look for work when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn share(threads: usize, number: usize, ranks: usize) -> usize {
    (threads / ranks + usize::from(number < threads % ranks)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Barrier, mpsc};

    #[test]
    fn all_threads_work_for_a_rank_and_are_free_when_it_ends() {
        let threads = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for nap in [Duration::ZERO, 2 * PATIENCE] {
            let all = Barrier::new(3);
            let met = work(&threads, || {
                std::thread::sleep(nap);
                let leaders = rayon::join(
                    || all.wait().is_leader(),
                    || rayon::join(|| all.wait().is_leader(), || all.wait().is_leader()),
                );
                [leaders.0, leaders.1.0, leaders.1.1]
            });
            assert_eq!(met.into_iter().filter(|is_leader| *is_leader).count(), 1);
        }
        let failed = AssertUnwindSafe(|| work(&threads, || panic!("a rank's")));
        assert!(catch_unwind(failed).is_err());
        // none of them looks for work any more
        assert_eq!(threads.broadcast(|thread| thread.index()), [0, 1, 2]);
    }

    /// An op that waits runs other jobs meanwhile. None of them may keep it from going on.
    #[test]
    fn a_thread_in_the_middle_of_an_op_does_not_look_for_work() {
        let threads = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (begun, begins) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        threads.spawn(move || {
            begins.recv().unwrap();
            while rayon::yield_now() == Some(Yield::Executed) {}
            done.send(()).unwrap();
        });
        let found = work(&threads, move || {
            begun.send(()).unwrap();
            is_done.recv_timeout(Duration::from_secs(20))
        });
        assert_eq!(found, Ok(()));
    }

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

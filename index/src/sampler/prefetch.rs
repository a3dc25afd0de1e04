//! Prefetch: reads ahead on background threads; the output keeps the order of the input.
//!
//! A thread takes the next input and its number, reads, and stores the result under that number; the consumer takes
//! the numbers in order. No thread starts a number `depth` or more ahead of the consumer, so memory is bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

struct State<I, T> {
    places: I,
    /// Number of the next input to read, and of the next result to return.
    begun: u64,
    taken: u64,
    /// The input is exhausted.
    ended: bool,
    /// The consumer is gone, or a reader panicked.
    stopped: bool,
    ready: BTreeMap<u64, T>,
}

struct Shared<I, T> {
    state: Mutex<State<I, T>>,
    changed: Condvar,
}

impl<I, T> Shared<I, T> {
    fn lock(&self) -> MutexGuard<'_, State<I, T>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn wait<'a>(&self, guard: MutexGuard<'a, State<I, T>>) -> MutexGuard<'a, State<I, T>> {
        self.changed.wait(guard).unwrap_or_else(|e| e.into_inner())
    }
    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Drop guard that stops all threads if its thread panics.
struct Guard<'a, I, T>(&'a Shared<I, T>);

impl<I, T> Drop for Guard<'_, I, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Iterator over the prefetched results.
pub struct Prefetch<I, T> {
    shared: Arc<Shared<I, T>>,
    threads: Vec<JoinHandle<()>>,
}

/// Reads `places` in their order with `threads` threads, at most `depth` results ahead (at least one of each).
pub fn prefetch<I, T, R>(places: I, depth: usize, threads: usize, read: R) -> Prefetch<I, T>
where
    I: Iterator + Send + 'static,
    I::Item: Send,
    T: Send + 'static,
    R: Fn(I::Item) -> T + Send + Sync + 'static,
{
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            places,
            begun: 0,
            taken: 0,
            ended: false,
            stopped: false,
            ready: BTreeMap::new(),
        }),
        changed: Condvar::new(),
    });
    let (depth, read) = (depth.max(1) as u64, Arc::new(read));
    let threads = (0..threads.max(1))
        .map(|_| {
            let (shared, read) = (shared.clone(), read.clone());
            std::thread::spawn(move || work(&shared, depth, &*read))
        })
        .collect();
    Prefetch { shared, threads }
}

fn work<I: Iterator, T>(shared: &Shared<I, T>, depth: u64, read: &dyn Fn(I::Item) -> T) {
    let _guard = Guard(shared);
    loop {
        let mut state = shared.lock();
        while !state.stopped && !state.ended && state.begun >= state.taken + depth {
            state = shared.wait(state);
        }
        if state.stopped || state.ended {
            return;
        }
        let Some(place) = state.places.next() else {
            state.ended = true;
            shared.changed.notify_all();
            return;
        };
        let number = state.begun;
        state.begun += 1;
        drop(state);
        let result = read(place);
        shared.lock().ready.insert(number, result);
        shared.changed.notify_all();
    }
}

impl<I: Iterator, T> Iterator for Prefetch<I, T> {
    type Item = T;

    /// # Panics
    /// With the panic of `read`, if it panicked.
    fn next(&mut self) -> Option<T> {
        let mut state = self.shared.lock();
        loop {
            let number = state.taken;
            if let Some(result) = state.ready.remove(&number) {
                state.taken += 1;
                self.shared.changed.notify_all();
                return Some(result);
            }
            if state.stopped || (state.ended && state.taken == state.begun) {
                break;
            }
            state = self.shared.wait(state);
        }
        drop(state);
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        None
    }
}

impl<I, T> Drop for Prefetch<I, T> {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // a panic in a read whose result nobody has taken is dropped
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    #[test]
    fn order_is_kept_and_nobody_runs_further_ahead_than_the_depth() {
        let taken = Arc::new(AtomicU64::new(0));
        for (depth, threads) in [(1, 1), (3, 4), (64, 2)] {
            taken.store(0, Ordering::SeqCst);
            let seen = taken.clone();
            let read = move |i: u64| {
                std::thread::sleep(Duration::from_micros((i * 7919) % 50));
                assert!(
                    i <= seen.load(Ordering::SeqCst) + depth as u64,
                    "{i} too early"
                );
                i
            };
            let ahead = prefetch(0..200u64, depth, threads, read);
            let got: Vec<u64> = ahead
                .inspect(|_| _ = taken.fetch_add(1, Ordering::SeqCst))
                .collect();
            assert_eq!(got, (0..200).collect::<Vec<_>>());
        }
    }

    #[test]
    fn dropping_early_ends_the_threads_and_a_panic_reaches_the_reader() {
        let mut endless = prefetch(0.., 4, 3, |i: u64| i);
        assert_eq!(endless.next(), Some(0));
        drop(endless);
        let broken = prefetch(0..9u64, 2, 2, |i| assert_ne!(i, 5, "sample 5 is broken"));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| broken.count()));
        assert!(outcome.is_err());
    }
}

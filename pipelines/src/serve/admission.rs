//! Admission of requests: a bounded number at once, none while the server drains.

use super::error::ApiError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Requests in progress.
pub(crate) struct Admission {
    /// Requests that may run and wait at once.
    most: usize,
    in_progress: AtomicUsize,
    is_draining: AtomicBool,
    /// Wakes those who wait for the last request.
    left: Notify,
    /// Wakes those who wait for the end of the server.
    closing: Notify,
}

/// A request in progress, until it is dropped.
pub(super) struct Place(Arc<Admission>);

impl Admission {
    pub(crate) fn new(most: usize) -> Arc<Admission> {
        Arc::new(Admission {
            most,
            in_progress: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            left: Notify::new(),
            closing: Notify::new(),
        })
    }

    /// A place for a request.
    ///
    /// # Errors
    /// 503 while the server drains, 429 if all places are taken.
    pub(super) fn enter(self: &Arc<Admission>) -> Result<Place, ApiError> {
        // counted first: a request that is let in beside the signal is waited for
        let before = self.in_progress.fetch_add(1, Ordering::SeqCst);
        let place = Place(Arc::clone(self));
        if self.is_draining() {
            return Err(ApiError::draining());
        }
        if before >= self.most {
            return Err(ApiError::queue_full(self.most));
        }
        Ok(place)
    }

    /// Lets nobody in from now on.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    /// Completes when the server is about to end.
    pub(crate) async fn draining(&self) {
        let closing = self.closing.notified();
        tokio::pin!(closing);
        closing.as_mut().enable();
        if !self.is_draining() {
            closing.await;
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Requests in progress.
    pub(super) fn in_progress(&self) -> usize {
        self.in_progress.load(Ordering::SeqCst)
    }

    /// Completes when no request is in progress.
    pub(super) async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.in_progress() == 0 {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.in_progress.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_draining_lets_nobody_in() {
        let admission = Admission::new(2);
        let first = admission.enter().unwrap();
        let _second = admission.enter().unwrap();
        let full = admission.enter().map(|_| ()).unwrap_err();
        assert_eq!((full.status.as_u16(), full.retry_after), (429, Some(1)));
        assert_eq!(admission.in_progress(), 2);
        drop(first);
        let third = admission.enter().unwrap();
        admission.drain();
        drop(third);
        let draining = admission.enter().map(|_| ()).unwrap_err();
        assert_eq!(
            (draining.status.as_u16(), draining.retry_after),
            (503, Some(5))
        );
        assert_eq!(admission.in_progress(), 1);
    }

    #[test]
    fn the_last_request_wakes_those_who_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let admission = Admission::new(2);
            let place = admission.enter().unwrap();
            let waits = Arc::clone(&admission);
            let waiter = tokio::spawn(async move { waits.emptied().await });
            tokio::task::yield_now().await;
            assert!(!waiter.is_finished());
            drop(place);
            waiter.await.unwrap();
        });
    }
}

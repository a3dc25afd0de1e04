//! The sequences of one request, from submission to the last token. Dropped, they leave the engine: a client that leaves
//! drops the future or the body that holds its group.

use super::admission::Place;
use super::engine_thread::{EngineHandle, Note, Progress};
use super::error::ApiError;
use super::metrics::Clock;
use super::request_log::Figures;
use super::state::Server;
use axum::http::StatusCode;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Sleep, sleep_until};
use train::infer::engine::{Finish, Request};

/// Sequences in progress.
pub(super) struct Group {
    server: Arc<Server>,
    figures: Arc<Figures>,
    group: u64,
    notes: UnboundedReceiver<Note>,
    sequences: Vec<Sequence>,
    /// Sequences that are not finished.
    open: usize,
    /// One timer for the whole answer: a new one for each token costs as much as its text.
    deadline: Pin<Box<Sleep>>,
    /// Held until the answer is complete.
    _place: Arc<Place>,
}

struct Sequence {
    clock: Clock,
    is_open: bool,
}

impl Group {
    /// Submits sequences. `deadline`: when the answer is given up.
    pub(super) fn submit(
        server: &Arc<Server>,
        figures: &Arc<Figures>,
        place: &Arc<Place>,
        requests: Vec<Request>,
        deadline: tokio::time::Instant,
    ) -> Group {
        let sequences = requests.iter().map(|request| Sequence {
            clock: Clock::new(request.prompt.len()),
            is_open: true,
        });
        let sequences: Vec<Sequence> = sequences.collect();
        let engine: &EngineHandle = &server.engine;
        let submitted = engine.submit(requests);
        Group {
            server: Arc::clone(server),
            figures: Arc::clone(figures),
            group: submitted.group,
            notes: submitted.notes,
            open: sequences.len(),
            sequences,
            deadline: Box::pin(sleep_until(deadline)),
            _place: Arc::clone(place),
        }
    }

    /// The next news of a sequence; none when all are finished.
    ///
    /// # Errors
    /// 400 with the engine's refusal, 500 after a failed step or a panic, 503 when the server ends, 504 at the deadline.
    pub(super) async fn next(&mut self) -> Result<Option<(usize, Progress)>, ApiError> {
        while self.open > 0 {
            let (notes, deadline) = (&mut self.notes, &mut self.deadline);
            let note = poll_fn(|cx| match notes.poll_recv(cx) {
                Poll::Ready(note) => Poll::Ready(Some(note)),
                Poll::Pending => deadline.as_mut().poll(cx).map(|()| None),
            });
            let Some(note) = note.await else {
                self.server.engine.cancel(self.group, None);
                return Err(self.fail(StatusCode::GATEWAY_TIMEOUT, "the answer took too long"));
            };
            let Some(note) = note else {
                return Err(self.fail(StatusCode::INTERNAL_SERVER_ERROR, "the engine is gone"));
            };
            if self.take(&note)? {
                return Ok(Some((note.number, note.progress)));
            }
        }
        Ok(None)
    }

    /// Whether the note is news.
    fn take(&mut self, note: &Note) -> Result<bool, ApiError> {
        let metrics = &self.server.metrics;
        let Some(sequence) = self.sequences.get_mut(note.number) else {
            return Ok(false);
        };
        if !sequence.is_open {
            return Ok(false);
        }
        match &note.progress {
            Progress::Started => {
                sequence.clock.start(note.at);
                return Ok(false);
            }
            Progress::Prompt { .. } => {}
            Progress::Token { .. } => {
                sequence.clock.token(note.at, metrics);
                self.figures.tokens.fetch_add(1, Ordering::Relaxed);
            }
            Progress::Finished(finish) => {
                let reason = match finish {
                    Finish::Stop(_) => "stop",
                    Finish::Length => "length",
                };
                self.close(note.number, reason, note.at);
            }
            Progress::Refused(why) => {
                self.server.engine.cancel(self.group, None);
                return Err(self.fail(StatusCode::BAD_REQUEST, why));
            }
            Progress::Failed(why) => {
                return Err(self.fail(StatusCode::INTERNAL_SERVER_ERROR, why));
            }
            Progress::Ended => {
                self.end_all("abort");
                return Err(ApiError::draining());
            }
        }
        Ok(true)
    }

    /// Ends a sequence whose text is complete, though the engine would go on.
    pub(super) fn stop(&mut self, number: usize) {
        if self
            .sequences
            .get(number)
            .is_some_and(|sequence| sequence.is_open)
        {
            self.server.engine.cancel(self.group, Some(number));
            self.close(number, "stop", Instant::now());
        }
    }

    fn close(&mut self, number: usize, reason: &str, at: Instant) {
        if let Some(sequence) = self.sequences.get_mut(number)
            && std::mem::replace(&mut sequence.is_open, false)
        {
            sequence.clock.end(at, reason, &self.server.metrics);
            self.open -= 1;
        }
        if self.open == 0 {
            let longest = self.sequences.iter().map(|sequence| sequence.clock.tokens);
            self.server.metrics.longest(longest.max().unwrap_or(0));
        }
    }

    fn fail(&mut self, status: StatusCode, why: &str) -> ApiError {
        self.end_all("error");
        ApiError::new(status, why)
    }

    fn end_all(&mut self, reason: &str) {
        let now = Instant::now();
        for sequence in self
            .sequences
            .iter_mut()
            .filter(|sequence| sequence.is_open)
        {
            sequence.is_open = false;
            sequence.clock.end(now, reason, &self.server.metrics);
        }
        self.open = 0;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.open > 0 {
            self.server.engine.cancel(self.group, None);
            self.end_all("abort");
        }
    }
}

//! Tracing spans: the op, collective or wait that a rank's threads are in, and spans added by callers around them.
//! A thread records once it has a recorder; otherwise a span costs one thread-local read.
//!
//! Spans of a thread nest: one that is opened later ends earlier. The newest `MOST_SPANS` are kept, so
//! memory is bounded. Threads that ops use inside have no recorder: their work is the op's span.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Spans that one recorder keeps, at most about 40 MiB with their names.
const MOST_SPANS: usize = 1 << 18;

/// Category of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An op of this crate.
    Compute,
    /// A collective, its waits included.
    Collective,
    /// Waiting for other ranks or threads.
    Wait,
    /// A phase named by the caller.
    Phase,
}

/// Description of a span beside its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Category.
    pub kind: Kind,
    /// Name of the op, collective or phase.
    pub name: Cow<'static, str>,
    /// Group of ranks of a collective.
    pub group: Option<&'static str>,
    /// Bytes that this rank brings to a collective.
    pub bytes: Option<usize>,
    /// Number of a step or of a micro-batch.
    pub number: Option<u64>,
}

impl Label {
    /// With a name alone.
    pub fn new(kind: Kind, name: impl Into<Cow<'static, str>>) -> Label {
        Label {
            kind,
            name: name.into(),
            group: None,
            bytes: None,
            number: None,
        }
    }

    /// The same with a number.
    pub fn number(self, number: u64) -> Label {
        Label {
            number: Some(number),
            ..self
        }
    }
}

/// A span that is over. Times are nanoseconds since the recorder's epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Description.
    pub label: Label,
    /// Number of the thread, as passed to `install`.
    pub thread: u32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

#[derive(Default)]
struct Ring {
    spans: VecDeque<Recorded>,
    lost: u64,
}

struct Shared {
    epoch: Instant,
    is_on: AtomicBool,
    ring: Mutex<Ring>,
}

/// Recorder of the spans of a rank's threads. Clones share them.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

thread_local! {
    static HERE: RefCell<Option<(Recorder, u32)>> = const { RefCell::new(None) };
}

impl Recorder {
    /// Creates a recorder that is off; times count from `epoch`.
    pub fn new(epoch: Instant) -> Recorder {
        Recorder(Arc::new(Shared {
            epoch,
            is_on: AtomicBool::new(false),
            ring: Mutex::default(),
        }))
    }

    /// Returns the calling thread's, if it has one.
    pub fn here() -> Option<Recorder> {
        HERE.with_borrow(|here| here.as_ref().map(|(recorder, _)| recorder.clone()))
    }

    /// Records the calling thread's spans from now on, as those of thread `number`.
    pub fn install(&self, number: u32) {
        HERE.set(Some((self.clone(), number)));
    }

    /// Switches recording of spans on or off from now on.
    pub fn set_on(&self, is_on: bool) {
        self.0.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether spans are recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Returns the spans so far in the order in which they ended, and how many older ones are lost.
    pub fn take(&self) -> (Vec<Recorded>, u64) {
        let ring = std::mem::take(&mut *self.ring());
        (ring.spans.into(), ring.lost)
    }

    // A span is pushed whole or not at all, so a poisoned lock is still good.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn push(&self, recorded: Recorded) {
        let mut ring = self.ring();
        if ring.spans.len() == MOST_SPANS {
            ring.spans.pop_front();
            ring.lost += 1;
        }
        ring.spans.push_back(recorded);
    }
}

struct Opened {
    recorder: Recorder,
    label: Label,
    thread: u32,
    start_ns: u64,
}

/// Lasts until it is dropped.
#[must_use = "a span ends when it is dropped"]
pub struct Span(Option<Opened>);

/// Opens a span of the calling thread; `label` is called only where it is recorded.
pub fn span(label: impl FnOnce() -> Label) -> Span {
    HERE.with_borrow(|here| {
        let on = here.as_ref().filter(|(recorder, _)| recorder.is_on());
        Span(on.map(|(recorder, thread)| Opened {
            label: label(),
            thread: *thread,
            start_ns: recorder.now(),
            recorder: recorder.clone(),
        }))
    })
}

/// Opens the span of an op, named by its path below `ops`.
pub(crate) fn op(path: &'static str) -> Span {
    span(|| {
        let name = path.split_once("ops::").map_or(path, |(_, name)| name);
        Label::new(Kind::Compute, name)
    })
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(opened) = self.0.take() {
            let end_ns = opened.recorder.now();
            opened.recorder.push(Recorded {
                label: opened.label,
                thread: opened.thread,
                start_ns: opened.start_ns,
                end_ns,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glu::{Gate, forward};
    use crate::{Device, Tensor};

    #[test]
    fn spans_are_kept_only_while_the_thread_has_a_recorder_that_is_on() {
        let x = Tensor::from_f32(&[1, 2], &[1.0, 2.0], &Device::cpu()).unwrap();
        let recorder = Recorder::new(Instant::now());
        forward(&x, Gate::Silu).unwrap();
        recorder.install(3);
        forward(&x, Gate::Silu).unwrap();
        assert_eq!(recorder.take(), (Vec::new(), 0));
        recorder.set_on(true);
        {
            let _step = span(|| Label::new(Kind::Phase, "step").number(7));
            forward(&x, Gate::Silu).unwrap();
        }
        recorder.set_on(false);
        forward(&x, Gate::Silu).unwrap();
        let (spans, lost) = recorder.take();
        let [inner, outer] = &spans[..] else {
            panic!("{spans:?}");
        };
        assert_eq!(inner.label, Label::new(Kind::Compute, "glu::forward"));
        assert_eq!(outer.label.number, Some(7));
        assert!(outer.start_ns <= inner.start_ns && inner.end_ns <= outer.end_ns);
        assert_eq!((inner.thread, outer.thread, lost), (3, 3, 0));
    }

    #[test]
    fn the_newest_spans_are_kept_and_the_others_counted() {
        let recorder = Recorder::new(Instant::now());
        recorder.install(0);
        recorder.set_on(true);
        for number in 0..MOST_SPANS as u64 + 5 {
            drop(span(|| Label::new(Kind::Phase, "x").number(number)));
        }
        let (spans, lost) = recorder.take();
        assert_eq!((spans.len(), lost), (MOST_SPANS, 5));
        assert_eq!(spans[0].label.number, Some(5));
    }
}

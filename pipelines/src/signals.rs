//! SIGTERM and SIGINT during training: the step is finished, a checkpoint is written, and the process exits with
//! code 128 + the signal's number, the shell convention. A second signal ends the process at once, as any signal
//! does outside of training; everything in a checkpoint is kept.
//!
//! A launch on a cluster also listens to SIGUSR1 ([`Requests`]).

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signal handlers that are active until it is dropped.
pub(crate) struct Signals {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Signals {
    pub(crate) fn listen() -> Result<Signals> {
        let asked = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        for (number, value) in [(SIGTERM, 15), (SIGINT, 2)] {
            // in this order: at the first signal the flag is still down
            flag::register_conditional_default(number, Arc::clone(&asked))
                .and_then(|_| flag::register_usize(number, Arc::clone(&signal), value))
                .and_then(|_| flag::register(number, Arc::clone(&asked)))
                .context("cannot listen to signals")?;
        }
        Ok(Signals { asked, signal })
    }

    /// The signal that this process received; SIGTERM if another process of the training received one.
    pub(crate) fn interrupted(&self) -> Interrupted {
        let number = u8::try_from(self.signal.load(Ordering::SeqCst)).unwrap_or(0);
        Interrupted {
            signal: if number == 0 { 15 } else { number },
        }
    }

    /// Whether a signal was received.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Signals {
    // handlers cannot be removed; with the flag up a signal has its default effect
    fn drop(&mut self) {
        self.asked.store(true, Ordering::SeqCst);
    }
}

/// Requests to a launch: a signal that ends it, or SIGUSR1, the scheduler's word before the time of an allocation is over.
pub(crate) struct Requests {
    end: Signals,
    requeue: Arc<AtomicBool>,
}

impl Requests {
    pub(crate) fn listen() -> Result<Requests> {
        let requeue = Arc::new(AtomicBool::new(false));
        flag::register(SIGUSR1, Arc::clone(&requeue)).context("cannot listen to signals")?;
        Ok(Requests {
            end: Signals::listen()?,
            requeue,
        })
    }

    /// Whether a signal to end was received.
    pub(crate) fn is_asked(&self) -> bool {
        self.end.is_asked()
    }

    /// Whether the time of the allocation is nearly over.
    pub(crate) fn is_requeue_asked(&self) -> bool {
        self.requeue.load(Ordering::SeqCst)
    }

    /// The signal that was received.
    pub(crate) fn interrupted(&self) -> Interrupted {
        self.end.interrupted()
    }
}

/// A signal ended a stage early. Finished work is kept; the same command continues.
#[derive(Debug, thiserror::Error)]
#[error("stopped by {}; the same command continues", signal_name(*.signal))]
pub(crate) struct Interrupted {
    /// Number of the signal, as in `128 + signal` of the exit code.
    pub signal: u8,
}

fn signal_name(signal: u8) -> String {
    let name = signal_hook::low_level::signal_name(i32::from(signal));
    name.map_or_else(|| format!("signal {signal}"), str::to_string)
}

//! SIGTERM and SIGINT while a model trains: the step is finished, a checkpoint written, and the process ends with
//! exit code 0. A second signal ends it at once, as any does outside of training; nothing is lost that a checkpoint has.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Listens until it is dropped.
pub(crate) struct Signals {
    asked: Arc<AtomicBool>,
}

impl Signals {
    pub(crate) fn listen() -> Result<Signals> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // in this order: the first signal finds the flag down
            flag::register_conditional_default(signal, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .context("cannot listen to signals")?;
        }
        Ok(Signals { asked })
    }

    /// Whether one came.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Signals {
    // what was registered stays; with the flag up a signal does what it does by default
    fn drop(&mut self) {
        self.asked.store(true, Ordering::SeqCst);
    }
}

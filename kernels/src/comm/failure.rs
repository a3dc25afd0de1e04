//! The first cause of the end of a run, as it is sent between processes.

use super::frame::Payload;
use std::sync::Arc;

/// The first cause of the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Rank or ranks and host.
    pub who: String,
    /// Its own error, or how it ended.
    pub reason: String,
}

impl Failure {
    /// As frames carry it.
    pub(super) fn payload(&self) -> Payload {
        let text = format!("{}\n{}", self.who, self.reason);
        Payload::Bytes(Arc::new(text.into_bytes()))
    }

    /// Reads the payload of a frame.
    pub(super) fn of(payload: &Payload) -> Failure {
        let text = String::from_utf8_lossy(payload.bytes()).into_owned();
        let (who, reason) = text.split_once('\n').unwrap_or(("a rank", &text));
        Failure {
            who: who.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

//! The transport interface to other processes, and state shared by all groups of a process.

use super::failure::Failure;
use super::frame::{Header, Payload};
use super::mailbox::Mailbox;
use super::watchdog::Watch;
use std::sync::Arc;

/// Sends frames to other processes. Frames from them are delivered to the process's mailbox in the background, so a
/// process that sends never waits for one that computes.
pub(super) trait Wire: Send + Sync {
    /// Returns once the frame is on its way. A frame to a process that has ended is lost.
    fn send(&self, process: usize, header: &Header, payload: &Payload);
    /// Reports why this process ends by channels other than frames, if there are any.
    fn fail(&self, _failure: &Failure) {}
    /// Sends a good-bye, gives frames in flight a moment, and closes.
    fn close(&self);
}

pub(super) struct Shared {
    pub process: usize,
    pub wire: Box<dyn Wire>,
    pub mailbox: Arc<Mailbox>,
    pub watch: Arc<Watch>,
    pub ranks_per_process: usize,
    pub processes: usize,
}

impl Shared {
    /// Process of a world rank.
    pub(super) fn home(&self, rank: usize) -> usize {
        rank / self.ranks_per_process
    }
}

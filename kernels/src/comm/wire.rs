//! What carries frames to other processes, and what all groups of a process share.

use super::failure::Failure;
use super::frame::{Header, Payload};
use super::mailbox::Mailbox;
use super::watchdog::Watch;
use std::sync::Arc;

/// Carries frames to other processes. What comes from them goes to the process's mailbox by itself, so a
/// process that sends never waits for one that computes.
pub(super) trait Wire: Send + Sync {
    /// Returns once the frame is under way. To a process that has ended it is lost.
    fn send(&self, process: usize, header: &Header, payload: &Payload);
    /// Tells why this process ends by other ways than frames, if there are any.
    fn fail(&self, _failure: &Failure) {}
    /// Says good-bye, gives frames that are under way a moment, and ends.
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

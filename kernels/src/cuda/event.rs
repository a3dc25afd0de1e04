//! Events: places in the streams of a device.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::stream::{Stream, current};
use super::{Cuda, failed};
use crate::Result;

/// A place in a stream of a device.
pub(crate) struct Event {
    cuda: Arc<Cuda>,
    raw: sys::CUevent,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: the driver's functions are safe for threads.
unsafe impl Sync for Event {}

impl Event {
    /// Whether all work before it is done; of a lost device, whose work will never be, true.
    pub(crate) fn is_done(&self) -> bool {
        if self.cuda.bind().is_err() {
            return true;
        }
        // SAFETY: the event lives as long as self.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => true,
            Err(error) => error.0 != sys::CUresult::CUDA_ERROR_NOT_READY,
        }
    }

    /// Lets the host wait until all work before it is done, or the device is lost.
    pub(crate) fn finish(&self) {
        if self.cuda.bind().is_ok() {
            // SAFETY: the event lives as long as self.
            let _ = unsafe { result::event::synchronize(self.raw) };
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.cuda.bind().is_ok() {
            // SAFETY: made by `record`, destroyed once; waits for it that are queued stay.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

impl Cuda {
    /// An event after all work that the thread's stream was given.
    pub(crate) fn record(self: &Arc<Self>) -> Result<Event> {
        self.record_on(current())
    }

    /// The same of a stream.
    pub(crate) fn record_on(self: &Arc<Self>, stream: Stream) -> Result<Event> {
        self.bind()?;
        let raw = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
            .map_err(|error| failed("cuEventCreate", error))?;
        let event = Event {
            cuda: Arc::clone(self),
            raw,
        };
        // SAFETY: event and stream are alive and of this context.
        unsafe { result::event::record(raw, self.raw_stream(stream)) }
            .map_err(|error| failed("cuEventRecord", error))?;
        Ok(event)
    }

    /// Lets later work of the thread's stream wait for an event, of whatever device.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        self.bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: event and stream are alive.
        unsafe { result::stream::wait_event(self.raw_stream(current()), event.raw, flags) }
            .map_err(|error| failed("cuStreamWaitEvent", error))
    }
}

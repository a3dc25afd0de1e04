//! A communicator: one rank's handle on a group of devices.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::stream::current;
use super::super::{Address, Cuda, lock};
use super::table::{Config, F32, IN_PROGRESS, Raw, SUCCESS, SUM};
use super::{Nccl, UniqueId};
use crate::Result;

/// A call, of f32 numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// `count` elements of every rank, added in NCCL's order, in place.
    AllReduce { x: Address, count: usize },
    /// `count` elements for each rank in, `count` out.
    ReduceScatter {
        from: Address,
        to: Address,
        count: usize,
    },
    /// `count` elements of each rank, one behind the other.
    AllGather {
        from: Address,
        to: Address,
        count: usize,
    },
    /// Root's elements, in place.
    Broadcast {
        x: Address,
        count: usize,
        root: usize,
    },
    /// To a rank.
    Send {
        from: Address,
        count: usize,
        peer: usize,
    },
    /// From a rank.
    Recv {
        to: Address,
        count: usize,
        peer: usize,
    },
}

/// How the calls before are going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// All are queued in their streams.
    Ready,
    /// NCCL is still at it.
    InProgress,
}

/// One rank's handle. Dropping it aborts what is left of it.
pub(crate) struct Communicator {
    nccl: Arc<Nccl>,
    cuda: Arc<Cuda>,
    /// Null once it is aborted.
    raw: Mutex<Handle>,
    is_aborted: AtomicBool,
}

struct Handle(Raw);

// SAFETY: NCCL's communicators may be used from any thread, one at a time: the lock around the handle sees to that.
unsafe impl Send for Handle {}

impl Communicator {
    /// Starts to join the group of `id`, for the device `cuda`.
    pub(crate) fn start(
        nccl: &Arc<Nccl>,
        cuda: &Arc<Cuda>,
        id: UniqueId,
        rank: usize,
        size: usize,
    ) -> Result<Communicator> {
        cuda.bind()?;
        let mut raw: Raw = std::ptr::null_mut();
        let mut config = Config::non_blocking();
        // SAFETY: a context is current, and NCCL copies the configuration.
        let code =
            unsafe { (nccl.table.init)(&mut raw, number(size), id, number(rank), &mut config) };
        if code != SUCCESS && code != IN_PROGRESS {
            return Err(nccl.failed("ncclCommInitRankConfig", code, std::ptr::null_mut()));
        }
        Ok(Communicator {
            nccl: Arc::clone(nccl),
            cuda: Arc::clone(cuda),
            raw: Mutex::new(Handle(raw)),
            is_aborted: AtomicBool::new(false),
        })
    }

    fn handle(&self) -> MutexGuard<'_, Handle> {
        lock(&self.raw)
    }

    /// Its state.
    /// # Errors
    /// `Driver` if a call before failed, now or on another rank.
    pub(crate) fn state(&self) -> Result<State> {
        let raw = self.handle();
        if raw.0.is_null() {
            return Ok(State::Ready);
        }
        let mut code = SUCCESS;
        // SAFETY: the handle is alive, and one number is written.
        let asked = unsafe { (self.nccl.table.async_error)(raw.0, &mut code) };
        match (asked, code) {
            (SUCCESS, SUCCESS) => Ok(State::Ready),
            (SUCCESS, IN_PROGRESS) => Ok(State::InProgress),
            (SUCCESS, code) | (code, _) => Err(self.nccl.failed("NCCL's collective", code, raw.0)),
        }
    }

    /// Queues calls, as one group, in the thread's stream. `state` must be `Ready` before and be asked after.
    pub(crate) fn queue(&self, calls: &[Call]) -> Result<()> {
        self.cuda.bind()?;
        let raw = self.handle();
        let table = &self.nccl.table;
        let stream: *mut c_void = self.cuda.raw_stream(current()).cast();
        // SAFETY: no arguments.
        let started = unsafe { (table.group_start)() };
        self.nccl.checked("ncclGroupStart", started)?;
        let mut first = SUCCESS;
        for call in calls {
            // SAFETY: the handle is alive; addresses and counts are of tensors of this device, which the caller keeps
            // until the stream has passed the call.
            let code = unsafe {
                match *call {
                    Call::AllReduce { x, count } => {
                        (table.all_reduce)(from(x), to(x), count, F32, SUM, raw.0, stream)
                    }
                    Call::ReduceScatter {
                        from: x,
                        to: y,
                        count,
                    } => (table.reduce_scatter)(from(x), to(y), count, F32, SUM, raw.0, stream),
                    Call::AllGather {
                        from: x,
                        to: y,
                        count,
                    } => (table.all_gather)(from(x), to(y), count, F32, raw.0, stream),
                    Call::Broadcast { x, count, root } => {
                        (table.broadcast)(from(x), to(x), count, F32, number(root), raw.0, stream)
                    }
                    Call::Send {
                        from: x,
                        count,
                        peer,
                    } => (table.send)(from(x), count, F32, number(peer), raw.0, stream),
                    Call::Recv { to: x, count, peer } => {
                        (table.recv)(to(x), count, F32, number(peer), raw.0, stream)
                    }
                }
            };
            if first == SUCCESS && code != IN_PROGRESS {
                first = code;
            }
        }
        // SAFETY: it ends the group above.
        let ended = unsafe { (table.group_end)() };
        for code in [first, ended] {
            if code != SUCCESS && code != IN_PROGRESS {
                return Err(self.nccl.failed("NCCL's collective", code, raw.0));
            }
        }
        Ok(())
    }

    /// Ends it, whatever its calls are waiting for. Later calls find it gone.
    pub(crate) fn abort(&self) {
        let mut raw = self.handle();
        self.is_aborted.store(true, Ordering::SeqCst);
        if !raw.0.is_null() && self.cuda.bind().is_ok() {
            // SAFETY: the handle is alive and not used again.
            unsafe { (self.nccl.table.abort)(raw.0) };
            raw.0 = std::ptr::null_mut();
        }
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}

fn number(of: usize) -> c_int {
    c_int::try_from(of).unwrap_or(c_int::MAX)
}

fn from(Address(at): Address) -> *const c_void {
    std::ptr::without_provenance(usize::try_from(at).unwrap_or(0))
}

fn to(Address(at): Address) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(at).unwrap_or(0))
}

//! Transport over MPI, for hosts whose fast network or launcher requires it. One thread makes all MPI calls: it
//! sends the messages that ranks queue, in order, receives messages, and yields the processor in between. MPI only
//! moves bytes; sums are computed here, so that their bits are those of threads. MPI gives no notice of a dead
//! process: a liveness connection beside it does (`liveness.rs`).
//!
//! There is no cargo feature: the library is opened when a run needs it (`library.rs`), and a program on a machine
//! without it is the same program.

mod library;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::frame::{self, HEADER, Header, Kind, Payload};
use super::liveness::{self, Lines, Liveness, Seat};
use super::mailbox::Mailbox;
use super::network::{Connected, Network, take, unmet};
use super::watchdog::Watch;
use super::wire::Wire;
use crate::{Error, Result};
use library::Mpi;
pub use library::{Found, found};

/// Longest message: lengths are C ints.
const MESSAGE: usize = 1 << 29;
/// Queued bytes above which ranks wait, and bytes handed to MPI above which the thread waits.
const MOST_WAITING: usize = 1 << 28;
/// Polls without news before the thread begins to sleep between polls.
const PATIENT_LOOKS: u32 = 200;
const NAP: Duration = Duration::from_micros(100);
/// Time that a process that ends waits for the others' good-bye.
const GOOD_BYE: Duration = Duration::from_secs(5);
/// Time to wait after an MPI error for a liveness report, as the error may be the effect of a dead process.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Parameters for starting MPI.
#[derive(Clone, Debug)]
pub struct Start {
    /// This process and the number of processes, as the launcher says.
    pub process: usize,
    /// Processes of the run.
    pub processes: usize,
    /// World ranks per process.
    pub ranks_per_process: usize,
    /// Name of this host, for messages.
    pub host: String,
    /// Libraries to try, names or paths.
    pub libraries: Vec<String>,
    /// Time limit for MPI to start.
    pub patience: Duration,
    /// Timeout of collectives.
    pub timeout: Duration,
}

/// Starts MPI and connects to all other processes.
///
/// # Errors
/// `Network`: no library of MPI, one that does not know its launcher, one that does not start in time,
/// another number of processes.
pub fn connect(start: &Start) -> Result<Network> {
    let libraries = start.libraries.clone();
    connect_by(start, MOST_WAITING, move || library::open(&libraries))
}

/// Like `connect`, with the library that `open` opens.
fn connect_by(
    start: &Start,
    most_waiting: usize,
    open: impl FnOnce() -> Result<Box<dyn Mpi>> + Send + 'static,
) -> Result<Network> {
    let queue = Arc::new(Queue {
        waiting: Mutex::default(),
        changed: Condvar::new(),
        most_bytes: most_waiting,
    });
    let mailbox = Arc::new(Mailbox::new(start.processes));
    let (told, met) = channel();
    let engine = Engine {
        start: start.clone(),
        queue: Arc::clone(&queue),
        mailbox: Arc::clone(&mailbox),
    };
    let thread = thread::Builder::new().name("MPI".into());
    let thread = thread.spawn(move || engine.run(open, &told));
    let no_thread = |error: std::io::Error| unmet("MPI", error.to_string(), "threads");
    let thread = thread.map_err(no_thread)?;
    let Met {
        hosts,
        lines,
        without,
    } = wait(start, &met)?;
    let watch = Watch::new(Some(start.timeout), hosts, start.ranks_per_process);
    let watch = Arc::new(watch);
    let liveness = Liveness::start(start.process, lines, (&mailbox, &watch)).map_err(no_thread)?;
    let remark =
        |who| format!("no liveness connection to {who}; if it dies, only mpirun can report it");
    Ok(Network::new(Connected {
        process: start.process,
        processes: start.processes,
        ranks_per_process: start.ranks_per_process,
        wire: Box::new(Ends {
            queue,
            thread: Mutex::new(Some(thread)),
            process: start.process,
            processes: start.processes,
            liveness,
        }),
        mailbox,
        watch,
        remarks: without.into_iter().map(remark).collect(),
    }))
}

/// Result of the rendezvous.
struct Met {
    hosts: Vec<String>,
    lines: Lines,
    /// Processes without a liveness connection, and why.
    without: Vec<String>,
}

fn wait(start: &Start, met: &Receiver<Result<Met>>) -> Result<Met> {
    met.recv_timeout(start.patience).unwrap_or_else(|_| {
        let at = format!("process {} on {}: MPI", start.process, start.host);
        let seconds = start.patience.as_secs_f64();
        Err(unmet(
            at,
            format!("no start for {seconds:.0} s"),
            "all processes",
        ))
    })
}

/// Messages queued by ranks for the thread.
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Limit for the queue, and for the bytes that MPI was given and has not sent yet.
    most_bytes: usize,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<(usize, Vec<u8>)>,
    bytes: usize,
    is_closed: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues messages that must follow each other.
    fn push(&self, process: usize, messages: Vec<Vec<u8>>) {
        let mut waiting = self.waiting();
        while waiting.bytes > self.most_bytes && !waiting.is_closed {
            // the thread keeps sending independently of the ranks, so this ends
            waiting = (self.changed.wait(waiting)).unwrap_or_else(PoisonError::into_inner);
        }
        if !waiting.is_closed {
            waiting.bytes += messages.iter().map(Vec::len).sum::<usize>();
            let messages = messages.into_iter().map(|message| (process, message));
            waiting.messages.extend(messages);
        }
        drop(waiting);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.waiting().is_closed = true;
        self.changed.notify_all();
    }
}

/// State of the MPI thread.
struct Engine {
    start: Start,
    queue: Arc<Queue>,
    mailbox: Arc<Mailbox>,
}

impl Engine {
    fn run(&self, open: impl FnOnce() -> Result<Box<dyn Mpi>>, told: &Sender<Result<Met>>) {
        let (mpi, met) = match open().and_then(|mpi| self.begin(mpi)) {
            Ok((mpi, met)) => (Some(mpi), Ok(met)),
            Err(error) => (None, Err(error)),
        };
        let is_heard = told.send(met).is_ok();
        if let Some(mpi) = mpi.filter(|_| is_heard) {
            let at_end = AtEnd(&self.queue);
            let done = self.serve(mpi);
            drop(at_end);
            if let Err(error) = done {
                let cause = self.mailbox.cause(LAST_WORDS);
                let (process, host) = (self.start.process, &self.start.host);
                let mine = Failure {
                    who: format!("MPI of process {process} on {host}"),
                    reason: format!("failed: {error}"),
                };
                let failure = cause.unwrap_or(mine);
                for other in (0..self.start.processes).filter(|&p| p != process) {
                    self.mailbox.end(other, None, Some(failure.clone()));
                }
            }
        }
    }

    fn begin(&self, mpi: Box<dyn Mpi>) -> Result<(Box<dyn Mpi>, Met)> {
        let Start {
            process,
            processes,
            ranks_per_process,
            host,
            ..
        } = &self.start;
        let at = format!("process {process} on {host}: MPI");
        if mpi.place() != (*process, *processes) {
            let (rank, size) = mpi.place();
            let wanted = format!(
                "process {process} of {processes}, as the launcher says: its own MPI's library"
            );
            return Err(unmet(at, format!("process {rank} of {size}"), wanted));
        }
        let mut hosts = Vec::new();
        for (other, text) in mpi
            .exchange(&format!("{ranks_per_process} {host}"))?
            .iter()
            .enumerate()
        {
            let (ranks, name) = text.split_once(' ').unwrap_or_default();
            if ranks != ranks_per_process.to_string() {
                let found = format!("{ranks} ranks in process {other} on {name}");
                return Err(unmet(at, found, format!("{ranks_per_process} in each")));
            }
            hosts.push(name.to_owned());
        }
        let seat = Seat {
            process: *process,
            hosts: &hosts,
        };
        let (lines, without) = liveness::meet(&seat, &mut |text| mpi.exchange(text))?;
        let met = Met {
            hosts,
            lines,
            without,
        };
        Ok((mpi, met))
    }

    /// Moves messages until all processes have said good-bye, or this one has waited for it.
    fn serve(&self, mut mpi: Box<dyn Mpi>) -> Result<()> {
        let mut parts: Vec<Vec<u8>> = vec![Vec::new(); self.start.processes];
        let mut is_open = vec![true; self.start.processes];
        is_open[self.start.process] = false;
        let (mut idle, mut until) = (0, None);
        // sends to a dead process never complete
        let lives = |process| !self.mailbox.has_died(process);
        let mut under_way = 0;
        loop {
            let (messages, is_closed) = self.next(idle, under_way);
            let mut is_news = !messages.is_empty();
            for (process, message) in messages {
                // libraries crash on sends to dead processes (MPICH 5.0.2 over libfabric)
                if lives(process) {
                    mpi.send(process, message)?;
                }
            }
            under_way = mpi.under_way(&lives)?;
            while let Some((process, bytes)) = mpi.receive()? {
                is_news = true;
                if let Some(frame) = assemble(&mut parts[process], bytes)? {
                    is_open[process] = take(&self.mailbox, process, frame).map_err(damaged)?;
                }
            }
            idle = if is_news { 0 } else { idle + 1 };
            if !is_closed {
                continue;
            }
            let mut open = (0..is_open.len()).filter(|&process| is_open[process]);
            if under_way == 0 && !is_news && open.clone().next().is_none() {
                mpi.finish();
                return Ok(());
            }
            // without all processes MPI cannot be finalized; it ends with this process
            if under_way == 0 && !is_news && !open.any(lives) {
                return Ok(());
            }
            if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + GOOD_BYE) {
                return Ok(());
            }
        }
    }

    /// Takes messages from the queue for MPI while `under_way` bytes are in flight; after many polls without news
    /// it sleeps briefly.
    fn next(&self, idle: u32, under_way: usize) -> (Vec<(usize, Vec<u8>)>, bool) {
        let mut waiting = self.queue.waiting();
        if waiting.messages.is_empty() && idle > PATIENT_LOOKS {
            let waited = self.queue.changed.wait_timeout(waiting, NAP);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        } else if waiting.messages.is_empty() {
            drop(waiting);
            thread::yield_now();
            waiting = self.queue.waiting();
        }
        let mut messages = Vec::new();
        let mut given = under_way;
        while given <= self.queue.most_bytes
            && let Some((process, message)) = waiting.messages.pop_front()
        {
            given += message.len();
            waiting.bytes -= message.len();
            messages.push((process, message));
        }
        let is_closed = waiting.is_closed;
        drop(waiting);
        if !messages.is_empty() {
            self.queue.changed.notify_all();
        }
        (messages, is_closed)
    }
}

/// Wakes ranks that wait for a thread that has ended.
struct AtEnd<'a>(&'a Queue);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Appends a message to a process's partial frame; returns the frame once it is complete.
fn assemble(part: &mut Vec<u8>, bytes: Vec<u8>) -> Result<Option<(Header, Payload)>> {
    if part.is_empty() {
        *part = bytes;
    } else {
        part.extend_from_slice(&bytes);
    }
    match frame::read(&mut part.as_slice()) {
        Ok(frame) => {
            part.clear();
            Ok(Some(frame))
        }
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(damaged(error)),
    }
}

fn damaged(error: std::io::Error) -> Error {
    unmet("MPI", error.to_string(), "frames")
}

/// The network's handle on the thread.
struct Ends {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: usize,
    processes: usize,
    liveness: Liveness,
}

impl Wire for Ends {
    fn send(&self, process: usize, header: &Header, payload: &Payload) {
        let (head, body) = (header.encode(payload), payload.bytes());
        let mut message = Vec::with_capacity(HEADER + body.len().min(MESSAGE - HEADER));
        message.extend_from_slice(&head);
        let (first, rest) = body.split_at(body.len().min(MESSAGE - HEADER));
        message.extend_from_slice(first);
        let mut messages = vec![message];
        messages.extend(rest.chunks(MESSAGE).map(<[u8]>::to_vec));
        self.queue.push(process, messages);
    }

    fn close(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(thread) = thread else {
            return;
        };
        self.liveness.say_good_bye();
        for process in 0..self.processes {
            if process != self.process {
                self.send(process, &Header::of(Kind::Bye), &Payload::none());
            }
        }
        self.queue.close();
        // it ends by itself, at the latest when it has waited for the others
        let _ = thread.join();
        self.liveness.close();
    }

    fn fail(&self, failure: &Failure) {
        self.liveness.fail(failure);
    }
}

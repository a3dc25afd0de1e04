//! Frames over MPI, for hosts whose fast network or launcher wants it. One thread makes all calls of
//! MPI: it sends what ranks leave in its queue, in order, takes what comes, and lets the processor go in
//! between. MPI moves bytes alone; sums are ours, so that their bits are those of threads.
//!
//! No cargo feature: the library is opened when a run asks for it (`library.rs`), and a program
//! without it is the same program.

mod library;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::frame::{self, HEADER, Header, Kind, Payload};
use super::network::{Connected, Failure, Network, Wire, take, unmet};
use super::post::Post;
use super::watch::Watch;
use crate::{Error, Result};
use library::Mpi;

/// Longest message: lengths are C ints.
const MESSAGE: usize = 1 << 29;
/// Ranks wait before they leave more than this in the queue.
const MOST_WAITING: usize = 1 << 28;
/// Looks without news before the thread begins to sleep between two.
const PATIENT_LOOKS: u32 = 200;
const NAP: Duration = Duration::from_micros(100);
/// How long a process that ends waits for the others' good-bye.
const GOOD_BYE: Duration = Duration::from_secs(5);

/// What a process expects of MPI.
#[derive(Clone, Debug)]
pub struct Start {
    /// This process and the number of processes, as the launcher says.
    pub process: usize,
    /// Processes of the run.
    pub processes: usize,
    /// World ranks of each.
    pub ranks_per_process: usize,
    /// Name of this host, for messages.
    pub host: String,
    /// Libraries to try, names or paths.
    pub libraries: Vec<String>,
    /// How long MPI may take to start.
    pub patience: Duration,
    /// How long collectives wait.
    pub timeout: Duration,
}

/// Starts MPI and connects to all other processes.
///
/// # Errors
/// `Network`: no library of MPI, one that does not know its launcher, one that does not start in time,
/// another number of processes.
pub fn connect(start: &Start) -> Result<Network> {
    let queue = Arc::new(Queue::default());
    let post = Arc::new(Post::new(start.processes));
    let (told, hosts) = channel();
    let engine = Engine {
        start: start.clone(),
        queue: Arc::clone(&queue),
        post: Arc::clone(&post),
    };
    let thread = thread::Builder::new().name("MPI".into());
    let thread = thread.spawn(move || engine.run(&told));
    let thread = thread.map_err(|error| unmet("MPI", error.to_string(), "a thread"))?;
    let hosts = wait(start, &hosts)?;
    let watch = Watch::new(Some(start.timeout), hosts, start.ranks_per_process);
    Ok(Network::new(Connected {
        process: start.process,
        processes: start.processes,
        ranks_per_process: start.ranks_per_process,
        wire: Box::new(Ends {
            queue,
            thread: Mutex::new(Some(thread)),
            process: start.process,
            processes: start.processes,
        }),
        post,
        watch: Arc::new(watch),
    }))
}

fn wait(start: &Start, hosts: &Receiver<Result<Vec<String>>>) -> Result<Vec<String>> {
    hosts.recv_timeout(start.patience).unwrap_or_else(|_| {
        let at = format!("process {} on {}: MPI", start.process, start.host);
        let seconds = start.patience.as_secs_f64();
        Err(unmet(
            at,
            format!("no start for {seconds:.0} s"),
            "all processes",
        ))
    })
}

/// What ranks leave for the thread.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
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

    /// Leaves messages that must follow each other.
    fn push(&self, process: usize, messages: Vec<Vec<u8>>) {
        let mut waiting = self.waiting();
        while waiting.bytes > MOST_WAITING && !waiting.is_closed {
            // the thread sends whatever ranks do, so this ends
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

/// What the thread works with.
struct Engine {
    start: Start,
    queue: Arc<Queue>,
    post: Arc<Post>,
}

impl Engine {
    fn run(&self, told: &Sender<Result<Vec<String>>>) {
        let begun = self.begin();
        let (mpi, hosts) = match begun {
            Ok((mpi, hosts)) => (Some(mpi), Ok(hosts)),
            Err(error) => (None, Err(error)),
        };
        let is_heard = told.send(hosts).is_ok();
        if let Some(mpi) = mpi.filter(|_| is_heard) {
            let at_end = AtEnd(&self.queue);
            let done = self.serve(mpi);
            drop(at_end);
            if let Err(error) = done {
                for process in (0..self.start.processes).filter(|&p| p != self.start.process) {
                    let who = format!(
                        "MPI of process {} on {}",
                        self.start.process, self.start.host
                    );
                    let reason = format!("failed: {error}");
                    self.post.end(process, None, Some(Failure { who, reason }));
                }
            }
        }
    }

    fn begin(&self) -> Result<(Box<dyn Mpi>, Vec<String>)> {
        let Start {
            process,
            processes,
            ranks_per_process,
            host,
            libraries,
            ..
        } = &self.start;
        let mpi = library::open(libraries)?;
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
        Ok((mpi, hosts))
    }

    /// Moves messages until all processes have said good-bye, or this one has waited for it.
    fn serve(&self, mut mpi: Box<dyn Mpi>) -> Result<()> {
        let mut parts: Vec<Vec<u8>> = vec![Vec::new(); self.start.processes];
        let mut is_open = vec![true; self.start.processes];
        is_open[self.start.process] = false;
        let (mut idle, mut until) = (0, None);
        loop {
            let (messages, is_closed) = self.next(idle);
            let mut is_news = !messages.is_empty();
            for (process, message) in messages {
                mpi.send(process, message)?;
            }
            let under_way = mpi.under_way()?;
            while let Some((process, bytes)) = mpi.receive()? {
                is_news = true;
                if let Some(frame) = assemble(&mut parts[process], bytes)? {
                    is_open[process] = take(&self.post, process, frame);
                }
            }
            idle = if is_news { 0 } else { idle + 1 };
            if !is_closed {
                continue;
            }
            if under_way == 0 && !is_news && !is_open.contains(&true) {
                mpi.finish();
                return Ok(());
            }
            // without all of them MPI cannot end as it should; the end of the process ends it
            if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + GOOD_BYE) {
                return Ok(());
            }
        }
    }

    /// What is in the queue; after looks without news it waits a little for something.
    fn next(&self, idle: u32) -> (VecDeque<(usize, Vec<u8>)>, bool) {
        let mut waiting = self.queue.waiting();
        if waiting.messages.is_empty() && idle > PATIENT_LOOKS {
            let waited = self.queue.changed.wait_timeout(waiting, NAP);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        } else if waiting.messages.is_empty() {
            drop(waiting);
            thread::yield_now();
            waiting = self.queue.waiting();
        }
        let messages = std::mem::take(&mut waiting.messages);
        waiting.bytes = 0;
        let is_closed = waiting.is_closed;
        drop(waiting);
        if !messages.is_empty() {
            self.queue.changed.notify_all();
        }
        (messages, is_closed)
    }
}

/// Lets nobody wait for a thread that has ended.
struct AtEnd<'a>(&'a Queue);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Adds a message to what a process has sent of a frame; the frame once it is whole.
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
        Err(error) => Err(Error::Network {
            at: "MPI".into(),
            found: error.to_string(),
            wanted: "frames".into(),
        }),
    }
}

/// What a network holds.
struct Ends {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: usize,
    processes: usize,
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
        for process in 0..self.processes {
            if process != self.process {
                self.send(process, &Header::of(Kind::Bye), &Payload::none());
            }
        }
        self.queue.close();
        // it ends by itself, at the latest when it has waited for the others
        let _ = thread.join();
    }
}

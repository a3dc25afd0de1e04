//! Transport over TCP: one connection per pair of processes, made at the start (`rendezvous.rs`). A rank writes on
//! its own thread; one thread per connection reads, so that writing never waits for a peer that computes.
//!
//! Silent processes send keep-alive frames: a host that is cut off is noticed even while nobody waits for it. A
//! connection that closes without a good-bye is a process that died.

use std::io::{BufReader, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::failure::Failure;
use super::frame::{self, Header, Kind, Payload};
use super::mailbox::Mailbox;
use super::network::{Connected, Network, take};
use super::rendezvous;
pub use super::rendezvous::Rendezvous;
use super::watchdog::Watch;
use super::wire::Wire;
use crate::Result;

/// Frames up to this size leave in one piece with their header.
const SMALL: usize = 1 << 16;
/// Longest pause between keep-alive frames.
const PAUSE: Duration = Duration::from_secs(5);
/// Time that a process that ends waits for the others' good-bye.
const GOOD_BYE: Duration = Duration::from_secs(5);

/// Meets the other processes and connects to each.
///
/// # Errors
/// `Network`: a name that does not resolve, a port in use, processes that do not come in time, two with
/// one number, another number of processes.
pub fn connect(rendezvous: &Rendezvous) -> Result<Network> {
    let rendezvous::Met {
        links,
        hosts,
        remarks,
    } = rendezvous::meet(rendezvous)?;
    let watch = Watch::new(
        Some(rendezvous.timeout),
        hosts,
        rendezvous.ranks_per_process,
    );
    let watch = Arc::new(watch);
    let mailbox = Arc::new(Mailbox::new(rendezvous.processes));
    let wire = Sockets::start(links, &mailbox, &watch).map_err(|error| {
        super::network::unmet(
            "connections to the other processes",
            error.to_string(),
            "sockets and threads",
        )
    })?;
    Ok(Network::new(Connected {
        process: rendezvous.process,
        processes: rendezvous.processes,
        ranks_per_process: rendezvous.ranks_per_process,
        wire: Box::new(Ends {
            links: Arc::clone(&wire.links),
            mailbox: Arc::clone(&mailbox),
            wire: Mutex::new(Some(wire)),
        }),
        mailbox,
        watch,
        remarks,
    }))
}

/// Connections by process.
struct Links {
    streams: Vec<Option<Mutex<TcpStream>>>,
    mailbox: Arc<Mailbox>,
    watch: Arc<Watch>,
}

impl Links {
    fn send(&self, process: usize, header: &Header, payload: &Payload) {
        let Some(stream) = &self.streams[process] else {
            return;
        };
        let (head, body) = (header.encode(payload), payload.bytes());
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let written = if body.len() <= SMALL {
            stream.write_all(&[&head, body].concat())
        } else {
            stream
                .write_all(&head)
                .and_then(|()| stream.write_all(body))
        };
        if let Err(error) = written {
            // half a frame may be out: nothing can follow it
            let _ = stream.shutdown(Shutdown::Both);
            drop(stream);
            self.lost(process, &error);
        }
    }

    fn lost(&self, process: usize, error: &std::io::Error) {
        let reason = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let seconds = self.watch.timeout().unwrap_or_default().as_secs_f64() * 1.5;
                format!("gave no sign of liveness for {seconds:.0} s")
            }
            ErrorKind::InvalidData => format!("sent {error}"),
            _ => "ended (connection closed)".to_owned(),
        };
        let who = self.watch.ranks_of(process);
        self.mailbox
            .end(process, None, Some(Failure { who, reason }));
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let links = self.streams.iter().enumerate();
        links
            .filter(|(_, link)| link.is_some())
            .map(|(process, _)| process)
    }
}

/// Stop flag of the threads.
#[derive(Default)]
struct Stop {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn is_over(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections and the threads that serve them.
struct Sockets {
    links: Arc<Links>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

impl Sockets {
    fn start(
        streams: Vec<Option<TcpStream>>,
        mailbox: &Arc<Mailbox>,
        watch: &Arc<Watch>,
    ) -> std::io::Result<Sockets> {
        // longer than the collectives' timeout: a waiting rank gives up first, and can report what it waited for
        let patience = watch.timeout().map(|timeout| timeout * 3 / 2);
        let mut readers = Vec::new();
        for (process, stream) in streams.iter().enumerate() {
            if let Some(stream) = stream {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)?;
                readers.push((process, stream.try_clone()?));
            }
        }
        let links = Arc::new(Links {
            streams: streams
                .into_iter()
                .map(|stream| stream.map(Mutex::new))
                .collect(),
            mailbox: Arc::clone(mailbox),
            watch: Arc::clone(watch),
        });
        let stop = Arc::new(Stop::default());
        let mut threads = Vec::new();
        for (process, stream) in readers {
            let links = Arc::clone(&links);
            let name = format!("from process {process}");
            threads.push(
                thread::Builder::new()
                    .name(name)
                    .spawn(move || read(&links, process, stream))?,
            );
        }
        let pause = watch
            .timeout()
            .map_or(PAUSE, |timeout| PAUSE.min(timeout / 4));
        let (of_pulse, until) = (Arc::clone(&links), Arc::clone(&stop));
        let pulse = thread::Builder::new().name("signs of liveness".into());
        threads.push(pulse.spawn(move || show_life(&of_pulse, &until, pause))?);
        Ok(Sockets {
            links,
            stop,
            threads,
        })
    }
}

fn read(links: &Links, process: usize, stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    loop {
        match frame::read(&mut stream) {
            Ok(frame) => match take(&links.mailbox, process, frame) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let _ = stream.get_ref().shutdown(Shutdown::Both);
                    return links.lost(process, &error);
                }
            },
            Err(error) => return links.lost(process, &error),
        }
    }
}

fn show_life(links: &Links, stop: &Stop, pause: Duration) {
    let mut is_over = stop.is_over();
    while !*is_over {
        let waited = stop.changed.wait_timeout(is_over, pause);
        is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
        if !*is_over {
            drop(is_over);
            for process in links
                .others()
                .filter(|&process| !links.mailbox.is_gone(process))
            {
                links.send(process, &Header::of(Kind::Ping), &Payload::none());
            }
            is_over = stop.is_over();
        }
    }
}

/// The network's handle on the sockets.
struct Ends {
    links: Arc<Links>,
    mailbox: Arc<Mailbox>,
    wire: Mutex<Option<Sockets>>,
}

impl Wire for Ends {
    fn send(&self, process: usize, header: &Header, payload: &Payload) {
        self.links.send(process, header, payload);
    }

    fn close(&self) {
        let wire = self
            .wire
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(Sockets {
            links,
            stop,
            threads,
        }) = wire
        else {
            return;
        };
        for process in links.others() {
            links.send(process, &Header::of(Kind::Bye), &Payload::none());
        }
        // closing at once could discard data still in flight to them
        self.mailbox.wait_for_all(GOOD_BYE);
        *stop.is_over() = true;
        stop.changed.notify_all();
        for stream in links.streams.iter().flatten() {
            let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

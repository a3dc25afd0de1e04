//! Liveness connections beside MPI: a TCP connection from each other process to process 0 that only carries how
//! processes end. A connection that closes without a good-bye is a process that died; process 0 reports it to the
//! rest. MPI gives no such notice, and mpirun ends all processes without naming one.
//!
//! Process 0's address is distributed by MPI: a secret that is new for each run, port, name of its host, addresses.
//! The secret is never sent over TCP: both ends prove that they know it (`secret.rs`). With all processes on one
//! host process 0 listens at a loopback address; else at all of its addresses, as it is not known which of them the
//! others can reach. A process that reaches none of them has no liveness connection: that is reported, and the run
//! continues. Silence on a connection means nothing, as hosts may be joined by MPI's network alone: the watchdog of
//! collectives handles that case.

use std::io::{BufReader, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::net::{SocketAddrV4, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::acceptor::Acceptor;
use super::failure::Failure;
use super::frame::{self, Header, Kind, Payload};
use super::mailbox::Mailbox;
use super::network::unmet;
use super::secret::{HANDSHAKE, Refusal, Secret, introduce, nonce};
use super::watchdog::Watch;
use crate::Result;

/// Time that processes try to reach process 0 before they continue without a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for one address.
const ONE_ADDRESS: Duration = Duration::from_secs(1);
/// Longest text with process 0's address: the limit of MPI's exchange.
const MOST_BYTES: usize = 255;

/// A process that requests a liveness connection.
pub(super) struct Seat<'a> {
    pub process: usize,
    /// Name of every process's host.
    pub hosts: &'a [String],
}

/// Connections by process: of process 0 to all others, of any other to process 0.
pub(super) type Lines = Vec<Option<TcpStream>>;

/// Makes the connections. `exchange` all-gathers a text. On process 0, also returns which processes have no
/// connection and why.
///
/// # Errors
/// Those of `exchange` alone.
pub(super) fn meet(
    seat: &Seat<'_>,
    exchange: &mut dyn FnMut(&str) -> Result<Vec<String>>,
) -> Result<(Lines, Vec<String>)> {
    let Seat { process, hosts } = *seat;
    if process == 0 {
        let no_token = |error: std::io::Error| {
            unmet(
                "process 0",
                error.to_string(),
                "random numbers of the system",
            )
        };
        let token = nonce().map_err(no_token)?;
        let is_one_host = hosts.iter().all(|host| *host == hosts[0]);
        let own: &[IpAddr] = match is_one_host {
            true => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            false => &[
                IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ],
        };
        let own: Vec<SocketAddr> = own.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        let listener = TcpListener::bind(&own[..]);
        let port = listener.as_ref().ok().and_then(|l| l.local_addr().ok());
        let place = port.map(|at| place(&token, at.port(), &hosts[0]));
        exchange(place.as_deref().unwrap_or_default())?;
        let acceptor = listener.and_then(|listener| Acceptor::open(listener, Secret::of(&token)));
        let mut lines = match &acceptor {
            Ok(acceptor) => hear(acceptor, hosts.len()),
            Err(_) => hosts.iter().map(|_| None).collect(),
        };
        let mut without = Vec::new();
        for (process, reason) in exchange("")?.iter().enumerate().skip(1) {
            if !reason.is_empty() {
                lines[process] = None;
                let host = &hosts[process];
                without.push(format!("process {process} on {host}: {reason}"));
            }
        }
        return Ok((lines, without));
    }
    let place = exchange("")?.swap_remove(0);
    let called = call(&place, seat);
    exchange(called.as_ref().err().map_or("", String::as_str))?;
    let mut lines: Lines = hosts.iter().map(|_| None).collect();
    lines[0] = called.ok();
    Ok((lines, Vec::new()))
}

/// Process 0's address and token, as text for the others.
fn place(token: &str, port: u16, host: &str) -> String {
    let mut text = format!("{token} {port} {host}");
    for address in addresses() {
        let more = format!(" {address}");
        if text.len() + more.len() <= MOST_BYTES {
            text.push_str(&more);
        }
    }
    text
}

/// IPv4 addresses of this host that others may reach, as listed by Linux.
fn addresses() -> Vec<Ipv4Addr> {
    let tree = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    local_addresses(&tree)
}

/// A leaf `|-- ADDRESS` with a line `/32 host LOCAL` under it is an address of the host itself.
fn local_addresses(tree: &str) -> Vec<Ipv4Addr> {
    let (mut found, mut leaf) = (Vec::new(), None::<Ipv4Addr>);
    for line in tree.lines() {
        match line.trim().strip_prefix("|-- ") {
            Some(address) => leaf = address.parse().ok(),
            None if line.trim() == "/32 host LOCAL" => found.extend(leaf.take()),
            None => {}
        }
    }
    found.retain(|address| !address.is_loopback());
    found.sort_unstable();
    found.dedup();
    found
}

/// Accepts the others' connections, until all have connected or their time is over.
fn hear(acceptor: &Acceptor, processes: usize) -> Lines {
    // waits long enough for a caller that is admitted just before its own timeout: it would otherwise take this
    // process for dead
    let until = Instant::now() + PATIENCE + 3 * HANDSHAKE;
    let mut lines: Lines = (0..processes).map(|_| None).collect();
    let mut left = processes - 1;
    while left > 0 {
        let Some(admitted) = acceptor.next(until) else {
            break;
        };
        let process: Option<usize> = admitted.words.parse().ok();
        if let Some(process) = process.filter(|process| (1..processes).contains(process))
            && lines[process].replace(admitted.stream).is_none()
        {
            left -= 1;
        }
    }
    lines
}

/// Tries all addresses of process 0.
fn call(place: &str, seat: &Seat<'_>) -> Result<TcpStream, String> {
    let mut words = place.split(' ');
    let (Some(token), Some(Ok(port)), Some(host)) = (
        words.next(),
        words.next().map(str::parse::<u16>),
        words.next(),
    ) else {
        return Err("process 0 cannot listen".into());
    };
    let until = Instant::now() + PATIENCE;
    let literal = words.filter_map(|word| word.parse::<Ipv4Addr>().ok());
    let literal = literal.map(|address| SocketAddr::V4(SocketAddrV4::new(address, port)));
    let inside = (host == seat.hosts[seat.process]).then_some(Ipv4Addr::LOCALHOST);
    let inside = inside.map(|address| SocketAddr::V4(SocketAddrV4::new(address, port)));
    // names last: some take long to fail
    let named = std::iter::once_with(|| (host, port).to_socket_addrs());
    let named = named.flat_map(|found| found.into_iter().flatten());
    let mut reason = "no address of process 0's host".to_owned();
    for address in literal.chain(inside).chain(named) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match greet(&address, token, (seat.process, left.min(ONE_ADDRESS))) {
            Ok(stream) => return Ok(stream),
            Err(error) => reason = format!("no way to {address} ({error})"),
        }
    }
    Err(reason)
}

fn greet(
    address: &SocketAddr,
    token: &str,
    (process, patience): (usize, Duration),
) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(address, patience)?;
    match introduce(&mut stream, &Secret::of(token), &process.to_string()) {
        Ok(()) => Ok(stream),
        Err(Refusal::Connection(error)) => Err(error),
        Err(Refusal::Stranger | Refusal::Secret) => Err(std::io::Error::new(
            ErrorKind::InvalidData,
            "another program",
        )),
    }
}

/// The liveness connections of a process, and the threads that read them.
pub(super) struct Liveness {
    links: Arc<Links>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Links {
    process: usize,
    streams: Vec<Option<Mutex<TcpStream>>>,
    mailbox: Arc<Mailbox>,
    watch: Arc<Watch>,
    /// This process has said good-bye and ignores how others end.
    is_over: AtomicBool,
}

impl Liveness {
    /// Starts a reader thread per connection.
    pub(super) fn start(
        process: usize,
        lines: Lines,
        (mailbox, watch): (&Arc<Mailbox>, &Arc<Watch>),
    ) -> std::io::Result<Liveness> {
        let mut readers = Vec::new();
        for (other, stream) in lines.iter().enumerate() {
            if let Some(stream) = stream {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                readers.push((other, stream.try_clone()?));
            }
        }
        let streams = lines.into_iter().map(|line| line.map(Mutex::new));
        let links = Arc::new(Links {
            process,
            streams: streams.collect(),
            mailbox: Arc::clone(mailbox),
            watch: Arc::clone(watch),
            is_over: AtomicBool::new(false),
        });
        let mut threads = Vec::new();
        for (other, stream) in readers {
            let links = Arc::clone(&links);
            let thread = thread::Builder::new().name(format!("liveness of process {other}"));
            threads.push(thread.spawn(move || links.read(other, stream))?);
        }
        Ok(Liveness {
            links,
            threads: Mutex::new(threads),
        })
    }

    /// Reports why this process ends, on every liveness connection.
    pub(super) fn fail(&self, failure: &Failure) {
        let from = self.links.process;
        self.links
            .tell_all((Kind::Failed, from), &failure.payload());
    }

    /// Sends a good-bye: this process ends regularly.
    pub(super) fn say_good_bye(&self) {
        self.links.is_over.store(true, Ordering::SeqCst);
        let from = self.links.process;
        self.links.tell_all((Kind::Bye, from), &Payload::none());
    }

    /// Closes the connections.
    pub(super) fn close(&self) {
        for stream in self.links.streams.iter().flatten() {
            let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = stream.shutdown(Shutdown::Both);
        }
        let threads = self.threads.lock();
        for thread in threads.unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

impl Links {
    /// Sends how process `of` ended on every connection but its own.
    fn tell_all(&self, (kind, of): (Kind, usize), payload: &Payload) {
        let from = u32::try_from(of).unwrap_or(u32::MAX);
        let header = Header {
            from,
            ..Header::of(kind)
        };
        let bytes = [&header.encode(payload), payload.bytes()].concat();
        for (other, stream) in self.streams.iter().enumerate() {
            let Some(stream) = stream.as_ref().filter(|_| other != of) else {
                continue;
            };
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            // a closed connection is noticed by its reader
            let _ = stream.write_all(&bytes);
        }
    }

    fn read(&self, process: usize, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            match frame::read(&mut stream) {
                Ok((header, payload)) => match header.kind {
                    Kind::Bye => return,
                    Kind::Failed | Kind::Lost => {
                        let of = header.from as usize;
                        if of < self.streams.len() {
                            self.ended((header.kind, of), &payload);
                        }
                    }
                    _ => {}
                },
                Err(error) => {
                    let is_end = matches!(
                        error.kind(),
                        ErrorKind::UnexpectedEof
                            | ErrorKind::ConnectionReset
                            | ErrorKind::ConnectionAborted
                            | ErrorKind::BrokenPipe
                    );
                    if is_end && !self.is_over.load(Ordering::SeqCst) {
                        let lost = Failure {
                            who: self.watch.ranks_of(process),
                            reason: "ended (connection closed)".into(),
                        };
                        self.ended((Kind::Lost, process), &lost.payload());
                    }
                    return;
                }
            }
        }
    }

    /// Records how a process ended; process 0 forwards it to the others if it is news.
    fn ended(&self, (kind, of): (Kind, usize), payload: &Payload) {
        // its own report may have come by MPI before, but not to everybody. This is done first: once ranks here know,
        // they end, and this process's good-bye must not overtake it
        if self.process == 0 && (kind == Kind::Failed || !self.mailbox.has_ended(of)) {
            self.tell_all((kind, of), payload);
        }
        let failure = Failure::of(payload);
        match kind {
            Kind::Failed => self.mailbox.end(of, Some(failure), None),
            _ => self.mailbox.end(of, None, Some(failure)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_host_itself() {
        let tree = "\
Main:
  +-- 0.0.0.0/0 3 0 4
     +-- 10.77.0.0/24 2 0 2
        +-- 10.77.0.0/30 2 0 2
           |-- 10.77.0.0
              /24 link UNICAST
           |-- 10.77.0.1
              /32 host LOCAL
        |-- 10.77.0.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
Local:
           |-- 10.77.0.1
              /32 host LOCAL
           |-- 192.168.5.9
              /32 host LOCAL
";
        let want: [Ipv4Addr; 2] = ["10.77.0.1", "192.168.5.9"].map(|text| text.parse().unwrap());
        assert_eq!(local_addresses(tree), want);
        let text = place("5eed", 65_535, "a-host");
        assert!(text.starts_with("5eed 65535 a-host") && text.len() <= MOST_BYTES);
    }

    #[test]
    fn strangers_get_no_line_and_give_none() {
        let hosts = ["a".to_owned(), "a".to_owned()];
        let seat = Seat {
            process: 1,
            hosts: &hosts,
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let acceptor = Acceptor::open(listener, Secret::of("5eed")).unwrap();
        thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let mut stranger = TcpStream::connect(at).unwrap();
                stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
                let silent: Vec<TcpStream> =
                    (0..8).map(|_| TcpStream::connect(at).unwrap()).collect();
                let other_run = greet(&at, "0bad", (1, PATIENCE)).unwrap_err();
                assert_eq!(other_run.to_string(), "another program");
                let line = call(&format!("5eed {} a", at.port()), &seat);
                drop(silent);
                line
            });
            let started = Instant::now();
            let lines = hear(&acceptor, 2);
            assert!(lines[0].is_none() && lines[1].is_some());
            // one after another, the silent ones would take 8 handshakes' time
            assert!(started.elapsed() < 4 * HANDSHAKE, "silent ones held it up");
            calls.join().unwrap().unwrap();
        });
        // another program at the port of process 0
        let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = stranger.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = stranger.accept().unwrap().0;
                stream.write_all(b"220 ready\n").unwrap();
                let _ = std::io::Read::read(&mut stream, &mut [0; 9]);
            });
            let place = format!("5eed {} no-such-host.invalid", at.port());
            let hosts = [
                "no-such-host.invalid".to_owned(),
                "no-such-host.invalid".to_owned(),
            ];
            let seat = Seat {
                process: 1,
                hosts: &hosts,
            };
            let refused = call(&place, &seat).unwrap_err();
            assert_eq!(refused, format!("no way to {at} (another program)"));
        });
        assert_eq!(call("", &seat).unwrap_err(), "process 0 cannot listen");
    }
}

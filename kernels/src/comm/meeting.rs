//! How processes find each other: process 0 listens where all know it (MASTER_ADDR, MASTER_PORT), each
//! other one tells it its number and where it listens itself, and gets the list of all. Then each two
//! are connected, the higher number calling. Lines of text:
//!
//! ```text
//! to process 0      millrace-1 PROCESS PROCESSES RANKS PORT HOST
//! back              go TOKEN, and for each process: ADDRESS PORT HOST          or: no REASON
//! between others    millrace-1 TOKEN PROCESS
//! ```
//!
//! The token, new for each meeting, keeps processes of other runs out. It guards against mistakes, not
//! against people: the network between hosts of a run is a trusted one, as it is for MPI and NCCL.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::network::unmet;
use crate::{Error, Result};

pub(super) const HELLO: &str = "millrace-1";
/// Longest line.
const MOST_BYTES: usize = 4096;
/// Pause before another try.
const PAUSE: Duration = Duration::from_millis(20);
/// A caller that says nothing for so long is none of ours.
pub(super) const FIRST_LINE: Duration = Duration::from_secs(2);

/// Who meets where.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// This process, from 0.
    pub process: usize,
    /// Processes of the run.
    pub processes: usize,
    /// World ranks of each.
    pub ranks_per_process: usize,
    /// Name or address of process 0's host.
    pub address: String,
    /// Where it listens.
    pub port: u16,
    /// Name of this host, for messages.
    pub host: String,
    /// How long to wait for the others to come.
    pub patience: Duration,
    /// How long collectives wait.
    pub timeout: Duration,
}

/// Connections by process, and names of all hosts.
type Met = (Vec<Option<TcpStream>>, Vec<String>);

/// Connects to all other processes.
pub(super) fn meet(meeting: &Meeting) -> Result<Met> {
    let until = Instant::now() + meeting.patience;
    let at = format!("{}:{}", meeting.address, meeting.port);
    let addresses = resolve(meeting)?;
    if meeting.process == 0 {
        Host { meeting, at: &at }.gather(&addresses, until)
    } else {
        join(meeting, &at, &addresses, until)
    }
}

fn resolve(meeting: &Meeting) -> Result<Vec<SocketAddr>> {
    let (name, port) = (meeting.address.as_str(), meeting.port);
    let wanted = "the name or address of process 0's host";
    let found = match (name, port).to_socket_addrs() {
        Ok(addresses) => {
            let addresses: Vec<SocketAddr> = addresses.collect();
            if !addresses.is_empty() {
                return Ok(addresses);
            }
            "no address".to_owned()
        }
        Err(error) => error.to_string(),
    };
    let (process, host) = (meeting.process, &meeting.host);
    Err(unmet(
        format!("process {process} on {host}: name {name:?}"),
        found,
        wanted,
    ))
}

/// A process as process 0 knows it.
struct Caller {
    stream: TcpStream,
    process: usize,
    address: IpAddr,
    port: u16,
    host: String,
}

/// Process 0.
struct Host<'a> {
    meeting: &'a Meeting,
    at: &'a str,
}

impl Host<'_> {
    fn listen(&self, addresses: &[SocketAddr]) -> Result<TcpListener> {
        // a host may know its own name as a loopback address, where others cannot reach it: only an
        // address that is written down as such binds to it
        let literal: Option<IpAddr> = self.meeting.address.parse().ok();
        let is_inside = self.meeting.address == "localhost"
            || literal.is_some_and(|address| address.is_loopback());
        let listened = if is_inside {
            TcpListener::bind(addresses)
        } else {
            TcpListener::bind(("0.0.0.0", self.meeting.port))
        };
        listened.map_err(|error| {
            let found = match error.kind() {
                ErrorKind::AddrInUse => "in use".to_owned(),
                _ => error.to_string(),
            };
            let (host, port) = (&self.meeting.host, self.meeting.port);
            unmet(
                format!("process 0 on {host}: port {port}"),
                found,
                "a free one: launch.port or MASTER_PORT",
            )
        })
    }

    fn gather(&self, addresses: &[SocketAddr], until: Instant) -> Result<Met> {
        let listener = self.listen(addresses)?;
        let mut callers: Vec<Caller> = Vec::new();
        while callers.len() + 1 < self.meeting.processes {
            let come = accept(&listener, until).map_err(|error| {
                let reason = self.absent(&callers, &error);
                refuse(&mut callers, reason)
            })?;
            let Some((stream, from)) = come else {
                let reason = self.absent(&callers, "nobody");
                return Err(refuse(&mut callers, reason));
            };
            // whoever does not know the words is not of this run
            let Ok(Some(caller)) = greet(stream, from) else {
                continue;
            };
            let problem = self.problem(&callers, &caller);
            callers.push(caller.0);
            if let Some(problem) = problem {
                return Err(refuse(&mut callers, problem));
            }
        }
        self.introduce(callers)
    }

    fn absent(&self, callers: &[Caller], found: &str) -> Error {
        let is_there = |process: &usize| callers.iter().any(|caller| caller.process == *process);
        let missing = (1..self.meeting.processes).filter(|process| !is_there(process));
        let missing: Vec<String> = missing.map(|process| process.to_string()).collect();
        let seconds = self.meeting.patience.as_secs_f64();
        unmet(
            format!("process 0 on {} at {}", self.meeting.host, self.at),
            format!("{found} for {seconds:.0} s"),
            format!(
                "process {} of {}",
                missing.join(", "),
                self.meeting.processes
            ),
        )
    }

    /// What is wrong with who came last.
    fn problem(&self, callers: &[Caller], (caller, processes, ranks): &Greeted) -> Option<Error> {
        let Meeting {
            processes: all,
            ranks_per_process: each,
            host,
            ..
        } = self.meeting;
        let at = format!("process {} on {}", caller.process, caller.host);
        if (processes, ranks) != (all, each) {
            let found = format!("a run of {processes} processes with {ranks} ranks each");
            let wanted = format!("{all} with {each}, as process 0 on {host} has it");
            return Some(unmet(at, found, wanted));
        }
        let first = callers.iter().find(|other| other.process == caller.process);
        let taken = match (caller.process, first) {
            (0, _) => host,
            (_, Some(first)) => &first.host,
            (process, None) if process >= *all => {
                return Some(unmet(
                    at,
                    process.to_string(),
                    format!("a RANK below {all}"),
                ));
            }
            _ => return None,
        };
        let found = format!("another with the same RANK on {taken}");
        Some(unmet(at, found, "a RANK for each process"))
    }

    /// Tells everybody of everybody.
    fn introduce(&self, mut callers: Vec<Caller>) -> Result<Met> {
        callers.sort_by_key(|caller| caller.process);
        let token = RandomState::new().build_hasher().finish();
        let is_spread = callers.iter().any(|caller| !caller.address.is_loopback());
        let mut text = format!(
            "go {token:x}\n{} 0 {}\n",
            self.meeting.address, self.meeting.host
        );
        for caller in &callers {
            // who called from the host itself is reached where the host is
            let address = match caller.address.is_loopback() && is_spread {
                true => self.meeting.address.clone(),
                false => caller.address.to_string(),
            };
            text.push_str(&format!("{address} {} {}\n", caller.port, caller.host));
        }
        let mut links = vec![None];
        let mut hosts = vec![self.meeting.host.clone()];
        for mut caller in callers {
            caller.stream.write_all(text.as_bytes()).map_err(|error| {
                let at = format!("process {} on {}", caller.process, caller.host);
                unmet(at, error.to_string(), "a process that stays")
            })?;
            hosts.push(caller.host);
            links.push(Some(caller.stream));
        }
        Ok((links, hosts))
    }
}

/// Tells those that came why there is no run.
fn refuse(callers: &mut [Caller], reason: Error) -> Error {
    for caller in callers {
        // one that is gone need not hear it
        let _ = caller.stream.write_all(format!("no {reason}\n").as_bytes());
    }
    reason
}

/// A caller, processes of its run, ranks of each.
type Greeted = (Caller, usize, usize);

fn greet(mut stream: TcpStream, from: SocketAddr) -> std::io::Result<Option<Greeted>> {
    stream.set_read_timeout(Some(FIRST_LINE))?;
    let line = read_line(&mut stream)?;
    stream.set_read_timeout(None)?;
    let words: Vec<&str> = line.splitn(6, ' ').collect();
    let [HELLO, process, processes, ranks, port, host] = words[..] else {
        return Ok(None);
    };
    let (Ok(process), Ok(processes), Ok(ranks), Ok(port)) = (
        process.parse(),
        processes.parse(),
        ranks.parse(),
        port.parse(),
    ) else {
        return Ok(None);
    };
    let caller = Caller {
        stream,
        process,
        address: from.ip().to_canonical(),
        port,
        host: host.to_owned(),
    };
    Ok(Some((caller, processes, ranks)))
}

/// The next caller; None if there is none until then.
pub(super) fn accept(
    listener: &TcpListener,
    until: Instant,
) -> Result<Option<(TcpStream, SocketAddr)>, String> {
    listener
        .set_nonblocking(true)
        .map_err(|error| error.to_string())?;
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream
                    .set_nonblocking(false)
                    .map_err(|error| error.to_string())?;
                return Ok(Some((stream, from)));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if Instant::now() >= until {
                    return Ok(None);
                }
                thread::sleep(PAUSE);
            }
            // who gave up while waiting to be let in
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Bytes up to the end of the line, none of those behind it.
pub(super) fn read_line(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < MOST_BYTES {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
        line.push(byte[0]);
    }
    Err(std::io::Error::new(
        ErrorKind::InvalidData,
        "a line without an end",
    ))
}

fn call(addresses: &[SocketAddr], until: Instant) -> std::io::Result<TcpStream> {
    loop {
        let mut last = None;
        for address in addresses {
            let left = until.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(address, left.max(PAUSE)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        if Instant::now() >= until {
            let none = || std::io::Error::new(ErrorKind::NotFound, "no address");
            return Err(last.unwrap_or_else(none));
        }
        thread::sleep(PAUSE);
    }
}

/// Any other process.
fn join(meeting: &Meeting, at: &str, addresses: &[SocketAddr], until: Instant) -> Result<Met> {
    let me = format!("process {} on {}", meeting.process, meeting.host);
    let local = |error: std::io::Error| unmet(me.clone(), error.to_string(), "a port to listen at");
    let family = if addresses.iter().all(SocketAddr::is_ipv6) {
        "::"
    } else {
        "0.0.0.0"
    };
    let listener = TcpListener::bind((family, 0)).map_err(local)?;
    let port = listener.local_addr().map_err(local)?.port();
    let seconds = meeting.patience.as_secs_f64();
    let silent = |error: std::io::Error| {
        let found = format!("no answer from {at} for {seconds:.0} s ({error})");
        unmet(me.clone(), found, "process 0 there")
    };
    let mut host = call(addresses, until).map_err(silent)?;
    let Meeting {
        process,
        processes,
        ranks_per_process: ranks,
        host: name,
        ..
    } = meeting;
    let hello = format!("{HELLO} {process} {processes} {ranks} {port} {name}\n");
    host.write_all(hello.as_bytes()).map_err(silent)?;
    // process 0 waits for all, and says no if somebody does not come
    let patience = meeting.patience + FIRST_LINE + FIRST_LINE;
    host.set_read_timeout(Some(patience)).map_err(silent)?;
    let left = |error: std::io::Error| {
        let found = format!("no list of processes from {at} ({error})");
        unmet(me.clone(), found, "process 0 there")
    };
    let answer = read_line(&mut host).map_err(left)?;
    let token = match answer.split_once(' ') {
        Some(("go", token)) => token.to_owned(),
        Some(("no", reason)) => {
            return Err(unmet(
                me.clone(),
                format!("no from {at}: {reason}"),
                "a run",
            ));
        }
        _ => {
            return Err(unmet(
                me.clone(),
                format!("another program at {at}"),
                "process 0 there",
            ));
        }
    };
    let mut peers = Vec::new();
    for _ in 0..*processes {
        let line = read_line(&mut host).map_err(left)?;
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let [address, port, host] = words[..] else {
            return Err(unmet(
                me.clone(),
                format!("{line:?} from {at}"),
                "address, port and host",
            ));
        };
        peers.push((
            address.to_owned(),
            port.parse().unwrap_or(0),
            host.to_owned(),
        ));
    }
    let mut links: Vec<Option<TcpStream>> = (0..*processes).map(|_| None).collect();
    links[0] = Some(host);
    call_lower(meeting, &token, &peers, (&mut links, until))?;
    hear_higher(meeting, &token, &listener, (&mut links, until))?;
    Ok((links, peers.into_iter().map(|(_, _, host)| host).collect()))
}

type Streams<'a> = (&'a mut Vec<Option<TcpStream>>, Instant);

/// Connects to the processes between 0 and this one.
fn call_lower(
    meeting: &Meeting,
    token: &str,
    peers: &[(String, u16, String)],
    (links, until): Streams<'_>,
) -> Result<()> {
    for process in 1..meeting.process {
        let (address, port, host) = &peers[process];
        let called = (address.as_str(), *port).to_socket_addrs();
        let called = called.and_then(|addresses| call(&addresses.collect::<Vec<_>>(), until));
        let hello = format!("{HELLO} {token} {}\n", meeting.process);
        let said =
            called.and_then(|mut stream| stream.write_all(hello.as_bytes()).map(|()| stream));
        let stream = said.map_err(|error| {
            let at = format!("process {} on {}", meeting.process, meeting.host);
            let found = format!("no way to {address}:{port} ({error})");
            unmet(at, found, format!("process {process} on {host} there"))
        })?;
        links[process] = Some(stream);
    }
    Ok(())
}

/// Takes the calls of the processes behind this one.
fn hear_higher(
    meeting: &Meeting,
    token: &str,
    listener: &TcpListener,
    (links, until): Streams<'_>,
) -> Result<()> {
    let me = format!("process {} on {}", meeting.process, meeting.host);
    let mut left = meeting.processes - 1 - meeting.process;
    while left > 0 {
        let come =
            accept(listener, until).map_err(|error| unmet(me.clone(), error, "connections"))?;
        let Some((mut stream, _)) = come else {
            let missing = (meeting.process + 1..meeting.processes).filter(|&p| links[p].is_none());
            let missing: Vec<String> = missing.map(|process| process.to_string()).collect();
            let wanted = format!("process {}", missing.join(", "));
            return Err(unmet(me, "no connection in time", wanted));
        };
        let heard = stream
            .set_read_timeout(Some(FIRST_LINE))
            .and_then(|()| read_line(&mut stream));
        let Ok(line) = heard else {
            continue;
        };
        let words: Vec<&str> = line.split(' ').collect();
        let process = match words[..] {
            [HELLO, said, process] if said == token => process.parse().ok(),
            _ => None,
        };
        let expected = meeting.process + 1..meeting.processes;
        if let Some(process) = process.filter(|p| expected.contains(p) && links[*p].is_none()) {
            links[process] = Some(stream);
            left -= 1;
        }
    }
    Ok(())
}

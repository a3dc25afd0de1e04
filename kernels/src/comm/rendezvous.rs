//! Rendezvous of the processes: process 0 listens at an address that all know (MASTER_ADDR, MASTER_PORT); each
//! other one sends it its number and its own listening address, and receives the list of all. Then each pair
//! connects, the higher number calling. Both ends of every connection first prove that they know the run's secret
//! (`secret.rs`); a caller that does not is counted and changes nothing. Callers are handled concurrently
//! (`acceptor.rs`). Messages of callers, and process 0's replies:
//!
//! ```text
//! to process 0      PROCESS PROCESSES RANKS PORT HOST
//! back              go TOKEN, and for each process: ADDRESS PORT HOST          or: no REASON
//! between others    PROCESS, by the secret that follows from the run's and TOKEN
//! ```
//!
//! The token, new for each rendezvous, excludes processes of an earlier run with the same secret.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::acceptor::{Acceptor, Admitted};
use super::network::unmet;
use super::secret::{HANDSHAKE, Refusal, Secret, introduce, nonce, read_line};
use crate::{Error, Result};

/// Pause before another try.
const PAUSE: Duration = Duration::from_millis(20);

/// Parameters of the rendezvous.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// This process, from 0.
    pub process: usize,
    /// Processes of the run.
    pub processes: usize,
    /// World ranks per process.
    pub ranks_per_process: usize,
    /// Name or address of process 0's host.
    pub address: String,
    /// Port of process 0.
    pub port: u16,
    /// Name or address of process 0's host that it listens at; None: `address`, as far as that is one of
    /// its own.
    pub bind: Option<String>,
    /// The shared secret of the run.
    pub secret: Secret,
    /// Name of this host, for messages.
    pub host: String,
    /// Time to wait for the other processes.
    pub patience: Duration,
    /// Timeout of collectives.
    pub timeout: Duration,
}

/// Result of the rendezvous.
pub(super) struct Met {
    /// Connections by process.
    pub links: Vec<Option<TcpStream>>,
    /// Names of all hosts.
    pub hosts: Vec<String>,
    /// Log lines about it.
    pub remarks: Vec<String>,
}

/// Connects to all other processes.
pub(super) fn meet(rendezvous: &Rendezvous) -> Result<Met> {
    let until = Instant::now() + rendezvous.patience;
    let at = format!("{}:{}", rendezvous.address, rendezvous.port);
    let addresses = resolve(rendezvous, &rendezvous.address)?;
    if rendezvous.process == 0 {
        Host {
            rendezvous,
            at: &at,
        }
        .gather(&addresses, until)
    } else {
        join(rendezvous, &at, &addresses, until)
    }
}

fn resolve(rendezvous: &Rendezvous, name: &str) -> Result<Vec<SocketAddr>> {
    let port = rendezvous.port;
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
    let (process, host) = (rendezvous.process, &rendezvous.host);
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

impl Caller {
    fn is_same(&self, other: &Caller) -> bool {
        (self.process, self.address, self.port) == (other.process, other.address, other.port)
    }
}

/// Process 0.
struct Host<'a> {
    rendezvous: &'a Rendezvous,
    at: &'a str,
}

/// Whether a name can only mean processes on the same host.
fn is_inside(name: &str) -> bool {
    let literal: Option<IpAddr> = name.parse().ok();
    name == "localhost" || literal.is_some_and(|address| address.is_loopback())
}

impl Host<'_> {
    /// Listens at the address that the others call. Returns a remark if it has to listen at all addresses of this host.
    fn listen(&self, addresses: &[SocketAddr]) -> Result<(TcpListener, Option<String>)> {
        let Rendezvous {
            address,
            port,
            bind,
            host,
            ..
        } = self.rendezvous;
        if let Some(name) = bind {
            let chosen = resolve(self.rendezvous, name)?;
            let listener = TcpListener::bind(&chosen[..]);
            return Ok((listener.map_err(|error| self.deaf(&error))?, None));
        }
        // a host may know its own name as a loopback address, where others cannot reach it: only an
        // address that is written down as such binds to it
        let reachable: Vec<SocketAddr> = (addresses.iter().copied())
            .filter(|one| is_inside(address) || !one.ip().is_loopback())
            .collect();
        let why = match TcpListener::bind(&reachable[..]) {
            Ok(listener) => return Ok((listener, None)),
            Err(_) if reachable.is_empty() => "a loopback address on this host",
            // the address of a service or a router that forwards connections
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => "no address of this host",
            Err(error) => return Err(self.deaf(&error)),
        };
        let listener = TcpListener::bind(("0.0.0.0", *port));
        let remark = format!(
            "{address} is {why}: process 0 on {host} listens at all of its addresses (launch.bind chooses one)"
        );
        Ok((listener.map_err(|error| self.deaf(&error))?, Some(remark)))
    }

    fn deaf(&self, error: &std::io::Error) -> Error {
        let found = match error.kind() {
            ErrorKind::AddrInUse => "in use".to_owned(),
            _ => error.to_string(),
        };
        let (host, port) = (&self.rendezvous.host, self.rendezvous.port);
        unmet(
            format!("process 0 on {host}: port {port}"),
            found,
            "a free one: launch.port or MASTER_PORT",
        )
    }

    fn gather(&self, addresses: &[SocketAddr], until: Instant) -> Result<Met> {
        let (listener, remark) = self.listen(addresses)?;
        let acceptor = Acceptor::open(listener, self.rendezvous.secret.clone());
        let acceptor = acceptor.map_err(|error| self.deaf(&error))?;
        let mut callers: Vec<Caller> = Vec::new();
        while callers.len() + 1 < self.rendezvous.processes {
            let Some(admitted) = acceptor.next(until) else {
                let reason = self.absent(&callers, acceptor.refused());
                return Err(refuse(&mut callers, reason));
            };
            // a caller that knows the secret but not the message is another version of this program
            let Some((caller, processes, ranks)) = greeted(admitted) else {
                continue;
            };
            // a caller whose connection broke before it was acknowledged calls again
            callers.retain(|other| !other.is_same(&caller));
            let problem = self.problem(&callers, &caller, processes, ranks);
            callers.push(caller);
            if let Some(problem) = problem {
                return Err(refuse(&mut callers, problem));
            }
        }
        let refused = match acceptor.refused() {
            0 => None,
            count => Some(format!(
                "process 0 refused {count} callers that did not know the run's secret"
            )),
        };
        let mut met = self.introduce(callers)?;
        met.remarks.extend(remark.into_iter().chain(refused));
        Ok(met)
    }

    fn absent(&self, callers: &[Caller], refused: usize) -> Error {
        let is_there = |process: &usize| callers.iter().any(|caller| caller.process == *process);
        let missing = (1..self.rendezvous.processes).filter(|process| !is_there(process));
        let missing: Vec<String> = missing.map(|process| process.to_string()).collect();
        let seconds = self.rendezvous.patience.as_secs_f64();
        let strangers = match refused {
            0 => String::new(),
            count => format!(" but {count} callers that did not know the run's secret"),
        };
        unmet(
            format!("process 0 on {} at {}", self.rendezvous.host, self.at),
            format!("nobody for {seconds:.0} s{strangers}"),
            format!(
                "process {} of {}",
                missing.join(", "),
                self.rendezvous.processes
            ),
        )
    }

    /// Why the last caller is refused, if it is.
    fn problem(
        &self,
        callers: &[Caller],
        caller: &Caller,
        processes: usize,
        ranks: usize,
    ) -> Option<Error> {
        let Rendezvous {
            processes: all,
            ranks_per_process: each,
            host,
            ..
        } = self.rendezvous;
        let at = format!("process {} on {}", caller.process, caller.host);
        if (processes, ranks) != (*all, *each) {
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

    /// Sends everybody the list of all processes.
    fn introduce(&self, mut callers: Vec<Caller>) -> Result<Met> {
        callers.sort_by_key(|caller| caller.process);
        let token = nonce().map_err(|error| {
            let at = format!("process 0 on {}", self.rendezvous.host);
            unmet(at, error.to_string(), "random numbers of the system")
        })?;
        let is_spread = callers.iter().any(|caller| !caller.address.is_loopback());
        let mut text = format!(
            "go {token}\n{} 0 {}\n",
            self.rendezvous.address, self.rendezvous.host
        );
        for caller in &callers {
            // a caller from the host itself is reached at the host's address
            let address = match caller.address.is_loopback() && is_spread {
                true => self.rendezvous.address.clone(),
                false => caller.address.to_string(),
            };
            text.push_str(&format!("{address} {} {}\n", caller.port, caller.host));
        }
        let mut links = vec![None];
        let mut hosts = vec![self.rendezvous.host.clone()];
        for mut caller in callers {
            caller.stream.write_all(text.as_bytes()).map_err(|error| {
                let at = format!("process {} on {}", caller.process, caller.host);
                unmet(at, error.to_string(), "a process that stays")
            })?;
            hosts.push(caller.host);
            links.push(Some(caller.stream));
        }
        Ok(Met {
            links,
            hosts,
            remarks: Vec::new(),
        })
    }
}

/// Sends the callers the reason why the run cannot start.
fn refuse(callers: &mut [Caller], reason: Error) -> Error {
    for caller in callers {
        // a caller that has ended need not receive it
        let _ = caller.stream.write_all(format!("no {reason}\n").as_bytes());
    }
    reason
}

/// A caller, processes of its run, ranks of each.
type Greeted = (Caller, usize, usize);

fn greeted(admitted: Admitted) -> Option<Greeted> {
    let words: Vec<&str> = admitted.words.splitn(5, ' ').collect();
    let [process, processes, ranks, port, host] = words[..] else {
        return None;
    };
    let caller = Caller {
        process: process.parse().ok()?,
        address: admitted.from.ip().to_canonical(),
        port: port.parse().ok()?,
        host: host.to_owned(),
        stream: admitted.stream,
    };
    Some((caller, processes.parse().ok()?, ranks.parse().ok()?))
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
fn join(
    rendezvous: &Rendezvous,
    at: &str,
    addresses: &[SocketAddr],
    until: Instant,
) -> Result<Met> {
    let me = format!("process {} on {}", rendezvous.process, rendezvous.host);
    let (mut host, listener) = join_host(rendezvous, &me, at, addresses, until)?;
    // process 0 waits for all, and refuses if one does not come
    let patience = Instant::now() + rendezvous.patience + 2 * HANDSHAKE;
    let left = |error: std::io::Error| {
        let found = format!("no list of processes from {at} ({error})");
        unmet(me.clone(), found, "process 0 there")
    };
    let answer = read_line(&mut host, patience).map_err(left)?;
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
                format!("{answer:?} from {at}"),
                "go or no",
            ));
        }
    };
    let mut peers = Vec::new();
    for _ in 0..rendezvous.processes {
        let line = read_line(&mut host, patience).map_err(left)?;
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let [address, port, host] = words[..] else {
            return Err(unmet(
                me.clone(),
                format!("{line:?} from {at}"),
                "address, port and host",
            ));
        };
        peers.push(Peer {
            address: address.to_owned(),
            port: port.parse().unwrap_or(0),
            host: host.to_owned(),
        });
    }
    host.set_read_timeout(None).map_err(left)?;
    let mut links: Vec<Option<TcpStream>> = (0..rendezvous.processes).map(|_| None).collect();
    links[0] = Some(host);
    let secret = rendezvous.secret.derived(&token);
    // processes with higher numbers may call as soon as they have the list
    let acceptor = Acceptor::open(listener, secret.clone());
    let acceptor =
        acceptor.map_err(|error| unmet(me.clone(), error.to_string(), "a thread for callers"))?;
    call_lower(rendezvous, &secret, &peers, (&mut links, until))?;
    hear_higher(rendezvous, &acceptor, (&mut links, until))?;
    Ok(Met {
        links,
        hosts: peers.into_iter().map(|peer| peer.host).collect(),
        remarks: Vec::new(),
    })
}

/// Introduces this process to process 0. Returns the connection, and where this process listens: at the address
/// by which it reached process 0, which sees the same one.
fn join_host(
    rendezvous: &Rendezvous,
    me: &str,
    at: &str,
    addresses: &[SocketAddr],
    until: Instant,
) -> Result<(TcpStream, TcpListener)> {
    let deaf =
        |error: std::io::Error| unmet(me.to_owned(), error.to_string(), "a port to listen at");
    let seconds = rendezvous.patience.as_secs_f64();
    let mut listener: Option<(IpAddr, TcpListener)> = None;
    loop {
        let silent = |error: std::io::Error| {
            let found = format!("no answer from {at} for {seconds:.0} s ({error})");
            unmet(me.to_owned(), found, "process 0 there")
        };
        let mut host = call(addresses, until).map_err(silent)?;
        let mut own = host.local_addr().map_err(silent)?.ip();
        if own.is_loopback() && !is_inside(&rendezvous.address) {
            // processes of other hosts cannot reach that
            own = IpAddr::from([0, 0, 0, 0]);
        }
        let (_, listening) = match listener.take().filter(|(address, _)| *address == own) {
            Some(listening) => listening,
            None => (own, TcpListener::bind((own, 0)).map_err(deaf)?),
        };
        let port = listening.local_addr().map_err(deaf)?.port();
        let Rendezvous {
            process,
            processes,
            ranks_per_process: ranks,
            host: name,
            secret,
            ..
        } = rendezvous;
        let words = format!("{process} {processes} {ranks} {port} {name}");
        match introduce(&mut host, secret, &words) {
            Ok(()) => return Ok((host, listening)),
            Err(Refusal::Connection(error)) if Instant::now() >= until => {
                return Err(silent(error));
            }
            // process 0 may have too many callers to serve this one in time
            Err(Refusal::Connection(_)) => thread::sleep(PAUSE),
            Err(Refusal::Stranger) => {
                let found = format!("another program at {at}");
                return Err(unmet(me.to_owned(), found, "process 0 there"));
            }
            Err(Refusal::Secret) => {
                let found = format!("a secret that process 0 at {at} does not know");
                return Err(unmet(me.to_owned(), found, "the same for all processes"));
            }
        }
        listener = Some((own, listening));
    }
}

/// Where a process listens.
struct Peer {
    address: String,
    port: u16,
    /// Its name, for messages.
    host: String,
}

type Streams<'a> = (&'a mut Vec<Option<TcpStream>>, Instant);

/// Connects to the processes between 0 and this one.
fn call_lower(
    rendezvous: &Rendezvous,
    secret: &Secret,
    peers: &[Peer],
    (links, until): Streams<'_>,
) -> Result<()> {
    for process in 1..rendezvous.process {
        let Peer {
            address,
            port,
            host,
        } = &peers[process];
        let lost = |why: String| {
            let at = format!("process {} on {}", rendezvous.process, rendezvous.host);
            let found = format!("no way to {address}:{port} ({why})");
            unmet(at, found, format!("process {process} on {host} there"))
        };
        let resolved = (address.as_str(), *port).to_socket_addrs();
        let resolved: Vec<SocketAddr> = resolved.map_err(|e| lost(e.to_string()))?.collect();
        links[process] = loop {
            let mut stream = call(&resolved, until).map_err(|error| lost(error.to_string()))?;
            match introduce(&mut stream, secret, &rendezvous.process.to_string()) {
                Ok(()) => break Some(stream),
                Err(Refusal::Connection(error)) if Instant::now() >= until => {
                    return Err(lost(error.to_string()));
                }
                Err(Refusal::Connection(_)) => thread::sleep(PAUSE),
                Err(Refusal::Stranger | Refusal::Secret) => {
                    return Err(lost("another program".into()));
                }
            }
        };
    }
    Ok(())
}

/// Accepts the connections of processes with higher numbers.
fn hear_higher(
    rendezvous: &Rendezvous,
    acceptor: &Acceptor,
    (links, until): Streams<'_>,
) -> Result<()> {
    let expected = rendezvous.process + 1..rendezvous.processes;
    while expected.clone().any(|process| links[process].is_none()) {
        let Some(admitted) = acceptor.next(until) else {
            let missing = expected.clone().filter(|&process| links[process].is_none());
            let missing: Vec<String> = missing.map(|process| process.to_string()).collect();
            let wanted = format!("process {}", missing.join(", "));
            let me = format!("process {} on {}", rendezvous.process, rendezvous.host);
            return Err(unmet(me, "no connection in time", wanted));
        };
        let process = admitted.words.parse().ok();
        if let Some(process) = process.filter(|process| expected.contains(process)) {
            // the last connection counts: a process that calls again was not acknowledged
            links[process] = Some(admitted.stream);
        }
    }
    Ok(())
}

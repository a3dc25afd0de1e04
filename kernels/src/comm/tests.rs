//! Transport over sockets, with processes that are threads of one test over the loopback: the bits of threads, and
//! every way in which processes may fail to connect or to stay connected.

use super::local::{LocalComm, group};
use super::secret::{Secret, introduce, read_line};
use super::socket::{Rendezvous, connect};
use super::{Collective, Failure, Network};
use crate::testing::bits;
use crate::{Error, Result};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A free port that no other call in this process returns. It is below 32768, where the system takes the ports of
/// connections from, so that it stays free until it is used.
fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    loop {
        let call = u32::from(CALLS.fetch_add(1, Ordering::SeqCst));
        let port = 10_000 + (std::process::id() % 20_000 * 97 + call) % 20_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(super) fn rendezvous_of(processes: usize, ranks_per_process: usize) -> Vec<Rendezvous> {
    let port = free_port();
    let rendezvous = |process| Rendezvous {
        process,
        processes,
        ranks_per_process,
        address: "127.0.0.1".into(),
        port,
        bind: None,
        secret: Secret::of("of the tests"),
        host: format!("host-{process}"),
        patience: Duration::from_secs(10),
        timeout: Duration::from_secs(20),
    };
    (0..processes).map(rendezvous).collect()
}

/// Runs one thread per item and returns their results in order.
pub(super) fn each<C: Send, T: Send>(items: Vec<C>, run: impl Fn(C) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = &run;
        let start = |item| scope.spawn(move || run(item));
        let threads: Vec<_> = items.into_iter().map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Runs every member of a group of all ranks, by rank.
fn over_sockets<T: Send>(
    rendezvous_of: Vec<Rendezvous>,
    run: impl Fn(&dyn Collective) -> T + Sync,
) -> Vec<T> {
    let results = each(rendezvous_of, |rendezvous| {
        let network = connect(&rendezvous).unwrap();
        let all: Vec<usize> = (0..rendezvous.processes * rendezvous.ranks_per_process).collect();
        let members = network.group("world", &all);
        each(members, |comm| run(comm.as_ref()))
    });
    results.into_iter().flatten().collect()
}

/// Every collective on random numbers, two rounds, long and short; as bits.
pub(super) fn everything(comm: &dyn Collective) -> Vec<Vec<u32>> {
    let (rank, size) = (comm.rank(), comm.size());
    let random = |len: usize, key: u64| {
        let mut x = vec![0.0; len];
        crate::rng::fill_normal(&mut x, rank as u64, key, 0, 1.0);
        x
    };
    let mut found = Vec::new();
    for round in 0..2 {
        for len in [0, 3, 4095, 4096, 10_007] {
            let mut x = random(len, round);
            let mut largest = x.clone();
            let cuts: Vec<usize> = (0..=size).map(|r| len * r * r / (size * size)).collect();
            let mut part = vec![0.0; cuts[rank + 1] - cuts[rank]];
            comm.reduce_scatter_sum(&x, &cuts, &mut part).unwrap();
            found.push(bits(&part));
            comm.all_reduce_sum(&mut x).unwrap();
            comm.all_reduce_max(&mut largest).unwrap();
            found.extend([bits(&x), bits(&largest)]);
            let mine = random(len / (rank + 1), 7);
            found.extend(comm.all_gather(&mine).unwrap().iter().map(|x| bits(x)));
            let parts = (0..size)
                .map(|to| random(len / 100 + to, to as u64))
                .collect();
            found.extend(comm.all_to_all(parts).unwrap().iter().map(|x| bits(x)));
            let mut x = random(len, 9);
            comm.broadcast(&mut x, size - 1).unwrap();
            found.push(bits(&x));
        }
        for x in comm.all_gather_f64(&[rank as f64, -0.0]).unwrap().concat() {
            let bytes = x.to_bits().to_le_bytes();
            found.push(bytes.map(u32::from).to_vec());
        }
        for i in 0..3 {
            comm.send((rank + 1) % size, &[rank as f32, i as f32])
                .unwrap();
        }
        comm.barrier().unwrap();
        for _ in 0..3 {
            let mut x = [0.0; 2];
            comm.recv((rank + size - 1) % size, &mut x).unwrap();
            found.push(bits(&x));
        }
    }
    found
}

#[test]
fn processes_over_sockets_have_the_bits_of_threads() {
    for (processes, each_has) in [(2, 1), (3, 1), (2, 2), (3, 2), (1, 3)] {
        let want = each(group(processes * each_has), |comm: LocalComm| {
            everything(&comm)
        });
        let found = over_sockets(rendezvous_of(processes, each_has), everything);
        assert!(found == want, "{processes} processes of {each_has}");
    }
}

#[test]
fn groups_of_some_ranks_do_not_meet_each_other() {
    let results = each(rendezvous_of(3, 2), |rendezvous| {
        let network = connect(&rendezvous).unwrap();
        assert_eq!(
            network.ranks(),
            rendezvous.process * 2..rendezvous.process * 2 + 2
        );
        let mut found = Vec::new();
        // within a process, over two, over all; two at once
        for lists in [
            vec![vec![0, 1]],
            vec![vec![5, 2], vec![0, 3]],
            vec![vec![0, 1, 2, 3, 4, 5]],
        ] {
            let groups: Vec<_> = lists
                .iter()
                .flat_map(|list| network.group("some", list))
                .collect();
            found.extend(each(groups, |comm| {
                let x = comm
                    .all_gather(&[rendezvous.process as f32])
                    .unwrap()
                    .concat();
                (comm.rank(), x)
            }));
        }
        found
    });
    let all = |rank| (rank, vec![0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    let (left, right) = (|rank| (rank, vec![2.0, 1.0]), |rank| (rank, vec![0.0, 1.0]));
    assert_eq!(
        results[0],
        [
            (0, vec![0.0; 2]),
            (1, vec![0.0; 2]),
            right(0),
            all(0),
            all(1)
        ]
    );
    assert_eq!(results[1], [left(1), right(1), all(2), all(3)]);
    assert_eq!(results[2], [left(0), all(4), all(5)]);
}

#[test]
fn texts_reach_every_process() {
    let found = each(rendezvous_of(3, 1), |rendezvous| {
        let network = connect(&rendezvous).unwrap();
        network
            .exchange(&format!("facts of {}\n", rendezvous.host))
            .unwrap()
    });
    let want: Vec<String> = (0..3).map(|p| format!("facts of host-{p}\n")).collect();
    assert_eq!(found, [want.clone(), want.clone(), want]);
}

#[test]
fn different_lengths_and_different_calls_name_both_ranks() {
    let found = over_sockets(rendezvous_of(3, 1), |comm| {
        let mut x = vec![0.0; if comm.rank() == 2 { 4 } else { 3 }];
        comm.all_reduce_sum(&mut x)
    });
    let op = "all_reduce_sum";
    let (rank, len, other, other_len) = (0, 3, 2, 4);
    let want = Error::Lengths {
        op,
        rank,
        len,
        other,
        other_len,
    };
    assert_eq!(found, vec![Err(want); 3]);
    let found = over_sockets(rendezvous_of(2, 1), |comm| match comm.rank() {
        0 => comm.barrier(),
        _ => comm.all_reduce_max(&mut [1.0]),
    });
    let (op, other_op) = ("barrier", "all_reduce_max");
    assert_eq!(
        found,
        vec![
            Err(Error::Calls {
                rank: 0,
                op,
                other: 1,
                other_op
            });
            2
        ]
    );
    let found = over_sockets(rendezvous_of(2, 1), |comm| {
        comm.send(1 - comm.rank(), &[1.0, 2.0]).unwrap();
        let wrong = comm.recv(1 - comm.rank(), &mut [0.0]);
        assert!(matches!(
            comm.send(2, &[]),
            Err(Error::Argument { name: "to", .. })
        ));
        wrong
    });
    assert!(matches!(
        found[1],
        Err(Error::Lengths {
            op: "recv",
            rank: 1,
            len: 1,
            other: 0,
            other_len: 2
        })
    ));
}

#[test]
fn a_process_that_leaves_makes_the_others_return_with_its_words() {
    let words = Failure {
        who: "rank 1 on host-1".into(),
        reason: "failed: no more samples".into(),
    };
    for told in [Some(words), None] {
        let found = each(rendezvous_of(3, 1), |rendezvous| {
            let network = connect(&rendezvous).unwrap();
            let comm = network.group("world", &[0, 1, 2]).remove(0);
            comm.barrier().unwrap();
            if rendezvous.process == 1 {
                comm.send(0, &[7.0]).unwrap();
                if let Some(told) = &told {
                    network.fail(told);
                }
                return None;
            }
            let gone = comm.all_reduce_sum(&mut [1.0]).unwrap_err();
            assert_eq!(
                gone,
                Error::PeerGone {
                    rank: 1,
                    op: "all_reduce_sum"
                }
            );
            if rendezvous.process == 0 {
                // messages sent before still count
                let mut x = [0.0];
                comm.recv(1, &mut x).unwrap();
                assert_eq!(x, [7.0]);
                assert_eq!(
                    comm.recv(1, &mut x),
                    Err(Error::PeerGone {
                        rank: 1,
                        op: "recv"
                    })
                );
            }
            network.cause(Duration::from_millis(300))
        });
        // an end with a good-bye and without words has no cause
        assert_eq!(found, [told.clone(), None, told]);
    }
}

/// Connects as process 1 of 2, then runs `then`.
fn false_peer(rendezvous: &Rendezvous, then: impl FnOnce(&mut TcpStream)) {
    let until = Instant::now() + Duration::from_secs(10);
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", rendezvous.port)) {
            Ok(stream) => break stream,
            Err(_) => assert!(Instant::now() < until),
        }
        thread::sleep(Duration::from_millis(10));
    };
    introduce(&mut stream, &rendezvous.secret, "1 2 1 1 host-1").unwrap();
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"go ");
    then(&mut stream);
}

#[test]
fn a_process_that_is_killed_cut_off_or_mad_is_named() {
    // both stay until the other side has closed the connection
    let silence = |stream: &mut TcpStream| {
        // however it is closed
        let _ = std::io::copy(stream, &mut std::io::sink());
    };
    let madness = |stream: &mut TcpStream| {
        stream.write_all(&[7; 100]).unwrap();
        let _ = std::io::copy(stream, &mut std::io::sink());
    };
    type Then = fn(&mut TcpStream);
    let (long, short) = (Duration::from_secs(20), Duration::from_millis(200));
    let cases: [(Then, Duration, &str); 3] = [
        (|_| {}, long, "ended (connection closed)"),
        (madness, long, "sent bytes that are no frame"),
        (silence, short, "gave no sign of liveness for 0 s"),
    ];
    for (then, timeout, reason) in cases {
        let mut rendezvous = rendezvous_of(2, 1).remove(0);
        rendezvous.timeout = timeout;
        thread::scope(|scope| {
            scope.spawn(|| false_peer(&rendezvous, then));
            let network = connect(&rendezvous).unwrap();
            assert_eq!(
                network.exchange("facts").unwrap_err(),
                Error::PeerGone {
                    rank: 1,
                    op: "exchange"
                }
            );
            let cause = network.cause(Duration::ZERO).unwrap();
            assert_eq!(
                (cause.who.as_str(), cause.reason.as_str()),
                ("rank 1 on host-1", reason)
            );
        });
    }
}

#[test]
fn the_watchdog_names_rank_host_collective_step_and_who_is_missing() {
    let mut rendezvous_of = rendezvous_of(2, 2);
    for rendezvous in &mut rendezvous_of {
        rendezvous.timeout = Duration::from_millis(300);
    }
    let found = each(rendezvous_of, |rendezvous| {
        let network = connect(&rendezvous).unwrap();
        network.watch().set_step(12);
        let comms = network.group("tensor", &[0, 1, 2, 3]);
        let late = each(comms, |comm| {
            (comm.rank() == 0).then(|| comm.barrier().unwrap_err().to_string())
        });
        late.into_iter().flatten().next()
    });
    // processes that had nothing to wait for have left by then, unless they were slow
    let text = found[0].as_deref().unwrap();
    assert!(
        text.starts_with("barrier: rank ") || text.contains("waited 0 s in barrier"),
        "{text}"
    );
    let ended = Barrier::new(2);
    let lone = each(self::rendezvous_of(2, 1), |mut rendezvous| {
        rendezvous.timeout = Duration::from_secs(1);
        let network = connect(&rendezvous).unwrap();
        network.watch().set_step(12);
        let comm = network.group("tensor", &[0, 1]).remove(0);
        if rendezvous.process == 1 {
            ended.wait();
            return String::new();
        }
        let late = comm.recv(1, &mut [0.0]);
        ended.wait();
        late.unwrap_err().to_string()
    });
    let want = "watchdog: rank 0 on host-0 waited 1 s in recv of its tensor group, step 12, for rank 1 on host-1";
    assert_eq!(lone[0], want);
}

fn failure(rendezvous: &Rendezvous) -> String {
    let met: Result<Network> = connect(rendezvous);
    met.err().unwrap().to_string()
}

#[test]
fn processes_that_do_not_meet_say_why_on_each() {
    // no process calls, none answers
    let mut alone = rendezvous_of(3, 1);
    for rendezvous in &mut alone {
        rendezvous.patience = Duration::from_millis(200);
    }
    let port = alone[0].port;
    let text = failure(&alone[0]);
    let want = format!(
        "process 0 on host-0 at 127.0.0.1:{port}: found nobody for 0 s, wanted process 1, 2 of 3"
    );
    assert_eq!(text, want);
    let text = failure(&alone[1]);
    assert!(
        text.starts_with(&format!(
            "process 1 on host-1: found no answer from 127.0.0.1:{port}"
        )),
        "{text}"
    );
    // a name that does not exist
    alone[1].address = "no-such-host.invalid".into();
    assert!(
        failure(&alone[1])
            .starts_with("process 1 on host-1: name \"no-such-host.invalid\": found ")
    );
    // a port in use
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    alone[0].port = taken.local_addr().unwrap().port();
    let want = format!("process 0 on host-0: port {}: found in use", alone[0].port);
    assert!(failure(&alone[0]).starts_with(&want));
    // another number of processes; one number twice; a number too high
    type Spoil = fn(&mut Rendezvous);
    let spoilt: [(Spoil, &str); 3] = [
        (
            |m| m.processes = 4,
            "found a run of 4 processes with 1 ranks each, wanted 3 with 1, as process 0 on host-0 has it",
        ),
        (
            |m| m.process = 1,
            "found another with the same RANK on host-1, wanted a RANK for each process",
        ),
        (
            |m| m.ranks_per_process = 2,
            "found a run of 3 processes with 2 ranks each, wanted 3 with 1",
        ),
    ];
    // side by side
    each(spoilt.into(), |(spoil, reason)| {
        let mut rendezvous_of = rendezvous_of(3, 1);
        spoil(&mut rendezvous_of[2]);
        let texts = each(rendezvous_of, |rendezvous| {
            // the odd one is the last to come
            if rendezvous.host == "host-2" {
                thread::sleep(Duration::from_secs(3));
            }
            failure(&rendezvous)
        });
        assert!(
            texts.iter().all(|text| text.contains(reason)),
            "{reason}: {texts:?}"
        );
        assert!(
            texts[1].starts_with("process 1 on host-1: found no from 127.0.0.1:"),
            "{texts:?}"
        );
    });
}

#[test]
fn strangers_do_not_disturb_a_meeting() {
    let rendezvous_of = rendezvous_of(2, 1);
    let port = rendezvous_of[0].port;
    let found = each(rendezvous_of, |rendezvous| {
        if rendezvous.process == 1 {
            let mut caller = stranger(port);
            caller.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        }
        let network = connect(&rendezvous).unwrap();
        network.exchange("x").unwrap().len()
    });
    assert_eq!(found, [2, 2]);
}

/// Connects as soon as process 0 listens.
fn stranger(port: u16) -> TcpStream {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Attacks by a caller without the secret; the connections stay open.
fn attack(port: u16, kind: usize) -> Vec<TcpStream> {
    let say = |bytes: &[u8]| {
        let mut stream = stranger(port);
        // the listener may have closed it before all is out
        let _ = stream.write_all(bytes);
        stream
    };
    match kind {
        // more silent callers than are served at once
        0 => (0..80).map(|_| stranger(port)).collect(),
        // the seat of process 1, a line of another run, numbers out of range
        1 => vec![
            say(b"millrace-1 1 2 1 9 evil\n"),
            say(b"millrace-1 1 3 1 9 evil\n"),
            say(b"1 2 1 9 evil\n"),
            say(b"aaaa bbbb 18446744073709551615 2 1 65535 evil\n"),
        ],
        // no line at all
        2 => vec![say(&[b'x'; 100_000]), say(&[0; 100_000]), say(b"\n\n\n\n")],
        // the listener's own line, echoed back
        3 => {
            let mut stream = stranger(port);
            let soon = Instant::now() + Duration::from_secs(5);
            let challenge = read_line(&mut stream, soon).unwrap();
            let words = format!("{challenge} 1 2 1 9 evil\n");
            stream.write_all(words.as_bytes()).unwrap();
            vec![stream]
        }
        // a byte now and then, of more callers than could be served one after another in time
        _ => {
            let drip = |_| {
                let mut stream = stranger(port);
                let dripping = stream.try_clone().unwrap();
                thread::spawn(move || {
                    while stream.write_all(b"x").is_ok() {
                        thread::sleep(Duration::from_millis(300));
                    }
                });
                dripping
            };
            (0..8).map(drip).collect()
        }
    }
}

#[test]
fn who_does_not_know_the_secret_takes_no_seat_and_no_time() {
    for kind in 0..5 {
        let mut rendezvous_of = rendezvous_of(2, 1);
        for rendezvous in &mut rendezvous_of {
            rendezvous.patience = Duration::from_secs(60);
        }
        let port = rendezvous_of[0].port;
        let found = each(rendezvous_of, |rendezvous| {
            let started = Instant::now();
            let open = (rendezvous.process == 1).then(|| attack(port, kind));
            let network = connect(&rendezvous).unwrap();
            // 80 silent callers are more than are served at once: they delay the others by one deadline of 2 s. One
            // after another, they would take 160 s and the 8 that drip 16 s.
            let most = if kind == 0 { 60 } else { 12 };
            let took = started.elapsed();
            assert!(took < Duration::from_secs(most), "{kind}: {took:?}");
            let texts = network.exchange(&format!("from {}", rendezvous.process));
            drop(open);
            texts.unwrap()
        });
        assert_eq!(found[0], ["from 0", "from 1"], "{kind}");
    }
}

#[test]
fn another_secret_is_named_on_both_sides() {
    let mut rendezvous_of = rendezvous_of(2, 1);
    rendezvous_of[0].patience = Duration::from_secs(3);
    rendezvous_of[1].secret = Secret::of("another one");
    let texts = each(rendezvous_of, |rendezvous| failure(&rendezvous));
    assert!(
        texts[0].contains("found nobody for 3 s but 1 callers that did not know the run's secret"),
        "{texts:?}"
    );
    assert!(
        texts[1].contains("found a secret that process 0 at 127.0.0.1:")
            && texts[1].contains(" does not know, wanted the same for all processes"),
        "{texts:?}"
    );
}

/// Addresses at which something listens on a port, as listed by Linux.
#[cfg(target_os = "linux")]
fn listening(port: u16) -> Vec<String> {
    let wanted = format!(":{port:04X}");
    let mut found = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // state 0A: listening
            if let [_, local, _, "0A", ..] = words[..]
                && let Some(address) = local.strip_suffix(&wanted)
            {
                found.push(address.to_owned());
            }
        }
    }
    found
}

#[cfg(target_os = "linux")]
#[test]
fn process_0_listens_at_its_address_and_not_at_all() {
    for bind in [None, Some("127.0.0.1".to_owned())] {
        let mut rendezvous = rendezvous_of(2, 1).remove(0);
        rendezvous.patience = Duration::from_secs(20);
        rendezvous.bind = bind;
        if rendezvous.bind.is_some() {
            // a name that others know this host by
            rendezvous.address = "0.0.0.0".into();
        }
        let port = rendezvous.port;
        thread::scope(|scope| {
            let waits = scope.spawn(|| failure(&rendezvous));
            let mut caller = stranger(port);
            assert_eq!(listening(port), ["0100007F"]);
            // a process of another run, which process 0 refuses at once
            introduce(&mut caller, &rendezvous.secret, "1 9 1 1 host-1").unwrap();
            waits.join().unwrap();
        });
    }
}

#[test]
fn a_library_of_mpi_that_is_not_there_or_is_none_is_named() {
    let with = |libraries: &[&str]| {
        let start = super::mpi::Start {
            process: 0,
            processes: 2,
            ranks_per_process: 1,
            host: "host-0".into(),
            libraries: libraries.iter().map(|name| (*name).to_owned()).collect(),
            patience: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
        };
        let met: Result<Network> = super::mpi::connect(&start);
        met.err().unwrap().to_string()
    };
    let text = with(&["libno-such-mpi.so.1", "libno-such-mpi.so"]);
    assert!(
        text.contains("libno-such-mpi.so.1") && text.contains("launch.mpi_library"),
        "{text}"
    );
    if cfg!(target_os = "linux") {
        let text = with(&["libm.so.6"]);
        assert!(
            text.contains("no such function") || text.contains("libm.so.6"),
            "{text}"
        );
    }
}

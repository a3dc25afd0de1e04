//! Transport over MPI with a fake library of queues between threads of one test: bits, ends, bounds, and liveness
//! connections. `tests/clusters/train_hosts.sh` tests real libraries.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::library::Mpi;
use super::{GOOD_BYE, MOST_WAITING, Network, Start, connect_by};
use crate::comm::Failure;
use crate::comm::frame::{Header, Kind, Payload};
use crate::comm::liveness::{Lines, Liveness, Seat, meet};
use crate::comm::local::{LocalComm, group};
use crate::comm::mailbox::Mailbox;
use crate::comm::tests::{each, everything};
use crate::comm::watchdog::Watch;
use crate::{Error, Result};

type Messages = VecDeque<(usize, Arc<Vec<u8>>)>;

/// Network shared by the fake processes.
struct Fabric {
    /// To each process.
    mail: Vec<Mutex<Messages>>,
    /// Texts of each exchange, by process.
    texts: Mutex<Vec<Vec<Option<String>>>>,
    changed: Condvar,
    /// Processes that ended MPI.
    finished: AtomicUsize,
    /// Peak bytes that one process had in flight.
    high_water: AtomicUsize,
}

impl Fabric {
    fn of(processes: usize) -> Arc<Fabric> {
        Arc::new(Fabric {
            mail: (0..processes).map(|_| Mutex::default()).collect(),
            texts: Mutex::default(),
            changed: Condvar::new(),
            finished: AtomicUsize::new(0),
            high_water: AtomicUsize::new(0),
        })
    }

    fn end_of(self: &Arc<Fabric>, process: usize) -> Queues {
        Queues {
            process,
            fabric: Arc::clone(self),
            exchanges: Mutex::new(0),
            sending: Vec::new(),
        }
    }
}

/// A process's library. A message is in flight until its receiver takes it, as large ones are.
struct Queues {
    process: usize,
    fabric: Arc<Fabric>,
    exchanges: Mutex<usize>,
    sending: Vec<(usize, Arc<Vec<u8>>)>,
}

impl Mpi for Queues {
    fn place(&self) -> (usize, usize) {
        (self.process, self.fabric.mail.len())
    }

    fn exchange(&self, text: &str) -> Result<Vec<String>> {
        assert!(text.len() < 256, "{text}");
        let mut number = self.exchanges.lock().unwrap();
        let mut texts = self.fabric.texts.lock().unwrap();
        if texts.len() == *number {
            texts.push(vec![None; self.fabric.mail.len()]);
        }
        texts[*number][self.process] = Some(text.to_owned());
        self.fabric.changed.notify_all();
        let is_missing = |texts: &mut Vec<Vec<_>>| texts[*number].contains(&None);
        let texts = self.fabric.changed.wait_while(texts, is_missing).unwrap();
        let all = texts[*number].iter().flatten().cloned().collect();
        *number += 1;
        Ok(all)
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<()> {
        let bytes = Arc::new(bytes);
        let mut mail = self.fabric.mail[to].lock().unwrap();
        mail.push_back((self.process, Arc::clone(&bytes)));
        self.sending.push((to, bytes));
        Ok(())
    }

    fn under_way(&mut self, counts: &dyn Fn(usize) -> bool) -> Result<usize> {
        let bytes = |sending: &[(usize, Arc<Vec<u8>>)]| {
            let counted = sending.iter().filter(|(to, _)| counts(*to));
            counted.map(|(_, bytes)| bytes.len()).sum()
        };
        let most = &self.fabric.high_water;
        most.fetch_max(bytes(&self.sending), Ordering::SeqCst);
        self.sending
            .retain(|(_, bytes)| Arc::strong_count(bytes) > 1);
        Ok(bytes(&self.sending))
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        let mut mail = self.fabric.mail[self.process].lock().unwrap();
        Ok(mail.pop_front().map(|(from, bytes)| (from, bytes.to_vec())))
    }

    fn finish(self: Box<Self>) {
        self.fabric.finished.fetch_add(1, Ordering::SeqCst);
    }
}

const RANKS: usize = 2;

fn start(process: usize, processes: usize) -> Start {
    Start {
        process,
        processes,
        ranks_per_process: RANKS,
        host: format!("host-{process}"),
        libraries: Vec::new(),
        patience: Duration::from_secs(20),
        timeout: Duration::from_secs(20),
    }
}

fn connect(fabric: &Arc<Fabric>, process: usize) -> Network {
    let mpi = fabric.end_of(process);
    let start = start(process, fabric.mail.len());
    connect_by(&start, MOST_WAITING, move || Ok(Box::new(mpi))).unwrap()
}

/// The start of a process before its first step, here of one that the test plays itself.
fn meet_as(fabric: &Arc<Fabric>, process: usize) -> (Queues, Lines, Vec<String>) {
    let mpi = fabric.end_of(process);
    mpi.exchange(&format!("{RANKS} host-{process}")).unwrap();
    let hosts: Vec<String> = (0..fabric.mail.len())
        .map(|p| format!("host-{p}"))
        .collect();
    let seat = Seat {
        process,
        hosts: &hosts,
    };
    let (lines, without) = meet(&seat, &mut |text| mpi.exchange(text)).unwrap();
    (mpi, lines, without)
}

fn say_good_bye(mpi: &mut Queues, to: usize) {
    let bye = Header::of(Kind::Bye).encode(&Payload::none());
    mpi.send(to, bye.to_vec()).unwrap();
}

/// Losses that a network reports.
fn losses(network: &Network) -> Arc<Mutex<Vec<(Failure, Instant)>>> {
    let losses: Arc<Mutex<Vec<_>>> = Arc::default();
    let told = Arc::clone(&losses);
    network.on_loss(move |failure| told.lock().unwrap().push((failure.clone(), Instant::now())));
    losses
}

#[test]
fn processes_over_mpi_have_the_bits_of_threads_and_end_without_a_loss() {
    for processes in [2, 3] {
        let want = each(group(processes * RANKS), |comm: LocalComm| {
            everything(&comm)
        });
        let fabric = Fabric::of(processes);
        let found = each((0..processes).collect(), |process| {
            let network = connect(&fabric, process);
            assert_eq!(network.remarks(), [""; 0]);
            let losses = losses(&network);
            let all: Vec<usize> = (0..processes * RANKS).collect();
            let found = each(network.group("world", &all), |comm| {
                everything(comm.as_ref())
            });
            // some are long done when others are
            thread::sleep(Duration::from_millis(100 * process as u64));
            drop(network);
            assert!(losses.lock().unwrap().is_empty());
            found
        });
        assert!(found.concat() == want, "{processes} processes");
        assert_eq!(fabric.finished.load(Ordering::SeqCst), processes);
    }
}

#[test]
fn a_process_that_dies_is_named_to_all_others_at_once_and_nobody_waits_for_it() {
    const PROCESSES: usize = 4;
    let mut slowest = Vec::new();
    for dead in 0..PROCESSES {
        let fabric = Fabric::of(PROCESSES);
        let died = Mutex::new(None);
        let ended = each((0..PROCESSES).collect(), |process| {
            if process == dead {
                let (_, lines, without) = meet_as(&fabric, process);
                assert!(without.is_empty(), "{without:?}");
                thread::sleep(Duration::from_millis(100));
                *died.lock().unwrap() = Some(Instant::now());
                drop(lines);
                return None;
            }
            let network = connect(&fabric, process);
            let losses = losses(&network);
            let all: Vec<usize> = (0..PROCESSES * RANKS).collect();
            let gone = each(network.group("world", &all), |comm| comm.barrier());
            // the ranks end before a caller can ask for the cause
            assert!(
                gone.iter()
                    .all(|end| matches!(end, Err(Error::PeerGone { op: "barrier", .. }))),
                "{gone:?}"
            );
            let cause = network.cause(Duration::ZERO).unwrap();
            drop(network);
            let losses = losses.lock().unwrap().clone();
            assert_eq!(losses.len(), 1);
            assert_eq!(losses[0].0, cause);
            Some((cause, losses[0].1, Instant::now()))
        });
        let died = died.lock().unwrap().unwrap();
        let mut last = [Duration::ZERO; 2];
        for (cause, told, closed) in ended.into_iter().flatten() {
            let first = dead * RANKS;
            let who = format!("ranks {first} to {} on host-{dead}", first + RANKS - 1);
            assert_eq!(
                (cause.who, cause.reason),
                (who, "ended (connection closed)".into())
            );
            last = [last[0].max(told - died), last[1].max(closed - died)];
        }
        slowest.push(last);
        assert_eq!(
            fabric.finished.load(Ordering::SeqCst),
            0,
            "MPI cannot end without all"
        );
    }
    // milliseconds: none waits as long as for a good-bye. A busy machine may hold up one of the rounds.
    let told = slowest.iter().map(|round| round[0]).min().unwrap();
    let closed = slowest.iter().map(|round| round[1]).min().unwrap();
    assert!(told < GOOD_BYE / 2 && closed < GOOD_BYE, "{slowest:?}");
}

#[test]
fn mpi_is_given_nothing_for_a_process_that_has_died() {
    let fabric = Fabric::of(2);
    each((0..2).collect(), |process| {
        if process == 1 {
            drop(meet_as(&fabric, process));
            return;
        }
        let network = connect(&fabric, process);
        let comms = network.group("world", &[0, 2]);
        assert!(network.cause(Duration::from_secs(10)).is_some());
        let sent = || fabric.mail[1].lock().unwrap().len();
        let before = sent();
        // the result does not matter here
        let _ = comms[0].send(1, &[1.0; 8]);
        drop((comms, network));
        assert_eq!(sent(), before);
    });
}

#[test]
fn words_on_the_line_count_before_the_end_that_follows_them() {
    let words = Failure {
        who: "rank 3 on host-1".into(),
        reason: "failed: no more samples".into(),
    };
    let fabric = Fabric::of(3);
    let found = each((0..3).collect(), |process| {
        if process == 1 {
            let (_, lines, _) = meet_as(&fabric, process);
            let mailbox = Arc::new(Mailbox::new(3));
            let liveness =
                Liveness::start(process, lines, (&mailbox, &Arc::new(Watch::default()))).unwrap();
            liveness.fail(&words);
            liveness.close();
            return None;
        }
        let network = connect(&fabric, process);
        let losses = losses(&network);
        let cause = network.cause(Duration::from_secs(10));
        thread::sleep(Duration::from_millis(100));
        assert!(losses.lock().unwrap().is_empty());
        cause
    });
    assert_eq!(found, [Some(words.clone()), None, Some(words)]);
}

#[test]
fn a_process_without_a_line_is_told_and_the_run_goes_on() {
    let fabric = Fabric::of(3);
    let found = each((0..3).collect(), |process| {
        if process == 1 {
            let mut mpi = fabric.end_of(1);
            mpi.exchange("2 host-1").unwrap();
            let place = mpi.exchange("").unwrap().swap_remove(0);
            assert!(place.contains(" host-0"), "{place}");
            mpi.exchange("no way to 10.0.0.1:9 (no route)").unwrap();
            say_good_bye(&mut mpi, 0);
            say_good_bye(&mut mpi, 2);
            // MPI's own traffic continues
            while fabric.finished.load(Ordering::SeqCst) < 2 {
                mpi.receive().unwrap();
                thread::yield_now();
            }
            return Vec::new();
        }
        let network = connect(&fabric, process);
        network.remarks().to_vec()
    });
    let want = "no liveness connection to process 1 on host-1: no way to 10.0.0.1:9 (no route); if it dies, only mpirun can report it";
    assert_eq!(found, [vec![want.to_owned()], vec![], vec![]]);
}

#[test]
fn what_is_under_way_to_a_process_that_takes_nothing_is_bounded() {
    const MOST: usize = 1 << 16;
    const LEN: usize = 1 << 10;
    let fabric = Fabric::of(2);
    let (high_water, sum) = thread::scope(|scope| {
        let sender = Arc::clone(&fabric);
        scope.spawn(move || {
            let mpi = sender.end_of(0);
            let network = connect_by(&start(0, 2), MOST, move || Ok(Box::new(mpi))).unwrap();
            let comms = network.group("world", &[0, 2]);
            for i in 0..1000 {
                comms[0].send(1, &[i as f32; LEN]).unwrap();
            }
        });
        let (mut mpi, _lines, _) = meet_as(&fabric, 1);
        // the sender would be done by now
        thread::sleep(Duration::from_millis(500));
        let waiting = fabric.mail[1].lock().unwrap().len();
        assert!(waiting * LEN * 4 < 2 * MOST, "{waiting} messages");
        // ... and takes up where it had to wait
        let (mut sum, mut messages) = (0.0, 0);
        while messages < 1000 {
            if let Some((_, bytes)) = mpi.receive().unwrap()
                && bytes.len() > 4 * LEN
            {
                sum += f32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
                messages += 1;
            }
        }
        say_good_bye(&mut mpi, 0);
        while fabric.finished.load(Ordering::SeqCst) == 0 {
            mpi.receive().unwrap();
        }
        (fabric.high_water.load(Ordering::SeqCst), sum)
    });
    assert_eq!(sum, (0..1000).sum::<i32>() as f32);
    assert!(high_water < 2 * MOST, "{high_water}");
}

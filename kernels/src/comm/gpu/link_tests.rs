//! Messages over links of NCCL between simulated GPUs. The stand-in ends a send when its receive takes it, so whatever
//! waits for a send hangs here.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use super::nccl::{Edge, Joining, LinkStreams, Links};
use super::tests::{Layout, library, numbers, on_all, watch};
use crate::comm::Collective;
use crate::comm::watchdog::Roster;
use crate::testing::{bits, simulator, values};
use crate::{DType, Device, Error, Stream, SumOrder, Tensor};

const AHEAD: LinkStreams = LinkStreams {
    send: Stream::SendAhead,
    receive: Stream::ReceiveAhead,
};
const BACK: LinkStreams = LinkStreams {
    send: Stream::SendBack,
    receive: Stream::ReceiveBack,
};

/// Edges of a ring of ranks, from each to the next or to the one before.
fn ring(ranks: usize, is_back: bool) -> Vec<Edge> {
    let edge = |rank: usize| {
        let next = (rank + 1) % ranks;
        let (from, to) = if is_back { (next, rank) } else { (rank, next) };
        Edge { from, to }
    };
    (0..ranks).map(edge).collect()
}

/// Results of `one` on each of the ranks of a ring, a card each, with links in both directions.
fn on_ring<T: Send>(
    ranks: usize,
    timeout: Option<Duration>,
    one: impl Fn(usize, &Device, &[Links; 2]) -> T + Sync,
) -> Vec<T> {
    let nccl = library();
    let layout = Layout {
        ranks,
        cards: ranks,
    };
    on_all(
        layout,
        Roster::unwatched(ranks),
        |group: Arc<dyn Collective>, control, device| {
            let rank = group.rank();
            let joining =
                Joining::new(&nccl, &device, SumOrder::Tree, control, watch(timeout)).unwrap();
            let link = |is_back, streams| {
                let edges = ring(ranks, is_back);
                let links = joining.link("pipeline", group.as_ref(), &edges, streams);
                links.unwrap().expect("every rank has a card")
            };
            let both = [link(false, AHEAD), link(true, BACK)];
            one(rank, &device, &both)
        },
    )
}

/// Message `number` of a rank.
fn message(rank: usize, number: usize, device: &Device) -> Tensor {
    numbers(rank + 10 * number, 900 + number, device)
}

#[test]
fn messages_of_both_directions_arrive_in_order_though_all_ranks_send_first() {
    if simulator::folder().is_none() {
        return;
    }
    const RANKS: usize = 4;
    let found = on_ring(
        RANKS,
        Some(Duration::from_secs(20)),
        |rank, device, links| {
            let around = [(rank + 1) % RANKS, (rank + RANKS - 1) % RANKS];
            for number in 0..3 {
                for (links, to) in links.iter().zip(around) {
                    links.send(to, message(rank, number, device)).unwrap();
                }
            }
            let mut got = Vec::new();
            for (links, from) in links.iter().zip([around[1], around[0]]) {
                for number in 0..3 {
                    let started = links.receive(from, &[900 + number]).unwrap();
                    got.push(bits(&values(&started.take().unwrap())));
                }
            }
            got
        },
    );
    for (rank, got) in found.into_iter().enumerate() {
        let senders = [(rank + RANKS - 1) % RANKS, (rank + 1) % RANKS];
        let want = senders.iter().flat_map(|&from| {
            (0..3).map(move |number| bits(&values(&message(from, number, &Device::cpu()))))
        });
        assert!(got == want.collect::<Vec<_>>(), "{rank}");
    }
}

#[test]
fn computation_goes_on_while_a_send_waits_and_only_a_reader_waits_for_a_receive() {
    if simulator::folder().is_none() {
        return;
    }
    let (asks, asked) = std::sync::mpsc::channel();
    let asked = std::sync::Mutex::new(asked);
    on_ring(
        2,
        Some(Duration::from_secs(20)),
        |rank, device, [ahead, _]| {
            if rank == 0 {
                ahead.send(1, message(0, 0, device)).unwrap();
                // of the sent tensor's size: its memory may not be waited for
                let x = message(5, 0, device);
                assert_eq!(
                    bits(&values(&x)),
                    bits(&values(&message(5, 0, &Device::cpu())))
                );
                let started = ahead.receive(1, &[901]).unwrap();
                let more = message(6, 0, device);
                values(&more);
                // before the other has sent or received anything
                asks.send(()).unwrap();
                let got = started.take().unwrap();
                assert_eq!(
                    bits(&values(&got)),
                    bits(&values(&message(1, 1, &Device::cpu())))
                );
            } else {
                let wait = asked.lock().unwrap().recv_timeout(Duration::from_secs(60));
                wait.expect("the first rank computes");
                let got = ahead.receive(0, &[900]).unwrap().take().unwrap();
                ahead.send(0, message(1, 1, device)).unwrap();
                assert_eq!(
                    bits(&values(&got)),
                    bits(&values(&message(0, 0, &Device::cpu())))
                );
            }
        },
    );
}

#[test]
fn pairs_exchange_tensors_of_different_lengths() {
    if simulator::folder().is_none() {
        return;
    }
    const RANKS: usize = 3;
    let found = on_ring(
        RANKS,
        Some(Duration::from_secs(20)),
        |rank, device, [ahead, _]| {
            let mine = message(rank, rank, device);
            // in the order of pairs, on all ranks
            let others = (0..RANKS).filter(|&other| other != rank);
            let got = others.map(|other| {
                let mut there = Tensor::zeros(&[900 + other], DType::F32, device).unwrap();
                let done = ahead.exchange(other, mine.view(), there.view_mut());
                done.unwrap();
                bits(&values(&there))
            });
            got.collect::<Vec<_>>()
        },
    );
    for (rank, got) in found.into_iter().enumerate() {
        let others = (0..RANKS).filter(|&other| other != rank);
        let want = others.map(|other| bits(&values(&message(other, other, &Device::cpu()))));
        assert!(got == want.collect::<Vec<_>>(), "{rank}");
    }
}

#[test]
fn a_stage_that_does_not_send_or_ends_is_named_by_its_world_rank() {
    if simulator::folder().is_none() {
        return;
    }
    for ends in [true, false] {
        // the end of a rank is seen long before a deadline; only a rank that stays is late
        let timeout = Some(Duration::from_secs(if ends { 60 } else { 5 }));
        // a rank that leaves would itself be missed by one that still waits
        let stay = Barrier::new(if ends { 2 } else { 3 });
        let found = on_ring(3, timeout, |rank, device, [ahead, _]| {
            if rank == 2 {
                if !ends {
                    stay.wait();
                }
                return None;
            }
            // rank 1 sends to it, rank 0 receives from it
            let waits = match rank {
                1 => ahead.send(2, message(1, 0, device)).and_then(|()| {
                    thread::sleep(Duration::from_millis(if ends { 500 } else { 6000 }));
                    // a send is noticed when the host waits for anything
                    ahead.receive(0, &[900])?.take()?.download::<f32>()
                }),
                _ => {
                    let started = ahead.receive(2, &[900]);
                    started.and_then(|started| started.take()?.download::<f32>())
                }
            };
            stay.wait();
            Some(waits.unwrap_err())
        });
        for error in found.into_iter().flatten() {
            match (ends, &error) {
                (true, Error::PeerGone { rank: 2, .. }) => {}
                (false, Error::Late { group, missing, .. }) => {
                    assert_eq!(
                        (*group, &missing[..]),
                        ("pipeline", &["2 on here".to_owned()][..])
                    );
                }
                _ => panic!("{ends} {error}"),
            }
        }
    }
}

#[test]
fn stages_on_one_card_have_no_links_and_a_rank_without_an_edge_is_refused() {
    if simulator::folder().is_none() {
        return;
    }
    let nccl = library();
    let layout = Layout { ranks: 3, cards: 2 };
    let found = on_all(layout, Roster::unwatched(3), |group, control, device| {
        let joining = Joining::new(&nccl, &device, SumOrder::Tree, control, watch(None)).unwrap();
        let links = joining.link("pipeline", group.as_ref(), &ring(3, false), AHEAD);
        links.unwrap().is_none()
    });
    assert_eq!(found, [true; 3]);
    on_ring(3, None, |rank, device, [ahead, _]| {
        let before = (rank + 2) % 3;
        let refused = ahead.send(before, message(rank, 0, device));
        assert!(matches!(refused, Err(Error::Argument { .. })));
        let ids = Tensor::zeros(&[3], DType::U32, device).unwrap();
        let refused = ahead.send((rank + 1) % 3, ids);
        assert!(matches!(refused, Err(Error::DType { .. })));
    });
}

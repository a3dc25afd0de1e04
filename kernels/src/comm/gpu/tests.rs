//! Collectives between simulated GPUs against those of the host, which have tests of their own against plain loops.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::nccl::{Joining, Way};
use crate::comm::tensors::{self, Part};
use crate::comm::watchdog::{Roster, Watch};
use crate::comm::{Collective, local};
use crate::cuda::nccl::Nccl;
use crate::testing::{bits, simulator, values, wide};
use crate::{DType, Device, Error, Result, Stream, SumOrder, Tensor, rng};

/// Ranks and the cards they take in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub ranks: usize,
    pub cards: usize,
}

/// Ranks take the cards from the last one on: tests of ops use the first.
const LAST_CARD: usize = 7;

/// Runs `one` on every rank, a thread each with its device.
pub(super) fn on_all<T: Send>(
    layout: Layout,
    roster: Roster,
    one: impl Fn(Arc<dyn Collective>, Box<dyn Collective>, Device) -> T + Sync,
) -> Vec<T> {
    // these tests share the cards, and some keep one busy for a while
    static CARDS: Mutex<()> = Mutex::new(());
    let _alone = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let one = &one;
    thread::scope(|scope| {
        let controls = local::group(layout.ranks);
        let ranks = local::watched(roster).into_iter().zip(controls).enumerate();
        let threads: Vec<_> = ranks
            .map(|(rank, (group, control))| {
                scope.spawn(move || {
                    let device = simulator::device_of(LAST_CARD - rank % layout.cards);
                    let device = device.expect("the simulator is built");
                    one(Arc::new(group), Box::new(control), device)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

pub(super) fn library() -> Arc<Nccl> {
    let folder: Vec<PathBuf> = simulator::folder().into_iter().collect();
    Arc::new(Nccl::open(&folder, SumOrder::Tree).expect("the stand-in opens"))
}

pub(super) fn watch(timeout: Option<Duration>) -> Arc<Watch> {
    Arc::new(Watch::new(timeout, vec!["here".into()], usize::MAX))
}

pub(super) fn numbers(rank: usize, len: usize, device: &Device) -> Tensor {
    let mut x = vec![0.0; len.max(1)];
    rng::fill_normal(&mut x, 7, rank as u64, len as u64, 1.0);
    Tensor::from_f32(&[len.max(1)], &x, device).unwrap()
}

/// Every collective, with lengths below and above those where transports change, and uneven ones; the values of all
/// results.
fn every_op(group: &dyn Collective, device: &Device) -> Result<Vec<Vec<u32>>> {
    let (rank, size) = (group.rank(), group.size());
    let mut found = Vec::new();
    for len in [1, 77, 5003] {
        let mut x = numbers(rank, len + 2, device);
        tensors::all_reduce_sum(group, x.flat_mut(1..len + 1)?)?;
        found.push(x);
        let mut x = numbers(rank, len, device);
        if rank == 1 && len > 1 {
            x.flat_mut(1..2)?.upload(&[f32::NAN])?;
        }
        tensors::all_reduce_max(group, x.view_mut())?;
        found.push(x);
        let mut x = numbers(rank, len, device);
        tensors::broadcast(group, x.view_mut(), size - 1)?;
        found.push(x);
        let cuts: Vec<usize> = (0..=size).map(|r| len * r * r / (size * size)).collect();
        let width = cuts[rank + 1] - cuts[rank];
        let mut part = Tensor::zeros(&[width.max(1)], DType::F32, device)?;
        let own = numbers(rank, len, device);
        tensors::reduce_scatter_sum(group, own.view(), &cuts, part.flat_mut(0..width)?)?;
        found.push(part);
    }
    for lens in [vec![6; size], (0..size).map(|r| 3 * r).collect()] {
        let own = numbers(rank, lens[rank], device);
        let mut all = Tensor::zeros(&[64 * size], DType::F32, device)?;
        let own = own.flat(0..lens[rank])?;
        tensors::all_gather(group, own, &lens, &mut [&mut all], |from, range| {
            let part = |at: usize| Part {
                from: at..at + 1,
                target: 0,
                at: 64 * from + 2 * at,
            };
            range.map(part).collect()
        })?;
        found.push(all);
    }
    // rank s sends rank r r + s % 2 numbers, in two runs that are swapped on the way
    let count = |from: usize, to: usize| to + from % 2;
    let runs = |len: usize, at: usize| -> Vec<Range<usize>> {
        let half = len / 2;
        vec![at + half..at + len, at..at + half]
    };
    let x = numbers(rank, 16 * size, device);
    let sent: Vec<_> = (0..size).map(|to| runs(count(rank, to), 16 * to)).collect();
    let mut at = 0;
    let received: Vec<Vec<Range<usize>>> = (0..size)
        .map(|from| {
            let len = count(from, rank);
            at += len;
            std::iter::once(at - len..at).collect()
        })
        .collect();
    if at > 0 {
        let mut to = Tensor::zeros(&[at], DType::F32, device)?;
        tensors::all_to_all(group, x.view(), &sent, &mut to, &received)?;
        found.push(to);
    } else {
        // a tensor has at least one element: this rank has none to receive into
        let mut to = Tensor::zeros(&[1], DType::F32, device)?;
        assert!(tensors::all_to_all(group, x.view(), &sent, &mut to, &received).is_err());
    }
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut got = Tensor::zeros(&[9], DType::F32, device)?;
    for turn in 0..3 {
        tensors::send(group, next, x.flat(turn..turn + 9)?)?;
    }
    for _ in 0..3 {
        tensors::recv(group, before, got.view_mut())?;
        found.push(got.try_clone()?);
    }
    Ok(found.iter().map(|x| bits(&values(x))).collect())
}

/// `every_op` of all ranks on the host.
fn wanted(ranks: usize) -> Vec<Vec<Vec<u32>>> {
    thread::scope(|scope| {
        let threads: Vec<_> = local::group(ranks)
            .into_iter()
            .map(|group| scope.spawn(move || every_op(&group, &Device::cpu()).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn copies_between_devices_have_the_bits_of_the_host() {
    if simulator::folder().is_none() {
        return;
    }
    for (ranks, cards) in [(2, 1), (3, 1), (4, 2), (8, 8), (9, 1)] {
        let layout = Layout { ranks, cards };
        let found = on_all(layout, Roster::unwatched(ranks), |group, _, device| {
            every_op(group.as_ref(), &device).unwrap()
        });
        assert!(found == wanted(ranks), "{layout:?}");
    }
}

#[test]
fn nccl_moves_and_our_kernels_add_with_the_bits_of_the_host() {
    if simulator::folder().is_none() {
        return;
    }
    let nccl = library();
    for ranks in [2, 3, 4, 8] {
        let layout = Layout {
            ranks,
            cards: ranks,
        };
        let found = on_all(
            layout,
            Roster::unwatched(ranks),
            |group, control, device| {
                let joining =
                    Joining::new(&nccl, &device, SumOrder::Tree, control, watch(None)).unwrap();
                let (group, way) = joining.join("test", group).unwrap();
                assert_eq!(way, Way::Nccl);
                let _on = device.enter(Stream::Gradients);
                every_op(group.as_ref(), &device).unwrap()
            },
        );
        assert!(found == wanted(ranks), "{ranks}");
    }
}

#[test]
fn sums_of_nccl_have_the_same_bits_every_time_but_not_the_trees() {
    if simulator::folder().is_none() {
        return;
    }
    const LEN: usize = 4000;
    let nccl = library();
    let run = || {
        let layout = Layout { ranks: 4, cards: 4 };
        on_all(layout, Roster::unwatched(4), |group, control, device| {
            let joining =
                Joining::new(&nccl, &device, SumOrder::Fixed, control, watch(None)).unwrap();
            let (group, _) = joining.join("test", group).unwrap();
            let mut x = numbers(group.rank(), LEN, &device);
            let own = numbers(group.rank(), LEN, &device);
            let mut part = Tensor::zeros(&[LEN / 4], DType::F32, &device).unwrap();
            let cuts: Vec<usize> = (0..=4).map(|rank| rank * LEN / 4).collect();
            tensors::all_reduce_sum(group.as_ref(), x.view_mut()).unwrap();
            let out = part.view_mut();
            tensors::reduce_scatter_sum(group.as_ref(), own.view(), &cuts, out).unwrap();
            (values(&x), values(&part))
        })
    };
    let (first, second) = (run(), run());
    let all: Vec<Vec<f64>> = (0..4)
        .map(|rank| wide(&values(&numbers(rank, LEN, &Device::cpu()))))
        .collect();
    let sums: Vec<f64> = (0..LEN).map(|i| all.iter().map(|x| x[i]).sum()).collect();
    let tree = wanted_sum(&all);
    for (rank, ((x, part), (again, _))) in first.iter().zip(&second).enumerate() {
        assert_eq!(bits(x), bits(again));
        assert!(crate::testing::error(x, &sums) < 1e-6);
        let own = &sums[rank * LEN / 4..(rank + 1) * LEN / 4];
        assert!(crate::testing::error(part, own) < 1e-6);
        assert!(bits(x) != bits(&tree), "NCCL's order is not the tree's");
    }
}

/// The tree over four ranks.
fn wanted_sum(all: &[Vec<f64>]) -> Vec<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "numbers that were f32")]
    let of = |rank: usize, i: usize| all[rank][i] as f32;
    let sum = |i| (of(0, i) + of(1, i)) + (of(2, i) + of(3, i));
    (0..all[0].len()).map(sum).collect()
}

#[test]
fn two_ranks_on_one_card_keep_the_way_they_have() {
    if simulator::folder().is_none() {
        return;
    }
    let nccl = library();
    let layout = Layout { ranks: 4, cards: 3 };
    on_all(layout, Roster::unwatched(4), |group, control, device| {
        let joining = Joining::new(&nccl, &device, SumOrder::Tree, control, watch(None)).unwrap();
        let (group, way) = joining.join("test", group).unwrap();
        assert_eq!(way, Way::Copies);
        let mut x = numbers(group.rank(), 3, &device);
        tensors::all_reduce_sum(group.as_ref(), x.view_mut()).unwrap();
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_within_the_deadline() {
    if simulator::folder().is_none() {
        return;
    }
    let nccl = library();
    let timeout = Some(Duration::from_secs(5));
    let layout = Layout { ranks: 3, cards: 3 };
    let ended = AtomicUsize::new(0);
    let found = on_all(layout, Roster::unwatched(3), |group, control, device| {
        // compiles the kernel, which may take longer than the deadline
        let mut first = numbers(0, 5, &device);
        tensors::all_reduce_sum(group.as_ref(), first.view_mut()).unwrap();
        values(&first);
        let joining =
            Joining::new(&nccl, &device, SumOrder::Tree, control, watch(timeout)).unwrap();
        let (group, _) = joining.join("data", group).unwrap();
        if group.rank() == 2 {
            // stays until the others have given it up
            let since = Instant::now();
            while ended.load(Ordering::SeqCst) < 2 && since.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(20));
            }
            return None;
        }
        let mut x = numbers(group.rank(), 5, &device);
        tensors::all_reduce_sum(group.as_ref(), x.view_mut()).unwrap();
        let found = x.download::<f32>();
        // the group is of no more use
        let again = tensors::all_reduce_sum(group.as_ref(), x.view_mut());
        ended.fetch_add(1, Ordering::SeqCst);
        let error = found.unwrap_err();
        assert_eq!(again.unwrap_err(), error);
        Some(error)
    });
    for error in found.into_iter().flatten() {
        let Error::Late { group, missing, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((group, missing), ("data", vec!["2 on here".to_owned()]));
    }
}

#[test]
fn a_rank_that_ends_ends_the_others_waits() {
    if simulator::folder().is_none() {
        return;
    }
    let nccl = library();
    let layout = Layout { ranks: 3, cards: 3 };
    let found = on_all(layout, Roster::unwatched(3), |group, control, device| {
        let joining = Joining::new(&nccl, &device, SumOrder::Tree, control, watch(None)).unwrap();
        // a rank that has joined may end before the others have
        let group = match joining.join("data", group) {
            Ok((group, _)) => group,
            Err(error) => return Some(error),
        };
        if group.rank() == 1 {
            return None;
        }
        let mut x = numbers(group.rank(), 5, &device);
        let queued = tensors::all_reduce_sum(group.as_ref(), x.view_mut());
        queued.and_then(|()| x.download::<f32>()).err()
    });
    for error in [&found[0], &found[2]] {
        let is_named = matches!(error, Some(Error::PeerGone { rank: 1, .. }));
        // or the end of the first that found it
        let is_next = matches!(error, Some(Error::PeerGone { .. }));
        assert!(is_named || is_next, "{error:?}");
    }
    assert!(
        found
            .iter()
            .flatten()
            .any(|error| matches!(error, Error::PeerGone { rank: 1, .. }))
    );
}

/// Two ranks of which the second joins a sum when `meanwhile` of the first, which has queued it on the stream of gradients
/// and dropped `x`, has returned.
fn while_a_sum_waits(meanwhile: impl Fn(&Device, usize, &dyn Fn() -> bool) + Sync) {
    let nccl = library();
    let (starts, start) = std::sync::mpsc::channel();
    let start = std::sync::Mutex::new(start);
    let timeout = Some(Duration::from_secs(20));
    let layout = Layout { ranks: 2, cards: 2 };
    on_all(layout, Roster::unwatched(2), |group, control, device| {
        let joining =
            Joining::new(&nccl, &device, SumOrder::Tree, control, watch(timeout)).unwrap();
        let (group, _) = joining.join("test", group).unwrap();
        let mut x = numbers(group.rank(), 1000, &device);
        if group.rank() == 1 {
            // an error, too, ends the wait: then the first rank has failed
            let start = start.lock().unwrap();
            let _ = start.recv_timeout(Duration::from_secs(60));
        }
        let stream = device.enter(Stream::Gradients);
        let written = device.gpu().unwrap().record_on(Stream::Compute).unwrap();
        device.gpu().unwrap().wait(&written).unwrap();
        tensors::all_reduce_sum(group.as_ref(), x.view_mut()).unwrap();
        let sum = x.try_clone().unwrap();
        let (summed, mark) = (device.gpu().unwrap().record().unwrap(), device.mark());
        let address = usize::try_from(x.address().0).unwrap();
        drop(x);
        drop(stream);
        if group.rank() == 0 {
            meanwhile(&device, address, &|| summed.is_done());
            starts.send(()).unwrap();
        }
        device.wait(&mark.unwrap()).unwrap();
        let of = |rank| values(&numbers(rank, 1000, &Device::cpu()));
        let wanted: Vec<f32> = of(0).iter().zip(of(1)).map(|(a, b)| a + b).collect();
        assert_eq!(bits(&values(&sum)), bits(&wanted));
    });
}

#[test]
fn computation_goes_on_while_a_sum_on_another_stream_waits() {
    if simulator::folder().is_none() {
        return;
    }
    while_a_sum_waits(|device, _, is_summed| {
        // of a size that the sum has not freed: computation waits for memory that is held
        let mut x = numbers(3, 5000, device);
        let y = numbers(4, 5000, device);
        crate::copy(x.view_mut(), y.view()).unwrap();
        assert_eq!(bits(&values(&x)), bits(&values(&y)));
        assert!(!is_summed(), "nobody has joined the sum");
    });
}

#[test]
fn memory_that_a_stream_still_uses_is_not_handed_out() {
    if simulator::folder().is_none() {
        return;
    }
    while_a_sum_waits(|device, address, is_summed| {
        // more of the size would wait for the sum rather than take what is in use
        let other = device.allocated_bytes();
        let _on = device.enter(Stream::Weights);
        let fresh = Tensor::empty(&[1000], DType::F32, device).unwrap();
        assert!(!is_summed() && device.allocated_bytes() > other);
        assert_ne!(usize::try_from(fresh.address().0).unwrap(), address);
    });
}

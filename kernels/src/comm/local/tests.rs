//! Collectives between ranks that are threads.

use super::*;
use crate::comm::Watch;
use crate::comm::sum::SUM_BLOCK;
use crate::testing::{bits, tree};
use std::time::Duration;

/// Runs one thread per rank and returns their results by rank.
fn each<T: Send>(size: usize, run: impl Fn(&LocalComm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = &run;
        let start = |comm: LocalComm| scope.spawn(move || run(&comm));
        let threads: Vec<_> = group(size).into_iter().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn value(rank: usize, i: usize) -> f32 {
    let mut x = [0.0];
    crate::rng::fill_normal(&mut x, rank as u64, 0, i as u64, 1.0);
    x[0]
}

#[test]
fn all_reduce_is_the_tree_by_rank_on_every_rank() {
    // Past the length from which ranks share the work, and no multiple of any group.
    const LEN: usize = SHARED_FROM + 2047;
    for size in 1..=5 {
        let results = each(size, |comm| {
            let mut x: Vec<f32> = (0..LEN).map(|i| value(comm.rank(), i)).collect();
            let mut max = x.clone();
            comm.all_reduce_sum(&mut x).unwrap();
            comm.all_reduce_max(&mut max).unwrap();
            (bits(&x), max)
        });
        for (sum, max) in results {
            for i in 0..LEN {
                let want = tree((0..size).map(|rank| value(rank, i)));
                assert_eq!(sum[i], want.to_bits());
                let want = (0..size)
                    .map(|rank| value(rank, i))
                    .fold(f32::MIN, f32::max);
                assert_eq!(max[i], want);
            }
        }
    }
}

#[test]
fn scattered_sums_are_the_parts_of_the_whole_sum() {
    const LEN: usize = 2 * SUM_BLOCK + 77;
    for size in 1..=5 {
        let results = each(size, |comm| {
            let mut x: Vec<f32> = (0..LEN).map(|i| value(comm.rank(), i)).collect();
            // unequal parts, one of them empty
            let mut cuts: Vec<usize> = (0..size).map(|r| LEN * r * r / (size * size)).collect();
            cuts.push(LEN);
            if size > 2 {
                cuts[1] = 0;
            }
            let mut part = vec![0.0; cuts[comm.rank() + 1] - cuts[comm.rank()]];
            comm.reduce_scatter_sum(&x, &cuts, &mut part).unwrap();
            comm.all_reduce_sum(&mut x).unwrap();
            let want = &x[cuts[comm.rank()]..cuts[comm.rank() + 1]];
            bits(&part) == bits(want)
        });
        assert_eq!(results, vec![true; size]);
    }
    let comm = group(1).remove(0);
    let wrong = comm.reduce_scatter_sum(&[1.0; 3], &[0, 2], &mut [0.0; 2]);
    assert!(matches!(wrong, Err(Error::Argument { name: "cuts", .. })));
    let wrong = comm.reduce_scatter_sum(&[1.0; 3], &[0, 3], &mut [0.0; 2]);
    assert!(matches!(wrong, Err(Error::Argument { name: "out", .. })));
}

#[test]
fn numbers_of_several_turns_are_those_of_one() {
    const LEN: usize = 2 * AT_ONCE + 1234;
    // sums of thirds round differently in another order
    let number = |rank: usize, i: usize| (i % 1013 + 7 * rank) as f32 / 3.0;
    for size in [2, 3] {
        let cuts: Vec<usize> = (0..=size).map(|r| LEN * r * r / (size * size)).collect();
        let results = each(size, |comm| {
            let mut x: Vec<f32> = (0..LEN).map(|i| number(comm.rank(), i)).collect();
            // one of them in one turn, where others take more
            let mine = &x[..LEN / (1 + comm.rank() * comm.rank())];
            let all = comm.all_gather(mine).unwrap();
            let is_whole = |(rank, all): (usize, &Vec<f32>)| {
                let is_right = |(i, x): (usize, &f32)| x.to_bits() == number(rank, i).to_bits();
                all.len() == LEN / (1 + rank * rank) && all.iter().enumerate().all(is_right)
            };
            assert!(all.iter().enumerate().all(is_whole));
            let mut part = vec![0.0; cuts[comm.rank() + 1] - cuts[comm.rank()]];
            comm.reduce_scatter_sum(&x, &cuts, &mut part).unwrap();
            comm.all_reduce_sum(&mut x).unwrap();
            (x, part)
        });
        for (rank, (sum, part)) in results.iter().enumerate() {
            for (i, sum) in sum.iter().enumerate() {
                let want = tree((0..size).map(|rank| number(rank, i)));
                assert_eq!(sum.to_bits(), want.to_bits(), "{i}");
            }
            assert!(bits(part) == bits(&sum[cuts[rank]..cuts[rank + 1]]));
        }
    }
}

#[test]
fn lengths_that_differ_are_told_whole_where_ops_take_several_turns() {
    for lens in [[3 * AT_ONCE, 2 * AT_ONCE], [AT_ONCE, AT_ONCE + 5]] {
        let told = each(2, |comm| {
            let mut x = vec![1.0; lens[comm.rank()]];
            let len = x.len();
            let mut part = vec![0.0; len];
            let cuts = [[0, len, len], [0, 0, len]][comm.rank()];
            let scattered = comm.reduce_scatter_sum(&x, &cuts, &mut part);
            [comm.all_reduce_sum(&mut x), scattered]
        });
        for error in told.into_iter().flatten() {
            let Err(Error::Lengths { len, other_len, .. }) = error else {
                panic!("{error:?}")
            };
            assert_eq!([len, other_len], lens);
        }
    }
}

#[test]
fn gathers_and_broadcasts_copy_bits() {
    for size in 1..=5 {
        for (rank, (parts, wide, x)) in each(size, |comm| {
            let mine = vec![-0.0; comm.rank() + 1];
            let parts = comm.all_gather(&mine).unwrap();
            let wide = comm.all_gather_f64(&[comm.rank() as f64]).unwrap();
            let mut x = [comm.rank() as f32, -0.0];
            comm.broadcast(&mut x, size - 1).unwrap();
            comm.barrier().unwrap();
            (parts, wide, x)
        })
        .into_iter()
        .enumerate()
        {
            for (from, part) in parts.iter().enumerate() {
                assert_eq!(bits(part), vec![(-0.0_f32).to_bits(); from + 1], "{rank}");
                assert_eq!(wide[from], [from as f64]);
            }
            assert_eq!(bits(&x), bits(&[(size - 1) as f32, -0.0]));
        }
    }
}

#[test]
fn every_rank_gets_the_part_that_each_has_for_it() {
    for size in 1..=5 {
        let part = |from: usize, to: usize| vec![(10 * from + to) as f32; from * to];
        let results = each(size, |comm| {
            let parts = (0..size).map(|to| part(comm.rank(), to)).collect();
            let short = comm.all_to_all(vec![Vec::new(); size + 1]);
            assert!(matches!(short, Err(Error::Argument { name: "parts", .. })));
            comm.all_to_all(parts).unwrap()
        });
        for (to, found) in results.into_iter().enumerate() {
            let want: Vec<_> = (0..size).map(|from| part(from, to)).collect();
            assert_eq!(found, want);
        }
    }
}

#[test]
fn messages_arrive_in_order_and_sending_never_waits() {
    let results = each(3, |comm| {
        let (next, last) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
        for i in 0..10 {
            comm.send(next, &[comm.rank() as f32, i as f32]).unwrap();
        }
        (0..10).all(|i| {
            let mut x = [0.0; 2];
            comm.recv(last, &mut x).unwrap();
            x == [last as f32, i as f32]
        })
    });
    assert_eq!(results, [true; 3]);
}

#[test]
fn many_rounds_leave_no_turns_behind() {
    let left = each(4, |comm| {
        for round in 0..500 {
            comm.all_reduce_sum(&mut vec![1.0; round * 20]).unwrap();
        }
        comm.barrier().unwrap();
        comm.shared.state.lock().unwrap().turns.len()
    });
    // Only the barrier's own turn may still wait for its last reader.
    assert!(left.iter().all(|&turns| turns <= 1), "{left:?}");
}

#[test]
fn a_rank_that_panics_makes_the_others_return() {
    for size in 2..=5 {
        let results = each(size, |comm| comm.rank());
        assert_eq!(results.len(), size);
        let found: Vec<_> = std::thread::scope(|scope| {
            let run = |comm: LocalComm| {
                scope.spawn(move || {
                    comm.all_reduce_sum(&mut [1.0]).unwrap();
                    assert!(comm.rank() != 1, "this rank dies on purpose");
                    let reduced = comm.all_reduce_sum(&mut [1.0]);
                    let received = comm.recv(1, &mut [0.0]);
                    (reduced, received)
                })
            };
            let threads: Vec<_> = group(size).into_iter().map(run).collect();
            threads
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect()
        });
        for (rank, result) in found.into_iter().enumerate() {
            match result {
                Err(_) => assert_eq!(rank, 1),
                Ok((reduced, received)) => {
                    assert_eq!(
                        reduced,
                        Err(Error::PeerGone {
                            rank: 1,
                            op: "all_reduce_sum"
                        })
                    );
                    assert_eq!(
                        received,
                        Err(Error::PeerGone {
                            rank: 1,
                            op: "recv"
                        })
                    );
                }
            }
        }
    }
}

#[test]
fn what_a_rank_sent_before_it_ended_still_arrives() {
    let mut comms = group(2);
    let (one, zero) = (comms.pop().unwrap(), comms.pop().unwrap());
    one.send(0, &[7.0]).unwrap();
    drop(one);
    let mut x = [0.0];
    zero.recv(1, &mut x).unwrap();
    assert_eq!(x, [7.0]);
    assert_eq!(
        zero.recv(1, &mut x),
        Err(Error::PeerGone {
            rank: 1,
            op: "recv"
        })
    );
}

#[test]
fn different_lengths_and_different_calls_name_both_ranks() {
    let results = each(3, |comm| {
        let mut x = vec![0.0; if comm.rank() == 2 { 4 } else { 3 }];
        comm.all_reduce_sum(&mut x)
    });
    let op = "all_reduce_sum";
    let want = Err(Error::Lengths {
        op,
        rank: 0,
        len: 3,
        other: 2,
        other_len: 4,
    });
    assert!(results.iter().all(|r| *r == want));
    let results = each(2, |comm| {
        if comm.rank() == 0 {
            comm.barrier()
        } else {
            comm.all_reduce_max(&mut [1.0])
        }
    });
    let (op, other_op) = ("barrier", "all_reduce_max");
    assert!(results.iter().all(|r| *r
        == Err(Error::Calls {
            rank: 0,
            op,
            other: 1,
            other_op
        })));
    let mut comms = group(2);
    let (one, zero) = (comms.pop().unwrap(), comms.pop().unwrap());
    one.send(0, &[1.0, 2.0]).unwrap();
    let found = zero.recv(1, &mut [0.0]);
    let want = Error::Lengths {
        op: "recv",
        rank: 0,
        len: 1,
        other: 1,
        other_len: 2,
    };
    assert_eq!(found, Err(want));
    assert!(matches!(
        zero.send(2, &[]),
        Err(Error::Argument { name: "to", .. })
    ));
}

/// A group with this deadline, of world ranks 4, 6 and 8.
fn hurried(watch: Watch) -> Vec<LocalComm> {
    watched(Roster {
        name: "tensor",
        members: vec![4, 6, 8],
        watch: Arc::new(watch),
        is_patient: false,
    })
}

#[test]
fn ranks_that_wait_for_each_other_name_who_did_not_come_and_the_step() {
    let watch = Watch::new(Some(Duration::from_millis(50)), Vec::new(), 0);
    watch.set_step(7);
    let late = std::thread::scope(|scope| {
        let waits = |comm: LocalComm| {
            scope.spawn(move || match comm.rank() {
                1 => comm.recv(0, &mut [0.0]),
                _ => comm.barrier(),
            })
        };
        let threads: Vec<_> = hurried(watch).into_iter().map(waits).collect();
        let ends = threads.into_iter().map(|t| t.join().unwrap().unwrap_err());
        ends.collect::<Vec<_>>()
    });
    let of = |rank, op: &str, missing| {
        format!(
            "watchdog: rank {rank} waited 0 s in {op} of its tensor group, step 7, for rank {missing}"
        )
    };
    let wanted = [of(4, "barrier", 6), of(6, "recv", 4), of(8, "barrier", 6)];
    // a rank that detects the circle leaves it; the others see that, unless they detect it as well
    let is_late = |error: &Error| matches!(error, Error::Late { .. });
    assert!(late.iter().any(is_late), "{late:?}");
    for (error, wanted) in late.iter().zip(wanted) {
        match error {
            Error::PeerGone { .. } => {}
            other => assert_eq!(other.to_string(), wanted),
        }
    }
}

#[test]
fn a_rank_that_computes_for_many_deadlines_is_waited_for() {
    // longer than a busy machine keeps a rank from showing that it computes
    let watch = Watch::new(Some(Duration::from_secs(1)), Vec::new(), 0);
    let late = std::thread::scope(|scope| {
        let meets = |comm: LocalComm| {
            scope.spawn(move || {
                if comm.rank() == 1 {
                    std::thread::sleep(Duration::from_secs(3));
                    comm.send(0, &[7.0]).unwrap();
                }
                if comm.rank() == 0 {
                    comm.recv(1, &mut [0.0]).unwrap();
                }
                // rank 2 has waited for both all the time
                comm.barrier()
            })
        };
        let threads: Vec<_> = hurried(watch).into_iter().map(meets).collect();
        let ends = threads.into_iter().map(|t| t.join().unwrap());
        ends.collect::<Vec<_>>()
    });
    assert_eq!(late, [Ok(()), Ok(()), Ok(())]);
}

//! Rates of this machine's CPU by the program's own kernels, for the planner: matrix products, memory, and collectives between
//! ranks that are threads of one process.
//!
//! A figure is the median of timings over a window of time, after one that is not counted. Ranks and their threads are those
//! of a training: a rank with all threads runs in `threads::work`, ranks beside each other have their shares of the threads.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use kernels::comm::local;
use kernels::matmul::{self, Numbers};
use kernels::{Collective, DType, Device, Tensor, copy, reduce};

use crate::config::precision::{Bf16Sums, Units};
use crate::dist::launch::cpu_path;
use crate::dist::threads;
use crate::error::{Error, OnRank, Result};

/// Figures of a machine, of all threads that the process has.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineRates {
    /// Threads that were measured.
    pub threads: usize,
    /// Instruction set of the kernels.
    pub isa: &'static str,
    /// Order of the sums of bf16 products, as `train.bf16_sums` names it.
    pub bf16_sums: &'static str,
    /// Products of f32.
    pub f32: ProductRates,
    /// Products of bf16.
    pub bf16: ProductRates,
    /// Bytes/s of memory that is only read, by a sum of squares.
    pub read: f64,
    /// Bytes/s of memory that is copied, read and written bytes together.
    pub copy: f64,
    /// Seconds of a product of the smallest matrices: the start of an op by one thread.
    pub op_seconds: f64,
    /// Seconds that all threads take for a small product beyond its operations at the rate of large ones: the start of an op that
    /// they share.
    pub shared_op_seconds: f64,
    /// Ranks of the collectives, threads of one process.
    pub ranks: usize,
    /// Seconds of an all-reduce of one number.
    pub collective_seconds: f64,
    /// Bytes/s of a rank in one direction in an all-reduce, as if it went in a ring: 2 (ranks - 1) / ranks of the bytes.
    pub reduce: f64,
}

/// Rates of products of square matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductRates {
    /// Rows, columns and inner dimension: 1024, or less where several such products take longer than the time of the figure.
    pub side: usize,
    /// FLOP/s of one rank with all threads.
    pub one_rank: f64,
    /// FLOP/s of one rank per thread, all together.
    pub all_ranks: f64,
}

/// Sizes of a measurement.
#[derive(Clone, Copy)]
struct Sizes {
    /// Most rows, columns and inner dimension of a product.
    side: usize,
    /// Numbers of a tensor that is larger than caches.
    large: usize,
    /// Numbers of an all-reduce.
    reduced: usize,
    /// Time of a figure.
    window: Duration,
}

/// Figures that share the time.
const FIGURES: u32 = 10;
/// Most ranks of the collectives: a planner asks for few ranks per node.
const MOST_RANKS: usize = 8;
/// Side of a product that threads share and that takes them little time.
const SHARED_SIDE: usize = 128;
/// Side of the first product that is tried.
const FIRST_SIDE: usize = 64;
/// Products that are to be timed in a window.
const TIMINGS: u32 = 6;

/// Measures this machine for about `time`, on the threads of the current pool.
///
/// # Errors
/// `Cpu` if `MILLRACE_CPU` names an instruction set that is not here; `Kernel` if the memory is too small for two tensors of
/// 256 MiB; `Threads`; `Request` for a figure whose time is not above 0, by its name.
pub fn measure(time: Duration) -> Result<MachineRates> {
    measure_at(Sizes {
        side: 1024,
        large: 64 << 20,
        reduced: 1 << 20,
        window: time / FIGURES,
    })
}

fn measure_at(sizes: Sizes) -> Result<MachineRates> {
    let path = cpu_path()?;
    let device = &Device::cpu_with(path.isa());
    let sums = Bf16Sums::Auto.on(Units::Cpu(path.isa()), true);
    let bf16 = match sums {
        Bf16Sums::Tiles => Numbers::Bf16Tiles,
        Bf16Sums::Pairs | Bf16Sums::Mma | Bf16Sums::Auto => Numbers::Bf16,
    };
    let count = rayon::current_num_threads();
    let products = |names: [&'static str; 2], numbers| -> Result<ProductRates> {
        let side = largest_side(names[0], numbers, device, sizes)?;
        let of = Sizes { side, ..sizes };
        Ok(ProductRates {
            side,
            one_rank: product_rate(names[0], numbers, (1, device), of)?,
            all_ranks: product_rate(names[1], numbers, (count, device), of)?,
        })
    };
    let ranks = count.clamp(2, MOST_RANKS);
    let all_reduce = |name, numbers| reduce_seconds(name, ranks, numbers, sizes.window);
    let ring = 2.0 * (ranks - 1) as f64 / ranks as f64;
    let single = products(
        ["f32 product of one rank", "f32 product of all ranks"],
        Numbers::F32,
    )?;
    let seconds = |name, side| -> Result<f64> {
        let of = Sizes { side, ..sizes };
        Ok(product_flop(side) / product_rate(name, Numbers::F32, (1, device), of)?)
    };
    let op_seconds = seconds("smallest product", 16)?;
    let small = seconds("small product", SHARED_SIDE)?;
    let shared_op_seconds = (small - product_flop(SHARED_SIDE) / single.one_rank).max(op_seconds);
    Ok(MachineRates {
        threads: count,
        isa: path.isa().name(),
        bf16_sums: sums.name(),
        f32: single,
        bf16: products(
            ["bf16 product of one rank", "bf16 product of all ranks"],
            bf16,
        )?,
        read: read_rate(device, sizes)?,
        copy: copy_rate(device, sizes)?,
        op_seconds,
        shared_op_seconds,
        ranks,
        collective_seconds: all_reduce("all-reduce of one number", 1)?,
        reduce: {
            let seconds = all_reduce("all-reduce of many numbers", sizes.reduced)?;
            ring * 4.0 * sizes.reduced as f64 / seconds
        },
    })
}

/// The largest side, of powers of two, of which several products are done in a window, also by ranks with one thread each.
fn largest_side(
    name: &'static str,
    numbers: Numbers,
    device: &Device,
    sizes: Sizes,
) -> Result<usize> {
    let threads = u32::try_from(rayon::current_num_threads()).unwrap_or(u32::MAX);
    let once = Sizes {
        window: Duration::ZERO,
        ..sizes
    };
    let mut side = FIRST_SIDE.min(sizes.side);
    while side < sizes.side {
        let of = Sizes { side, ..once };
        let seconds = product_flop(side) / product_rate(name, numbers, (1, device), of)?;
        // twice the side is eight times the work
        let next = 8.0 * seconds * f64::from(threads) * f64::from(TIMINGS);
        if next > sizes.window.as_secs_f64() {
            break;
        }
        side = (2 * side).min(sizes.side);
    }
    Ok(side)
}

fn product_flop(side: usize) -> f64 {
    2.0 * (side as f64).powi(3)
}

/// FLOP/s of products of `ranks` beside each other, each with its share of the threads, all together. Sums are trees of eight
/// leaves, as in training.
fn product_rate(
    name: &'static str,
    numbers: Numbers,
    (ranks, device): (usize, &Device),
    sizes: Sizes,
) -> Result<f64> {
    let side = sizes.side;
    let seconds = of_ranks(ranks, |rank| {
        let values: Vec<f32> = (0..side * side).map(|at| (at % 251) as f32).collect();
        let during = "measure a product";
        let matrix = || Tensor::from_f32(&[side, side], &values, device).on_rank(rank, during);
        let (a, b) = (matrix()?, matrix()?);
        let mut c = Tensor::zeros(&[side, side], DType::F32, device).on_rank(rank, during)?;
        median(name, sizes.window, || {
            let done = matmul::product(numbers, &mut c, &a, b.transposed(), side / 8, false);
            done.on_rank(rank, during)
        })
    })?;
    Ok(seconds.iter().map(|one| product_flop(side) / one).sum())
}

fn read_rate(device: &Device, sizes: Sizes) -> Result<f64> {
    let during = "measure reading";
    let seconds = of_ranks(1, |rank| {
        let x = Tensor::from_f32(&[sizes.large], &vec![1.0; sizes.large], device);
        let x = x.on_rank(rank, during)?;
        median("memory that is read", sizes.window, || {
            let sum = reduce::sum_squares(&[x.view()]).on_rank(rank, during)?;
            std::hint::black_box(sum);
            Ok(())
        })
    })?;
    Ok(4.0 * sizes.large as f64 / seconds[0])
}

fn copy_rate(device: &Device, sizes: Sizes) -> Result<f64> {
    let during = "measure a copy";
    let seconds = of_ranks(1, |rank| {
        let from = Tensor::from_f32(&[sizes.large], &vec![1.0; sizes.large], device);
        let from = from.on_rank(rank, during)?;
        let to = Tensor::zeros(&[sizes.large], DType::F32, device);
        let mut to = to.on_rank(rank, during)?;
        median("memory that is copied", sizes.window, || {
            copy(to.view_mut(), from.view()).on_rank(rank, during)
        })
    })?;
    Ok(8.0 * sizes.large as f64 / seconds[0])
}

/// Median seconds of an all-reduce between `ranks` threads. Rank 0 decides when to stop: its first number is 1 until then.
fn reduce_seconds(
    name: &'static str,
    ranks: usize,
    numbers: usize,
    window: Duration,
) -> Result<f64> {
    let group = local::group(ranks).into_iter().map(Some);
    let group = Mutex::new(group.collect::<Vec<_>>());
    let of_rank = |rank: usize| {
        let mut group = group.lock().expect("a rank takes its handle and no more");
        group[rank].take().expect("each rank takes its own handle")
    };
    let seconds = of_ranks(ranks, |rank| {
        let comm = of_rank(rank);
        let mut x = vec![0.0_f32; numbers];
        let (begun, mut timings) = (Instant::now(), Vec::new());
        loop {
            let goes_on = timings.is_empty() || begun.elapsed() < window;
            x[0] = f32::from(u8::from(rank == 0 && goes_on));
            let start = Instant::now();
            let done = comm.all_reduce_sum(&mut x);
            done.on_rank(rank, "measure a collective")?;
            if x[0] == 0.0 {
                return middle(name, timings);
            }
            timings.push(start.elapsed().as_secs_f64());
        }
    })?;
    Ok(seconds[0])
}

/// Runs `work` on a thread per rank, in its threads; the answers by rank, or the first error.
fn of_ranks(ranks: usize, work: impl Fn(usize) -> Result<f64> + Sync) -> Result<Vec<f64>> {
    thread::scope(|scope| {
        let pools: Result<Vec<_>> = (0..ranks)
            .map(|rank| {
                let pool = threads::of_rank(rank, ranks);
                pool.map_err(|source| Error::Threads { rank, source })
            })
            .collect();
        let work = &work;
        let running: Vec<_> = pools?
            .into_iter()
            .enumerate()
            .map(|(rank, pool)| scope.spawn(move || threads::work(&pool, || work(rank))))
            .collect();
        let joined = running.into_iter().enumerate().map(|(rank, thread)| {
            thread.join().unwrap_or_else(|_| {
                let message = "a measurement".to_owned();
                Err(Error::Panicked { rank, message })
            })
        });
        joined.collect()
    })
}

/// Median seconds of `work`, which is repeated for `window`, after once that does not count.
fn median(
    name: &'static str,
    window: Duration,
    mut work: impl FnMut() -> Result<()>,
) -> Result<f64> {
    work()?;
    let (begun, mut timings) = (Instant::now(), Vec::new());
    while timings.is_empty() || begun.elapsed() < window {
        let start = Instant::now();
        work()?;
        timings.push(start.elapsed().as_secs_f64());
    }
    middle(name, timings)
}

/// The median of timings, which must be above 0.
fn middle(name: &'static str, mut timings: Vec<f64>) -> Result<f64> {
    timings.sort_by(f64::total_cmp);
    let found = timings.get(timings.len() / 2).copied();
    match found {
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
        _ => Err(Error::Request {
            what: name,
            found: found.map_or("no time".into(), |seconds| format!("{seconds} s")),
            wanted: "a time above 0: the clock is too coarse, or does not run".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_a_short_measurement_is_a_rate() {
        let found = measure_at(Sizes {
            side: 64,
            large: 1 << 14,
            reduced: 1 << 10,
            window: Duration::from_millis(2),
        })
        .unwrap();
        assert_eq!((found.f32.side, found.bf16.side), (64, 64));
        assert_eq!(found.threads, rayon::current_num_threads());
        assert!((2..=MOST_RANKS).contains(&found.ranks));
        for rate in [
            found.f32.one_rank,
            found.bf16.one_rank,
            found.f32.all_ranks,
            found.bf16.all_ranks,
            found.read,
            found.copy,
            found.op_seconds,
            found.shared_op_seconds,
            found.collective_seconds,
            found.reduce,
        ] {
            assert!(rate.is_finite() && rate > 0.0, "{found:?}");
        }
    }

    #[test]
    fn products_are_as_large_as_the_time_allows() {
        let device = &Device::cpu_with(cpu_path().unwrap().isa());
        let side = |window| {
            let sizes = Sizes {
                side: 128,
                large: 1,
                reduced: 1,
                window,
            };
            largest_side("a product", Numbers::F32, device, sizes).unwrap()
        };
        assert_eq!(side(Duration::ZERO), FIRST_SIDE);
        assert_eq!(side(Duration::from_secs(3600)), 128);
    }

    #[test]
    fn times_that_are_no_times_are_refused_by_name() {
        assert_eq!(middle("a", vec![3.0, 1.0, 2.0]).unwrap(), 2.0);
        let bad: [&[f64]; 4] = [&[], &[0.0], &[f64::NAN], &[f64::INFINITY]];
        for timings in bad {
            let error = middle("memory that is read", timings.to_vec()).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("memory that is read: found"), "{text}");
        }
    }

    #[test]
    fn the_error_of_a_rank_is_the_answer() {
        let fails = |rank: usize| match rank {
            1 => middle("the second", Vec::new()),
            _ => Ok(1.0),
        };
        assert!(
            of_ranks(2, fails)
                .unwrap_err()
                .to_string()
                .contains("the second")
        );
        assert_eq!(of_ranks(2, |rank| Ok(rank as f64)).unwrap(), [0.0, 1.0]);
    }
}

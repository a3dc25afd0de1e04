//! Collectives of tensors. Those in host memory are passed to the group as they are, those on a GPU to its collectives
//! between GPUs (`gpu/`). A group without any stages them through host memory: a download, the same collective, an
//! upload. Sums have the tree by rank on each of these ways, unless NCCL may choose the order.

use std::ops::Range;

use crate::comm::gpu::DeviceCollective;
use crate::comm::{Collective, check_cuts_of, check_parts, check_peer};
use crate::trace::{Kind, Label, Span, span};
use crate::{DType, Device, Error, Result, Tensor, View, ViewMut};

/// A run of a rank's elements and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Elements of the rank's numbers.
    pub from: Range<usize>,
    /// Number of the target.
    pub target: usize,
    /// First element in the target, counted over all dims.
    pub at: usize,
}

/// The elements of `run` that are among `elements`, to target `target`, in which the run starts at `at`.
pub fn overlap(
    elements: &Range<usize>,
    run: &Range<usize>,
    at: usize,
    target: usize,
) -> Option<Part> {
    let from = elements.start.max(run.start)..elements.end.min(run.end);
    (!from.is_empty()).then(|| Part {
        at: at + from.start - run.start,
        target,
        from,
    })
}

/// The group's collectives between GPUs, if the tensor is on one and there are any.
fn between_gpus<'a>(
    group: &'a dyn Collective,
    device: &Device,
) -> Option<&'a dyn DeviceCollective> {
    match device.is_host() || group.size() == 1 {
        true => None,
        false => group.between_gpus().map(|group| group.0),
    }
}

/// The record of a collective that queues work on a GPU.
fn queued(group: &dyn DeviceCollective, op: &'static str, elements: usize) -> Span {
    let name = group.name();
    span(|| Label {
        group: Some(name),
        bytes: Some(elements * 4),
        ..Label::new(Kind::Collective, op)
    })
}

/// Checks the type of a tensor.
fn expect_f32(op: &'static str, dtype: DType) -> Result<()> {
    match dtype {
        DType::F32 => Ok(()),
        _ => Err(Error::DType {
            op,
            name: "x",
            found: dtype,
            wanted: DType::F32,
        }),
    }
}

/// Replaces x by the tree sum over ranks, elementwise.
/// # Errors
/// As `Collective::all_reduce_sum`; `DType` if x is no f32; `Driver` if the device fails.
pub fn all_reduce_sum(group: &dyn Collective, mut x: ViewMut<'_>) -> Result<()> {
    const OP: &str = "all_reduce_sum";
    if let Some(group) = between_gpus(group, x.device()) {
        expect_f32(OP, x.dtype())?;
        let _span = queued(group, OP, x.len());
        return group.all_reduce_sum(x);
    }
    x.edit(|x: &mut [f32]| group.all_reduce_sum(x))?
}

/// Replaces x by the maximum over ranks, elementwise.
/// # Errors
/// As `all_reduce_sum`.
pub fn all_reduce_max(group: &dyn Collective, mut x: ViewMut<'_>) -> Result<()> {
    const OP: &str = "all_reduce_max";
    if let Some(group) = between_gpus(group, x.device()) {
        expect_f32(OP, x.dtype())?;
        let _span = queued(group, OP, x.len());
        return group.all_reduce_max(x);
    }
    x.edit(|x: &mut [f32]| group.all_reduce_max(x))?
}

/// Writes this rank's part of the tree sum over ranks, as `Collective::reduce_scatter_sum`.
/// # Errors
/// As `Collective::reduce_scatter_sum`; `DType` if x or out is no f32; `Driver` if the device fails.
pub fn reduce_scatter_sum(
    group: &dyn Collective,
    x: View<'_>,
    cuts: &[usize],
    mut out: ViewMut<'_>,
) -> Result<()> {
    const OP: &str = "reduce_scatter_sum";
    if let Some(between) = between_gpus(group, x.device()) {
        check_cuts_of(group, x.len(), cuts, out.len())?;
        expect_f32(OP, x.dtype()).and(expect_f32(OP, out.dtype()))?;
        let _span = queued(between, OP, x.len());
        return between.reduce_scatter_sum(x, cuts, out);
    }
    let x = x.read::<f32>()?;
    out.renew(|out: &mut [f32]| group.reduce_scatter_sum(&x, cuts, out))?
}

/// Copies every rank's x, which has `lens[rank]` elements, to the destinations that `parts` names for a range of the
/// rank's elements; elements without a destination are dropped.
/// # Errors
/// As `Collective::all_gather_to`; `Argument` if a part is outside the range or its target, or `lens` are not those of
/// the ranks; `DType` if a tensor is no f32; `Driver` if the device fails.
pub fn all_gather(
    group: &dyn Collective,
    x: View<'_>,
    lens: &[usize],
    targets: &mut [&mut Tensor],
    parts: impl Fn(usize, Range<usize>) -> Vec<Part>,
) -> Result<()> {
    const OP: &str = "all_gather";
    if lens.len() != group.size() || lens[group.rank()] != x.len() {
        return Err(Error::Argument {
            op: OP,
            name: "lens",
            found: format!("{lens:?}"),
            wanted: format!("one for each of {} ranks, here {}", group.size(), x.len()),
        });
    }
    let outside = |part: &Part, range: Range<usize>| Error::Argument {
        op: OP,
        name: "parts",
        found: format!("{part:?}"),
        wanted: format!("elements {range:?}, and a target"),
    };
    if let Some(group) = between_gpus(group, x.device()) {
        expect_f32(OP, x.dtype())?;
        let _span = queued(group, OP, x.len());
        let on = x.device().gpu()?;
        return group.all_gather(x, lens, &mut |rank, piece| {
            for part in parts(rank, 0..piece.len) {
                let Some(target) = targets.get_mut(part.target) else {
                    return Err(outside(&part, 0..piece.len));
                };
                if part.from.start > part.from.end || part.from.end > piece.len {
                    return Err(outside(&part, 0..piece.len));
                }
                expect_f32(OP, target.dtype())?;
                let to = target.flat_mut(part.at..part.at + part.from.len())?;
                piece.copy_to(on, to.address(), part.from)?;
            }
            Ok(())
        });
    }
    let mut put = |rank: usize, start: usize, piece: &[f32]| -> Result<()> {
        for part in parts(rank, start..start + piece.len()) {
            let first = part.from.start.checked_sub(start);
            let from = first.and_then(|first| piece.get(first..first + part.from.len()));
            let target = targets.get_mut(part.target);
            let (Some(from), Some(target)) = (from, target) else {
                return Err(outside(&part, start..start + piece.len()));
            };
            let mut to = target.flat_mut(part.at..part.at + from.len())?;
            to.upload(from)?;
        }
        Ok(())
    };
    if x.device().is_host() {
        // pieces as they arrive, without a copy of all of them
        let mut done = Ok(());
        group.all_gather_to(x.host()?, &mut |rank, start, piece| {
            if done.is_ok() {
                done = put(rank, start, piece);
            }
        })?;
        return done;
    }
    for (rank, all) in all_gather_to_host(group, x)?.iter().enumerate() {
        put(rank, 0, all)?;
    }
    Ok(())
}

/// Returns every rank's x on the host, by rank; lengths may differ.
/// # Errors
/// As `Collective::all_gather`; `DType` if x is no f32; `Driver` if the device fails.
pub fn all_gather_to_host(group: &dyn Collective, x: View<'_>) -> Result<Vec<Vec<f32>>> {
    group.all_gather(&x.read()?)
}

/// Sends the runs `sent[r]` of x to rank r, and writes those that arrive from rank s to the runs `received[s]` of
/// `to`, both in their order. What a rank sends another is as long as what that one receives, and the received runs
/// are all of `to`.
/// # Errors
/// As `Collective::all_to_all`; `Argument` if a run is outside its tensor, or received numbers are more or fewer than
/// their runs hold; `DType` if a tensor is no f32; `Driver` if the device fails.
pub fn all_to_all(
    group: &dyn Collective,
    x: View<'_>,
    sent: &[Vec<Range<usize>>],
    to: &mut Tensor,
    received: &[Vec<Range<usize>>],
) -> Result<()> {
    let wrong = |name, found: String| Error::Argument {
        op: "all_to_all",
        name,
        found,
        wanted: "runs within their tensors, as long as what arrives".to_owned(),
    };
    let covered = received.iter().flatten().map(Range::len).sum::<usize>();
    if covered != to.elements() {
        return Err(wrong("received", format!("{covered} elements")));
    }
    if let Some(between) = between_gpus(group, x.device()) {
        const OP: &str = "all_to_all";
        check_parts(sent.len(), group.size()).and(check_parts(received.len(), group.size()))?;
        expect_f32(OP, x.dtype()).and(expect_f32(OP, to.dtype()))?;
        for (name, runs, len) in [("sent", sent, x.len()), ("received", received, covered)] {
            let is_inside = |run: &Range<usize>| run.start <= run.end && run.end <= len;
            if let Some(runs) = runs.iter().find(|runs| !runs.iter().all(is_inside)) {
                return Err(wrong(name, format!("{runs:?}")));
            }
        }
        let _span = queued(between, OP, x.len());
        return between.all_to_all(x, sent, to, received);
    }
    let numbers = x.read::<f32>()?;
    let mut parts = Vec::with_capacity(sent.len());
    for runs in sent {
        let mut part = Vec::with_capacity(runs.iter().map(Range::len).sum());
        for run in runs {
            let run = numbers.get(run.clone());
            part.extend_from_slice(run.ok_or_else(|| wrong("sent", format!("{runs:?}")))?);
        }
        parts.push(part);
    }
    drop(numbers);
    let arrived = group.all_to_all(parts)?;
    to.view_mut().renew(|to: &mut [f32]| {
        for (numbers, runs) in arrived.iter().zip(received) {
            let mut rest = numbers.as_slice();
            for run in runs {
                let (Some((some, later)), Some(to)) =
                    (rest.split_at_checked(run.len()), to.get_mut(run.clone()))
                else {
                    return Err(wrong("received", format!("{runs:?}")));
                };
                to.copy_from_slice(some);
                rest = later;
            }
            if !rest.is_empty() {
                return Err(wrong("received", format!("{runs:?}")));
            }
        }
        Ok(())
    })?
}

/// Sends x to a rank; never waits for it.
/// # Errors
/// As `Collective::send`; `DType` if x is no f32; `Driver` if the device fails.
pub fn send(group: &dyn Collective, to: usize, x: View<'_>) -> Result<()> {
    if let Some(between) = between_gpus(group, x.device()) {
        check_peer(group, "send", "to", to)?;
        expect_f32("send", x.dtype())?;
        let _span = queued(between, "send", x.len());
        return between.send(to, x);
    }
    group.send(to, &x.read()?)
}

/// Waits for the next message of a rank.
/// # Errors
/// As `Collective::recv`; `DType` if x is no f32; `Driver` if the device fails.
pub fn recv(group: &dyn Collective, from: usize, mut x: ViewMut<'_>) -> Result<()> {
    if let Some(between) = between_gpus(group, x.device()) {
        check_peer(group, "recv", "from", from)?;
        expect_f32("recv", x.dtype())?;
        let _span = queued(between, "recv", x.len());
        return between.recv(from, x);
    }
    x.renew(|x: &mut [f32]| group.recv(from, x))?
}

/// Replaces x by root's.
/// # Errors
/// As `Collective::broadcast`; `DType` if x is no f32; `Driver` if the device fails.
pub fn broadcast(group: &dyn Collective, mut x: ViewMut<'_>, root: usize) -> Result<()> {
    if let Some(between) = between_gpus(group, x.device()) {
        check_peer(group, "broadcast", "root", root)?;
        expect_f32("broadcast", x.dtype())?;
        let _span = queued(between, "broadcast", x.len());
        return between.broadcast(x, root);
    }
    x.edit(|x: &mut [f32]| group.broadcast(x, root))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::local;
    use crate::testing::{all_devices, values};
    use crate::{DType, Device};
    use std::thread;

    /// Runs `one` on every rank of a group of three.
    fn on_all<T: Send>(one: impl Fn(&dyn Collective) -> T + Sync) -> Vec<T> {
        let one = &one;
        thread::scope(|scope| {
            let ranks = local::group(3).into_iter();
            let threads: Vec<_> = ranks.map(|rank| scope.spawn(move || one(&rank))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    fn one_run(run: Range<usize>) -> Vec<Range<usize>> {
        std::iter::once(run).collect()
    }

    /// `rank`.0, `rank`.1 and so on.
    fn numbers(rank: usize, len: usize, device: &Device) -> Tensor {
        let of = |i: usize| rank as f32 + i as f32 / 16.0;
        let all: Vec<f32> = (0..len).map(of).collect();
        Tensor::from_f32(&[len], &all, device).unwrap()
    }

    #[test]
    fn sums_and_messages_are_the_groups_on_every_device() {
        for device in all_devices() {
            let found = on_all(|group| {
                let mut x = numbers(group.rank(), 6, &device);
                all_reduce_sum(group, x.flat_mut(1..5).unwrap()).unwrap();
                let mut part = Tensor::zeros(&[4], DType::F32, &device).unwrap();
                let width = [1, 0, 3][group.rank()];
                let out = part.flat_mut(1..1 + width).unwrap();
                let own = numbers(group.rank(), 4, &device);
                reduce_scatter_sum(group, own.view(), &[0, 1, 1, 4], out).unwrap();
                let mut max = numbers(group.rank(), 2, &device);
                all_reduce_max(group, max.view_mut()).unwrap();
                let next = (group.rank() + 1) % 3;
                send(group, next, own.flat(2..4).unwrap()).unwrap();
                let mut got = Tensor::zeros(&[2], DType::F32, &device).unwrap();
                recv(group, (group.rank() + 2) % 3, got.view_mut()).unwrap();
                let mut roots = numbers(group.rank(), 2, &device);
                broadcast(group, roots.view_mut(), 1).unwrap();
                [x, part, max, got, roots].map(|x| values(&x))
            });
            let of = |rank: usize, i: usize| rank as f32 + i as f32 / 16.0;
            let sum = |i: usize| of(0, i) + of(1, i) + of(2, i);
            for (rank, [x, part, max, got, roots]) in found.into_iter().enumerate() {
                let want = [of(rank, 0), sum(1), sum(2), sum(3), sum(4), of(rank, 5)];
                assert_eq!(x, want, "{device:?}");
                let want = [
                    [0.0, sum(0), 0.0, 0.0],
                    [0.0; 4],
                    [0.0, sum(1), sum(2), sum(3)],
                ];
                assert_eq!(part, want[rank], "{device:?}");
                assert_eq!(max, [of(2, 0), of(2, 1)]);
                let before = (rank + 2) % 3;
                assert_eq!(got, [of(before, 2), of(before, 3)]);
                assert_eq!(roots, [of(1, 0), of(1, 1)]);
            }
        }
    }

    #[test]
    fn gathered_and_exchanged_runs_land_where_they_are_to() {
        for device in all_devices() {
            let found = on_all(|group| {
                // rank r has r + 1 numbers, the odd ones of which go to the second target
                let own = numbers(group.rank(), group.rank() + 1, &device);
                let zeros = || Tensor::zeros(&[9], DType::F32, &device).unwrap();
                let (mut even, mut odd) = (zeros(), zeros());
                let mut targets = [&mut even, &mut odd];
                all_gather(
                    group,
                    own.view(),
                    &[1, 2, 3],
                    &mut targets,
                    |rank, range| {
                        let part = |at: usize| Part {
                            from: at..at + 1,
                            target: at % 2,
                            at: 3 * rank + at,
                        };
                        range.map(part).collect()
                    },
                )
                .unwrap();
                // to rank r the run of r + 1 numbers, in two runs that are swapped on the way
                let own = numbers(group.rank(), 6, &device);
                let sent = [one_run(0..1), vec![2..3, 1..2], vec![3..5, 5..6]];
                let len = group.rank() + 1;
                let received: Vec<_> = (0..3).map(|s| one_run(s * len..(s + 1) * len)).collect();
                let mut to = Tensor::zeros(&[3 * len], DType::F32, &device).unwrap();
                all_to_all(group, own.view(), &sent, &mut to, &received).unwrap();
                let few = [one_run(0..0), vec![], vec![]];
                assert!(all_to_all(group, own.view(), &sent, &mut to, &few).is_err());
                [even, odd, to].map(|x| values(&x))
            });
            let of = |rank: usize, i: usize| rank as f32 + i as f32 / 16.0;
            for (rank, [even, odd, to]) in found.into_iter().enumerate() {
                let want = [of(0, 0), 0.0, 0.0, of(1, 0), 0.0, 0.0, of(2, 0), 0.0];
                assert_eq!(even[..8], want, "{device:?}");
                assert_eq!((even[8], odd[4], odd[7]), (of(2, 2), of(1, 1), of(2, 1)));
                let order = [&[0][..], &[2, 1], &[3, 4, 5]][rank];
                let want: Vec<f32> = (0..3)
                    .flat_map(|sender| order.iter().map(move |&i| of(sender, i)))
                    .collect();
                assert_eq!(to, want, "{device:?}");
            }
        }
    }
}

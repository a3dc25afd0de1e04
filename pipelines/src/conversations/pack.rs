//! Packing: conversations that share a sample.
//!
//! Best-fit decreasing: from the longest on, each goes into the sample with the least room left that holds it (Ding et al.
//! 2024, arXiv:2404.10830, sec. 3; TRL's `packing_strategy = "bfd"`).

use std::collections::BTreeSet;

/// Numbers of the conversations of each sample, whose lengths add up to at most `room`. No length is above it. Equal lengths
/// keep their order, and so do samples with equal room, of which the oldest is taken.
pub(crate) fn pack(lengths: &[usize], room: usize) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0..u32::try_from(lengths.len()).unwrap_or(u32::MAX)).collect();
    order.sort_by_key(|&number| std::cmp::Reverse(lengths[number as usize]));
    let mut samples: Vec<Vec<u32>> = Vec::new();
    // room left, number of the sample
    let mut left: BTreeSet<(usize, usize)> = BTreeSet::new();
    for number in order {
        let length = lengths[number as usize];
        let fits = left.range((length, 0)..).next().copied();
        let (room, sample) = match fits {
            Some(best) => {
                left.remove(&best);
                best
            }
            None => {
                samples.push(Vec::new());
                (room, samples.len() - 1)
            }
        };
        samples[sample].push(number);
        if let Some(room) = room.checked_sub(length).filter(|room| *room > 0) {
            left.insert((room, sample));
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: every sample is looked at.
    fn slow(lengths: &[usize], room: usize) -> Vec<Vec<u32>> {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|&number| std::cmp::Reverse(lengths[number]));
        let mut samples: Vec<(usize, Vec<u32>)> = Vec::new();
        for number in order {
            let best = samples
                .iter_mut()
                .filter(|(left, _)| *left >= lengths[number] && *left > 0)
                .min_by_key(|(left, _)| *left);
            match best {
                Some((left, sample)) => {
                    *left -= lengths[number];
                    sample.push(u32::try_from(number).unwrap());
                }
                None => {
                    samples.push((room - lengths[number], vec![u32::try_from(number).unwrap()]))
                }
            }
        }
        samples.into_iter().map(|(_, sample)| sample).collect()
    }

    #[test]
    fn every_conversation_is_in_one_sample_as_best_fit_decreasing_says() {
        for (count, room) in [(0, 5), (1, 5), (40, 7), (300, 64), (500, 33)] {
            let lengths: Vec<usize> = (0..count).map(|i| 1 + i * i * 7 % room).collect();
            let found = pack(&lengths, room);
            assert_eq!(found, slow(&lengths, room));
            let mut all: Vec<u32> = found.iter().flatten().copied().collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..u32::try_from(count).unwrap()));
            let fill =
                |sample: &Vec<u32>| sample.iter().map(|n| lengths[*n as usize]).sum::<usize>();
            assert!(found.iter().all(|sample| fill(sample) <= room));
        }
        assert_eq!(pack(&[3, 5, 2, 4, 1], 5), [vec![1], vec![3, 4], vec![0, 2]]);
    }
}

//! Even batches (MT-NLG's correction): every global batch has each dataset's share.
//!
//! Every batch of B samples has floor(w_d B) or ceil(w_d B) samples of dataset d; the fractions go to the datasets
//! with the largest deficit from earlier batches. Within a batch the order is the greedy one, among datasets with
//! samples left.
//! Source: Smith et al. 2022, arXiv:2201.11990, sec. 3.1 (the idea; the paper gives no rule for fractions).

use super::order::Columns;
use crate::array::Array;
use crate::error::Result;

/// The order of `size` samples by normalised weights in batches of `batch`.
pub(super) fn batched(weights: &[f64], size: u64, batch: u64) -> Result<Columns> {
    let mut dataset = Array::zeros("dataset_index", size)?;
    let mut sample = Array::zeros("dataset_sample_index", size)?;
    let mut rows = dataset.as_mut().iter_mut().zip(sample.as_mut());
    let mut taken = vec![0u64; weights.len()];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 <= w <= 1, so at most a batch"
    )]
    let whole: Vec<u64> = weights.iter().map(|w| (w * batch as f64) as u64).collect();
    let mut m = 0u64;
    while m < size {
        let mut left = whole.clone();
        let owed = |d: usize| weights[d] * (m + batch) as f64 - (taken[d] + whole[d]) as f64;
        let mut most_owed: Vec<usize> = (0..weights.len()).collect();
        most_owed.sort_by(|a, b| owed(*b).total_cmp(&owed(*a)).then(a.cmp(b)));
        let spare = batch.saturating_sub(whole.iter().sum());
        for d in most_owed
            .into_iter()
            .cycle()
            .take(usize::try_from(spare).unwrap_or(0))
        {
            left[d] += 1;
        }
        for _ in 0..batch {
            let error = |d: &usize| weights[*d] * m.max(1) as f64 - taken[*d] as f64;
            let open = (0..weights.len()).filter(|d| left[*d] > 0);
            let pick = open.reduce(|a, b| if error(&b) > error(&a) { b } else { a });
            let (Some(d), Some((dataset, sample))) = (pick, rows.next()) else {
                break;
            };
            *dataset = i16::try_from(d).unwrap_or(i16::MAX);
            *sample = i64::try_from(taken[d]).unwrap_or(i64::MAX);
            taken[d] += 1;
            left[d] -= 1;
            m += 1;
        }
    }
    Ok((dataset, sample))
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_batch_has_each_datasets_share_within_one(
            raw in proptest::collection::vec(1u32..1000, 1..20),
            batch in 1u64..100,
        ) {
            let sum: u32 = raw.iter().sum();
            let weights: Vec<f64> = raw.iter().map(|w| f64::from(*w) / f64::from(sum)).collect();
            let size = 40 * batch;
            let (d, k) = batched(&weights, size, batch).unwrap();
            let mut taken = vec![0; weights.len()];
            for part in d.chunks(batch as usize) {
                let mut counts = vec![0u64; weights.len()];
                part.iter().for_each(|d| counts[*d as usize] += 1);
                for (n, w) in counts.iter().zip(&weights) {
                    let share = w * batch as f64;
                    proptest::prop_assert!((*n as f64 - share).abs() < 1.0 + 1e-9, "{n} of {share}");
                }
            }
            for (d, k) in d.iter().zip(&k[..]) {
                proptest::prop_assert_eq!(taken[*d as usize], *k);
                taken[*d as usize] += 1;
            }
            for (n, w) in taken.iter().zip(&weights) {
                let owed = w * size as f64 - *n as f64;
                proptest::prop_assert!(owed.abs() < 2.0, "{owed} behind after 40 batches");
            }
        }
    }
}

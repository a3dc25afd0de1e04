//! Products of embeddings.

/// The product of two vectors of one width: the same bits on every processor, since each of sixteen sums is one chain.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum += a * b;
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::dot;

    #[test]
    fn a_product_of_any_width_is_near_that_of_f64() {
        for width in [1, 7, 16, 17, 100] {
            let a: Vec<f32> = (0..width).map(|i| (i as f32 * 0.7).sin()).collect();
            let b: Vec<f32> = (0..width).map(|i| (i as f32 * 1.3).cos()).collect();
            let pairs = a.iter().zip(&b);
            let wanted: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((f64::from(dot(&a, &b)) - wanted).abs() < 1e-5, "{width}");
        }
    }
}

//! Statistics of the inputs of a linear layer over the calibration texts.

use kernels::matmul::{Numbers, Op, product};
use kernels::{DType, Device, Tensor};

/// Statistics of one layer's inputs x, `[rows, n]`.
pub(super) struct Inputs {
    /// Sum over rows of the size of each input.
    sizes: Vec<f64>,
    /// Largest size of each input.
    pub largest: Vec<f32>,
    /// X^T X, `[n, n]`, if it is asked for.
    pub products: Option<Vec<f64>>,
    rows: usize,
}

impl Inputs {
    /// Of n inputs.
    pub(super) fn new(n: usize, has_products: bool) -> Inputs {
        Inputs {
            sizes: vec![0.0; n],
            largest: vec![0.0; n],
            products: has_products.then(|| vec![0.0; n * n]),
            rows: 0,
        }
    }

    /// Number of inputs.
    pub(super) fn count(&self) -> usize {
        self.sizes.len()
    }

    /// Adds the rows of one text, x: `[t, n]`; of an expert that no token chose there are none. Products are summed in f32 within a text and in f64 over texts, in their order.
    pub(super) fn add(&mut self, x: &Tensor) -> kernels::Result<()> {
        let n = self.count();
        if x.dims()[0] == 0 {
            return Ok(());
        }
        let values: Vec<f32> = x.download()?;
        for row in values.chunks(n) {
            let own = self.sizes.iter_mut().zip(&mut self.largest).zip(row);
            for ((sum, largest), value) in own {
                *sum += f64::from(value.abs());
                *largest = largest.max(value.abs());
            }
        }
        self.rows += values.len() / n;
        if let Some(products) = &mut self.products {
            let mut c = Tensor::empty(&[n, n], DType::F32, x.device())?;
            let (a, b) = ((x, Op::Transposed), (x, Op::Plain));
            product(Numbers::F32, &mut c, a, b, 0, false)?;
            let own: Vec<f32> = c.download()?;
            let all = products.iter_mut().zip(own);
            all.for_each(|(sum, value)| *sum += f64::from(value));
        }
        Ok(())
    }

    /// Mean size of each input.
    pub(super) fn means(&self) -> Vec<f64> {
        let rows = self.rows.max(1) as f64;
        self.sizes.iter().map(|sum| sum / rows).collect()
    }

    /// Whether all of them were finite.
    pub(super) fn are_finite(&self) -> bool {
        self.sizes.iter().all(|sum| sum.is_finite())
            && self.products.iter().flatten().all(|x| x.is_finite())
    }
}

/// Measures how far other weights move a layer's outputs.
pub(super) struct OutputError {
    /// X^T X: `[n, n]`
    products: Tensor,
}

impl OutputError {
    /// `None` without products.
    pub(super) fn new(inputs: &Inputs, device: &Device) -> kernels::Result<Option<OutputError>> {
        let Some(products) = &inputs.products else {
            return Ok(None);
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a measure needs no more digits"
        )]
        let single: Vec<f32> = products.iter().map(|x| *x as f32).collect();
        let n = inputs.count();
        let products = Tensor::from_f32(&[n, n], &single, device)?;
        Ok(Some(OutputError { products }))
    }

    /// Sum of the squares of X d for each row d of differences `[out, n]`.
    pub(super) fn of(&self, differences: &[f32]) -> kernels::Result<f64> {
        let n = self.products.dims()[0];
        let rows = differences.len() / n;
        let d = Tensor::from_f32(&[rows, n], differences, self.products.device())?;
        let mut c = Tensor::empty(&[rows, n], DType::F32, self.products.device())?;
        let (a, b) = ((&d, Op::Plain), (&self.products, Op::Plain));
        product(Numbers::F32, &mut c, a, b, 0, false)?;
        let found: Vec<f32> = c.download()?;
        let pairs = found.iter().zip(differences);
        Ok(pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum())
    }
}

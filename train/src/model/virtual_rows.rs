//! Rows of virtual tokens: a trained table (prompt tuning), or what an encoder makes of it (p-tuning): three linear layers with ReLU,
//! or a bidirectional LSTM (`lstm.rs`) and two of them, as PEFT's `PromptEncoder`. Tasks share the encoder, as in NeMo. Every rank has all of it.
//!
//! The encoder runs once per pass, whatever the batch. Backwards it runs for each leaf of tokens apart: the gradients of a leaf's rows
//! are summed over its tokens, the encoder's weights get the product over the rows of each leaf, and these are added in the tree of
//! tokens, so that every layout gives the same bits. Letters: v virtual tokens, l leaves.

use kernels::activation::{self, Kind};
use kernels::matmul::{Op, matmul};
use kernels::{DType, Tensor, add, embedding, reduce};

use crate::config::plan::Plan;
use crate::config::prompt::{FIRST_VIRTUAL, head_name};
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::leaf_rows::LeafRows;
use crate::model::lstm::{self, Lstm};
use crate::model::param;
use crate::model::slots::{Slot, Slots};

/// Rows of virtual tokens.
pub(crate) struct VirtualRows {
    /// `[v, d]`
    table: Slot,
    encoder: Option<Encoder>,
}

struct Encoder {
    lstm: Option<Lstm>,
    head: Vec<Linear>,
}

/// A linear layer that every rank has whole.
struct Linear {
    /// `[out, in]`
    weight: Slot,
    bias: Slot,
}

/// Results of the encoder on the way to its rows.
struct Saved {
    lstm: Option<lstm::Saved>,
    /// Input of each linear layer, `[v, in]`.
    inputs: Vec<Tensor>,
    /// Products of each linear layer, `[v, out]`, without the bias.
    products: Vec<Tensor>,
}

impl VirtualRows {
    /// Those of a model that has virtual tokens.
    pub(crate) fn named(plan: &Plan, slots: &Slots<'_>) -> Option<VirtualRows> {
        let prompt = plan.model.prompt.as_ref()?;
        let d = plan.model.d_model;
        let encoder = prompt.encoder.map(|encoder| {
            let layers = 0..encoder.head(d).len();
            let head = layers.map(|layer| {
                let name = head_name(2 * layer);
                Linear {
                    weight: slots.get(&format!("{name}.weight")),
                    bias: slots.get(&format!("{name}.bias")),
                }
            });
            Encoder {
                lstm: Lstm::named(prompt, d, slots),
                head: head.collect(),
            }
        });
        Some(VirtualRows {
            table: slots.get(param::PROMPT),
            encoder,
        })
    }

    /// ids: `[n]` -> `[n, d]`, zero for ids of the vocabulary
    pub(crate) fn forward(&self, ids: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let first = FIRST_VIRTUAL as usize;
        match &self.encoder {
            None => embedding::forward(cx.weight(self.table), ids, first),
            Some(encoder) => {
                let (rows, _) = encoder.forward(cx.weight(self.table), cx)?;
                embedding::forward(&rows, ids, first)
            }
        }
    }

    /// The rows of all virtual tokens: `[v, d]`.
    pub(crate) fn all(&self, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let table = cx.weight(self.table);
        match &self.encoder {
            None => table.try_clone(),
            Some(encoder) => Ok(encoder.forward(table, cx)?.0),
        }
    }

    /// dx: `[n, d]`, the gradient of the rows of these ids, `[n]`.
    pub(crate) fn backward(
        &self,
        dx: &Tensor,
        ids: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let leaf = cx.sums.token_leaf;
        let Some(encoder) = &self.encoder else {
            let [dtable] = gradients.sums([self.table])?;
            return embedding::backward(dtable, dx, ids, FIRST_VIRTUAL as usize, leaf);
        };
        let table = cx.weight(self.table);
        let (count, n) = (table.dims()[0], ids.elements());
        let leaf = if leaf == 0 { n } else { leaf };
        let rows = n.div_ceil(leaf) * count;
        let number = |row: usize| u32::try_from(row).expect("a batch has fewer than 2^32 rows");
        let of_leaves: Vec<u32> = (ids.download::<u32>()?.into_iter().enumerate())
            .map(|(at, id)| match id.checked_sub(FIRST_VIRTUAL) {
                Some(own) => number(at / leaf * count) + own,
                None => u32::MAX,
            })
            .collect();
        let of_leaves = Tensor::from_u32(&[n], &of_leaves, ids.device())?;
        let mut dy = Tensor::zeros(&[rows, dx.dims()[1]], DType::F32, dx.device())?;
        embedding::backward(&mut dy, dx, &of_leaves, 0, leaf)?;
        let numbers: Vec<u32> = (0..rows).map(|row| number(row % count)).collect();
        let leaves = LeafRows {
            numbers: Tensor::from_u32(&[rows], &numbers, ids.device())?,
            count,
        };
        let (_, saved) = encoder.forward(table, cx)?;
        let dtable = encoder.backward(dy, saved, &leaves, gradients, cx)?;
        let [sum] = gradients.sums([self.table])?;
        embedding::backward(sum, &dtable, &leaves.numbers, 0, count)
    }
}

impl Encoder {
    /// x: `[v, d]` -> `[v, d]`
    fn forward(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let mut saved = Saved {
            lstm: None,
            inputs: Vec::new(),
            products: Vec::new(),
        };
        let mut x = match &self.lstm {
            None => x.try_clone()?,
            Some(lstm) => {
                let (y, of_lstm) = lstm.forward(x, cx)?;
                saved.lstm = Some(of_lstm);
                y
            }
        };
        for (number, linear) in self.head.iter().enumerate() {
            let weight = cx.weight(linear.weight);
            let dims = [x.dims()[0], weight.dims()[0]];
            let mut product = Tensor::empty(&dims, DType::F32, x.device())?;
            matmul(&mut product, &x, (weight, Op::Transposed), 0, false)?;
            saved.inputs.push(x);
            let bias = cx.weight(linear.bias);
            if number + 1 == self.head.len() {
                add::bias(&mut product, bias)?;
                return Ok((product, saved));
            }
            x = activation::forward(&product, Some(bias), Kind::Relu)?;
            saved.products.push(product);
        }
        Ok((x, saved))
    }

    /// dy: `[l * v, d]` -> the gradient of the input, `[l * v, d]`
    fn backward(
        &self,
        mut dy: Tensor,
        saved: Saved,
        leaves: &LeafRows,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        for (number, linear) in self.head.iter().enumerate().rev() {
            if let Some(product) = saved.products.get(number) {
                let product = leaves.repeated(product)?;
                let bias = cx.weight(linear.bias);
                dy = activation::backward(&dy, &product, Some(bias), Kind::Relu)?;
            }
            let x = leaves.repeated(&saved.inputs[number])?;
            let (dweight, accumulate) = gradients.target(linear.weight);
            matmul(dweight, (&dy, Op::Transposed), &x, leaves.count, accumulate)?;
            let (dbias, accumulate) = gradients.target(linear.bias);
            reduce::sum_rows(dbias, &dy, leaves.count, accumulate)?;
            let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
            matmul(&mut dx, &dy, cx.weight(linear.weight), 0, false)?;
            dy = dx;
        }
        match (&self.lstm, saved.lstm) {
            (Some(lstm), Some(saved)) => lstm.backward(&dy, &saved, leaves, gradients, cx),
            _ => Ok(dy),
        }
    }
}

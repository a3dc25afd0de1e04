//! Bidirectional LSTM over the virtual tokens, as torch's (`torch.nn.LSTM`): gates i, f, g, o = x W_ih^T + b_ih + h W_hh^T + b_hh,
//! c = sigmoid(f) c' + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c), zero before the first token; both directions side by side.
//! Paper: Hochreiter and Schmidhuber 1997, Neural Computation 9(8); Graves and Schmidhuber 2005 (both directions).
//!
//! With several tasks, each has a sequence of its own: the state is zero again before its first token, in both directions.
//!
//! There are a few dozen tokens: products are the device's, the gates of a token are computed on the host, in f64.
//! Letters: v virtual tokens, l leaves (`leaf_rows.rs`), h hidden features.

use kernels::matmul::{Op, matmul};
use kernels::{DType, Device, Tensor, reduce};

use crate::config::PromptConfig;
use crate::config::prompt::lstm_name;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::leaf_rows::LeafRows;
use crate::model::slots::{Slot, Slots};

/// All layers, each with both directions.
pub(super) struct Lstm {
    layers: Vec<[Direction; 2]>,
    hidden: usize,
}

struct Direction {
    /// `[4 h, in]`
    weight_ih: Slot,
    /// `[4 h, h]`
    weight_hh: Slot,
    bias_ih: Slot,
    bias_hh: Slot,
    is_reverse: bool,
    /// For each token, whether it is the first of its task in this direction: `[v]`.
    is_first: Vec<bool>,
}

/// Kept of each layer.
pub(super) struct Saved(Vec<SavedLayer>);

struct SavedLayer {
    /// `[v, in]`
    x: Tensor,
    directions: [States; 2],
}

/// Of one direction, by token.
struct States {
    /// `[v, 4 h]`, after the sigmoid or tanh.
    gates: Vec<f32>,
    /// `[v, h]`
    cells: Vec<f32>,
    /// `[v, h]`: the h of the token before in this direction.
    before: Vec<f32>,
}

/// The arithmetic of one value, in f64.
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
fn narrow(x: f64) -> f32 {
    x as f32
}

impl Lstm {
    /// That of an encoder that has one.
    pub(super) fn named(prompt: &PromptConfig, d: usize, slots: &Slots<'_>) -> Option<Lstm> {
        let encoder = prompt.encoder.as_ref()?;
        let widths = encoder.lstm(d);
        let first = prompt.first_rows();
        // the last of a task is in front of the first of the next one
        let last = first
            .iter()
            .skip(1)
            .chain([&true])
            .copied()
            .collect::<Vec<bool>>();
        if widths.is_empty() {
            return None;
        }
        let direction = |layer: usize, is_reverse: bool| {
            let slot = |weight: &str| slots.get(&lstm_name(weight, layer, is_reverse));
            Direction {
                weight_ih: slot("weight_ih"),
                weight_hh: slot("weight_hh"),
                bias_ih: slot("bias_ih"),
                bias_hh: slot("bias_hh"),
                is_reverse,
                is_first: if is_reverse { &last } else { &first }.clone(),
            }
        };
        let layers = (0..widths.len()).map(|layer| [false, true].map(|is| direction(layer, is)));
        Some(Lstm {
            layers: layers.collect(),
            hidden: encoder.hidden(d),
        })
    }

    /// x: `[v, d]` -> `[v, 2 h]`
    pub(super) fn forward(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (v, h, device) = (x.dims()[0], self.hidden, x.device());
        let mut x = x.try_clone()?;
        let mut saved = Vec::new();
        for layer in &self.layers {
            let mut y = vec![0.0; v * 2 * h];
            let mut run = |direction: &Direction| -> kernels::Result<States> {
                let (states, last) = direction.forward(&x, h, cx)?;
                let side = if direction.is_reverse { h } else { 0 };
                for (row, hidden) in y.chunks_mut(2 * h).zip(last.chunks(h)) {
                    row[side..side + h].copy_from_slice(hidden);
                }
                Ok(states)
            };
            let directions = [run(&layer[0])?, run(&layer[1])?];
            let y = Tensor::from_f32(&[v, 2 * h], &y, device)?;
            let x = std::mem::replace(&mut x, y);
            saved.push(SavedLayer { x, directions });
        }
        Ok((x, Saved(saved)))
    }

    /// dy: `[l * v, 2 h]` -> the gradient of the input, `[l * v, d]`
    pub(super) fn backward(
        &self,
        dy: &Tensor,
        saved: &Saved,
        leaves: &LeafRows,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let mut dy = dy.try_clone()?;
        for (layer, saved) in self.layers.iter().zip(&saved.0).rev() {
            let x = leaves.repeated(&saved.x)?;
            let mut dx = Tensor::zeros(x.dims(), DType::F32, x.device())?;
            for (direction, states) in layer.iter().zip(&saved.directions) {
                let dgates = direction.backward(&dy, states, leaves.count, cx)?;
                direction.add_gradients(&dgates, &x, states, leaves, gradients)?;
                matmul(&mut dx, &dgates, cx.weight(direction.weight_ih), 0, true)?;
            }
            dy = dx;
        }
        Ok(dy)
    }
}

impl Direction {
    /// The tokens in the order of this direction.
    fn order(&self, v: usize) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let is_reverse = self.is_reverse;
        (0..v).map(move |at| if is_reverse { v - 1 - at } else { at })
    }

    /// x: `[v, in]` -> the states, and h of each token: `[v, h]`
    fn forward(
        &self,
        x: &Tensor,
        h: usize,
        cx: &Context<'_>,
    ) -> kernels::Result<(States, Vec<f32>)> {
        let (v, device) = (x.dims()[0], x.device());
        let mut inputs = Tensor::empty(&[v, 4 * h], DType::F32, device)?;
        let weight = cx.weight(self.weight_ih);
        matmul(&mut inputs, x, (weight, Op::Transposed), 0, false)?;
        let inputs = inputs.download::<f32>()?;
        let [of_input, of_state] =
            [self.bias_ih, self.bias_hh].map(|bias| cx.weight(bias).download::<f32>());
        let (of_input, of_state) = (of_input?, of_state?);
        let mut states = States {
            gates: vec![0.0; v * 4 * h],
            cells: vec![0.0; v * h],
            before: vec![0.0; v * h],
        };
        let mut all = vec![0.0; v * h];
        let (mut hidden, mut cell) = (vec![0.0f32; h], vec![0.0f32; h]);
        for token in self.order(v) {
            if self.is_first[token] {
                hidden.fill(0.0);
                cell.fill(0.0);
            }
            states.before[token * h..(token + 1) * h].copy_from_slice(&hidden);
            let of = Tensor::from_f32(&[1, h], &hidden, device)?;
            let mut product = Tensor::empty(&[1, 4 * h], DType::F32, device)?;
            let weight = cx.weight(self.weight_hh);
            matmul(&mut product, &of, (weight, Op::Transposed), 0, false)?;
            let product = product.download::<f32>()?;
            let gates = &mut states.gates[token * 4 * h..(token + 1) * 4 * h];
            for (at, gate) in gates.iter_mut().enumerate() {
                let parts = [
                    inputs[token * 4 * h + at],
                    of_input[at],
                    product[at],
                    of_state[at],
                ];
                let sum: f64 = parts.into_iter().map(f64::from).sum();
                *gate = match at / h {
                    2 => narrow(sum.tanh()),
                    _ => narrow(sigmoid(sum)),
                };
            }
            for at in 0..h {
                let [i, f, g, o] = [0, 1, 2, 3].map(|gate| f64::from(gates[gate * h + at]));
                let c = f * f64::from(cell[at]) + i * g;
                cell[at] = narrow(c);
                hidden[at] = narrow(o * f64::from(cell[at]).tanh());
            }
            states.cells[token * h..(token + 1) * h].copy_from_slice(&cell);
            all[token * h..(token + 1) * h].copy_from_slice(&hidden);
        }
        Ok((states, all))
    }

    /// dy: `[l * v, 2 h]` of both directions -> the gradient before the sigmoids and tanhs, `[l * v, 4 h]`
    fn backward(
        &self,
        dy: &Tensor,
        states: &States,
        v: usize,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (rows, h, device) = (dy.dims()[0], states.cells.len() / v, dy.device());
        let leaves = rows / v;
        let dy = dy.download::<f32>()?;
        let side = if self.is_reverse { h } else { 0 };
        let mut dgates = vec![0.0f32; rows * 4 * h];
        let (mut dhidden, mut dcell) = (vec![0.0f32; leaves * h], vec![0.0f32; leaves * h]);
        let mut tokens: Vec<usize> = self.order(v).collect();
        while let Some(token) = tokens.pop() {
            let cells = &states.cells[token * h..(token + 1) * h];
            let before = tokens.last().filter(|_| !self.is_first[token]);
            let before = before.map(|&before| &states.cells[before * h..(before + 1) * h]);
            let gates = &states.gates[token * 4 * h..(token + 1) * 4 * h];
            let mut now = vec![0.0f32; leaves * 4 * h];
            for leaf in 0..leaves {
                let row = leaf * v + token;
                for at in 0..h {
                    let [i, f, g, o] = [0, 1, 2, 3].map(|gate| f64::from(gates[gate * h + at]));
                    let tanh = f64::from(cells[at]).tanh();
                    let cell = &mut dcell[leaf * h + at];
                    let dh =
                        f64::from(dy[row * 2 * h + side + at]) + f64::from(dhidden[leaf * h + at]);
                    let dc = dh * o * (1.0 - tanh * tanh) + f64::from(*cell);
                    let c = before.map_or(0.0, |cells| f64::from(cells[at]));
                    *cell = narrow(dc * f);
                    for (gate, slope) in [
                        dc * g * i * (1.0 - i),
                        dc * c * f * (1.0 - f),
                        dc * i * (1.0 - g * g),
                        dh * tanh * o * (1.0 - o),
                    ]
                    .into_iter()
                    .enumerate()
                    {
                        now[leaf * 4 * h + gate * h + at] = narrow(slope);
                    }
                }
                dgates[row * 4 * h..(row + 1) * 4 * h]
                    .copy_from_slice(&now[leaf * 4 * h..(leaf + 1) * 4 * h]);
            }
            if self.is_first[token] {
                dhidden.fill(0.0);
                dcell.fill(0.0);
            } else {
                dhidden = self.state_gradient(&now, leaves, device, cx)?;
            }
        }
        Tensor::from_f32(&[rows, 4 * h], &dgates, device)
    }

    /// dgates of one token: `[l, 4 h]` -> the gradient of h of the token before: `[l, h]`
    fn state_gradient(
        &self,
        dgates: &[f32],
        leaves: usize,
        device: &Device,
        cx: &Context<'_>,
    ) -> kernels::Result<Vec<f32>> {
        let weight = cx.weight(self.weight_hh);
        let dgates = Tensor::from_f32(&[leaves, weight.dims()[0]], dgates, device)?;
        let mut dhidden = Tensor::empty(&[leaves, weight.dims()[1]], DType::F32, device)?;
        matmul(&mut dhidden, &dgates, weight, 0, false)?;
        dhidden.download()
    }

    /// Gradients of the weights; dgates: `[l * v, 4 h]`, x: `[l * v, in]`
    fn add_gradients(
        &self,
        dgates: &Tensor,
        x: &Tensor,
        states: &States,
        leaves: &LeafRows,
        gradients: &mut Gradients,
    ) -> kernels::Result<()> {
        let (v, dgates_t) = (leaves.count, (dgates, Op::Transposed));
        let h = states.before.len() / v;
        let before = Tensor::from_f32(&[v, h], &states.before, x.device())?;
        let before = leaves.repeated(&before)?;
        for (weight, factor) in [(self.weight_ih, x), (self.weight_hh, &before)] {
            let (dweight, accumulate) = gradients.target(weight);
            matmul(dweight, dgates_t, factor, v, accumulate)?;
        }
        for bias in [self.bias_ih, self.bias_hh] {
            let (dbias, accumulate) = gradients.target(bias);
            reduce::sum_rows(dbias, dgates, v, accumulate)?;
        }
        Ok(())
    }
}

//! The experts on this rank: feed-forward layers, as in `mlp.rs`, applied to the rows that chose
//! them by grouped products. Tensor parallel: an expert's first matrix is split by column, its second by row, so
//! every rank has the same rows and the all-reduces are over them.

use std::collections::HashMap;
use std::ops::Range;

use kernels::grouped_matmul::{self, Counts};
use kernels::matmul::Op;
use kernels::rows::{Runs, copy_runs};
use kernels::{DType, Tensor};

use crate::config::moe::MoeConfig;
use crate::config::plan::Plan;
use crate::config::precision::Features;
use crate::config::precision::Role;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::mlp::Between;
use crate::model::moe::biases;
use crate::model::moe::expert_adapters::{ExpertAdapters, SplitWidth};
use crate::model::moe::token_dispatcher::TokenDispatcher;
use crate::model::moe::weight_sums::{Factors, add_sums};
use crate::model::slots::{Slot, Slots};

pub(crate) struct Experts {
    /// Weights of each expert here: `[2f, d]` or `[f, d]`.
    fc1: Vec<Slot>,
    /// `[f, d]`
    fc2: Vec<Slot>,
    /// Biases of each expert here, of `[2f]` or `[f]`, and of `[d]`; none without.
    biases: [Vec<Slot>; 2],
    /// Adapters of both matrices.
    adapters: [Option<ExpertAdapters>; 2],
    activation: Between,
    /// Output features of whole first matrices, and input features of second ones.
    widths: (usize, usize),
}

/// Kept from forward: `[q, d]`, `[q, 2f]` or `[q, f]`, `[q, f]`.
pub(crate) struct Saved {
    x: Tensor,
    inner: Option<(Tensor, Tensor)>,
}

impl Saved {
    /// Inputs of both matrices of each expert in turn, of as many rows as chose it: `[rows, d]`, `[rows, f]`
    pub(crate) fn linear_inputs(&self, counts: &[usize]) -> kernels::Result<Vec<Tensor>> {
        let Some((_, hidden)) = &self.inner else {
            return Ok(Vec::new());
        };
        let mut inputs = Vec::new();
        let mut first = 0;
        for count in counts {
            let rows = first..first + count;
            inputs.push(rows_of(&self.x, rows.clone())?);
            inputs.push(rows_of(hidden, rows)?);
            first += count;
        }
        Ok(inputs)
    }

    /// The large tensors: all of them.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        let inner = self
            .inner
            .iter_mut()
            .flat_map(|(before, hidden)| [before, hidden]);
        std::iter::once(&mut self.x).chain(inner).collect()
    }
}

/// Rows of each expert times its matrix, stored as `stored`.
fn outputs(
    rows: &Tensor,
    (weights, op): (&[Slot], Op),
    stored: DType,
    counts: Counts<'_>,
    leaf: usize,
    cx: &Context<'_>,
) -> kernels::Result<Tensor> {
    if let Some(packed) = cx.packed_alone(weights, op, leaf)? {
        return grouped_matmul::forward_packed(stored, rows, &packed, counts);
    }
    let kind = (cx.numbers(), stored);
    cx.product_with(weights, |weights| {
        grouped_matmul::forward(kind, rows, (weights, op), counts, leaf)
    })
}

/// A copy of some rows of a matrix.
fn rows_of(x: &Tensor, rows: Range<usize>) -> kernels::Result<Tensor> {
    let width = x.dims()[1];
    let mut y = Tensor::empty(&[rows.len(), width], x.dtype(), x.device())?;
    if !rows.is_empty() {
        let run = rows.len() * width;
        let runs = Runs {
            count: 1,
            run,
            from_stride: run,
            to_stride: run,
        };
        let from = x.flat(rows.start * width..rows.end * width)?;
        copy_runs(y.flat_mut(0..run)?, from, runs)?;
    }
    Ok(y)
}

impl Experts {
    pub(crate) fn named(
        at: &str,
        (plan, config): (&Plan, &MoeConfig),
        tp: usize,
        slots: &Slots<'_>,
    ) -> Experts {
        let f = plan.model.d_expert();
        let prefix = format!("{at}.experts.");
        let all = slots.specs().iter().enumerate();
        let all = all.filter_map(|(slot, spec)| Some((spec.name.strip_prefix(&prefix)?, slot)));
        let all: HashMap<&str, Slot> = all.collect();
        let of = |name: &str| -> Vec<Slot> {
            let experts = 0..config.experts;
            let slots = experts.filter_map(|e| all.get(format!("{e}.{name}").as_str()));
            slots.copied().collect()
        };
        let width = plan.model.architecture().fc1_widths() * f;
        let is_adapted = plan.model.lora.is_some();
        let adapters = [
            ("fc1", SplitWidth::Outputs(width)),
            ("fc2", SplitWidth::Inputs(f)),
        ];
        let adapters = adapters.map(|(layer, width)| {
            let of = |part: &str| of(&format!("{layer}.{part}"));
            let adapters = is_adapted.then(|| ExpertAdapters {
                a: of("lora_a"),
                b: of("lora_b"),
                width,
            });
            adapters.filter(|adapters| !adapters.a.is_empty())
        });
        Experts {
            fc1: of("fc1.weight"),
            fc2: of("fc2.weight"),
            biases: [of("fc1.bias"), of("fc2.bias")],
            adapters,
            activation: Between::of(plan, tp),
            widths: (width, f),
        }
    }

    /// Format of the rows between the matrices: biases are added in f32.
    fn stored(&self, cx: &Context<'_>) -> DType {
        match self.biases[0].is_empty() {
            true => self.activation.stored(cx),
            false => DType::F32,
        }
    }

    /// x: `[q, d]` by expert, of which each has its count -> `[q, d]`, summed over ranks.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        counts: Counts<'_>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        if x.dims()[0] == 0 {
            // no token chose an expert of this rank
            let y = Tensor::empty(x.dims(), DType::F32, x.device())?;
            return Ok((y, Saved { x, inner: None }));
        }
        let rows = cx
            .of_layer(self.fc1[0])
            .factor(&x, Role::Input(Features::Whole))?;
        let [bias1, bias2] = &self.biases;
        let fc1 = (&self.fc1[..], Op::Transposed);
        let before = outputs(&rows, fc1, self.stored(cx), counts, 0, cx)?;
        drop(rows);
        let mut before = biases::add(before, bias1, counts, cx)?;
        let [adapters1, adapters2] = &self.adapters;
        if let Some(adapters) = adapters1 {
            adapters.add(&mut before, &x, counts, cx)?;
        }
        let (before, hidden) = self.activation.forward(before)?;
        let leaf = cx.feature_leaf(self.widths.1);
        let rows = cx
            .of_layer(self.fc2[0])
            .factor(&hidden, Role::Input(Features::Split))?;
        let fc2 = (&self.fc2[..], Op::Plain);
        let y = outputs(&rows, fc2, DType::F32, counts, leaf, cx)?;
        drop(rows);
        let mut y = biases::add(cx.sum_over_tp(y)?, bias2, counts, cx)?;
        if let Some(adapters) = adapters2 {
            adapters.add(&mut y, &hidden, counts, cx)?;
        }
        let inner = Some((before, hidden));
        Ok((y, Saved { x, inner }))
    }

    /// dy: `[q, d]` -> dx: `[q, d]`, summed over ranks.
    pub(crate) fn backward(
        &self,
        dy: Tensor,
        saved: Saved,
        (dispatcher, gradients): (&TokenDispatcher, &mut Gradients),
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let [bias1, bias2] = &self.biases;
        let [adapters1, adapters2] = &self.adapters;
        let Some((before, hidden)) = saved.inner else {
            // in the order of the others, because ranks that share samples sum each together
            if let Some(adapters) = adapters2 {
                adapters.backward_without_rows((dispatcher, gradients), cx)?;
            }
            biases::add_gradients(bias2, None, (dispatcher, gradients), cx)?;
            add_gradients((&self.fc2, Op::Plain), None, (dispatcher, gradients), cx)?;
            if let Some(adapters) = adapters1 {
                adapters.backward_without_rows((dispatcher, gradients), cx)?;
            }
            biases::add_gradients(bias1, None, (dispatcher, gradients), cx)?;
            let fc1 = (&self.fc1[..], Op::Transposed);
            add_gradients(fc1, None, (dispatcher, gradients), cx)?;
            return Ok(dy);
        };
        let counts = dispatcher.counts();
        let du2 = match adapters2 {
            Some(adapters) => Some(adapters.backward(&dy, &hidden, (dispatcher, gradients), cx)?),
            None => None,
        };
        biases::add_gradients(bias2, Some(&dy), (dispatcher, gradients), cx)?;
        let of_fc2 = cx.of_layer(self.fc2[0]);
        let rows = of_fc2.factor(&dy, Role::Gradient(Features::Whole))?;
        let inputs = of_fc2.factor(&hidden, Role::Input(Features::Split))?;
        let factors = Factors {
            dy: &rows,
            x: &inputs,
        };
        add_gradients(
            (&self.fc2, Op::Plain),
            Some(factors),
            (dispatcher, gradients),
            cx,
        )?;
        drop(inputs);
        drop(hidden);
        let between = (cx.numbers(), self.stored(cx));
        let mut dhidden = cx.product_with(&self.fc2, |fc2| {
            grouped_matmul::backward_input(between, &rows, (fc2, Op::Plain), counts, 0)
        })?;
        drop(rows);
        drop(dy);
        if let (Some(adapters), Some(du)) = (adapters2, du2) {
            adapters.add_inputs(&mut dhidden, &du, counts, cx)?;
        }
        let dbefore = self.activation.backward(dhidden, &before)?;
        let du1 = match adapters1 {
            Some(adapters) => {
                Some(adapters.backward(&dbefore, &saved.x, (dispatcher, gradients), cx)?)
            }
            None => None,
        };
        biases::add_gradients(bias1, Some(&dbefore), (dispatcher, gradients), cx)?;
        let of_fc1 = cx.of_layer(self.fc1[0]);
        let dbefore = of_fc1.factor(&dbefore, Role::Gradient(Features::Split))?;
        drop(before);
        let inputs = of_fc1.factor(&saved.x, Role::Input(Features::Whole))?;
        let factors = Factors {
            dy: &dbefore,
            x: &inputs,
        };
        add_gradients(
            (&self.fc1, Op::Transposed),
            Some(factors),
            (dispatcher, gradients),
            cx,
        )?;
        let leaf = cx.feature_leaf(self.widths.0);
        let kind = (cx.numbers(), DType::F32);
        let dx = cx.product_with(&self.fc1, |fc1| {
            grouped_matmul::backward_input(kind, &dbefore, (fc1, Op::Transposed), counts, leaf)
        })?;
        let mut dx = cx.sum_over_tp(dx)?;
        if let (Some(adapters), Some(du)) = (adapters1, du1) {
            adapters.add_inputs(&mut dx, &du, counts, cx)?;
        }
        Ok(dx)
    }
}

/// Adds the products of output gradients and inputs, if any token is here, to the weights' gradients, unless they are frozen.
fn add_gradients(
    (slots, op): (&[Slot], Op),
    factors: Option<Factors<'_>>,
    (dispatcher, gradients): (&TokenDispatcher, &mut Gradients),
    cx: &Context<'_>,
) -> kernels::Result<()> {
    if !gradients.has(slots[0]) {
        return Ok(());
    }
    let mut sums = gradients.sums_of(slots)?;
    add_sums(cx.numbers(), (&mut sums, op), factors, dispatcher, cx)
}

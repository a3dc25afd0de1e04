//! An encoder, with a head or without, in inference: norms follow the sums (Devlin et al. 2019, arXiv:1810.04805). A head
//! reads the row of the first token, so the last layer goes on with those rows alone after its attention.
//!
//! The rows of a batch's sequences are adjacent, without padding. Products and norms work on all of them; attention on runs
//! of sequences of one length. A row's bits depend on its own sequence alone. We differ from `model/`, whose layers keep what
//! backward needs and sum in the trees of training's layouts: here each sum is one chain.

use kernels::activation::{self, Kind};
use kernels::attention::{self, Call, Keys, Mask};
use kernels::int8_matmul::{self, Int8Weights};
use kernels::matmul::{Factor, Numbers, Op, Packed, Then, product, product_then};
use kernels::rows::{self as runs_of_rows, Runs};
use kernels::{DType, Device, Heads, Tensor, add, copy, embedding, layer_norm};

use crate::checkpoint::huggingface::files::Files;
use crate::error::{OnRank, Result};
use crate::infer::classifier::config::Shape;
use crate::infer::classifier::disentangled::{Disentangled, Rows};
use crate::infer::classifier::names::{self, Names};

/// Sequences of a batch, those of one length next to each other.
pub(super) struct Batch {
    /// Ids of all sequences, one after the other.
    pub ids: Vec<u32>,
    /// Row of the table of positions for each id.
    pub positions: Vec<u32>,
    pub runs: Vec<Run>,
}

/// Sequences of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub length: usize,
    pub count: usize,
}

impl Batch {
    pub(super) fn sequences(&self) -> Vec<Rows> {
        let mut first = 0;
        let lengths = self
            .runs
            .iter()
            .flat_map(|run| std::iter::repeat_n(run.length, run.count));
        lengths
            .map(|count| {
                first += count;
                Rows {
                    first: first - count,
                    count,
                }
            })
            .collect()
    }
}

/// Arithmetic of linear layers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Products {
    Of(Numbers),
    /// Of 8-bit integers; attention is in f32.
    Int8,
}

impl Products {
    /// Of attention.
    fn numbers(self) -> Numbers {
        match self {
            Products::Of(numbers) => numbers,
            Products::Int8 => Numbers::F32,
        }
    }

    /// Format of rows that products alone read.
    fn between(self) -> DType {
        match self {
            Products::Int8 | Products::Of(Numbers::F32) => DType::F32,
            Products::Of(_) => DType::Bf16,
        }
    }
}

/// y = x W^T + b.
struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
    out: usize,
}

enum Weight {
    Packed(Packed, Numbers),
    /// Where products take no packed factor.
    Stored(Tensor, Numbers),
    Int8(Int8Weights),
}

impl Linear {
    /// weight: `[out, in]`
    fn new(weight: &Tensor, bias: Option<Vec<f32>>, products: Products) -> kernels::Result<Linear> {
        let (out, device) = (weight.dims()[0], weight.device());
        let packed = |numbers| Packed::new(numbers, weight.transposed(), 0, device);
        Ok(Linear {
            weight: match products {
                Products::Int8 => Weight::Int8(Int8Weights::new(weight)?),
                Products::Of(numbers) => match packed(numbers)? {
                    Some(packed) => Weight::Packed(packed, numbers),
                    None => Weight::Stored(weight.try_clone()?, numbers),
                },
            },
            bias: bias
                .map(|bias| Tensor::from_f32(&[out], &bias, device))
                .transpose()?,
            out,
        })
    }

    /// x: `[n, in]` -> `[n, out]`, stored as `stored` unless products are of 8 bits.
    fn forward(&self, x: &Tensor, stored: DType) -> kernels::Result<Tensor> {
        let (factor, numbers): (Factor<'_>, Numbers) = match &self.weight {
            Weight::Int8(weight) => {
                return int8_matmul::product(x, weight, self.bias.as_ref(), None);
            }
            Weight::Packed(packed, numbers) => (packed.into(), *numbers),
            Weight::Stored(weight, numbers) => ((weight, Op::Transposed).into(), *numbers),
        };
        let mut y = Tensor::empty(&[x.dims()[0], self.out], stored, x.device())?;
        match &self.bias {
            Some(bias) => product_then(numbers, &mut y, x, factor, 0, Then::Bias(bias))?,
            None => product(numbers, &mut y, x, factor, 0, false)?,
        }
        Ok(y)
    }

    /// f(x W^T + b)
    fn forward_activated(&self, x: &Tensor, kind: Kind, stored: DType) -> kernels::Result<Tensor> {
        let (factor, numbers): (Factor<'_>, Numbers) = match &self.weight {
            Weight::Int8(weight) => {
                return int8_matmul::product(x, weight, self.bias.as_ref(), Some(kind));
            }
            Weight::Packed(packed, numbers) => (packed.into(), *numbers),
            Weight::Stored(weight, numbers) => ((weight, Op::Transposed).into(), *numbers),
        };
        let dims = [x.dims()[0], self.out];
        let mut slopes = Tensor::empty(&dims, stored, x.device())?;
        let mut values = Tensor::empty(&dims, stored, x.device())?;
        let then = Then::Activation {
            kind,
            bias: self.bias.as_ref(),
            values: &mut values,
        };
        product_then(numbers, &mut slopes, x, factor, 0, then)?;
        Ok(values)
    }
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
    eps: f32,
}

impl Norm {
    fn forward(&self, x: &Tensor) -> kernels::Result<Tensor> {
        Ok(layer_norm::forward(x, &self.weight, &self.bias, self.eps)?.0)
    }

    /// Norm of x + more.
    fn of_sum(&self, mut x: Tensor, more: &Tensor) -> kernels::Result<Tensor> {
        Ok(layer_norm::forward_sum(&mut x, more, &self.weight, &self.bias, self.eps)?.0)
    }
}

enum Mixing {
    /// Every token of a sequence sees all of them.
    Plain(Heads),
    Disentangled(Disentangled),
}

struct Layer {
    qkv: Linear,
    mixing: Mixing,
    out: Linear,
    norm1: Norm,
    fc1: Linear,
    fc2: Linear,
    norm2: Norm,
}

/// A loaded model.
pub(super) struct Encoder {
    words: Tensor,
    /// Positions with the first segment added to each.
    positions: Option<Tensor>,
    /// The first segment, where there are no positions.
    segment: Option<Tensor>,
    projection: Option<Linear>,
    norm: Norm,
    layers: Vec<Layer>,
    /// Products of the head are in f32.
    head: Option<[Linear; 2]>,
    pooled: Kind,
    activation: Kind,
    products: Products,
    device: Device,
}

/// Products of the head, of the embedding and of distances.
const IN_F32: Products = Products::Of(Numbers::F32);

/// Reads the files' tensors.
struct Loader<'a> {
    files: &'a mut Files,
    device: &'a Device,
    products: Products,
    eps: f32,
}

impl Loader<'_> {
    fn table(&mut self, name: &str, dims: [usize; 2]) -> Result<Tensor> {
        let values = self.files.read(name, &dims)?;
        self.tensor(&dims, &values)
    }

    fn tensor(&self, dims: &[usize], values: &[f32]) -> Result<Tensor> {
        Tensor::from_f32(dims, values, self.device).on_rank(0, "load weights")
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Norm> {
        let mut read = |kind: &str| self.files.read(&format!("{name}.{kind}"), &[width]);
        let (weight, bias) = (read("weight")?, read("bias")?);
        Ok(Norm {
            weight: self.tensor(&[width], &weight)?,
            bias: self.tensor(&[width], &bias)?,
            eps: self.eps,
        })
    }

    fn values(&mut self, linear: &names::Linear) -> Result<(Vec<f32>, Option<Vec<f32>>)> {
        let (name, dims) = linear.weight();
        let weight = self.files.read(&name, &dims)?;
        let bias = match linear.bias() {
            Some((name, dims)) => Some(self.files.read(&name, &dims)?),
            None => None,
        };
        Ok((weight, bias))
    }

    fn linear(&mut self, linear: &names::Linear, products: Products) -> Result<Linear> {
        let (weight, bias) = self.values(linear)?;
        let weight = self.tensor(&[linear.out, linear.input], &weight)?;
        Linear::new(&weight, bias, products).on_rank(0, "load weights")
    }

    /// Queries, keys and values in one layer whose outputs are each head's query, key and value.
    fn qkv(&mut self, parts: &[names::Linear; 3], heads: usize) -> Result<Linear> {
        let d = parts[0].input;
        let e = d / heads;
        let (mut weight, mut bias) = (vec![0.0; 3 * d * d], vec![0.0; 3 * d]);
        for (slot, part) in parts.iter().enumerate() {
            let (weights, biases) = self.values(part)?;
            let biases = biases.unwrap_or_else(|| vec![0.0; d]);
            for head in 0..heads {
                let (from, to) = (head * e, (3 * head + slot) * e);
                weight[to * d..(to + e) * d].copy_from_slice(&weights[from * d..(from + e) * d]);
                bias[to..to + e].copy_from_slice(&biases[from..from + e]);
            }
        }
        let weight = self.tensor(&[3 * d, d], &weight)?;
        Linear::new(&weight, Some(bias), self.products).on_rank(0, "load weights")
    }

    /// Projections of the table of distances by a layer, by head.
    fn projected(
        &mut self,
        linear: &names::Linear,
        table: &Tensor,
        heads: usize,
    ) -> Result<Vec<Tensor>> {
        let all = self.linear(linear, IN_F32)?;
        let all = all.forward(table, DType::F32).on_rank(0, "load weights")?;
        let (rows, d) = (all.dims()[0], all.dims()[1]);
        let e = d / heads;
        let values = all.host::<f32>().on_rank(0, "load weights")?;
        (0..heads)
            .map(|head| {
                let rows_of = values.chunks(d).map(|row| &row[head * e..(head + 1) * e]);
                let own: Vec<f32> = rows_of.flatten().copied().collect();
                self.tensor(&[rows, e], &own)
            })
            .collect()
    }

    fn mixing(
        &mut self,
        layer: &names::Layer,
        shape: &Shape,
        table: Option<&Tensor>,
    ) -> Result<Mixing> {
        let (heads, width) = (shape.heads, shape.width / shape.heads);
        let (Some(relative), Some(table)) = (shape.relative, table) else {
            return Ok(Mixing::Plain(Heads {
                heads,
                kv_heads: heads,
                width,
            }));
        };
        let [queries, keys, _] = &layer.qkv;
        let [own_keys, own_queries] = &layer.distances;
        let mut of = |is_there: bool, own: &Option<names::Linear>, shared| match is_there {
            true => self.projected(own.as_ref().unwrap_or(shared), table, heads),
            false => Ok(Vec::new()),
        };
        Ok(Mixing::Disentangled(Disentangled {
            relative,
            heads,
            width,
            keys: of(relative.has_keys, own_keys, keys)?,
            queries: of(relative.has_queries, own_queries, queries)?,
            numbers: self.products.numbers(),
        }))
    }
}

impl Encoder {
    /// Reads the tensors of `names`, which the files have.
    pub(super) fn load(
        (shape, names): (&Shape, &Names),
        files: &mut Files,
        products: Products,
        device: &Device,
    ) -> Result<Encoder> {
        let mut loader = Loader {
            files,
            device,
            products,
            eps: shape.eps,
        };
        let (d, width) = (shape.width, shape.embedding);
        let mut segment = match &names.types {
            Some(name) => Some(loader.files.read(name, &[shape.types, width])?),
            None => None,
        };
        let positions = match &names.positions {
            Some(name) => {
                let mut table = loader.files.read(name, &[shape.positions, width])?;
                if let Some(segment) = segment.take() {
                    for row in table.chunks_mut(width) {
                        row.iter_mut()
                            .zip(&segment)
                            .for_each(|(x, more)| *x += more);
                    }
                }
                Some(loader.tensor(&[shape.positions, width], &table)?)
            }
            None => None,
        };
        let segment = match segment {
            Some(segment) => Some(loader.tensor(&[width], &segment[..width])?),
            None => None,
        };
        let table = match (&names.distances, &shape.relative) {
            (Some((table, norm)), Some(relative)) => {
                let table = loader.table(table, [2 * relative.span(), d])?;
                Some(match norm {
                    Some(norm) => {
                        let norm = loader.norm(norm, d)?;
                        norm.forward(&table).on_rank(0, "load weights")?
                    }
                    None => table,
                })
            }
            _ => None,
        };
        let mut layers = Vec::with_capacity(names.layers.len());
        for layer in &names.layers {
            layers.push(Layer {
                qkv: loader.qkv(&layer.qkv, shape.heads)?,
                mixing: loader.mixing(layer, shape, table.as_ref())?,
                out: loader.linear(&layer.out, products)?,
                norm1: loader.norm(&layer.norm1, d)?,
                fc1: loader.linear(&layer.fc1, products)?,
                fc2: loader.linear(&layer.fc2, products)?,
                norm2: loader.norm(&layer.norm2, d)?,
            });
        }
        Ok(Encoder {
            words: loader.table(&names.words, [shape.vocab, width])?,
            positions,
            segment,
            projection: match &names.projection {
                Some(projection) => Some(loader.linear(projection, IN_F32)?),
                None => None,
            },
            norm: loader.norm(&names.norm, d)?,
            layers,
            head: match &names.head {
                Some([dense, scores]) => Some([
                    loader.linear(dense, IN_F32)?,
                    loader.linear(scores, IN_F32)?,
                ]),
                None => None,
            },
            pooled: shape.pooled,
            activation: shape.activation,
            products,
            device: device.clone(),
        })
    }

    /// `[sequences, labels]`, or the rows of the first tokens, `[sequences, d]`, of an encoder without a head.
    pub(super) fn logits(&self, batch: &Batch) -> kernels::Result<Tensor> {
        let x = self.last_rows(batch, true)?;
        let Some([dense, scores]) = &self.head else {
            return Ok(x);
        };
        let dense = dense.forward(&x, DType::F32)?;
        let pooled = activation::forward(&dense, None, self.pooled)?;
        scores.forward(&pooled, DType::F32)
    }

    /// The last layer's rows: `[n, d]`, one per token; with `only_firsts` `[sequences, d]`, those of the first tokens.
    pub(super) fn last_rows(&self, batch: &Batch, only_firsts: bool) -> kernels::Result<Tensor> {
        let sequences = batch.sequences();
        let mut x = self.embed(batch)?;
        for (number, layer) in self.layers.iter().enumerate() {
            let is_last = number + 1 == self.layers.len();
            let mixed = self.mix(layer, &x, batch, &sequences)?;
            x = match is_last && only_firsts {
                true => {
                    let firsts = [&mixed, &x].map(|x| first_rows(x, &sequences));
                    let [mixed, x] = firsts;
                    self.after_mixing(layer, &mixed?, &x?)?
                }
                false => self.after_mixing(layer, &mixed, &x)?,
            };
        }
        Ok(x)
    }

    fn embed(&self, batch: &Batch) -> kernels::Result<Tensor> {
        let table_rows = |rows: &[u32]| Tensor::from_u32(&[rows.len()], rows, &self.device);
        let mut x = embedding::forward(&self.words, &table_rows(&batch.ids)?, 0)?;
        if let Some(positions) = &self.positions {
            let positions = embedding::forward(positions, &table_rows(&batch.positions)?, 0)?;
            add::add_into(&mut x, &positions)?;
        }
        if let Some(segment) = &self.segment {
            add::bias(&mut x, segment)?;
        }
        if let Some(projection) = &self.projection {
            x = projection.forward(&x, DType::F32)?;
        }
        self.norm.forward(&x)
    }

    fn mix(
        &self,
        layer: &Layer,
        x: &Tensor,
        batch: &Batch,
        sequences: &[Rows],
    ) -> kernels::Result<Tensor> {
        match &layer.mixing {
            Mixing::Disentangled(disentangled) => {
                let qkv = layer.qkv.forward(x, DType::F32)?;
                disentangled.attend(&qkv, sequences)
            }
            Mixing::Plain(heads) => {
                let qkv = layer.qkv.forward(x, self.products.between())?;
                self.attend(heads, &qkv, &batch.runs)
            }
        }
    }

    /// Attention of each run's sequences.
    fn attend(&self, heads: &Heads, qkv: &Tensor, runs: &[Run]) -> kernels::Result<Tensor> {
        let call = |run: &Run| Call {
            heads,
            b: run.count,
            t: run.length,
            keys: Keys::Own,
            block: 0,
            numbers: self.products.numbers(),
            scores: attention::Scores::scaled(true),
            bias: None,
            sinks: None,
            mask: Mask::default(),
            dropout: None,
        };
        if let [run] = runs {
            return Ok(attention::forward(qkv, &call(run))?.0);
        }
        let (d, packed) = (heads.heads * heads.width, heads.packed());
        let mut mixed = Tensor::empty(&[qkv.dims()[0], d], DType::F32, qkv.device())?;
        let mut first = 0;
        for run in runs {
            let rows = first..first + run.length * run.count;
            let found = match qkv.rows(rows.clone()) {
                Ok(own) => attention::forward(&own, &call(run))?.0,
                // rows that start within a line of memory
                Err(_) => {
                    let dims = [rows.len(), packed];
                    let mut own = Tensor::empty(&dims, qkv.dtype(), qkv.device())?;
                    let from = qkv.flat(rows.start * packed..rows.end * packed)?;
                    let elements = rows.len() * packed;
                    let whole = Runs {
                        count: 1,
                        run: elements,
                        from_stride: elements,
                        to_stride: elements,
                    };
                    runs_of_rows::copy_runs(own.view_mut(), from, whole)?;
                    attention::forward(&own, &call(run))?.0
                }
            };
            copy(mixed.flat_mut(rows.start * d..rows.end * d)?, found.view())?;
            first = rows.end;
        }
        Ok(mixed)
    }

    fn after_mixing(&self, layer: &Layer, mixed: &Tensor, x: &Tensor) -> kernels::Result<Tensor> {
        let sum = layer.out.forward(mixed, DType::F32)?;
        let middle = layer.norm1.of_sum(sum, x)?;
        let inner =
            (layer.fc1).forward_activated(&middle, self.activation, self.products.between())?;
        let sum = layer.fc2.forward(&inner, DType::F32)?;
        layer.norm2.of_sum(sum, &middle)
    }
}

/// The first row of each sequence; x: `[n, d]` -> `[sequences, d]`
fn first_rows(x: &Tensor, sequences: &[Rows]) -> kernels::Result<Tensor> {
    let d = x.dims()[1];
    let mut firsts = Tensor::empty(&[sequences.len(), d], DType::F32, x.device())?;
    for (number, rows) in sequences.iter().enumerate() {
        let to = firsts.flat_mut(number * d..(number + 1) * d)?;
        copy(to, x.flat(rows.first * d..(rows.first + 1) * d)?)?;
    }
    Ok(firsts)
}

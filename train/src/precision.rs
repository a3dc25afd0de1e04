//! What each op is computed in, decided in this file alone; layers ask the `Context`.
//!
//! | what | bf16, fp16 | fp8 |
//! |---|---|---|
//! | products of blocks' linear layers and experts: both operands, each way | rounded | fp8, scaled |
//! | products of the head's linear layers | rounded | bf16 |
//! | attention: queries, keys, values, the gradient of the mixed values | rounded | bf16 |
//! | attention: probabilities, the gradient of scores, as factors | bf16: rounded; fp16: f32 | bf16 |
//! | sums within products, scores, softmax | f32 | f32 |
//! | embeddings, norms, activations, residuals, cross entropy, routers, gates of shared experts | f32 | f32 |
//! | sums of gradients and over ranks, norm, clipping, optimizer, weights, averages | f32 | f32 |
//!
//! Operands are rounded once to the nearest, ties to even, and multiplied and added up in f32: what a
//! matrix unit with f32 accumulation does; bf16 ones of linear layers and experts as they are packed, with the
//! bits of such a unit (`kernels::matmul::product`, `grouped_matmul`), others by `kernels::cast` before (Micikevicius et al. 2018,
//! arXiv:1710.03740, Kalamkar et al. 2019, arXiv:1905.12322). Between ops activations stay f32, where Megatron and torch.autocast store
//! the 16-bit results, but for those that products of bf16, attention and activations between products alone read
//! (`between_products`): they are rounded as they are written. Attention's factors in bf16 are words of two for its products, as those of linear layers
//! (`kernels::attention`), and `train.bf16_sums` says how all of them are summed; in fp16 products are of f32 with rounded
//! operands. An operand is rounded element by element,
//! so layouts change no bits.
//!
//! fp8 (Micikevicius et al. 2022, arXiv:2209.05433): weights and activations in E4M3, gradients in E5M2 or
//! E4M3. Numbers are rounded to the format's grid times a scale. What one scale is for, by recipe:
//!
//! | | activations, gradients | weights | scale |
//! |---|---|---|---|
//! | `current` | a token's row, of all tensor-parallel ranks | the matrix, of all ranks | power of two |
//! | `block` | 128 features of a token | 128 x 128 | power of two |
//! | `delayed` | a layer's, of all tokens and ranks | the matrix, of all ranks | of earlier steps (`delayed.rs`) |
//!
//! With powers of two scaling back is exact, and the f32 product is that of scaled numbers. `delayed` has
//! Transformer Engine's own scales, whose grids are its own to the last bit; scaling back then rounds to f32
//! once, by at most 2^-24, where the grids' steps are 2^-4 and more.
//!
//! Transformer Engine's current scaling has one scale for a micro-batch's tensor, which layouts change; a
//! row's (torchao's `rowwise`) none does. Blocks also end at every eighth of a dim that tensor parallelism
//! splits, so that no rank has part of one (DeepSeek-AI 2024, arXiv:2412.19437, sec. 3.3).

use std::ops::{Deref, Range};

use kernels::cast::{self, Blocks, Format};
use kernels::matmul::Numbers;
use kernels::{DType, Isa, Tensor};
use serde::{Deserialize, Serialize};

use crate::delayed::Delayed;
use crate::model::context::{Context, Slot};
use crate::plan::{FEATURE_CHUNKS, Plan};

/// Number format of the operands of products. Weights, sums and the optimizer are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// IEEE single precision throughout.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision, with a scaled loss.
    Fp16,
    /// Eight bits within blocks by `train.fp8`, bfloat16 elsewhere.
    Fp8,
}

/// How sums of bf16 products of linear layers, experts and attention are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bf16Sums {
    /// In tiles on a machine that uses AMX, else in pairs.
    #[default]
    Auto,
    /// Of pairs of factors, as `vdpbf16ps` does.
    Pairs,
    /// Of blocks of 32 factors, as AMX does.
    Tiles,
}

impl Bf16Sums {
    /// Its word in jobs and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Bf16Sums::Auto => "auto",
            Bf16Sums::Pairs => "pairs",
            Bf16Sums::Tiles => "tiles",
        }
    }

    /// What it is where ops use `isa`.
    fn on(self, isa: Isa) -> Bf16Sums {
        match self {
            Bf16Sums::Auto if isa == Isa::Amx => Bf16Sums::Tiles,
            Bf16Sums::Auto => Bf16Sums::Pairs,
            chosen => chosen,
        }
    }
}

/// The plan with the sums that it has where ops use `isa`; those of a plan without bf16 products
/// stay open.
pub(crate) fn with_sums_on(plan: &Plan, isa: Isa) -> Plan {
    let mut plan = plan.clone();
    if plan.train.precision.has_bf16() {
        plan.train.bf16_sums = plan.train.bf16_sums.on(isa);
    }
    plan
}

/// What one scale is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fp8Recipe {
    /// A token's row; a matrix of weights.
    Current,
    /// 128 features of a token; 128 x 128 weights.
    Block,
    /// A tensor, by what it was in earlier steps.
    Delayed,
}

/// What `delayed` takes from a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmaxAlgo {
    /// The largest.
    Max,
    /// That of the last step.
    MostRecent,
}

/// Which eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fp8Format {
    /// E4M3 forward, E5M2 for gradients.
    Hybrid,
    /// E4M3 for all.
    E4m3,
}

/// Choices of `precision = "fp8"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fp8Config {
    /// Megatron's `fp8-recipe`. Default: `current`.
    pub recipe: Fp8Recipe,
    /// Megatron's `fp8-format`. Default: `hybrid`.
    pub format: Fp8Format,
    /// First blocks in bf16. Megatron's name. Default: 0.
    pub num_layers_at_start_in_bf16: usize,
    /// Last blocks in bf16. Megatron's name. Default: 0.
    pub num_layers_at_end_in_bf16: usize,
    /// Powers of two that scales of `delayed` leave room for. Megatron's `fp8-margin`. Default: 0.
    pub margin: i32,
    /// Steps in a history of `delayed`. Megatron's `fp8-amax-history-len`. Default: 1.
    pub amax_history_len: usize,
    /// What `delayed` takes from it. Megatron's `fp8-amax-compute-algo`. Default: `most_recent`.
    pub amax_compute_algo: AmaxAlgo,
}

impl Default for Fp8Config {
    fn default() -> Self {
        Fp8Config {
            recipe: Fp8Recipe::Current,
            format: Fp8Format::Hybrid,
            num_layers_at_start_in_bf16: 0,
            num_layers_at_end_in_bf16: 0,
            margin: 0,
            amax_history_len: 1,
            amax_compute_algo: AmaxAlgo::MostRecent,
        }
    }
}

impl Fp8Config {
    /// Calls `problem` for every value that is none.
    pub(crate) fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        if self.amax_history_len == 0 {
            problem("fp8.amax_history_len", "0".into(), "at least 1");
        }
        if self.margin.unsigned_abs() > 100 {
            problem("fp8.margin", self.margin.to_string(), "from -100 to 100");
        }
    }

    /// What numbers of a role are rounded to.
    pub(crate) fn format_of(&self, role: Role) -> Format {
        match (role, self.format) {
            (Role::Gradient(_), Fp8Format::Hybrid) => Format::E5m2,
            _ => Format::E4m3,
        }
    }
}

impl Precision {
    /// Whether some products are of bf16.
    pub(crate) fn has_bf16(self) -> bool {
        self.operands() == Some(Format::Bf16)
    }

    /// What operands of products are rounded to.
    pub(crate) fn operands(self) -> Option<Format> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 | Precision::Fp8 => Some(Format::Bf16),
            Precision::Fp16 => Some(Format::F16),
        }
    }
}

/// A tensor as a product reads it.
pub(crate) enum Operand<'a> {
    AsIs(&'a Tensor),
    Rounded(Tensor),
}

impl Deref for Operand<'_> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        match self {
            Operand::AsIs(x) => x,
            Operand::Rounded(x) => x,
        }
    }
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Rows of tokens, forward.
    Input(Features),
    /// A matrix whose rows tensor parallelism splits.
    Weight,
    /// Gradients of rows of tokens.
    Gradient(Features),
}

impl Role {
    /// Forward, whatever a rank has of it.
    pub(crate) const INPUT: Role = Role::Input(Features::Whole);
    /// Backward, likewise.
    pub(crate) const GRADIENT: Role = Role::Gradient(Features::Whole);
}

/// What a rank has of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    /// All of it.
    Whole,
    /// Its share over tensor-parallel ranks.
    Split,
}

/// Numbers of a block's linear layers.
#[derive(Clone, Copy)]
pub(crate) struct Fp8<'a> {
    config: Fp8Config,
    /// Blocks that are not in bf16.
    blocks: (usize, usize),
    /// The one that runs.
    block: Option<usize>,
    /// The weight of the layer that runs.
    weight: Option<Slot>,
    /// Scales of `delayed`, and whether what they are for is observed.
    scales: Option<(&'a Delayed, bool)>,
}

impl Fp8<'_> {
    /// If the plan has any.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let config = plan.train.fp8;
        let blocks = plan.model.blocks();
        let end = blocks.saturating_sub(config.num_layers_at_end_in_bf16);
        (plan.train.precision == Precision::Fp8).then_some(Fp8 {
            config,
            blocks: (config.num_layers_at_start_in_bf16, end),
            block: None,
            weight: None,
            scales: None,
        })
    }

    /// Blocks that are not in bf16.
    pub(crate) fn blocks(&self) -> Range<usize> {
        self.blocks.0..self.blocks.1
    }

    /// x by the scale of earlier steps.
    fn by_history(&self, x: &Tensor, role: Role) -> kernels::Result<Tensor> {
        let (delayed, observes) = self.scales.expect("plans with this recipe have scales");
        let weight = self.weight.expect("a linear layer tells its weight");
        if observes {
            delayed.observe(weight, role, most(&cast::row_amax(x)?));
        }
        let format = self.config.format_of(role);
        cast::scaled(x, format, delayed.scale(weight, role))
    }
}

/// Whether the linear layers of a block are of bf16.
pub(crate) fn has_bf16_layers(plan: &Plan, block: usize) -> bool {
    let is_fp8 = Fp8::of(plan).is_some_and(|fp8| fp8.blocks().contains(&block));
    plan.train.precision.has_bf16() && !is_fp8
}

/// Numbers that the blocks' products are given their factors as, of a plan whose sums are chosen: formats that
/// are emulated are multiplied in f32.
pub(crate) fn numbers_of(plan: &Plan) -> Numbers {
    match (plan.train.precision, plan.train.bf16_sums) {
        (Precision::Bf16, Bf16Sums::Tiles) => Numbers::Bf16Tiles,
        (Precision::Bf16, Bf16Sums::Pairs | Bf16Sums::Auto) => Numbers::Bf16,
        (Precision::F32 | Precision::Fp16 | Precision::Fp8, _) => Numbers::F32,
    }
}

/// Whether products of all linear layers are of bf16 and summed in tiles.
pub(crate) fn is_in_tiles(plan: &Plan) -> bool {
    plan.train.precision == Precision::Bf16 && plan.train.bf16_sums == Bf16Sums::Tiles
}

/// The largest of a row's or a matrix's.
fn most(amax: &Tensor) -> f32 {
    amax.f32().iter().copied().fold(0.0, f32::max)
}

/// Side of a block of numbers with one scale.
const SIDE: usize = 128;

impl<'a> Context<'a> {
    /// For the layers of a block.
    pub(crate) fn in_block(&self, block: usize) -> Context<'a> {
        let block = Some(block);
        Context {
            fp8: self.fp8.map(|fp8| Fp8 { block, ..fp8 }),
            ..*self
        }
    }

    /// For the layer with this weight.
    pub(crate) fn of_layer(&self, weight: Slot) -> Context<'a> {
        let weight = Some(weight);
        Context {
            fp8: self.fp8.map(|fp8| Fp8 { weight, ..fp8 }),
            ..*self
        }
    }

    /// With the scales of `delayed`, if the plan has them; `observes`: what is rounded is a step's.
    pub(crate) fn with_scales(&self, delayed: Option<&'a Delayed>, observes: bool) -> Context<'a> {
        let scales = delayed.map(|delayed| (delayed, observes));
        Context {
            fp8: self.fp8.map(|fp8| Fp8 { scales, ..fp8 }),
            ..*self
        }
    }

    /// Where the layer that runs computes in fp8.
    fn eight_bits(&self) -> Option<Fp8<'a>> {
        let is_inside = |fp8: &Fp8<'_>| fp8.block.is_some_and(|at| fp8.blocks().contains(&at));
        self.fp8.filter(is_inside)
    }

    /// What products of linear layers and experts are given their factors as: bf16 ones are rounded as they are packed.
    pub(crate) fn numbers(&self) -> Numbers {
        match self.eight_bits() {
            None => self.attention_numbers(),
            Some(_) => Numbers::F32,
        }
    }

    /// What attention's products are given their factors as.
    pub(crate) fn attention_numbers(&self) -> Numbers {
        match (self.operands, self.sums) {
            (Some(Format::Bf16), Bf16Sums::Tiles) => Numbers::Bf16Tiles,
            (Some(Format::Bf16), Bf16Sums::Pairs | Bf16Sums::Auto) => Numbers::Bf16,
            _ => Numbers::F32,
        }
    }

    /// How what lies between two linear layers, or those of experts, is stored, if they and an activation alone read it.
    pub(crate) fn between_products(&self) -> DType {
        match self.numbers() {
            Numbers::Bf16 | Numbers::Bf16Tiles => DType::Bf16,
            Numbers::F32 => DType::F32,
        }
    }

    /// x as a factor of a product in `numbers`.
    pub(crate) fn factor<'t>(&self, x: &'t Tensor, role: Role) -> kernels::Result<Operand<'t>> {
        match self.numbers() {
            Numbers::Bf16 | Numbers::Bf16Tiles => Ok(Operand::AsIs(x)),
            Numbers::F32 => self.operand(x, role),
        }
    }

    /// x as an operand of a product in f32.
    pub(crate) fn operand<'t>(&self, x: &'t Tensor, role: Role) -> kernels::Result<Operand<'t>> {
        let Some(format) = self.operands else {
            return Ok(Operand::AsIs(x));
        };
        let rounded = match self.eight_bits() {
            None => cast::rounded(x, format)?,
            Some(fp8) if fp8.config.recipe == Fp8Recipe::Delayed => fp8.by_history(x, role)?,
            Some(fp8) => self.in_eight_bits(x, role, fp8.config)?,
        };
        Ok(Operand::Rounded(rounded))
    }

    fn in_eight_bits(&self, x: &Tensor, role: Role, config: Fp8Config) -> kernels::Result<Tensor> {
        let format = config.format_of(role);
        let is_split = !matches!(
            role,
            Role::Input(Features::Whole) | Role::Gradient(Features::Whole)
        );
        if config.recipe == Fp8Recipe::Block {
            let columns = x.dims()[x.dims().len() - 1];
            let rows = x.elements() / columns.max(1);
            // slices of which a rank has one or more, whatever the layout
            let slice = |here: usize| (here * self.tp.size()).div_ceil(FEATURE_CHUNKS);
            let blocks = match (role, is_split) {
                (Role::Weight, _) => [(SIDE, slice(rows)), (SIDE, columns)],
                (_, true) => [(1, rows), (SIDE, slice(columns))],
                (_, false) => [(1, rows), (SIDE, columns)],
            };
            let [rows, columns] = blocks;
            return cast::scaled_blocks(x, format, &Blocks { rows, columns });
        }
        let mut amax = cast::row_amax(x)?;
        if role == Role::Weight {
            amax = Tensor::from_f32(&[1], &[most(&amax)], x.device())?;
        }
        if is_split && self.tp.size() > 1 {
            self.tp.all_reduce_max(amax.f32_mut())?;
        }
        cast::scaled_rows(x, format, &amax)
    }

    /// Makes x what attention reads, in place.
    pub(crate) fn make_operand(&self, x: &mut Tensor) -> kernels::Result<()> {
        match self.operands {
            None => Ok(()),
            Some(format) => cast::round(x, format),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tiny_gpt;

    #[test]
    fn auto_is_tiles_with_amx_and_pairs_without_and_choices_stay() {
        let of = |precision, sums, isa| {
            let mut plan = tiny_gpt();
            (plan.train.precision, plan.train.bf16_sums) = (precision, sums);
            with_sums_on(&plan, isa).train.bf16_sums
        };
        for precision in [Precision::Bf16, Precision::Fp8] {
            for isa in Isa::ALL {
                let auto = match isa {
                    Isa::Amx => Bf16Sums::Tiles,
                    _ => Bf16Sums::Pairs,
                };
                assert_eq!(of(precision, Bf16Sums::Auto, isa), auto);
                for sums in [Bf16Sums::Pairs, Bf16Sums::Tiles] {
                    assert_eq!(of(precision, sums, isa), sums);
                }
            }
        }
        let open = of(Precision::F32, Bf16Sums::Auto, Isa::Amx);
        assert_eq!(open, Bf16Sums::Auto);
    }
}

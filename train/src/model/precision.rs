//! Precision policy: the number format that each op computes in. This file alone decides; layers ask the `Context`.
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
//! Operands are rounded once to the nearest, ties to even, and multiplied and accumulated in f32, as a matrix unit
//! with f32 accumulation does. bf16 operands of linear layers and experts are rounded as they are packed, with the
//! bits of such a unit (`kernels::matmul::product`, `grouped_matmul`), others by `kernels::cast` before
//! (Micikevicius et al. 2018, arXiv:1710.03740, Kalamkar et al. 2019, arXiv:1905.12322). Between ops activations
//! stay f32, where Megatron and torch.autocast store the 16-bit results. The exception are tensors that only bf16
//! products, attention and activations between products read (`between_products`): they are rounded as they are
//! written. Attention's bf16 factors are packed in words of two, as those of linear layers (`kernels::attention`),
//! and `train.bf16_sums` sets the order of all these sums; in fp16, products are f32 with rounded operands. An
//! operand is rounded element by element, so layouts change no bits.
//!
//! With `bf16_sums = "mma"` linear layers, experts and attention multiply on a GPU's tensor cores, in fp16 halves (attention's
//! probabilities and gradients of scores, too), in fp8 rounded and scaled numbers as bf16, which holds them exactly if scales are powers of two. On GPUs from compute capability 8.9 on linear
//! layers multiply factors stored in 8 bits, where scales can be taken out of the sum: all products of `delayed`; of `current`
//! those over features, without tensor parallelism, as a gradient of a weight is a sum over tokens, each with its scale.
//!
//! fp8 (Micikevicius et al. 2022, arXiv:2209.05433): weights and activations in E4M3, gradients in E5M2 or
//! E4M3. Numbers are rounded to the format's grid times a scale. Granularity of the scales, by recipe:
//!
//! | | activations, gradients | weights | scale |
//! |---|---|---|---|
//! | `current` | a token's row, of all tensor-parallel ranks | the matrix, of all ranks | power of two |
//! | `block` | 128 features of a token | 128 x 128 | power of two |
//! | `delayed` | a layer's, of all tokens and ranks | the matrix, of all ranks | of earlier steps (`model/fp8_delayed.rs`) |
//!
//! With powers of two scaling back is exact, and the f32 product is that of scaled numbers. `delayed` uses
//! Transformer Engine's scales, so its grids agree with Transformer Engine's to the last bit; scaling back then
//! rounds to f32 once, by at most 2^-24, where the grids' steps are 2^-4 and more.
//!
//! Transformer Engine's current scaling has one scale per micro-batch tensor, which depends on the layout; one per
//! row (torchao's `rowwise`) does not. Blocks also end at every eighth of a dim that tensor parallelism splits, so
//! that no rank has part of one (DeepSeek-AI 2024, arXiv:2412.19437, sec. 3.3).

use std::ops::Deref;

use kernels::cast::{self, Blocks, Format, Stored};
use kernels::comm::tensors;
use kernels::matmul::{Numbers, has_eight_bits};
use kernels::{DType, Tensor, rows};

use crate::config::plan::FEATURE_CHUNKS;
use crate::config::precision::{Bf16Sums, Features, Fp8Config, Fp8Recipe, Role};
use crate::model::context::{Arithmetic, Context};
use crate::model::fp8::Fp8;
use crate::model::fp8_delayed::Delayed;
use crate::model::slots::Slot;

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

/// Side of a block with one scale.
const SIDE: usize = 128;

impl<'a> Context<'a> {
    fn with_fp8(&self, fp8: Option<Fp8<'a>>) -> Context<'a> {
        Context {
            arithmetic: Arithmetic {
                fp8,
                ..self.arithmetic
            },
            ..*self
        }
    }

    /// For the layers of a block.
    pub(crate) fn in_block(&self, block: usize) -> Context<'a> {
        let block = Some(block);
        self.with_fp8(self.arithmetic.fp8.map(|fp8| Fp8 { block, ..fp8 }))
    }

    /// For the layer with this weight.
    pub(crate) fn of_layer(&self, weight: Slot) -> Context<'a> {
        let weight = Some(weight);
        self.with_fp8(self.arithmetic.fp8.map(|fp8| Fp8 { weight, ..fp8 }))
    }

    /// Adds the scales of `delayed`, if the plan has them; `observes`: this pass records amax for a step.
    pub(crate) fn with_scales(&self, delayed: Option<&'a Delayed>, observes: bool) -> Context<'a> {
        let scales = delayed.map(|delayed| (delayed, observes));
        self.with_fp8(self.arithmetic.fp8.map(|fp8| Fp8 { scales, ..fp8 }))
    }

    /// fp8's settings, if the current layer computes in fp8.
    fn eight_bits(&self) -> Option<Fp8<'a>> {
        let is_inside = |fp8: &Fp8<'_>| fp8.block.is_some_and(|at| fp8.blocks().contains(&at));
        self.arithmetic.fp8.filter(is_inside)
    }

    /// Format in which products of linear layers and experts receive their factors: bf16 ones are rounded as they
    /// are packed.
    pub(crate) fn numbers(&self) -> Numbers {
        let is_mma = self.arithmetic.bf16_sums == Bf16Sums::Mma;
        match self.eight_bits() {
            None => self.attention_numbers(),
            // fp8 times a power of two is a bf16
            Some(fp8) if is_mma && fp8.config.recipe != Fp8Recipe::Delayed => Numbers::Bf16Mma,
            Some(_) => Numbers::F32,
        }
    }

    /// Format of packed copies of weights for inference; `None` if weights are rounded before their products.
    pub(crate) fn numbers_of_packs(&self) -> Option<Numbers> {
        let numbers = self.numbers();
        let is_rounded = self.arithmetic.fp8.is_some()
            || numbers == Numbers::F32 && self.arithmetic.operands.is_some();
        (!is_rounded).then_some(numbers)
    }

    /// Format in which attention's products receive their factors.
    pub(crate) fn attention_numbers(&self) -> Numbers {
        match (self.arithmetic.operands, self.arithmetic.bf16_sums) {
            (Some(Format::Bf16), Bf16Sums::Tiles) => Numbers::Bf16Tiles,
            (Some(Format::Bf16), Bf16Sums::Pairs | Bf16Sums::Auto) => Numbers::Bf16,
            (Some(Format::Bf16), Bf16Sums::Mma) => Numbers::Bf16Mma,
            (Some(Format::F16), Bf16Sums::Mma) => Numbers::F16Mma,
            _ => Numbers::F32,
        }
    }

    /// Format of activations between two linear layers, or those of experts, if only these and an activation
    /// function read them.
    pub(crate) fn between_products(&self) -> DType {
        match self.numbers() {
            _ if self.eight_bits().is_some() || self.arithmetic.has_lora => DType::F32,
            Numbers::Bf16 | Numbers::Bf16Mma | Numbers::Bf16Tiles => DType::Bf16,
            // no tensor holds halves
            Numbers::F16Mma | Numbers::F32 => DType::F32,
        }
    }

    /// x as a factor of a product in `numbers`.
    pub(crate) fn factor<'t>(&self, x: &'t Tensor, role: Role) -> kernels::Result<Operand<'t>> {
        if self.numbers() == Numbers::F32 || self.eight_bits().is_some() {
            return self.operand(x, role);
        }
        Ok(Operand::AsIs(x))
    }

    /// A grouped product with the weights of some layers, which are its factors in `numbers`.
    pub(crate) fn product_with(
        &self,
        slots: &[Slot],
        product: impl FnOnce(&[&Tensor]) -> kernels::Result<Tensor>,
    ) -> kernels::Result<Tensor> {
        let all = slots
            .iter()
            .map(|&slot| self.of_layer(slot).factor(self.weight(slot), Role::Weight));
        let all: Vec<Operand<'a>> = all.collect::<kernels::Result<_>>()?;
        let all: Vec<&Tensor> = all.iter().map(|one| &**one).collect();
        product(&all)
    }

    /// x as an operand of a product that does not round it.
    pub(crate) fn operand<'t>(&self, x: &'t Tensor, role: Role) -> kernels::Result<Operand<'t>> {
        let Some(format) = self.arithmetic.operands else {
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
            // slices of which a rank has one or more in every layout
            let slice = |here: usize| (here * self.groups.tp.size()).div_ceil(FEATURE_CHUNKS);
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
            amax = rows::largest(amax.view())?;
        }
        if is_split && self.groups.tp.size() > 1 {
            tensors::all_reduce_max(self.groups.tp, amax.view_mut())?;
        }
        cast::scaled_rows(x, format, &amax)
    }

    /// Whether the current layer multiplies factors stored in 8 bits, with `k` of them in a sum, whose scales are taken out
    /// of it: not those of blocks, nor with `current` those that other ranks decide with.
    pub(crate) fn has_eight_bits(&self, x: &Tensor, k: usize) -> bool {
        let is_alone = self.groups.tp.size() == 1;
        let fits = |fp8: Fp8<'_>| match fp8.config.recipe {
            Fp8Recipe::Current => is_alone,
            Fp8Recipe::Delayed => true,
            Fp8Recipe::Block => false,
        };
        self.arithmetic.bf16_sums == Bf16Sums::Mma
            && self.eight_bits().is_some_and(fits)
            && has_eight_bits(x.device(), k)
    }

    /// Whether sums over tokens can have factors of 8 bits, too: their scales do not belong to tokens.
    pub(crate) fn has_one_scale(&self) -> bool {
        let is_delayed = |fp8: &Fp8<'_>| fp8.config.recipe == Fp8Recipe::Delayed;
        self.eight_bits().as_ref().is_some_and(is_delayed)
    }

    /// x in 8 bits, with the scales of `operand`; for layers where `has_eight_bits`.
    pub(crate) fn in_codes(&self, x: &Tensor, role: Role) -> kernels::Result<Stored> {
        let fp8 = self.eight_bits().expect("the layer computes in fp8");
        if fp8.config.recipe == Fp8Recipe::Delayed {
            return fp8.stored_by_history(x, role);
        }
        let columns = x.dims()[x.dims().len() - 1];
        let rows = x.elements() / columns.max(1);
        let run = if role == Role::Weight { rows } else { 1 };
        let blocks = Blocks {
            rows: (run, rows),
            columns: (columns, columns),
        };
        cast::stored_blocks(x, fp8.config.format_of(role), &blocks)
    }

    /// Rounds x to the format of attention's operands, in place.
    pub(crate) fn make_operand(&self, x: &mut Tensor) -> kernels::Result<()> {
        match self.arithmetic.operands {
            None => Ok(()),
            Some(format) => cast::round(x, format),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Determinism;
    use crate::config::numbers::with_sums_on;
    use crate::config::precision::{Precision, Units};
    use crate::fixtures::tiny_gpt;
    use kernels::Isa;

    #[test]
    fn auto_is_tiles_with_amx_and_pairs_without_and_choices_stay() {
        let of = |precision, sums, isa| {
            let mut plan = tiny_gpt();
            (plan.train.precision, plan.train.bf16_sums) = (precision, sums);
            with_sums_on(&plan, Units::Cpu(isa)).train.bf16_sums
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
        for precision in [Precision::F32, Precision::Fp16] {
            let open = of(precision, Bf16Sums::Auto, Isa::Amx);
            assert_eq!(open, Bf16Sums::Auto);
        }
    }

    #[test]
    fn auto_is_tensor_cores_on_a_gpu_unless_bits_are_those_of_every_layout() {
        let of = |precision, determinism| {
            let mut plan = tiny_gpt();
            (plan.train.precision, plan.determinism) = (precision, determinism);
            with_sums_on(&plan, Units::Gpu).train.bf16_sums
        };
        use Determinism::{Layout, Run};
        for precision in [Precision::Bf16, Precision::Fp16, Precision::Fp8] {
            assert_eq!(of(precision, Run), Bf16Sums::Mma);
        }
        assert_eq!(of(Precision::F32, Run), Bf16Sums::Auto);
        assert_eq!(of(Precision::Bf16, Layout), Bf16Sums::Pairs);
        assert_eq!(of(Precision::Fp16, Layout), Bf16Sums::Auto);
    }
}

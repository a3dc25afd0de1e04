//! Number formats that a job chooses: `train.precision`, `train.bf16_sums` and `[train.fp8]`; `model/precision.rs`
//! says to which ops they apply.

use kernels::Isa;
use kernels::cast::Format;
use serde::{Deserialize, Serialize};

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

/// Order of summation in bf16 products of linear layers, experts and attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bf16Sums {
    /// On a GPU `mma` with `determinism = "run"`; tiles on a machine that uses AMX; else pairs.
    #[default]
    Auto,
    /// Pairs of factors, as `vdpbf16ps` adds.
    Pairs,
    /// Blocks of 32 factors, as AMX adds.
    Tiles,
    /// As the tensor cores of a GPU add, with `determinism = "run"`; `fp16` and `fp8` use them, too.
    Mma,
}

/// Units that make the sums of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Units {
    /// A CPU's vectors or tiles.
    Cpu(Isa),
    /// A GPU.
    Gpu,
}

impl Bf16Sums {
    /// Its word in jobs and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Bf16Sums::Auto => "auto",
            Bf16Sums::Pairs => "pairs",
            Bf16Sums::Tiles => "tiles",
            Bf16Sums::Mma => "mma",
        }
    }

    /// The order that `auto` selects; `is_exact`: sums follow the layout-independent tree.
    pub(crate) fn on(self, units: Units, is_exact: bool) -> Bf16Sums {
        match (self, units) {
            (Bf16Sums::Auto, Units::Gpu) if !is_exact => Bf16Sums::Mma,
            (Bf16Sums::Auto, Units::Cpu(Isa::Amx)) => Bf16Sums::Tiles,
            (Bf16Sums::Auto, _) => Bf16Sums::Pairs,
            (chosen, _) => chosen,
        }
    }

    /// Whether these units can add so.
    pub(crate) fn is_of(self, units: Units) -> bool {
        match units {
            Units::Cpu(_) => self != Bf16Sums::Mma,
            Units::Gpu => self != Bf16Sums::Tiles,
        }
    }
}

/// Granularity of fp8 scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fp8Recipe {
    /// One scale per token's row; one per weight matrix.
    Current,
    /// 128 features of one token; 128 x 128 weights.
    Block,
    /// A whole tensor, from its amax in earlier steps.
    Delayed,
}

/// How `delayed` derives an amax from its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmaxAlgo {
    /// The largest.
    Max,
    /// The last step's.
    MostRecent,
}

/// The fp8 formats.
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
    /// Powers of two of headroom in scales of `delayed`. Megatron's `fp8-margin`. Default: 0.
    pub margin: i32,
    /// Steps in a history of `delayed`. Megatron's `fp8-amax-history-len`. Default: 1.
    pub amax_history_len: usize,
    /// How `delayed` derives an amax from the history. Megatron's `fp8-amax-compute-algo`. Default: `most_recent`.
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
    /// Calls `problem` for every invalid value.
    pub(crate) fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        if self.amax_history_len == 0 {
            problem("fp8.amax_history_len", "0".into(), "at least 1");
        }
        if self.margin.unsigned_abs() > 100 {
            problem("fp8.margin", self.margin.to_string(), "from -100 to 100");
        }
    }

    /// The format to which operands of this role are rounded.
    pub(crate) fn format_of(&self, role: Role) -> Format {
        match (role, self.format) {
            (Role::Gradient(_), Fp8Format::Hybrid) => Format::E5m2,
            _ => Format::E4m3,
        }
    }
}

impl Precision {
    /// Whether some products compute in bf16.
    pub(crate) fn has_bf16(self) -> bool {
        self.operands() == Some(Format::Bf16)
    }

    /// The format to which products' operands are rounded.
    pub(crate) fn operands(self) -> Option<Format> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 | Precision::Fp8 => Some(Format::Bf16),
            Precision::Fp16 => Some(Format::F16),
        }
    }
}

/// Role of an operand in a product.
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
    /// Forward, for whole and split rows alike.
    pub(crate) const INPUT: Role = Role::Input(Features::Whole);
    /// Backward, likewise.
    pub(crate) const GRADIENT: Role = Role::Gradient(Features::Whole);
}

/// The part of each row that a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    /// All of it.
    Whole,
    /// Its share over tensor-parallel ranks.
    Split,
}

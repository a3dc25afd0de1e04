//! Number format of each tensor of a quantized file, by the rules of llama.cpp's `llama-quant.cpp`.

use kernels::quant::BlockType;

use crate::checkpoint::gguf::kind::Kind;

/// Formats of a whole file.
#[expect(non_camel_case_types, reason = "llama.cpp's names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// 4 bytes a weight.
    F32,
    /// binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// 4 bits and a scale for each 32.
    Q4_0,
    /// 8 bits and a scale for each 32.
    Q8_0,
    /// `Q4_K`, some matrices `Q6_K`.
    Q4_K_M,
    /// 6 bits, scales of 8 bits for each 16.
    Q6_K,
}

impl FileType {
    /// `general.file_type`.
    pub(super) fn code(self) -> usize {
        match self {
            FileType::F32 => 0,
            FileType::F16 => 1,
            FileType::Q4_0 => 2,
            FileType::Q8_0 => 7,
            FileType::Q4_K_M => 15,
            FileType::Q6_K => 18,
            FileType::Bf16 => 32,
        }
    }

    fn kind(self) -> Kind {
        match self {
            FileType::F32 => Kind::F32,
            FileType::F16 => Kind::F16,
            FileType::Bf16 => Kind::Bf16,
            FileType::Q4_0 => Kind::Block(BlockType::Q4_0),
            FileType::Q8_0 => Kind::Block(BlockType::Q8_0),
            FileType::Q4_K_M => Kind::Block(BlockType::Q4_K),
            FileType::Q6_K => Kind::Block(BlockType::Q6_K),
        }
    }
}

/// The model that a file is made of.
#[derive(Clone, Copy)]
pub(super) struct Model {
    pub layers: usize,
    pub experts: usize,
    /// Whether the head has a matrix of its own.
    pub has_output: bool,
}

/// Format of a tensor.
pub(super) struct Choice {
    pub kind: Kind,
    /// The format that the file's type has for it, where its rows are no whole blocks of that.
    pub instead_of: Option<BlockType>,
}

impl Choice {
    fn of(kind: Kind) -> Choice {
        Choice {
            kind,
            instead_of: None,
        }
    }
}

/// Format of a tensor with these dims.
pub(super) fn choice(file: FileType, name: &str, dims: &[usize], model: Model) -> Choice {
    let is_kept = dims.len() < 2
        || !name.ends_with(".weight")
        || name.contains("norm")
        || name.contains("ffn_gate_inp")
        || name == "position_embd.weight";
    if is_kept {
        return Choice::of(Kind::F32);
    }
    let block = match file.kind() {
        kind @ (Kind::F32 | Kind::F16 | Kind::Bf16) => return Choice::of(kind),
        Kind::Block(block) => block,
    };
    let head = if model.has_output {
        "output.weight"
    } else {
        "token_embd.weight"
    };
    let cols = dims.last().copied().unwrap_or(0);
    let block = match block {
        BlockType::Q8_0 => block,
        _ if name == head => BlockType::Q6_K,
        BlockType::Q4_K => in_q4_k_m(name, model),
        _ => block,
    };
    let kind = fitting(block, cols);
    Choice {
        kind,
        instead_of: (kind != Kind::Block(block)).then_some(block),
    }
}

/// `Q4_K_M`: more bits for values and the second feed-forward matrix of some layers.
fn in_q4_k_m(name: &str, model: Model) -> BlockType {
    let own = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'));
    let Some((layer, own)) = own else {
        return BlockType::Q4_K;
    };
    let layer: usize = layer.parse().unwrap_or(0);
    let eighth = model.layers / 8;
    let has_more_bits =
        layer < eighth || layer >= 7 * model.layers / 8 || (layer - eighth) % 3 == 2;
    match own {
        "attn_v.weight" | "attn_k.weight" if model.experts == 8 => BlockType::Q8_0,
        "attn_v.weight" | "ffn_down.weight" | "ffn_down_exps.weight" | "ffn_down_shexp.weight"
            if has_more_bits =>
        {
            BlockType::Q6_K
        }
        "attn_output.weight" if model.experts == 8 => BlockType::Q5_K,
        "attn_qkv.weight" => BlockType::Q5_K,
        _ => BlockType::Q4_K,
    }
}

/// The format itself, or the one that takes its place where rows are no whole blocks.
fn fitting(block: BlockType, cols: usize) -> Kind {
    if cols.is_multiple_of(block.numbers()) {
        return Kind::Block(block);
    }
    let smaller = match block {
        BlockType::Q4_K => BlockType::Q5_0,
        BlockType::Q5_K => BlockType::Q5_1,
        BlockType::Q6_K => BlockType::Q8_0,
        BlockType::Q4_0 | BlockType::Q4_1 | BlockType::Q5_0 | BlockType::Q5_1 | BlockType::Q8_0 => {
            return Kind::F16;
        }
    };
    match cols.is_multiple_of(smaller.numbers()) {
        true => Kind::Block(smaller),
        false => Kind::F16,
    }
}

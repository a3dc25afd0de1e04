//! Tensors of GGUF, in terms of Hugging Face's.
//!
//! | Hugging Face | GGUF |
//! |---|---|
//! | rows of queries and keys: two halves of a head (architecture `llama` alone) | pairs, interleaved |
//! | an expert's matrices, one by one | all experts of a layer in one tensor of three dims |
//! | GPT-2's matrices `[in, out]` | `[out, in]` |

/// Order of numbers relative to Hugging Face's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Same,
    Transposed,
    /// Rows of these many heads, each in interleaved pairs.
    Interleaved(usize),
}

/// A tensor of GGUF, or an expert's part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub name: String,
    pub order: Order,
    /// Number of the expert, in a tensor of all of them.
    pub expert: Option<usize>,
}

/// Heads whose rows are interleaved.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub queries: usize,
    pub keys: usize,
    /// Whether the architecture has interleaved pairs at all.
    pub are_interleaved: bool,
}

/// Names within a layer: Hugging Face's and GGUF's.
const OF_LAYER: [(&str, &str); 23] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("ln_1", "attn_norm"),
    ("ln_2", "ffn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// Names of an expert's matrices.
const OF_EXPERT: [(&str, &str); 6] = [
    ("w1", "ffn_gate_exps"),
    ("w3", "ffn_up_exps"),
    ("w2", "ffn_down_exps"),
    ("gate_proj", "ffn_gate_exps"),
    ("up_proj", "ffn_up_exps"),
    ("down_proj", "ffn_down_exps"),
];

const OF_MODEL: [(&str, &str); 7] = [
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
    ("transformer.lm_head", "output"),
];

fn known(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let mut names = names.iter();
    names
        .find(|(theirs, _)| *theirs == name)
        .map(|(_, ours)| *ours)
}

/// Where GGUF has a tensor of Hugging Face's; `None` if it has no such tensor.
pub(super) fn place(name: &str, heads: Heads) -> Option<Place> {
    let (path, kind) = name.rsplit_once('.')?;
    if let Some(own) = known(&OF_MODEL, path) {
        return Some(Place {
            name: format!("{own}.{kind}"),
            order: Order::Same,
            expert: None,
        });
    }
    let conv1d = path.strip_prefix("transformer.h.");
    let (layer, within) = conv1d
        .or_else(|| path.strip_prefix("model.layers."))?
        .split_once('.')?;
    let experts = ["block_sparse_moe.experts.", "mlp.experts."];
    let expert = experts.iter().find_map(|start| within.strip_prefix(start));
    if let Some((number, matrix)) = expert.and_then(|rest| rest.split_once('.')) {
        let own = known(&OF_EXPERT, matrix)?;
        return Some(Place {
            name: format!("blk.{layer}.{own}.{kind}"),
            order: Order::Same,
            expert: Some(number.parse().ok()?),
        });
    }
    let own = known(&OF_LAYER, within)?;
    let order = match own {
        "attn_q" if heads.are_interleaved => Order::Interleaved(heads.queries),
        "attn_k" if heads.are_interleaved => Order::Interleaved(heads.keys),
        "attn_qkv" | "attn_output" | "ffn_up" | "ffn_down"
            if conv1d.is_some() && kind == "weight" =>
        {
            Order::Transposed
        }
        _ => Order::Same,
    };
    Some(Place {
        name: format!("blk.{layer}.{own}.{kind}"),
        order,
        expert: None,
    })
}

impl Order {
    /// Dims of GGUF's tensor, of Hugging Face's.
    pub(super) fn dims(self, dims: &[usize]) -> Vec<usize> {
        let mut dims = dims.to_vec();
        if self == Order::Transposed {
            dims.reverse();
        }
        dims
    }

    /// Numbers in GGUF's order, of Hugging Face's with these dims.
    pub(super) fn to_gguf(self, x: Vec<f32>, dims: &[usize]) -> Vec<f32> {
        self.moved(x, dims, |out, x, [to, from]| out[to] = x[from])
    }

    /// Numbers in Hugging Face's order, which has these dims.
    pub(super) fn of_gguf(self, x: Vec<f32>, dims: &[usize]) -> Vec<f32> {
        self.moved(x, dims, |out, x, [to, from]| out[from] = x[to])
    }

    /// Calls `put` with each position of GGUF's tensor and that of Hugging Face's.
    fn moved(
        self,
        x: Vec<f32>,
        dims: &[usize],
        put: impl Fn(&mut [f32], &[f32], [usize; 2]),
    ) -> Vec<f32> {
        let rows = dims.first().copied().unwrap_or(1);
        let cols = dims.get(1).copied().unwrap_or(1);
        let mut out = vec![0.0; x.len()];
        match self {
            Order::Same => return x,
            Order::Transposed => {
                for row in 0..rows {
                    for col in 0..cols {
                        put(&mut out, &x, [col * rows + row, row * cols + col]);
                    }
                }
            }
            Order::Interleaved(heads) => {
                let width = rows / heads;
                for row in 0..rows {
                    let (head, within) = (row / width, row % width);
                    let (half, pair) = (within / (width / 2), within % (width / 2));
                    let to = head * width + 2 * pair + half;
                    for col in 0..cols {
                        put(&mut out, &x, [to * cols + col, row * cols + col]);
                    }
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads {
        queries: 4,
        keys: 2,
        are_interleaved: true,
    };

    /// Names of llama.cpp's converter (`gguf.constants`).
    #[test]
    fn tensors_have_llama_cpps_names() {
        for (theirs, ours, order, expert) in [
            (
                "model.embed_tokens.weight",
                "token_embd.weight",
                Order::Same,
                None,
            ),
            ("lm_head.weight", "output.weight", Order::Same, None),
            (
                "model.layers.7.self_attn.q_proj.weight",
                "blk.7.attn_q.weight",
                Order::Interleaved(4),
                None,
            ),
            (
                "model.layers.7.self_attn.k_proj.bias",
                "blk.7.attn_k.bias",
                Order::Interleaved(2),
                None,
            ),
            (
                "model.layers.0.self_attn.v_proj.weight",
                "blk.0.attn_v.weight",
                Order::Same,
                None,
            ),
            (
                "model.layers.3.block_sparse_moe.experts.5.w2.weight",
                "blk.3.ffn_down_exps.weight",
                Order::Same,
                Some(5),
            ),
            (
                "model.layers.3.mlp.gate.weight",
                "blk.3.ffn_gate_inp.weight",
                Order::Same,
                None,
            ),
            (
                "transformer.h.1.attn.c_attn.weight",
                "blk.1.attn_qkv.weight",
                Order::Transposed,
                None,
            ),
            (
                "transformer.h.1.attn.c_attn.bias",
                "blk.1.attn_qkv.bias",
                Order::Same,
                None,
            ),
        ] {
            let want = Place {
                name: ours.into(),
                order,
                expert,
            };
            assert_eq!(place(theirs, HEADS), Some(want), "{theirs}");
        }
        assert_eq!(place("bert.embeddings.word_embeddings.weight", HEADS), None);
    }

    /// The permutation of llama.cpp's converter: `reshape(heads, 2, width / 2).swapaxes(1, 2)`.
    #[test]
    fn rows_of_a_head_become_pairs_and_come_back() {
        let x: Vec<f32> = (0..8_u8).map(f32::from).collect();
        let order = Order::Interleaved(2);
        let there = order.to_gguf(x.clone(), &[8, 1]);
        assert_eq!(there, [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
        assert_eq!(order.of_gguf(there, &[8, 1]), x);
        let there = Order::Transposed.to_gguf(x.clone(), &[2, 4]);
        assert_eq!(there, [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]);
        assert_eq!(Order::Transposed.of_gguf(there, &[2, 4]), x);
    }
}

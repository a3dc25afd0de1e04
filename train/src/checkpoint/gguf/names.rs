//! Tensors of GGUF, in terms of Hugging Face's.
//!
//! | Hugging Face | GGUF |
//! |---|---|
//! | rows of queries and keys: two halves of a head (architecture `llama` alone) | pairs, interleaved |
//! | an expert's matrices, one by one | all experts of a layer in one tensor of three dims |
//! | GPT-2's matrices `[in, out]` | `[out, in]` |
//! | matrix up from the latent of keys and values, `[heads (still + values), rank]` | two tensors: of keys, `[heads, rank, still]`, and of values, `[heads, values, rank]` |

/// Order of numbers relative to Hugging Face's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Same,
    Transposed,
    /// Rows of these many heads, each in interleaved pairs.
    Interleaved(usize),
    /// Of a matrix up from the latent of keys and values, the rows of keys, transposed head by head.
    KeysOfLatent(Expanded),
    /// Of that matrix, the rows of values, head by head.
    ValuesOfLatent(Expanded),
}

/// Rows of a head in the matrix up from the latent of keys and values: keys, then values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expanded {
    /// Features of a head's key without positions.
    pub still: usize,
    /// Features of a head's value.
    pub values: usize,
}

impl Expanded {
    fn rows(self) -> usize {
        self.still + self.values
    }
}

/// A tensor of GGUF, or an expert's part of one, with numbers of a tensor of Hugging Face's.
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
    /// Rows of a head up from the latent, in a model that has latents.
    pub expanded: Option<Expanded>,
}

/// Names within a layer: Hugging Face's and GGUF's.
const OF_LAYER: [(&str, &str); 31] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_a_proj", "attn_q_a"),
    ("self_attn.q_a_layernorm", "attn_q_a_norm"),
    ("self_attn.q_b_proj", "attn_q_b"),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
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
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
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

/// Layer and rest of a name within the layers.
fn within_layer(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("model.layers.")?.split_once('.')
}

/// Where GGUF has the numbers of a tensor of Hugging Face's: in one tensor but for the matrix up from the latent of keys and
/// values, which it has in two; in none if it has no such tensor.
pub(super) fn places(name: &str, heads: Heads) -> Vec<Place> {
    let up = within_layer(name).filter(|(_, within)| *within == "self_attn.kv_b_proj.weight");
    let (Some((layer, _)), Some(expanded)) = (up, heads.expanded) else {
        return place(name, heads).into_iter().collect();
    };
    let parts = [
        ("attn_k_b", Order::KeysOfLatent(expanded)),
        ("attn_v_b", Order::ValuesOfLatent(expanded)),
    ];
    let of_part = |(own, order)| Place {
        name: format!("blk.{layer}.{own}.weight"),
        order,
        expert: None,
    };
    parts.map(of_part).into()
}

/// Where GGUF has a tensor of Hugging Face's that it does not split; `None` if it has no such tensor.
fn place(name: &str, heads: Heads) -> Option<Place> {
    let (path, kind) = name.rsplit_once('.')?;
    if let Some(own) = known(&OF_MODEL, path) {
        return Some(Place {
            name: format!("{own}.{kind}"),
            order: Order::Same,
            expert: None,
        });
    }
    let conv1d = path.strip_prefix("transformer.h.");
    let (layer, within) = match conv1d {
        Some(rest) => rest.split_once('.')?,
        None => within_layer(path)?,
    };
    if (within, kind) == ("mlp.gate", "e_score_correction_bias") {
        return Some(Place {
            name: format!("blk.{layer}.exp_probs_b.bias"),
            order: Order::Same,
            expert: None,
        });
    }
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
        let [rows, cols] = sides(dims);
        match self {
            Order::Same | Order::Interleaved(_) => dims.to_vec(),
            Order::Transposed => dims.iter().rev().copied().collect(),
            Order::KeysOfLatent(of) => vec![rows / of.rows(), cols, of.still],
            Order::ValuesOfLatent(of) => vec![rows / of.rows(), of.values, cols],
        }
    }

    /// Numbers in GGUF's order, of Hugging Face's with these dims.
    pub(super) fn to_gguf(self, x: Vec<f32>, dims: &[usize]) -> Vec<f32> {
        if self == Order::Same {
            return x;
        }
        let mut out = vec![0.0; self.dims(dims).iter().product()];
        self.each(dims, |to, from| out[to] = x[from]);
        out
    }

    /// Puts numbers of GGUF's tensor in their places in Hugging Face's, which has these dims.
    pub(super) fn put_back(self, x: &[f32], dims: &[usize], out: &mut [f32]) {
        self.each(dims, |from, to| out[to] = x[from]);
    }

    /// Calls `see` with each position in GGUF's tensor and the one in Hugging Face's, which has these dims.
    fn each(self, dims: &[usize], mut see: impl FnMut(usize, usize)) {
        let [rows, cols] = sides(dims);
        let heads = |of: Expanded| (0..rows / of.rows()).map(move |head| head * of.rows());
        match self {
            Order::Same => (0..rows * cols).for_each(|at| see(at, at)),
            Order::Transposed => {
                for row in 0..rows {
                    for col in 0..cols {
                        see(col * rows + row, row * cols + col);
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
                        see(to * cols + col, row * cols + col);
                    }
                }
            }
            Order::KeysOfLatent(of) => {
                for (head, first) in heads(of).enumerate() {
                    for row in 0..of.still {
                        for col in 0..cols {
                            let to = (head * cols + col) * of.still + row;
                            see(to, (first + row) * cols + col);
                        }
                    }
                }
            }
            Order::ValuesOfLatent(of) => {
                for (head, first) in heads(of).enumerate() {
                    for at in 0..of.values * cols {
                        let to = head * of.values * cols + at;
                        see(to, (first + of.still) * cols + at);
                    }
                }
            }
        }
    }
}

/// Rows and elements of a row of a vector or matrix.
fn sides(dims: &[usize]) -> [usize; 2] {
    let rows = dims.first().copied().unwrap_or(1);
    [rows, dims.iter().skip(1).product()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads {
        queries: 4,
        keys: 2,
        are_interleaved: true,
        expanded: Some(Expanded {
            still: 2,
            values: 1,
        }),
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
                "model.layers.2.self_attn.kv_a_proj_with_mqa.weight",
                "blk.2.attn_kv_a_mqa.weight",
                Order::Same,
                None,
            ),
            (
                "model.layers.2.mlp.gate.e_score_correction_bias",
                "blk.2.exp_probs_b.bias",
                Order::Same,
                None,
            ),
            (
                "model.layers.2.mlp.shared_experts.up_proj.weight",
                "blk.2.ffn_up_shexp.weight",
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
            assert_eq!(places(theirs, HEADS), [want], "{theirs}");
        }
        let unknown = places("bert.embeddings.word_embeddings.weight", HEADS);
        assert_eq!(unknown, []);
        let without = Heads {
            expanded: None,
            ..HEADS
        };
        let up = "model.layers.3.self_attn.kv_b_proj.weight";
        assert_eq!(places(up, without), []);
        let names: Vec<String> = places(up, HEADS).into_iter().map(|at| at.name).collect();
        assert_eq!(names, ["blk.3.attn_k_b.weight", "blk.3.attn_v_b.weight"]);
    }

    /// llama.cpp's converter: `k_b, v_b = split(kv_b.view(heads, still + values, rank), [still, values], 1)`, `k_b.transpose(1, 2)`.
    #[test]
    fn keys_and_values_of_a_latent_part_and_join() {
        // two heads of two rows of keys and one of values, rank 2
        let dims = [6, 2];
        let x: Vec<f32> = (0..12_u8).map(f32::from).collect();
        let [keys, values] = &places("model.layers.0.self_attn.kv_b_proj.weight", HEADS)[..] else {
            panic!("two tensors");
        };
        assert_eq!(keys.order.dims(&dims), [2, 2, 2]);
        assert_eq!(values.order.dims(&dims), [2, 1, 2]);
        let [k, v] = [keys, values].map(|part| part.order.to_gguf(x.clone(), &dims));
        assert_eq!(k, [0.0, 2.0, 1.0, 3.0, 6.0, 8.0, 7.0, 9.0]);
        assert_eq!(v, [4.0, 5.0, 10.0, 11.0]);
        let mut back = vec![f32::NAN; 12];
        keys.order.put_back(&k, &dims, &mut back);
        values.order.put_back(&v, &dims, &mut back);
        assert_eq!(back, x);
    }

    /// The permutation of llama.cpp's converter: `reshape(heads, 2, width / 2).swapaxes(1, 2)`.
    #[test]
    fn rows_of_a_head_become_pairs_and_come_back() {
        let x: Vec<f32> = (0..8_u8).map(f32::from).collect();
        for (order, dims, want) in [
            (
                Order::Interleaved(2),
                [8, 1],
                [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0],
            ),
            (
                Order::Transposed,
                [2, 4],
                [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0],
            ),
        ] {
            let there = order.to_gguf(x.clone(), &dims);
            assert_eq!(there, want);
            let mut back = vec![f32::NAN; 8];
            order.put_back(&there, &dims, &mut back);
            assert_eq!(back, x);
        }
    }
}

//! Tensor name map between Hugging Face and Millrace, element by element. One list serves both directions, so an
//! exported model is imported bit for bit.
//!
//! Our layout differs from theirs in three points: row-parallel matrices are `[in, out]` (as GPT-2's
//! Conv1D, unlike torch's Linear); queries, keys and values are packed per group of heads; the
//! gated layer is stored in eight chunks of gate rows and up rows. Vocabulary padding is dropped.

use crate::checkpoint::huggingface::pair::{GatedWidth, Own, Pair, Prefixes, Rows, add_gated};
use crate::checkpoint::huggingface::{bert, bloom, deepseek, falcon, gpt_neox, moe, opt, t5};
use crate::config::architecture::Architecture;
use crate::config::plan::Plan;
use crate::config::{Biases, Family, NormPlace, QkNormOver};
use crate::model::param::CLASSES;

/// Name of the output head in most classes.
const HEAD: &str = "lm_head.weight";

/// All tensors of the family's class, in its order.
pub(crate) fn pairs(plan: &Plan) -> Vec<Pair> {
    match plan.model.family {
        Family::Gpt => gpt(plan),
        Family::GptNeox => {
            let mut pairs = gpt_neox::pairs(plan);
            add_head(&mut pairs, plan, gpt_neox::HEAD);
            pairs
        }
        Family::Falcon => {
            let mut pairs = falcon::pairs(plan);
            add_head(&mut pairs, plan, HEAD);
            pairs
        }
        Family::Bloom => {
            let mut pairs = bloom::pairs(plan);
            add_head(&mut pairs, plan, HEAD);
            pairs
        }
        Family::Opt => {
            let mut pairs = opt::pairs(plan);
            add_head(&mut pairs, plan, HEAD);
            pairs
        }
        Family::Bert => bert::pairs(plan),
        Family::T5 => t5::pairs(plan),
        Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Qwen3
        | Family::Phi3
        | Family::Olmo2
        | Family::Gemma2
        | Family::Gemma3
        | Family::GptOss
        | Family::DeepseekV2
        | Family::DeepseekV3 => llama(plan),
    }
}

fn gpt(plan: &Plan) -> Vec<Pair> {
    let (s, d) = (plan.shape(), plan.model.d_model);
    let same = |theirs: &str, ours: &str, dims: &[usize]| {
        Pair::of(format!("transformer.{theirs}"), ours.into(), dims)
    };
    let mut pairs = vec![
        same("wte.weight", "embedding.weight", &[plan.vocab, d]),
        same("wpe.weight", "position.weight", &[plan.position_rows(), d]),
    ];
    let width = s.heads * s.d_head;
    for layer in 0..plan.model.layers {
        let own = |theirs: &str, ours: &str, dims: &[usize]| {
            same(
                &format!("h.{layer}.{theirs}"),
                &format!("layers.{layer}.{ours}"),
                dims,
            )
        };
        for kind in ["weight", "bias"] {
            pairs.push(own(&format!("ln_1.{kind}"), &format!("norm1.{kind}"), &[d]));
            pairs.push(own(&format!("ln_2.{kind}"), &format!("norm2.{kind}"), &[d]));
        }
        let qkv = own("attn.c_attn.weight", "qkv.weight", &[s.packed, d]);
        let bias = own("attn.c_attn.bias", "qkv.bias", &[s.packed]);
        pairs.extend([
            qkv.rows(Rows::Packed, 0).transposed(),
            bias.rows(Rows::Packed, 0),
            own("attn.c_proj.weight", "out.weight", &[width, d]),
            own("attn.c_proj.bias", "out.bias", &[d]),
            own("mlp.c_fc.weight", "fc1.weight", &[s.d_ffn, d]).transposed(),
            own("mlp.c_fc.bias", "fc1.bias", &[s.d_ffn]),
            own("mlp.c_proj.weight", "fc2.weight", &[s.d_ffn, d]),
            own("mlp.c_proj.bias", "fc2.bias", &[d]),
        ]);
    }
    pairs.push(same("ln_f.weight", "norm.weight", &[d]));
    pairs.push(same("ln_f.bias", "norm.bias", &[d]));
    add_head(&mut pairs, plan, HEAD);
    pairs
}

fn llama(plan: &Plan) -> Vec<Pair> {
    let table = [plan.vocab, plan.model.d_model];
    let mut pairs = vec![Pair::of(
        "model.embed_tokens.weight".into(),
        "embedding.weight".into(),
        &table,
    )];
    for layer in 0..plan.model.layers + plan.model.mtp_num_layers {
        let at = plan.model.block_name(layer);
        let own = |theirs: &str, ours: &str, dims: &[usize]| {
            let theirs = format!("model.layers.{layer}.{theirs}");
            Pair::of(theirs, format!("{at}.{ours}"), dims)
        };
        if layer == plan.model.layers {
            add_ends(&mut pairs, plan);
        }
        if layer >= plan.model.layers {
            deepseek::add_depth(&mut pairs, plan, layer, &own);
        }
        add_layer(&mut pairs, plan, layer, &own);
    }
    if plan.model.mtp_num_layers == 0 {
        add_ends(&mut pairs, plan);
    }
    pairs
}

/// The last norm and the head.
fn add_ends(pairs: &mut Vec<Pair>, plan: &Plan) {
    let dims = [plan.model.d_model];
    let norm = Pair::of("model.norm.weight".into(), "norm.weight".into(), &dims);
    pairs.push(norm);
    add_head(pairs, plan, HEAD);
}

/// A layer of a class like LLaMA's.
fn add_layer(pairs: &mut Vec<Pair>, plan: &Plan, layer: usize, own: Own<'_>) {
    let (d, architecture) = (plan.model.d_model, plan.model.architecture());
    for (theirs, ours) in norms(architecture.norm_place) {
        let (theirs, ours) = (format!("{theirs}.weight"), format!("{ours}.weight"));
        pairs.push(own(&theirs, &ours, &[d]));
    }
    if plan.model.family == Family::Phi3 {
        return add_packed(pairs, plan, own);
    }
    match plan.model.latents() {
        Some(latents) => deepseek::add_attention(pairs, plan, &latents, own),
        None => add_attention(pairs, plan, &architecture, own),
    }
    if architecture.has_sinks {
        let heads = plan.shape().heads;
        pairs.push(own("self_attn.sinks", "sinks.weight", &[heads]));
    }
    match plan.model.moe_at(layer) {
        Some(moe) => moe::add(pairs, plan, moe, own),
        None => {
            let names = ["gate_proj", "up_proj", "down_proj"];
            let f = plan.shape().d_ffn;
            let prefixes = Prefixes {
                to: "mlp",
                from: "",
            };
            add_gated(pairs, own, GatedWidth { f, d }, prefixes, names);
            if architecture.biases == Biases::All {
                pairs.extend([
                    own("mlp.gate_proj.bias", "fc1.bias", &[f]).rows(Rows::Gated(f), 0),
                    own("mlp.up_proj.bias", "fc1.bias", &[f]).rows(Rows::Gated(f), f),
                    own("mlp.down_proj.bias", "fc2.bias", &[d]),
                ]);
            }
        }
    }
}

/// Norms of a block, theirs and ours. The class's `post_attention_layernorm` is the second norm of a block with norms before
/// the layers alone.
fn norms(place: NormPlace) -> &'static [(&'static str, &'static str)] {
    match place {
        NormPlace::Before => &[
            ("input_layernorm", "norm1"),
            ("post_attention_layernorm", "norm2"),
        ],
        NormPlace::After => &[
            ("post_attention_layernorm", "norm1_after"),
            ("post_feedforward_layernorm", "norm2_after"),
        ],
        NormPlace::Both => &[
            ("input_layernorm", "norm1"),
            ("post_attention_layernorm", "norm1_after"),
            ("pre_feedforward_layernorm", "norm2"),
            ("post_feedforward_layernorm", "norm2_after"),
        ],
    }
}

/// Phi-3: queries, keys and values in one matrix, gates and ups in another.
fn add_packed(pairs: &mut Vec<Pair>, plan: &Plan, own: Own<'_>) {
    let (s, d) = (plan.shape(), plan.model.d_model);
    let (width, f) = (s.heads * s.d_head, s.d_ffn);
    let qkv = own("self_attn.qkv_proj.weight", "qkv.weight", &[s.packed, d]);
    let gated = own("mlp.gate_up_proj.weight", "fc1.weight", &[2 * f, d]);
    pairs.extend([
        qkv.rows(Rows::Packed, 0),
        own("self_attn.o_proj.weight", "out.weight", &[width, d]).transposed(),
        gated.rows(Rows::Gated(f), 0),
        own("mlp.down_proj.weight", "fc2.weight", &[f, d]).transposed(),
    ]);
}

fn add_attention(pairs: &mut Vec<Pair>, plan: &Plan, architecture: &Architecture, own: Own<'_>) {
    let (s, d) = (plan.shape(), plan.model.d_model);
    let (width, kv_width) = (s.heads * s.d_head, s.kv_heads * s.d_head);
    let parts = [
        ("q_proj", 0, width),
        ("k_proj", width, kv_width),
        ("v_proj", width + kv_width, kv_width),
    ];
    for (name, first, rows) in parts {
        let weight = format!("self_attn.{name}.weight");
        pairs.push(own(&weight, "qkv.weight", &[rows, d]).rows(Rows::Packed, first));
        if architecture.biases != Biases::None {
            let bias = format!("self_attn.{name}.bias");
            pairs.push(own(&bias, "qkv.bias", &[rows]).rows(Rows::Packed, first));
        }
    }
    pairs.push(own("self_attn.o_proj.weight", "out.weight", &[width, d]).transposed());
    if architecture.biases == Biases::All {
        pairs.push(own("self_attn.o_proj.bias", "out.bias", &[d]));
    }
    if architecture.qk_norm {
        for (name, width) in [("q_norm", width), ("k_norm", kv_width)] {
            let ours = format!("{name}.weight");
            let width = match architecture.qk_norm_over {
                QkNormOver::Head => s.d_head,
                QkNormOver::All => width,
            };
            pairs.push(own(&format!("self_attn.{ours}"), &ours, &[width]));
        }
    }
}

/// Adds the classification head, or the vocabulary's under this name if it has weights of its own.
fn add_head(pairs: &mut Vec<Pair>, plan: &Plan, name: &str) {
    if let Some(classify) = &plan.model.classify {
        let names = ("score.weight".into(), format!("{CLASSES}.weight"));
        let dims = [classify.classes, plan.model.d_model];
        pairs.push(Pair::of(names.0, names.1, &dims));
        return;
    }
    if !plan.model.is_tied() {
        let dims = [plan.vocab, plan.model.d_model];
        pairs.push(Pair::of(name.into(), "head.weight".into(), &dims));
    }
}

//! Numbers of a foreign configuration against the weights beside it, before any of them is obeyed: a model of a hundred
//! million layers in a file of 70 KB must be an error and not an allocation.

use crate::checkpoint::huggingface::described::Read;
use crate::config::architecture::Positions;

/// Longest sequence of a model whose positions are computed, and so have no table in its files.
const MOST_POSITIONS: usize = 1 << 31;

/// A line for each number that is larger than the files can hold: every layer has a tensor of its own, and every width is a
/// dim of some tensor. `elements` are those of all `tensors` together.
pub(crate) fn problems(read: &Read, tensors: usize, elements: usize) -> Vec<String> {
    let model = &read.model;
    let mut lines = Vec::new();
    let mut at_most = |name: &str, found: usize, most: usize, of: &str| {
        if found > most {
            lines.push(format!("{name}: found {found}, want at most {most}, {of}"));
        }
    };
    let (of_tensors, of_elements) = (
        "the number of tensors in the files",
        "the number of elements in the files",
    );
    at_most("layers", model.layers, tensors, of_tensors);
    at_most("decoder layers", model.decoder_layers, tensors, of_tensors);
    let positions = match model.architecture().positions {
        Positions::Learned => (elements, of_elements),
        Positions::Rotary | Positions::Relative => (MOST_POSITIONS, "the longest sequence"),
    };
    at_most("length", read.seq_length, positions.0, positions.1);
    at_most(
        "decoder length",
        read.decoder_length,
        MOST_POSITIONS,
        "the longest sequence",
    );
    let moe = model.moe.as_ref();
    let of_moe = |count: fn(&crate::MoeConfig) -> usize| moe.map_or(0, count);
    for (name, found) in [
        ("vocabulary", read.vocab),
        ("width", model.d_model),
        ("heads", model.heads),
        ("key-value heads", model.kv_heads),
        ("head width", model.head_dim),
        (
            "heads x head width",
            model.heads.saturating_mul(model.head_dim),
        ),
        ("feed-forward width", model.d_ffn),
        ("buckets of positions", model.relative_buckets),
        ("experts", of_moe(|moe| moe.experts)),
        (
            "layers x experts",
            model.layers.saturating_mul(of_moe(|moe| moe.experts)),
        ),
        ("experts' width", of_moe(|moe| moe.d_ffn)),
        ("shared experts' width", of_moe(|moe| moe.shared_d_ffn)),
        ("dense layers in front", of_moe(|moe| moe.dense_first)),
        ("chosen experts", of_moe(|moe| moe.top_k)),
    ] {
        let is_table = name != "buckets of positions" || read.decoder_length > 0;
        at_most(
            name,
            if is_table { found } else { 0 },
            elements,
            of_elements,
        );
    }
    lines
}

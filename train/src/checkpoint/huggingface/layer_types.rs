//! `layer_types` of a `config.json`: which layers have a window.

use crate::checkpoint::huggingface::fields::Fields;
use crate::config::ModelConfig;

/// Layers with a window, and those that see all keys.
pub(crate) const SLIDING: &str = "sliding_attention";
pub(crate) const FULL: &str = "full_attention";

/// The kind of every layer.
pub(crate) fn kinds(model: &ModelConfig) -> Vec<&'static str> {
    let kinds = (0..model.layers).map(|layer| match model.window_at(layer) {
        0 => FULL,
        _ => SLIDING,
    });
    kinds.collect()
}

/// The window, or the length of sequences if no layer has one: the classes want a number.
pub(crate) fn window(model: &ModelConfig, seq_length: usize) -> usize {
    match (0..model.layers).any(|layer| model.window_at(layer) > 0) {
        true => model.sliding_window,
        false => seq_length,
    }
}

/// Number of which the layers that see all keys are multiples, 0 if there are none; `absent` if a file has no list.
pub(crate) fn read(fields: &Fields<'_>, layers: usize, absent: usize) -> usize {
    let Some(kinds) = fields.texts("layer_types") else {
        return absent;
    };
    let first = kinds.iter().position(|kind| kind == FULL);
    let every = first.map_or(0, |first| first + 1);
    let kind_of = |layer: usize| match every {
        0 => SLIDING,
        every if (layer + 1).is_multiple_of(every) => FULL,
        _ => SLIDING,
    };
    let is_regular = (kinds.iter().enumerate()).all(|(layer, kind)| kind == kind_of(layer));
    if kinds.len() != layers || !is_regular {
        let wanted =
            format!("{SLIDING} in {layers} layers but {FULL} in each of a number's multiples");
        fields.wrong("layer_types", &format!("{kinds:?}"), &wanted);
    }
    every
}

/// The window of a file, 0 for none, with `absent` if it has none, beside its layers' `global_every`.
pub(crate) fn read_window(fields: &Fields<'_>, absent: usize, global_every: usize) -> usize {
    let window = match fields.is_null("sliding_window") {
        true => 0,
        false => fields.count_or("sliding_window", absent),
    };
    if window == 0 && global_every != 1 {
        let wanted = format!("a number: layer_types has {SLIDING}");
        fields.wrong("sliding_window", "null", &wanted);
    }
    window
}

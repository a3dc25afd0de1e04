//! Rotary positions in a `config.json`: `rope_parameters` since transformers 5, `rope_theta` with `rope_scaling` before.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::described::decimal;
use crate::checkpoint::huggingface::fields::Fields;
use crate::config::{ModelConfig, Plan, RopeScaling};

/// Base of the wavelengths where a file has none.
pub(crate) const THETA: f32 = 10_000.0;

/// `rope_parameters` of a model.
pub(crate) fn to_json(model: &ModelConfig) -> Value {
    let theta = decimal(model.rope_theta);
    match model.rope_scaling {
        None => json!({"rope_type": "default", "rope_theta": theta}),
        Some(RopeScaling::Linear { factor }) => {
            json!({"rope_type": "linear", "rope_theta": theta, "factor": factor})
        }
        Some(RopeScaling::Dynamic {
            factor,
            original_length,
        }) => json!({"rope_type": "dynamic", "rope_theta": theta, "factor": factor,
            "original_max_position_embeddings": original_length}),
        Some(RopeScaling::Yarn {
            factor,
            original_length,
            beta_fast,
            beta_slow,
            attention_factor,
            mscale,
            mscale_all_dim,
            truncate,
        }) => {
            let mut value = json!({"rope_type": "yarn", "rope_theta": theta, "factor": factor,
                "original_max_position_embeddings": original_length,
                "beta_fast": beta_fast, "beta_slow": beta_slow});
            if let Some(factor) = attention_factor {
                value["attention_factor"] = json!(factor);
            }
            for (name, of) in [("mscale", mscale), ("mscale_all_dim", mscale_all_dim)] {
                if let Some(of) = of {
                    value[name] = json!(of);
                }
            }
            if !truncate {
                value["truncate"] = json!(false);
            }
            value
        }
        Some(RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_length,
        }) => json!({"rope_type": "llama3", "rope_theta": theta, "factor": factor,
            "low_freq_factor": low_freq_factor, "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_length}),
    }
}

/// Rotary embedding of a `config.json`.
pub(crate) struct Rope {
    /// Base of the wavelengths, if a field has it.
    pub theta: Option<f32>,
    pub scaling: Option<RopeScaling>,
    /// Share of a head that is turned, if `rope_parameters` has it.
    pub share: Option<f32>,
}

/// `rope_parameters`, or `rope_theta` with `rope_scaling` as files before transformers 5 have them.
pub(crate) fn read(fields: &Fields<'_>, length: usize) -> Rope {
    let old = fields.number_or("rope_theta");
    let (mut theta, mut scaling, mut share) = (old, None, None);
    for name in ["rope_scaling", "rope_parameters"] {
        let Some(table) = fields.table(name) else {
            continue;
        };
        let table = Fields::of(table, name);
        if let Some(own) = table.number_or("rope_theta") {
            if old.is_some_and(|old| old != own) {
                let wanted = format!("rope_theta = {}", theta.unwrap_or(own));
                table.wrong("rope_theta", &own.to_string(), &wanted);
            }
            theta = Some(own);
        }
        share = table.number_or("partial_rotary_factor").or(share);
        let found = read_scaling(&table, length);
        if name == "rope_parameters" && scaling.is_some() && scaling != found {
            table.wrong(
                "rope_type",
                &format!("{found:?}"),
                "the same as rope_scaling",
            );
        }
        scaling = found.or(scaling);
        fields.problems.borrow_mut().extend(table.finish());
        fields.notes.borrow_mut().extend(table.notes.take());
    }
    Rope {
        theta,
        scaling,
        share,
    }
}

/// The class's maximum length: the length at which dynamic scaling starts, since the class reads it nowhere else;
/// otherwise the training length.
pub(crate) fn positions(plan: &Plan) -> usize {
    match plan.model.rope_scaling {
        Some(RopeScaling::Dynamic {
            original_length, ..
        }) => original_length,
        _ => plan.seq_length,
    }
}

/// Adds `rope_scaling`, which classes before transformers 5 read in place of `rope_parameters`; it has no base.
pub(crate) fn add_scaling(config: &mut Value, model: &ModelConfig) {
    if model.rope_scaling.is_none() {
        return;
    }
    let mut scaling = to_json(model);
    if let Some(table) = scaling.as_object_mut() {
        table.shift_remove("rope_theta");
    }
    config["rope_scaling"] = scaling;
}

/// Adds the training length where the class's maximum is another: a field of our own, which the class ignores.
pub(crate) fn add_length(config: &mut Value, plan: &Plan) {
    if positions(plan) != plan.seq_length {
        config["seq_length"] = json!(plan.seq_length);
    }
}

/// A table of rotary positions of one type of layers.
pub(crate) fn of_table(table: &Fields<'_>, length: usize) -> Rope {
    Rope {
        theta: table.number_or("rope_theta"),
        share: table.number_or("partial_rotary_factor"),
        scaling: read_scaling(table, length),
    }
}

fn read_scaling(table: &Fields<'_>, length: usize) -> Option<RopeScaling> {
    let kind = table.text_or("type", "default");
    let kind = table.text_or("rope_type", &kind);
    let wide = |name: &str, default: Option<f64>| table.wide(name, default);
    let factor = || wide("factor", None);
    let original = || table.count_or("original_max_position_embeddings", length);
    match kind.as_str() {
        "default" => None,
        "linear" => Some(RopeScaling::Linear { factor: factor() }),
        "dynamic" => {
            // transformers reads the model's length alone (`_compute_dynamic_ntk_parameters`)
            if table.has("original_max_position_embeddings") && original() != length {
                let line = format!(
                    "{}.original_max_position_embeddings = {} is ignored, as transformers does: the scaling starts at \
                     max_position_embeddings = {length}",
                    table.at,
                    original()
                );
                table.notes.borrow_mut().push(line);
            }
            Some(RopeScaling::Dynamic {
                factor: factor(),
                original_length: length,
            })
        }
        "yarn" => {
            let some = |name: &str| table.has(name).then(|| wide(name, None));
            Some(RopeScaling::Yarn {
                factor: factor(),
                original_length: original(),
                beta_fast: wide("beta_fast", Some(32.0)),
                beta_slow: wide("beta_slow", Some(1.0)),
                attention_factor: some("attention_factor"),
                mscale: some("mscale"),
                mscale_all_dim: some("mscale_all_dim"),
                truncate: table.flag("truncate", true),
            })
        }
        "llama3" => Some(RopeScaling::Llama3 {
            factor: factor(),
            low_freq_factor: wide("low_freq_factor", None),
            high_freq_factor: wide("high_freq_factor", None),
            original_length: original(),
        }),
        other => {
            let wanted = "default, linear, dynamic, yarn or llama3";
            table.wrong("rope_type", other, wanted);
            None
        }
    }
}

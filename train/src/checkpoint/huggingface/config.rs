//! Converts between our model settings and the `config.json` of Hugging Face's model classes.
//!
//! Reading is strict: each field that shapes the model is read or refused by name, unknown fields are refused too,
//! and all problems are reported at once. Fields about how a model is run or was made (token ids, caches, number
//! formats, labels) are ignored.

use serde_json::{Map, Value, json};

use crate::checkpoint::huggingface::described::{Read, decimal, function, plain, stated_width};
use crate::checkpoint::huggingface::fields::Fields;
use crate::checkpoint::huggingface::moe::{Class, class_of};
use crate::checkpoint::huggingface::rope::Rope;
use crate::checkpoint::huggingface::{
    bert, bloom, classes, deepseek, falcon, gemma, gpt_neox, gpt_oss, moe, opt, rope, t5,
};
use crate::config::architecture::Positions;
use crate::config::plan::Plan;
use crate::config::{
    Activation, Biases, Family, ModelConfig, NormKind, NormPlace, QkNormOver, TieEmbeddings,
};
use crate::error::{self, Error};

/// Model type and class of a family.
fn class(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::Gpt => ("gpt2", "GPT2LMHeadModel"),
        Family::GptNeox => ("gpt_neox", "GPTNeoXForCausalLM"),
        Family::Opt => ("opt", "OPTForCausalLM"),
        Family::Falcon => ("falcon", "FalconForCausalLM"),
        Family::Bloom => ("bloom", "BloomForCausalLM"),
        Family::Llama => ("llama", "LlamaForCausalLM"),
        Family::Mistral => ("mistral", "MistralForCausalLM"),
        Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
        Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        Family::Phi3 => ("phi3", "Phi3ForCausalLM"),
        Family::Olmo2 => ("olmo2", "Olmo2ForCausalLM"),
        Family::Gemma2 => ("gemma2", "Gemma2ForCausalLM"),
        Family::Gemma3 => ("gemma3_text", "Gemma3ForCausalLM"),
        Family::GptOss => ("gpt_oss", "GptOssForCausalLM"),
        Family::DeepseekV2 => ("deepseek_v2", "DeepseekV2ForCausalLM"),
        Family::DeepseekV3 => ("deepseek_v3", "DeepseekV3ForCausalLM"),
        Family::Bert => ("bert", "BertForMaskedLM"),
        Family::T5 => ("t5", "T5ForConditionalGeneration"),
    }
}

/// Field of the deviation of initial weights.
fn init_std(family: Family) -> &'static str {
    match family {
        Family::Opt => "init_std",
        Family::Gpt
        | Family::GptNeox
        | Family::Falcon
        | Family::Bloom
        | Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Qwen3
        | Family::Phi3
        | Family::Olmo2
        | Family::Gemma2
        | Family::Gemma3
        | Family::GptOss
        | Family::DeepseekV2
        | Family::DeepseekV3
        | Family::Bert
        | Family::T5 => "initializer_range",
    }
}

/// Model settings that the class's `config.json` cannot express, one line each.
pub(crate) fn inexpressible(plan: &Plan) -> Vec<String> {
    let (model, found) = (&plan.model, plan.model.architecture());
    let mut lines = Vec::new();
    let mut refuse = |is_wrong: bool, line: String| {
        if is_wrong {
            lines.push(line);
        }
    };
    let (kind, _) = class(model.family);
    let is_gpt = matches!(
        model.family,
        Family::Gpt | Family::GptNeox | Family::Opt | Family::Bloom | Family::Bert
    );
    let is_falcon = model.family == Family::Falcon;
    let norm = if is_gpt || is_falcon {
        NormKind::Layer
    } else {
        NormKind::Rms
    };
    refuse(
        found.norm != norm,
        format!("norm = {:?} in {kind}", found.norm),
    );
    let gated = found.activation.is_gated();
    let is_pair = model.family == Family::T5;
    refuse(
        gated == (is_gpt || is_falcon) && !is_pair,
        format!("activation = {:?} in {kind}", found.activation),
    );
    let biases: &[Biases] = match model.family {
        Family::Gpt | Family::GptNeox | Family::Opt | Family::Bloom | Family::Bert => {
            &[Biases::All]
        }
        Family::GptOss => &[Biases::All],
        Family::Llama | Family::Falcon => &[Biases::None, Biases::All],
        Family::Qwen2 => &[Biases::Qkv],
        Family::Mistral
        | Family::Qwen3
        | Family::Phi3
        | Family::Olmo2
        | Family::Gemma2
        | Family::Gemma3
        | Family::DeepseekV2
        | Family::DeepseekV3
        | Family::T5 => &[Biases::None],
    };
    let bias = found.biases;
    refuse(
        !biases.contains(&bias),
        format!("bias = {bias:?} in {kind}"),
    );
    let has_norms = matches!(model.family, Family::Qwen3 | Family::Olmo2 | Family::Gemma3);
    refuse(
        found.qk_norm != has_norms,
        format!("qk_norm = {} in {kind}", found.qk_norm),
    );
    let (over, place) = match model.family {
        Family::Olmo2 => (QkNormOver::All, NormPlace::After),
        Family::Gemma2 | Family::Gemma3 => (QkNormOver::Head, NormPlace::Both),
        Family::Gpt
        | Family::GptNeox
        | Family::Opt
        | Family::Falcon
        | Family::Bloom
        | Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Qwen3
        | Family::Phi3
        | Family::GptOss
        | Family::DeepseekV2
        | Family::DeepseekV3
        | Family::Bert
        | Family::T5 => (QkNormOver::Head, NormPlace::Before),
    };
    refuse(
        found.qk_norm && found.qk_norm_over != over,
        format!("qk_norm_over = {:?} in {kind}", found.qk_norm_over),
    );
    let is_gemma = matches!(model.family, Family::Gemma2 | Family::Gemma3);
    for (key, is_set) in [
        ("norm_plus_one", found.norm_plus_one),
        ("scaled_embedding", found.scaled_embedding),
    ] {
        refuse(is_set != is_gemma, format!("{key} = {is_set} in {kind}"));
    }
    let is_bloom = model.family == Family::Bloom;
    let is_gpt_oss = model.family == Family::GptOss;
    for (key, is_set, wanted) in [
        (
            "embedding_norm",
            found.has_embedding_norm,
            is_bloom || found.is_post_norm,
        ),
        ("alibi", found.positions == Positions::Alibi, is_bloom),
        ("attention_sinks", found.has_sinks, is_gpt_oss),
    ] {
        refuse(is_set != wanted, format!("{key} = {is_set} in {kind}"));
    }
    for line in bloom::inexpressible(model) {
        refuse(is_bloom, line);
    }
    for line in gpt_oss::inexpressible(model) {
        refuse(is_gpt_oss, line);
    }
    let is_deepseek = deepseek::is_deepseek(model.family);
    for line in deepseek::inexpressible(model) {
        refuse(is_deepseek, line);
    }
    refuse(
        found.has_latents && !is_deepseek,
        format!("multi_latent_attention = true in {kind}"),
    );
    refuse(
        found.activation == Activation::SwigluClamped && !is_gpt_oss,
        format!("activation = {:?} in {kind}", found.activation),
    );
    let cap = model.attention_cap;
    refuse(
        cap > 0.0 && model.family != Family::Gemma2,
        format!("attention_cap = {cap} in {kind}"),
    );
    let cap = model.logit_cap;
    refuse(
        cap > 0.0 && !is_gemma,
        format!("logit_cap = {cap} in {kind}"),
    );
    let divisor = model.score_divisor;
    refuse(
        divisor != 0.0 && divisor != model.d_head() as f32 && !is_gemma,
        format!("score_divisor = {divisor} in {kind}"),
    );
    let (every, theta) = (model.global_every, model.local_rope_theta);
    refuse(
        every > 0 && !is_gemma && !is_gpt_oss,
        format!("global_every = {every} in {kind}"),
    );
    refuse(
        theta > 0.0
            && (theta != model.rope_theta || model.rope_scaling.is_some())
            && model.family != Family::Gemma3,
        format!("local_rope_theta = {theta} in {kind}"),
    );
    // the class scales layers without a window alone
    refuse(
        model.family == Family::Gemma3
            && model.rope_scaling.is_some()
            && model.sliding_window > 0
            && theta == 0.0,
        format!("rope_scaling without local_rope_theta in {kind}"),
    );
    refuse(
        found.norm_place != place,
        format!("norm_place = {:?} in {kind}", found.norm_place),
    );
    refuse(
        model.norm_eps != opt::NORM_EPS && model.family == Family::Opt,
        format!("norm_eps = {} in {kind}", model.norm_eps),
    );
    refuse(
        found.is_parallel && !matches!(model.family, Family::GptNeox | Family::Falcon),
        format!("parallel_residual = true in {kind}"),
    );
    refuse(
        found.has_shared_norm && !is_falcon,
        format!("shared_norm = true in {kind}"),
    );
    let may_slide = matches!(
        model.family,
        Family::Mistral
            | Family::Qwen2
            | Family::Qwen3
            | Family::Phi3
            | Family::Gemma2
            | Family::Gemma3
            | Family::GptOss
    );
    let window = model.sliding_window;
    refuse(
        window > 0 && !may_slide,
        format!("sliding_window = {window} in {kind}"),
    );
    let share = model.rotary_percent;
    refuse(
        share != 1.0 && !is_gpt && model.family != Family::Phi3,
        format!("rotary_percent = {share} in {kind}"),
    );
    refuse(
        model.rope_scaling.is_some()
            && matches!(
                model.family,
                Family::Phi3 | Family::GptNeox | Family::Falcon | Family::Olmo2 | Family::Gemma2
            ),
        format!("rope_scaling in {kind}"),
    );
    let p = model.dropout;
    let attention = model.attention_dropout;
    refuse(
        p > 0.0 && !is_gpt && !is_pair,
        format!("dropout = {p} in {kind}"),
    );
    refuse(
        attention > 0.0 && is_falcon,
        format!("attention_dropout = {attention} in {kind}"),
    );
    refuse(
        p != attention && is_pair,
        format!("dropout = {p} beside attention_dropout = {attention} in {kind}"),
    );
    let grouped = model.kv_heads() != model.heads;
    refuse(grouped && is_pair, format!("kv_heads in {kind}"));
    let own = model.kv_heads() != model.heads || model.head_dim > 0;
    refuse(own && is_gpt, format!("kv_heads or head_dim in {kind}"));
    refuse(
        model.head_dim > 0 && is_falcon,
        format!("head_dim = {} in {kind}", model.head_dim),
    );
    refuse(
        is_falcon && falcon::lacks_groups(model),
        format!(
            "kv_heads = {} without parallel_residual in {kind}",
            model.kv_heads()
        ),
    );
    // Qwen MoE with biases is Qwen 2 with experts
    let may_mix = match model.family {
        Family::Llama => bias == Biases::None,
        Family::GptOss => bias == Biases::All,
        Family::DeepseekV2 | Family::DeepseekV3 => true,
        Family::Qwen2 => model.moe.as_ref().is_some_and(|moe| moe.shared_gate),
        _ => false,
    };
    if let Some(classify) = &model.classify {
        let has_class = !matches!(
            model.family,
            Family::Olmo2
                | Family::Gemma3
                | Family::GptOss
                | Family::DeepseekV2
                | Family::DeepseekV3
        );
        refuse(!has_class, format!("classify in {kind}"));
        let may_choose = model.family == Family::Bert;
        refuse(
            classify.choices > 1 && !may_choose,
            format!("classify.choices = {} in {kind}", classify.choices),
        );
    }
    let depths = model.mtp_num_layers;
    refuse(
        depths > 0 && model.family != Family::DeepseekV3,
        format!("mtp_num_layers = {depths} in {kind}"),
    );
    let mixes = model.moe.is_some() && !may_mix;
    refuse(mixes, format!("moe in {kind} with bias = {bias:?}"));
    lines
}

/// Refuses a model that no class of transformers expresses.
///
/// # Errors
/// `Request` with every setting that the family's class lacks, or with those of a mixture that no class has.
pub(super) fn expect_class(plan: &Plan) -> error::Result<()> {
    let lacking = inexpressible(plan);
    if !lacking.is_empty() {
        return Err(Error::Request {
            what: "model to export",
            found: lacking.join("; "),
            wanted: "settings that its class in transformers supports".into(),
        });
    }
    match &plan.model.moe {
        Some(moe) => class_of(&plan.model, moe).map(|_| ()),
        None => Ok(()),
    }
}

/// The `config.json` of a model that its class can express.
///
/// # Errors
/// A mixture of experts that matches no known class.
pub(crate) fn to_json(plan: &Plan) -> error::Result<Value> {
    let model = &plan.model;
    let mut config = match model.family {
        Family::Bert => return Ok(bert::config(plan)),
        Family::T5 => return Ok(t5::config(plan)),
        Family::Gpt => gpt(plan),
        Family::GptNeox => gpt_neox::config(plan),
        Family::Opt => opt::config(plan),
        Family::Falcon => falcon::config(plan),
        Family::Bloom => bloom::config(plan),
        Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Qwen3
        | Family::Phi3
        | Family::Olmo2 => llama(plan),
        Family::Gemma2 | Family::Gemma3 => gemma::config(plan),
        Family::GptOss => gpt_oss::config(plan),
        Family::DeepseekV2 | Family::DeepseekV3 => deepseek::config(plan),
    };
    let (kind, class) = class(model.family);
    config["architectures"] = json!([class]);
    if let Some(classify) = &model.classify {
        let stem = class.trim_end_matches("LMHeadModel");
        let stem = stem.trim_end_matches("ForCausalLM");
        config["architectures"] = json!([format!("{stem}{}", classes::ending(classify))]);
        classes::describe(classify, &mut config);
    }
    config["model_type"] = json!(kind);
    for field in ["bos_token_id", "eos_token_id"] {
        config[field] = Value::Null;
    }
    config["vocab_size"] = json!(plan.vocab);
    config[init_std(model.family)] = json!(decimal(model.init_std));
    config["tie_word_embeddings"] = json!(model.is_tied());
    config["dtype"] = json!("float32");
    match &model.moe {
        Some(moe) => Ok(moe::config(class_of(model, moe)?, model, moe, config)),
        None => Ok(config),
    }
}

fn gpt(plan: &Plan) -> Value {
    let model = &plan.model;
    json!({
        "n_positions": plan.seq_length,
        "n_embd": model.d_model,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.d_ffn(),
        "activation_function": function(model.architecture().activation),
        "layer_norm_epsilon": decimal(model.norm_eps),
        "attn_pdrop": decimal(model.attention_dropout),
        "embd_pdrop": decimal(model.dropout),
        "resid_pdrop": decimal(model.dropout),
    })
}

fn llama(plan: &Plan) -> Value {
    let (shape, model) = (plan.shape(), &plan.model);
    let architecture = model.architecture();
    let mut config = json!({
        "max_position_embeddings": rope::positions(plan),
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ffn,
        "num_hidden_layers": model.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.d_head,
        "hidden_act": function(architecture.activation),
        "rms_norm_eps": decimal(model.norm_eps),
        "rope_theta": decimal(model.rope_theta),
        "rope_parameters": rope::to_json(model),
        "attention_dropout": decimal(model.attention_dropout),
    });
    rope::add_scaling(&mut config, model);
    rope::add_length(&mut config, plan);
    let window = model.sliding_window;
    match model.family {
        Family::Llama => {
            let has_biases = architecture.biases == Biases::All;
            config["attention_bias"] = json!(has_biases);
            config["mlp_bias"] = json!(has_biases);
        }
        Family::Mistral | Family::Phi3 => {
            config["sliding_window"] = if window > 0 {
                json!(window)
            } else {
                Value::Null
            };
        }
        Family::Olmo2 => {}
        _ => {
            config["use_sliding_window"] = json!(window > 0);
            config["sliding_window"] = if window > 0 {
                json!(window)
            } else {
                Value::Null
            };
            config["max_window_layers"] = json!(if window > 0 { 0 } else { model.layers });
            let kind = if window > 0 {
                "sliding_attention"
            } else {
                "full_attention"
            };
            config["layer_types"] = json!(vec![kind; model.layers]);
        }
    }
    if matches!(model.family, Family::Qwen3 | Family::Olmo2) {
        config["attention_bias"] = json!(false);
    }
    if model.family == Family::Olmo2 {
        // the class's own is an id that small vocabularies do not have
        config["pad_token_id"] = Value::Null;
    }
    if model.family == Family::Phi3 {
        for field in ["resid_pdrop", "embd_pdrop"] {
            config[field] = json!(0.0);
        }
        // the class's own is an id that small vocabularies do not have
        config["pad_token_id"] = Value::Null;
        config["original_max_position_embeddings"] = json!(rope::positions(plan));
        let share = decimal(model.rotary_percent);
        // of the classes before and since transformers 5
        config["partial_rotary_factor"] = json!(share);
        config["rope_parameters"]["partial_rotary_factor"] = json!(share);
    }
    config
}

/// The model that a `config.json` describes.
///
/// # Errors
/// One line for each field that is missing, unknown, of the wrong type, or requires a feature that we lack.
pub(crate) fn from_json(config: &Value) -> Result<Read, Vec<String>> {
    let empty = Map::new();
    let fields = Fields::of(config.as_object().unwrap_or(&empty), "");
    let kind = fields.text("model_type");
    let class = kind.as_deref().and_then(Class::named);
    let family = match kind.as_deref() {
        // the dense part of Qwen MoE
        Some("qwen2_moe") if fields.flag("qkv_bias", true) => Family::Qwen2,
        Some("qwen2_moe" | "mixtral") => Family::Llama,
        Some("gpt2") => Family::Gpt,
        Some("gpt_neox") => Family::GptNeox,
        Some("opt") => Family::Opt,
        Some("falcon") => Family::Falcon,
        Some("bloom") => Family::Bloom,
        Some("llama") => Family::Llama,
        Some("mistral") => Family::Mistral,
        Some("qwen2") => Family::Qwen2,
        Some("qwen3") => Family::Qwen3,
        Some("phi3") => Family::Phi3,
        Some("olmo2") => Family::Olmo2,
        Some("gemma2") => Family::Gemma2,
        Some("gemma3_text") => Family::Gemma3,
        Some("gpt_oss") => Family::GptOss,
        Some("deepseek_v2") => Family::DeepseekV2,
        Some("deepseek_v3") => Family::DeepseekV3,
        Some("bert" | "megatron-bert") => Family::Bert,
        Some("t5" | "mt5") => Family::T5,
        found => {
            let found = found.unwrap_or("nothing");
            let wanted = "gpt2, gpt_neox, opt, falcon, bloom, llama, mistral, qwen2, qwen3, phi3, olmo2, gemma2, gemma3_text, gpt_oss, deepseek_v2, \
                deepseek_v3, mixtral, \
                qwen2_moe, \
                bert, megatron-bert, t5 or mt5";
            return Err(vec![format!("model_type: found {found}, want {wanted}")]);
        }
    };
    let mut read = match family {
        Family::T5 => t5::read(&fields, kind.as_deref() == Some("mt5")),
        _ => read_stack(&fields, family, kind.as_deref() == Some("bert")),
    };
    read.model.family = family;
    read.model.classify = classes::read(&fields);
    read.model.moe = class.map(|class| moe::read(&fields, class, &read.model));
    let problems = fields.finish();
    read.notes = fields.notes.take();
    if problems.is_empty() {
        Ok(read)
    } else {
        Err(problems)
    }
}

/// Any family but T5.
fn read_stack(fields: &Fields<'_>, family: Family, post_norm: bool) -> Read {
    let (mut model, seq_length) = match family {
        Family::Gpt => read_gpt(fields),
        Family::GptNeox => gpt_neox::read(fields),
        Family::Opt => opt::read(fields),
        Family::Falcon => falcon::read(fields),
        Family::Bloom => bloom::read(fields),
        Family::Bert => bert::read(fields, post_norm),
        Family::Gemma2 | Family::Gemma3 => gemma::read(fields, family),
        Family::GptOss => gpt_oss::read(fields),
        Family::DeepseekV2 | Family::DeepseekV3 => deepseek::read(fields, family),
        _ => read_llama(fields, family),
    };
    let is_tied_unless_told = matches!(
        family,
        Family::Gpt
            | Family::Opt
            | Family::Falcon
            | Family::Bloom
            | Family::Bert
            | Family::Gemma2
            | Family::Gemma3
    );
    model.init_std = fields.number(init_std(family), Some(0.02));
    let is_tied = fields.flag("tie_word_embeddings", is_tied_unless_told);
    model.tie_embeddings = if is_tied {
        TieEmbeddings::Tied
    } else {
        TieEmbeddings::Untied
    };
    Read {
        model,
        vocab: fields.count("vocab_size"),
        seq_length,
        ..Read::default()
    }
}

fn read_gpt(fields: &Fields<'_>) -> (ModelConfig, usize) {
    let activation = plain(fields, "activation_function", "gelu_new");
    let dropout = fields.number("resid_pdrop", Some(0.1));
    let embedding = fields.number("embd_pdrop", Some(0.1));
    if dropout != embedding {
        let wanted = format!("resid_pdrop = {dropout}: there is one dropout for both");
        fields.wrong("embd_pdrop", &embedding.to_string(), &wanted);
    }
    fields.only("scale_attn_weights", true);
    fields.only("scale_attn_by_inverse_layer_idx", false);
    fields.only("add_cross_attention", false);
    let model = ModelConfig {
        layers: fields.count("n_layer"),
        d_model: fields.count("n_embd"),
        heads: fields.count("n_head"),
        d_ffn: fields.count_or("n_inner", 0),
        activation: (activation != Activation::GeluTanh).then_some(activation),
        norm_eps: fields.number("layer_norm_epsilon", Some(1e-5)),
        attention_dropout: fields.number("attn_pdrop", Some(0.1)),
        dropout,
        ..ModelConfig::default()
    };
    (model, fields.count("n_positions"))
}

fn read_llama(fields: &Fields<'_>, family: Family) -> (ModelConfig, usize) {
    let heads = fields.count("num_attention_heads");
    let d_model = fields.count("hidden_size");
    let layers = fields.count("num_hidden_layers");
    let kv_heads = match family {
        Family::Llama | Family::Olmo2 => fields.count_or("num_key_value_heads", heads),
        _ => fields.count("num_key_value_heads"),
    };
    let head_dim = match family {
        Family::Qwen3 => fields.count("head_dim"),
        _ => fields.count_or("head_dim", 0),
    };
    let activation = match fields.text_or("hidden_act", "silu").as_str() {
        "silu" | "swish" => None,
        "gelu" => Some(Activation::Geglu),
        "gelu_new" | "gelu_pytorch_tanh" => Some(Activation::GegluTanh),
        other => {
            fields.wrong("hidden_act", other, "silu, gelu or gelu_pytorch_tanh");
            None
        }
    };
    let length = fields.count("max_position_embeddings");
    let Rope {
        theta,
        scaling: rope_scaling,
        share,
    } = rope::read(fields, length);
    if let (Family::Olmo2, Some(scaling)) = (family, &rope_scaling) {
        let wanted = "null: positions of this family are not scaled";
        fields.wrong("rope_scaling", &format!("{scaling:?}"), wanted);
    }
    let seq_length = fields.count_or("seq_length", length);
    let rotary_percent = match family {
        Family::Phi3 => read_share(fields, share),
        Family::Gpt
        | Family::GptNeox
        | Family::Opt
        | Family::Falcon
        | Family::Bloom
        | Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Qwen3
        | Family::Olmo2
        | Family::Gemma2
        | Family::Gemma3
        | Family::GptOss
        | Family::DeepseekV2
        | Family::DeepseekV3
        | Family::Bert
        | Family::T5 => {
            if let Some(share) = share.filter(|share| *share != 1.0) {
                let name = "rope_parameters.partial_rotary_factor";
                fields.wrong(name, &share.to_string(), "1");
            }
            1.0
        }
    };
    let eps = if family == Family::Olmo2 { 1e-5 } else { 1e-6 };
    let model = ModelConfig {
        family,
        layers,
        d_model,
        heads,
        head_dim: stated_width(head_dim, heads, d_model),
        kv_heads,
        d_ffn: fields.count("intermediate_size"),
        activation,
        norm_eps: fields.number("rms_norm_eps", Some(eps)),
        attention_dropout: fields.number("attention_dropout", Some(0.0)),
        bias: read_biases(fields, family),
        sliding_window: read_window(fields, family, layers),
        rope_theta: theta.unwrap_or(rope::THETA),
        rope_scaling,
        rotary_percent,
        ..ModelConfig::default()
    };
    (model, seq_length)
}

/// Phi-3's share of a head that is turned, and its fields that only training or scaled lengths read. `share`: that of
/// `rope_parameters`.
fn read_share(fields: &Fields<'_>, share: Option<f32>) -> f32 {
    for name in ["resid_pdrop", "embd_pdrop"] {
        let found = fields.number(name, Some(0.0));
        if found != 0.0 {
            fields.wrong(name, &found.to_string(), "0: no dropout of this family");
        }
    }
    fields.count_or("original_max_position_embeddings", 1);
    let own = fields.number_or("partial_rotary_factor");
    own.or(share).unwrap_or(1.0)
}

fn read_biases(fields: &Fields<'_>, family: Family) -> Option<Biases> {
    match family {
        Family::Llama => {
            let attention = fields.flag("attention_bias", false);
            let mlp = fields.flag("mlp_bias", false);
            if attention != mlp {
                let wanted = format!("attention_bias = {attention}: all projections or none");
                fields.wrong("mlp_bias", &mlp.to_string(), &wanted);
            }
            attention.then_some(Biases::All)
        }
        Family::Mistral | Family::Qwen3 | Family::Phi3 | Family::Olmo2 => {
            fields.only("attention_bias", false);
            None
        }
        _ => None,
    }
}

fn read_window(fields: &Fields<'_>, family: Family, layers: usize) -> usize {
    let slides = match family {
        Family::Mistral | Family::Phi3 => true,
        Family::Qwen2 | Family::Qwen3 => fields.flag("use_sliding_window", false),
        _ => return 0,
    };
    // Mistral's class has a window of 4096 where the field is missing
    let absent = if family == Family::Mistral { 4096 } else { 0 };
    let given = if fields.is_null("sliding_window") {
        0
    } else {
        fields.count_or("sliding_window", absent)
    };
    let window = if slides { given } else { 0 };
    let full = fields.count_or("max_window_layers", layers);
    let kind = if window > 0 {
        "sliding_attention"
    } else {
        "full_attention"
    };
    if let Some(kinds) = fields.texts("layer_types")
        && kinds.iter().any(|found| found != kind)
    {
        let wanted = format!("{kind} in every layer");
        fields.wrong("layer_types", &format!("{kinds:?}"), &wanted);
    }
    let has_full_layers = matches!(family, Family::Qwen2 | Family::Qwen3);
    if has_full_layers && window > 0 && full > 0 {
        let wanted = "0: every layer has the window";
        fields.wrong("max_window_layers", &full.to_string(), wanted);
    }
    window
}

//! Settings of a model as arguments of Megatron-LM, written and read, and those that its GPT lacks. Names and meanings: Megatron-LM's
//! `megatron/training/arguments.py` and `checkpointing.py` of core 0.16, megatron-core 0.16.1's `GPTModel`. Mixtures: `mixture.rs`.

use crate::checkpoint::huggingface::described::decimal;
use crate::checkpoint::megatron::mixture::{self, Dense};
use crate::checkpoint::megatron::namespace::Args;
use crate::checkpoint::torch::pickle_writer::Object;
use crate::checkpoint::torch::save_writer::TorchDtype;
use crate::config::architecture::Positions;
use crate::config::plan::Plan;
use crate::config::{
    Activation, Biases, Family, ModelConfig, NormKind, NormPlace, QkNormOver, RopeScaling,
    TieEmbeddings,
};

/// Llama 3.1's scaling with the numbers that Megatron has for all but its factor.
fn llama3(factor: f64) -> RopeScaling {
    RopeScaling::Llama3 {
        factor,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_length: 8192,
    }
}

/// Settings that Megatron's GPT and its arguments lack, one line each.
pub(super) fn inexpressible(plan: &Plan) -> Vec<String> {
    let (model, found) = (&plan.model, plan.model.architecture());
    let mut lines = Vec::new();
    let mut refuse = |is_wrong: bool, line: String| {
        if is_wrong {
            lines.push(line);
        }
    };
    refuse(
        found.is_masked || found.is_encoder_decoder,
        format!("family = {:?}, which is no decoder alone", model.family),
    );
    refuse(
        model.classify.is_some(),
        "classify, a classification head".into(),
    );
    refuse(
        model.mtp_num_layers > 0,
        format!("mtp_num_layers = {}", model.mtp_num_layers),
    );
    refuse(found.has_latents, "multi_latent_attention = true".into());
    let is_learned = found.positions == Positions::Learned;
    refuse(
        !is_learned && found.positions != Positions::Rotary,
        format!("{:?} positions", found.positions),
    );
    refuse(
        is_learned && found.first_position > 0,
        format!("{} rows before the first position", found.first_position),
    );
    refuse(
        activation(plan).is_none(),
        format!(
            "activation = {:?} with bias = {:?}",
            found.activation, found.biases
        ),
    );
    refuse(
        found.qk_norm && found.norm == NormKind::Layer,
        "qk_norm = true with norm = Layer".into(),
    );
    refuse(
        found.qk_norm && found.qk_norm_over != QkNormOver::Head,
        format!("qk_norm_over = {:?}", found.qk_norm_over),
    );
    refuse(
        found.norm_place != NormPlace::Before,
        format!("norm_place = {:?}", found.norm_place),
    );
    for (key, is_set) in [
        ("norm_plus_one", found.norm_plus_one),
        ("scaled_embedding", found.scaled_embedding),
        ("embedding_norm", found.has_embedding_norm),
        ("attention_sinks", found.has_sinks),
        ("parallel_residual", found.is_parallel),
    ] {
        refuse(is_set, format!("{key} = true"));
    }
    let window = model.sliding_window;
    refuse(window > 0, format!("sliding_window = {window}"));
    let divisor = model.score_divisor;
    refuse(
        divisor != 0.0 && divisor != model.d_head() as f32,
        format!("score_divisor = {divisor}"),
    );
    for (key, cap) in [
        ("attention_cap", model.attention_cap),
        ("logit_cap", model.logit_cap),
    ] {
        refuse(cap > 0.0, format!("{key} = {cap}"));
    }
    let scaling = model.rope_scaling.as_ref();
    refuse(
        scaling.is_some_and(|scaling| !has_scaling(scaling)),
        format!("rope_scaling = {scaling:?}"),
    );
    lines.extend(mixture::inexpressible(plan));
    lines
}

fn has_scaling(scaling: &RopeScaling) -> bool {
    match scaling {
        RopeScaling::Linear { .. } => true,
        RopeScaling::Llama3 { factor, .. } => *scaling == llama3(*factor),
        RopeScaling::Dynamic { .. } | RopeScaling::Yarn { .. } => false,
    }
}

/// The feed-forward layer's activation, as flags of Megatron-LM.
#[derive(Clone, Copy, Default)]
struct ActivationFlags {
    swiglu: bool,
    squared_relu: bool,
    /// GELU is computed by tanh.
    bias_gelu_fusion: bool,
}

fn activation(plan: &Plan) -> Option<ActivationFlags> {
    let (found, none) = (plan.model.architecture(), ActivationFlags::default());
    match (found.activation, found.biases) {
        (Activation::Swiglu, _) => Some(ActivationFlags {
            swiglu: true,
            ..none
        }),
        (Activation::SquaredRelu, _) => Some(ActivationFlags {
            squared_relu: true,
            ..none
        }),
        (Activation::Gelu, _) => Some(none),
        (Activation::GeluTanh, Biases::All) => Some(ActivationFlags {
            bias_gelu_fusion: true,
            ..none
        }),
        (Activation::GeluTanh, Biases::None | Biases::Qkv)
        | (
            Activation::QuickGelu
            | Activation::Relu
            | Activation::Geglu
            | Activation::GegluTanh
            | Activation::SwigluClamped,
            _,
        ) => None,
    }
}

/// The contents of `common.pt`: Megatron-LM's arguments for a model that it has, its iteration and version. The vocabulary is not
/// padded: Megatron-LM pads it for its own tensor parallelism when it loads.
pub(super) fn common(plan: &Plan, dtype: TorchDtype) -> Object {
    let layout = Object::dict([("singleton_local_shards", Object::Bool(false))]);
    Object::dict([
        ("args", args(plan, dtype)),
        ("checkpoint_version", Object::Float(3.0)),
        ("iteration", Object::Int(0)),
        ("content_metadata", layout),
    ])
}

fn args(plan: &Plan, dtype: TorchDtype) -> Object {
    let (s, model, found) = (plan.shape(), &plan.model, plan.model.architecture());
    let flags = activation(plan).unwrap_or_default();
    let (count, flag) = (Object::count, Object::Bool);
    let number = |x: f32| Object::Float(decimal(x));
    let is_learned = found.positions == Positions::Learned;
    let (positions, norm) = (
        if is_learned {
            "learned_absolute"
        } else {
            "rope"
        },
        match found.norm {
            NormKind::Layer => "LayerNorm",
            NormKind::Rms => "RMSNorm",
        },
    );
    let (mut llama3_factor, mut stretch) = (None, Object::None);
    match &model.rope_scaling {
        Some(RopeScaling::Llama3 { factor, .. }) => llama3_factor = Some(*factor),
        Some(RopeScaling::Linear { factor }) => stretch = Object::Float(*factor),
        Some(RopeScaling::Dynamic { .. } | RopeScaling::Yarn { .. }) | None => {}
    }
    let of_model = [
        ("num_layers", count(model.layers)),
        ("hidden_size", count(s.d_model)),
        ("ffn_hidden_size", count(s.d_ffn)),
        ("num_attention_heads", count(s.heads)),
        ("kv_channels", count(s.d_head)),
        ("group_query_attention", flag(s.kv_heads != s.heads)),
        ("num_query_groups", count(s.kv_heads)),
        ("seq_length", count(plan.seq_length)),
        ("max_position_embeddings", count(plan.seq_length)),
        ("position_embedding_type", Object::text(positions)),
        ("rotary_base", base(model.rope_theta)),
        ("rotary_percent", number(model.rotary_percent)),
        ("rotary_interleaved", flag(false)),
        ("rotary_seq_len_interpolation_factor", stretch),
        ("use_rope_scaling", flag(llama3_factor.is_some())),
        (
            "rope_scaling_factor",
            Object::Float(llama3_factor.unwrap_or(8.0)),
        ),
        ("normalization", Object::text(norm)),
        ("norm_epsilon", number(model.norm_eps)),
        ("apply_layernorm_1p", flag(false)),
        ("qk_layernorm", flag(found.qk_norm)),
        ("swiglu", flag(flags.swiglu)),
        ("squared_relu", flag(flags.squared_relu)),
        ("openai_gelu", flag(false)),
        ("bias_gelu_fusion", flag(flags.bias_gelu_fusion)),
        ("add_bias_linear", flag(found.biases == Biases::All)),
        ("add_qkv_bias", flag(found.biases == Biases::Qkv)),
        ("untie_embeddings_and_output_weights", flag(!found.is_tied)),
        ("multi_latent_attention", flag(false)),
    ];
    let of_run = [
        ("hidden_dropout", number(model.dropout)),
        ("attention_dropout", number(model.attention_dropout)),
        ("init_method_std", number(model.init_std)),
        ("vocab_size", count(plan.vocab)),
        ("make_vocab_size_divisible_by", Object::Int(1)),
        ("padded_vocab_size", count(plan.vocab)),
        ("params_dtype", dtype.object()),
        ("bf16", flag(dtype.is_bf16())),
        ("tensor_model_parallel_size", Object::Int(1)),
        ("pipeline_model_parallel_size", Object::Int(1)),
        ("ckpt_format", Object::text("torch_dist")),
        ("no_save_optim", flag(true)),
        ("no_save_rng", flag(true)),
        ("iteration", Object::Int(0)),
    ];
    let all = of_model
        .into_iter()
        .chain(mixture::args(plan))
        .chain(of_run);
    Object::with(["argparse", "Namespace"], all)
}

/// Megatron-LM's base is a whole number where it is one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a whole number below 2^53, as is checked"
)]
fn base(theta: f32) -> Object {
    let theta = decimal(theta);
    match theta.fract() == 0.0 && theta < 9e15 {
        true => Object::Int(theta as i64),
        false => Object::Float(theta),
    }
}

/// A model as a checkpoint beside it tells it.
pub(crate) struct Described {
    pub model: ModelConfig,
    /// None: it is not known.
    pub vocab: Option<usize>,
    pub seq_length: usize,
}

/// The model of these arguments, or everything in them that we do not support.
pub(super) fn read(args: &Args<'_>) -> Result<Described, Vec<String>> {
    for name in [
        "apply_layernorm_1p",
        "rotary_interleaved",
        "multi_latent_attention",
        "quick_geglu",
        "qk_l2_norm",
    ] {
        args.refuse_flag(name);
    }
    for name in ["no_rope_freq", "activation_func_clamp_value"] {
        args.refuse(name, "None");
    }
    if args.get("window_size").is_some() {
        args.wrong("window_size", "a window", "None: windows are not read");
    }
    let family = match args.text("position_embedding_type", "learned_absolute") {
        "learned_absolute" => Family::Gpt,
        "rope" => Family::Llama,
        other => {
            args.wrong("position_embedding_type", other, "learned_absolute or rope");
            Family::Gpt
        }
    };
    let norm = match args.text("normalization", "LayerNorm") {
        "LayerNorm" => NormKind::Layer,
        "RMSNorm" => NormKind::Rms,
        other => {
            args.wrong("normalization", other, "LayerNorm or RMSNorm");
            NormKind::Layer
        }
    };
    let has_biases = args.flag("add_bias_linear");
    let (d_model, heads) = (
        args.needed("hidden_size"),
        args.needed("num_attention_heads"),
    );
    let head_dim = args.count("kv_channels").unwrap_or(0);
    let kv_heads = match args.flag("group_query_attention") {
        true => args.needed("num_query_groups"),
        false => heads,
    };
    let (layers, d_ffn) = (args.needed("num_layers"), args.needed("ffn_hidden_size"));
    let dense = Dense {
        layers,
        d_ffn,
        has_biases,
    };
    let model = ModelConfig {
        family,
        layers,
        d_model,
        heads,
        head_dim: if head_dim.saturating_mul(heads) == d_model {
            0
        } else {
            head_dim
        },
        kv_heads,
        d_ffn,
        moe: mixture::read(args, dense),
        norm_eps: args.number("norm_epsilon", 1e-5),
        norm: Some(norm),
        activation: Some(read_activation(args, has_biases)),
        bias: Some(match (has_biases, args.flag("add_qkv_bias")) {
            (true, _) => Biases::All,
            (false, true) => Biases::Qkv,
            (false, false) => Biases::None,
        }),
        qk_norm: Some(args.flag("qk_layernorm")),
        rotary_percent: match family {
            Family::Llama => args.number("rotary_percent", 1.0),
            _ => 1.0,
        },
        rope_theta: args.number("rotary_base", 10_000.0),
        rope_scaling: match family {
            Family::Llama => scaling(args),
            _ => None,
        },
        tie_embeddings: match args.flag("untie_embeddings_and_output_weights") {
            true => TieEmbeddings::Untied,
            false => TieEmbeddings::Tied,
        },
        ..ModelConfig::default()
    };
    let described = Described {
        model,
        vocab: args.count("vocab_size"),
        seq_length: args.needed("max_position_embeddings"),
    };
    match args.problems() {
        problems if problems.is_empty() => Ok(described),
        problems => Err(problems),
    }
}

/// Scaling of rotary positions: Llama 3.1's, or all wavelengths alike.
fn scaling(args: &Args<'_>) -> Option<RopeScaling> {
    let stretch = args.wide("rotary_seq_len_interpolation_factor");
    if !args.flag("use_rope_scaling") {
        return stretch.map(|factor| RopeScaling::Linear { factor });
    }
    if stretch.is_some() {
        let wanted = "None: it goes with no use_rope_scaling";
        args.wrong("rotary_seq_len_interpolation_factor", "a factor", wanted);
    }
    Some(llama3(args.wide("rope_scaling_factor").unwrap_or(8.0)))
}

/// GELU is computed by tanh where it is fused with the bias.
fn read_activation(args: &Args<'_>, has_biases: bool) -> Activation {
    let is_fused = args.flag("bias_gelu_fusion") && has_biases;
    match () {
        () if args.flag("swiglu") => Activation::Swiglu,
        () if args.flag("squared_relu") => Activation::SquaredRelu,
        () if args.flag("openai_gelu") || is_fused => Activation::GeluTanh,
        () => Activation::Gelu,
    }
}

//! Weights of GPT-like Megatron-Core models (checkpoints in torch_dist format), for import and for
//! `train.init_from`.
//!
//! Layers' tensors are stacked, `[layers, ..]`, under `decoder.layers.*`, or stored one by one under
//! `decoder.layers.N.*`. Rows of queries, keys and values are packed per group as ours; gates come before ups;
//! row-parallel matrices are `[out, in]`, ours `[in, out]`. Norms are named after the layer that they may be fused
//! with, or have names of their own. The model's settings are in `args` of `common.pt`, which Megatron-LM's
//! training loop writes; without them they come from a Hugging Face `config.json` beside the tensors, or from a
//! job's own `[model]`. Source: names and shapes of megatron-core 0.16.1 (tests/oracles/megatron_dist.py).

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::checkpoint::huggingface::config;
use crate::checkpoint::huggingface::pair::{Pair, Rows};
use crate::checkpoint::megatron::settings::llama3;
use crate::checkpoint::torch::dist::{METADATA, TorchDist};
use crate::checkpoint::torch::pickle::{Pickle, Ref, Value};
use crate::checkpoint::torch::zip::{Archive, Extent};
use crate::config::architecture::Positions;
use crate::config::plan::Plan;
use crate::config::{
    Activation, Biases, Family, ModelConfig, NormKind, RopeScaling, TieEmbeddings,
};
use crate::error::{At, Error, Result};
use crate::model::param;

/// Names the last iteration, in the folder above those of the iterations.
pub(super) const TRACKER: &str = "latest_checkpointed_iteration.txt";
/// Everything that is not sharded.
pub(super) const COMMON: &str = "common.pt";
/// Longest pickle in it that is read.
const MAX_COMMON: u64 = 1 << 28;

/// Prefixes of the names of entries that are not weights.
const BESIDE: [&str; 5] = [
    "optimizer.",
    "rng_state",
    "rerun_state",
    "chained_",
    "opt_param_scheduler",
];
const EXTRA: &str = "_extra_state";

/// The folder of the newest iteration, if this folder is a Megatron checkpoint or contains some.
pub(crate) fn find(folder: &Path) -> Option<PathBuf> {
    if folder.join(METADATA).exists() {
        return Some(folder.to_owned());
    }
    let text = fs::read_to_string(folder.join(TRACKER)).ok()?;
    let name = match text.trim().parse::<u64>() {
        Ok(number) => format!("iter_{number:07}"),
        Err(_) => "release".into(),
    };
    let newest = folder.join(name);
    newest.join(METADATA).exists().then_some(newest)
}

/// An opened checkpoint whose model is known, by names of `pairs`.
pub(crate) struct Megatron {
    folder: PathBuf,
    tensors: TorchDist,
}

impl Megatron {
    pub(crate) fn open(folder: &Path) -> Result<Megatron> {
        Ok(Megatron {
            folder: folder.to_owned(),
            tensors: TorchDist::open(folder)?,
        })
    }

    fn foreign(&self, problems: Vec<String>) -> Error {
        Error::Foreign {
            path: self.folder.clone(),
            problems,
        }
    }

    /// Rows of the embedding, with padding.
    pub(crate) fn vocab(&self) -> Option<usize> {
        let dims = self.tensors.dims("embedding.word_embeddings.weight")?;
        dims.first().copied()
    }

    /// Model, vocabulary (if known) and length from `args` or a `config.json`; None if there is neither.
    pub(crate) fn model(&self) -> Result<Option<(ModelConfig, Option<usize>, usize)>> {
        if let Some(pickle) = self.common()?
            && let Some(args) = pickle.get(pickle.root(), "args")
        {
            let args = Args::of(&pickle, args);
            return args.model().map(Some).map_err(|lines| self.foreign(lines));
        }
        let path = self.folder.join("config.json");
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read(&path).at("read", &path)?;
        let config = serde_json::from_slice(&text)
            .map_err(|error| self.foreign(vec![format!("config.json: not JSON: {error}")]))?;
        let read = config::from_json(&config).map_err(|lines| self.foreign(lines))?;
        Ok(Some((read.model, Some(read.vocab), read.seq_length)))
    }

    /// The pickle in `common.pt`, if there is one.
    fn common(&self) -> Result<Option<Pickle>> {
        let path = self.folder.join(COMMON);
        if !path.exists() {
            return Ok(None);
        }
        let mut file = File::open(&path).at("open", &path)?;
        let bytes = file.metadata().at("read", &path)?.len();
        let mut archive = Archive::open(&mut file, &path, Extent::whole(bytes))?;
        let entry = archive.find("data.pkl")?;
        let bytes = archive.read(&entry, MAX_COMMON)?;
        let pickle = Pickle::read(&bytes)
            .map_err(|(_, found, wanted)| archive.damaged(0, "pickle", found, wanted.into()))?;
        Ok(Some(pickle))
    }

    /// The list of tensors, if those of the checkpoint are exactly these.
    pub(crate) fn matched(&self, plan: &Plan) -> Result<Vec<Pair>> {
        let mut problems = Vec::new();
        if plan.model.moe.is_some() {
            problems.push(
                "model.moe: found a mixture, want none: those of Megatron are not read".into(),
            );
        }
        let made = plan.model.architecture();
        if made.is_masked || made.is_encoder_decoder {
            let family = plan.model.family;
            problems.push(format!("model.family: found {family:?}, want a decoder alone: others of Megatron are not read"));
        }
        let pairs = pairs(plan);
        // norms of embeddings, norms behind layers: Megatron's GPT has no tensor for them
        let asked = match problems.is_empty() {
            true => param::specs(plan),
            false => Vec::new(),
        };
        for spec in asked {
            let is_read = !param::is_of_classes(&spec.name) && !param::is_of_adapter(&spec.name);
            if is_read && pairs.iter().all(|pair| pair.ours != spec.name) {
                problems.push(format!(
                    "{}: found no tensor of Megatron's that it could be, want a model of its GPT",
                    spec.name
                ));
            }
        }
        let mut used = Vec::new();
        for pair in &pairs {
            let Some((name, layer, dims)) = self.place(&pair.theirs) else {
                problems.push(format!(
                    "{}: found nothing, want {:?}",
                    pair.theirs, pair.dims
                ));
                continue;
            };
            let more_rows = ["embedding.word_embeddings.weight", "output_layer.weight"];
            let rest = if layer.is_some() { &dims[1..] } else { dims };
            let is_padded = more_rows.contains(&name.as_str())
                && rest.len() == 2
                && rest[0] >= pair.dims[0]
                && rest[1] == pair.dims[1];
            let is_in = layer.is_none_or(|layer| layer < dims[0]);
            if !(rest == pair.dims || is_padded) || !is_in {
                problems.push(format!(
                    "{}: found {rest:?}, want {:?}",
                    pair.theirs, pair.dims
                ));
            }
            if layer.is_some_and(|_| dims[0] != plan.model.layers) && !used.contains(&name) {
                let layers = plan.model.layers;
                problems.push(format!("{name}: found {} layers, want {layers}", dims[0]));
            }
            used.push(name);
        }
        for name in self
            .tensors
            .names()
            .filter(|name| !used.iter().any(|used| used == name))
        {
            let is_beside = BESIDE.iter().any(|start| name.starts_with(start));
            if !is_beside && !name.contains(EXTRA) {
                problems.push(format!("{name}: found, want no such tensor"));
            }
        }
        match problems.is_empty() {
            true => Ok(pairs),
            false => Err(self.foreign(problems)),
        }
    }

    /// Location of a tensor of a layer or of the whole model: its name, its index in a stack of layers, all dims.
    fn place(&self, theirs: &str) -> Option<(String, Option<usize>, &[usize])> {
        for name in alternatives(theirs) {
            if let Some(dims) = self.tensors.dims(&name) {
                return Some((name, None, dims));
            }
            let parts = name
                .strip_prefix(LAYERS)
                .and_then(|rest| rest.split_once('.'));
            if let Some((layer, rest)) = parts
                && let Ok(layer) = layer.parse()
            {
                let stacked = format!("{LAYERS}{rest}");
                if let Some(dims) = self.tensors.dims(&stacked).filter(|dims| dims.len() > 1) {
                    return Some((stacked, Some(layer), dims));
                }
            }
        }
        None
    }

    /// Numbers of a tensor of `pairs`.
    pub(crate) fn values(&self, pair: &Pair) -> Result<Vec<f32>> {
        let place = self.place(&pair.theirs);
        let (name, layer, _) =
            place.ok_or_else(|| self.foreign(vec![format!("{}: found nothing", pair.theirs)]))?;
        self.tensors.read(&name, layer, &pair.dims)
    }
}

pub(super) const LAYERS: &str = "decoder.layers.";

/// Names that a norm has where it is not fused with the layer behind it.
const APART: [(&str, &str); 2] = [
    ("self_attention.linear_qkv.layer_norm_", "input_layernorm."),
    ("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."),
];

fn alternatives(name: &str) -> Vec<String> {
    let other = APART.iter().find(|(fused, _)| name.contains(fused));
    let other = other.map(|(fused, apart)| name.replace(fused, apart));
    [name.to_owned()].into_iter().chain(other).collect()
}

/// All tensors of a GPT of this plan.
pub(super) fn pairs(plan: &Plan) -> Vec<Pair> {
    let (s, d, made) = (plan.shape(), plan.model.d_model, plan.model.architecture());
    let kinds: &[&str] = match made.norm {
        NormKind::Layer => &["weight", "bias"],
        NormKind::Rms => &["weight"],
    };
    let same =
        |theirs: &str, ours: &str, dims: &[usize]| Pair::of(theirs.into(), ours.into(), dims);
    let mut pairs = vec![same(
        "embedding.word_embeddings.weight",
        "embedding.weight",
        &[plan.vocab, d],
    )];
    if made.positions == Positions::Learned {
        let theirs = "embedding.position_embeddings.weight";
        pairs.push(same(theirs, "position.weight", &[plan.position_rows(), d]));
    }
    let (width, f) = (s.heads * s.d_head, s.d_ffn);
    let fc1 = |pair: Pair| match made.activation.is_gated() {
        true => pair.rows(Rows::Gated(f), 0),
        false => pair,
    };
    for layer in 0..plan.model.layers {
        let own = |theirs: &str, ours: &str, dims: &[usize]| {
            let theirs = format!("{LAYERS}{layer}.{theirs}");
            Pair::of(theirs, format!("layers.{layer}.{ours}"), dims)
        };
        for kind in kinds {
            let [first, second] = APART.map(|(fused, _)| format!("{fused}{kind}"));
            pairs.push(own(&first, &format!("norm1.{kind}"), &[d]));
            pairs.push(own(&second, &format!("norm2.{kind}"), &[d]));
        }
        let rows = made.fc1_widths() * f;
        pairs.extend([
            own(
                "self_attention.linear_qkv.weight",
                "qkv.weight",
                &[s.packed, d],
            ),
            own(
                "self_attention.linear_proj.weight",
                "out.weight",
                &[width, d],
            )
            .transposed(),
            fc1(own("mlp.linear_fc1.weight", "fc1.weight", &[rows, d])),
            own("mlp.linear_fc2.weight", "fc2.weight", &[f, d]).transposed(),
        ]);
        if made.biases != Biases::None {
            pairs.push(own(
                "self_attention.linear_qkv.bias",
                "qkv.bias",
                &[s.packed],
            ));
        }
        if made.biases == Biases::All {
            pairs.push(own("self_attention.linear_proj.bias", "out.bias", &[d]));
            pairs.push(fc1(own("mlp.linear_fc1.bias", "fc1.bias", &[rows])));
            pairs.push(own("mlp.linear_fc2.bias", "fc2.bias", &[d]));
        }
        if made.qk_norm {
            for (theirs, ours) in [("q_layernorm", "q_norm"), ("k_layernorm", "k_norm")] {
                let theirs = format!("self_attention.{theirs}.weight");
                pairs.push(own(&theirs, &format!("{ours}.weight"), &[s.d_head]));
            }
        }
    }
    for kind in kinds {
        let theirs = format!("decoder.final_layernorm.{kind}");
        pairs.push(same(&theirs, &format!("norm.{kind}"), &[d]));
    }
    if !plan.model.is_tied() {
        pairs.push(same("output_layer.weight", "head.weight", &[plan.vocab, d]));
    }
    pairs
}

/// Settings of a Megatron-LM run: the namespace of its argument parser.
struct Args<'p> {
    pickle: &'p Pickle,
    table: Option<Ref>,
    problems: RefCell<Vec<String>>,
}

impl<'p> Args<'p> {
    fn of(pickle: &'p Pickle, args: Ref) -> Args<'p> {
        let object = pickle.object(args, ["argparse", "Namespace"]);
        let table = match object {
            Some((_, state)) => state,
            // newer ones keep a plain table
            None => Some(args),
        };
        Args {
            pickle,
            table,
            problems: RefCell::default(),
        }
    }

    /// A setting, unless it is missing or None.
    fn get(&self, name: &str) -> Option<&'p Value> {
        let value = self.pickle.value(self.pickle.get(self.table?, name)?);
        (*value != Value::None).then_some(value)
    }

    fn wrong(&self, name: &str, found: &str, wanted: &str) {
        let line = format!("args.{name}: found {found}, want {wanted}");
        self.problems.borrow_mut().push(line);
    }

    fn count(&self, name: &str) -> Option<usize> {
        match self.get(name)? {
            Value::Int(n) => usize::try_from(*n).ok(),
            _ => None,
        }
    }

    fn needed(&self, name: &str) -> usize {
        self.count(name).unwrap_or_else(|| {
            self.wrong(name, "nothing", "a count");
            1
        })
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    fn text(&self, name: &str, default: &'p str) -> &'p str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            _ => default,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the model's numbers are f32"
    )]
    fn number(&self, name: &str, default: f32) -> f32 {
        match self.get(name) {
            Some(Value::Float(x)) => *x as f32,
            Some(Value::Int(n)) => *n as f32,
            _ => default,
        }
    }

    /// Model, vocabulary and length, or everything in the settings that we do not support.
    fn model(&self) -> Result<(ModelConfig, Option<usize>, usize), Vec<String>> {
        for name in [
            "apply_layernorm_1p",
            "rotary_interleaved",
            "multi_latent_attention",
        ] {
            if self.flag(name) {
                self.wrong(name, "True", "False");
            }
        }
        if self.count("num_experts").is_some_and(|experts| experts > 0) {
            self.wrong("num_experts", "a mixture", "None: mixtures are not read");
        }
        if self.get("window_size").is_some() {
            self.wrong("window_size", "a window", "None: windows are not read");
        }
        let family = match self.text("position_embedding_type", "learned_absolute") {
            "learned_absolute" => Family::Gpt,
            "rope" => Family::Llama,
            other => {
                self.wrong("position_embedding_type", other, "learned_absolute or rope");
                Family::Gpt
            }
        };
        let norm = match self.text("normalization", "LayerNorm") {
            "LayerNorm" => NormKind::Layer,
            "RMSNorm" => NormKind::Rms,
            other => {
                self.wrong("normalization", other, "LayerNorm or RMSNorm");
                NormKind::Layer
            }
        };
        let has_biases = self.flag("add_bias_linear");
        let (d_model, heads) = (
            self.needed("hidden_size"),
            self.needed("num_attention_heads"),
        );
        let head_dim = self.count("kv_channels").unwrap_or(0);
        let kv_heads = match self.flag("group_query_attention") {
            true => self.needed("num_query_groups"),
            false => heads,
        };
        let model = ModelConfig {
            family,
            layers: self.needed("num_layers"),
            d_model,
            heads,
            head_dim: if head_dim.saturating_mul(heads) == d_model {
                0
            } else {
                head_dim
            },
            kv_heads,
            d_ffn: self.needed("ffn_hidden_size"),
            norm_eps: self.number("norm_epsilon", 1e-5),
            norm: Some(norm),
            activation: Some(self.activation(has_biases)),
            bias: Some(match (has_biases, self.flag("add_qkv_bias")) {
                (true, _) => Biases::All,
                (false, true) => Biases::Qkv,
                (false, false) => Biases::None,
            }),
            qk_norm: Some(self.flag("qk_layernorm")),
            rotary_percent: match family {
                Family::Llama => self.number("rotary_percent", 1.0),
                _ => 1.0,
            },
            rope_theta: self.number("rotary_base", 10_000.0),
            rope_scaling: match family {
                Family::Llama => self.scaling(),
                _ => None,
            },
            tie_embeddings: match self.flag("untie_embeddings_and_output_weights") {
                true => TieEmbeddings::Untied,
                false => TieEmbeddings::Tied,
            },
            ..ModelConfig::default()
        };
        let length = self.needed("max_position_embeddings");
        match self.problems.take() {
            problems if problems.is_empty() => Ok((model, self.count("vocab_size"), length)),
            problems => Err(problems),
        }
    }

    /// Scaling of rotary positions: Llama 3.1's, or all wavelengths alike.
    fn scaling(&self) -> Option<RopeScaling> {
        let number = |name: &str| match self.get(name) {
            Some(Value::Float(x)) => Some(*x),
            Some(Value::Int(n)) => u32::try_from(*n).ok().map(f64::from),
            _ => None,
        };
        let stretch = number("rotary_seq_len_interpolation_factor");
        if !self.flag("use_rope_scaling") {
            return stretch.map(|factor| RopeScaling::Linear { factor });
        }
        if stretch.is_some() {
            let wanted = "None: it goes with no use_rope_scaling";
            self.wrong("rotary_seq_len_interpolation_factor", "a factor", wanted);
        }
        Some(llama3(number("rope_scaling_factor").unwrap_or(8.0)))
    }

    /// GELU is computed by tanh where it is fused with the bias.
    fn activation(&self, has_biases: bool) -> Activation {
        let is_fused = self.flag("bias_gelu_fusion") && has_biases;
        match () {
            () if self.flag("swiglu") => Activation::Swiglu,
            () if self.flag("squared_relu") => Activation::SquaredRelu,
            () if self.flag("openai_gelu") || is_fused => Activation::GeluTanh,
            () => Activation::Gelu,
        }
    }
}

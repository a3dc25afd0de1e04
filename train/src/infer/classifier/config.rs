//! The model that a classifier's `config.json` describes: sizes, head, labels. Fields that we do not run are refused by
//! name, all at once.

use std::collections::BTreeMap;

use kernels::activation::Kind;
use serde_json::{Map, Value};

use crate::checkpoint::huggingface::fields::Fields;

/// Architectures, by transformers' `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `bert`.
    Bert,
    /// `roberta`, `xlm-roberta`, `camembert`: positions are counted from `pad_token_id` + 1.
    Roberta,
    /// `distilbert`.
    DistilBert,
    /// `deberta-v2`, of which DeBERTa-v3 is a setting.
    Deberta,
}

/// The distances of DeBERTa's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relative {
    /// Logarithmic buckets in each direction; 0: none, distances are clipped at `positions`.
    pub buckets: usize,
    pub positions: usize,
    /// Scores have a term of the query and the distance (c2p).
    pub has_keys: bool,
    /// Scores have a term of the key and the distance (p2c).
    pub has_queries: bool,
    /// Distances are projected by the weights of the tokens.
    pub is_shared: bool,
    /// The table of distances passes a layer norm.
    pub is_normed: bool,
}

impl Relative {
    /// Rows of the table that stand for one direction.
    pub(super) fn span(&self) -> usize {
        if self.buckets > 0 {
            self.buckets
        } else {
            self.positions
        }
    }
}

/// Sizes of the model.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub family: Family,
    pub vocab: usize,
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    /// Width of the feed-forward layer.
    pub inner: usize,
    pub eps: f32,
    pub activation: Kind,
    /// Rows of the table of positions; 0: no table.
    pub positions: usize,
    /// Rows of the table of segments; 0: no table.
    pub types: usize,
    /// Width of the tables; another than `width` is projected.
    pub embedding: usize,
    /// Padding's id, where positions are counted from it.
    pub pad: Option<u32>,
    /// Tokens of the longest sequence.
    pub longest: usize,
    pub relative: Option<Relative>,
    /// Function between the two layers of the head.
    pub pooled: Kind,
}

/// The kind of answer that a classifier was trained for, `problem_type`. Without one: a regression if there is one label,
/// else one label of several, as transformers' classes choose their loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// `regression`: the outputs are the scores.
    Regression,
    /// `single_label_classification`: one of the labels applies.
    SingleLabel,
    /// `multi_label_classification`: each label may apply.
    MultiLabel,
}

/// A `config.json`.
pub(super) struct Described {
    pub shape: Shape,
    pub labels: Vec<String>,
    pub problem: Problem,
    /// Ignored fields, a line each.
    pub notes: Vec<String>,
}

const FAMILIES: &str = "bert, roberta, xlm-roberta, camembert, distilbert or deberta-v2";
const CLASS: &str = "ForSequenceClassification";

/// Amounts in the files of weights, which bound the numbers of a configuration.
#[derive(Clone, Copy)]
pub(super) struct Amounts {
    pub(super) tensors: usize,
    /// Of all tensors together.
    pub(super) elements: usize,
}

/// The use of a model, which decides which classes of transformers it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Of its head: a class that ends with `ForSequenceClassification`.
    Classify,
    /// Of the encoder alone: any class.
    Embed,
}

/// Reads all fields.
pub(super) fn read(
    table: &Map<String, Value>,
    most: Amounts,
    purpose: Use,
) -> Result<Described, Vec<String>> {
    let fields = Fields::of(table, "");
    let name = fields.text("model_type").unwrap_or_default();
    let family = match name.as_str() {
        "bert" => Family::Bert,
        "roberta" | "xlm-roberta" | "camembert" => Family::Roberta,
        "distilbert" => Family::DistilBert,
        "deberta-v2" => Family::Deberta,
        other => {
            if !other.is_empty() {
                fields.wrong("model_type", other, FAMILIES);
            }
            // no other field has a meaning that is known
            return Err(fields.problems.take());
        }
    };
    if let Some(classes) = fields.texts("architectures")
        && purpose == Use::Classify
        && !classes.iter().any(|class| class.ends_with(CLASS))
    {
        let wanted = format!("a class that ends with {CLASS}");
        fields.wrong("architectures", &classes.join(", "), &wanted);
    }
    let shape = match family {
        Family::Bert | Family::Roberta => encoder(&fields, family),
        Family::DistilBert => distilbert(&fields),
        Family::Deberta => deberta(&fields),
    };
    let labels = labels(&fields);
    let problem = problem(&fields, labels.len());
    check(&fields, &shape, most);
    let problems = fields.finish();
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Described {
        shape,
        labels,
        problem,
        notes: fields.notes.take(),
    })
}

/// Numbers that cannot be those of the files, and widths that do not divide.
fn check(fields: &Fields<'_>, shape: &Shape, most: Amounts) {
    let Amounts { tensors, elements } = most;
    let Shape {
        width,
        heads,
        layers,
        ..
    } = *shape;
    let distil = shape.family == Family::DistilBert;
    let name = |theirs, of_distilbert| if distil { of_distilbert } else { theirs };
    let at_most = |name: &str, found: usize, most: usize| {
        if found == 0 || found > most {
            let wanted = format!("1 to {most}, as the files have no more");
            fields.wrong(name, &found.to_string(), &wanted);
        }
    };
    at_most(name("num_hidden_layers", "n_layers"), layers, tensors);
    at_most("vocab_size", shape.vocab, elements);
    at_most(name("hidden_size", "dim"), width, elements);
    at_most(
        name("intermediate_size", "hidden_dim"),
        shape.inner,
        elements,
    );
    at_most("max_position_embeddings", shape.longest, 1 << 20);
    at_most("embedding_size", shape.embedding, elements);
    if heads == 0 || !width.is_multiple_of(heads) {
        let wanted = format!("a divisor of {width}");
        fields.wrong(
            name("num_attention_heads", "n_heads"),
            &heads.to_string(),
            &wanted,
        );
    }
    if let Some(relative) = &shape.relative {
        let most = (elements / width.max(1)).min(1 << 20);
        at_most("max_relative_positions", relative.positions, 1 << 20);
        at_most("position_buckets", relative.span(), most);
        let half = relative.buckets / 2;
        if relative.buckets > 0 && (half == 0 || relative.positions <= half + 1) {
            let wanted = format!(
                "2 or more, and half of it below {}",
                relative.positions.saturating_sub(1)
            );
            fields.wrong("position_buckets", &relative.buckets.to_string(), &wanted);
        }
    }
}

fn function(fields: &Fields<'_>, name: &str, default: &str) -> Kind {
    match fields.text_or(name, default).as_str() {
        "gelu" => Kind::GeluErf,
        "gelu_new" | "gelu_pytorch_tanh" => Kind::GeluTanh,
        "quick_gelu" => Kind::QuickGelu,
        "relu" => Kind::Relu,
        "relu2" => Kind::SquaredRelu,
        "tanh" => Kind::Tanh,
        other => {
            let wanted = "gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, relu2 or tanh";
            fields.wrong(name, other, wanted);
            Kind::GeluErf
        }
    }
}

/// Fields of dropout and of other uses of the model, which change no number here.
fn pass_over(fields: &Fields<'_>) {
    for name in [
        "attention_probs_dropout_prob",
        "hidden_dropout_prob",
        "classifier_dropout",
        "attention_dropout",
        "dropout",
        "qa_dropout",
        "seq_classif_dropout",
        "pooler_dropout",
        "cls_dropout",
        "tie_word_embeddings",
        "tie_weights_",
        "num_labels",
        "_num_labels",
        "legacy",
        "output_past",
    ] {
        fields.take(name);
    }
    fields.only("is_decoder", false);
    fields.only("add_cross_attention", false);
}

fn encoder(fields: &Fields<'_>, family: Family) -> Shape {
    pass_over(fields);
    if fields.text_or("position_embedding_type", "absolute") != "absolute" {
        fields.wrong("position_embedding_type", "another kind", "absolute");
    }
    let width = fields.count("hidden_size");
    let positions = fields.count("max_position_embeddings");
    let pad = (family == Family::Roberta).then(|| fields.count_or("pad_token_id", 1));
    let before = pad.map_or(0, |pad| pad.saturating_add(1));
    if before >= positions {
        let wanted = format!("more than {before}, which padding takes");
        fields.wrong("max_position_embeddings", &positions.to_string(), &wanted);
    }
    Shape {
        family,
        vocab: fields.count("vocab_size"),
        width,
        layers: fields.count("num_hidden_layers"),
        heads: fields.count("num_attention_heads"),
        inner: fields.count("intermediate_size"),
        eps: fields.number("layer_norm_eps", Some(1e-12)),
        activation: function(fields, "hidden_act", "gelu"),
        positions,
        types: fields.count_or("type_vocab_size", 2),
        embedding: width,
        pad: pad.and_then(|pad| u32::try_from(pad).ok()),
        longest: positions.saturating_sub(before),
        relative: None,
        pooled: Kind::Tanh,
    }
}

fn distilbert(fields: &Fields<'_>) -> Shape {
    pass_over(fields);
    // the table is in the files either way
    fields.flag("sinusoidal_pos_embds", false);
    let (width, positions) = (fields.count("dim"), fields.count("max_position_embeddings"));
    Shape {
        family: Family::DistilBert,
        vocab: fields.count("vocab_size"),
        width,
        layers: fields.count("n_layers"),
        heads: fields.count("n_heads"),
        inner: fields.count("hidden_dim"),
        eps: 1e-12,
        activation: function(fields, "activation", "gelu"),
        positions,
        types: 0,
        embedding: width,
        pad: None,
        longest: positions,
        relative: None,
        pooled: Kind::Relu,
    }
}

fn deberta(fields: &Fields<'_>) -> Shape {
    pass_over(fields);
    let width = fields.count("hidden_size");
    let heads = fields.count("num_attention_heads");
    let longest = fields.count("max_position_embeddings");
    for (name, wanted) in [
        ("pooler_hidden_size", width),
        ("attention_head_size", width / heads.max(1)),
    ] {
        let found = fields.count_or(name, wanted);
        if found != wanted {
            fields.wrong(name, &found.to_string(), &wanted.to_string());
        }
    }
    let kernel = fields.wide("conv_kernel_size", Some(0.0));
    if kernel > 0.0 {
        let wanted = "0: the convolution of DeBERTa-v2's large models is not run";
        fields.wrong("conv_kernel_size", &kernel.to_string(), wanted);
    }
    fields.take("conv_act");
    fields.take("conv_groups");
    let has_positions = fields.flag("position_biased_input", true);
    Shape {
        family: Family::Deberta,
        vocab: fields.count("vocab_size"),
        width,
        layers: fields.count("num_hidden_layers"),
        heads,
        inner: fields.count("intermediate_size"),
        eps: fields.number("layer_norm_eps", Some(1e-7)),
        activation: function(fields, "hidden_act", "gelu"),
        positions: if has_positions { longest } else { 0 },
        types: fields.count_or("type_vocab_size", 0),
        embedding: fields.count_or("embedding_size", width),
        pad: None,
        longest,
        relative: relative(fields, longest),
        pooled: function(fields, "pooler_hidden_act", "gelu"),
    }
}

fn relative(fields: &Fields<'_>, longest: usize) -> Option<Relative> {
    let is_on = fields.flag("relative_attention", false);
    // below 1: as many as positions, or none
    let above = |name: &str, default: f64| {
        let found = fields.wide(name, Some(default));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count below 2^20, checked here"
        )]
        let count = (found >= 1.0 && found <= f64::from(1 << 20) && found.fract() == 0.0)
            .then_some(found as usize);
        if found >= 1.0 && count.is_none() {
            fields.wrong(name, &found.to_string(), "a count below 1048576");
        }
        count
    };
    let positions = above("max_relative_positions", -1.0).unwrap_or(longest);
    let buckets = above("position_buckets", -1.0).unwrap_or(0);
    let is_shared = fields.flag("share_att_key", false);
    let listed = |name: &str, value: Option<&Value>| -> Vec<String> {
        let split = |text: &str| -> Vec<String> {
            text.split('|')
                .map(|part| part.trim().to_lowercase())
                .collect()
        };
        match value {
            None => Vec::new(),
            Some(Value::String(text)) => split(text),
            Some(Value::Array(items)) => {
                let texts = items.iter().filter_map(Value::as_str);
                texts.flat_map(split).collect()
            }
            Some(other) => {
                fields.wrong(name, &other.to_string(), "a list of names");
                Vec::new()
            }
        }
    };
    let terms = listed("pos_att_type", fields.take("pos_att_type"));
    for term in &terms {
        if !["c2p", "p2c"].contains(&term.as_str()) {
            fields.wrong("pos_att_type", term, "c2p, p2c or both");
        }
    }
    let norms = listed("norm_rel_ebd", fields.take("norm_rel_ebd"));
    for norm in &norms {
        if !["layer_norm", "none"].contains(&norm.as_str()) {
            fields.wrong("norm_rel_ebd", norm, "layer_norm or none");
        }
    }
    let has = |term: &str| terms.iter().any(|t| t == term);
    is_on.then(|| Relative {
        buckets,
        positions,
        has_keys: has("c2p"),
        has_queries: has("p2c"),
        is_shared,
        is_normed: norms.iter().any(|norm| norm == "layer_norm"),
    })
}

/// `id2label` in the order of the outputs; transformers has two labels where none are named.
fn labels(fields: &Fields<'_>) -> Vec<String> {
    let Some(table) = fields.table("id2label") else {
        return vec!["LABEL_0".into(), "LABEL_1".into()];
    };
    let mut names: BTreeMap<usize, String> = BTreeMap::new();
    for (id, name) in table {
        match (id.parse(), name.as_str()) {
            (Ok(id), Some(name)) => {
                names.insert(id, name.to_owned());
            }
            _ => fields.wrong("id2label", &format!("{id}: {name}"), "numbers and names"),
        }
    }
    let is_whole = names.keys().copied().eq(0..names.len());
    if names.is_empty() || !is_whole {
        let found: Vec<String> = names.keys().map(ToString::to_string).collect();
        fields.wrong(
            "id2label",
            &format!("[{}]", found.join(", ")),
            "the numbers from 0 on, each with a name",
        );
    }
    names.into_values().collect()
}

fn problem(fields: &Fields<'_>, labels: usize) -> Problem {
    match fields.text_or("problem_type", "").as_str() {
        "regression" => Problem::Regression,
        "single_label_classification" => Problem::SingleLabel,
        "multi_label_classification" => Problem::MultiLabel,
        "" if labels == 1 => Problem::Regression,
        "" => Problem::SingleLabel,
        other => {
            let wanted = "regression, single_label_classification or multi_label_classification";
            fields.wrong("problem_type", other, wanted);
            Problem::Regression
        }
    }
}

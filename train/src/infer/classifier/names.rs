//! Names and dims of the tensors of a classifier or an encoder in transformers' classes.

use crate::infer::classifier::config::{Family, Shape};

/// A linear layer: the name before `.weight` and `.bias`, outputs and inputs.
pub(super) struct Linear {
    pub name: String,
    pub out: usize,
    pub input: usize,
    pub has_bias: bool,
}

impl Linear {
    fn new(name: String, out: usize, input: usize) -> Linear {
        Linear {
            name,
            out,
            input,
            has_bias: true,
        }
    }

    pub(super) fn weight(&self) -> (String, Vec<usize>) {
        (format!("{}.weight", self.name), vec![self.out, self.input])
    }

    pub(super) fn bias(&self) -> Option<(String, Vec<usize>)> {
        let bias = (format!("{}.bias", self.name), vec![self.out]);
        self.has_bias.then_some(bias)
    }
}

/// The parts of a layer: norms by the name before `.weight`.
pub(super) struct Layer {
    /// Queries, keys and values.
    pub qkv: [Linear; 3],
    /// Projections of distances: of keys (c2p) and of queries (p2c).
    pub distances: [Option<Linear>; 2],
    pub out: Linear,
    pub norm1: String,
    pub fc1: Linear,
    pub fc2: Linear,
    pub norm2: String,
}

/// The parts of a model.
pub(super) struct Names {
    pub words: String,
    pub positions: Option<String>,
    pub types: Option<String>,
    pub projection: Option<Linear>,
    pub norm: String,
    /// The table of distances, and the name of its norm.
    pub distances: Option<(String, Option<String>)>,
    pub layers: Vec<Layer>,
    /// Both layers of the head of a classifier.
    pub head: Option<[Linear; 2]>,
    dims: Dims,
}

#[derive(Clone, Copy)]
struct Dims {
    vocab: usize,
    positions: usize,
    types: usize,
    embedding: usize,
    width: usize,
    distances: usize,
}

/// The class whose tensors are in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A classifier with so many labels.
    Classifier(usize),
    /// Any class with a head, of which the encoder alone is used.
    WithHead,
    /// An encoder alone, whose names have no prefix (`BertModel`).
    Bare,
}

/// Prefix of the encoder's names.
fn prefix(family: Family, class: Class) -> &'static str {
    match (class, family) {
        (Class::Bare, _) => "",
        (Class::Classifier(_) | Class::WithHead, Family::Bert) => "bert.",
        (Class::Classifier(_) | Class::WithHead, Family::Roberta) => "roberta.",
        (Class::Classifier(_) | Class::WithHead, Family::DistilBert) => "distilbert.",
        (Class::Classifier(_) | Class::WithHead, Family::Deberta) => "deberta.",
    }
}

/// The name of the words' table, which only files of this class have.
pub(super) fn words(family: Family, class: Class) -> String {
    format!("{}embeddings.word_embeddings.weight", prefix(family, class))
}

/// Whether a tensor of the files has no use: heads of other classes, poolers of classes without one, buffers.
pub(super) fn is_passed_over(family: Family, class: Class, name: &str) -> bool {
    let own = prefix(family, class);
    let buffers = ["embeddings.position_ids", "embeddings.token_type_ids"];
    let unused = format!("{own}embeddings.position_embeddings.");
    if buffers.iter().any(|end| name.ends_with(end))
        || (family == Family::Deberta && name.starts_with(&unused))
    {
        return true;
    }
    match class {
        Class::Classifier(_) => is_of_another_class(family, name),
        Class::WithHead => !name.starts_with(own) || name.starts_with(&format!("{own}pooler.")),
        Class::Bare => name.starts_with("pooler."),
    }
}

fn is_of_another_class(family: Family, name: &str) -> bool {
    let others: &[&str] = match family {
        Family::Bert => &["cls."],
        Family::Roberta => &["lm_head.", "roberta.pooler."],
        Family::DistilBert => &["vocab_"],
        Family::Deberta => &["lm_predictions.", "mask_predictions.", "cls."],
    };
    others.iter().any(|start| name.starts_with(start))
}

impl Names {
    pub(super) fn of(shape: &Shape, class: Class) -> Names {
        let (family, width) = (shape.family, shape.width);
        let at = prefix(family, class);
        let tables = format!("{at}embeddings");
        let table = |kind: &str| format!("{tables}.{kind}_embeddings.weight");
        let dense = match family {
            Family::Bert => "bert.pooler.dense",
            Family::Roberta => "classifier.dense",
            Family::DistilBert => "pre_classifier",
            Family::Deberta => "pooler.dense",
        };
        let scores = match family {
            Family::Roberta => "classifier.out_proj",
            Family::Bert | Family::DistilBert | Family::Deberta => "classifier",
        };
        Names {
            words: table("word"),
            positions: (shape.positions > 0).then(|| table("position")),
            types: (shape.types > 0).then(|| table("token_type")),
            projection: (shape.embedding != width).then(|| Linear {
                has_bias: false,
                ..Linear::new(format!("{tables}.embed_proj"), width, shape.embedding)
            }),
            norm: format!("{tables}.LayerNorm"),
            distances: shape.relative.as_ref().map(|relative| {
                let norm = format!("{at}encoder.LayerNorm");
                (
                    format!("{at}encoder.rel_embeddings.weight"),
                    relative.is_normed.then_some(norm),
                )
            }),
            layers: (0..shape.layers)
                .map(|layer| Layer::of(shape, layer, at))
                .collect(),
            head: match class {
                Class::Classifier(labels) => Some([
                    Linear::new(dense.to_owned(), width, width),
                    Linear::new(scores.to_owned(), labels, width),
                ]),
                Class::WithHead | Class::Bare => None,
            },
            dims: Dims {
                vocab: shape.vocab,
                positions: shape.positions,
                types: shape.types,
                embedding: shape.embedding,
                width,
                distances: shape.relative.as_ref().map_or(0, |r| 2 * r.span()),
            },
        }
    }

    /// Every tensor with its dims.
    pub(super) fn all(&self) -> Vec<(String, Vec<usize>)> {
        let dims = self.dims;
        let mut all = vec![(self.words.clone(), vec![dims.vocab, dims.embedding])];
        let tables = [(&self.positions, dims.positions), (&self.types, dims.types)];
        for (table, rows) in tables {
            all.extend(table.clone().map(|name| (name, vec![rows, dims.embedding])));
        }
        let mut norms = vec![self.norm.clone()];
        if let Some((table, norm)) = &self.distances {
            all.push((table.clone(), vec![dims.distances, dims.width]));
            norms.extend(norm.clone());
        }
        let mut linears: Vec<&Linear> = self.projection.iter().collect();
        linears.extend(self.head.iter().flatten());
        for layer in &self.layers {
            linears.extend(&layer.qkv);
            linears.extend(layer.distances.iter().flatten());
            linears.extend([&layer.out, &layer.fc1, &layer.fc2]);
            norms.extend([layer.norm1.clone(), layer.norm2.clone()]);
        }
        for linear in linears {
            all.push(linear.weight());
            all.extend(linear.bias());
        }
        for norm in norms {
            for kind in ["weight", "bias"] {
                all.push((format!("{norm}.{kind}"), vec![dims.width]));
            }
        }
        all
    }
}

impl Layer {
    fn of(shape: &Shape, layer: usize, prefix: &str) -> Layer {
        let (family, d, f) = (shape.family, shape.width, shape.inner);
        let at = match family {
            Family::DistilBert => format!("{prefix}transformer.layer.{layer}"),
            Family::Bert | Family::Roberta | Family::Deberta => {
                format!("{prefix}encoder.layer.{layer}")
            }
        };
        let (qkv, out, norm1, fc1, fc2, norm2) = match family {
            Family::DistilBert => (
                ["attention.q_lin", "attention.k_lin", "attention.v_lin"],
                "attention.out_lin",
                "sa_layer_norm",
                "ffn.lin1",
                "ffn.lin2",
                "output_layer_norm",
            ),
            Family::Bert | Family::Roberta | Family::Deberta => (
                match family {
                    Family::Deberta => [
                        "attention.self.query_proj",
                        "attention.self.key_proj",
                        "attention.self.value_proj",
                    ],
                    Family::Bert | Family::Roberta | Family::DistilBert => [
                        "attention.self.query",
                        "attention.self.key",
                        "attention.self.value",
                    ],
                },
                "attention.output.dense",
                "attention.output.LayerNorm",
                "intermediate.dense",
                "output.dense",
                "output.LayerNorm",
            ),
        };
        let linear = |name: &str, out, input| Linear::new(format!("{at}.{name}"), out, input);
        let own = |is_there: bool, name: &str| is_there.then(|| linear(name, d, d));
        let relative = shape.relative.filter(|relative| !relative.is_shared);
        Layer {
            qkv: qkv.map(|name| linear(name, d, d)),
            distances: [
                own(
                    relative.is_some_and(|r| r.has_keys),
                    "attention.self.pos_key_proj",
                ),
                own(
                    relative.is_some_and(|r| r.has_queries),
                    "attention.self.pos_query_proj",
                ),
            ],
            out: linear(out, d, d),
            norm1: format!("{at}.{norm1}"),
            fc1: linear(fc1, f, d),
            fc2: linear(fc2, d, f),
            norm2: format!("{at}.{norm2}"),
        }
    }
}

//! Names and dims of a classifier's tensors in transformers' classes.

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
    /// Both layers of the head.
    pub head: [Linear; 2],
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

/// Prefix of the encoder's names.
fn prefix(family: Family) -> &'static str {
    match family {
        Family::Bert => "bert",
        Family::Roberta => "roberta",
        Family::DistilBert => "distilbert",
        Family::Deberta => "deberta",
    }
}

/// Whether a tensor of the files has no use in classification: heads of other classes, poolers of classes without one,
/// buffers.
pub(super) fn is_passed_over(family: Family, name: &str) -> bool {
    let buffers = ["embeddings.position_ids", "embeddings.token_type_ids"];
    let others: &[&str] = match family {
        Family::Bert => &["cls."],
        Family::Roberta => &["lm_head.", "roberta.pooler."],
        Family::DistilBert => &["vocab_"],
        Family::Deberta => &[
            "lm_predictions.",
            "mask_predictions.",
            "cls.",
            "deberta.embeddings.position_embeddings.",
        ],
    };
    buffers.iter().any(|end| name.ends_with(end))
        || others.iter().any(|start| name.starts_with(start))
}

impl Names {
    pub(super) fn of(shape: &Shape, labels: usize) -> Names {
        let (family, width) = (shape.family, shape.width);
        let at = prefix(family);
        let square = |name: String| Linear::new(name, width, width);
        let tables = format!("{at}.embeddings");
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
                let norm = format!("{at}.encoder.LayerNorm");
                (
                    format!("{at}.encoder.rel_embeddings.weight"),
                    relative.is_normed.then_some(norm),
                )
            }),
            layers: (0..shape.layers)
                .map(|layer| Layer::of(shape, layer))
                .collect(),
            head: [
                square(dense.to_owned()),
                Linear::new(scores.to_owned(), labels, width),
            ],
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
        let mut linears: Vec<&Linear> = self.projection.iter().chain(&self.head).collect();
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
    fn of(shape: &Shape, layer: usize) -> Layer {
        let (family, d, f) = (shape.family, shape.width, shape.inner);
        let at = match family {
            Family::DistilBert => format!("distilbert.transformer.layer.{layer}"),
            Family::Bert | Family::Roberta | Family::Deberta => {
                format!("{}.encoder.layer.{layer}", prefix(family))
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

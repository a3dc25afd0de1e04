//! Sequence classifiers and regressors of transformers: `BertForSequenceClassification`, RoBERTa's, XLM-RoBERTa's,
//! CamemBERT's, DistilBERT's and DeBERTa-v2's (DeBERTa-v3 is a setting of it), from their Hugging Face folders. Their
//! encoders, with and without a head, make embeddings as Sentence Transformers does.
//!
//! Sequences run in batches of about equal lengths without padding, and a sequence's logits have the same bits whatever
//! its batch, its neighbours and the number of threads. Fields and tensors that this does not run are refused by name, all
//! at once.

mod config;
mod disentangled;
mod distances;
mod embedder;
mod encoder;
mod names;
mod pooling;
#[cfg(test)]
mod tests;

pub use config::Problem;
pub use embedder::SequenceEmbedder;
pub use pooling::{Pooling, Preparation};

use std::fs;
use std::path::Path;

use kernels::Device;
use kernels::matmul::Numbers;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checkpoint::huggingface::files::{Files, foreign};
use crate::dist::launch::cpu_path;
use crate::error::{At, Error, OnRank, Result};
use config::{Described, Shape, Use};
use encoder::{Batch, Encoder, Products, Run};
use names::{Class, Names, is_passed_over};

/// Number format of a classifier's products. Each gives the same bits on every processor; those without the instructions
/// emulate them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arithmetic {
    /// f32.
    #[default]
    F32,
    /// Factors rounded to bf16, sums in f32 in the order of AVX-512 BF16 and Arm's BFMLAL.
    Bf16,
    /// The same in the order of AMX's tiles.
    Bf16Tiles,
    /// Factors of linear layers rounded to 8 bits, each row of activations and each output's weights with a step of its own;
    /// sums are exact. Attention, norms and the head are in f32.
    Int8,
}

impl Arithmetic {
    fn products(self) -> Products {
        match self {
            Arithmetic::F32 => Products::Of(Numbers::F32),
            Arithmetic::Bf16 => Products::Of(Numbers::Bf16),
            Arithmetic::Bf16Tiles => Products::Of(Numbers::Bf16Tiles),
            Arithmetic::Int8 => Products::Int8,
        }
    }
}

/// A folder's model.
struct Opened {
    encoder: Encoder,
    described: Described,
}

fn open(folder: &Path, arithmetic: Arithmetic, purpose: Use) -> Result<Opened> {
    let path = folder.join("config.json");
    let text = fs::read(&path).at("read", &path)?;
    let config: Value = serde_json::from_slice(&text)
        .map_err(|error| foreign(&path, vec![format!("not JSON: {error}")]))?;
    let Some(table) = config.as_object() else {
        return Err(foreign(&path, vec!["found no table of fields".into()]));
    };
    let mut files = Files::open(folder)?;
    let most = config::Amounts {
        tensors: files.count(),
        elements: files.elements(),
    };
    let described =
        config::read(table, most, purpose).map_err(|problems| foreign(&path, problems))?;
    let shape = &described.shape;
    let family = shape.family;
    let class = match purpose {
        Use::Classify => Class::Classifier(described.labels.len()),
        Use::Embed if files.has(&names::words(family, Class::Bare)) => Class::Bare,
        Use::Embed => Class::WithHead,
    };
    let names = Names::of(shape, class);
    files.expect(&names.all(), &|name| is_passed_over(family, class, name))?;
    let device = Device::cpu_with(cpu_path()?.isa());
    let parts = (shape, &names);
    let encoder = Encoder::load(parts, &mut files, arithmetic.products(), &device)?;
    Ok(Opened { encoder, described })
}

/// A classifier, ready. Shared by threads.
pub struct SequenceClassifier {
    encoder: Encoder,
    shape: Shape,
    labels: Vec<String>,
    problem: Problem,
    notes: Vec<String>,
}

impl SequenceClassifier {
    /// Opens a folder with `config.json` and `model.safetensors` or `pytorch_model.bin` (or shards and their index), on the
    /// CPU.
    ///
    /// # Errors
    /// `Foreign` with every field and tensor that does not fit; files that are missing or damaged; memory.
    pub fn open(folder: &Path, arithmetic: Arithmetic) -> Result<SequenceClassifier> {
        let opened = open(folder, arithmetic, Use::Classify)?;
        let Opened {
            encoder,
            described:
                Described {
                    shape,
                    labels,
                    problem,
                    notes,
                },
        } = opened;
        Ok(SequenceClassifier {
            encoder,
            shape,
            labels,
            problem,
            notes,
        })
    }

    /// Names of the outputs, `id2label`.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The kind of answer that it was trained for.
    pub fn problem(&self) -> Problem {
        self.problem
    }

    /// Tokens of the longest sequence, special ones included.
    pub fn max_tokens(&self) -> usize {
        self.shape.longest
    }

    /// Ids are below this.
    pub fn vocab(&self) -> usize {
        self.shape.vocab
    }

    /// Ignored fields of the configuration, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The logits of each sequence, in the order of the sequences: one per label. A batch has at most `rows` tokens, or one
    /// sequence: that many are in memory at once. It changes no bits.
    ///
    /// # Errors
    /// `Request` for an empty or too long sequence and for a token outside the vocabulary; memory.
    pub fn logits(&self, sequences: &[&[u32]], rows: usize) -> Result<Vec<Vec<f32>>> {
        in_batches(&self.shape, sequences, rows, |batch| {
            let logits = self.encoder.logits(batch).on_rank(0, "classify")?;
            let values = logits.download::<f32>().on_rank(0, "classify")?;
            Ok(values.chunks(self.labels.len()).map(Vec::from).collect())
        })
    }
}

/// The results of `run` for each sequence, in the order of the sequences. Those of about one length run together, in
/// batches of at most `rows` tokens or one sequence.
fn in_batches(
    shape: &Shape,
    sequences: &[&[u32]],
    rows: usize,
    run: impl Fn(&Batch) -> Result<Vec<Vec<f32>>>,
) -> Result<Vec<Vec<f32>>> {
    for sequence in sequences {
        check(shape, sequence)?;
    }
    let mut order: Vec<usize> = (0..sequences.len()).collect();
    order.sort_by_key(|&number| (sequences[number].len(), number));
    let mut found = vec![Vec::new(); sequences.len()];
    let mut rest = order.as_slice();
    while !rest.is_empty() {
        let count = fitting(rest.iter().map(|&number| sequences[number].len()), rows);
        let (batch, after) = rest.split_at(count);
        rest = after;
        let results = run(&batch_of(
            shape,
            batch.iter().map(|&number| sequences[number]),
        ))?;
        for (&number, result) in batch.iter().zip(results) {
            found[number] = result;
        }
    }
    Ok(found)
}

fn check(shape: &Shape, sequence: &[u32]) -> Result<()> {
    let longest = shape.longest;
    if sequence.is_empty() || sequence.len() > longest {
        return Err(Error::Request {
            what: "sequence",
            found: format!("{} tokens", sequence.len()),
            wanted: format!("1 to {longest}"),
        });
    }
    match sequence.iter().find(|&&id| id as usize >= shape.vocab) {
        None => Ok(()),
        Some(id) => Err(Error::Request {
            what: "token",
            found: id.to_string(),
            wanted: format!("below the vocabulary of {}", shape.vocab),
        }),
    }
}

fn batch_of<'s>(shape: &Shape, sequences: impl Iterator<Item = &'s [u32]>) -> Batch {
    let mut batch = Batch {
        ids: Vec::new(),
        positions: Vec::new(),
        runs: Vec::new(),
    };
    for sequence in sequences {
        batch.ids.extend_from_slice(sequence);
        add_positions(sequence, shape.pad, &mut batch.positions);
        match batch.runs.last_mut() {
            Some(run) if run.length == sequence.len() => run.count += 1,
            _ => batch.runs.push(Run {
                length: sequence.len(),
                count: 1,
            }),
        }
    }
    batch
}

/// How many of these lengths are at most `rows` together; at least one.
fn fitting(lengths: impl Iterator<Item = usize>, rows: usize) -> usize {
    let mut sum = 0usize;
    let sums = lengths.map(|length| {
        sum = sum.saturating_add(length);
        sum
    });
    sums.take_while(|sum| *sum <= rows).count().max(1)
}

/// Rows of the table of positions: from 0, or from `pad` + 1 on, where padding has row `pad` and is not counted.
fn add_positions(sequence: &[u32], pad: Option<u32>, positions: &mut Vec<u32>) {
    match pad {
        None => positions.extend((0..).take(sequence.len())),
        Some(pad) => {
            let mut counted = 0;
            positions.extend(sequence.iter().map(|&id| {
                let is_counted = u32::from(id != pad);
                counted += is_counted;
                counted * is_counted + pad
            }));
        }
    }
}

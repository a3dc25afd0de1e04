//! Embeddings of sequences: the rows of an encoder, pooled and of length 1.

use std::path::Path;

use crate::error::{OnRank, Result};
use crate::infer::classifier::config::{Described, Shape, Use};
use crate::infer::classifier::encoder::Encoder;
use crate::infer::classifier::pooling::{self, Pooling, Preparation};
use crate::infer::classifier::{Arithmetic, Opened, in_batches, open};

/// An encoder whose rows become embeddings. Shared by threads.
pub struct SequenceEmbedder {
    encoder: Encoder,
    shape: Shape,
    pooling: Pooling,
    preparation: Preparation,
    notes: Vec<String>,
}

impl SequenceEmbedder {
    /// Opens a folder of Sentence Transformers, or of any class of transformers with one of the encoders, on the CPU.
    /// `pooling` goes before the folder's own (`modules.json`), which goes before the mean.
    ///
    /// # Errors
    /// `Foreign` with every field, module and tensor that does not fit; files that are missing or damaged; memory.
    pub fn open(
        folder: &Path,
        arithmetic: Arithmetic,
        pooling: Option<Pooling>,
    ) -> Result<SequenceEmbedder> {
        let modules = pooling::read(folder, pooling)?;
        let Opened {
            encoder,
            described: Described {
                mut shape, notes, ..
            },
        } = open(folder, arithmetic, Use::Embed)?;
        if let Some(longest) = modules.longest {
            shape.longest = shape.longest.min(longest);
        }
        Ok(SequenceEmbedder {
            encoder,
            shape,
            pooling: modules.pooling,
            preparation: modules.preparation,
            notes,
        })
    }

    /// Numbers of an embedding.
    pub fn width(&self) -> usize {
        self.shape.width
    }

    /// The rows that embeddings are made of.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Changes of a text before its tokens.
    pub fn preparation(&self) -> Preparation {
        self.preparation
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

    /// The embedding of each sequence, in the order of the sequences: `width` numbers of length 1 together, or zeros if the
    /// rows add to zero. A batch has at most `rows` tokens, or one sequence; it changes no bits.
    ///
    /// # Errors
    /// `Request` for an empty or too long sequence and for a token outside the vocabulary; memory.
    pub fn embeddings(&self, sequences: &[&[u32]], rows: usize) -> Result<Vec<Vec<f32>>> {
        let width = self.shape.width;
        in_batches(&self.shape, sequences, rows, |batch| {
            let only_firsts = self.pooling == Pooling::Cls;
            let rows = self.encoder.last_rows(batch, only_firsts);
            let rows = rows.on_rank(0, "embed")?;
            let values = rows.download::<f32>().on_rank(0, "embed")?;
            let of = |rows: &[f32]| unit(&sum(rows, width));
            Ok(match self.pooling {
                Pooling::Cls => values.chunks(width).map(of).collect(),
                Pooling::Mean => {
                    let sequences = batch.sequences();
                    let own = sequences
                        .iter()
                        .map(|rows| &values[rows.first * width..(rows.first + rows.count) * width]);
                    own.map(of).collect()
                }
            })
        })
    }
}

/// The sum of rows, one after the other.
fn sum(rows: &[f32], width: usize) -> Vec<f64> {
    let mut sum = vec![0.0; width];
    for row in rows.chunks(width) {
        for (sum, x) in sum.iter_mut().zip(row) {
            *sum += f64::from(*x);
        }
    }
    sum
}

/// A vector of length 1 in the same direction.
fn unit(of: &[f64]) -> Vec<f32> {
    let length = of.iter().map(|x| x * x).sum::<f64>().sqrt();
    let by = if length > 0.0 { 1.0 / length } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded to the format of embeddings"
    )]
    of.iter().map(|x| (x * by) as f32).collect()
}

//! Writer of fastText model files, version 12, as fastText 0.9.2 writes them: header, dictionary, both matrices,
//! nothing quantised.

use std::io::{self, Write};

use super::config::{ClassifierLoss, ClassifierTraining};
use super::sgd::Weights;
use super::vocabulary::Vocabulary;
use crate::quality::fasttext::MAGIC;
use crate::quality::fasttext::dictionary::LABEL;

const VERSION: i32 = 12;
/// Model kind 3: supervised.
const SUPERVISED: i32 = 3;

fn int(n: impl TryInto<i32>) -> io::Result<i32> {
    n.try_into().map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "a size beyond 2^31, which the format does not hold",
        )
    })
}

pub(super) fn write(
    out: &mut impl Write,
    settings: &ClassifierTraining,
    vocabulary: &Vocabulary,
    weights: &Weights,
) -> io::Result<()> {
    let shape = settings.shape();
    let loss = match settings.loss {
        ClassifierLoss::Hs => 1,
        ClassifierLoss::Softmax => 3,
        ClassifierLoss::Ova => 4,
    };
    let (words, labels) = (vocabulary.words.len(), vocabulary.labels.len());
    let header = [
        MAGIC,
        VERSION,
        int(settings.dim)?,
        // ws, which supervised models do not use: fastText's default
        5,
        int(settings.epochs)?,
        int(settings.min_count.min(i64::from(i32::MAX)))?,
        // neg, as ws
        5,
        int(shape.word_ngrams)?,
        loss,
        SUPERVISED,
        int(shape.bucket)?,
        int(shape.minn)?,
        int(shape.maxn)?,
        // lrUpdateRate: the default
        100,
    ];
    for number in header {
        out.write_all(&number.to_le_bytes())?;
    }
    // t, the threshold of sampling, as ws
    out.write_all(&1e-4f64.to_le_bytes())?;
    for number in [int(words + labels)?, int(words)?, int(labels)?] {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(&vocabulary.tokens.to_le_bytes())?;
    out.write_all(&(-1i64).to_le_bytes())?;
    for (word, count) in &vocabulary.words {
        entry(out, word, *count, 0)?;
    }
    for (label, count) in &vocabulary.labels {
        entry(out, format!("{LABEL}{label}").as_bytes(), *count, 1)?;
    }
    for matrix in [&weights.input, &weights.output] {
        // not quantised
        out.write_all(&[0])?;
        for number in [matrix.len() / weights.dim, weights.dim] {
            out.write_all(&(number as u64).to_le_bytes())?;
        }
        let mut block = Vec::with_capacity(1 << 16);
        for numbers in matrix.chunks(1 << 14) {
            block.clear();
            block.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
            out.write_all(&block)?;
        }
    }
    Ok(())
}

fn entry(out: &mut impl Write, word: &[u8], count: i64, kind: u8) -> io::Result<()> {
    out.write_all(word)?;
    out.write_all(&[0])?;
    out.write_all(&count.to_le_bytes())?;
    out.write_all(&[kind])
}

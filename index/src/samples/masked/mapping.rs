//! Sentences of each BERT or T5 sample: Megatron's `build_mapping`, bit-equal.
//!
//! target() = the longest length M, or, for one draw r in round(1 / p) (r mod that = 0), 2 + r mod (M - 1). For
//! every epoch that begins with too few samples, for every document without a sentence above 512 tokens (documents
//! of one sentence aside) and with enough sentences: sentences are accumulated; a sample ends when the target is
//! reached, more than one sentence is left and it has enough sentences, or at the document's end; a new target is
//! drawn after each sample. Then a Fisher-Yates shuffle of the rows (first sentence, last + 1, target). Source:
//! megatron-core 0.16.1 `helpers.cpp`. Draws: `std::mt19937(seed)`, `std::mt19937_64(seed + 1)`. We differ: an
//! epoch without a sample is an error (Megatron runs through 2^31 epochs); more than 2^32 - 1 sentences are refused
//! (Megatron then stores 64 bits).

use crate::dataset::read::Dataset;
use crate::error::{Error, Result};
use crate::numpy_random::{Mt64, RandomState};
use std::ops::Range;

/// Documents with a longer sentence are left out.
const LONG_SENTENCE_TOKENS: u32 = 512;

/// First sentence, last sentence + 1, target length.
pub(crate) type Row = [u32; 3];

/// Parameters that fix a mapping, besides the dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Minimum number of samples; whole epochs are emitted.
    pub(crate) samples: u64,
    /// M.
    pub(crate) longest: u32,
    /// p.
    pub(crate) short_probability: f64,
    pub(crate) seed: u32,
    /// Minimum number of sentences per sample.
    pub(crate) sentences: u32,
}

fn refuse<T>(dataset: &Dataset, field: &'static str, found: String, wanted: &str) -> Result<T> {
    Err(Error::Blend {
        field,
        found: format!("{found} in {}", dataset.prefix().display()),
        wanted: wanted.into(),
    })
}

/// The rows for `documents`, in training order.
pub(crate) fn build(dataset: &Dataset, documents: &Range<u64>, r: &Rules) -> Result<Vec<Row>> {
    if i32::try_from(r.seed).is_err() || r.seed == i32::MAX.unsigned_abs() {
        return refuse(dataset, "seed", r.seed.to_string(), "below 2^31 - 1");
    }
    if u32::try_from(dataset.sequences()).is_err() {
        let found = dataset.sequences().to_string();
        return refuse(dataset, "sequences", found, "at most 2^32 - 1 sentences");
    }
    if r.longest < 2 {
        return refuse(
            dataset,
            "seq_length",
            r.longest.to_string(),
            "room for 2 tokens",
        );
    }
    let mut random = RandomState::new(r.seed);
    let ratio = match r.short_probability {
        0.0 => 0,
        // at most 2^31 for any probability in use; saturating
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "see above"
        )]
        p => (1.0 / p).round() as u32,
    };
    let mut target = || {
        if ratio == 0 {
            return r.longest;
        }
        let draw = random.next_u32();
        if draw.is_multiple_of(ratio) {
            2 + draw % (r.longest - 1)
        } else {
            r.longest
        }
    };
    let mut rows = Vec::new();
    while (rows.len() as u64) < r.samples {
        let before = rows.len();
        for d in documents.clone() {
            let sentences = dataset.document(usize::try_from(d).unwrap_or(usize::MAX));
            document(dataset, sentences, r.sentences, &mut target, &mut rows);
        }
        if rows.len() == before {
            let found = format!("none from {} documents", documents.end - documents.start);
            let wanted = "a document with enough sentences, none above 512 tokens";
            return refuse(dataset, "samples", found, wanted);
        }
    }
    let mut random = Mt64::new(u64::from(r.seed) + 1);
    for i in (1..rows.len()).rev() {
        let j = random.next_u64() % (i as u64 + 1);
        rows.swap(i, usize::try_from(j).unwrap_or(i));
    }
    Ok(rows)
}

fn document(
    dataset: &Dataset,
    sentences: Range<u64>,
    fewest: u32,
    target: &mut impl FnMut() -> u32,
    rows: &mut Vec<Row>,
) {
    let length = |s: u64| dataset.length(usize::try_from(s).unwrap_or(usize::MAX));
    let mut left = sentences.end - sentences.start;
    let long = || sentences.clone().any(|s| length(s) > LONG_SENTENCE_TOKENS);
    if left < u64::from(fewest).max(1) || (left > 1 && long()) {
        // Megatron draws no target for a skipped document, but one for an empty document if none is too few; min_sent
        // is at least 1 for both kinds of model
        return;
    }
    let (mut wanted, mut tokens, mut count) = (target(), 0u64, 0);
    let mut first = sentences.start;
    for s in sentences {
        tokens += u64::from(length(s));
        count += 1;
        left -= 1;
        if (tokens >= u64::from(wanted) && left > 1 && count >= fewest) || left == 0 {
            let number = |s: u64| u32::try_from(s).unwrap_or(u32::MAX); // checked by `build`
            rows.push([number(first), number(s + 1), wanted]);
            first = s + 1;
            wanted = target();
            (tokens, count) = (0, 0);
        }
    }
}

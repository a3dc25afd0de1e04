//! BERT samples: CLS A SEP B SEP with masked tokens, and whether B really follows A.
//!
//! With a classification head, the sentences are divided at a random place into A and B, which are swapped with
//! probability one half; both together are shortened to the target by dropping tokens from the front or the back of
//! the longer one. Source: megatron-core 0.16.1 `bert_dataset.py`; Devlin et al. 2019, arXiv:1810.04805 (80% mask,
//! 10% random, 10% kept).

use super::{Masked, MaskedRequest, id, mask, padded};
use crate::error::Result;
use crate::numpy_random::RandomState;
use serde_json::json;
use std::collections::VecDeque;

/// CLS and two SEP.
const SPECIAL: u32 = 3;

/// A sample, every array of `seq_length`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BertItem {
    /// Inputs.
    pub text: Vec<i32>,
    /// 0 in A, 1 in B, the padding id after them.
    pub types: Vec<i32>,
    /// Tokens to predict, -1 (0 if there is no padding id) elsewhere.
    pub labels: Vec<i32>,
    /// A and B are swapped (next-sentence prediction's negative label).
    pub is_random: bool,
    /// 1 on tokens, the padding id on padding.
    pub padding_mask: Vec<i32>,
    /// 1 where a label counts.
    pub loss_mask: Vec<i32>,
    /// Tokens were dropped to fit.
    pub truncated: bool,
    /// Tokens before the padding.
    pub length: usize,
}

/// Samples of a dataset of sentences.
pub struct BertSamples {
    masked: Masked,
    classification_head: bool,
}

impl BertSamples {
    /// Maps sentences to samples.
    ///
    /// # Errors
    /// `Blend` for invalid settings or a part without a usable document; `Io` if the cache cannot be written.
    pub fn new(r: &MaskedRequest, classification_head: bool) -> Result<BertSamples> {
        let more = json!({ "classification_head": classification_head });
        let sentences = if classification_head { 2 } else { 1 };
        let masked = Masked::open(r, "BERTMaskedWordPieceDataset", SPECIAL, sentences, more)?;
        Ok(BertSamples {
            masked,
            classification_head,
        })
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.masked.rows.len() as u64
    }
    /// Epochs of the documents that were built; always whole ones.
    pub fn epochs(&self) -> u64 {
        self.masked.epochs()
    }
    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.masked.rows.is_empty()
    }
    /// First sentence, last sentence + 1 and target length of each sample.
    pub fn sample_index(&self) -> &[[u32; 3]] {
        &self.masked.rows
    }

    /// Sample `k`.
    ///
    /// # Errors
    /// `Range`; `Blend` if a cached index does not fit the dataset.
    pub fn item(&self, k: u64) -> Result<BertItem> {
        let (m, t) = (&self.masked, &*self.masked.tokens);
        let [first, end, target] = m.row(k)?;
        let mut random = m.random(k);
        let count = end.saturating_sub(first) as usize;
        let (mut pivot, mut is_random) = (count, false);
        if self.classification_head {
            if count < 2 {
                let found = format!("{count} sentence");
                return Err(m.wrong(k, "sentences", found, "2 or more".into()));
            }
            pivot = 1;
            if count >= 3 {
                pivot = random.randint(1, count);
            }
            is_random = random.random() < 0.5;
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (i, s) in (first..end).enumerate() {
            m.sentence(s, if i < pivot { &mut a } else { &mut b })?;
        }
        if is_random {
            std::mem::swap(&mut a, &mut b);
        }
        let (mut a, mut b) = (VecDeque::from(a), VecDeque::from(b));
        let truncated = a.len() + b.len() > target as usize;
        while a.len() + b.len() > target as usize {
            let longer = if a.len() > b.len() { &mut a } else { &mut b };
            if random.random() < 0.5 {
                longer.pop_front();
            } else {
                longer.pop_back();
            }
        }
        let mut text = vec![t.cls];
        text.extend(a);
        text.push(t.sep);
        let types_a = text.len();
        if !b.is_empty() {
            text.extend(b);
            text.push(t.sep);
        }
        let length = m.seq_length as usize;
        if text.len() > length {
            let found = format!("{} tokens", text.len());
            return Err(m.wrong(k, "tokens", found, format!("at most {length}")));
        }
        let vocabulary = &t.vocabulary;
        let mut replace = |random: &mut RandomState| {
            if random.random() < 0.8 {
                Some(t.mask)
            } else if random.random() >= 0.5 && !vocabulary.is_empty() {
                Some(vocabulary[random.randint(0, vocabulary.len())])
            } else {
                None
            }
        };
        let p = mask(&text, target, (&m.masking, t), &mut random, &mut replace);
        let pad = t.pad.map_or(-1, id);
        let known = |v: i32| if v == pad { 0 } else { v };
        let all = padded(p.tokens.iter().map(|v| id(*v)), length, pad);
        let (mut labels, mut loss_mask) = (vec![known(-1); length], vec![0; length]);
        for (i, label) in &p.labels {
            labels[*i] = known(id(*label));
            loss_mask[*i] = 1;
        }
        let types = (0..p.tokens.len()).map(|i| i32::from(i >= types_a));
        Ok(BertItem {
            types: padded(types, length, pad),
            padding_mask: all
                .iter()
                .map(|v| if *v == pad { pad } else { 1 })
                .collect(),
            text: all.into_iter().map(known).collect(),
            labels,
            is_random,
            loss_mask,
            truncated,
            length: p.tokens.len(),
        })
    }
}

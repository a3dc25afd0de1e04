//! T5 samples: spans of the text replaced by sentinels, and the spans as the decoder's targets.
//!
//! encoder: text with each span replaced by the next sentinel; decoder input: BOS, then sentinel and span,
//! repeatedly; decoder output: the same without BOS, then EOS. Source: megatron-core 0.16.1 `t5_dataset.py`; Raffel
//! et al. 2020, arXiv:1910.10683.

use super::{Masked, MaskedRequest, id, mask, padded};
use crate::error::Result;
use serde_json::json;

/// BOS and EOS.
const SPECIAL: u32 = 2;

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct T5Item {
    /// Encoder input, padding 0.
    pub text_enc: Vec<i32>,
    /// Decoder input, padding 0.
    pub text_dec: Vec<i32>,
    /// Decoder output, -1 (0 if there is no padding id) on padding.
    pub labels: Vec<i32>,
    /// 1 where a label counts.
    pub loss_mask: Vec<i32>,
    /// Tokens were dropped to fit.
    pub truncated: bool,
    /// 1 on encoder tokens, 0 on padding.
    pub enc_mask: Vec<i32>,
    /// 1 on decoder tokens, 0 on padding.
    pub dec_mask: Vec<i32>,
}

/// Samples of a dataset of sentences.
pub struct T5Samples {
    masked: Masked,
    decoder_length: usize,
}

impl T5Samples {
    /// Maps sentences to samples.
    ///
    /// # Errors
    /// As [`super::BertSamples::new`].
    pub fn new(r: &MaskedRequest, decoder_length: u32) -> Result<T5Samples> {
        let more = json!({ "sequence_length_decoder": decoder_length });
        let masked = Masked::open(r, "T5MaskedWordPieceDataset", SPECIAL, 1, more)?;
        Ok(T5Samples {
            masked,
            decoder_length: decoder_length as usize,
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
    /// `Range`; `Blend` if sentinels run out or a side does not fit its length.
    pub fn item(&self, k: u64) -> Result<T5Item> {
        let (m, t) = (&self.masked, &*self.masked.tokens);
        let [first, end, target] = m.row(k)?;
        let mut random = m.random(k);
        let mut text = Vec::new();
        (first..end).try_for_each(|s| m.sentence(s, &mut text))?;
        let truncated = text.len() > target as usize;
        text.truncate(target as usize);
        let mut replace = |_: &mut _| Some(t.mask);
        let p = mask(&text, target, (&m.masking, t), &mut random, &mut replace);
        if p.spans.len() > t.sentinels.len() {
            let (found, have) = (format!("{} spans", p.spans.len()), t.sentinels.len());
            return Err(m.wrong(k, "sentinels", found, format!("at most {have}")));
        }
        let (mut encoder, mut decoder, mut at) = (Vec::new(), vec![t.bos], 0);
        for (span, sentinel) in p.spans.iter().zip(&t.sentinels) {
            encoder.extend(p.tokens.get(at..span[0]).unwrap_or_default());
            encoder.push(*sentinel);
            decoder.push(*sentinel);
            decoder.extend(span.iter().map(|i| text[*i]));
            at = span[span.len() - 1] + 1;
        }
        encoder.extend(&p.tokens[at..]);
        let sides = [
            ("encoder tokens", encoder.len(), m.seq_length as usize),
            ("decoder tokens", decoder.len(), self.decoder_length),
        ];
        for (field, found, wanted) in sides {
            if found > wanted {
                let wanted = format!("at most {wanted}");
                return Err(m.wrong(k, field, found.to_string(), wanted));
            }
        }
        let pad = t.pad.map_or(-1, id);
        let known = |v: &i32| if *v == pad { 0 } else { *v };
        let seen = |v: &i32| i32::from(*v != pad);
        let enc = padded(encoder.iter().map(|v| id(*v)), m.seq_length as usize, pad);
        let dec = padded(decoder.iter().map(|v| id(*v)), self.decoder_length, pad);
        let output = decoder[1..].iter().chain([&t.eos]).map(|v| id(*v));
        Ok(T5Item {
            enc_mask: enc.iter().map(seen).collect(),
            dec_mask: dec.iter().map(seen).collect(),
            text_enc: enc.iter().map(known).collect(),
            text_dec: dec.iter().map(known).collect(),
            labels: padded(output, self.decoder_length, -1)
                .iter()
                .map(known)
                .collect(),
            loss_mask: padded(decoder.iter().map(|_| 1), self.decoder_length, 0),
            truncated,
        })
    }
}

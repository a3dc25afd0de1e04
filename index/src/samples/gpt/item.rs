//! A GPT sample as model input: tokens, labels, loss mask, positions and attention bounds.
//!
//! Labels are the tokens shifted by one; without an extra token the last label is padding. A position has no loss
//! if its label is padding and, optionally, if its token ends a document. Positions and attention restart after a
//! token that ends a document, or (`inter_document`) wherever the next document's part begins. Source:
//! megatron-core 0.16.1 `gpt_dataset.py` (`__getitem__`, `_get_ltor_masks_and_position_ids`); `inter_document` is
//! 0.19's `inter_document_masking`. We differ: attention is one number per row (the first column it attends to);
//! the L x L mask is built on demand.

use super::{GptSamples, PAD, request::index};
use crate::error::Result;

/// Options of [`GptSamples::item`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemOptions {
    /// The end-of-document token.
    pub eod: u32,
    /// Padding id, if the tokenizer has a dedicated one: such tokens in the data count as padding too.
    pub pad: Option<u32>,
    /// No loss where the token ends a document. Megatron's key.
    pub eod_mask_loss: bool,
    /// Positions restart after the end of a document.
    pub reset_position_ids: bool,
    /// Rows after the end of a document do not attend to it or anything before.
    pub reset_attention_mask: bool,
    /// Positions restart and attention stops at every document boundary, with or without an end token.
    pub inter_document: bool,
}

/// A sample for a model, all of length L. Reuse one for many samples: nothing is allocated again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GptItem {
    /// Inputs; padding is 0.
    pub tokens: Vec<u32>,
    /// Labels; padding is 0.
    pub labels: Vec<u32>,
    /// 1.0 where a label counts.
    pub loss_mask: Vec<f32>,
    /// Positions.
    pub position_ids: Vec<u32>,
    /// First column that each row attends to; the last is the row itself.
    pub sees_from: Vec<u32>,
    /// Starts of the documents' parts, then L; empty without `inter_document`. Megatron's `cu_seqlens`, not padded.
    pub boundaries: Vec<u32>,
    text: Vec<u32>,
}

impl GptItem {
    /// Megatron's mask: true at [row * L + column] where the row does not attend to the column.
    pub fn attention_mask(&self) -> Vec<bool> {
        let l = self.tokens.len();
        let mut hidden = vec![true; l * l];
        for (r, from) in self.sees_from.iter().enumerate() {
            hidden[r * l + *from as usize..=r * l + r].fill(false);
        }
        hidden
    }

    /// Leaves the whole sample out of the loss: it only fills a batch.
    pub fn ignore_loss(&mut self) {
        self.loss_mask.fill(0.0);
    }
}

impl GptSamples {
    /// Sample `k` in training order as model input.
    ///
    /// # Errors
    /// `Range`.
    pub fn item(&self, k: u64, o: &ItemOptions, item: &mut GptItem) -> Result<()> {
        let l = index(self.seq_length());
        let mut text = std::mem::take(&mut item.text);
        text.resize(index(self.sample_tokens()), 0);
        item.boundaries.clear();
        let bounds = &mut item.boundaries;
        let mut at = 0;
        let read = self.read_parts(k, &mut text, |n| {
            bounds.push(at);
            at += u32::try_from(n).unwrap_or(u32::MAX);
        });
        item.fill(&text, l, o);
        item.text = text;
        read
    }
}

impl GptItem {
    fn fill(&mut self, text: &[u32], l: usize, o: &ItemOptions) {
        let is_pad = |t: u32| t == PAD || o.pad == Some(t);
        let known = |t: u32| if is_pad(t) { 0 } else { t };
        let labels = || text.iter().copied().skip(1).chain([PAD]).take(l);
        self.tokens.clear();
        self.tokens.extend(text[..l].iter().map(|t| known(*t)));
        self.labels.clear();
        self.labels.extend(labels().map(known));
        self.loss_mask.clear();
        self.loss_mask
            .extend(text.iter().zip(labels()).map(|(t, label)| {
                let left_out = is_pad(label) || (o.eod_mask_loss && *t == o.eod);
                f32::from(u8::from(!left_out))
            }));
        let (mut position, mut from) = (0, 0);
        self.position_ids.clear();
        self.sees_from.clear();
        for (r, t) in (0u32..).zip(&text[..l]) {
            self.position_ids.push(r - position);
            self.sees_from.push(from);
            if *t == o.eod {
                if o.reset_position_ids {
                    position = r + 1;
                }
                if o.reset_attention_mask {
                    from = r + 1;
                }
            }
        }
        if o.inter_document {
            self.cut_at_boundaries(l);
        } else {
            self.boundaries.clear();
        }
    }

    /// Positions and attention within each document's part; padding belongs to the last part.
    fn cut_at_boundaries(&mut self, l: usize) {
        let end = u32::try_from(l).unwrap_or(u32::MAX);
        // a part that only has the extra token begins at L: the closing boundary
        self.boundaries.retain(|b| *b < end);
        self.boundaries.push(end);
        if self.boundaries.first() != Some(&0) {
            self.boundaries.insert(0, 0);
        }
        for part in self.boundaries.windows(2) {
            for r in part[0]..part[1] {
                self.position_ids[r as usize] = r - part[0];
                self.sees_from[r as usize] = part[0];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &[u32], l: usize, boundaries: &[u32], o: &ItemOptions) -> GptItem {
        let mut item = GptItem {
            boundaries: boundaries.to_vec(),
            ..GptItem::default()
        };
        item.fill(text, l, o);
        item
    }

    #[test]
    fn rows_after_an_end_of_document_see_nothing_up_to_it() {
        let o = ItemOptions {
            eod: 9,
            reset_attention_mask: true,
            reset_position_ids: true,
            ..ItemOptions::default()
        };
        let i = item(&[1, 9, 2, 3, 4], 4, &[], &o);
        assert_eq!(i.position_ids, [0, 1, 0, 1]);
        assert_eq!(i.sees_from, [0, 0, 2, 2]);
        let rows: Vec<Vec<bool>> = i.attention_mask().chunks(4).map(<[bool]>::to_vec).collect();
        assert_eq!(rows[1], [false, false, true, true]);
        assert_eq!(rows[3], [true, true, false, false]);
    }

    #[test]
    fn padding_has_no_loss_and_belongs_to_the_last_part() {
        let o = ItemOptions {
            inter_document: true,
            ..ItemOptions::default()
        };
        let i = item(&[5, 6, 7, PAD, PAD], 4, &[0, 2], &o);
        assert_eq!(
            (&i.tokens[..], &i.labels[..]),
            (&[5, 6, 7, 0][..], &[6, 7, 0, 0][..])
        );
        assert_eq!(i.loss_mask, [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(i.boundaries, [0, 2, 4]);
        assert_eq!(i.position_ids, [0, 1, 0, 1]);
        // the second document's part is the extra token alone
        assert_eq!(item(&[5, 6, 7, 8, 9], 4, &[0, 4], &o).boundaries, [0, 4]);
    }
}

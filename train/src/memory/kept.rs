//! What the forward pass of a piece keeps for its backward pass, layer by layer.

use kernels::Device;

use super::Rank;
use crate::config::{NormKind, Recompute};
use crate::model::moe;

/// Rows of a micro-batch on a rank.
#[derive(Clone, Copy)]
struct Rows {
    /// Of its sequences.
    n: usize,
    /// Between layers.
    m: usize,
}

fn bytes(elements: &[usize]) -> usize {
    elements.iter().map(|&count| Device::bytes_of(count)).sum()
}

impl Rank<'_> {
    /// Bytes that the forward pass of a chunk keeps for `b` sequences.
    pub(super) fn kept(&self, chunk: usize, b: usize) -> usize {
        let (plan, place) = (self.plan, &self.place);
        let architecture = plan.model.architecture();
        let pieces = plan.pieces();
        let before: usize = (0..chunk)
            .map(|chunk| pieces[chunk * place.pp + place.pp_rank].len())
            .sum();
        let piece = chunk * place.pp + place.pp_rank;
        let near = self.rows(b, plan.seq_length);
        let far = self.rows(b, plan.decoder_length);
        let mut kept = 0;
        if piece == 0 && architecture.is_post_norm {
            kept += self.width(near.m) + self.statistics(near.m);
        }
        for (index, block) in pieces[piece].clone().enumerate() {
            let recompute = plan.train.recompute_of(place.pp_rank, before + index);
            kept += if plan.model.is_decoder_block(block) {
                self.decoder_block(recompute, far, near)
            } else {
                self.block(block, recompute, near)
            };
            if plan.model.is_last_of_encoder(block) {
                kept += self.width(near.m) + self.statistics(near.m);
            }
        }
        let mut blocks = pieces[piece].clone();
        if blocks.any(|block| plan.model.is_decoder_block(block)) {
            // the encoder's rows, once for all blocks
            kept += self.width(near.m);
        }
        if piece + 1 < pieces.len() {
            return kept;
        }
        if architecture.is_masked {
            return kept + self.masked_head(b);
        }
        let Rows { n, m } = if architecture.is_encoder_decoder {
            far
        } else {
            near
        };
        let logits = n * plan.padded_vocab() / place.tp;
        kept + 2 * self.width(m) + self.statistics(m) + bytes(&[logits, n, n])
    }

    fn rows(&self, b: usize, length: usize) -> Rows {
        let n = b * length / self.place.cp;
        let is_shared = self.plan.parallel.sequence;
        let m = if is_shared { n / self.place.tp } else { n };
        Rows { n, m }
    }

    /// Of `rows` rows of the model's width.
    fn width(&self, rows: usize) -> usize {
        Device::bytes_of(rows * self.plan.model.d_model)
    }

    /// Of a norm of `rows` rows.
    fn statistics(&self, rows: usize) -> usize {
        match self.plan.model.architecture().norm {
            NormKind::Layer => bytes(&[rows, rows]),
            NormKind::Rms => bytes(&[rows]),
        }
    }

    fn block(&self, block: usize, recompute: Recompute, Rows { n, m }: Rows) -> usize {
        let (plan, tp, s) = (self.plan, self.place.tp, self.plan.shape());
        if recompute == Recompute::Full {
            return self.width(m);
        }
        // input, both norms' results, the middle; the norms' statistics
        let mut kept = 4 * self.width(m) + 2 * self.statistics(m);
        kept += bytes(&[n * s.packed / tp]);
        kept += match plan.model.moe_at(block) {
            Some(moe) => bytes(&moe::kept(plan, moe, (n, m), tp)),
            None => self.feed_forward(n),
        };
        if recompute == Recompute::None {
            kept += self.core(n);
        }
        kept
    }

    /// `near` are the encoder's rows.
    fn decoder_block(&self, recompute: Recompute, Rows { n, m }: Rows, near: Rows) -> usize {
        let (tp, s) = (self.place.tp, self.plan.shape());
        if recompute == Recompute::Full {
            return self.width(m);
        }
        // what goes into the three norms and comes out; their statistics
        let mut kept = 6 * self.width(m) + 3 * self.statistics(m);
        let keys = near.n * 2 * s.kv_heads * s.d_head / tp;
        kept += bytes(&[n * s.packed / tp, n * s.heads * s.d_head / tp, keys]);
        kept += self.feed_forward(n);
        if recompute == Recompute::None {
            kept += 2 * self.core(n);
        }
        kept
    }

    fn feed_forward(&self, n: usize) -> usize {
        let (tp, s) = (self.place.tp, self.plan.shape());
        let fc1 = self.plan.model.architecture().fc1_widths() * s.d_ffn / tp;
        bytes(&[n * fc1, n * s.d_ffn / tp])
    }

    /// What attention itself computes: mixed values and the sums' logarithms.
    fn core(&self, n: usize) -> usize {
        let (tp, s) = (self.place.tp, self.plan.shape());
        bytes(&[n * s.heads * s.d_head / tp, n * s.heads / tp])
    }

    fn masked_head(&self, b: usize) -> usize {
        let (plan, s) = (self.plan, self.plan.shape());
        let architecture = plan.model.architecture();
        let r = b * plan.predictions;
        let logits = r * s.padded_vocab / self.place.tp;
        // what goes into the transform, its activation, the norm and the vocabulary
        let mut kept = 4 * self.width(r) + self.statistics(r);
        kept += bytes(&[logits, r, r]);
        let told = if architecture.next_sentence { b } else { 0 };
        if !architecture.is_post_norm {
            // what goes into the final norm
            kept += self.width(r + told) + self.statistics(r + told);
        }
        if told > 0 {
            let d = told * s.d_model;
            kept += bytes(&[d, d, d, 2 * told, told, told]);
        }
        kept
    }
}

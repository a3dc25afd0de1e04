//! Floating-point operations of a training step, for throughput figures.
//!
//! Per token: 6 for every weight of a matrix product (2 forward, 4 backward) plus 12 * layers * heads * d_head *
//! seq_length for the attention scores and their use, with latents half of it with the width of a value. Of a mixture, only a token's chosen experts and the router
//! count. Paper: Narayanan et al. 2021, arXiv:2104.04473, sec. 5.1, without recomputation. Attention is counted in
//! full, not halved for causality, as there; the vocabulary is counted with its padding, as computed.

use crate::config::plan::Plan;

/// Operations of forward and backward for one token.
fn per_token(plan: &Plan) -> f64 {
    let s = plan.shape();
    let matrices = plan.model.architecture().fc1_widths() + 1;
    let feed_forward = |layer| match plan.model.moe_at(layer) {
        Some(moe) => {
            let experts = moe.top_k * plan.model.d_expert() + moe.shared_d_ffn;
            matrices * experts + moe.experts + usize::from(moe.shared_gate)
        }
        None => matrices * s.d_ffn,
    };
    if plan.model.architecture().is_encoder_decoder {
        return per_token_of_pair(plan, feed_forward(0));
    }
    let depths = plan.model.mtp_num_layers;
    let blocks = plan.model.layers + depths;
    let features: usize = (0..blocks).map(feed_forward).sum();
    let projections = match plan.model.latents() {
        None => s.d_model * s.packed,
        Some(latents) => {
            let weights = latents.weights(s.d_model, s.heads).into_iter();
            let matrices = weights.filter(|weight| weight.dims.len() > 1);
            matrices
                .map(|weight| weight.dims.iter().product::<usize>())
                .sum()
        }
    };
    let projections = blocks * (projections + s.d_model * s.heads * s.d_value);
    // a classification head has a row or two of a sequence
    let logits = match plan.model.classify {
        Some(_) => 0,
        // each depth of multi-token prediction uses the head again, after a projection of two rows
        None => s.padded_vocab * (1 + depths) + 2 * s.d_model * depths,
    };
    let matrices = s.d_model * (features + logits) + projections;
    // products with keys and with values, of which padding does not count
    let widths = s.heads * (s.d_head + s.d_value);
    let attention = 6 * blocks * widths * plan.seq_length;
    // frozen matrices have no gradients of their own; that adapters of the first block spare the gradient of its input is not counted
    let of_matrix = if plan.model.is_adapted() { 4.0 } else { 6.0 };
    of_matrix * matrices as f64 + attention as f64
}

/// The same for an encoder-decoder: the mean over a sample's tokens of both sequences; keys and values for
/// cross attention are the encoder's rows.
fn per_token_of_pair(plan: &Plan, feed_forward: usize) -> f64 {
    let s = plan.shape();
    let (width, keys) = (s.heads * s.d_head, 2 * s.kv_heads * s.d_head);
    let (te, td) = (plan.seq_length as f64, plan.decoder_length as f64);
    let encoders = plan.model.layers as f64;
    let decoders = (plan.model.blocks() - plan.model.layers) as f64;
    let own = (s.d_model * (s.packed + width + feed_forward)) as f64;
    let cross = (s.d_model * 2 * width) as f64;
    let head = (s.d_model * s.padded_vocab) as f64;
    let matrices = encoders * te * own
        + decoders * (td * (own + cross) + te * (s.d_model * keys) as f64)
        + td * head;
    let pairs = encoders * te * te + decoders * (td * td + td * te);
    (6.0 * matrices + 12.0 * width as f64 * pairs) / plan.sample_tokens() as f64
}

impl Plan {
    /// Floating-point operations of forward and backward for one token.
    pub fn flops_per_token(&self) -> f64 {
        per_token(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::fixtures::tiny_gpt;

    #[test]
    fn gpt_flops_follow_megatrons_closed_form() {
        let plan = tiny_gpt();
        let (l, h) = (plan.model.layers as f64, plan.model.d_model as f64);
        let (s, v) = (plan.seq_length as f64, plan.padded_vocab() as f64);
        // 72 B L s h^2 (1 + s / 6h + V / 12hL) with B s = 1 token
        let closed = 72.0 * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * l));
        assert!((plan.flops_per_token() / closed - 1.0).abs() < 1e-12);
    }
}

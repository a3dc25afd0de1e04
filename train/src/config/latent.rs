//! Multi-head latent attention: queries, keys and values of all heads come from narrow rows of a token, its latents.
//! Paper: DeepSeek-V2, arXiv:2405.04434, sec. 2.1.
//!
//! c_q = norm(x Q_down), q_h = c_q Q_up,h (or q_h = x Q_h); (r, c) = x KV_down, (k_h, v_h) = norm(c) KV_up,h. Of a head's query
//! `turned` features have rotary positions; those of its key are r, which all heads share. Keys of `[model]` are named as
//! Megatron-LM names them.
//!
//! We differ from DeepSeek's files in the order of features, which no product depends on: the turned ones come first, in a head
//! and before the latent of keys and values, and pairs are halves of them, as in all our models.

use crate::config::architecture::Positions;
use crate::config::choices::{Biases, NormKind};
use crate::config::model::ModelConfig;

/// Widths of a model with latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latents {
    /// Width of the latent of queries; `None`: queries are a projection of the rows themselves.
    pub queries: Option<usize>,
    /// Width of the latent of keys and values.
    pub keys_values: usize,
    /// Features of a head's query and key without positions.
    pub still: usize,
    /// Those with rotary positions, whose keys all heads share.
    pub turned: usize,
    /// Features of a head's value.
    pub values: usize,
}

/// A weight of latent attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LatentWeight {
    /// Last part of its layer's name.
    pub layer: &'static str,
    pub dims: Vec<usize>,
    /// Its rows are those of heads, which ranks share out.
    pub is_split: bool,
}

/// Names of its layers.
pub(crate) const Q_PROJ: &str = "q_proj";
pub(crate) const Q_DOWN: &str = "q_down";
pub(crate) const Q_NORM: &str = "q_latent_norm";
pub(crate) const Q_UP: &str = "q_up";
pub(crate) const KV_DOWN: &str = "kv_down";
pub(crate) const KV_NORM: &str = "kv_latent_norm";
pub(crate) const KV_UP: &str = "kv_up";

impl Latents {
    /// Features of a head's query and key.
    pub(crate) fn key(&self) -> usize {
        self.still.saturating_add(self.turned)
    }

    /// Features of the row from which keys and values come: the turned ones and the latent.
    pub(crate) fn row(&self) -> usize {
        self.turned.saturating_add(self.keys_values)
    }

    /// Features of a head that come from the latent of keys and values.
    pub(crate) fn expanded(&self) -> usize {
        self.still.saturating_add(self.values)
    }

    /// The weights before attention, in the order of the forward pass.
    pub(crate) fn weights(&self, d_model: usize, heads: usize) -> Vec<LatentWeight> {
        let of = |layer, dims: &[usize], is_split| LatentWeight {
            layer,
            dims: dims.to_vec(),
            is_split,
        };
        let queries = heads * self.key();
        let mut weights = match self.queries {
            None => vec![of(Q_PROJ, &[queries, d_model], true)],
            Some(rank) => vec![
                of(Q_DOWN, &[rank, d_model], false),
                of(Q_NORM, &[rank], false),
                of(Q_UP, &[queries, rank], true),
            ],
        };
        let (rank, expanded) = (self.keys_values, heads * self.expanded());
        weights.extend([
            of(KV_DOWN, &[self.row(), d_model], false),
            of(KV_NORM, &[rank], false),
            of(KV_UP, &[expanded, rank], true),
        ]);
        weights
    }
}

impl ModelConfig {
    /// Widths of the latents, if attention has some.
    pub(crate) fn latents(&self) -> Option<Latents> {
        self.architecture().has_latents.then_some(Latents {
            queries: (self.q_lora_rank > 0).then_some(self.q_lora_rank),
            keys_values: self.kv_lora_rank,
            still: self.qk_head_dim,
            turned: self.qk_pos_emb_head_dim,
            values: self.v_head_dim,
        })
    }

    /// Whether queries, keys and values come from latents.
    pub fn has_latents(&self) -> bool {
        self.architecture().has_latents
    }

    /// Features of a head's value.
    pub(crate) fn d_value(&self) -> usize {
        self.latents()
            .map_or_else(|| self.d_head(), |latents| latents.values)
    }

    /// Added to the variance in norms of latents, with the default filled in.
    pub(crate) fn latent_norm_eps(&self) -> f32 {
        match self.latent_norm_eps {
            0.0 => self.norm_eps,
            eps => eps,
        }
    }

    /// Calls `problem` for every contradiction among the settings of latents.
    pub(crate) fn check_latents(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let own = ModelConfig::default();
        let eps = self.latent_norm_eps;
        if !(eps.is_finite() && eps >= 0.0) {
            problem(
                "latent_norm_eps",
                eps.to_string(),
                "a finite number, 0 or more",
            );
        }
        let Some(latents) = self.latents() else {
            for (key, found, default) in [
                ("q_lora_rank", self.q_lora_rank, own.q_lora_rank),
                ("kv_lora_rank", self.kv_lora_rank, own.kv_lora_rank),
                ("qk_head_dim", self.qk_head_dim, own.qk_head_dim),
                (
                    "qk_pos_emb_head_dim",
                    self.qk_pos_emb_head_dim,
                    own.qk_pos_emb_head_dim,
                ),
                ("v_head_dim", self.v_head_dim, own.v_head_dim),
            ] {
                if found != default {
                    let found = format!("{found} without multi_latent_attention");
                    problem(key, found, &format!("{default}: there are no latents"));
                }
            }
            if eps > 0.0 {
                let found = format!("{eps} without multi_latent_attention");
                problem("latent_norm_eps", found, "0: there are no latents");
            }
            return;
        };
        for (key, width) in [
            ("kv_lora_rank", latents.keys_values),
            ("qk_head_dim", latents.still),
            ("qk_pos_emb_head_dim", latents.turned),
            ("v_head_dim", latents.values),
        ] {
            if width == 0 {
                problem(key, "0".into(), "at least 1");
            }
        }
        if latents.values > latents.key() {
            let found = format!("{} with heads of {}", latents.values, latents.key());
            let wanted = "at most qk_head_dim + qk_pos_emb_head_dim";
            problem("v_head_dim", found, wanted);
        }
        self.check_beside_latents(problem);
    }

    /// Settings that do not go with latents.
    fn check_beside_latents(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let made = self.architecture();
        if made.is_masked || made.is_encoder_decoder {
            let found = format!("true with family = {:?}", self.family);
            let wanted = "false: only decoders have latents";
            return problem("multi_latent_attention", found, wanted);
        }
        if made.positions != Positions::Rotary {
            let found = format!("true with {:?} positions", made.positions);
            let wanted = "false, or a family with rotary positions";
            problem("multi_latent_attention", found, wanted);
        }
        for (key, is_set, wanted) in [
            (
                "head_dim",
                self.head_dim > 0,
                "0: a head has qk_head_dim + qk_pos_emb_head_dim features",
            ),
            (
                "kv_heads",
                self.kv_heads > 0 && self.kv_heads != self.heads,
                "0 or heads: every head has keys and values of its own",
            ),
            (
                "rotary_percent",
                self.rotary_percent != 1.0,
                "1: qk_pos_emb_head_dim says how many features are turned",
            ),
            ("qk_norm", made.qk_norm, "false: latents have norms"),
            (
                "bias",
                made.biases != Biases::None,
                "none: projections to and from latents have no biases",
            ),
            (
                "norm",
                made.norm != NormKind::Rms,
                "rms: norms of latents are RMS norms",
            ),
        ] {
            if is_set {
                problem(key, "a choice beside multi_latent_attention".into(), wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::moe::{MoeConfig, RouterScore};
    use crate::config::rope_scaling::RopeScaling;
    use crate::config::{Biases, Family, ModelConfig, Plan};
    use crate::fixtures::{tiny_bert, tiny_deepseek, tiny_llama};

    /// DeepSeek-V2-Lite and DeepSeek-V3 (arXiv:2405.04434, table 6 and arXiv:2412.19437, sec. 4.2; 15.7 and 671 billion).
    #[test]
    fn published_models_have_their_published_parameter_counts() {
        let mut plan = tiny_llama();
        plan.seq_length = 4096;
        plan.vocab = 102_400;
        plan.model = ModelConfig {
            family: Family::DeepseekV2,
            layers: 27,
            d_model: 2048,
            heads: 16,
            d_ffn: 10_944,
            moe: Some(MoeConfig {
                experts: 64,
                top_k: 6,
                d_ffn: 1408,
                dense_first: 1,
                score: RouterScore::SoftmaxTopK,
                shared_d_ffn: 2 * 1408,
                ..MoeConfig::default()
            }),
            ..ModelConfig::default()
        };
        assert_eq!(plan.problems(), [""; 0]);
        assert_eq!(plan.parameters(), 15_706_484_224);
        plan.vocab = 129_280;
        plan.model = ModelConfig {
            family: Family::DeepseekV3,
            layers: 61,
            d_model: 7168,
            heads: 128,
            d_ffn: 18_432,
            q_lora_rank: 1536,
            moe: Some(MoeConfig {
                experts: 256,
                top_k: 8,
                d_ffn: 2048,
                dense_first: 3,
                score: RouterScore::Sigmoid,
                expert_bias: true,
                shared_d_ffn: 2048,
                num_groups: 8,
                group_topk: 4,
                scale: 2.5,
                ..MoeConfig::default()
            }),
            ..ModelConfig::default()
        };
        assert_eq!(plan.problems(), [""; 0]);
        assert_eq!(plan.parameters(), 671_026_404_352);
        plan.model.mtp_num_layers = 1;
        // the published files repeat the embedding and the head, and have biases of 59 routers
        let further = 2 * 129_280 * 7168 + 59 * 256;
        assert_eq!(plan.parameters() + further, 684_489_845_504);
    }

    /// DeepSeek's own program: `softmax_scale * mscale * mscale` with mscale = 0.1 mscale_all_dim ln(factor) + 1.
    #[test]
    fn scores_of_stretched_positions_have_the_factor_of_deepseeks_program() {
        for family in [Family::DeepseekV2, Family::DeepseekV3] {
            let mut plan = tiny_deepseek();
            plan.model.family = family;
            let factor = 0.1 * 0.9 * 4f64.ln() + 1.0;
            let divisor = plan.model.scores().divisor.unwrap();
            let (found, want) = (f64::from(divisor.sqrt()), 4.0 / (factor * factor));
            assert!((found / want - 1.0).abs() < 1e-6, "{found} {want}");
        }
    }

    #[test]
    fn settings_that_do_not_go_with_latents_are_refused_by_name() {
        let refused = |plan: &Plan, key: &str| {
            let found = plan.problems();
            let start = format!("model.{key}: ");
            assert!(
                found.iter().any(|line| line.starts_with(&start)),
                "{key} in {found:?}"
            );
        };
        type Set = fn(&mut ModelConfig);
        let sets: [(&str, Set); 9] = [
            ("kv_lora_rank", |model| model.kv_lora_rank = 0),
            ("v_head_dim", |model| model.v_head_dim = 4096),
            ("head_dim", |model| model.head_dim = 8),
            ("kv_heads", |model| model.kv_heads = 2),
            ("rotary_percent", |model| model.rotary_percent = 0.5),
            ("qk_norm", |model| model.qk_norm = Some(true)),
            ("bias", |model| model.bias = Some(Biases::All)),
            ("multi_latent_attention", |model| model.alibi = Some(true)),
            ("latent_norm_eps", |model| model.latent_norm_eps = -1.0),
        ];
        for (key, set) in sets {
            let mut plan = tiny_llama();
            plan.model.multi_latent_attention = Some(true);
            plan.model.kv_heads = 0;
            assert_eq!(plan.problems(), [""; 0]);
            set(&mut plan.model);
            refused(&plan, key);
        }
        let mut plan = tiny_deepseek();
        let Some(RopeScaling::Yarn {
            mscale,
            mscale_all_dim,
            ..
        }) = &mut plan.model.rope_scaling
        else {
            panic!("its positions are stretched");
        };
        // their quotient is 1, and the factor of scores no number of 32 bits
        (*mscale, *mscale_all_dim) = (Some(1e13), Some(1e13));
        refused(&plan, "rope_scaling");
        let mut plan = tiny_bert();
        plan.model.multi_latent_attention = Some(true);
        refused(&plan, "multi_latent_attention");
        let mut plan = tiny_llama();
        plan.model.q_lora_rank = 16;
        refused(&plan, "q_lora_rank");
    }
}

//! Multi-token prediction: modules after the last layer that learn the tokens after the next one.
//! Paper: DeepSeek-V3, arXiv:2412.19437, sec. 2.2. Keys are named as Megatron-LM names them.
//!
//! Depth k of D reads the rows of the depth before (of the model itself, after its last norm, for k = 1) and the embedding of the
//! token k further on: h_k = norm(block_k(W_k (norm(embedding), norm(h_{k-1})))). The model's own head reads h_k, and the loss of
//! the token k + 1 further on has the weight factor / D.

use crate::config::architecture::Positions;
use crate::config::loss_mean::LossMean;
use crate::config::model::ModelConfig;
use crate::config::plan::Plan;

/// Start of the names of a depth's tensors, counted from 0.
pub(crate) fn depth_name(depth: usize) -> String {
    format!("mtp.{depth}")
}

/// Whether a tensor is of a depth.
pub(crate) fn is_of_depth(name: &str) -> bool {
    name.starts_with("mtp.")
}

/// A use of a tensor in the whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UseOf {
    pub name: &'static str,
    /// Its number among all uses of the tensor.
    pub number: usize,
}

impl ModelConfig {
    /// Uses of the embedding and of the head's matrix by a depth, which follow the model's own.
    pub(crate) fn uses_of_depth(&self, depth: usize) -> [UseOf; 2] {
        let name = "embedding.weight";
        if self.is_tied() {
            return [2 * depth + 2, 2 * depth + 3].map(|number| UseOf { name, number });
        }
        let number = depth + 1;
        [name, "head.weight"].map(|name| UseOf { name, number })
    }

    /// Start of the names of a block's tensors, if it is that of a depth, after the layers.
    pub(crate) fn name_of_depth(&self, block: usize) -> Option<String> {
        let depth = block.checked_sub(self.layers)?;
        let is_depth = depth < self.mtp_num_layers && !self.architecture().is_encoder_decoder;
        is_depth.then(|| depth_name(depth))
    }

    /// Calls `problem` for every contradiction among the settings of multi-token prediction.
    pub(crate) fn check_depths(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let (depths, factor) = (self.mtp_num_layers, self.mtp_loss_scaling_factor);
        if !(factor.is_finite() && factor >= 0.0) {
            let wanted = "a finite number, 0 or more";
            problem("mtp_loss_scaling_factor", factor.to_string(), wanted);
        }
        if depths == 0 {
            let default = ModelConfig::default().mtp_loss_scaling_factor;
            if factor != default {
                let found = format!("{factor} without mtp_num_layers");
                problem("mtp_loss_scaling_factor", found, "0.1: there are no depths");
            }
            return;
        }
        let made = self.architecture();
        let mut refuse = |is_wrong: bool, found: String, wanted: &str| {
            if is_wrong {
                problem("mtp_num_layers", format!("{depths} with {found}"), wanted);
            }
        };
        let is_decoder = !made.is_masked && !made.is_encoder_decoder;
        let family = format!("family = {:?}", self.family);
        refuse(
            !is_decoder,
            family,
            "0: only decoders predict further tokens",
        );
        // as Megatron refuses them
        let positions = format!("{:?} positions", made.positions);
        let is_turned = made.positions == Positions::Rotary;
        let wanted = "0, or a family with rotary positions";
        refuse(is_decoder && !is_turned, positions, wanted);
        let wanted = "0: embeddings of depths have no norm beside their own";
        refuse(
            is_decoder && made.has_embedding_norm,
            "embedding_norm".into(),
            wanted,
        );
        for (name, is_set) in [
            ("classify", self.classify.is_some()),
            ("lora", self.lora.is_some()),
            ("prompt", self.prompt.is_some()),
        ] {
            let wanted = "0: depths learn beside a language model's own head and weights";
            refuse(is_set, format!("a table model.{name}"), wanted);
        }
    }
}

impl Plan {
    /// Calls `problem` for settings beside `[model]` that do not go with multi-token prediction.
    pub(crate) fn check_depths(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let depths = self.model.mtp_num_layers;
        if depths == 0 {
            return;
        }
        let (tp, d) = (self.parallel.tp, self.model.d_model);
        if tp > 0 && !d.is_multiple_of(tp) {
            let found = format!("{tp} with model.mtp_num_layers = {depths}, d_model = {d}");
            problem("parallel.tp", found, "a divisor of d_model");
        }
        if depths >= self.seq_length {
            let found = format!("{depths} with sequences of {}", self.seq_length);
            let wanted = "fewer than seq_length: no token is so far away";
            problem("model.mtp_num_layers", found, wanted);
        }
        if self.train.preference.is_some() {
            let wanted = "0: pairs of answers are compared by the model's own head";
            let found = format!("{depths} with train.preference");
            problem("model.mtp_num_layers", found, wanted);
        }
        if self.train.loss_mean == LossMean::Text {
            let wanted = "token with model.mtp_num_layers: depths have no texts of equal weight";
            problem("train.loss_mean", "text".into(), wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::loss_mean::LossMean;
    use crate::config::{ClassifyConfig, Family, PreferenceConfig};
    use crate::fixtures::{tiny_deepseek, tiny_gpt, tiny_llama};

    #[test]
    fn every_contradiction_is_told_at_once() {
        let mut plan = tiny_gpt();
        let model = &mut plan.model;
        (model.mtp_num_layers, model.mtp_loss_scaling_factor) = (16, f64::NAN);
        (model.embedding_norm, model.classify) = (Some(true), Some(ClassifyConfig::of(2)));
        plan.train.loss_mean = LossMean::Text;
        plan.train.preference = Some(PreferenceConfig::default());
        let found = plan.problems().join("\n");
        for wanted in [
            "model.mtp_loss_scaling_factor: found NaN",
            "16 with Learned positions",
            "16 with embedding_norm",
            "16 with a table model.classify",
            "16 with sequences of 16",
            "16 with train.preference",
            "train.loss_mean: found text",
        ] {
            assert!(found.contains(wanted), "{wanted} in {found}");
        }
        let mut plan = tiny_llama();
        plan.model.mtp_loss_scaling_factor = 0.3;
        let found = plan.problems().join("\n");
        assert!(found.contains("0.3 without mtp_num_layers"), "{found}");
        for family in [Family::Bert, Family::T5] {
            let mut plan = tiny_gpt();
            (plan.model.family, plan.model.mtp_num_layers) = (family, 1);
            let found = plan.problems().join("\n");
            let wanted = format!("1 with family = {family:?}");
            assert!(found.contains(&wanted), "{wanted} in {found}");
        }
    }

    #[test]
    fn a_depth_is_of_the_kind_of_the_last_layer() {
        let mut model = tiny_deepseek().model;
        model.mtp_num_layers = 2;
        assert_eq!(model.block_name(1), "layers.1");
        assert_eq!(model.block_name(3), "mtp.1");
        assert!(model.moe_at(0).is_none() && model.moe_at(3).is_some());
        if let Some(moe) = &mut model.moe {
            (moe.every, moe.dense_first) = (2, 0);
        }
        assert!(model.moe_at(2).is_some(), "the third layer would be dense");
    }
}

//! Numbers of parameters of a model: of all, of those that training changes, and of those that a token uses.

use crate::config::plan::Plan;
use crate::model::param::{Spec, specs};

impl Plan {
    /// Numbers that training changes: those of adapters, if there are any, else all.
    pub fn trained_parameters(&self) -> u64 {
        let specs = specs(self);
        let trained = specs.iter().filter(|spec| !spec.is_frozen);
        trained.map(|spec| spec.parameters() as u64).sum()
    }

    /// Numbers of the model, without the padding of the vocabulary.
    pub fn parameters(&self) -> u64 {
        specs(self)
            .iter()
            .map(|spec| spec.parameters() as u64)
            .sum()
    }

    /// Active parameters per token: of a mixture only its chosen experts.
    pub fn active_parameters(&self) -> u64 {
        let share = |spec: &Spec| match (&self.model.moe, spec.expert) {
            (Some(moe), Some(_)) => (moe.top_k as u64, moe.experts as u64),
            _ => (1, 1),
        };
        let active = specs(self).into_iter().map(|spec| {
            let (chosen, all) = share(&spec);
            (spec.parameters() as u64 * chosen, all)
        });
        // experts of a layer have the same size, so only the sum divides
        let (experts, rest): (Vec<_>, Vec<_>) = active.partition(|(_, all)| *all > 1);
        let sum = |list: &[(u64, u64)]| list.iter().map(|(count, _)| count).sum::<u64>();
        sum(&rest) + sum(&experts) / experts.first().map_or(1, |(_, all)| *all)
    }
}

#[cfg(test)]
mod tests {
    use crate::fixtures::{tiny_gpt, tiny_llama};

    #[test]
    fn gpt2_small_has_its_published_parameter_count() {
        let mut plan = tiny_gpt();
        plan.model = crate::config::ModelConfig::default();
        (plan.vocab, plan.seq_length) = (50257, 1024);
        assert_eq!(plan.parameters(), 124_439_808);
    }

    #[test]
    fn llama2_7b_has_its_published_parameter_count() {
        let mut plan = tiny_llama();
        plan.model.layers = 32;
        (plan.model.d_model, plan.model.heads, plan.model.kv_heads) = (4096, 32, 32);
        (plan.model.d_ffn, plan.vocab, plan.seq_length) = (11008, 32000, 4096);
        assert_eq!(plan.parameters(), 6_738_415_616);
    }
}

//! Consistency of a plan: reports every contradiction between its tables at once.

use crate::config::architecture::Positions;
use crate::config::divisibility;
use crate::config::loss_mean::LossMean;
use crate::config::plan::{Plan, TOKEN_CHUNKS};
use crate::config::precision::Precision;
use crate::config::prompt::FIRST_VIRTUAL;

/// Longest sequence with linear biases: distances up to this are exact in f32.
const MOST_BIASED: usize = 1 << 24;

impl Plan {
    /// Calls `problem` with key path, found and wanted for every contradiction.
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        self.model
            .check(&mut |key, found, wanted| problem(&format!("model.{key}"), found, wanted));
        self.parallel
            .check(&mut |key, found, wanted| problem(&format!("parallel.{key}"), found, wanted));
        self.train
            .check(&mut |key, found, wanted| problem(&format!("train.{key}"), found, wanted));
        if self.vocab == 0 || u32::try_from(self.vocab).is_err() {
            problem("vocab", self.vocab.to_string(), "from 1 to 2^32 - 1");
        }
        if self.seq_length == 0 {
            problem("seq_length", "0".into(), "at least 1");
        }
        let is_biased = self.model.architecture().positions == Positions::Alibi;
        if is_biased && self.seq_length > MOST_BIASED {
            let wanted = format!("at most {MOST_BIASED} with alibi, whose distances are f32");
            problem("seq_length", self.seq_length.to_string(), &wanted);
        }
        let classify = self.model.classify.is_some();
        let is_masked = self.model.architecture().is_masked && !classify;
        if is_masked && !(1..=self.seq_length).contains(&self.predictions) {
            let wanted = format!("1 to seq_length = {}", self.seq_length);
            problem("predictions", self.predictions.to_string(), &wanted);
        }
        if !is_masked && self.predictions > 0 {
            let wanted = "0: only masked samples have a number of predictions";
            problem("predictions", self.predictions.to_string(), wanted);
        }
        let is_decoder = !is_masked
            && !self.model.architecture().is_encoder_decoder
            && self.model.classify.is_none();
        if self.train.eval_tasks.every > 0 && !is_decoder {
            let found = format!(
                "{} of a {:?}",
                self.train.eval_tasks.every, self.model.family
            );
            let wanted = "0: tasks are for decoders, which predict the next token";
            problem("train.eval_tasks.every", found, wanted);
        }
        self.check_adapted(problem);
        self.check_depths(problem);
        if self.train.loss_mean == LossMean::Text && !is_decoder {
            let found = format!("text of a {:?}", self.model.family);
            problem("train.loss_mean", found, "token: text is for decoders");
        }
        self.check_preference(is_decoder, problem);
        self.check_pair(problem);
        self.check_classified(problem);
        if self.train.eod_mask_loss && self.eod.is_none() {
            problem(
                "train.eod_mask_loss",
                "true without an end-of-document token".into(),
                "a tokenizer that has one",
            );
        }
        let train = &self.train;
        let reads_eod =
            train.eod_mask_loss || train.reset_attention_mask || train.reset_position_ids;
        let unknown = self.eod.filter(|&id| id as usize >= self.vocab);
        if let Some(id) = unknown.filter(|_| reads_eod) {
            let wanted = format!("below the vocabulary of {}", self.vocab);
            problem("eod", id.to_string(), &wanted);
        }
        divisibility::check(self, problem);
    }

    /// Requirements of classification heads.
    fn check_classified(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let Some(classify) = &self.model.classify else {
            return;
        };
        let (train, choices) = (&self.train, classify.choices);
        for (key, is_asked) in [
            ("reset_attention_mask", train.reset_attention_mask),
            ("reset_position_ids", train.reset_position_ids),
            ("eod_mask_loss", train.eod_mask_loss),
        ] {
            if is_asked {
                let wanted = "false: a classified sequence is one text";
                problem(&format!("train.{key}"), "true".into(), wanted);
            }
        }
        if train.z_loss > 0.0 {
            let wanted = "0: it is of a vocabulary's logits";
            problem("train.z_loss", train.z_loss.to_string(), wanted);
        }
        if choices < 2 {
            return;
        }
        for (key, value) in [
            ("micro_batch", train.micro_batch as u64),
            ("eval_samples", train.eval_samples),
        ] {
            if !value.is_multiple_of(choices as u64) {
                let wanted = format!("a multiple of model.classify.choices = {choices}");
                problem(&format!("train.{key}"), value.to_string(), &wanted);
            }
        }
        if self.parallel.cp > 1 {
            let wanted = "1: the choices of a question are compared on one rank";
            problem("parallel.cp", self.parallel.cp.to_string(), wanted);
        }
    }

    /// Requirements of preference optimisation.
    fn check_preference(&self, is_decoder: bool, problem: &mut dyn FnMut(&str, String, &str)) {
        let train = &self.train;
        if train.preference.is_none() {
            return;
        }
        if !is_decoder {
            let found = format!("a table with a {:?}", self.model.family);
            problem("train.preference", found, "none: pairs are for decoders");
        }
        if train.z_loss > 0.0 {
            let wanted = "0: a pair's loss is of its answers' probabilities alone";
            problem("train.z_loss", train.z_loss.to_string(), wanted);
        }
        if train.loss_mean == LossMean::Text {
            let wanted = "token: every pair has the same weight";
            problem("train.loss_mean", "text".into(), wanted);
        }
        let moe = self.model.moe.as_ref();
        if let Some(moe) = moe.filter(|moe| moe.capacity_factor > 0.0) {
            let wanted = "0: an answer's probability must not depend on the texts beside it";
            let found = moe.capacity_factor.to_string();
            problem("model.moe.capacity_factor", found, wanted);
        }
        for (key, is_asked) in [
            ("reset_attention_mask", train.reset_attention_mask),
            ("reset_position_ids", train.reset_position_ids),
        ] {
            if !is_asked {
                let wanted = "true: no answer of a pair sees the other";
                problem(&format!("train.{key}"), "false".into(), wanted);
            }
        }
    }

    /// Requirements of models whose own weights are frozen.
    fn check_adapted(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let key = match (&self.model.lora, &self.model.prompt) {
            (Some(_), _) => "model.lora",
            (None, Some(_)) => "model.prompt",
            (None, None) => return,
        };
        if self.train.precision == Precision::Fp8 {
            let wanted = "f32, bf16 or fp16: frozen layers do not compute in fp8";
            problem("train.precision", format!("fp8 with {key}"), wanted);
        }
        if self.train.ema_decay > 0.0 {
            let found = format!("{} with {key}", self.train.ema_decay);
            let wanted = "0: frozen weights have no averages";
            problem("train.ema_decay", found, wanted);
        }
        let Some(prompt) = &self.model.prompt else {
            return;
        };
        let of_text = prompt.most_of_text();
        if of_text >= self.seq_length {
            let found = of_text.to_string();
            let wanted = format!("fewer than seq_length = {}", self.seq_length);
            problem("model.prompt.virtual_tokens", found, &wanted);
        }
        if self.vocab > FIRST_VIRTUAL as usize {
            let wanted = format!("at most {FIRST_VIRTUAL} with model.prompt");
            problem("vocab", self.vocab.to_string(), &wanted);
        }
        let vocab = self.vocab;
        if let Some(id) = prompt.init_ids.iter().find(|&&id| id as usize >= vocab) {
            let wanted = format!("ids below the vocabulary of {vocab}");
            problem("model.prompt.init_ids", id.to_string(), &wanted);
        }
        if !prompt.init_ids.is_empty() && self.train.init_from.is_empty() {
            let found = format!("{} ids without train.init_from", prompt.init_ids.len());
            let wanted = "none, or a model whose embeddings are taken";
            problem("model.prompt.init_ids", found, wanted);
        }
    }

    /// Requirements of encoder-decoder models.
    fn check_pair(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        if !self.model.architecture().is_encoder_decoder {
            if self.decoder_length > 0 {
                let wanted = "0: only t5 has a decoder's sequence";
                problem("decoder_length", self.decoder_length.to_string(), wanted);
            }
            return;
        }
        for (key, length) in [
            ("seq_length", self.seq_length),
            ("decoder_length", self.decoder_length),
        ] {
            if length == 0 || !length.is_multiple_of(TOKEN_CHUNKS) {
                let wanted = "a multiple of 8 above 0: both sequences are cut in eighths";
                problem(key, length.to_string(), wanted);
            }
        }
        if let Some(id) = self.start.filter(|&id| id as usize >= self.vocab) {
            let wanted = format!("below the vocabulary of {}", self.vocab);
            problem("start", id.to_string(), &wanted);
        }
        let train = &self.train;
        for (key, is_asked) in [
            ("reset_attention_mask", train.reset_attention_mask),
            ("reset_position_ids", train.reset_position_ids),
            ("eod_mask_loss", train.eod_mask_loss),
        ] {
            if is_asked {
                let wanted = "false: t5 has one text in each sequence";
                problem(&format!("train.{key}"), "true".into(), wanted);
            }
        }
    }

    /// Every contradiction of the plan, one line each: key, found, wanted.
    pub fn problems(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.check(&mut |key, found, wanted| {
            lines.push(format!("{key}: found {found}, want {wanted}"));
        });
        lines
    }
}

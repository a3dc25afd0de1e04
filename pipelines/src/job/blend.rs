//! `[blend]`: datasets, weights and the order of training samples.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[blend]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlendTable {
    /// Tokens per sample; for `t5` those of the encoder.
    pub seq_length: usize,
    /// Kind of samples: `text` for decoders; `bert` or `t5` from datasets of sentences
    /// (`tokenize.sentences`). Default: `text`.
    pub samples: BlendSamples,
    /// Masking of `bert` and `t5` samples. Defaults: Megatron's.
    #[serde(skip_serializing_if = "is_default")]
    pub masking: index::samples::Masking,
    /// Maximum number of tokens of a `t5` sample's decoder. Default: 128, Megatron's.
    pub decoder_length: usize,
    /// Ratios of train, validation and test documents of `dataset`.
    pub split: String,
    /// `weighted` repeats datasets as their weights need; `proportional` takes one epoch of each at most, in proportion
    /// to their samples; `exhaustive` takes every sample of one epoch once. Default: `weighted`.
    pub mixture: index::blend::Mixture,
    /// Multiplier of every `weight`: none (`given`), or the dataset's `tokens` or `documents`. Default: `given`.
    pub weights: BlendWeights,
    /// Samples built beyond those planned, as a share: room for rounding. Default: 0.005, Megatron's.
    pub surplus: f64,
    /// Maximum number of epochs of any dataset under `weighted`; 0 is no limit. Default: 0.
    pub max_epochs: f64,
    /// Above `max_epochs`: `refuse`, or `redistribute` to the other datasets by weight. Default: `refuse`.
    pub above_cap: index::blend::AboveCap,
    /// Every global batch has each dataset's share to within one sample (MT-NLG). Default: no, Megatron's order.
    pub even_batches: bool,
    /// Order of training: `single` takes the blend as it is; `cyclic` and `cyclic_unsharded` reshuffle its samples
    /// every epoch, as Megatron's samplers of these names do for this `micro_batch` and `dp`. Default: `single`.
    pub sampler: BlendSampler,
    /// A sample has one token more than `seq_length`, so that every token has one to predict; without it the last one has
    /// none. Megatron's key and default: yes.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub add_extra_token_to_sequence: bool,
    /// Tokens that do not fill the last validation sample are left out; if not, it is padded. Megatron's key and default:
    /// yes.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub drop_last_partial_validation_sequence: bool,
    /// Validation and `eval` read every sample of one epoch of the validation part, not `train.eval_samples`, and of a
    /// weighted blend every sample of each dataset. Megatron's `--full-validation`. Default: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full_validation: bool,
    /// Id of padding in the data: it is not predicted, and read as token 0. Default: none, no token is padding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_id: Option<u32>,
    /// Fill in the middle: samples of code rearranged so that a model learns to write between two texts. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fim: Option<FimTable>,
    /// Folder of index arrays that later runs, and Megatron, read instead of building them. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// `unique_identifiers` of Megatron's tokenizer as JSON, so that both name cache files alike. Default: our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_tokenizer: Option<String>,
    /// Datasets and weights, divided by `split`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dataset: Vec<BlendDataset>,
    /// Datasets of training alone; then `valid` and `test` have their own too, and `dataset` is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub train: Vec<BlendDataset>,
    /// Datasets of validation alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub valid: Vec<BlendDataset>,
    /// Datasets of the test part alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<BlendDataset>,
    /// Additional validation sets for training, each under its name in `metrics.jsonl`; `weight` is ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation: Vec<BlendDataset>,
}

impl Default for BlendTable {
    fn default() -> Self {
        BlendTable {
            seq_length: 1024,
            samples: BlendSamples::Text,
            masking: index::samples::Masking::default(),
            decoder_length: 128,
            split: "949,50,1".into(),
            mixture: index::blend::Mixture::Weighted,
            weights: BlendWeights::Given,
            surplus: index::blend::SURPLUS,
            max_epochs: 0.0,
            above_cap: index::blend::AboveCap::Refuse,
            even_batches: false,
            sampler: BlendSampler::Single,
            add_extra_token_to_sequence: true,
            drop_last_partial_validation_sequence: true,
            full_validation: false,
            pad_id: None,
            fim: None,
            cache: None,
            cache_tokenizer: None,
            dataset: Vec::new(),
            train: Vec::new(),
            valid: Vec::new(),
            test: Vec::new(),
            validation: Vec::new(),
        }
    }
}

impl BlendTable {
    /// Maximum number of tokens that a masked sample predicts; 0 for text.
    pub(crate) fn predictions(&self) -> usize {
        if self.samples != BlendSamples::Bert {
            return 0;
        }
        let masked = (self.masking.probability * self.seq_length as f64).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of seq_length, saturating"
        )]
        let masked = (masked as usize).max(1);
        let times = if self.masking.permutation { 2 } else { 1 };
        (times * masked).min(self.seq_length)
    }

    /// Tokens of a sample's decoder; 0 for other samples than T5's.
    pub(crate) fn decoder_tokens(&self) -> usize {
        if self.samples == BlendSamples::T5 {
            self.decoder_length
        } else {
            0
        }
    }

    /// Whether train, valid and test have separate dataset lists instead of a split.
    pub(crate) fn has_own_parts(&self) -> bool {
        !(self.train.is_empty() && self.valid.is_empty() && self.test.is_empty())
    }
}

impl BlendTable {
    /// Reports every contradiction; `written` are the datasets that the job makes.
    pub(super) fn check(&self, written: &[String], add: &mut dyn FnMut(&str, String, &str)) {
        if self.dataset.is_empty() != self.has_own_parts() {
            let found = format!("{} of them", self.dataset.len());
            let wanted =
                "[[blend.dataset]] for a split, or [[blend.train]] and its like: one of the two";
            add("blend.dataset", found, wanted);
        }
        self.check_samples(add);
        if let Some(fim) = &self.fim {
            fim.check(add);
        }
        for (key, x) in [("surplus", self.surplus), ("max_epochs", self.max_epochs)] {
            if !(x >= 0.0 && x.is_finite()) {
                add(&format!("blend.{key}"), x.to_string(), "0 or more");
            }
        }
        let lists = [
            ("dataset", &self.dataset),
            ("train", &self.train),
            ("valid", &self.valid),
            ("test", &self.test),
            ("validation", &self.validation),
        ];
        if let Some(i) = self.validation.iter().position(|d| d.name == "valid") {
            let key = format!("blend.validation[{i}].name");
            add(
                &key,
                "\"valid\"".into(),
                "another name: that is the blend's own set",
            );
        }
        for (list, datasets) in lists {
            for (i, d) in datasets.iter().enumerate() {
                let key = |k: &str| format!("blend.{list}[{i}].{k}");
                if let Some(weight) = d.weight.filter(|w| !(w.is_finite() && *w > 0.0)) {
                    add(&key("weight"), weight.to_string(), "above 0");
                }
                if d.prefix.is_none() && !written.contains(&d.name) {
                    let wanted = format!("a dataset of [tokenize] ({written:?}), or a prefix");
                    add(&key("name"), format!("{:?}", d.name), &wanted);
                }
                if datasets[..i].iter().any(|e| e.name == d.name) {
                    add(
                        &key("name"),
                        format!("{:?}", d.name),
                        "a name that no other dataset has",
                    );
                }
            }
        }
        let json = |t: &String| serde_json::from_str::<serde_json::Value>(t).is_err();
        if let Some(text) = self.cache_tokenizer.as_ref().filter(|t| json(t)) {
            add("blend.cache_tokenizer", text.clone(), "JSON");
        }
    }
}

impl BlendTable {
    fn check_samples(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if self.samples == BlendSamples::Text {
            return;
        }
        let of_text = [
            ("fim", self.fim.is_some()),
            ("pad_id", self.pad_id.is_some()),
            ("full_validation", self.full_validation),
            (
                "add_extra_token_to_sequence",
                !self.add_extra_token_to_sequence,
            ),
            (
                "drop_last_partial_validation_sequence",
                !self.drop_last_partial_validation_sequence,
            ),
        ];
        for (key, _) in of_text.into_iter().filter(|(_, is_set)| *is_set) {
            let found = "set with masked samples".to_string();
            add(
                &format!("blend.{key}"),
                found,
                "its default: the key is for text",
            );
        }
        if !self.validation.is_empty() {
            let found = format!("{} with masked samples", self.validation.len());
            add("blend.validation", found, "none: the sets are of text");
        }
        self.masking
            .check(&mut |key, found, wanted| add(&format!("blend.masking.{key}"), found, wanted));
        if self.mixture != index::blend::Mixture::Weighted {
            let found = format!("{:?} with masked samples", self.mixture);
            add("blend.mixture", found, "weighted: the others are for text");
        }
        if self.max_epochs > 0.0 {
            let found = format!("{} with masked samples", self.max_epochs);
            add("blend.max_epochs", found, "0: only text has a limit");
        }
        if self.even_batches {
            add(
                "blend.even_batches",
                "true with masked samples".into(),
                "false",
            );
        }
        if self.decoder_length < 2 {
            let found = self.decoder_length.to_string();
            add("blend.decoder_length", found, "2 or more");
        }
    }
}

fn is_default(masking: &index::samples::Masking) -> bool {
    *masking == index::samples::Masking::default()
}

/// Kind of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlendSamples {
    /// A run of tokens across documents.
    Text,
    /// A masked text of one document, padded.
    Bert,
    /// A text of one document with spans left out, and the spans.
    T5,
}

/// Order of training samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlendSampler {
    /// In the blend's order.
    Single,
    /// Shuffled within a bucket of each rank.
    Cyclic,
    /// Shuffled over all.
    CyclicUnsharded,
}

/// Multiplier of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlendWeights {
    /// Nothing.
    Given,
    /// Tokens of the dataset.
    Tokens,
    /// Documents of the dataset.
    Documents,
}

/// `[[blend.dataset]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlendDataset {
    /// A dataset that `[tokenize]` writes, or any name if `prefix` is given.
    pub name: String,
    /// Share of samples, any positive scale. Default: 1, but one dataset alone without a weight is read as it is, without
    /// `surplus`, as Megatron reads a lone path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Path of an existing dataset without `.bin` and `.idx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<PathBuf>,
}

/// `fim = { ... }` of `[blend]`; the words and defaults are those of Megatron-LM's `--fim-*`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FimTable {
    /// Probability that a stretch between two ends of documents is rearranged. Default: 0.5.
    pub rate: f64,
    /// Probability that the suffix then comes first. Default: 0.5.
    pub spm_rate: f64,
    /// Token that cuts a stretch into fragments (files of a repository). Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_sample: Option<String>,
    /// Probability for each fragment, with `split_sample`. Default: 0.
    pub fragment_rate: f64,
    /// Text that starts like this stays as it is. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_prefix: Option<String>,
    /// Token before the prefix.
    pub prefix_token: String,
    /// Token before the middle.
    pub middle_token: String,
    /// Token before the suffix.
    pub suffix_token: String,
    /// Token that fills up a sample that became shorter; give its id as `pad_id` to leave it out of the loss.
    pub pad_token: String,
    /// Token that ends documents.
    pub eod_token: String,
}

impl Default for FimTable {
    fn default() -> Self {
        FimTable {
            rate: 0.5,
            spm_rate: 0.5,
            split_sample: None,
            fragment_rate: 0.0,
            no_prefix: None,
            prefix_token: "<fim_prefix>".into(),
            middle_token: "<fim_middle>".into(),
            suffix_token: "<fim_suffix>".into(),
            pad_token: "<fim_pad>".into(),
            eod_token: "<|endoftext|>".into(),
        }
    }
}

impl FimTable {
    fn check(&self, add: &mut dyn FnMut(&str, String, &str)) {
        for (key, x) in [
            ("rate", self.rate),
            ("spm_rate", self.spm_rate),
            ("fragment_rate", self.fragment_rate),
        ] {
            if !(0.0..=1.0).contains(&x) {
                add(&format!("blend.fim.{key}"), x.to_string(), "0 to 1");
            }
        }
        if self.fragment_rate > 0.0 && self.split_sample.is_none() {
            let found = format!("{} without split_sample", self.fragment_rate);
            add("blend.fim.fragment_rate", found, "split_sample, or 0");
        }
    }
}

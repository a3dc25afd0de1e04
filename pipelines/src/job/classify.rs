//! `[classify]`: fine-tuning with a classification head on labelled texts, or on MNLI, QQP or RACE as Megatron-LM's `tasks/`
//! (core_v0.7.0).

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use train::config::{ClassifyConfig, TrainConfig};

/// `[classify]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassifyTable {
    /// `labels`: a class or a number for each text of your own; `mnli`: three classes of two sentences; `qqp`: whether two
    /// questions are one; `race`: four answers to a question about an article, each of which is a sequence of its own.
    pub task: ClassifyTask,
    /// Files of training rows, in the forms that `millrace eval --task` reads; of race also folders.
    pub train: Vec<PathBuf>,
    /// Files of validation rows. The first is the set `valid`, the others have the names of their files.
    pub valid: Vec<PathBuf>,
    /// Names of the classes, of `labels`: a text's label is one of them. Empty, the default: labels are numbers, and the model
    /// is a regression with the mean squared error as its loss.
    pub classes: Vec<String>,
    /// Column of the texts, of `labels`; dots lead into nested objects. Default: `text`.
    pub text_key: String,
    /// Column of the labels, of `labels`; dots lead into nested objects. Default: `label`.
    pub label_key: String,
    /// Tokenizer. Empty: that of `[tokenize]`.
    pub tokenizer: PathBuf,
    /// Tokens per sequence; longer ones lose their end. Default: 512.
    pub seq_length: usize,
    /// Most tokens of a question of race with its answer; longer ones lose their end. Default: 128.
    pub question_length: usize,
    /// Epochs of training, in place of `train.steps`, which is refused beside it; 0: the task's in Megatron-LM's examples, 5 of mnli (and qqp) and 3 of
    /// race, and 3 of labels as BERT's authors had. Default: 0.
    pub epochs: u64,
    /// Share of the steps that warm up the learning rate, in place of `train.warmup_steps`, which is refused beside it. Absent: the task's in Megatron-LM's
    /// examples, 0.065 of mnli (and qqp) and 0.06 of race, and 0.1 of labels as BERT's authors had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<f64>,
}

impl Default for ClassifyTable {
    fn default() -> Self {
        ClassifyTable {
            task: ClassifyTask::Mnli,
            train: Vec::new(),
            valid: Vec::new(),
            classes: Vec::new(),
            text_key: "text".into(),
            label_key: "label".into(),
            tokenizer: PathBuf::new(),
            seq_length: 512,
            question_length: 128,
            epochs: 0,
            warmup: None,
        }
    }
}

/// Task of a classification head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassifyTask {
    /// MultiNLI (Williams et al. 2018).
    Mnli,
    /// Quora Question Pairs.
    Qqp,
    /// RACE (Lai et al. 2017).
    Race,
    /// Own texts.
    Labels,
}

impl ClassifyTask {
    /// The task that `millrace eval --task` calls so.
    pub(crate) fn named(name: &str) -> Option<ClassifyTask> {
        let all = [
            ClassifyTask::Mnli,
            ClassifyTask::Qqp,
            ClassifyTask::Race,
            ClassifyTask::Labels,
        ];
        all.into_iter().find(|task| task.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ClassifyTask::Mnli => "mnli",
            ClassifyTask::Qqp => "qqp",
            ClassifyTask::Race => "race",
            ClassifyTask::Labels => "labels",
        }
    }

    /// GLUE's names of the classes in the order of a head that was trained here; none where they are the job's own.
    pub(crate) fn class_names(self) -> &'static [&'static str] {
        match self {
            ClassifyTask::Mnli => &["contradiction", "entailment", "neutral"],
            ClassifyTask::Qqp => &["not_duplicate", "duplicate"],
            ClassifyTask::Race | ClassifyTask::Labels => &[],
        }
    }

    /// Whether a model with this head can answer the task.
    pub(crate) fn fits(self, head: &ClassifyConfig) -> bool {
        let is = |classes, choices| (head.classes, head.choices) == (classes, choices);
        match self {
            ClassifyTask::Mnli => is(3, 1),
            ClassifyTask::Qqp => is(2, 1),
            ClassifyTask::Race => is(1, 4),
            ClassifyTask::Labels => head.choices == 1,
        }
    }

    /// Epochs and share of warm-up in Megatron-LM's `examples/finetune_*_distributed.sh`.
    fn recipe(self) -> (u64, f64) {
        match self {
            ClassifyTask::Mnli | ClassifyTask::Qqp => (5, 0.065),
            ClassifyTask::Race => (3, 0.06),
            ClassifyTask::Labels => (3, 0.1),
        }
    }
}

impl ClassifyTable {
    /// Head of a model that learns the task.
    pub(crate) fn head(&self) -> ClassifyConfig {
        match self.task {
            ClassifyTask::Mnli => ClassifyConfig::of(3),
            ClassifyTask::Qqp => ClassifyConfig::of(2),
            ClassifyTask::Race => ClassifyConfig::choosing(4),
            ClassifyTask::Labels => ClassifyConfig {
                names: self.classes.clone(),
                ..ClassifyConfig::of(self.classes.len().max(1))
            },
        }
    }

    /// Epochs with the default filled in.
    pub(crate) fn epochs(&self) -> u64 {
        match self.epochs {
            0 => self.task.recipe().0,
            epochs => epochs,
        }
    }

    /// Share of warm-up with the default filled in.
    pub(crate) fn warmup(&self) -> f64 {
        self.warmup.unwrap_or(self.task.recipe().1)
    }

    /// `[train]` with the steps of the epochs, their warm-up, and a validation of every sample after each.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the steps"
    )]
    pub(crate) fn schedule(&self, train: &TrainConfig, steps_of_epoch: u64) -> TrainConfig {
        let steps = steps_of_epoch.saturating_mul(self.epochs());
        let choices = self.head().choices as u64;
        TrainConfig {
            steps,
            warmup_steps: (self.warmup() * steps as f64).round() as u64,
            eval_every: match train.eval_every {
                0 => 0,
                _ => steps_of_epoch,
            },
            eval_samples: u64::MAX / choices * choices,
            ..train.clone()
        }
    }

    /// Reports every contradiction.
    pub(super) fn check(&self, add: &mut dyn FnMut(&str, String, &str)) {
        for (key, files) in [("train", &self.train), ("valid", &self.valid)] {
            if files.is_empty() {
                let key = format!("classify.{key}");
                add(&key, "[]".into(), "at least one file");
            }
        }
        if let Some(share) = self.warmup.filter(|share| !(0.0..=1.0).contains(share)) {
            add("classify.warmup", share.to_string(), "0 to 1");
        }
        if self.seq_length < 4 {
            let wanted = "at least 4: three tokens surround two texts";
            add("classify.seq_length", self.seq_length.to_string(), wanted);
        }
        if self.task != ClassifyTask::Labels {
            let default = ClassifyTable::default();
            for (key, is_given) in [
                ("classes", !self.classes.is_empty()),
                ("text_key", self.text_key != default.text_key),
                ("label_key", self.label_key != default.label_key),
            ] {
                if is_given {
                    let found = format!("a value with task = \"{}\"", self.task.name());
                    add(
                        &format!("classify.{key}"),
                        found,
                        "none: it is of task = \"labels\"",
                    );
                }
            }
        } else if self.classes.len() == 1 {
            let found = format!("{:?} alone", self.classes[0]);
            let wanted = "at least two classes, or none for labels that are numbers";
            add("classify.classes", found, wanted);
        }
        if self.question_length == 0 {
            add("classify.question_length", "0".into(), "at least 1");
        }
    }
}

//! Settings of decontamination.

use serde::{Deserialize, Serialize};

use super::megatron::CutRules;
use super::sampled::SampledRules;
use crate::check::{Problem, range};

/// Removal of documents that share an n-gram with an evaluation set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecontaminateConfig {
    /// JSON lines (plain, gz, zst) or plain text files with the evaluation texts.
    pub files: Vec<String>,
    /// Whose words and n-grams.
    pub profile: DecontaminateProfile,
    /// JSON fields to index; empty: every string of the record. Not of `datatrove` and `decon`.
    pub fields: Vec<String>,
    /// Field with a record's task; without it the file's name is the task.
    pub task_field: String,
    /// `datatrove`: field of the answer.
    pub label_field: String,
    /// `datatrove`: field of the question.
    pub query_field: String,
    /// `datatrove`: also n-grams of the question alone.
    pub query_ngrams: bool,
    /// `datatrove`: also n-grams that begin in the question and end in the answer.
    pub overlap_ngrams: bool,
    /// Words per n-gram; absent: the profile's, 13, 12 or 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ngram: Option<usize>,
    /// `mt_nlg`: the cuts, and the handling of the remaining pieces.
    pub cut: CutRules,
    /// `decon`: how documents are searched and scored.
    pub sampled: SampledRules,
}

/// Whose words and n-grams of evaluation sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecontaminateProfile {
    /// Words are `\w+`, lower-cased, 13 of them.
    #[default]
    Gpt3,
    /// Words are spaCy's of the simplified text, 12 of them.
    Datatrove,
    /// Words are Python's `\w+`, lower-cased, 13 of them or a whole short text; cuts after deduplication instead of dropping.
    MtNlg,
    /// Words and spaces, 5 of them, sampled; a score decides, weighted by how rare n-grams are.
    Decon,
}

impl Default for DecontaminateConfig {
    fn default() -> Self {
        DecontaminateConfig {
            files: Vec::new(),
            profile: DecontaminateProfile::default(),
            fields: Vec::new(),
            task_field: "task".to_string(),
            label_field: "text".to_string(),
            query_field: "query".to_string(),
            query_ngrams: false,
            overlap_ngrams: true,
            ngram: None,
            cut: CutRules::default(),
            sampled: SampledRules::default(),
        }
    }
}

impl DecontaminateConfig {
    /// Words per n-gram.
    pub fn ngram(&self) -> usize {
        let own = match self.profile {
            DecontaminateProfile::Gpt3 | DecontaminateProfile::MtNlg => 13,
            DecontaminateProfile::Datatrove => 12,
            DecontaminateProfile::Decon => 5,
        };
        self.ngram.unwrap_or(own)
    }

    /// True if documents are cut after deduplication, false if they are dropped in the curation pass.
    pub fn cuts(&self) -> bool {
        self.profile == DecontaminateProfile::MtNlg
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if self.files.is_empty() {
            problem("files", "[]".to_string(), "at least one evaluation file");
        }
        range(problem, "ngram", self.ngram() as f64, 2.0, 64.0);
        if self.cuts() {
            let mut inner = |k: &str, f: String, w: &str| problem(&format!("cut.{k}"), f, w);
            self.cut.check(self.ngram(), &mut inner);
        } else if self.cut != CutRules::default() {
            let found = format!("cut with profile {:?}", self.profile);
            problem("cut", found, "none, or profile = \"mt_nlg\"");
        }
        if self.profile == DecontaminateProfile::Decon {
            let mut inner = |k: &str, f: String, w: &str| problem(&format!("sampled.{k}"), f, w);
            self.sampled.check(&mut inner);
        } else if self.sampled != SampledRules::default() {
            let found = format!("sampled with profile {:?}", self.profile);
            problem("sampled", found, "none, or profile = \"decon\"");
        }
        let own_fields = match self.profile {
            DecontaminateProfile::Datatrove => "none; datatrove has label_field and query_field",
            DecontaminateProfile::Decon => "none; decon has sampled.question_field and others",
            _ => return,
        };
        if !self.fields.is_empty() {
            problem("fields", format!("{:?}", self.fields), own_fields);
        }
    }
}

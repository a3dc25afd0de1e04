//! `[model.prompt]`: trained vectors in front of every text, before a frozen model: prompt tuning (Lester et al. 2021,
//! arXiv:2104.08691), or p-tuning (Liu et al. 2021, arXiv:2103.10385), in which an encoder makes them. `[finetune]` of a job fills it
//! in with `method = "prompt"` or `method = "p-tuning"`. With a task template, the vectors stand at several places of a text, as in
//! NeMo's prompt learning; with several of them, each task has vectors of its own.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// Id of the first virtual token in samples; no vocabulary of a model with virtual tokens reaches it.
pub(crate) const FIRST_VIRTUAL: u32 = 1 << 30;

/// Virtual tokens: rows `[virtual_tokens, d_model]` of a table of their own take the place of the first embeddings of every text, or
/// of those at the markers of a task template. All other weights are frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptConfig {
    /// Virtual tokens of every text, PEFT's `num_virtual_tokens`; with several tasks, those of all together. They count in the length of
    /// the sequences. Default: 20.
    pub virtual_tokens: usize,
    /// Virtual tokens at each marker of a text, in order: NeMo's `virtual_token_splits`. Empty, the default: all stand in front of
    /// every text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<usize>,
    /// Task template that the rows were trained with, NeMo's `prompt_template`, for the record and for trainings that go on. Empty:
    /// none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// Ids whose embeddings the rows start from, again and again until all have one: PEFT's initialization from a text. Empty, the
    /// default: normal values with the deviation `init_std`.
    pub init_ids: Vec<u32>,
    /// The rows are what this network makes of trained vectors, and it is trained with them. Absent: the rows are trained themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder: Option<PromptEncoder>,
    /// Tasks with virtual tokens of their own: rows of the one table, in the order of the tasks. Empty, the default: every text has all
    /// virtual tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<PromptTask>,
}

/// One of several tasks of a model's virtual tokens, an entry of NeMo's `task_templates`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptTask {
    /// Name, NeMo's `taskname`: letters, digits, `-`, `_`, `.` and `/`.
    pub name: String,
    /// Task template that the rows were trained with, NeMo's `prompt_template`, for the record and for trainings that go on.
    pub template: String,
    /// Virtual tokens at each marker of a text of this task, in order: NeMo's `virtual_token_splits`.
    pub splits: Vec<usize>,
}

impl PromptTask {
    /// Whether its name can be that of a task in a marker.
    pub fn is_named(&self) -> bool {
        !self.name.is_empty() && self.name.chars().all(is_of_name)
    }
}

/// Whether a character may be in the name of a task.
pub fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "-_./".contains(c)
}

/// Markers of the texts of a task, and the virtual tokens that take their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMarkers {
    /// Name of the task; empty: the model has one without a name.
    pub task: String,
    /// Number of the first virtual token.
    pub first: usize,
    /// Virtual tokens at each marker, in order.
    pub counts: Vec<usize>,
}

impl TaskMarkers {
    /// Number after that of the last virtual token.
    pub fn end(&self) -> usize {
        self.first.saturating_add(self.virtual_tokens())
    }

    /// Virtual tokens of a text.
    pub fn virtual_tokens(&self) -> usize {
        let sum = |sum: usize, own: &usize| sum.saturating_add(*own);
        self.counts.iter().fold(0, sum)
    }
}

/// Encoder of p-tuning, PEFT's `PromptEncoder`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptEncoder {
    /// Network. Default: mlp.
    pub kind: EncoderKind,
    /// Features within it (of an LSTM in each direction), PEFT's `encoder_hidden_size`; 0, the default: `d_model`.
    pub hidden: usize,
    /// Layers of an LSTM, PEFT's `encoder_num_layers`. An MLP always has three linear layers and wants the default, 2.
    pub layers: usize,
}

/// Network of a prompt encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncoderKind {
    /// Three linear layers with ReLU between them.
    Mlp,
    /// A bidirectional LSTM over the virtual tokens, then two linear layers with ReLU between them.
    Lstm,
}

impl Default for PromptEncoder {
    fn default() -> Self {
        PromptEncoder {
            kind: EncoderKind::Mlp,
            hidden: 0,
            layers: 2,
        }
    }
}

/// Most features within an encoder: products of widths stay within 64 bits.
const MOST_HIDDEN: usize = 1 << 20;

/// A weight of a prompt encoder.
pub(crate) struct EncoderWeight {
    pub name: String,
    pub dims: Vec<usize>,
    /// Initial values are uniform within this bound of 0, as torch's.
    pub bound: f32,
}

/// Name of a linear layer of the encoder, by torch's number within its sequence.
pub(crate) fn head_name(number: usize) -> String {
    format!("prompt.mlp_head.{number}")
}

/// Name of a weight of the LSTM, as torch's.
pub(crate) fn lstm_name(weight: &str, layer: usize, is_reverse: bool) -> String {
    let end = if is_reverse { "_reverse" } else { "" };
    format!("prompt.lstm_head.{weight}_l{layer}{end}")
}

impl PromptEncoder {
    /// Features within the encoder.
    pub(crate) fn hidden(&self, d_model: usize) -> usize {
        match self.hidden {
            0 => d_model,
            hidden => hidden,
        }
    }

    /// Widths before and after each linear layer.
    pub(crate) fn head(&self, d_model: usize) -> Vec<[usize; 2]> {
        let hidden = self.hidden(d_model);
        match self.kind {
            EncoderKind::Mlp => vec![[d_model, hidden], [hidden, hidden], [hidden, d_model]],
            EncoderKind::Lstm => vec![[2 * hidden, 2 * hidden], [2 * hidden, d_model]],
        }
    }

    /// Widths before each layer of the LSTM; none of an MLP.
    pub(crate) fn lstm(&self, d_model: usize) -> Vec<usize> {
        match self.kind {
            EncoderKind::Mlp => Vec::new(),
            EncoderKind::Lstm => {
                let hidden = self.hidden(d_model);
                let widths = |layer| if layer == 0 { d_model } else { 2 * hidden };
                (0..self.layers).map(widths).collect()
            }
        }
    }

    /// Weights in the order of the forward pass.
    pub(crate) fn weights(&self, d_model: usize) -> Vec<EncoderWeight> {
        let mut all = Vec::new();
        let hidden = self.hidden(d_model);
        for (layer, width) in self.lstm(d_model).into_iter().enumerate() {
            for is_reverse in [false, true] {
                for (weight, dims) in [
                    ("weight_ih", vec![4 * hidden, width]),
                    ("weight_hh", vec![4 * hidden, hidden]),
                    ("bias_ih", vec![4 * hidden]),
                    ("bias_hh", vec![4 * hidden]),
                ] {
                    all.push(EncoderWeight {
                        name: lstm_name(weight, layer, is_reverse),
                        dims,
                        bound: 1.0 / (hidden as f32).sqrt(),
                    });
                }
            }
        }
        for (layer, [input, out]) in self.head(d_model).into_iter().enumerate() {
            // a ReLU has the numbers between
            let name = head_name(2 * layer);
            for (part, dims) in [("weight", vec![out, input]), ("bias", vec![out])] {
                all.push(EncoderWeight {
                    name: format!("{name}.{part}"),
                    dims,
                    bound: 1.0 / (input as f32).sqrt(),
                });
            }
        }
        all
    }
}

impl Default for PromptConfig {
    fn default() -> Self {
        PromptConfig {
            virtual_tokens: 20,
            splits: Vec::new(),
            template: String::new(),
            init_ids: Vec::new(),
            encoder: None,
            tasks: Vec::new(),
        }
    }
}

impl PromptConfig {
    /// The id whose embedding the row of a virtual token starts from, if there are such ids.
    pub(crate) fn init_id(&self, row: usize) -> Option<u32> {
        let at = row.checked_rem(self.init_ids.len())?;
        self.init_ids.get(at).copied()
    }

    /// The markers of each task; the virtual tokens of a model without markers of its own are all at the first.
    pub fn markers(&self) -> Vec<TaskMarkers> {
        if self.tasks.is_empty() {
            let counts = match self.splits.is_empty() {
                true => vec![self.virtual_tokens],
                false => self.splits.clone(),
            };
            let task = String::new();
            return vec![TaskMarkers {
                task,
                first: 0,
                counts,
            }];
        }
        let mut first = 0;
        let of_task = |task: &PromptTask| {
            let own = TaskMarkers {
                task: task.name.clone(),
                first,
                counts: task.splits.clone(),
            };
            first = own.end();
            own
        };
        self.tasks.iter().map(of_task).collect()
    }

    /// Virtual tokens of a text at most.
    pub fn most_of_text(&self) -> usize {
        let own = self.markers();
        let counts = own.iter().map(TaskMarkers::virtual_tokens);
        counts.max().unwrap_or(0)
    }

    /// For each row of the table, whether it is the first of its task.
    pub(crate) fn first_rows(&self) -> Vec<bool> {
        let mut first = vec![false; self.virtual_tokens];
        for own in self.markers() {
            if let Some(row) = first.get_mut(own.first) {
                *row = true;
            }
        }
        first
    }

    /// Whether all virtual tokens stand in front of a text that has none itself.
    pub fn are_in_front(&self) -> bool {
        self.splits.is_empty() && self.tasks.is_empty()
    }

    pub(crate) fn check(&self, problem: Problem<'_>) {
        if self.virtual_tokens == 0 {
            problem("virtual_tokens", "0".into(), "at least 1");
        }
        let sum = self
            .splits
            .iter()
            .try_fold(0usize, |sum, own| sum.checked_add(*own));
        if !self.splits.is_empty() && (sum != Some(self.virtual_tokens) || self.splits.contains(&0))
        {
            let wanted = format!(
                "numbers above 0 whose sum is virtual_tokens = {}",
                self.virtual_tokens
            );
            problem("splits", format!("{:?}", self.splits), &wanted);
        }
        self.check_tasks(problem);
        let Some(encoder) = &self.encoder else {
            return;
        };
        if !self.init_ids.is_empty() {
            let found = format!("{} ids with an encoder", self.init_ids.len());
            problem("init_ids", found, "none: an encoder makes the rows");
        }
        if encoder.hidden > MOST_HIDDEN {
            let wanted = format!("at most {MOST_HIDDEN}");
            problem("encoder.hidden", encoder.hidden.to_string(), &wanted);
        }
        let found = encoder.layers.to_string();
        match (encoder.kind, encoder.layers) {
            (EncoderKind::Mlp, 2) | (EncoderKind::Lstm, 1..=16) => {}
            (EncoderKind::Mlp, _) => problem(
                "encoder.layers",
                found,
                "2: an mlp always has three linear layers",
            ),
            (EncoderKind::Lstm, _) => problem("encoder.layers", found, "1 to 16 layers of an lstm"),
        }
    }

    fn check_tasks(&self, problem: Problem<'_>) {
        if self.tasks.is_empty() {
            return;
        }
        if !self.splits.is_empty() || !self.template.is_empty() {
            let found = "splits or a template beside tasks".into();
            problem("tasks", found, "those of each task alone");
        }
        for (number, task) in self.tasks.iter().enumerate() {
            let key = format!("tasks[{number}].name");
            if !task.is_named() {
                let wanted = "letters, digits, \"-\", \"_\", \".\" and \"/\"";
                problem(&key, format!("{:?}", task.name), wanted);
            }
            if self.tasks[..number]
                .iter()
                .any(|other| other.name == task.name)
            {
                let found = format!("{:?} twice", task.name);
                problem(&key, found, "a name of its own for each task");
            }
            if task.splits.is_empty() || task.splits.contains(&0) {
                let key = format!("tasks[{number}].splits");
                let found = format!("{:?}", task.splits);
                problem(&key, found, "numbers above 0, one for each marker");
            }
        }
        let mut all = self.tasks.iter().flat_map(|task| &task.splits);
        let sum = all.try_fold(0usize, |sum, own| sum.checked_add(*own));
        if sum != Some(self.virtual_tokens) {
            let found = format!("{} with splits of other sums", self.virtual_tokens);
            problem(
                "virtual_tokens",
                found,
                "the sum of the splits of all tasks",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_the_ids_of_a_text_in_turn() {
        let mut prompt = PromptConfig {
            virtual_tokens: 5,
            init_ids: vec![7, 8],
            ..PromptConfig::default()
        };
        let ids = |prompt: &PromptConfig| (0..5).map(|row| prompt.init_id(row)).collect::<Vec<_>>();
        assert_eq!(ids(&prompt), [7, 8, 7, 8, 7].map(Some));
        prompt.init_ids = (0..9).collect();
        assert_eq!(ids(&prompt), [0, 1, 2, 3, 4].map(Some));
        prompt.init_ids.clear();
        assert_eq!(ids(&prompt), [None; 5]);
    }
}

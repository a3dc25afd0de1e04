//! Task templates: a text with the markers `<|VIRTUAL_PROMPT_0|>`, `<|VIRTUAL_PROMPT_1|>`, ..., where virtual tokens stand, and with
//! fields of a row in braces, the answer last. All virtual tokens are rows of one table, which the markers take in order, those of each
//! task its own. With several templates, the column `taskname` of a row names the one that it fills.
//!
//! Source: `task_templates` of NeMo 1's prompt learning (`megatron_gpt_prompt_learning_config.yaml`, `GPTPromptLearningDataset`). We
//! differ: columns of a row that the template does not name are left alone.

use super::markers::{has_marker, has_named, listed, marker, numbers, wanted, with_task};
use serde_json::{Map, Value};
use train::config::{PromptConfig, TaskMarkers};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Words of the template, with its markers.
    Text(String),
    Field(String),
}

/// The pieces of a template. A brace without its other is text.
fn pieces(template: &str) -> Vec<Piece> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), template);
    while let Some(open) = rest.find('{') {
        let Some(length) = rest[open..].find('}') else {
            break;
        };
        text.push_str(&rest[..open]);
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Field(rest[open + 1..open + length].to_owned()));
        rest = &rest[open + length + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    pieces
}

/// Fields of a template in order, as often as it has them.
fn fields(template: &str) -> Vec<String> {
    let field = |piece| match piece {
        Piece::Text(_) => None,
        Piece::Field(name) => Some(name),
    };
    pieces(template).into_iter().filter_map(field).collect()
}

/// `model.prompt.splits` of a template: none if all virtual tokens stand in front of its text, as without a template.
pub(super) fn placed(template: &str, splits: &[usize], virtual_tokens: usize) -> Vec<usize> {
    let is_in_front = template.starts_with(&marker(0)) && numbers(template).len() == 1;
    match (is_in_front || template.is_empty(), splits.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => vec![virtual_tokens],
        (false, false) => splits.to_vec(),
    }
}

/// The settings of a template in a job file.
pub(super) struct TemplateKeys<'a> {
    /// Path of the table.
    pub(super) table: String,
    pub(super) virtual_tokens: usize,
    pub(super) template: &'a str,
    pub(super) splits: &'a [usize],
    pub(super) answer_field: &'a str,
    pub(super) truncate_field: &'a str,
    /// Whether there must be a template.
    pub(super) is_one_of_many: bool,
}

impl TemplateKeys<'_> {
    /// Reports every contradiction among them.
    pub(super) fn check(&self, add: &mut dyn FnMut(&str, String, &str)) {
        let mut problem = |key: &str, found: String, wanted: &str| {
            add(&format!("{}.{key}", self.table), found, wanted);
        };
        let names = [
            ("answer_field", self.answer_field),
            ("truncate_field", self.truncate_field),
        ];
        if self.template.is_empty() && self.is_one_of_many {
            let wanted = "a text with markers, and an answer in braces at its end";
            problem("template", "\"\"".into(), wanted);
            return;
        }
        if self.template.is_empty() {
            let without = "none without a template";
            if !self.splits.is_empty() {
                problem("splits", format!("{:?}", self.splits), without);
            }
            for (key, name) in names.into_iter().filter(|(_, name)| !name.is_empty()) {
                problem(key, format!("{name:?}"), without);
            }
            return;
        }
        let found = numbers(self.template);
        // a template is one task's: its markers have no names
        if !found.iter().copied().eq(0..found.len().max(1)) || has_named(self.template) {
            problem("template", listed(self.template), &wanted(found.len()));
        }
        self.check_splits(found.len(), &mut problem);
        let fields = fields(self.template);
        let names_of_fields = fields.join(", ");
        if fields.iter().any(|name| name.trim().is_empty()) {
            problem(
                "template",
                "a field without a name".into(),
                "a name in each pair of braces",
            );
        }
        for (key, name) in names.into_iter().filter(|(_, name)| !name.is_empty()) {
            if !fields.iter().any(|field| field == name) {
                let wanted = format!("a field of the template: {names_of_fields}");
                problem(key, format!("{name:?}"), &wanted);
            }
        }
        let answer = match self.answer_field {
            "" => fields.last().map_or("", String::as_str),
            name => name,
        };
        let is_last = pieces(self.template).last() == Some(&Piece::Field(answer.to_owned()));
        let count = fields.iter().filter(|field| *field == answer).count();
        if !is_last || count != 1 {
            let found = format!("{:?} with {count} times {{{answer}}}", self.template);
            let wanted = "one answer in braces, such as {label}, at the template's end";
            problem("template", found, wanted);
        }
        if !self.truncate_field.is_empty() && self.truncate_field == answer {
            let found = format!("{:?}, the answer", self.truncate_field);
            problem("truncate_field", found, "another field, or none");
        }
    }

    fn check_splits(&self, markers: usize, problem: &mut dyn FnMut(&str, String, &str)) {
        let (splits, tokens) = (self.splits, self.virtual_tokens);
        let sum = splits
            .iter()
            .try_fold(0usize, |sum, own| sum.checked_add(*own));
        let is_right = match splits.len() {
            0 => markers <= 1,
            count => count == markers && sum == Some(tokens) && !splits.contains(&0),
        };
        if !is_right {
            let wanted = format!(
                "{markers} numbers above 0, one for each marker of the template, whose sum is virtual_tokens = {tokens}"
            );
            problem("splits", format!("{splits:?}"), &wanted);
        }
    }
}

/// Column of the task of a row, NeMo's.
const TASK: &str = "taskname";

/// A template that was checked.
#[derive(Clone, Debug)]
pub(crate) struct TaskTemplate {
    /// Empty: that of every row.
    name: String,
    pieces: Vec<Piece>,
    /// Field that loses its end where a text is too long; empty: none.
    truncated: String,
    /// Only the answer counts in the loss; absent: as the job says.
    pub(crate) answer_only: Option<bool>,
}

/// Settings of a template that a model does not keep.
#[derive(Clone, Debug, Default)]
pub(super) struct RowSettings {
    pub(super) truncated: String,
    pub(super) answer_only: Option<bool>,
}

/// The templates of a model's virtual tokens, which were checked.
#[derive(Clone, Debug)]
pub(crate) struct TaskTemplates {
    all: Vec<TaskTemplate>,
    markers: Vec<TaskMarkers>,
}

impl TaskTemplates {
    /// Those of a model, if it has some; `settings` in their order, the defaults where there are none.
    pub(super) fn of(prompt: &PromptConfig, settings: &[RowSettings]) -> Option<TaskTemplates> {
        let one = |(name, template): (&str, &str), own: Option<&RowSettings>| {
            let own = own.cloned().unwrap_or_default();
            TaskTemplate {
                name: name.into(),
                pieces: pieces(&with_task(template, name)),
                truncated: own.truncated,
                answer_only: own.answer_only,
            }
        };
        let all: Vec<TaskTemplate> = match prompt.template.as_str() {
            "" => (prompt.tasks.iter().enumerate())
                .map(|(at, task)| one((&task.name, &task.template), settings.get(at)))
                .collect(),
            template => vec![one(("", template), settings.first())],
        };
        (!all.is_empty()).then(|| TaskTemplates {
            all,
            markers: prompt.markers(),
        })
    }

    /// The markers of each task.
    pub(crate) fn markers(&self) -> &[TaskMarkers] {
        &self.markers
    }

    /// Names of the tasks; one that is empty if every row is of the same.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.all.iter().map(|task| task.name.as_str())
    }

    /// The template of a row.
    ///
    /// # Errors
    /// A row that names no task, or another.
    pub(crate) fn of_row(&self, row: &Map<String, Value>) -> Result<&TaskTemplate, String> {
        if let [only] = &self.all[..]
            && only.name.is_empty()
        {
            return Ok(only);
        }
        let name = match row.get(TASK) {
            Some(Value::String(name)) => name,
            None | Some(Value::Null) => {
                let columns: Vec<&str> = row.keys().map(String::as_str).collect();
                let columns = columns.join(", ");
                return Err(format!("no column {TASK}; found the columns {columns}"));
            }
            Some(_) => return Err(format!("{TASK}: want a text")),
        };
        let found = self.all.iter().find(|task| task.name == *name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            format!("{TASK}: found {name:?}, want one of {}", names.join(", "))
        })
    }
}

/// A row in a template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    /// The text up to the answer, with its markers.
    pub(crate) prompt: String,
    /// With the blank that the template has in front of it, as in NeMo: a prompt does not end with one, and the model writes it.
    pub(crate) answer: String,
}

impl TaskTemplate {
    /// Characters of a row that a text which is too long may lose.
    pub(crate) fn spare(&self, row: &Map<String, Value>) -> usize {
        let text = row.get(&self.truncated).and_then(Value::as_str);
        text.map_or(0, |text| text.chars().count())
    }

    /// The text of a row, whose field that may lose its end has `kept` characters at most.
    ///
    /// # Errors
    /// The reason why the row does not fill the template.
    pub(crate) fn fill(&self, row: &Map<String, Value>, kept: usize) -> Result<Filled, String> {
        let mut filled = Filled {
            prompt: String::new(),
            answer: String::new(),
        };
        for (at, piece) in self.pieces.iter().enumerate() {
            let name = match piece {
                Piece::Text(text) => {
                    filled.prompt.push_str(text);
                    continue;
                }
                Piece::Field(name) => name,
            };
            let text = match row.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                None | Some(Value::Null) => {
                    let columns: Vec<&str> = row.keys().map(String::as_str).collect();
                    let columns = columns.join(", ");
                    return Err(format!("no field {name}; found the columns {columns}"));
                }
                Some(_) => return Err(format!("{name}: want a text or a number")),
            };
            // it would stand for virtual tokens where the text is a prompt
            if has_marker(&text) {
                return Err(format!("{name}: found a marker of virtual tokens in it"));
            }
            if at + 1 == self.pieces.len() {
                if text.trim().is_empty() {
                    return Err(format!("{name}: an empty answer"));
                }
                filled.answer = text;
                let before = at.checked_sub(1).and_then(|at| self.pieces.get(at));
                if matches!(before, Some(Piece::Text(text)) if text.ends_with(' ')) {
                    filled.prompt.pop();
                    filled.answer.insert(0, ' ');
                }
            } else if *name == self.truncated {
                filled.prompt.extend(text.chars().take(kept));
            } else {
                filled.prompt.push_str(&text);
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use train::config::PromptTask;

    /// NeMo's example of a task, and its row.
    const SENTIMENT: &str =
        "<|VIRTUAL_PROMPT_0|> {sentence} sentiment: <|VIRTUAL_PROMPT_1|> {label}";

    fn task(template: &str, truncated: &str) -> TaskTemplate {
        let prompt = PromptConfig {
            virtual_tokens: 15,
            splits: vec![10, 5],
            template: template.into(),
            ..PromptConfig::default()
        };
        let settings = RowSettings {
            truncated: truncated.into(),
            answer_only: None,
        };
        let all = TaskTemplates::of(&prompt, &[settings]).unwrap();
        all.of_row(&Map::new()).unwrap().clone()
    }

    #[test]
    fn a_row_fills_the_template_up_to_its_answer() {
        let row = json!({"taskname": "sentiment", "sentence": "a great \u{fc}ber film", "label": "positive"});
        let row = row.as_object().unwrap();
        let filled = task(SENTIMENT, "sentence").fill(row, usize::MAX).unwrap();
        let prompt = "<|VIRTUAL_PROMPT_0|> a great \u{fc}ber film sentiment: <|VIRTUAL_PROMPT_1|>";
        assert_eq!(filled.prompt, prompt);
        assert_eq!(filled.answer, " positive");
        // its end is lost, character by character
        let task = task(SENTIMENT, "sentence");
        assert_eq!(task.spare(row), 17);
        let filled = task.fill(row, 9).unwrap();
        assert!(
            filled.prompt.contains("> a great \u{fc} sentiment"),
            "{filled:?}"
        );
    }

    #[test]
    fn the_task_of_a_row_chooses_the_template_and_names_its_markers() {
        let one = |name: &str, template: &str, splits: &[usize]| PromptTask {
            name: name.into(),
            template: template.into(),
            splits: splits.to_vec(),
        };
        let prompt = PromptConfig {
            virtual_tokens: 19,
            tasks: vec![
                one("sentiment", SENTIMENT, &[10, 5]),
                one("squad/v1", "{q}<|VIRTUAL_PROMPT_0|>{a}", &[4]),
            ],
            ..PromptConfig::default()
        };
        let settings = [
            RowSettings::default(),
            RowSettings {
                truncated: "q".into(),
                answer_only: Some(false),
            },
        ];
        let all = TaskTemplates::of(&prompt, &settings).unwrap();
        let row = json!({"taskname": "squad/v1", "q": "Who?", "a": "He", "sentence": 3});
        let row = row.as_object().unwrap();
        let task = all.of_row(row).unwrap();
        assert_eq!(task.answer_only, Some(false));
        assert_eq!(task.spare(row), 4);
        let filled = task.fill(row, usize::MAX).unwrap();
        assert_eq!(filled.prompt, "Who?<|VIRTUAL_PROMPT_0:squad/v1|>");
        assert_eq!(filled.answer, "He");
        let firsts: Vec<usize> = all.markers().iter().map(|own| own.first).collect();
        assert_eq!(firsts, [0, 15]);
        for (row, wanted) in [
            (
                json!({"q": "Who?"}),
                "no column taskname; found the columns q",
            ),
            (json!({"taskname": null}), "no column taskname"),
            (json!({"taskname": 3}), "taskname: want a text"),
            (
                json!({"taskname": "squad"}),
                "taskname: found \"squad\", want one of sentiment, squad/v1",
            ),
        ] {
            let why = all.of_row(row.as_object().unwrap()).unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn rows_that_do_not_fill_the_template_say_why() {
        for (row, wanted) in [
            (
                json!({"label": "a"}),
                "no field sentence; found the columns label",
            ),
            (json!({"sentence": null, "label": "a"}), "no field sentence"),
            (
                json!({"sentence": ["a"], "label": "a"}),
                "sentence: want a text",
            ),
            (
                json!({"sentence": "a", "label": " "}),
                "label: an empty answer",
            ),
            (json!({"sentence": "a"}), "no field label"),
            (
                json!({"sentence": "a <|VIRTUAL_PROMPT_0|>", "label": "a"}),
                "sentence: found a marker",
            ),
        ] {
            let why = task(SENTIMENT, "").fill(row.as_object().unwrap(), 9);
            let why = why.unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
        let row = json!({"sentence": "", "label": 3});
        let filled = task(SENTIMENT, "").fill(row.as_object().unwrap(), 9);
        assert_eq!(filled.unwrap().answer, " 3");
    }

    #[test]
    fn all_contradictions_of_a_template_are_reported_at_once() {
        let check = |template: &str, splits: &[usize], answer: &str, truncate: &str| {
            let mut found = Vec::new();
            let keys = TemplateKeys {
                table: "t".into(),
                virtual_tokens: 15,
                template,
                splits,
                answer_field: answer,
                truncate_field: truncate,
                is_one_of_many: false,
            };
            keys.check(&mut |key, found_here, wanted| {
                found.push(format!("{key}: found {found_here}, want {wanted}"));
            });
            found
        };
        assert_eq!(
            check(SENTIMENT, &[10, 5], "label", "sentence"),
            [""; 0],
            "NeMo's"
        );
        assert_eq!(check(SENTIMENT, &[10, 5], "", ""), [""; 0]);
        assert_eq!(
            check("{a}<|VIRTUAL_PROMPT_0|> {b}", &[], "", ""),
            [""; 0],
            "one marker takes all"
        );
        let swapped = "<|VIRTUAL_PROMPT_1|>{a} {b} <|VIRTUAL_PROMPT_0|> end";
        let all = check(swapped, &[10, 6], "c", "b");
        let all = all.join("\n");
        for wanted in [
            "t.template: found <|VIRTUAL_PROMPT_1|>, <|VIRTUAL_PROMPT_0|>, want <|VIRTUAL_PROMPT_0|> and",
            "t.splits: found [10, 6], want 2 numbers above 0, one for each marker of the template, whose sum is virtual_tokens = 15",
            "t.answer_field: found \"c\", want a field of the template: a, b",
            "with 0 times {c}, want one answer in braces",
        ] {
            assert!(all.contains(wanted), "{wanted} in {all}");
        }
        for (template, splits, wanted) in [
            (
                "{a}",
                &[][..],
                "found no marker, want <|VIRTUAL_PROMPT_0|> once",
            ),
            (SENTIMENT, &[], "t.splits: found []"),
            (SENTIMENT, &[15, 0], "t.splits: found [15, 0]"),
            (SENTIMENT, &[15], "t.splits: found [15]"),
            (SENTIMENT, &[usize::MAX, 16], "t.splits"),
            (
                "<|VIRTUAL_PROMPT_0|><|VIRTUAL_PROMPT_0|>{a}",
                &[10, 5],
                "found <|VIRTUAL_PROMPT_0|>, <|VIRTUAL_PROMPT_0|>, want",
            ),
            (
                "<|VIRTUAL_PROMPT_0|>{a}<|VIRTUAL_PROMPT_2|>{b}",
                &[10, 5],
                "t.template: found",
            ),
            ("<|VIRTUAL_PROMPT_0|>{}", &[], "a field without a name"),
            (
                "<|VIRTUAL_PROMPT_0|>{a} and {a}",
                &[],
                "with 2 times {a}, want one answer",
            ),
            ("<|VIRTUAL_PROMPT_0|>{a}.", &[], "at the template's end"),
            ("<|VIRTUAL_PROMPT_0|>", &[], "at the template's end"),
        ] {
            let all = check(template, splits, "", "").join("\n");
            assert!(all.contains(wanted), "{wanted} in {all}");
        }
        let all = check(SENTIMENT, &[10, 5], "", "label").join("\n");
        assert!(all.contains("t.truncate_field: found \"label\", the answer"));
        let all = check("", &[3], "a", "b").join("\n");
        assert_eq!(all.matches("none without a template").count(), 3, "{all}");
    }

    #[test]
    fn virtual_tokens_in_front_of_the_whole_text_are_those_of_a_model_without_markers() {
        assert_eq!(placed("<|VIRTUAL_PROMPT_0|> {a}", &[15], 15), [0; 0]);
        assert_eq!(placed("", &[], 15), [0; 0]);
        assert_eq!(placed(" <|VIRTUAL_PROMPT_0|> {a}", &[], 15), [15]);
        assert_eq!(placed(SENTIMENT, &[10, 5], 15), [10, 5]);
    }
}

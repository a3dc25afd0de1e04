//! Line edits: lines are dropped, kept or rewritten, by a regular expression, a condition over the line's metrics,
//! or both.
//!
//! `lines = { edits = [{ action = "drop", where = "upper > 0.5" }, { action = "rewrite", pattern = '\[\d*\]', with
//! = "" }] }`. An edit selects the lines that match its pattern and meet its condition; it drops them, or all
//! others, or replaces the pattern in them. Edits run in order, each over all lines. The line modifiers of
//! published programs (C4, DCLM, datamap-rs) are such edits; regular expressions take time proportional to the
//! text.
//!
//! Names in conditions: `words` (between white space), `chars`, `letters`, `upper`, `digits`, `spaces`, `punctuation` (shares
//! of the characters that are such), `alphabetic_words` (share of words with a letter), `number` (of the line, from 0),
//! `lines` (of the page), `mark` (1 if it ends in `. ? ! "`, else 0), and the text `line`.

mod metrics;

use std::borrow::Cow;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::{Error, Result};
use crate::expression::{Expression, Kind, Scope, Wrong};
use crate::text::near::or_nearest;
use crate::text::plain::{self, share};
use crate::text::unicode;
use crate::verdict::{Judge, KEEP, Verdict, broken};
use metrics::{LineMetrics, NAMES, TEXTS};

/// Edits of lines.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lines {
    /// In the order they are made.
    pub edits: Vec<LineEdit>,
    /// Strip white space off the ends of the result.
    pub strip: bool,
    /// Greatest share of words that the edits may remove. DCLM: 0.05.
    pub max_removed_ratio: f64,
}

impl Default for Lines {
    fn default() -> Self {
        Lines {
            edits: Vec::new(),
            strip: false,
            max_removed_ratio: 1.0,
        }
    }
}

/// One edit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LineEdit {
    /// Effect on the selected lines.
    pub action: LineAction,
    /// A regular expression that is searched for; empty: every line.
    pub pattern: String,
    /// A condition over the line's metrics; empty: every line.
    #[serde(rename = "where")]
    pub condition: String,
    /// Replacement for the pattern (`$1` is its first group), for `rewrite`.
    pub with: String,
}

/// Effect on lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineAction {
    /// They go.
    #[default]
    Drop,
    /// All others go.
    Keep,
    /// The pattern is replaced in them; a line that becomes empty is removed.
    Rewrite,
}

/// Bytes a compiled pattern may take.
const MOST_PATTERN_BYTES: usize = 1 << 20;

fn compile(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(pattern)
        .size_limit(MOST_PATTERN_BYTES)
        .build()
        .map_err(|e| {
            let why = e.to_string();
            why.lines().last().unwrap_or_default().to_string()
        })
}

fn condition(source: &str) -> Result<Expression, Wrong> {
    let scope = Scope {
        texts: &TEXTS,
        numbers: &NAMES,
        fields: &[],
    };
    let condition = Expression::parse(source, Kind::Truth, scope);
    let condition = condition.map_err(|why| Wrong::of_message(&why))?;
    let known = || NAMES.into_iter().chain(TEXTS);
    let unknown = condition.names().find(|name| !known().any(|n| n == *name));
    match unknown {
        Some(name) => Err(Wrong {
            found: format!("{name:?}{}", or_nearest(name, known())),
            wanted: format!("a condition over {} {}", NAMES.join(" "), TEXTS.join(" ")),
        }),
        None => Ok(condition),
    }
}

struct Edit {
    action: LineAction,
    pattern: Option<Regex>,
    condition: Option<Expression>,
    with: String,
}

/// The edits, compiled.
pub struct LineEditor {
    edits: Vec<Edit>,
    strip: bool,
    max_removed_ratio: f64,
}

impl LineEditor {
    /// Compiles patterns and conditions.
    ///
    /// # Errors
    /// `Config` for those that cannot be.
    pub fn open(config: &Lines) -> Result<LineEditor> {
        let edits = config.edits.iter().enumerate().map(|(i, edit)| {
            let wrong = |name: &str, found: String| Error::Config {
                key: format!("lines.edits[{i}].{name}"),
                found,
                wanted: "a regular expression and a condition over a line's metrics".into(),
            };
            let pattern = (!edit.pattern.is_empty()).then(|| compile(&edit.pattern));
            let condition = (!edit.condition.is_empty()).then(|| condition(&edit.condition));
            Ok(Edit {
                action: edit.action,
                pattern: pattern.transpose().map_err(|e| wrong("pattern", e))?,
                condition: condition.transpose().map_err(|e| wrong("where", e.found))?,
                with: edit.with.clone(),
            })
        });
        Ok(LineEditor {
            edits: edits.collect::<Result<_>>()?,
            strip: config.strip,
            max_removed_ratio: config.max_removed_ratio,
        })
    }

    /// Edits a text; `out` receives the result.
    pub fn judge(&self, text: &str, out: &mut String) -> Verdict {
        self.measure(text, out, &mut Judge::strict())
    }

    /// Lets `judge` compare how much the edits remove; `out` receives the result.
    pub fn measure(&self, text: &str, out: &mut String, judge: &mut Judge) -> Verdict {
        out.clear();
        out.push_str(text);
        let mut edited = String::with_capacity(text.len());
        for edit in &self.edits {
            edit.apply(out, &mut edited);
            std::mem::swap(out, &mut edited);
        }
        if self.strip {
            let kept = unicode::strip(out);
            if kept.len() != out.len() {
                *out = kept.to_string();
            }
        }
        if out.is_empty() && !text.is_empty() {
            return Verdict::Break(broken("lines.empty", 0.0, 1.0));
        }
        if self.max_removed_ratio < 1.0 || !judge.may_stop_counting() {
            let before = plain::words(text).count();
            let after = plain::words(out).count();
            let removed = share(before.saturating_sub(after), before);
            judge.at_most("lines.removed_ratio", removed, self.max_removed_ratio)?;
        }
        KEEP
    }
}

impl Edit {
    /// Writes the lines of `text` that stay to `out`.
    fn apply(&self, text: &str, out: &mut String) {
        out.clear();
        let whole = memchr::memchr_iter(b'\n', text.as_bytes()).count() + 1;
        let mut first = true;
        for (number, line) in text.split('\n').enumerate() {
            let meets = match &self.condition {
                Some(condition) => condition.holds(&LineMetrics {
                    line,
                    number,
                    lines: whole,
                }),
                None => true,
            };
            let pattern = self.pattern.as_ref();
            let is_meant = meets && pattern.is_none_or(|p| p.is_match(line));
            let mut kept = Cow::Borrowed(line);
            match (self.action, is_meant) {
                (LineAction::Drop, true) | (LineAction::Keep, false) => continue,
                (LineAction::Rewrite, true) => {
                    if let Some(pattern) = pattern {
                        kept = pattern.replace_all(line, self.with.as_str());
                    }
                    if kept.is_empty() {
                        continue;
                    }
                }
                _ => {}
            }
            if !std::mem::take(&mut first) {
                out.push('\n');
            }
            out.push_str(&kept);
        }
    }
}

impl StepConfig for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.edits.is_empty() {
            problem("edits", "[]".to_string(), "at least one edit");
        }
        range(
            problem,
            "max_removed_ratio",
            self.max_removed_ratio,
            0.0,
            1.0,
        );
        for (i, edit) in self.edits.iter().enumerate() {
            let key = |name: &str| format!("edits[{i}].{name}");
            if let Err(why) = compile(&edit.pattern) {
                problem(&key("pattern"), why, "a regular expression");
            }
            if let Some(Err(wrong)) =
                (!edit.condition.is_empty()).then(|| condition(&edit.condition))
            {
                problem(&key("where"), wrong.found, &wrong.wanted);
            }
            if edit.pattern.is_empty() && edit.action == LineAction::Rewrite {
                problem(
                    &key("pattern"),
                    "\"\"".to_string(),
                    "the text to be replaced",
                );
            }
            if edit.pattern.is_empty() && edit.condition.is_empty() {
                problem(
                    &key("where"),
                    "\"\"".to_string(),
                    "a pattern or a condition",
                );
            }
            if !edit.with.is_empty() && edit.action != LineAction::Rewrite {
                let found = format!("{:?}", edit.with);
                problem(&key("with"), found, "nothing, or action = \"rewrite\"");
            }
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(LineEditor::open(self)?))
    }
}

impl Filter for LineEditor {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        self.measure(&draft.text, &mut scratch.rewritten, judge)?;
        draft.text.clone_from(&scratch.rewritten);
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        vec!["lines.removed_ratio".to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(edits: &str, text: &str) -> String {
        let config: Lines = serde_json::from_str(&format!(r#"{{"edits": {edits}}}"#)).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let mut out = String::new();
        let editor = LineEditor::open(&config).unwrap();
        assert!(editor.judge(text, &mut out).is_continue());
        out
    }

    #[test]
    fn lines_go_stay_or_change() {
        let text = "READ THIS\nSee [12] here.\nplease enable JavaScript\nx";
        assert_eq!(
            edited(r#"[{"action": "drop", "where": "upper > 0.5"}]"#, text),
            "See [12] here.\nplease enable JavaScript\nx"
        );
        assert_eq!(
            edited(
                r#"[{"action": "keep", "where": "words >= 2 and mark == 1"}]"#,
                text
            ),
            "See [12] here."
        );
        assert_eq!(
            edited(
                r#"[{"pattern": "(?i)javascript"}, {"action": "rewrite", "pattern": "\\[\\d*\\] ?"}]"#,
                text
            ),
            "READ THIS\nSee here.\nx"
        );
        assert_eq!(
            edited(
                r#"[{"action": "rewrite", "pattern": "(\\w)x?$", "with": "$1!", "where": "number == 3"}]"#,
                text
            ),
            "READ THIS\nSee [12] here.\nplease enable JavaScript\nx!"
        );
    }

    #[test]
    fn how_much_may_go_is_a_rule() {
        let config: Lines = serde_json::from_str(
            r#"{"edits": [{"where": "words < 2"}], "max_removed_ratio": 0.2}"#,
        )
        .unwrap();
        let editor = LineEditor::open(&config).unwrap();
        let mut out = String::new();
        let reason = |v: Verdict| v.break_value().map(|r| r.rule);
        assert_eq!(reason(editor.judge("a b c d\ne", &mut out)), None);
        assert_eq!(out, "a b c d");
        let found = reason(editor.judge("a b\nc\nd", &mut out));
        assert_eq!(found.as_deref(), Some("lines.removed_ratio"));
        let found = reason(editor.judge("a", &mut out));
        assert_eq!(found.as_deref(), Some("lines.empty"));
    }

    #[test]
    fn every_wrong_edit_is_told() {
        let config: Lines = serde_json::from_str(
            r#"{"edits": [{"pattern": "("}, {"where": "word > 3"}, {"action": "rewrite"},
                {"where": "words > 1", "with": "x"}]}"#,
        )
        .unwrap();
        let mut found = Vec::new();
        config.check(&mut |k, f, _| found.push(format!("{k}: {f}")));
        assert_eq!(
            found,
            [
                "edits[0].pattern: error: unclosed group",
                "edits[1].where: \"word\"; did you mean \"words\" or \"alphabetic_words\"?",
                "edits[2].pattern: \"\"",
                "edits[2].where: \"\"",
                "edits[3].with: \"x\""
            ]
        );
    }
}

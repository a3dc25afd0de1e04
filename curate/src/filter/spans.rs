//! Spans of the text that attributes name, replaced: what dolma's mixer does for `span_replacement`.
//!
//! A span is `[start, end, score]`, in characters of the text as it was read (dolma 1.2.1 `src/shard.rs`); the end is outside,
//! and one behind the text means its end. All lists are put in order of their starts (of equal starts the first list's
//! first), and a span that starts before the end of the last replaced one is left out, whole. We differ: a list with something else
//! than spans, or a span that starts behind the text, drops the document by name, where dolma stops or repeats text;
//! spans of no characters are left out, where dolma ends its replacing.
//!
//! Spans count characters of the record's own text, so this step comes before those that edit it.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::tag::{condition, condition_at};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepExpression, StepScratch};
use crate::error::Result;
use crate::expression::{self, DocumentMetrics, Expression, Kind, Value};
use crate::text::{chars, excerpt, json};
use crate::verdict::{Judge, KEEP, Reason, Verdict, broken};

/// Replacement of spans.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spans {
    /// Lists of spans and what replaces them.
    pub replace: Vec<SpanReplacement>,
    /// Only documents that meet this condition; empty: all.
    #[serde(rename = "where")]
    pub condition: String,
}

/// A list of spans and what replaces them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpanReplacement {
    /// Expression for the list of `[start, end, score]`, such as `attributes.pii.email`; documents without it stay as they are.
    pub spans: String,
    /// Least score. Default: any.
    pub min_score: Option<f64>,
    /// Scores below this. Default: any.
    pub max_score: Option<f64>,
    /// The replacement; `{}` in it is the text of the span.
    pub with: String,
    /// Expression for a replacement that is a text of the document, in place of `with`; `{}` in it is the text of the span.
    pub with_value: String,
}

impl StepConfig for Spans {
    fn name(&self) -> &'static str {
        "spans"
    }

    fn check(&self, problem: Problem<'_>) {
        for (i, replace) in self.replace.iter().enumerate() {
            let key = format!("replace[{i}].spans");
            expression::report(problem, &key, &replace.spans, Kind::Any);
            if !replace.with_value.is_empty() {
                if !replace.with.is_empty() {
                    let found = format!("{:?} beside with_value", replace.with);
                    problem(&format!("replace[{i}].with"), found, "one of them");
                }
                let key = format!("replace[{i}].with_value");
                expression::report(problem, &key, &replace.with_value, Kind::Text);
            }
        }
        if !self.condition.is_empty() {
            expression::report(problem, "where", &self.condition, Kind::Truth);
        }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn Filter>> {
        let lists = self.replace.iter().enumerate().map(|(i, replace)| {
            let key = |name: &str| format!("spans.replace[{i}].{name}");
            let with = match replace.with_value.as_str() {
                "" => With::Text(replace.with.clone()),
                source => With::Value(expression::open(
                    at,
                    &key("with_value"),
                    source,
                    Kind::Text,
                )?),
            };
            Ok(List {
                spans: expression::open(at, &key("spans"), &replace.spans, Kind::Any)?,
                source: replace.spans.clone(),
                least: replace.min_score.unwrap_or(f64::NEG_INFINITY),
                below: replace.max_score.unwrap_or(f64::INFINITY),
                with,
            })
        });
        Ok(Box::new(Replacer {
            lists: lists.collect::<Result<_>>()?,
            condition: condition(at, "spans.where", &self.condition)?,
        }))
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn expressions(&self) -> Vec<StepExpression<'_>> {
        let lists = self.replace.iter().enumerate().flat_map(|(i, replace)| {
            let spans = StepExpression::at(format!("replace[{i}].spans"), &replace.spans);
            let key = format!("replace[{i}].with_value");
            [Some(spans), condition_at(&key, &replace.with_value)]
        });
        let condition = condition_at("where", &self.condition);
        lists.flatten().chain(condition).collect()
    }
}

/// A replacement.
enum With {
    Text(String),
    Value(Expression),
}

/// A list of spans, its expressions parsed.
struct List {
    spans: Expression,
    source: String,
    least: f64,
    /// Scores from this on are not meant.
    below: f64,
    with: With,
}

/// The step.
struct Replacer {
    lists: Vec<List>,
    condition: Option<Expression>,
}

/// A span to replace, in characters.
struct Span {
    start: usize,
    end: usize,
    /// Number of its list.
    list: usize,
}

impl Filter for Replacer {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let document = DocumentMetrics::of(draft, judge.metrics());
        if self.condition.as_ref().is_some_and(|c| !c.holds(&document)) {
            return KEEP;
        }
        let mut spans = Vec::new();
        let mut with: Vec<String> = Vec::new();
        for (number, list) in self.lists.iter().enumerate() {
            let before = spans.len();
            if let Err(reason) = list.find(&document, number, &mut spans) {
                return Verdict::Break(reason);
            }
            with.push(match &list.with {
                _ if spans.len() == before => String::new(),
                With::Text(text) => text.clone(),
                With::Value(expression) => match expression.value(&document) {
                    Value::Text(text) => text.into_owned(),
                    _ => {
                        let value = expression.shown(&document);
                        return Verdict::Break(broken("spans.with_value", value, "a text"));
                    }
                },
            });
        }
        if spans.is_empty() {
            return KEEP;
        }
        // stable: of equal starts the first list's first comes first
        spans.sort_by_key(|span| span.start);
        replace(&draft.text, &spans, &with, &mut scratch.rewritten);
        std::mem::swap(&mut draft.text, &mut scratch.rewritten);
        KEEP
    }

    fn reads_metrics(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Characters shown of something that is no span.
const SHOWN_CHARS: usize = 80;

impl List {
    /// Appends the list's spans whose scores are meant.
    fn find(
        &self,
        document: &DocumentMetrics<'_>,
        number: usize,
        into: &mut Vec<Span>,
    ) -> std::result::Result<(), Reason> {
        let wrong = |found: &Json| {
            let found = json::to_string(found);
            let found = format!("{}: {}", self.source, excerpt(&found, SHOWN_CHARS));
            broken("spans.invalid", found, "[[start, end, score], ...]")
        };
        let list = match self.spans.value(document) {
            value if value.is_absent() => return Ok(()),
            Value::Json(Json::Array(list)) => list,
            Value::Json(other) => return Err(wrong(other)),
            _ => return Err(wrong(&Json::from(self.spans.shown(document)))),
        };
        let length = chars(&document.draft.text);
        for json in list {
            let span = span(json).ok_or_else(|| wrong(json))?;
            let (start, end, score) = span;
            if score < self.least || score >= self.below || start == end {
                continue;
            }
            if start > end || start >= length {
                return Err(wrong(json));
            }
            into.push(Span {
                start,
                end: end.min(length),
                list: number,
            });
        }
        Ok(())
    }
}

/// Start, end and score.
fn span(json: &Json) -> Option<(usize, usize, f64)> {
    let [start, end, score, ..] = json.as_array()?.as_slice() else {
        return None;
    };
    let place = |json: &Json| usize::try_from(json.as_u64()?).ok();
    let score = score.as_f64().or_else(|| json::special_number(score))?;
    (!score.is_nan()).then_some((place(start)?, place(end)?, score))
}

/// Writes the text with its spans replaced; they are in the order of their starts, and none is empty or outside.
fn replace(text: &str, spans: &[Span], with: &[String], out: &mut String) {
    out.clear();
    let mut places = text.char_indices().map(|(byte, _)| byte).enumerate();
    // the byte of a character at or behind the last one asked for
    let mut at = (0, 0);
    let mut byte_of = |character: usize| {
        while at.0 < character {
            at = places.next().unwrap_or((character, text.len()));
        }
        at.1
    };
    let (mut copied, mut free) = (0, 0);
    for span in spans {
        if span.start < free {
            continue;
        }
        let start = byte_of(span.start);
        let end = byte_of(span.end);
        out.push_str(&text[copied..start]);
        let mut pieces = with[span.list].split("{}");
        out.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            out.push_str(&text[start..end]);
            out.push_str(piece);
        }
        (copied, free) = (end, span.end);
    }
    out.push_str(&text[copied..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(replace: Json, text: &str, attributes: Json) -> Result<String, String> {
        let config: Spans = serde_json::from_value(json!({ "replace": replace })).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let at = Opening {
            number: 0,
            before: &[],
            models: &crate::classifier::NoModels,
        };
        let step = config.open(&at).unwrap();
        let mut draft = Draft {
            text: text.to_string(),
            meta: Some(json!({"name": "N", "attributes": attributes})),
            ..Draft::default()
        };
        let verdict = step.apply(
            &mut draft,
            &mut StepScratch::default(),
            &mut Judge::keeping(),
        );
        match verdict.break_value() {
            None => Ok(draft.text),
            Some(reason) => {
                assert_eq!(draft.text, text, "a dropped document keeps its text");
                Err(format!("{} {:?}", reason.rule, reason.value))
            }
        }
    }

    type Result<T, E> = std::result::Result<T, E>;

    #[test]
    fn spans_are_counted_in_characters_and_chosen_by_score() {
        let cut = json!([{"spans": "attributes.a", "min_score": 0.5}]);
        let text = "\u{e9}\u{1f600}abc\u{4e2d}d";
        for (spans, wanted) in [
            (json!([[0, 1, 0.5]]), "\u{1f600}abc\u{4e2d}d"),
            (json!([[1, 3, 1]]), "\u{e9}bc\u{4e2d}d"),
            (json!([[0, 7, 0.9]]), ""),
            (json!([[5, 99, 0.9]]), "\u{e9}\u{1f600}abc"),
            (json!([[0, 1, 0.49]]), text),
            (json!([[4, 5, 1], [0, 2, 1]]), "ab\u{4e2d}d"),
            (json!([[2, 2, 1]]), text),
            (json!([]), text),
            (json!(null), text),
        ] {
            let found = run(cut.clone(), text, json!({ "a": spans }));
            assert_eq!(found.as_deref(), Ok(wanted), "{spans}");
        }
        assert_eq!(run(cut, text, json!({})).as_deref(), Ok(text));
    }

    #[test]
    fn replacements_may_hold_the_span_and_values_of_the_document() {
        let tagged = json!([{"spans": "attributes.a", "max_score": 0.5, "with": "<{}|{}>"},
            {"spans": "attributes.b", "with_value": "meta.name"}]);
        let both = json!({"a": [[0, 2, 0.4], [3, 4, 0.5]], "b": [[3, 5, 9.0]]});
        assert_eq!(run(tagged, "abcdef", both).as_deref(), Ok("<ab|ab>cNf"));
        let none = json!([{"spans": "attributes.a", "with_value": "meta.none"}]);
        let why = run(none.clone(), "abc", json!({"a": [[0, 1, 1]]})).unwrap_err();
        assert!(why.starts_with("spans.with_value"), "{why}");
        assert_eq!(run(none, "abc", json!({"a": []})).as_deref(), Ok("abc"));
    }

    #[test]
    fn a_span_that_starts_inside_the_last_replaced_one_is_left_out() {
        let replace =
            json!([{"spans": "attributes.a", "with": "A"}, {"spans": "attributes.b", "with": "B"}]);
        for (a, b, wanted) in [
            (json!([[0, 3, 1]]), json!([[2, 5, 1], [3, 4, 1]]), "ABef"),
            (json!([[1, 3, 1]]), json!([[1, 6, 1]]), "aAdef"),
            (json!([[1, 3, 1], [3, 5, 1]]), json!([]), "aAAf"),
        ] {
            let found = run(replace.clone(), "abcdef", json!({"a": a, "b": b}));
            assert_eq!(found.as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn what_is_no_span_drops_the_document_by_name() {
        let cut = json!([{"spans": "attributes.a"}]);
        for spans in [
            json!("x"),
            json!(3),
            json!({"b": 1}),
            json!([1]),
            json!([[0, 1]]),
            json!([[-1, 1, 1]]),
            json!([[0.5, 1, 1]]),
            json!([[0, 1, "x"]]),
            json!([[2, 1, 1]]),
            json!([[3, 4, 1]]),
            json!([[0, 1, 1], null]),
        ] {
            let why = run(cut.clone(), "abc", json!({ "a": spans })).unwrap_err();
            assert!(why.starts_with("spans.invalid"), "{spans}: {why}");
        }
    }

    proptest::proptest! {
        /// Against a loop over characters that marks what is replaced.
        #[test]
        fn spans_are_replaced_as_a_naive_loop_does(
            text in "[a\u{e9}\u{1f600}]{1,20}",
            spans in proptest::collection::vec((0usize..20, 1usize..8), 0..8),
        ) {
            let letters: Vec<char> = text.chars().collect();
            let mut meant: Vec<(usize, usize)> = spans.iter().map(|(s, n)| (s % letters.len(), s % letters.len() + n)).collect();
            let list: Vec<Json> = meant.iter().map(|(s, e)| json!([s, e, 1.0])).collect();
            meant.sort_by_key(|s| s.0);
            let (mut wanted, mut at) = (String::new(), 0);
            for (start, end) in meant {
                if start >= at {
                    wanted.extend(&letters[at..start]);
                    let end = end.min(letters.len());
                    wanted.push('[');
                    wanted.extend(&letters[start..end]);
                    wanted.push(']');
                    at = end;
                }
            }
            wanted.extend(&letters[at..]);
            let found = run(json!([{"spans": "attributes.a", "with": "[{}]"}]), &text, json!({"a": list}));
            proptest::prop_assert_eq!(found, Ok(wanted));
        }
    }
}

//! A line of `metrics.jsonl` as numbers with flat names.

use serde_json::{Map, Value};

/// Fields whose null is a number that is not finite; null of any other field is an unknown number.
const NOT_FINITE: [&str; 3] = ["loss", "grad_norm", "valid_loss"];

/// Subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A step.
    Step,
    /// A validation after a step.
    Validation,
    /// Changed settings, or a checkpoint that could not be written.
    Note,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// Step that it belongs to.
    pub step: u64,
    pub kind: Kind,
    /// Numbers by name, in the line's order: nested ones with a dot (`routing.max_load`), those of a validation set with its name
    /// (`valid_loss/SET`), statistics of a validation with `valid_` in front. NaN stands for a number that is not finite.
    pub values: Vec<(String, f64)>,
    /// A sentence for people: why a step changed no weights, which settings changed, which checkpoint failed.
    pub note: Option<String>,
}

impl Line {
    /// Reads a line; none if it is not whole or has no step.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Line> {
        let fields: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
        let step = fields.get("step")?.as_u64()?;
        let kind = match () {
            () if fields.contains_key("loss") => Kind::Step,
            () if fields.contains_key("valid_loss") => Kind::Validation,
            () => Kind::Note,
        };
        let mut line = Line {
            step,
            kind,
            values: Vec::with_capacity(fields.len()),
            note: note(&fields),
        };
        if kind == Kind::Note {
            return line.note.is_some().then_some(line);
        }
        let set = fields.get("set").and_then(Value::as_str);
        for (name, value) in fields.iter().filter(|(name, _)| *name != "step") {
            line.add(name, value);
        }
        if kind == Kind::Validation {
            for (name, _) in &mut line.values {
                if !name.starts_with("valid_") {
                    name.insert_str(0, "valid_");
                }
                if let Some(set) = set {
                    name.push('/');
                    name.push_str(set);
                }
            }
        }
        Some(line)
    }

    fn add(&mut self, name: &str, value: &Value) {
        match value {
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                self.values.push((name.to_owned(), number));
            }
            Value::Null if NOT_FINITE.contains(&name) => {
                self.values.push((name.to_owned(), f64::NAN));
            }
            Value::Object(fields) => {
                for (inner, value) in fields {
                    self.add(&format!("{name}.{inner}"), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => {}
        }
    }

    /// The number of a field.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        let found = self.values.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| *value)
    }

    /// Seconds that the step took, with the standstill before it.
    pub(crate) fn seconds(&self) -> f64 {
        let parts = ["step_s", "stall_s"].map(|name| self.value(name).unwrap_or(0.0));
        parts.into_iter().filter(|part| part.is_finite()).sum()
    }
}

fn note(fields: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    if let Some(reason) = text("checkpoint_failed") {
        let step = fields.get("checkpoint_step").and_then(Value::as_u64);
        let step = step.unwrap_or_default();
        return Some(format!(
            "the checkpoint of step {step} could not be written: {reason}"
        ));
    }
    if let Some(reason) = text("skipped") {
        return Some(format!("the step changed no weights: {reason}"));
    }
    let changed = fields.get("changed")?.as_array()?;
    let keys = changed.iter().filter_map(|change| change["key"].as_str());
    let keys: Vec<&str> = keys.collect();
    Some(format!("resumed with other settings: {}", keys.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, f64)> {
        Line::parse(text.as_bytes()).unwrap().values
    }

    #[test]
    fn numbers_of_a_step_have_flat_names_and_an_unknown_one_is_left_out() {
        let text = r#"{"step":7,"loss":2.5,"mfu":null,"routing":{"max_load":1.5},"skipped":"x"}"#;
        let line = Line::parse(text.as_bytes()).unwrap();
        assert_eq!((line.step, line.kind), (7, Kind::Step));
        let want = [("loss", 2.5), ("routing.max_load", 1.5)];
        assert_eq!(line.values, want.map(|(name, v)| (name.to_owned(), v)));
        assert_eq!(line.note.unwrap(), "the step changed no weights: x");
    }

    #[test]
    fn a_loss_that_is_not_finite_is_no_missing_number() {
        let found = values(r#"{"step":1,"loss":null,"grad_norm":1e300,"tokens":12}"#);
        assert!(found[0].1.is_nan(), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn validations_carry_the_name_of_their_set() {
        let found = values(r#"{"step":1,"set":"news","valid_loss":2,"preference":{"margin":0.5}}"#);
        let want = [
            ("valid_loss/news", 2.0),
            ("valid_preference.margin/news", 0.5),
        ];
        assert_eq!(found, want.map(|(name, v)| (name.to_owned(), v)));
    }

    #[test]
    fn a_half_written_line_and_one_without_a_step_are_no_lines() {
        for text in [
            "",
            "{\"step\":1,\"lo",
            "{\"loss\":1}",
            "{\"step\":1}",
            "[1]",
        ] {
            assert_eq!(Line::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn notes_name_the_changed_keys_and_the_failed_checkpoint() {
        let changed = r#"{"step":5,"changed":[{"key":"train.lr"},{"key":"train.steps"}]}"#;
        let failed = r#"{"step":6,"checkpoint_step":4,"checkpoint_failed":"no room"}"#;
        let note = |text: &str| Line::parse(text.as_bytes()).unwrap().note.unwrap();
        assert_eq!(
            note(changed),
            "resumed with other settings: train.lr, train.steps"
        );
        assert_eq!(
            note(failed),
            "the checkpoint of step 4 could not be written: no room"
        );
    }
}

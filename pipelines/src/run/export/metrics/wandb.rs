//! JSON lines with the names that W&B's history has: one line per step, with its validations, flat names, `_step`, `_timestamp`
//! (seconds since 1970) and `training_s` (seconds of training up to the step). A number that is not finite is null.

use super::form::{Form, Moment};
use crate::journal::{Kind, Line};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Whether a file that begins like this is one of these: others have `_step` too, but not both fields in this order.
pub(super) fn is_start(bytes: &[u8]) -> bool {
    let step = bytes.strip_prefix(br#"{"_step":"#).unwrap_or_default();
    let digits = step.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && step[digits..].starts_with(br#","_timestamp":"#)
}

/// Writer of the lines.
pub(super) struct Wandb<W> {
    out: W,
    /// The step that is not complete yet.
    row: Option<Map<String, Value>>,
}

impl<W: Write> Wandb<W> {
    pub(super) fn new(out: W) -> Wandb<W> {
        Wandb { out, row: None }
    }
}

impl<W: Write> Form for Wandb<W> {
    fn line(&mut self, line: &Line, at: Moment) -> io::Result<()> {
        let is_same = |row: &Map<String, Value>| row.get("_step") == Some(&line.step.into());
        if line.kind == Kind::Step || !self.row.as_ref().is_some_and(is_same) {
            self.finish()?;
        }
        let row = self.row.get_or_insert_with(|| {
            let mut row = Map::new();
            row.insert("_step".to_owned(), line.step.into());
            row.insert("_timestamp".to_owned(), json!(at.unix));
            row.insert("training_s".to_owned(), json!(at.seconds));
            row
        });
        for (name, value) in &line.values {
            row.insert(name.clone(), json!(value));
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.row.take() {
            Some(row) => writeln!(self.out, "{}", Value::Object(row)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_and_its_validations_are_one_line() {
        let mut bytes = Vec::new();
        let mut file = Wandb::new(&mut bytes);
        let lines = [
            r#"{"step":1,"loss":null,"routing":{"max_load":1.5}}"#,
            r#"{"step":1,"valid_loss":2.5}"#,
            r#"{"step":1,"set":"news","valid_loss":3}"#,
            r#"{"step":2,"loss":4}"#,
        ];
        for (at, line) in lines.iter().enumerate() {
            let at = Moment {
                unix: 1000.0 + at as f64,
                seconds: 0.25,
            };
            let line = Line::parse(line.as_bytes()).unwrap();
            file.line(&line, at).unwrap();
        }
        file.finish().unwrap();
        let want = concat!(
            r#"{"_step":1,"_timestamp":1000.0,"training_s":0.25,"loss":null,"routing.max_load":1.5,"valid_loss":2.5,"valid_loss/news":3.0}"#,
            "\n",
            r#"{"_step":2,"_timestamp":1003.0,"training_s":0.25,"loss":4.0}"#,
            "\n"
        );
        let found = String::from_utf8(bytes).unwrap();
        assert_eq!(found, want);
        assert!(is_start(found.as_bytes()));
        for other in [
            "",
            "{\"_step\":",
            "{\"_step\":1,\"loss\":2.0}",
            "{\"_step\":,\"_timestamp\":1}",
        ] {
            assert!(!is_start(other.as_bytes()), "{other}");
        }
    }
}

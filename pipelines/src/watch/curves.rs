//! All curves of a run, from the lines of its `metrics.jsonl`.

use super::curve::{Curve, Point};
use crate::journal::{Kind, Line, Lines};
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};

/// Fields of a run at most; more belong to no file that Millrace wrote.
const MOST_FIELDS: usize = 128;
/// Names of further fields that are counted once each.
const MOST_LEFT_OUT: usize = 1024;
/// Steps with numbers that are not finite that are held; of more only the count.
const MOST_NOT_FINITE: usize = 1 << 16;
/// Notes that are held, the newest.
const MOST_NOTES: usize = 8;

/// Something that a line says in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Note {
    pub step: u64,
    pub text: String,
}

/// Numbers that were not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NotFinite {
    /// Steps with such a number.
    pub steps: u64,
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
}

/// The steps with numbers that are not finite.
#[derive(Debug, Default)]
struct Steps {
    /// The first of them, in order.
    held: Vec<u64>,
    /// Those behind.
    more: u64,
    /// The last of all.
    last: u64,
}

impl Steps {
    fn add(&mut self, step: u64) {
        match self.held.binary_search(&step) {
            Ok(_) => {}
            Err(at) if self.held.len() < MOST_NOT_FINITE => {
                self.held.insert(at, step);
                self.last = self.last.max(step);
            }
            Err(_) if step > self.last => {
                self.more += 1;
                self.last = step;
            }
            Err(_) => {}
        }
    }

    /// Removes those from `step` on. Of those that are only counted as many are left as there are steps before it.
    fn cut(&mut self, step: u64) {
        let kept = self.held.partition_point(|held| *held < step);
        let is_whole = kept == self.held.len();
        self.held.truncate(kept);
        let end = self.held.last().copied().unwrap_or_default();
        let room = match is_whole {
            true => step.saturating_sub(end.saturating_add(1)),
            false => 0,
        };
        self.more = self.more.min(room);
        self.last = match self.more {
            0 => end,
            _ => self.last.min(step - 1),
        };
    }

    fn summary(&self) -> Option<NotFinite> {
        Some(NotFinite {
            steps: self.held.len() as u64 + self.more,
            first: *self.held.first()?,
            last: self.last,
        })
    }
}

/// Fields without a curve.
#[derive(Debug, Default)]
struct LeftOut {
    /// Step of the first.
    step: u64,
    names: BTreeSet<String>,
}

/// The curves of a run, by field, in the order in which the fields came.
#[derive(Debug, Default)]
pub(super) struct Curves {
    fields: Vec<Field>,
    notes: VecDeque<Note>,
    left_out: LeftOut,
    not_finite: Steps,
    /// The last step with a line of its own.
    step: u64,
    /// Tokens and seconds up to it.
    tokens: f64,
    seconds: f64,
}

#[derive(Debug)]
struct Field {
    name: String,
    curve: Curve,
}

impl Curves {
    /// Names of the fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// The curve of a field.
    pub(super) fn get(&self, name: &str) -> Option<&Curve> {
        let found = self.fields.iter().find(|field| field.name == name)?;
        Some(&found.curve)
    }

    /// The newest number of a field.
    pub(super) fn last(&self, name: &str) -> Option<f64> {
        Some(self.get(name)?.last()?.value)
    }

    /// The last notes, the oldest first, and one about fields without a curve.
    pub(super) fn notes(&self) -> Vec<Note> {
        let left_out = &self.left_out;
        let more = match left_out.names.len() {
            0 => None,
            MOST_LEFT_OUT => Some(format!("{MOST_LEFT_OUT} or more")),
            names => Some(names.to_string()),
        };
        let more = more.map(|names| Note {
            step: left_out.step,
            text: format!("fields beyond the first {MOST_FIELDS}, which have no curve: {names}"),
        });
        self.notes.iter().cloned().chain(more).collect()
    }

    pub(super) fn not_finite(&self) -> Option<NotFinite> {
        self.not_finite.summary()
    }

    /// Adds a line behind the others. A step that comes again stands for all from there on.
    pub(super) fn add(&mut self, line: Line) {
        if let Some(text) = line.note.clone() {
            self.notes.push_back(Note {
                step: line.step,
                text,
            });
            if self.notes.len() > MOST_NOTES {
                self.notes.pop_front();
            }
        }
        match line.kind {
            Kind::Step => {
                if line.step <= self.step {
                    self.cut(line.step);
                }
                self.step = line.step;
                self.tokens = line.value("tokens").unwrap_or(self.tokens);
                self.seconds += line.seconds();
            }
            Kind::Validation => {}
            Kind::Note => return,
        }
        if line.values.iter().any(|(_, value)| !value.is_finite()) {
            self.not_finite.add(line.step);
        }
        for (name, value) in line.values {
            let point = Point {
                step: line.step,
                tokens: self.tokens,
                seconds: self.seconds,
                value,
            };
            self.push(name, point);
        }
    }

    fn push(&mut self, name: String, point: Point) {
        let found = self.fields.iter().position(|field| field.name == name);
        match found {
            Some(at) => self.fields[at].curve.push(point),
            None if self.fields.len() < MOST_FIELDS => {
                let mut curve = Curve::new();
                curve.push(point);
                self.fields.push(Field { name, curve });
            }
            None if self.left_out.names.len() < MOST_LEFT_OUT => {
                if self.left_out.names.is_empty() {
                    self.left_out.step = point.step;
                }
                self.left_out.names.insert(name);
            }
            None => {}
        }
    }

    /// Removes everything from `step` on: the run went back to an earlier step.
    fn cut(&mut self, step: u64) {
        for field in &mut self.fields {
            field.curve.cut(step);
        }
        self.notes.retain(|note| note.step < step);
        self.not_finite.cut(step);
        if self.left_out.step >= step {
            self.left_out = LeftOut::default();
        }
        let before = self.get("tokens").and_then(Curve::last);
        self.tokens = before.map_or(0.0, |point| point.tokens);
        self.seconds = before.map_or(0.0, |point| point.seconds);
    }
}

impl Lines for Curves {
    fn restart(&mut self) {
        *self = Curves::default();
    }

    fn line(&mut self, line: &[u8]) {
        if let Some(line) = Line::parse(line) {
            self.add(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::curve::{Axis, Window};
    use super::*;

    fn of(lines: &[&str]) -> Curves {
        let mut curves = Curves::default();
        lines.iter().for_each(|line| curves.line(line.as_bytes()));
        curves
    }

    fn drawn(curves: &Curves, field: &str, axis: Axis) -> Vec<[f64; 2]> {
        let window = Window {
            axis,
            from: f64::NEG_INFINITY,
            to: f64::INFINITY,
            points: 100,
            smoothing: 0.0,
        };
        curves.get(field).unwrap().draw(&window).points
    }

    #[test]
    fn a_validation_is_at_the_tokens_and_the_time_of_its_step() {
        let curves = of(&[
            r#"{"step":1,"loss":3,"tokens":64,"step_s":2}"#,
            r#"{"step":2,"loss":2,"tokens":128,"step_s":2,"stall_s":0.5}"#,
            r#"{"step":2,"valid_loss":2.5,"valid_samples":8}"#,
            r#"{"step":2,"set":"news","valid_loss":2.75,"valid_samples":8}"#,
        ]);
        assert_eq!(drawn(&curves, "valid_loss", Axis::Tokens), [[128.0, 2.5]]);
        assert_eq!(drawn(&curves, "valid_loss/news", Axis::Time), [[4.5, 2.75]]);
        let names: Vec<&str> = curves.names().collect();
        assert_eq!(names[..3], ["loss", "tokens", "step_s"]);
    }

    #[test]
    fn lines_of_an_earlier_step_stand_for_all_from_there_on() {
        let curves = of(&[
            r#"{"step":1,"loss":3,"tokens":64,"step_s":1}"#,
            r#"{"step":2,"loss":null,"tokens":128,"step_s":1}"#,
            r#"{"step":2,"valid_loss":9,"valid_samples":8}"#,
            r#"{"step":3,"loss":1,"tokens":192,"step_s":1,"skipped":"x"}"#,
            r#"{"step":2,"loss":2.5,"tokens":128,"step_s":4}"#,
        ]);
        assert_eq!(drawn(&curves, "loss", Axis::Time), [[1.0, 3.0], [5.0, 2.5]]);
        assert_eq!(
            drawn(&curves, "valid_loss", Axis::Step),
            [] as [[f64; 2]; 0]
        );
        assert_eq!((curves.not_finite(), curves.notes()), (None, Vec::new()));
    }

    #[test]
    fn steps_whose_loss_is_not_finite_are_counted() {
        let curves = of(&[
            r#"{"step":1,"loss":3}"#,
            r#"{"step":2,"loss":null,"grad_norm":null}"#,
            r#"{"step":4,"loss":null}"#,
        ]);
        let want = NotFinite {
            steps: 2,
            first: 2,
            last: 4,
        };
        assert_eq!(curves.not_finite(), Some(want));
        assert_eq!(curves.last("loss"), Some(3.0));
    }

    #[test]
    fn a_step_whose_loss_is_not_finite_again_after_a_rewind_counts_once() {
        let mut curves = of(&[
            r#"{"step":2,"loss":null}"#,
            r#"{"step":3,"loss":3}"#,
            r#"{"step":4,"loss":null}"#,
            r#"{"step":3,"loss":3}"#,
        ]);
        let of = |steps, first, last| Some(NotFinite { steps, first, last });
        assert_eq!(curves.not_finite(), of(1, 2, 2));
        curves.line(br#"{"step":4,"loss":null}"#);
        assert_eq!(curves.not_finite(), of(2, 2, 4));
        curves.line(br#"{"step":1,"loss":3}"#);
        assert_eq!(curves.not_finite(), None);
    }

    #[test]
    fn more_steps_that_are_not_finite_than_are_held_are_counted_across_a_rewind() {
        let mut steps = Steps::default();
        let most = MOST_NOT_FINITE as u64;
        (1..=most + 10).for_each(|step| steps.add(step));
        let of = |steps, last| {
            let first = 1;
            Some(NotFinite { steps, first, last })
        };
        assert_eq!(steps.summary(), of(most + 10, most + 10));
        steps.cut(most + 5);
        assert_eq!(steps.summary(), of(most + 4, most + 4));
        steps.cut(most);
        assert_eq!(steps.summary(), of(most - 1, most - 1));
        steps.cut(1);
        assert_eq!(steps.summary(), None);
    }

    #[test]
    fn fields_without_a_curve_are_counted_in_a_note() {
        let fields: Vec<String> = (0..MOST_FIELDS + 1)
            .map(|n| format!("\"f{n}\":1"))
            .collect();
        let line = |step: u64| format!("{{\"step\":{step},\"loss\":3,{}}}", fields.join(","));
        let curves = of(&[&line(1), &line(2)]);
        assert_eq!(curves.names().count(), MOST_FIELDS);
        let want = Note {
            step: 1,
            text: "fields beyond the first 128, which have no curve: 2".to_owned(),
        };
        assert_eq!(curves.notes(), [want]);
    }
}

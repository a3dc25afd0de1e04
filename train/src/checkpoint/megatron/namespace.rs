//! Settings of a Megatron-LM run: the namespace of its argument parser, in `common.pt`. A setting that is missing or None has its
//! default; one of another type than the parser's is a problem with its name, and no default.

use std::cell::RefCell;

use crate::checkpoint::torch::pickle::{Pickle, Ref, Value};

/// The namespace, and what is wrong with the settings that were asked for.
pub(super) struct Args<'p> {
    pickle: &'p Pickle,
    table: Option<Ref>,
    problems: RefCell<Vec<String>>,
}

impl<'p> Args<'p> {
    pub(super) fn of(pickle: &'p Pickle, args: Ref) -> Args<'p> {
        let object = pickle.object(args, ["argparse", "Namespace"]);
        let table = match object {
            Some((_, state)) => state,
            // newer ones keep a plain table
            None => Some(args),
        };
        Args {
            pickle,
            table,
            problems: RefCell::default(),
        }
    }

    /// A setting, unless it is missing or None.
    pub(super) fn get(&self, name: &str) -> Option<&'p Value> {
        let value = self.pickle.value(self.pickle.get(self.table?, name)?);
        (*value != Value::None).then_some(value)
    }

    /// A setting that is one value or, as those of several losses, a list of one.
    fn get_one(&self, name: &str) -> Option<&'p Value> {
        match self.get(name)? {
            Value::List(items) if items.len() == 1 => Some(self.pickle.value(items[0])),
            other => Some(other),
        }
    }

    /// Numbers of a list.
    pub(super) fn items(&self, list: &'p [Ref]) -> impl Iterator<Item = &'p Value> {
        list.iter().map(|item| self.pickle.value(*item))
    }

    pub(super) fn wrong(&self, name: &str, found: &str, wanted: &str) {
        let line = format!("args.{name}: found {found}, want {wanted}");
        self.problems.borrow_mut().push(line);
    }

    /// Refuses a setting that has a value.
    pub(super) fn refuse(&self, name: &str, wanted: &str) {
        if let Some(value) = self.get(name) {
            self.wrong(name, &shown(value), wanted);
        }
    }

    /// Refuses a flag that is set.
    pub(super) fn refuse_flag(&self, name: &str) {
        if self.flag(name) {
            self.wrong(name, "True", "False");
        }
    }

    /// All problems so far, which are taken.
    pub(super) fn problems(&self) -> Vec<String> {
        self.problems.take()
    }

    pub(super) fn count(&self, name: &str) -> Option<usize> {
        let value = self.get(name)?;
        let count = match value {
            Value::Int(n) => usize::try_from(*n).ok(),
            _ => None,
        };
        if count.is_none() {
            self.wrong(name, &shown(value), "a count");
        }
        count
    }

    pub(super) fn needed(&self, name: &str) -> usize {
        if self.get(name).is_none() {
            self.wrong(name, "nothing", "a count");
        }
        self.count(name).unwrap_or(1)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(name, &shown(other), "True or False");
                false
            }
        }
    }

    pub(super) fn text(&self, name: &str, default: &'p str) -> &'p str {
        match self.get_one(name) {
            None => default,
            Some(Value::Text(text)) => text,
            Some(other) => {
                self.wrong(name, &shown(other), "a text");
                default
            }
        }
    }

    /// A number as f32, which the model's numbers are.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the model's numbers are f32"
    )]
    pub(super) fn number(&self, name: &str, default: f32) -> f32 {
        self.wide(name).map_or(default, |x| x as f32)
    }

    /// A number, if there is one.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a whole number in place of a fraction is a small one"
    )]
    pub(super) fn wide(&self, name: &str) -> Option<f64> {
        match self.get_one(name)? {
            Value::Float(x) => Some(*x),
            Value::Int(n) => Some(*n as f64),
            other => {
                self.wrong(name, &shown(other), "a number");
                None
            }
        }
    }
}

/// A value as Python prints it, if it is a plain one.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::None => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) => format!("a list of {}", items.len()),
        Value::Tuple(items) => format!("a tuple of {}", items.len()),
        Value::Bytes(_)
        | Value::Dict(_)
        | Value::Class(..)
        | Value::Call(..)
        | Value::Persistent(_) => "an object".into(),
    }
}

//! Metadata of a GGUF file.

use std::collections::{BTreeMap, BTreeSet};

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    /// Whole numbers of any width: the first of u32, i32 and u64 that has the number is written.
    Whole(i128),
    /// f32 or f64, of which f32 is written.
    Real(f64),
    Text(String),
    List(List),
}

/// Items of one type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum List {
    Bools(Vec<bool>),
    /// u8.
    Bytes(Vec<u8>),
    /// Whole numbers of any other width, of which i32 is written.
    Whole(Vec<i128>),
    Reals(Vec<f64>),
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Whole(number as i128)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Bool(flag)
    }
}

impl From<f32> for Value {
    fn from(number: f32) -> Value {
        Value::Real(f64::from(number))
    }
}

/// The nearest f32, which files have.
#[expect(clippy::cast_possible_truncation, reason = "files have f32")]
pub(super) fn narrow(x: f64) -> f32 {
    x as f32
}

/// All metadata by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metadata {
    values: BTreeMap<String, Value>,
    /// Keys whose texts were not UTF-8, of which the bytes are lost.
    lossy: BTreeSet<String>,
}

impl Metadata {
    pub(crate) fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.values.insert(key.into(), value.into());
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            Value::Bool(_) | Value::Whole(_) | Value::Real(_) | Value::List(_) => None,
        }
    }

    pub(crate) fn whole(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Whole(number) => u64::try_from(*number).ok(),
            Value::Bool(_) | Value::Real(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// A whole number that has to be there; without it adds a line to `problems` and returns 0.
    pub(super) fn wanted(&self, key: &str, problems: &mut Vec<String>) -> u64 {
        self.whole(key).unwrap_or_else(|| {
            problems.push(format!("{key}: found nothing, want a whole number"));
            0
        })
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(flag) => Some(*flag),
            Value::Whole(_) | Value::Real(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    pub(crate) fn real(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::Real(number) => Some(*number),
            Value::Bool(_) | Value::Whole(_) | Value::Text(_) | Value::List(_) => None,
        }
    }

    /// Whether bytes of a text of this key are not UTF-8.
    pub(crate) fn is_lossy(&self, key: &str) -> bool {
        self.lossy.contains(key)
    }

    pub(crate) fn set_lossy(&mut self, key: &str) {
        self.lossy.insert(key.to_owned());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.values.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

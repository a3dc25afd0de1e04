//! The value of an expression for a document.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value as Json;

use super::kinds::Metrics;
use super::node::{ELEMENT, Function, Join, Node, Path, Step};
use crate::text::{chars, json};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number; what is absent is NaN.
    Number(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// True or false.
    Truth(bool),
    /// A list or an object of the metadata.
    Json(&'a Json),
}

const ABSENT: Value<'_> = Value::Number(f64::NAN);

impl<'a> Value<'a> {
    fn of(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => ABSENT,
            Json::Bool(truth) => Value::Truth(*truth),
            Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
            Json::String(text) => Value::Text(Cow::Borrowed(text)),
            Json::Array(_) | Json::Object(_) => match json::special_number(json) {
                Some(number) => Value::Number(number),
                None => Value::Json(json),
            },
        }
    }

    /// Whether there is no value.
    pub fn is_absent(&self) -> bool {
        matches!(self, Value::Number(number) if number.is_nan())
    }
}

/// The value of a part; `element` is what `it` means.
pub(super) fn value<'a>(
    node: &'a Node,
    metrics: &'a dyn Metrics,
    element: Option<&'a Json>,
) -> Value<'a> {
    let of = |node| value(node, metrics, element);
    let number = |node| number(&value(node, metrics, element));
    match node {
        Node::Number(n) => Value::Number(*n),
        Node::Text(t) => Value::Text(Cow::Borrowed(t)),
        Node::Truth(b) => Value::Truth(*b),
        Node::Name(name) => match metrics.text(name) {
            Some(text) => Value::Text(Cow::Borrowed(text)),
            None => Value::Number(metrics.number(name).unwrap_or(f64::NAN)),
        },
        Node::Path(path) => found(path, metrics, element).map_or(ABSENT, Value::of),
        // only `in` has lists
        Node::List(_) => ABSENT,
        Node::Not(inner) => Value::Truth(of(inner) == Value::Truth(false)),
        Node::Negative(inner) => Value::Number(-number(inner)),
        Node::Matches(text, pattern) => match of(text) {
            Value::Text(text) => Value::Truth(pattern.is_match(&text)),
            _ => Value::Truth(false),
        },
        Node::Same(path, json) => Value::Truth(found(path, metrics, element) == Some(json)),
        Node::Call(function, arguments) => call(*function, arguments, &of),
        Node::Over(function, list, body) => over(
            *function,
            found(list, metrics, element),
            body.as_deref(),
            metrics,
        ),
        Node::Both(left, Join::Or, right) => {
            let is = |n| of(n) == Value::Truth(true);
            Value::Truth(is(left) || is(right))
        }
        Node::Both(left, Join::And, right) => {
            let is = |n| of(n) == Value::Truth(true);
            Value::Truth(is(left) && is(right))
        }
        Node::Both(left, Join::In, right) => Value::Truth(is_in(&of(left), right, &of)),
        Node::Both(left, join, right) => both(&of(left), *join, &of(right)),
    }
}

/// The value at the end of a path.
pub(super) fn found<'a>(
    path: &Path,
    metrics: &'a dyn Metrics,
    element: Option<&'a Json>,
) -> Option<&'a Json> {
    let root = match path.root.as_str() {
        ELEMENT => element,
        root => metrics.field(root),
    };
    let value = path.steps.iter().try_fold(root?, |at, step| match step {
        Step::Name(name) => at.as_object()?.get(name),
        Step::Index(index) => {
            let list = at.as_array()?;
            let index = match usize::try_from(*index) {
                Ok(index) => index,
                Err(_) => {
                    let back = usize::try_from(index.unsigned_abs()).ok()?;
                    list.len().checked_sub(back)?
                }
            };
            list.get(index)
        }
    });
    value.filter(|value| !value.is_null())
}

fn number(value: &Value<'_>) -> f64 {
    match value {
        Value::Number(n) => *n,
        _ => f64::NAN,
    }
}

fn call<'a>(
    function: Function,
    arguments: &'a [Node],
    of: &dyn Fn(&'a Node) -> Value<'a>,
) -> Value<'a> {
    let first = arguments.first().map_or(ABSENT, of);
    match function {
        Function::Ln => Value::Number(number(&first).ln()),
        Function::Min | Function::Max => {
            let numbers = arguments.iter().map(|n| number(&of(n)));
            let best = numbers.reduce(|a, b| extreme(function, a, b));
            Value::Number(best.unwrap_or(f64::NAN))
        }
        Function::Length => match first {
            Value::Text(text) => Value::Number(chars(&text) as f64),
            Value::Json(Json::Array(list)) => Value::Number(list.len() as f64),
            Value::Json(Json::Object(object)) => Value::Number(object.len() as f64),
            _ => ABSENT,
        },
        Function::Bytes => match first {
            Value::Text(text) => Value::Number(text.len() as f64),
            _ => ABSENT,
        },
        Function::Trim => match first {
            Value::Text(Cow::Borrowed(text)) => Value::Text(Cow::Borrowed(text.trim())),
            Value::Text(Cow::Owned(text)) => Value::Text(Cow::Owned(text.trim().to_string())),
            other => other,
        },
        Function::Lower => match first {
            Value::Text(text) => Value::Text(Cow::Owned(text.to_lowercase())),
            other => other,
        },
        Function::Has => Value::Truth(!first.is_absent()),
        Function::Type => Value::Text(Cow::Borrowed(match first {
            first if first.is_absent() => "null",
            Value::Number(_) => "number",
            Value::Text(_) => "string",
            Value::Truth(_) => "boolean",
            Value::Json(Json::Array(_)) => "array",
            Value::Json(_) => "object",
        })),
        Function::Default => match (first.is_absent(), arguments.get(1)) {
            (true, Some(other)) => of(other),
            _ => first,
        },
        // these have nodes of their own
        Function::Sum
        | Function::Mean
        | Function::Count
        | Function::Any
        | Function::All
        | Function::Same
        | Function::Matches => ABSENT,
    }
}

/// `f64`'s own min and max would ignore NaN.
fn extreme(function: Function, a: f64, b: f64) -> f64 {
    match function {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        Function::Min => a.min(b),
        _ => a.max(b),
    }
}

/// A function of the elements of a list.
fn over<'a>(
    function: Function,
    list: Option<&'a Json>,
    body: Option<&'a Node>,
    metrics: &'a dyn Metrics,
) -> Value<'a> {
    let Some(Json::Array(list)) = list else {
        return ABSENT;
    };
    let each = |element: &'a Json| match body {
        Some(body) => value(body, metrics, Some(element)),
        None => Value::of(element),
    };
    let is = |element: &'a Json| each(element) == Value::Truth(true);
    let numbers = || list.iter().map(|element| number(&each(element)));
    match function {
        Function::Any => Value::Truth(list.iter().any(is)),
        Function::All => Value::Truth(list.iter().all(is)),
        Function::Count if body.is_none() => Value::Number(list.len() as f64),
        Function::Count => Value::Number(list.iter().filter(|element| is(element)).count() as f64),
        Function::Sum => Value::Number(numbers().sum()),
        Function::Mean => Value::Number(numbers().sum::<f64>() / list.len() as f64),
        _ => {
            let best = numbers().reduce(|a, b| extreme(function, a, b));
            Value::Number(best.unwrap_or(f64::NAN))
        }
    }
}

/// Whether a value is in a list, a text in a text, a name in an object.
fn is_in<'a>(left: &Value<'a>, right: &'a Node, of: &dyn Fn(&'a Node) -> Value<'a>) -> bool {
    let same = |other: &Value<'_>| both(left, Join::Equal, other) == Value::Truth(true);
    if let Node::List(list) = right {
        return list.iter().any(|node| same(&of(node)));
    }
    match (of(right), left) {
        (Value::Json(Json::Array(list)), _) => list.iter().any(|json| same(&Value::of(json))),
        (Value::Json(Json::Object(object)), Value::Text(name)) => {
            object.contains_key(name.as_ref())
        }
        (Value::Text(text), Value::Text(part)) => {
            memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()
        }
        _ => false,
    }
}

fn both<'a>(left: &Value<'_>, join: Join, right: &Value<'_>) -> Value<'a> {
    let order = match (left, right) {
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Truth(a), Value::Truth(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => {
            let result = match join {
                Join::Plus => a + b,
                Join::Minus => a - b,
                Join::Times => a * b,
                Join::Over => a / b,
                _ => return compared(a.partial_cmp(b), join),
            };
            return Value::Number(result);
        }
        _ => None,
    };
    match join {
        Join::Plus | Join::Minus | Join::Times | Join::Over => ABSENT,
        _ => compared(order, join),
    }
}

fn compared<'a>(order: Option<Ordering>, join: Join) -> Value<'a> {
    use Ordering::{Equal, Greater, Less};
    let Some(order) = order else {
        return Value::Truth(false);
    };
    Value::Truth(match join {
        Join::Less => order == Less,
        Join::LessOrEqual => order != Greater,
        Join::Greater => order == Greater,
        Join::GreaterOrEqual => order != Less,
        Join::Equal => order == Equal,
        _ => order != Equal,
    })
}

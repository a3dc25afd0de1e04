//! The tree of a parsed expression.

use regex::Regex;
use serde_json::Value as Json;

/// A part of an expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Number(f64),
    Text(String),
    Truth(bool),
    /// A metric or a text.
    Name(String),
    /// A value of the metadata.
    Path(Path),
    /// Constants, to the right of `in`.
    List(Vec<Node>),
    Not(Box<Node>),
    Negative(Box<Node>),
    Both(Box<Node>, Join, Box<Node>),
    /// A function of numbers, texts or whole values.
    Call(Function, Vec<Node>),
    /// A function of a list's elements, and what is made of each.
    Over(Function, Path, Option<Box<Node>>),
    Matches(Box<Node>, Regex),
    /// Whether a value is this one, 1 and 1.0 being two.
    Same(Path, Json),
}

impl Node {
    /// Appends every path outside of bodies, each once.
    pub(super) fn paths<'a>(&'a self, into: &mut Vec<&'a Path>) {
        match self {
            Node::Path(path) | Node::Over(_, path, _) | Node::Same(path, _) => {
                if path.root != ELEMENT && !into.iter().any(|known| known.source == path.source) {
                    into.push(path);
                }
            }
            Node::Not(inner) | Node::Negative(inner) | Node::Matches(inner, _) => inner.paths(into),
            Node::Both(left, _, right) => {
                left.paths(into);
                right.paths(into);
            }
            Node::Call(_, arguments) | Node::List(arguments) => {
                for argument in arguments {
                    argument.paths(into);
                }
            }
            Node::Number(_) | Node::Text(_) | Node::Truth(_) | Node::Name(_) => {}
        }
    }
}

/// A way into metadata.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// `meta`, `attributes`, or `it`.
    pub(super) root: String,
    pub(super) steps: Vec<Step>,
    /// As it was written.
    pub(super) source: String,
}

/// The element that a list's function is at.
pub(super) const ELEMENT: &str = "it";

#[derive(Clone, Debug)]
pub(super) enum Step {
    Name(String),
    /// Element of a list; negative ones count from the end.
    Index(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    In,
    Plus,
    Minus,
    Times,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    Sum,
    Mean,
    Count,
    Any,
    All,
    Ln,
    Length,
    Bytes,
    Trim,
    Lower,
    Has,
    Matches,
    Type,
    Default,
    Same,
}

/// Every function by its name.
pub(super) const FUNCTIONS: [(&str, Function); 17] = [
    ("min", Function::Min),
    ("max", Function::Max),
    ("sum", Function::Sum),
    ("mean", Function::Mean),
    ("count", Function::Count),
    ("any", Function::Any),
    ("all", Function::All),
    ("ln", Function::Ln),
    ("length", Function::Length),
    ("bytes", Function::Bytes),
    ("trim", Function::Trim),
    ("lower", Function::Lower),
    ("has", Function::Has),
    ("matches", Function::Matches),
    ("type", Function::Type),
    ("default", Function::Default),
    ("same", Function::Same),
];

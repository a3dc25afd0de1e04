//! Conditions over metrics: `gopher_quality.short_doc >= 80 and (language == "en" or fineweb.list_ratio < 0.2)`.
//!
//! Grammar, loosest first: `or`, `and`, `not`, one comparison (`< <= > >= == !=`), `+ -`, `* /`, `-`, then a number, a quoted
//! text, `true`, `false`, a name, `min(..)`, `max(..)`, `ln(..)`, or brackets. A name is a rule (`filter.rule`) or one of the
//! document's own. A metric that was not measured is NaN: every comparison with it is false, including `!=`.

use std::collections::BTreeSet;

/// Source of an expression's metrics.
pub trait Metrics {
    /// A metric by name; `None` if it was not measured.
    fn number(&self, name: &str) -> Option<f64>;
    /// A text by name; `None` if the name is no text.
    fn text(&self, name: &str) -> Option<&str>;
}

/// A parsed condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    root: Node,
    names: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Text(String),
    Truth(bool),
    Name(String),
    Not(Box<Node>),
    Negative(Box<Node>),
    Both(Box<Node>, Join, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Plus,
    Minus,
    Times,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Min,
    Max,
    Ln,
}

/// Value of a part of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Number(f64),
    Text(&'a str),
    Truth(bool),
}

/// Deeper nesting is refused: parsing and evaluation recurse.
const MOST_DEPTH: usize = 64;
/// Longest text of an expression.
const MOST_BYTES: usize = 16 << 10;

impl Expression {
    /// Parses a condition. `texts` are the names of texts; all other names are numbers.
    ///
    /// # Errors
    /// The byte of the error, found and wanted.
    pub fn parse(source: &str, texts: &[&str]) -> Result<Expression, String> {
        if source.len() > MOST_BYTES {
            return Err(format!(
                "found {} bytes, wanted at most {MOST_BYTES}",
                source.len()
            ));
        }
        let mut parser = Parser {
            source,
            at: 0,
            depth: 0,
            texts,
            names: BTreeSet::new(),
        };
        let (root, kind) = parser.join(0)?;
        parser.expect(kind, Kind::Truth, 0)?;
        parser.space();
        if parser.at < source.len() {
            return Err(parser.wrong("the end, `and` or `or`"));
        }
        Ok(Expression {
            root,
            names: parser.names,
        })
    }

    /// Names in the expression.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Whether the document meets the condition.
    pub fn holds(&self, signals: &dyn Metrics) -> bool {
        value(&self.root, signals) == Value::Truth(true)
    }
}

fn value<'a>(node: &'a Node, signals: &'a dyn Metrics) -> Value<'a> {
    match node {
        Node::Number(n) => Value::Number(*n),
        Node::Text(t) => Value::Text(t),
        Node::Truth(b) => Value::Truth(*b),
        Node::Name(name) => match signals.text(name) {
            Some(text) => Value::Text(text),
            None => Value::Number(signals.number(name).unwrap_or(f64::NAN)),
        },
        Node::Not(inner) => Value::Truth(value(inner, signals) == Value::Truth(false)),
        Node::Negative(inner) => Value::Number(-number(inner, signals)),
        Node::Call(Function::Ln, of) => {
            Value::Number(of.first().map_or(f64::NAN, |n| number(n, signals)).ln())
        }
        // f64's own min and max would ignore NaN
        Node::Call(function, of) => {
            let choose = |a: f64, b: f64| match function {
                _ if a.is_nan() || b.is_nan() => f64::NAN,
                Function::Min => a.min(b),
                _ => a.max(b),
            };
            let numbers = of.iter().map(|n| number(n, signals));
            Value::Number(numbers.reduce(choose).unwrap_or(f64::NAN))
        }
        Node::Both(left, Join::Or, right) => {
            let is = |n| value(n, signals) == Value::Truth(true);
            Value::Truth(is(left) || is(right))
        }
        Node::Both(left, Join::And, right) => {
            let is = |n| value(n, signals) == Value::Truth(true);
            Value::Truth(is(left) && is(right))
        }
        Node::Both(left, join, right) => both(value(left, signals), *join, value(right, signals)),
    }
}

fn number(node: &Node, signals: &dyn Metrics) -> f64 {
    match value(node, signals) {
        Value::Number(n) => n,
        _ => f64::NAN,
    }
}

fn both<'a>(left: Value<'a>, join: Join, right: Value<'a>) -> Value<'a> {
    let order = match (left, right) {
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => {
            let result = match join {
                Join::Plus => a + b,
                Join::Minus => a - b,
                Join::Times => a * b,
                Join::Over => a / b,
                _ => return compared(a.partial_cmp(&b), join),
            };
            return Value::Number(result);
        }
        (Value::Truth(a), Value::Truth(b)) => Some(a.cmp(&b)),
        _ => None,
    };
    compared(order, join)
}

fn compared<'a>(order: Option<std::cmp::Ordering>, join: Join) -> Value<'a> {
    use std::cmp::Ordering::{Equal, Greater, Less};
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

/// Type of a part of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
    Truth,
}

struct Parser<'a> {
    source: &'a str,
    at: usize,
    depth: usize,
    texts: &'a [&'a str],
    names: BTreeSet<String>,
}

/// Joins by how tightly they bind; longer signs before their beginnings.
const LEVELS: [&[(&str, Join)]; 5] = [
    &[("or", Join::Or), ("||", Join::Or)],
    &[("and", Join::And), ("&&", Join::And)],
    &[
        ("<=", Join::LessOrEqual),
        (">=", Join::GreaterOrEqual),
        ("==", Join::Equal),
        ("!=", Join::NotEqual),
        ("<", Join::Less),
        (">", Join::Greater),
    ],
    &[("+", Join::Plus), ("-", Join::Minus)],
    &[("*", Join::Times), ("/", Join::Over)],
];

const COMPARISONS: usize = 2;

impl Parser<'_> {
    fn space(&mut self) {
        let rest = &self.source[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong(&self, wanted: &str) -> String {
        let rest = self.source[self.at..].split_whitespace().next();
        let found = rest.map_or("the end".to_string(), |r| format!("{r:?}"));
        format!("byte {}: found {found}, wanted {wanted}", self.at)
    }

    fn expect(&self, found: Kind, wanted: Kind, from: usize) -> Result<(), String> {
        let name = |kind| match kind {
            Kind::Number => "a number",
            Kind::Text => "a text",
            Kind::Truth => "a condition",
        };
        if found == wanted {
            return Ok(());
        }
        let part = self.source[from..self.at].trim();
        Err(format!(
            "byte {from}: found {}, {part:?}, wanted {}",
            name(found),
            name(wanted)
        ))
    }

    /// A sign or a word at this place.
    fn take(&mut self, sign: &str) -> bool {
        self.space();
        let Some(rest) = self.source[self.at..].strip_prefix(sign) else {
            return false;
        };
        let is_word = sign.bytes().all(|b| b.is_ascii_alphabetic());
        if is_word && rest.starts_with(is_name) {
            return false;
        }
        self.at += sign.len();
        true
    }

    /// Everything that binds at least as tightly as `level`.
    fn join(&mut self, level: usize) -> Result<(Node, Kind), String> {
        let Some(joins) = LEVELS.get(level) else {
            return self.prefix();
        };
        self.space();
        let from = self.at;
        let (mut node, mut kind) = self.inner(level)?;
        loop {
            let Some(&(_, join)) = joins.iter().find(|(sign, _)| self.take(sign)) else {
                return Ok((node, kind));
            };
            let between = self.at;
            let (right, right_kind) = self.inner(level)?;
            kind = match level {
                0 | 1 => {
                    self.expect(kind, Kind::Truth, from)?;
                    self.expect(right_kind, Kind::Truth, between)?;
                    Kind::Truth
                }
                COMPARISONS => {
                    self.expect(right_kind, kind, between)?;
                    Kind::Truth
                }
                _ => {
                    self.expect(kind, Kind::Number, from)?;
                    self.expect(right_kind, Kind::Number, between)?;
                    Kind::Number
                }
            };
            node = Node::Both(Box::new(node), join, Box::new(right));
            if level == COMPARISONS {
                // a < b < c would compare a condition with a number
                return Ok((node, kind));
            }
        }
    }

    fn inner(&mut self, level: usize) -> Result<(Node, Kind), String> {
        // `not` binds looser than comparisons
        if level + 1 == COMPARISONS && self.take("not") {
            let from = self.at;
            let (node, kind) = self.nested(|p| p.inner(level))?;
            self.expect(kind, Kind::Truth, from)?;
            return Ok((Node::Not(Box::new(node)), Kind::Truth));
        }
        self.join(level + 1)
    }

    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        if self.depth == MOST_DEPTH {
            return Err(self.wrong(&format!("at most {MOST_DEPTH} levels")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn prefix(&mut self) -> Result<(Node, Kind), String> {
        if self.take("-") {
            let from = self.at;
            let (node, kind) = self.nested(Self::prefix)?;
            self.expect(kind, Kind::Number, from)?;
            return Ok((Node::Negative(Box::new(node)), Kind::Number));
        }
        if self.take("!") {
            let from = self.at;
            let (node, kind) = self.nested(Self::prefix)?;
            self.expect(kind, Kind::Truth, from)?;
            return Ok((Node::Not(Box::new(node)), Kind::Truth));
        }
        if self.take("(") {
            let parsed = self.nested(|p| p.join(0))?;
            return if self.take(")") {
                Ok(parsed)
            } else {
                Err(self.wrong("`)`"))
            };
        }
        self.space();
        let rest = &self.source[self.at..];
        match rest.chars().next() {
            Some(c) if c.is_ascii_digit() || c == '.' => {
                let sign = |i: usize| i > 0 && matches!(rest.as_bytes()[i - 1], b'e' | b'E');
                let end = rest
                    .char_indices()
                    .find(|&(i, c)| {
                        !(c.is_ascii_alphanumeric()
                            || c == '.'
                            || (matches!(c, '+' | '-') && sign(i)))
                    })
                    .map_or(rest.len(), |(i, _)| i);
                let number = rest[..end].parse().map_err(|_| self.wrong("a number"))?;
                self.at += end;
                Ok((Node::Number(number), Kind::Number))
            }
            Some(quote @ ('"' | '\'')) => {
                let end = rest[1..]
                    .find(quote)
                    .ok_or_else(|| self.wrong("a closed text"))?;
                self.at += end + 2;
                Ok((Node::Text(rest[1..=end].to_string()), Kind::Text))
            }
            Some(c) if is_name(c) => self.name(),
            _ => Err(self.wrong("a name, a number, a text or `(`")),
        }
    }

    fn name(&mut self) -> Result<(Node, Kind), String> {
        let rest = &self.source[self.at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        if matches!(name, "and" | "or" | "not") {
            return Err(self.wrong("a name, a number, a text or `(`"));
        }
        let from = self.at;
        self.at += end;
        let truth = match name {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        if let Some(truth) = truth {
            return Ok((Node::Truth(truth), Kind::Truth));
        }
        if self.take("(") {
            let function = match name {
                "min" => Function::Min,
                "max" => Function::Max,
                "ln" => Function::Ln,
                _ => {
                    return Err(format!(
                        "byte {from}: found {name}(), wanted min, max or ln"
                    ));
                }
            };
            let mut of = Vec::new();
            loop {
                let start = self.at;
                let (node, kind) = self.nested(|p| p.join(0))?;
                self.expect(kind, Kind::Number, start)?;
                of.push(node);
                if !self.take(",") {
                    break;
                }
            }
            if !self.take(")") {
                return Err(self.wrong("`,` or `)`"));
            }
            if function == Function::Ln && of.len() != 1 {
                return Err(format!(
                    "byte {from}: found {} arguments of ln, wanted 1",
                    of.len()
                ));
            }
            return Ok((Node::Call(function, of), Kind::Number));
        }
        self.names.insert(name.to_string());
        let kind = if self.texts.contains(&name) {
            Kind::Text
        } else {
            Kind::Number
        };
        Ok((Node::Name(name.to_string()), kind))
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Document;

    impl Metrics for Document {
        fn number(&self, name: &str) -> Option<f64> {
            match name {
                "chars" => Some(1000.0),
                "gopher_quality.short_doc" => Some(80.0),
                "half" => Some(0.5),
                _ => None,
            }
        }

        fn text(&self, name: &str) -> Option<&str> {
            (name == "language").then_some("en")
        }
    }

    fn parse(source: &str) -> Result<Expression, String> {
        Expression::parse(source, &["language"])
    }

    #[test]
    fn conditions_hold_as_arithmetic_says() {
        for (source, wanted) in [
            ("chars == 1000", true),
            ("chars > 1e3", false),
            ("gopher_quality.short_doc >= 80 and language == 'en'", true),
            ("language == \"de\" or half*2 == 1", true),
            (
                "1 + 2 * 3 == 7 and (1 + 2) * 3 == 9 and 8 / 4 / 2 == 1 and 5 - 2 - 1 == 2",
                true,
            ),
            ("not chars < 10 and not (half > 1 or half < 0)", true),
            ("!(chars < 10) && -half < 0 || false", true),
            ("true or false and false", true),
            (
                "min(chars, 3, half) == 0.5 and max(chars, 3) == chars and ln(1) == 0",
                true,
            ),
            ("language != 'en'", false),
            ("order.is == 1", false),
        ] {
            assert_eq!(parse(source).unwrap().holds(&Document), wanted, "{source}");
        }
    }

    #[test]
    fn a_figure_that_was_not_measured_meets_no_comparison() {
        for source in [
            "x > 1",
            "x < 1",
            "x == x",
            "x != 1",
            "max(x, 1) > 0",
            "x + 1 > 0",
            "ln(x) < 9",
        ] {
            assert!(!parse(source).unwrap().holds(&Document), "{source}");
        }
    }

    #[test]
    fn names_are_told_once_and_sorted() {
        let e = parse("b.c > 1 and a > b.c and language == 'x'").unwrap();
        assert_eq!(e.names().collect::<Vec<_>>(), ["a", "b.c", "language"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (source, wanted) in [
            (
                "",
                "byte 0: found the end, wanted a name, a number, a text or `(`",
            ),
            (
                "chars >",
                "byte 7: found the end, wanted a name, a number, a text or `(`",
            ),
            (
                "chars > 1 half",
                "byte 10: found \"half\", wanted the end, `and` or `or`",
            ),
            (
                "chars",
                "byte 0: found a number, \"chars\", wanted a condition",
            ),
            (
                "chars > 'x'",
                "byte 7: found a text, \"'x'\", wanted a number",
            ),
            (
                "language + 1 > 2",
                "byte 0: found a text, \"language + 1\", wanted a number",
            ),
            (
                "1 < chars < 3",
                "byte 10: found \"<\", wanted the end, `and` or `or`",
            ),
            ("(chars > 1", "byte 10: found the end, wanted `)`"),
            (
                "sqrt(chars) > 1",
                "byte 0: found sqrt(), wanted min, max or ln",
            ),
            ("ln(1, 2) > 1", "byte 0: found 2 arguments of ln, wanted 1"),
            ("chars > 1x", "byte 8: found \"1x\", wanted a number"),
            (
                "language == 'en",
                "byte 12: found \"'en\", wanted a closed text",
            ),
            (
                "chars > 1 and",
                "byte 13: found the end, wanted a name, a number, a text or `(`",
            ),
        ] {
            assert_eq!(parse(source).unwrap_err(), wanted, "{source}");
        }
        assert!(parse(&"(".repeat(1000)).unwrap_err().contains("64 levels"));
        assert!(
            parse(&"not ".repeat(1000))
                .unwrap_err()
                .contains("64 levels")
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_fail_otherwise(source in "([a-z0-9.<>=!&|+*/() '\"-]|and|or|not|\\PC){0,60}") {
            if let Ok(e) = parse(&source) {
                e.holds(&Document);
            }
        }
    }
}

//! jq filters as dolma's mixer reads them (jaq 1.2), as far as they are conditions over one document, translated to expressions.
//!
//! Its language: paths with `?`, constants, `| and or not // + - * /`, comparisons, `if C then A else B end`, `length add min max
//! any all map(f) any(f) all(f) type test("...") startswith("...") endswith("...") has("...") first last`. jq's own ways
//! are kept: null is less than everything, null has length 0, and everything but null and false is true inside a
//! filter; of a filter's result also 0, "" and empty lists are false. All else is refused by name. We differ: where jq fails
//! (a name of a list, a sum of a text and a number) and dolma stops, the comparison is false; texts are not
//! compared with numbers.

use super::place::{MOST_BYTES, Place, quoted};
use crate::text::nesting::Nesting;

/// The expression that holds if a filter's result counts as true.
///
/// # Errors
/// The byte of the error, found and wanted.
pub(super) fn condition(filter: &str) -> Result<String, String> {
    match parse(filter)? {
        Term::Null => Ok("false".to_string()),
        Term::Truth(truth) => Ok(truth),
        Term::Number(number) => Ok(format!("not {number} == 0")),
        Term::Text(text) => Ok(format!("length({text}) > 0")),
        Term::Mapped(list, _) => Ok(format!("count({list}) > 0")),
        Term::Place(place) => match place.expression() {
            None => Ok("true".to_string()),
            Some(text) if matches!(place, Place::Text(_)) => Ok(format!("length({text}) > 0")),
            Some(path) => Ok(format!(
                "(has({path}) and not {path} in [0, false, \"\"] and not default(length({path}), 1) == 0)"
            )),
        },
    }
}

/// The path of a filter that leads to one value.
///
/// # Errors
/// As [`condition`].
pub(super) fn path(filter: &str) -> Result<String, String> {
    match parse(filter)? {
        Term::Place(place) if place.expression().is_some() => {
            Ok(place.expression().unwrap_or_default().to_string())
        }
        _ => Err(format!("found {filter:?}, wanted a path to one value")),
    }
}

fn parse(filter: &str) -> Result<Term, String> {
    let mut parser = Parser {
        filter,
        at: 0,
        depth: 0,
    };
    let term = parser.pipe(&Term::Place(Place::Record))?;
    parser.space();
    match parser.at == filter.len() {
        true => Ok(term),
        false => Err(parser.wrong("the end, an operator or `|`")),
    }
}

/// A value as an expression.
#[derive(Clone, Debug)]
enum Term {
    Null,
    Place(Place),
    Number(String),
    Text(String),
    Truth(String),
    /// `map(...)` of a list.
    Mapped(String, Box<Term>),
}

impl Term {
    /// A value of the metadata, whose kind is not known.
    fn path(&self) -> Option<&str> {
        match self {
            Term::Place(place @ Place::Path(_)) => place.expression(),
            _ => None,
        }
    }

    /// A text, or something that may be one.
    fn text(&self) -> Option<&str> {
        match self {
            Term::Text(text) => Some(text),
            Term::Place(place) => place.expression(),
            _ => None,
        }
    }

    /// A number, or something that may be one.
    fn number(&self) -> Option<&str> {
        match self {
            Term::Number(number) => Some(number),
            _ => self.path(),
        }
    }

    /// Whether jq takes it for true: everything but null and false.
    fn truth(&self) -> String {
        match self {
            Term::Null => "false".to_string(),
            Term::Truth(truth) => truth.clone(),
            _ => match self.path() {
                Some(path) => format!("(has({path}) and not {path} == false)"),
                None => "true".to_string(),
            },
        }
    }
}

struct Parser<'a> {
    filter: &'a str,
    at: usize,
    depth: usize,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Nesting for Parser<'_> {
    const MOST_DEPTH: usize = 48;

    fn depth(&mut self) -> &mut usize {
        &mut self.depth
    }

    fn wrong(&self, wanted: &str) -> String {
        self.wrong_at(self.at, wanted)
    }
}

impl Parser<'_> {
    fn space(&mut self) {
        let rest = &self.filter[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong_at(&self, at: usize, wanted: &str) -> String {
        let rest: String = self.filter[at..].chars().take(20).collect();
        let found = if rest.is_empty() {
            "the end".to_string()
        } else {
            format!("{rest:?}")
        };
        format!("byte {at}: found {found}, wanted {wanted}")
    }

    /// A sign, or a word that ends here.
    fn take(&mut self, sign: &str) -> bool {
        self.space();
        let Some(rest) = self.filter[self.at..].strip_prefix(sign) else {
            return false;
        };
        if sign.ends_with(is_word) && rest.starts_with(is_word) {
            return false;
        }
        self.at += sign.len();
        true
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{sign}`"))),
        }
    }

    /// An expression of a size that is still sensible: conditions occur several times in what they become.
    fn sized(&self, expression: String) -> Result<String, String> {
        match expression.len() > MOST_BYTES {
            true => Err(self.wrong("a shorter filter")),
            false => Ok(expression),
        }
    }

    fn pipe(&mut self, on: &Term) -> Result<Term, String> {
        let mut term = self.alternative(on)?;
        while self.take("|") {
            term = self.alternative(&term)?;
        }
        Ok(term)
    }

    /// `a // b`: b, a constant, for what is null.
    fn alternative(&mut self, on: &Term) -> Result<Term, String> {
        let term = self.or(on)?;
        let from = self.at;
        if !self.take("//") {
            return Ok(term);
        }
        let other = self.or(on)?;
        match (term.path(), other) {
            (Some(path), Term::Number(n)) => Ok(Term::Number(format!("default({path}, {n})"))),
            (Some(path), Term::Text(t)) => Ok(Term::Text(format!("default({path}, {t})"))),
            (Some(_), Term::Truth(t)) if t == "false" => Ok(Term::Truth(term.truth())),
            _ => Err(self.wrong_at(from, "`//` between a path and a constant")),
        }
    }

    fn or(&mut self, on: &Term) -> Result<Term, String> {
        self.logic(on, "or", Self::and)
    }

    fn and(&mut self, on: &Term) -> Result<Term, String> {
        self.logic(on, "and", Self::comparison)
    }

    fn logic(
        &mut self,
        on: &Term,
        word: &str,
        inner: fn(&mut Self, &Term) -> Result<Term, String>,
    ) -> Result<Term, String> {
        let first = inner(self, on)?;
        let mut parts = Vec::new();
        while self.take(word) {
            parts.push(inner(self, on)?.truth());
        }
        if parts.is_empty() {
            return Ok(first);
        }
        parts.insert(0, first.truth());
        let joined = parts.join(&format!(" {word} "));
        Ok(Term::Truth(self.sized(format!("({joined})"))?))
    }

    fn comparison(&mut self, on: &Term) -> Result<Term, String> {
        let left = self.sum(on)?;
        self.space();
        let from = self.at;
        let sign = ["==", "!=", ">=", "<=", ">", "<"]
            .into_iter()
            .find(|sign| self.take(sign));
        let Some(sign) = sign else { return Ok(left) };
        let right = self.sum(on)?;
        let wrong = || self.wrong_at(from, "a comparison of a value with a constant or a number");
        let compared = match sign {
            "==" | "!=" => {
                let equal = equal(&left, &right).ok_or_else(wrong)?;
                match sign {
                    "==" => equal,
                    _ => format!("not {equal}"),
                }
            }
            _ => ordered(&left, sign, &right).ok_or_else(wrong)?,
        };
        Ok(Term::Truth(self.sized(format!("({compared})"))?))
    }

    fn sum(&mut self, on: &Term) -> Result<Term, String> {
        let mut left = self.product(on)?;
        loop {
            let from = self.at;
            let sign = match () {
                () if self.take("+") => "+",
                () if self.take("-") => "-",
                () => return Ok(left),
            };
            let right = self.product(on)?;
            // null + 1 is 1
            let with_zero = |term: &Term| match term.path() {
                Some(path) if sign == "+" => Some(format!("default({path}, 0)")),
                _ => term.number().map(str::to_string),
            };
            let (Some(a), Some(b)) = (with_zero(&left), with_zero(&right)) else {
                return Err(self.wrong_at(from, "numbers on both sides"));
            };
            left = Term::Number(self.sized(format!("({a} {sign} {b})"))?);
        }
    }

    fn product(&mut self, on: &Term) -> Result<Term, String> {
        let mut left = self.postfix(on)?;
        loop {
            self.space();
            let from = self.at;
            if self.filter[from..].starts_with("//") {
                return Ok(left);
            }
            let sign = match () {
                () if self.take("*") => "*",
                () if self.take("/") => "/",
                () => return Ok(left),
            };
            let right = self.postfix(on)?;
            let (Some(a), Some(b)) = (left.number(), right.number()) else {
                return Err(self.wrong_at(from, "numbers on both sides"));
            };
            left = Term::Number(self.sized(format!("({a} {sign} {b})"))?);
        }
    }

    /// A term, and names, numbers and `?` behind it.
    fn postfix(&mut self, on: &Term) -> Result<Term, String> {
        let mut term = self.nested(|p| p.term(on))?;
        loop {
            let rest = &self.filter[self.at..];
            let from = self.at;
            if rest.starts_with('?') && !rest.starts_with("?//") {
                self.at += 1;
                continue;
            }
            let place = match (&term, rest.chars().next()) {
                (Term::Place(place), Some('.' | '[')) => place.clone(),
                (_, Some('[')) => return Err(self.wrong("a path in front of `[`")),
                _ => return Ok(term),
            };
            let next = self.step(&place);
            term = Term::Place(next.map_err(|why| match why.starts_with("byte") {
                true => why,
                false => format!("byte {from}: {why}"),
            })?);
        }
    }

    /// `.name`, `."name"`, `[1]` or `["name"]` of a place.
    fn step(&mut self, place: &Place) -> Result<Place, String> {
        let has_dot = self.filter[self.at..].starts_with('.');
        if has_dot {
            self.at += 1;
        }
        let rest = &self.filter[self.at..];
        if rest.starts_with('[') {
            self.at += 1;
            self.space();
            let next = if self.filter[self.at..].starts_with('"') {
                place.name(&self.text()?)
            } else {
                let rest = &self.filter[self.at..];
                let is_number = |c: char| c.is_ascii_digit() || c == '-';
                let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
                let index = rest[..end].parse::<i64>();
                let index = index.map_err(|_| {
                    self.wrong("a number or a name: `.[]` and slices are not translated")
                })?;
                self.at += end;
                place.index(index)
            };
            self.expect("]")?;
            return next;
        }
        if rest.starts_with('"') {
            let name = self.text()?;
            return place.name(&name);
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end == 0 || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.wrong("a name"));
        }
        self.at += end;
        place.name(&rest[..end])
    }

    /// A text in double quotes, with JSON's escapes.
    fn text(&mut self) -> Result<String, String> {
        self.space();
        let rest = &self.filter[self.at..];
        if !rest.starts_with('"') {
            return Err(self.wrong("a text"));
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        match values.next() {
            Some(Ok(text)) => {
                self.at += values.byte_offset();
                Ok(text)
            }
            _ => Err(self.wrong("a text without `\\(...)`")),
        }
    }

    fn term(&mut self, on: &Term) -> Result<Term, String> {
        self.space();
        let from = self.at;
        let rest = &self.filter[from..];
        match rest.chars().next() {
            Some('.') if rest.starts_with("..") => {
                Err(self.wrong("a path: `..` is not translated"))
            }
            Some('.') => {
                let behind = rest[1..].chars().next();
                if !behind.is_some_and(|c| is_word(c) || c == '"' || c == '[') {
                    self.at += 1;
                    return Ok(on.clone());
                }
                let Term::Place(place) = on else {
                    return Err(self.wrong("a path into a value of the document"));
                };
                let next = self.step(place);
                next.map(Term::Place)
                    .map_err(|why| match why.starts_with("byte") {
                        true => why,
                        false => format!("byte {from}: {why}"),
                    })
            }
            Some('"') => Ok(Term::Text(quoted(&self.text()?)?)),
            Some('(') => {
                self.at += 1;
                let term = self.pipe(on)?;
                self.expect(")")?;
                Ok(term)
            }
            Some(c) if c.is_ascii_digit() || c == '-' => {
                let is_number = |(i, c): (usize, char)| {
                    c.is_ascii_digit()
                        || matches!(c, '.' | 'e' | 'E')
                        || (c == '-' && i == 0)
                        || (matches!(c, '+' | '-') && rest[..i].ends_with(['e', 'E']))
                };
                let end = rest.char_indices().find(|&at| !is_number(at));
                let end = end.map_or(rest.len(), |(i, _)| i);
                if serde_json::from_str::<serde_json::Number>(&rest[..end]).is_err() {
                    return Err(self.wrong("a number"));
                }
                self.at += end;
                Ok(Term::Number(rest[..end].to_string()))
            }
            Some(c) if is_word(c) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                self.at += end;
                self.word(&rest[..end], on, from)
            }
            _ => Err(self.wrong("a path, a constant, a function or `(`")),
        }
    }

    /// A constant or a function by its name.
    fn word(&mut self, word: &str, on: &Term, from: usize) -> Result<Term, String> {
        let known = "null true false if not length add min max any all map type test startswith endswith has first last";
        match word {
            "null" => return Ok(Term::Null),
            "true" | "false" => return Ok(Term::Truth(word.to_string())),
            "if" => return self.choice(on),
            "not" => return Ok(Term::Truth(format!("not {}", on.truth()))),
            _ => {}
        }
        let wrong = |parser: &Self, wanted: &str| {
            Err(parser.wrong_at(from, &format!("{wanted} in front of {word}")))
        };
        let is_call = self.take("(");
        let path = on.path().map(str::to_string);
        let term = match (word, is_call) {
            ("length", false) => match on {
                Term::Null => Term::Number("0".to_string()),
                Term::Mapped(list, _) => Term::Number(format!("count({list})")),
                _ => match (path, on.text()) {
                    (Some(path), _) => Term::Number(format!("default(length({path}), 0)")),
                    (None, Some(text)) => Term::Number(format!("length({text})")),
                    (None, None) => return wrong(self, "a list, an object or a text"),
                },
            },
            ("add" | "min" | "max", false) => {
                let name = if word == "add" { "sum" } else { word };
                match (path, on) {
                    (Some(path), _) => Term::Number(format!("{name}({path})")),
                    (None, Term::Mapped(list, body)) if body.number().is_some() => {
                        let body = body.number().unwrap_or_default();
                        Term::Number(self.sized(format!("{name}({list}, {body})"))?)
                    }
                    _ => return wrong(self, "a list of numbers"),
                }
            }
            ("any" | "all", false) => match (path, on) {
                (Some(path), _) => {
                    let each = Term::Place(Place::Path("it".to_string())).truth();
                    Term::Truth(format!("{word}({path}, {each})"))
                }
                (None, Term::Mapped(list, body)) => {
                    Term::Truth(self.sized(format!("{word}({list}, {})", body.truth()))?)
                }
                _ => return wrong(self, "a list"),
            },
            ("map" | "any" | "all", true) => {
                let Some(path) = path else {
                    return wrong(self, "a list of the document");
                };
                let body = self.pipe(&Term::Place(Place::Path("it".to_string())))?;
                match word {
                    "map" => Term::Mapped(path, Box::new(body)),
                    _ => Term::Truth(self.sized(format!("{word}({path}, {})", body.truth()))?),
                }
            }
            ("type", false) => match (path, on) {
                (Some(path), _) => Term::Text(format!("type({path})")),
                _ => return wrong(self, "a value of the document"),
            },
            ("first" | "last", false) => match on {
                Term::Place(place) => {
                    let index = if word == "first" { 0 } else { -1 };
                    let next = place.index(index);
                    Term::Place(next.map_err(|why| format!("byte {from}: {why}"))?)
                }
                _ => return wrong(self, "a list of the document"),
            },
            ("test" | "startswith" | "endswith" | "has", true) => {
                let Some(text) = on.text().map(str::to_string) else {
                    return wrong(self, "a value of the document");
                };
                match word {
                    "has" => Term::Truth(format!("{} in {text}", quoted(&self.text()?)?)),
                    _ => {
                        let pattern = self.text()?;
                        let pattern = match word {
                            "startswith" => format!("^{}", regex::escape(&pattern)),
                            "endswith" => format!("{}$", regex::escape(&pattern)),
                            _ => pattern,
                        };
                        Term::Truth(format!("matches({text}, {})", quoted(&pattern)?))
                    }
                }
            }
            _ => return Err(self.wrong_at(from, &format!("one of {known}"))),
        };
        if is_call {
            self.expect(")")?;
        }
        Ok(term)
    }

    /// `if C then A elif C then A else B end`, of conditions.
    fn choice(&mut self, on: &Term) -> Result<Term, String> {
        let condition = self.pipe(on)?.truth();
        self.expect("then")?;
        let from = self.at;
        let then = self.pipe(on)?;
        let other = match self.take("elif") {
            true => self.nested(|p| p.choice(on))?,
            false => {
                self.expect("else")?;
                let other = self.pipe(on)?;
                self.expect("end")?;
                other
            }
        };
        let is_truth = |term: &Term| matches!(term, Term::Truth(_) | Term::Null);
        if !is_truth(&then) || !is_truth(&other) {
            return Err(self.wrong_at(from, "conditions behind `then` and `else`"));
        }
        let (then, other) = (then.truth(), other.truth());
        let chosen = match (then.as_str(), other.as_str()) {
            (then, "false") => format!("({condition} and {then})"),
            (then, other) => {
                format!("({condition} and {then} or not {condition} and {other})")
            }
        };
        Ok(Term::Truth(self.sized(chosen)?))
    }
}

/// Equality of two values.
fn equal(left: &Term, right: &Term) -> Option<String> {
    match (left, right) {
        (Term::Null, Term::Null) => Some("true".to_string()),
        (one, Term::Null) | (Term::Null, one) => Some(match one.path() {
            Some(path) => format!("(not has({path}))"),
            None => "false".to_string(),
        }),
        (Term::Truth(a), one) | (one, Term::Truth(a)) if a == "true" || a == "false" => {
            match (one, one.path()) {
                (_, Some(path)) => Some(format!("{path} == {a}")),
                (Term::Truth(b), None) => Some(format!("{b} == {a}")),
                _ => Some("false".to_string()),
            }
        }
        _ => {
            let is_known = left.path().is_none() || right.path().is_none();
            let numbers = left.number().zip(right.number());
            let pair = numbers.or(left.text().zip(right.text()));
            let (a, b) = pair.filter(|_| is_known)?;
            Some(format!("{a} == {b}"))
        }
    }
}

/// An order of two values; null comes before everything.
fn ordered(left: &Term, sign: &str, right: &Term) -> Option<String> {
    let is_known = left.path().is_none() || right.path().is_none();
    let numbers = left.number().zip(right.number());
    let pair = numbers.or(left.text().zip(right.text()));
    let (a, b) = pair.filter(|_| is_known)?;
    let less = match sign {
        "<" | "<=" => left.path(),
        _ => right.path(),
    };
    Some(match less {
        Some(path) => format!("not has({path}) or {a} {sign} {b}"),
        None => format!("{a} {sign} {b}"),
    })
}

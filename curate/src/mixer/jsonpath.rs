//! JSONPath patterns as dolma's mixer reads them (jsonpath-rust 0.3.5), translated to expressions.
//!
//! A pattern holds if it finds something. Its language: `$.a.b[0]["c"]`, and a filter `[?( ... )]` at the end with `&&`,
//! `||`, `!`, brackets, existence, and `== != < <= > >= ~= in nin`. `$@.` is `$.`. A filter is applied to the
//! elements of a list, and to an object itself. Of that implementation's own ways these are kept: 1 and 1.0 are unequal, also for
//! `<=` and `>=`, and what is absent is unequal to everything. Refused by name: descent, wildcards, slices, unions,
//! `null`, `.length()` (of which it finds nothing), two paths on both sides of `==`, and `&&`, `||` or `!` over elements that are lists (which it looks for inside them).

use super::place::{MOST_BYTES, Place, quoted};
use crate::text::nesting::Nesting;

/// The expression that holds if a pattern finds something.
///
/// # Errors
/// The byte of the error, found and wanted.
pub(super) fn condition(pattern: &str) -> Result<String, String> {
    let mut parser = Parser {
        pattern,
        at: 0,
        depth: 0,
    };
    let place = parser.root()?;
    if parser.is_end() {
        let Some(path) = place.expression() else {
            return Err(parser.wrong("a field"));
        };
        return Ok(format!("has({path})"));
    }
    let condition = parser.filter(&place)?;
    if !parser.is_end() {
        return Err(parser.wrong("the end: what follows a filter is not translated"));
    }
    match condition.len() > MOST_BYTES {
        true => Err(format!(
            "found {} bytes of conditions, wanted fewer",
            condition.len()
        )),
        false => Ok(condition),
    }
}

/// The path of a pattern that leads to one value.
///
/// # Errors
/// As [`condition`].
pub(super) fn path(pattern: &str) -> Result<String, String> {
    let mut parser = Parser {
        pattern,
        at: 0,
        depth: 0,
    };
    let place = parser.root()?;
    match place.expression() {
        Some(path) if parser.is_end() => Ok(path.to_string()),
        _ => Err(parser.wrong("a path to one value")),
    }
}

struct Parser<'a> {
    pattern: &'a str,
    at: usize,
    depth: usize,
}

/// A condition inside a filter.
struct Term {
    expression: String,
    /// The path whose existence it asks for.
    exists: Option<String>,
    /// A path without which it does not hold.
    needs: Option<String>,
    /// The part directly below the element that it looks at.
    looks: Looks,
    /// It holds only if something is there.
    is_positive: bool,
    /// It has `&&`, `||` or `!`.
    is_joined: bool,
}

/// The value that a condition looks at.
#[derive(Clone, Copy, PartialEq)]
enum Looks {
    Names,
    Indexes,
    Both,
    /// The element itself, or constants alone.
    Itself,
}

impl Looks {
    fn with(self, other: Looks) -> Looks {
        match (self, other) {
            (Looks::Itself, one) | (one, Looks::Itself) => one,
            (one, same) if one == same => one,
            _ => Looks::Both,
        }
    }
}

/// One side of a comparison.
enum Side {
    Path(String, Looks),
    Number(String),
    Text(String),
    Truth(bool),
    List(Vec<String>),
}

impl Nesting for Parser<'_> {
    const MOST_DEPTH: usize = 32;

    fn depth(&mut self) -> &mut usize {
        &mut self.depth
    }

    fn wrong(&self, wanted: &str) -> String {
        let rest: String = self.pattern[self.at..].chars().take(20).collect();
        let found = if rest.is_empty() {
            "the end".to_string()
        } else {
            format!("{rest:?}")
        };
        format!("byte {}: found {found}, wanted {wanted}", self.at)
    }
}

impl Parser<'_> {
    fn space(&mut self) {
        let rest = &self.pattern[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn is_end(&mut self) -> bool {
        self.space();
        self.at == self.pattern.len()
    }

    fn take(&mut self, sign: &str) -> bool {
        self.space();
        let is_here = self.pattern[self.at..].starts_with(sign);
        if is_here {
            self.at += sign.len();
        }
        is_here
    }

    /// `$`, `@` behind it, and the path that follows.
    fn root(&mut self) -> Result<Place, String> {
        if !self.take("$") {
            return Err(self.wrong("`$`"));
        }
        self.take("@");
        self.steps(Place::Record).map(|(place, _)| place)
    }

    /// Names and indexes, up to something else; and what the first of them was.
    fn steps(&mut self, from: Place) -> Result<(Place, Looks), String> {
        let (mut place, mut looks) = (from, Looks::Itself);
        loop {
            let before = self.at;
            let (next, first) = if self.take("..") {
                self.at = before;
                return Err(self.wrong("a name: descent is not translated"));
            } else if self.take(".length()") {
                self.at = before;
                return Err(self.wrong("a name: dolma finds no .length()"));
            } else if self.take(".[\"") || self.take("[\"") || self.take(".['") || self.take("['") {
                self.at -= 1;
                let name = self.text()?;
                if !self.take("]") {
                    return Err(self.wrong("`]`: several names are not translated"));
                }
                (place.name(&name), Looks::Names)
            } else if self.take(".*") || self.take("[*") {
                self.at = before;
                return Err(self.wrong("a name or a number: wildcards are not translated"));
            } else if self.take("[?") || self.take(".[?") {
                self.at = before;
                break;
            } else if self.take("[") || self.take(".[") {
                let index = self.whole()?;
                if !self.take("]") {
                    return Err(self.wrong("`]`: slices and several numbers are not translated"));
                }
                (place.index(index), Looks::Indexes)
            } else if self.take(".") {
                let rest = &self.pattern[self.at..];
                let is_key = |c: char| c.is_ascii_alphanumeric() || "_-/\\#".contains(c);
                let end = rest.find(|c| !is_key(c)).unwrap_or(rest.len());
                if end == 0 {
                    return Err(self.wrong("a name"));
                }
                self.at += end;
                (place.name(&rest[..end]), Looks::Names)
            } else {
                break;
            };
            place = next.map_err(|why| format!("byte {before}: {why}"))?;
            if looks == Looks::Itself {
                looks = first;
            }
        }
        Ok((place, looks))
    }

    /// A whole number, not negative.
    fn whole(&mut self) -> Result<i64, String> {
        self.space();
        let rest = &self.pattern[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let end = end.unwrap_or(rest.len());
        let number = rest[..end]
            .parse()
            .map_err(|_| self.wrong("a number from 0"))?;
        self.at += end;
        Ok(number)
    }

    /// A text in quotes; escapes of quotes and backslashes are undone.
    fn text(&mut self) -> Result<String, String> {
        self.space();
        let rest = &self.pattern[self.at..];
        let mut letters = rest.char_indices();
        let quote = letters.next().map(|(_, c)| c);
        let quote = quote.filter(|c| matches!(c, '"' | '\''));
        let quote = quote.ok_or_else(|| self.wrong("a text"))?;
        let mut text = String::new();
        while let Some((i, c)) = letters.next() {
            match c {
                '\\' => match letters.next() {
                    Some((_, c @ ('"' | '\'' | '\\' | '/'))) => text.push(c),
                    _ => return Err(self.wrong("a text without escapes")),
                },
                c if c == quote => {
                    self.at += i + 1;
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err(self.wrong("a closed text"))
    }

    /// `[?( ... )]` on a place.
    fn filter(&mut self, on: &Place) -> Result<String, String> {
        self.take(".");
        if !self.take("[?") || !self.take("(") {
            return Err(self.wrong("`[?(`"));
        }
        let from = self.at;
        let is_object = match on {
            Place::Record => true,
            Place::Path(path) => path == "attributes" || path == "meta",
            Place::Text(_) => return Err(self.wrong("a filter of a list or an object")),
        };
        if is_object {
            let term = self.or(on)?;
            self.close()?;
            return Ok(term.expression);
        }
        // the same condition over each element, and over an object itself
        let element = self.or(&Place::Path("it".to_string()))?;
        let end = self.at;
        let Some(path) = on.expression() else {
            return Err(self.wrong("a field"));
        };
        let each = format!("any({path}, {})", element.expression);
        let expression = match element.looks {
            Looks::Both => {
                self.at = from;
                return Err(self.wrong("names or numbers behind each @"));
            }
            Looks::Indexes if element.is_joined => {
                self.at = from;
                return Err(
                    self.wrong("one comparison: dolma looks for several inside the elements")
                );
            }
            Looks::Indexes => each,
            Looks::Names | Looks::Itself if !element.is_positive => {
                self.at = from;
                return Err(self.wrong(
                    "a filter without `!`, `!=` and `nin`, as this may be a list or an object",
                ));
            }
            Looks::Names | Looks::Itself => {
                self.at = from;
                let itself = self.or(on)?;
                format!("{each} or {}", itself.expression)
            }
        };
        self.at = end;
        self.close()?;
        Ok(expression)
    }

    fn close(&mut self) -> Result<(), String> {
        match self.take(")") && self.take("]") {
            true => Ok(()),
            false => Err(self.wrong("`)]`")),
        }
    }

    fn or(&mut self, at: &Place) -> Result<Term, String> {
        let mut terms = vec![self.and(at)?];
        while self.take("||") {
            terms.push(self.and(at)?);
        }
        Ok(joined(terms, "or"))
    }

    fn and(&mut self, at: &Place) -> Result<Term, String> {
        let mut terms = vec![self.not(at)?];
        while self.take("&&") {
            terms.push(self.not(at)?);
        }
        // `@.a && @.a[0] && @.a[0][2] > 1` is its last comparison, without which the others do not matter
        let needs: Vec<String> = terms.iter().filter_map(|t| t.needs.clone()).collect();
        let is_implied = |term: &Term| {
            let exists = term.exists.as_ref();
            exists.is_some_and(|path| {
                let below = |need: &String| {
                    need.strip_prefix(path.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                };
                needs.iter().any(below)
            })
        };
        let was_joined = terms.len() > 1;
        terms.retain(|term| !is_implied(term));
        let mut term = joined(terms, "and");
        term.is_joined |= was_joined;
        Ok(term)
    }

    fn not(&mut self, at: &Place) -> Result<Term, String> {
        let before = self.at;
        if self.take("!") && !self.pattern[self.at..].starts_with('=') {
            let term = self.nested(|p| p.not(at))?;
            return Ok(Term {
                expression: format!("not ({})", term.expression),
                exists: None,
                needs: None,
                is_positive: false,
                is_joined: true,
                ..term
            });
        }
        self.at = before;
        if self.take("(") {
            let term = self.nested(|p| p.or(at))?;
            if !self.take(")") {
                return Err(self.wrong("`)`"));
            }
            return Ok(term);
        }
        self.comparison(at)
    }

    fn comparison(&mut self, at: &Place) -> Result<Term, String> {
        let from = self.at;
        let left = self.side(at)?;
        const SIGNS: [&str; 9] = ["==", "!=", "~=", ">=", ">", "<=", "<", "in", "nin"];
        let sign = SIGNS.into_iter().find(|sign| self.take(sign));
        let Some(sign) = sign else {
            return match left {
                Side::Path(path, looks) => Ok(Term {
                    expression: format!("has({path})"),
                    exists: Some(path),
                    needs: None,
                    looks,
                    is_positive: true,
                    is_joined: false,
                }),
                _ => Err(self.wrong("a comparison")),
            };
        };
        let right = self.side(at)?;
        let looks = |side: &Side| match side {
            Side::Path(_, looks) => *looks,
            _ => Looks::Itself,
        };
        let both = looks(&left).with(looks(&right));
        let needs = match (&left, &right) {
            (Side::Path(path, _), _) | (_, Side::Path(path, _)) => Some(path.clone()),
            _ => None,
        };
        let is_positive = !matches!(sign, "!=" | "nin");
        let compared = compared(&left, sign, &right);
        let expression = compared.map_err(|why| format!("byte {from}: {why}"))?;
        Ok(Term {
            expression,
            exists: None,
            needs: needs.filter(|_| is_positive),
            looks: both,
            is_positive,
            is_joined: false,
        })
    }

    fn side(&mut self, at: &Place) -> Result<Side, String> {
        self.space();
        let from = self.at;
        let rest = &self.pattern[self.at..];
        if self.take("@") || self.take("$") {
            let is_root = rest.starts_with('$');
            if is_root && !matches!(at, Place::Record) && at.expression() == Some("it") {
                self.at = from;
                return Err(self.wrong("`@` inside a filter of a list"));
            }
            let start = if is_root { Place::Record } else { at.clone() };
            let (place, looks) = self.steps(start)?;
            let Some(path) = place.expression() else {
                self.at = from;
                return Err(self.wrong("a field"));
            };
            return Ok(Side::Path(path.to_string(), looks));
        }
        if rest.starts_with(['"', '\'']) {
            return Ok(Side::Text(quoted(&self.text()?)?));
        }
        if self.take("[") {
            let mut list = Vec::new();
            loop {
                match self.side(at)? {
                    Side::Text(constant) | Side::Number(constant) => list.push(constant),
                    _ => return Err(self.wrong("a text or a number")),
                }
                if !self.take(",") {
                    break;
                }
            }
            return match self.take("]") {
                true => Ok(Side::List(list)),
                false => Err(self.wrong("`,` or `]`")),
            };
        }
        for (word, truth) in [("true", true), ("false", false)] {
            if self.take(word) {
                return Ok(Side::Truth(truth));
            }
        }
        let is_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        if serde_json::from_str::<serde_json::Number>(&rest[..end]).is_err() {
            return Err(self.wrong("a path, a number or a text"));
        }
        self.at += end;
        Ok(Side::Number(rest[..end].to_string()))
    }
}

/// Several conditions as one.
fn joined(mut terms: Vec<Term>, with: &str) -> Term {
    if terms.len() == 1
        && let Some(term) = terms.pop()
    {
        return term;
    }
    let looks = terms.iter().fold(Looks::Itself, |all, t| all.with(t.looks));
    let is_positive = terms.iter().all(|t| t.is_positive);
    let parts: Vec<String> = terms.into_iter().map(|t| t.expression).collect();
    Term {
        expression: format!("({})", parts.join(&format!(" {with} "))),
        exists: None,
        needs: None,
        looks,
        is_positive,
        is_joined: true,
    }
}

/// A comparison as an expression.
fn compared(left: &Side, sign: &str, right: &Side) -> Result<String, String> {
    let number = |side: &Side| match side {
        Side::Path(path, _) => Some(path.clone()),
        Side::Number(number) => Some(number.clone()),
        _ => None,
    };
    // 1 and 1.0 are unequal
    let is_whole = |text: &str| text.parse::<f64>().is_ok_and(|n| n.fract() == 0.0);
    let equal = || match (left, right) {
        (Side::Path(path, _), Side::Number(n)) | (Side::Number(n), Side::Path(path, _))
            if is_whole(n) =>
        {
            Ok(format!("same({path}, {n})"))
        }
        (Side::Path(path, _), Side::Number(text) | Side::Text(text))
        | (Side::Number(text) | Side::Text(text), Side::Path(path, _)) => {
            Ok(format!("{path} == {text}"))
        }
        (Side::Path(path, _), Side::Truth(truth)) | (Side::Truth(truth), Side::Path(path, _)) => {
            Ok(format!("{path} == {truth}"))
        }
        _ => Err(format!(
            "found {sign} of these, wanted a path and a constant"
        )),
    };
    match (sign, left, right) {
        ("==", ..) => equal(),
        ("!=", ..) => Ok(format!("not {}", equal()?)),
        (">" | "<" | ">=" | "<=", ..) => {
            let (Some(a), Some(b)) = (number(left), number(right)) else {
                return Err(format!("found {sign} of these, wanted numbers"));
            };
            if sign.len() == 1 {
                return Ok(format!("{a} {sign} {b}"));
            }
            match (left, right) {
                // equality of a number that is not whole depends on no form
                (Side::Path(..), Side::Number(n)) | (Side::Number(n), Side::Path(..))
                    if is_whole(n) =>
                {
                    Ok(format!("({a} {} {b} or {})", &sign[..1], equal()?))
                }
                (Side::Path(..), Side::Path(..)) => Err(format!(
                    "found {sign} of two paths, wanted a path and a constant"
                )),
                _ => Ok(format!("{a} {sign} {b}")),
            }
        }
        ("~=", Side::Path(path, _), Side::Text(text)) => Ok(format!("matches({path}, {text})")),
        ("in", Side::Path(path, _), Side::List(list)) => {
            Ok(format!("{path} in [{}]", list.join(", ")))
        }
        ("nin", Side::Path(path, _), Side::List(list)) => {
            Ok(format!("not {path} in [{}]", list.join(", ")))
        }
        _ => Err(format!(
            "found {sign} of these, wanted a path and a constant"
        )),
    }
}

//! The parser of expressions.

use std::collections::BTreeSet;
use std::ops::Range;

use regex::{Regex, RegexBuilder};
use serde_json::Value as Json;

use super::kinds::{Kind, Scope};
use super::node::{ELEMENT, FUNCTIONS, Function, Join, Node, Path, Step};
use crate::text::near::nearest;
use crate::text::nesting::Nesting;

/// Longest text of an expression.
const MOST_BYTES: usize = 16 << 10;
/// Bytes that a compiled pattern may take.
const MOST_PATTERN_BYTES: usize = 1 << 20;

/// A parsed expression and the names that it reads.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) root: Node,
    pub(super) kind: Kind,
    /// Names of metrics and texts.
    pub(super) names: BTreeSet<String>,
    /// Paths, as they are written.
    pub(super) paths: BTreeSet<String>,
}

/// Parses an expression of a kind.
pub(super) fn parse(source: &str, wanted: Kind, scope: Scope<'_>) -> Result<Parsed, String> {
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
        scope,
        is_body: false,
        names: BTreeSet::new(),
        paths: BTreeSet::new(),
    };
    let (root, kind) = parser.join(0)?;
    parser.expect(kind, wanted, 0)?;
    parser.space();
    if parser.at < source.len() {
        return Err(parser.wrong("the end, `and` or `or`"));
    }
    Ok(Parsed {
        root,
        kind,
        names: parser.names,
        paths: parser.paths,
    })
}

struct Parser<'a> {
    source: &'a str,
    at: usize,
    depth: usize,
    scope: Scope<'a>,
    /// Inside the second argument of a list's function.
    is_body: bool,
    names: BTreeSet<String>,
    paths: BTreeSet<String>,
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
        ("in", Join::In),
    ],
    &[("+", Join::Plus), ("-", Join::Minus)],
    &[("*", Join::Times), ("/", Join::Over)],
];

const COMPARISONS: usize = 2;
const BEGINNING: &str = "a name, a number, a text or `(`";

impl Nesting for Parser<'_> {
    const MOST_DEPTH: usize = 64;

    fn depth(&mut self) -> &mut usize {
        &mut self.depth
    }

    fn wrong(&self, wanted: &str) -> String {
        let rest = self.source[self.at..].split_whitespace().next();
        let found = rest.map_or("the end".to_string(), |r| format!("{r:?}"));
        format!("byte {}: found {found}, wanted {wanted}", self.at)
    }
}

impl Parser<'_> {
    fn space(&mut self) {
        let rest = &self.source[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn expect(&self, found: Kind, wanted: Kind, from: usize) -> Result<(), String> {
        self.expect_part(found, wanted, from..self.at)
    }

    fn expect_part(&self, found: Kind, wanted: Kind, part: Range<usize>) -> Result<(), String> {
        let from = part.start;
        let name = |kind| match kind {
            Kind::Number => "a number",
            Kind::Text => "a text",
            Kind::Truth => "a condition",
            Kind::Any => "a value",
        };
        if found == wanted || found == Kind::Any || wanted == Kind::Any {
            return Ok(());
        }
        let part = self.source[part].trim();
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
            self.space();
            let between = self.at;
            if join == Join::In {
                let right = self.container(level, kind, from)?;
                return Ok((
                    Node::Both(Box::new(node), join, Box::new(right)),
                    Kind::Truth,
                ));
            }
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

    /// The right side of `in`: constants in brackets, or a value.
    fn container(&mut self, level: usize, left: Kind, from: usize) -> Result<Node, String> {
        if self.take("[") {
            let mut list = Vec::new();
            while !self.take("]") {
                if !list.is_empty() && !self.take(",") {
                    return Err(self.wrong("`,` or `]`"));
                }
                self.space();
                let start = self.at;
                let (node, kind) = self.join(COMPARISONS + 1)?;
                let is_constant = matches!(
                    node,
                    Node::Number(_) | Node::Text(_) | Node::Truth(_) | Node::Negative(_)
                );
                if !is_constant {
                    let part = self.source[start..self.at].trim();
                    return Err(format!("byte {start}: found {part:?}, wanted a constant"));
                }
                self.expect(kind, left, start)?;
                list.push(node);
            }
            return Ok(Node::List(list));
        }
        let start = self.at;
        let (right, kind) = self.inner(level)?;
        if kind != Kind::Any {
            self.expect(kind, Kind::Text, start)?;
            self.expect(left, Kind::Text, from)?;
        }
        Ok(right)
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
            Some('"' | '\'') => Ok((Node::Text(self.text()?), Kind::Text)),
            Some(c) if is_name(c) => self.name(),
            _ => Err(self.wrong(BEGINNING)),
        }
    }

    /// A quoted text; it has no escapes.
    fn text(&mut self) -> Result<String, String> {
        let rest = &self.source[self.at..];
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.ok_or_else(|| self.wrong("a quoted text"))?;
        let end = rest[1..].find(quote);
        let end = end.ok_or_else(|| self.wrong("a closed text"))?;
        self.at += end + 2;
        Ok(rest[1..=end].to_string())
    }

    fn name(&mut self) -> Result<(Node, Kind), String> {
        let rest = &self.source[self.at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        if matches!(name, "and" | "or" | "not" | "in") {
            return Err(self.wrong(BEGINNING));
        }
        let from = self.at;
        self.at += end;
        match name {
            "true" => return Ok((Node::Truth(true), Kind::Truth)),
            "false" => return Ok((Node::Truth(false), Kind::Truth)),
            _ => {}
        }
        if self.take("(") {
            let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
            let Some((_, function)) = known else {
                let known: Vec<&str> = FUNCTIONS.iter().map(|(known, _)| *known).collect();
                let known = known.join(" ");
                return Err(format!(
                    "byte {from}: found {name}(), wanted one of {known}"
                ));
            };
            return self.call(*function, name, from);
        }
        // a path goes on right behind its names
        self.at = from + end;
        let root = name.split('.').next().unwrap_or_default();
        if root == ELEMENT || self.scope.fields.contains(&root) {
            return Ok((Node::Path(self.path(from)?), Kind::Any));
        }
        if self.is_body {
            return Err(format!(
                "byte {from}: found {name:?}, wanted `it` or a constant inside a function of a list's elements"
            ));
        }
        self.names.insert(name.to_string());
        Ok((Node::Name(name.to_string()), self.kind_of(name)))
    }

    /// The kind of a name that leads into no object.
    fn kind_of(&self, name: &str) -> Kind {
        let Scope {
            texts,
            numbers,
            fields,
        } = self.scope;
        if texts.contains(&name) {
            return Kind::Text;
        }
        // a metric has a dot, and so has a path whose object is misspelt
        let is_number = match name.split_once('.') {
            Some((root, _)) => nearest(root, fields.iter().copied()).is_empty(),
            None => numbers.is_empty() || numbers.contains(&name),
        };
        if is_number { Kind::Number } else { Kind::Any }
    }

    /// A path whose first names, from byte `from` on, are read.
    fn path(&mut self, from: usize) -> Result<Path, String> {
        let mut names = self.source[from..self.at].split('.');
        let root = names.next().unwrap_or_default().to_string();
        if (root == ELEMENT) != self.is_body {
            let wanted = match self.is_body {
                true => "`it` or a constant inside a function of a list's elements",
                false => "`it` only inside a function of a list's elements",
            };
            return Err(format!("byte {from}: found {root:?}, wanted {wanted}"));
        }
        let mut steps: Vec<Step> = names.map(|n| Step::Name(n.to_string())).collect();
        loop {
            let rest = &self.source[self.at..];
            if rest.starts_with('[') {
                self.at += 1;
                steps.push(self.index()?);
                if !self.take("]") {
                    return Err(self.wrong("`]`"));
                }
            } else if rest.starts_with('.') {
                let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                let names = rest[1..end].split('.');
                steps.extend(names.map(|n| Step::Name(n.to_string())));
                self.at += end;
            } else {
                break;
            }
        }
        let source = self.source[from..self.at].to_string();
        if steps
            .iter()
            .any(|s| matches!(s, Step::Name(n) if n.is_empty()))
        {
            return Err(format!(
                "byte {from}: found {source:?}, wanted a name behind each dot"
            ));
        }
        if root != ELEMENT {
            self.paths.insert(source.clone());
        }
        Ok(Path {
            root,
            steps,
            source,
        })
    }

    /// The index or key between the brackets of a path.
    fn index(&mut self) -> Result<Step, String> {
        self.space();
        let rest = &self.source[self.at..];
        if rest.starts_with(['"', '\'']) {
            return Ok(Step::Name(self.text()?));
        }
        let digit = |(i, c): &(usize, char)| c.is_ascii_digit() || (*i == 0 && *c == '-');
        let end = rest.char_indices().take_while(digit).count();
        let index = rest[..end].parse();
        let index = index.map_err(|_| self.wrong("a whole number or a quoted name"))?;
        self.at += end;
        Ok(Step::Index(index))
    }

    /// A function whose bracket is open.
    fn call(
        &mut self,
        function: Function,
        name: &str,
        from: usize,
    ) -> Result<(Node, Kind), String> {
        use Function::{All, Any, Count, Max, Mean, Min, Sum};
        let mut of: Vec<(Node, Kind, Range<usize>)> = Vec::new();
        let mut body = None;
        loop {
            self.space();
            let start = self.at;
            let is_list = matches!(of[..], [(Node::Path(_), ..)]);
            let is_body = match function {
                Sum | Mean | Count | Any | All => is_list,
                Min | Max => is_list && self.has_element(),
                _ => false,
            };
            if is_body {
                let outer = std::mem::replace(&mut self.is_body, true);
                let parsed = self.nested(|p| p.join(0));
                self.is_body = outer;
                let (node, kind) = parsed?;
                let wanted = match function {
                    Count | Any | All => Kind::Truth,
                    _ => Kind::Number,
                };
                self.expect(kind, wanted, start)?;
                body = Some(Box::new(node));
                break;
            }
            let (node, kind) = self.nested(|p| p.join(0))?;
            of.push((node, kind, start..self.at));
            if !self.take(",") {
                break;
            }
        }
        if !self.take(")") {
            return Err(self.wrong("`,` or `)`"));
        }
        let arguments = of.len() + usize::from(body.is_some());
        let count = |wanted: usize| match arguments == wanted {
            true => Ok(()),
            false => Err(format!(
                "byte {from}: found {arguments} arguments of {name}, wanted {wanted}"
            )),
        };
        let expect_all = |wanted: Kind| {
            let mut all = of.iter();
            all.try_for_each(|(_, kind, part)| self.expect_part(*kind, wanted, part.clone()))
        };
        let result = match function {
            Any | All => Kind::Truth,
            _ => Kind::Number,
        };
        match function {
            Sum | Mean | Count | Any | All | Min | Max => {
                if let [(Node::Path(list), ..)] = &of[..] {
                    return Ok((Node::Over(function, list.clone(), body), result));
                }
                if !matches!(function, Min | Max) {
                    let wanted =
                        "a list of the metadata and, for each element, an expression over `it`";
                    return Err(format!(
                        "byte {from}: found other arguments of {name}, wanted {wanted}"
                    ));
                }
                expect_all(Kind::Number)?;
            }
            Function::Ln => {
                count(1)?;
                expect_all(Kind::Number)?;
            }
            Function::Bytes | Function::Trim | Function::Lower => {
                count(1)?;
                expect_all(Kind::Text)?;
            }
            Function::Length => {
                count(1)?;
                expect_all(Kind::Text)?;
            }
            Function::Has | Function::Type => count(1)?,
            Function::Default => count(2)?,
            Function::Same => {
                count(2)?;
                return self.same(of, from);
            }
            Function::Matches => {
                count(2)?;
                expect_all(Kind::Text)?;
                return self.matches(of);
            }
        }
        let kind = match function {
            Function::Trim | Function::Lower | Function::Type => Kind::Text,
            Function::Has => Kind::Truth,
            Function::Default => match &of[..] {
                [(_, first, _), (_, second, _)] if first == second => *first,
                _ => Kind::Any,
            },
            _ => result,
        };
        let arguments = of.into_iter().map(|(node, ..)| node).collect();
        Ok((Node::Call(function, arguments), kind))
    }

    fn same(
        &self,
        mut of: Vec<(Node, Kind, Range<usize>)>,
        from: usize,
    ) -> Result<(Node, Kind), String> {
        if let (Some((constant, _, part)), Some((Node::Path(path), ..))) = (of.pop(), of.pop()) {
            let source = self.source[part].trim();
            let constant = match constant {
                Node::Text(text) => Some(Json::String(text)),
                Node::Truth(truth) => Some(truth.into()),
                Node::Number(_) | Node::Negative(_) => serde_json::from_str(source).ok(),
                _ => None,
            };
            if let Some(constant) = constant {
                return Ok((Node::Same(path, constant), Kind::Truth));
            }
        }
        Err(format!(
            "byte {from}: found other arguments of same, wanted a value of the metadata and a constant"
        ))
    }

    fn matches(&self, mut of: Vec<(Node, Kind, Range<usize>)>) -> Result<(Node, Kind), String> {
        let Some((Node::Text(pattern), _, Range { start, .. })) = of.pop() else {
            return Err(
                "found a pattern that is no constant, wanted matches(text, \"pattern\")".into(),
            );
        };
        let pattern = compile(&pattern)
            .map_err(|why| format!("byte {start}: found {why}, wanted a regular expression"))?;
        let text = of.pop().map(|(node, ..)| node);
        let text = text.unwrap_or(Node::Text(String::new()));
        Ok((Node::Matches(Box::new(text), pattern), Kind::Truth))
    }

    /// Whether `it` occurs before the end of these arguments.
    fn has_element(&self) -> bool {
        let mut depth = 0;
        let mut quote = None;
        let rest = &self.source[self.at..];
        let mut word_starts = true;
        for (i, c) in rest.char_indices() {
            match (quote, c) {
                (Some(q), c) if q == c => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, '(') => depth += 1,
                (None, ')') if depth == 0 => return false,
                (None, ')') => depth -= 1,
                (None, 'i') if word_starts => {
                    let behind = rest[i..].strip_prefix(ELEMENT);
                    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                    if behind.is_some_and(|b| b.is_empty() || b.starts_with(ends)) {
                        return true;
                    }
                }
                _ => {}
            }
            word_starts = !is_name(c);
        }
        false
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let regex = RegexBuilder::new(pattern)
        .size_limit(MOST_PATTERN_BYTES)
        .build();
    regex.map_err(|e| {
        let why = e.to_string();
        why.lines().last().unwrap_or_default().to_string()
    })
}

pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

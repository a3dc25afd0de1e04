//! Macros of a paper: definitions, and the text that a use of one stands for.
//!
//! `\newcommand` and its kin and simple `\def`s are expanded, with up to nine arguments. Every expansion counts its
//! length: a paper may expand to no more than a limit, so macros that use themselves end.

use std::collections::HashMap;
use std::rc::Rc;

/// Definitions that are kept.
const MAX_MACROS: usize = 10_000;
/// Length of a definition.
const MAX_BODY: usize = 64 << 10;

/// A definition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Macro {
    pub(super) arguments: usize,
    /// Value of the first argument if it is not given.
    pub(super) default: Option<String>,
    body: String,
}

/// Macros by name, without the backslash.
#[derive(Default)]
pub(super) struct Macros {
    all: HashMap<String, Rc<Macro>>,
}

impl Macros {
    pub(super) fn get(&self, name: &str) -> Option<Rc<Macro>> {
        self.all.get(name).cloned()
    }

    /// Defines a macro; `keeps` one that exists.
    pub(super) fn define(&mut self, name: &str, new: Macro, keeps: bool) {
        let is_known = self.all.contains_key(name);
        if name.is_empty() || new.body.len() > MAX_BODY || (keeps && is_known) {
            return;
        }
        if is_known || self.all.len() < MAX_MACROS {
            self.all.insert(name.to_string(), Rc::new(new));
        }
    }
}

impl Macro {
    pub(super) fn new(arguments: usize, default: Option<String>, body: &str) -> Macro {
        Macro {
            arguments: arguments.min(9),
            default,
            body: body.to_string(),
        }
    }

    /// Bytes that a use reads.
    pub(super) fn cost(&self) -> usize {
        self.body.len()
    }

    /// The text of a use with these arguments; None if it is longer than `most` bytes.
    pub(super) fn expand(&self, arguments: &[String], most: usize) -> Option<String> {
        let mut out = String::new();
        let mut chars = self.body.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '#' {
                out.push(c);
            } else if let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
                chars.next();
                let value = (digit as usize)
                    .checked_sub(1)
                    .and_then(|i| arguments.get(i));
                out.push_str(value.map_or("", String::as_str));
            } else if chars.peek() == Some(&'#') {
                chars.next();
                out.push('#');
            }
            if out.len() > most {
                return None;
            }
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_replace_their_numbers() {
        let of = |body: &str| Macro::new(2, None, body);
        let arguments = ["a".to_string(), "b".to_string()];
        assert_eq!(
            of("#2-#1 ##3 #9.").expand(&arguments, 99).as_deref(),
            Some("b-a #3 .")
        );
        assert_eq!(of("#1#1#1").expand(&["x".repeat(40)], 99), None);
    }

    #[test]
    fn definitions_are_kept_or_replaced() {
        let mut macros = Macros::default();
        macros.define("a", Macro::new(0, None, "1"), false);
        macros.define("a", Macro::new(0, None, "2"), true);
        assert_eq!(macros.get("a"), Some(Rc::new(Macro::new(0, None, "1"))));
        macros.define("a", Macro::new(0, None, "3"), false);
        assert_eq!(macros.get("a"), Some(Rc::new(Macro::new(0, None, "3"))));
    }
}

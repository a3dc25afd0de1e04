//! Python's rules for text where Rust's differ, since prompts must be the same bytes: white space, `strip`,
//! `capitalize`, and literals (`ast.literal_eval`) as some data sets store them.

use serde_json::{Map, Number, Value};

/// `str.isspace` of one character: Unicode's white space and the four separators of ASCII.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip()`
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str.capitalize()`: the first character in upper case, all others in lower case.
pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        None => String::new(),
        Some(first) => {
            let rest = chars.as_str().to_lowercase();
            first.to_uppercase().collect::<String>() + &rest
        }
    }
}

/// `string.punctuation`
pub(super) fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation()
}

/// `ast.literal_eval` of strings, numbers, booleans, `None`, lists, tuples and dictionaries with string keys.
pub(super) fn literal(text: &str) -> Result<Value, String> {
    let mut reader = Literal { rest: text };
    let value = reader.value()?;
    reader.skip_space();
    match reader.rest {
        "" => Ok(value),
        rest => Err(format!("{:?} follows the value", start_of(rest))),
    }
}

fn start_of(text: &str) -> String {
    text.chars().take(20).collect()
}

struct Literal<'a> {
    rest: &'a str,
}

impl Literal<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Skips `sign` if it is next.
    fn take(&mut self, sign: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_space();
        for (name, value) in [
            ("True", Value::Bool(true)),
            ("False", Value::Bool(false)),
            ("None", Value::Null),
        ] {
            if let Some(rest) = self.rest.strip_prefix(name) {
                self.rest = rest;
                return Ok(value);
            }
        }
        match self.rest.chars().next() {
            Some('[') => self.list(']').map(Value::Array),
            Some('(') => self.list(')').map(Value::Array),
            Some('{') => self.dictionary(),
            Some('\'' | '"') => self.string().map(Value::String),
            Some(c) if c == '-' || c.is_ascii_digit() => self.number(),
            _ => Err(format!("{:?} is no literal", start_of(self.rest))),
        }
    }

    fn list(&mut self, end: char) -> Result<Vec<Value>, String> {
        self.rest = &self.rest[1..];
        let mut values = Vec::new();
        while !self.take(end) {
            values.push(self.value()?);
            if !self.take(',') && !self.rest.starts_with(end) {
                return Err(format!("{:?} where , or {end} is due", start_of(self.rest)));
            }
        }
        Ok(values)
    }

    fn dictionary(&mut self) -> Result<Value, String> {
        self.rest = &self.rest[1..];
        let mut map = Map::new();
        while !self.take('}') {
            let Value::String(key) = self.value()? else {
                return Err("a key that is no string".into());
            };
            if !self.take(':') {
                return Err(format!("{:?} where : is due", start_of(self.rest)));
            }
            let value = self.value()?;
            map.insert(key, value);
            if !self.take(',') && !self.rest.starts_with('}') {
                return Err(format!("{:?} where , or }} is due", start_of(self.rest)));
            }
        }
        Ok(Value::Object(map))
    }

    fn number(&mut self) -> Result<Value, String> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        let integer = digits.parse::<i64>().map(Number::from).ok();
        let number = integer.or_else(|| Number::from_f64(digits.parse().ok()?));
        number
            .map(Value::Number)
            .ok_or_else(|| format!("{digits:?} is no number"))
    }

    fn string(&mut self) -> Result<String, String> {
        let mut chars = self.rest.chars();
        let quote = chars.next();
        let mut text = String::new();
        loop {
            let c = chars.next().ok_or("a string without an end")?;
            if Some(c) == quote {
                self.rest = chars.as_str();
                return Ok(text);
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let escape = chars.next().ok_or("a string without an end")?;
            let digits = match escape {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            if digits > 0 {
                let code = chars.as_str().get(..digits).unwrap_or_default();
                let code_point = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
                text.push(code_point.ok_or_else(|| format!("\\{escape}{code} is no character"))?);
                chars = chars.as_str()[digits..].chars();
                continue;
            }
            match escape {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                '\\' | '\'' | '"' => text.push(escape),
                other => text.extend(['\\', other]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn literals_are_read_as_python_reads_them() {
        let text = r#"[{'question': "It's _ .", 'answer': 'B', 'options': ['a\'b', "c\"d", 'e\n', 'caf\xe9'], 'n': -1.5},]"#;
        assert_eq!(
            literal(text),
            Ok(
                json!([{"question": "It's _ .", "answer": "B", "options": ["a'b", "c\"d", "e\n", "café"], "n": -1.5}])
            )
        );
        assert_eq!(literal("(True, None, 3)"), Ok(json!([true, null, 3])));
        for wrong in [
            "", "[1", "{'a' 1}", "name", "'abc", "1 2", "'\\xzz'", "{1: 2}",
        ] {
            assert!(literal(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn capitalize_lowers_the_rest_and_strip_takes_the_separators_of_ascii() {
        assert_eq!(capitalize("tHE Bob"), "The bob");
        assert_eq!(capitalize(""), "");
        assert_eq!(strip("\u{1c} a\u{a0}b \u{85}"), "a\u{a0}b");
    }
}

//! JSON whose records are not lines: an array of objects, or objects that go over several lines.
//!
//! A state machine finds the first and the last byte of each value while the file is streamed, so that memory is bounded by the
//! longest value (RFC 8259's structure of brackets and strings; what is between them is left to the parser). A value that does not
//! end takes what follows it along, as no byte shows where the next one begins.

use memchr::memchr2;

/// First bytes of a file that tell how its records are laid out.
pub(super) const TELLING: usize = 64 << 10;

/// How the records of a JSON file are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// One value per line.
    Lines,
    /// An array of objects.
    Array,
    /// Objects one after the other, the first of them over several lines.
    Objects,
}

impl Layout {
    /// The layout by a file's first bytes: `TELLING` of them, or all.
    pub(super) fn of(text: &[u8]) -> Layout {
        let text = text.trim_ascii_start();
        let opens_object = |text: &[u8]| {
            let inner = text.trim_ascii_start().strip_prefix(b"{");
            inner.is_some_and(|inner| matches!(inner.trim_ascii_start(), [b'"' | b'}', ..]))
        };
        match text {
            [b'[', inner @ ..] if opens_object(inner) && !has_arrays_as_lines(text) => {
                Layout::Array
            }
            // a brace alone on the first line, and behind it a name
            [b'{', inner @ ..] => {
                let end = memchr::memchr(b'\n', inner).unwrap_or(inner.len());
                let (line, rest) = inner.split_at(end);
                let goes_on = rest.trim_ascii_start().starts_with(b"\"");
                match line.trim_ascii().is_empty() && goes_on {
                    true => Layout::Objects,
                    false => Layout::Lines,
                }
            }
            _ => Layout::Lines,
        }
    }
}

/// Whether the first line is a whole array, behind which there is more.
fn has_arrays_as_lines(text: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'\n', text) else {
        return false;
    };
    let (line, rest) = text.split_at(end);
    line.trim_ascii_end().ends_with(b"]") && !rest.trim_ascii_start().is_empty()
}

/// The next thing that a splitter finds in some bytes.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// A value starts at this position.
    Start(usize),
    /// The value ends before this position.
    End(usize),
    /// The array ends before this position.
    Closed(usize),
    /// The bytes have nothing further.
    More,
}

#[derive(PartialEq, Eq, Debug)]
enum State {
    /// Between values.
    Gap,
    /// In a value, inside so many brackets.
    Value {
        depth: u64,
        is_in_string: bool,
        is_escaped: bool,
    },
    /// Behind damage, until a line starts with a brace; whether a line has only been blank so far.
    Lost { is_line_start: bool },
}

/// Finds the values of JSON text.
#[derive(Debug)]
pub(super) struct Splitter {
    is_array: bool,
    state: State,
}

impl Splitter {
    /// For the inside of an array, or for values one after the other.
    pub(super) fn new(is_array: bool) -> Splitter {
        Splitter {
            is_array,
            state: State::Gap,
        }
    }

    /// Whether an array has not ended, as it would have to between two of its values.
    pub(super) fn wants_end(&self) -> bool {
        self.is_array && self.state == State::Gap
    }

    /// Whether the bytes so far end between values.
    pub(super) fn is_between(&self) -> bool {
        match self.state {
            State::Gap | State::Lost { .. } => true,
            State::Value { .. } => false,
        }
    }

    /// Bytes are missing here.
    pub(super) fn lose(&mut self) {
        self.state = State::Lost {
            is_line_start: false,
        };
    }

    /// The next thing; the bytes go on where the answer before ended, or behind all of the bytes before.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Next {
        match &mut self.state {
            State::Gap => self.start(bytes),
            State::Value { .. } => self.end(bytes),
            State::Lost { is_line_start } => {
                let mut at = 0;
                while at < bytes.len() {
                    match bytes[at] {
                        b'\n' => *is_line_start = true,
                        b'{' if *is_line_start => return self.start_at(at),
                        byte => *is_line_start &= byte.is_ascii_whitespace(),
                    }
                    at += 1;
                }
                Next::More
            }
        }
    }

    fn start_at(&mut self, at: usize) -> Next {
        self.state = State::Value {
            depth: 0,
            is_in_string: false,
            is_escaped: false,
        };
        Next::Start(at)
    }

    fn start(&mut self, bytes: &[u8]) -> Next {
        let is_array = self.is_array;
        let between = |byte: &u8| byte.is_ascii_whitespace() || is_array && *byte == b',';
        match bytes.iter().position(|byte| !between(byte)) {
            Some(at) if is_array && bytes[at] == b']' => Next::Closed(at + 1),
            Some(at) => self.start_at(at),
            None => Next::More,
        }
    }

    fn end(&mut self, bytes: &[u8]) -> Next {
        let State::Value {
            depth,
            is_in_string,
            is_escaped,
        } = &mut self.state
        else {
            return Next::More;
        };
        let mut at = 0;
        let end = loop {
            if *is_escaped && at < bytes.len() {
                *is_escaped = false;
                at += 1;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            if *is_in_string {
                let Some(found) = memchr2(b'"', b'\\', rest) else {
                    return Next::More;
                };
                at += found + 1;
                *is_escaped = rest[found] == b'\\';
                *is_in_string = *is_escaped;
                if !*is_in_string && *depth == 0 {
                    break at;
                }
                continue;
            }
            let is_top = *depth == 0;
            let is_telling = |byte: &u8| match byte {
                b'"' | b'{' | b'}' | b'[' | b']' => true,
                b',' => is_top && self.is_array,
                byte => is_top && byte.is_ascii_whitespace(),
            };
            let Some(found) = rest.iter().position(is_telling) else {
                return Next::More;
            };
            at += found + 1;
            match rest[found] {
                b'"' => *is_in_string = true,
                b'{' | b'[' => *depth += 1,
                b'}' | b']' if *depth > 1 => *depth -= 1,
                b'}' | b']' if *depth == 1 => break at,
                // a brace that closes nothing is part of what the parser refuses
                b'}' => {}
                // what ends a number or a word is not part of it
                _ => break at - 1,
            }
        };
        self.state = State::Gap;
        Next::End(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a text that comes in pieces of `size` bytes, and whether the array was closed.
    fn values(text: &str, is_array: bool, size: usize) -> (Vec<String>, bool) {
        let mut splitter = Splitter::new(is_array);
        let (mut values, mut value) = (Vec::new(), String::new());
        for piece in text.as_bytes().chunks(size) {
            let mut at = 0;
            loop {
                let was_inside = !splitter.is_between();
                let (end, next) = match splitter.next(&piece[at..]) {
                    Next::Start(n) => (at + n, "start"),
                    Next::End(n) => (at + n, "end"),
                    Next::Closed(_) => return (values, true),
                    Next::More => (piece.len(), "more"),
                };
                if was_inside {
                    value.push_str(std::str::from_utf8(&piece[at..end]).unwrap());
                }
                at = end;
                match next {
                    "end" => values.push(std::mem::take(&mut value)),
                    "more" => break,
                    _ => {}
                }
            }
        }
        if !value.is_empty() {
            values.push(value);
        }
        (values, false)
    }

    #[test]
    fn values_are_found_whatever_the_pieces() {
        let objects = [
            r#"{"a": "}]\\", "b": [1, {"c": "\"{"}]}"#,
            "{\n  \"a\": 2\n}",
            "{}",
            "17",
            "\"one, two\"",
            "[3, [4]]",
        ];
        let array = format!(" {} ] tail", objects.join(" ,\n"));
        let stream = objects.join("\n");
        for size in 1..array.len() {
            let (found, is_closed) = values(&array, true, size);
            assert_eq!(
                (found, is_closed),
                (objects.map(String::from).to_vec(), true)
            );
            let (found, _) = values(&stream, false, size);
            assert_eq!(found, objects, "{size}");
        }
        let (found, is_closed) = values("{\"a\": 1}, {\"b\"", true, 3);
        assert_eq!((found.len(), is_closed), (2, false));
        assert_eq!(found[1], "{\"b\"");
    }

    #[test]
    fn behind_damage_values_go_on_at_a_line_with_a_brace() {
        let mut splitter = Splitter::new(true);
        splitter.next(b"{\"a\": \"");
        splitter.lose();
        let text = b" {\"x\", 5}\n  {\"b\": 1}";
        assert_eq!(splitter.next(text), Next::Start(12));
        assert_eq!(splitter.next(&text[12..]), Next::End(8));
    }

    #[test]
    fn layouts_are_told_from_the_first_bytes() {
        for (text, want) in [
            ("{\"a\":1}\n{\"a\":2}\n", Layout::Lines),
            ("{ }\n", Layout::Lines),
            ("{\n", Layout::Lines),
            ("{\n{\"a\":2}\n", Layout::Lines),
            ("[1] A note", Layout::Lines),
            ("[{name}]", Layout::Lines),
            ("[\"a\"]", Layout::Lines),
            ("[{\"a\":1}]\n[{\"a\":2}]\n", Layout::Lines),
            ("[{\"a\":1}]\n", Layout::Array),
            (" [\n {\n \"a\": 1},", Layout::Array),
            ("[{}]", Layout::Array),
            ("{\r\n  \"a\": 1\r\n}\r\n", Layout::Objects),
        ] {
            assert_eq!(Layout::of(text.as_bytes()), want, "{text}");
        }
    }
}

//! Characters of a source with the expansions of its macros put in front, within a budget.

/// Expansions inside each other.
const MAX_OPEN: usize = 256;

/// Text that is read, the innermost expansion last.
#[derive(Default)]
pub(super) struct Input {
    open: Vec<(String, usize)>,
    /// Bytes that expansions may still add.
    pub(super) left: usize,
    /// An expansion did not fit.
    pub(super) is_over: bool,
}

impl Input {
    pub(super) fn of(text: String, left: usize) -> Input {
        Input {
            open: vec![(text, 0)],
            left,
            is_over: false,
        }
    }

    /// Puts an expansion in front.
    pub(super) fn push(&mut self, text: String) {
        // what is read already need not be kept
        while self.open.last().is_some_and(|(text, at)| *at == text.len()) {
            self.open.pop();
        }
        // an empty expansion costs something too
        if self.spend(text.len() + 1) {
            if self.open.len() < MAX_OPEN {
                self.open.push((text, 0));
            } else {
                self.give_up();
            }
        }
    }

    /// Takes bytes of the budget; false, and the text ends, if it has fewer.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        if bytes > self.left {
            self.give_up();
            return false;
        }
        self.left -= bytes;
        true
    }

    fn give_up(&mut self) {
        self.stop();
        self.is_over = true;
    }

    /// Ends the text here.
    pub(super) fn stop(&mut self) {
        self.open.clear();
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        loop {
            let (text, at) = self.open.last()?;
            match text[*at..].chars().next() {
                Some(c) => return Some(c),
                None => drop(self.open.pop()),
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        if let Some((_, at)) = self.open.last_mut() {
            *at += c.len_utf8();
        }
        Some(c)
    }

    /// Takes a character if it is the next one.
    pub(super) fn take(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Skips white space; returns the number of line feeds in it.
    pub(super) fn skip_space(&mut self) -> usize {
        let mut lines = 0;
        while let Some(c) = self.peek().filter(|c| c.is_whitespace()) {
            lines += usize::from(c == '\n');
            self.next();
        }
        lines
    }

    /// Name of a command, behind its backslash: letters, or one other character. It ends with the expansion that it
    /// is in.
    pub(super) fn name(&mut self) -> String {
        self.peek();
        let Some((text, at)) = self.open.last_mut() else {
            return String::new();
        };
        let rest = &text[*at..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic() && c != '@');
        let length = match letters.unwrap_or(rest.len()) {
            0 => rest.chars().next().map_or(0, char::len_utf8),
            letters => letters,
        };
        let name = rest[..length].to_string();
        *at += length;
        name
    }

    /// The next argument: a group without its braces, a command or a character.
    pub(super) fn argument(&mut self) -> String {
        self.skip_space();
        match self.peek() {
            Some('{') => {
                self.next();
                self.until('}')
            }
            Some('\\') => {
                self.next();
                format!("\\{}", self.name())
            }
            Some('}') | None => String::new(),
            Some(c) => {
                self.next();
                c.to_string()
            }
        }
    }

    /// An argument in brackets, if there is one.
    pub(super) fn optional(&mut self) -> Option<String> {
        if self.take('[') {
            return Some(self.until(']'));
        }
        None
    }

    /// Text up to a character outside of braces, which is taken too.
    fn until(&mut self, end: char) -> String {
        let mut out = String::new();
        let mut depth = 0;
        while let Some(c) = self.next() {
            match c {
                _ if c == end && depth == 0 => break,
                '\\' => {
                    out.push(c);
                    out.extend(self.next());
                    continue;
                }
                '{' => depth += 1,
                // a bracket that is not closed ends with its group
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                _ => {}
            }
            out.push(c);
        }
        out
    }

    /// Text between two of a character, the first of which is next; None if the line has no second one.
    pub(super) fn between(&mut self, mark: char) -> Option<String> {
        let (text, at) = self.open.last_mut()?;
        let inner = text[*at..].strip_prefix(mark)?;
        let end = inner.find([mark, '\n'])?;
        let found = inner[end..]
            .starts_with(mark)
            .then(|| inner[..end].to_string())?;
        *at += end + 2 * mark.len_utf8();
        Some(found)
    }

    /// Text up to this one, which is taken too.
    pub(super) fn through(&mut self, end: &str) -> String {
        let mut out = String::new();
        while let Some(c) = self.next() {
            out.push(c);
            if c == '}' && out.ends_with(end) || out.len() == end.len() && out == end {
                out.truncate(out.len() - end.len());
                break;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_groups_commands_or_characters() {
        let mut input = Input::of("{a{b}\\}} x\\foo[c]d]\n\n y".to_string(), 10);
        assert_eq!(input.argument(), "a{b}\\}");
        assert_eq!(input.argument(), "x");
        assert_eq!(input.argument(), "\\foo");
        assert_eq!(input.optional().as_deref(), Some("c"));
        assert_eq!(input.optional(), None);
        assert_eq!((input.next(), input.next()), (Some('d'), Some(']')));
        assert_eq!(input.skip_space(), 2);
        assert_eq!(input.argument(), "y");
        assert_eq!(input.argument(), "");
    }

    #[test]
    fn expansions_come_first_and_are_bounded() {
        let mut input = Input::of("b".to_string(), 5);
        input.push("a".to_string());
        assert_eq!(
            (input.next(), input.next(), input.next()),
            (Some('a'), Some('b'), None)
        );
        input.push("1234".to_string());
        assert!(input.is_over);
    }
}

//! Links, bold and italic type inside of paragraphs, as HTML's tags.

use super::{Converter, MAX_INLINE};
use crate::read::flow::escape;

impl Converter {
    /// A link, as `\href` has it.
    pub(super) fn link(&mut self) {
        self.input.optional();
        let target = self.input.argument();
        let mut open = String::new();
        escape(&mut open, &unescaped(&target));
        let open = format!("<a href=\"{}\">", open.replace('"', "%22"));
        self.marked(&open, "</a>");
    }

    /// The next argument between these tags, if it is text inside of a paragraph; else it is read on as it is.
    pub(super) fn marked(&mut self, open: &str, close: &str) {
        if self.input.peek() != Some('{') || self.unmarked > 0 || self.inline + 1 >= MAX_INLINE {
            return;
        }
        let text = self.input.argument();
        let parts = [
            "\n\n", "\\begin", "\\end", "\\par", "\\item", "\\[", "$$", "\\\\", "&",
        ];
        if text.trim().is_empty() || parts.iter().any(|part| text.contains(part)) {
            return self.input.push(text);
        }
        let html = self.inline(text);
        for part in [open, &html, close] {
            self.now.push_str(part);
        }
    }

    /// The next argument as HTML without marks, as names and headings are.
    pub(super) fn unmarked_argument(&mut self) -> String {
        self.unmarked += 1;
        let text = self.inline_argument();
        self.unmarked -= 1;
        text
    }
}

/// An address without the backslashes that TeX wants in front of its special characters.
fn unescaped(address: &str) -> String {
    let mut out = String::with_capacity(address.len());
    let mut chars = address.chars().peekable();
    while let Some(c) = chars.next() {
        let is_escape = c == '\\' && chars.peek().is_some_and(|next| "%#&_~{}".contains(*next));
        if !is_escape {
            out.push(c);
        }
    }
    out.trim().to_string()
}

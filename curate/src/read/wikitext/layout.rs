//! Layout of wikitext: lines to paragraphs, headings, lists, indents, and clean-up after dropped markup.

/// The level and text of `== Heading ==`.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|b| *b == b'=').count().min(6);
    let closing = line.bytes().rev().take_while(|b| *b == b'=').count().min(6);
    let level = level.min(closing);
    if level == 0 || line.len() <= 2 * level {
        return None;
    }
    let text = line[level..line.len() - level].trim();
    (!text.is_empty()).then_some((level, text))
}

/// Lays out the text of a page.
pub(super) fn lay_out(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    // headings seen since the last text: written only once text follows
    let mut pending: Vec<(usize, String)> = Vec::new();
    let mut paragraph_ended = false;
    for raw in source.lines() {
        let line = raw.trim();
        if line.is_empty() || line.bytes().all(|b| b == b'-') && line.len() >= 4 {
            paragraph_ended = true;
            continue;
        }
        if let Some((level, text)) = heading(line) {
            // a section of the same or a higher level starts: the ones before had no text
            pending.retain(|(l, _)| *l < level);
            pending.push((level, tidy(text)));
            continue;
        }
        let (mark, text) = item(line);
        let text = tidy(text);
        if !text.chars().any(char::is_alphanumeric) {
            continue;
        }
        if !pending.is_empty() {
            for (_, heading) in pending.drain(..).filter(|(_, h)| !h.is_empty()) {
                separate(&mut out, "\n\n");
                out.push_str(&heading);
            }
            paragraph_ended = true;
        }
        separate(&mut out, if paragraph_ended { "\n\n" } else { "\n" });
        paragraph_ended = false;
        out.push_str(mark);
        out.push_str(&text);
    }
    out
}

fn separate(out: &mut String, with: &str) {
    if !out.is_empty() {
        out.push_str(with);
    }
}

/// The mark of a list item and its text; `:` and `;` only indent.
fn item(line: &str) -> (&'static str, &str) {
    let text = line.trim_start_matches(['*', '#', ':', ';']);
    let marks = &line[..line.len() - text.len()];
    let mark = if marks.contains(['*', '#']) { "- " } else { "" };
    (mark, text.trim_start())
}

/// Single spaces, and no brackets that only held markup.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let c = if c.is_whitespace() { ' ' } else { c };
        let before_space = rest.peek().is_none_or(|n| n.is_whitespace());
        match c {
            ' ' if out.is_empty() || out.ends_with([' ', '(']) => {}
            ',' | ';' | ':' if out.is_empty() || out.ends_with('(') => {}
            ',' | ';' | '.' if out.ends_with(' ') && before_space => {
                // a template was between the word and its comma
                out.pop();
                if c == '.' || !out.ends_with([',', ';']) {
                    out.push(c);
                }
            }
            ')' => close_bracket(&mut out),
            _ => out.push(c),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Ends a bracket; an empty one that stands alone is removed.
fn close_bracket(out: &mut String) {
    let inner = out.trim_end_matches([' ', ',', ';']).len();
    let alone = out[..inner].ends_with(" (") || inner == 1 && out.starts_with('(');
    if alone {
        out.truncate(inner - 1);
        out.truncate(out.trim_end().len());
    } else {
        out.truncate(inner);
        out.push(')');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_brackets_and_sections_leave_no_trace() {
        assert_eq!(tidy("Kyoto ( , ; ) is  a city ."), "Kyoto is a city.");
        assert_eq!(tidy("Kyoto (; Japanese: x, ) is"), "Kyoto (Japanese: x) is");
        assert_eq!(tidy(", vol. 3"), "vol. 3");
        assert_eq!(tidy("f(x) and f() .5 ..."), "f(x) and f() .5 ...");
        let text = "intro\n\n== A ==\n\n== B ==\n=== C ===\nwords\n* one\n* two\n== D ==\n";
        assert_eq!(lay_out(text), "intro\n\nB\n\nC\n\nwords\n- one\n- two");
    }
}

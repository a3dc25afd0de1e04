//! dolma's replication of C4: page rules on the whole text, then lines cut out with their line feeds.

use super::config::C4Quality;
use super::phrases::{JAVASCRIPT, LOREM, phrases};
use crate::text::{plain, unicode};
use crate::verdict::{KEEP, Verdict, broken};

/// Judges a text; `out` receives the edited page.
pub(super) fn measure(rules: &C4Quality, text: &str, out: &mut String) -> Verdict {
    if rules.filter_curly_bracket && text.contains('{') {
        return Verdict::Break(broken("c4.curly_bracket", "{", "none"));
    }
    let bits = phrases(text);
    if rules.filter_lorem_ipsum && bits & LOREM != 0 {
        return Verdict::Break(broken("c4.lorem_ipsum", "lorem ipsum", "none"));
    }
    if rules.filter_javascript && bits & JAVASCRIPT != 0 {
        return Verdict::Break(broken("c4.javascript", "javascript", "none"));
    }
    for line in text.split_inclusive('\n') {
        let stripped = unicode::strip(line);
        if rules.filter_no_terminal_punct && !stripped.ends_with(['.', '?', '!', '"']) {
            continue;
        }
        let least = rules.min_words_per_line;
        if least > 0 && plain::words(stripped).nth(least - 1).is_none() {
            continue;
        }
        out.push_str(line);
    }
    KEEP
}

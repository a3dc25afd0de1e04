//! Languages of code blocks, as highlighters note them in classes.

use super::html::{Id, Key, Tag, Tree};

/// The language of a `pre`, in lower case: told by its own class, by that of the `code` inside, or by the two elements
/// around it.
pub(super) fn language(tree: &Tree<'_>, pre: Id) -> Option<String> {
    let parent = tree.node(pre).parent;
    let inside =
        (pre + 1 < tree.node(pre).end && tree.node(pre + 1).tag == Tag::Code).then_some(pre + 1);
    let around = (parent < tree.len()).then_some(parent);
    let further = around
        .map(|id| tree.node(id).parent)
        .filter(|&id| id < tree.len());
    [inside, Some(pre), around, further]
        .into_iter()
        .flatten()
        .find_map(|id| of_classes(tree.attribute(id, Key::Class)?))
}

/// Classes of the cell or box around the numbers of the lines of some code: Pygments, highlight.js, CodeRay.
const NUMBERS: [&str; 5] = [
    "linenos",
    "linenodiv",
    "lineno",
    "line-numbers",
    "hljs-ln-numbers",
];

/// Whether a `pre` holds the numbers of the lines of the code beside it: what is around it is named so, and it has nothing but
/// numbers.
pub(super) fn is_line_numbers(tree: &Tree<'_>, pre: Id) -> bool {
    let parent = tree.node(pre).parent;
    let is_named = |id: Id| {
        let classes = (id < tree.len())
            .then(|| tree.attribute(id, Key::Class))
            .flatten();
        let mut names = classes.unwrap_or_default().split_ascii_whitespace();
        names.any(|name| NUMBERS.contains(&name))
    };
    if parent >= tree.len() || !(is_named(parent) || is_named(tree.node(parent).parent)) {
        return false;
    }
    let mut texts = tree.texts_below(pre);
    texts.all(|text| {
        text.bytes()
            .all(|b| b.is_ascii_digit() || b.is_ascii_whitespace())
    })
}

/// Highlighters that have the bare name behind their own: highlight.js, Pandoc, SyntaxHighlighter.
const BEFORE: [&str; 3] = ["hljs", "sourceCode", "brush:"];
/// Highlighters that have it behind a prefix: HTML's advice, prettify, GitHub, Sphinx.
const PREFIXES: [&str; 4] = ["language-", "lang-", "highlight-source-", "highlight-"];
/// Names that tell nothing.
const NOTHING: [&str; 8] = [
    "none",
    "text",
    "plaintext",
    "plain",
    "default",
    "source",
    "nohighlight",
    "notranslate",
];

fn of_classes(classes: &str) -> Option<String> {
    let mut is_next = false;
    for token in classes
        .split([' ', ';', '\t', '\n'])
        .filter(|t| !t.is_empty())
    {
        let name = PREFIXES
            .iter()
            .find_map(|prefix| token.strip_prefix(prefix));
        let name = name.or(is_next.then_some(token));
        is_next = BEFORE.contains(&token);
        let is_name = |name: &&str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"+#-._".contains(&b);
            name.len() <= 20 && name.bytes().all(plain) && !name.is_empty()
        };
        if let Some(name) = name.filter(is_name) {
            let name = name.to_ascii_lowercase();
            return (!NOTHING.contains(&name.as_str())).then_some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::html;

    #[test]
    fn line_numbers_are_told_by_their_cell() {
        for (page, want) in [
            (
                "<table class=highlighttable><td class=linenos><div class=linenodiv><pre><span class=normal>1</span>\n2</pre></div></td>",
                true,
            ),
            ("<table><td class='linenos'><pre>1\n2</pre></td>", true),
            ("<table><td class='linenos'><pre>1 a</pre></td>", false),
            ("<table><td class='code'><pre>1\n2</pre></td>", false),
            ("<pre>1\n2</pre>", false),
        ] {
            let tree = html::parse(page);
            let pre = (0..tree.len())
                .find(|&id| tree.node(id).tag == Tag::Pre)
                .unwrap();
            assert_eq!(is_line_numbers(&tree, pre), want, "{page}");
        }
    }

    #[test]
    fn classes_of_highlighters_tell_the_language() {
        for (page, want) in [
            (
                "<pre><code class='language-Rust'>x</code></pre>",
                Some("rust"),
            ),
            ("<pre class='prettyprint lang-c++'>x</pre>", Some("c++")),
            ("<pre class='sourceCode haskell'>x</pre>", Some("haskell")),
            (
                "<pre><code class='hljs python'>x</code></pre>",
                Some("python"),
            ),
            ("<pre class='brush: js; toolbar: false'>x</pre>", Some("js")),
            (
                "<div class='highlight highlight-source-shell'><pre>x</pre></div>",
                Some("shell"),
            ),
            (
                "<div class='highlight-python3 notranslate'><div class=highlight><pre>x</pre></div></div>",
                Some("python3"),
            ),
            ("<pre><code class='language-plaintext'>x</code></pre>", None),
            ("<pre class='code block'>x</pre>", None),
        ] {
            let tree = html::parse(page);
            let pre = (0..tree.len())
                .find(|&id| tree.node(id).tag == Tag::Pre)
                .unwrap();
            assert_eq!(language(&tree, pre).as_deref(), want, "{page}");
        }
    }
}

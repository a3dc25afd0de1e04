//! Formulas as TeX.
//!
//! Pages have a formula's source beside its picture: in an `annotation` of the encoding `application/x-tex` (KaTeX,
//! MediaWiki, Pandoc), in `alttext` (LaTeXML), or in a script of the type `math/tex` (MathJax 2). Without any of them
//! presentation MathML (W3C MathML Core) is written as TeX, element by element. Formulas stand between `$`, those on
//! lines of their own between `$$`.

use super::html::{Id, Key, Tag, Tree};
use crate::text::entity::push_decoded;

/// Nesting that is written; formulas of people are flatter.
const MAX_DEPTH: usize = 64;
/// Longest formula in bytes.
const MAX_BYTES: usize = 16 << 10;

/// A formula between its marks, if there is one.
pub(super) fn formula(tree: &Tree<'_>, id: Id) -> Option<String> {
    let node = tree.node(id);
    let (source, is_display) = match node.tag {
        Tag::Math => {
            let display = tree.attribute(id, Key::Display);
            (of_math(tree, id), display == Some("block"))
        }
        Tag::Script => {
            let kind = tree.attribute(id, Key::Type)?;
            let mode = kind.strip_prefix("math/tex")?;
            // not decoded: the content of a script is as it is
            (tree.texts_below(id).collect(), mode.contains("display"))
        }
        _ => return None,
    };
    let (source, is_display) = bare(source.trim(), is_display);
    let source = source
        .split_ascii_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    if source.is_empty() || source.len() > MAX_BYTES {
        return None;
    }
    let mark = if is_display { "$$" } else { "$" };
    Some(format!("{mark}{source}{mark}"))
}

/// Without the style that MediaWiki puts around formulas, and whether it stands on a line of its own.
fn bare(source: &str, is_display: bool) -> (&str, bool) {
    let inner = source
        .strip_prefix("{\\displaystyle")
        .and_then(|s| s.strip_suffix('}'));
    let inner = inner.or_else(|| {
        let text = source.strip_prefix("{\\textstyle")?;
        text.strip_suffix('}')
    });
    (inner.unwrap_or(source).trim(), is_display)
}

/// Source of a `math` element.
fn of_math(tree: &Tree<'_>, id: Id) -> String {
    let mut at = id + 1;
    while at < tree.node(id).end {
        let is_tex = |encoding: &str| {
            let encoding = encoding.to_ascii_lowercase();
            encoding == "application/x-tex" || encoding == "tex" || encoding == "latex"
        };
        if tree.node(at).tag == Tag::Annotation
            && tree.attribute(at, Key::Encoding).is_some_and(is_tex)
        {
            return text_of(tree, at);
        }
        at += 1;
    }
    if let Some(source) = tree.value(id, Key::Alttext) {
        return source;
    }
    let mut out = String::new();
    children(tree, id, &mut out, 0);
    out
}

fn text_of(tree: &Tree<'_>, id: Id) -> String {
    let mut text = String::new();
    for raw in tree.texts_below(id) {
        push_decoded(&mut text, raw, false);
    }
    text.trim().to_string()
}

/// The nodes right below one.
fn below(tree: &Tree<'_>, id: Id) -> Vec<Id> {
    let mut found = Vec::new();
    let mut at = id + 1;
    while at < tree.node(id).end {
        if tree.node(at).tag != Tag::Text {
            found.push(at);
        }
        at = tree.node(at).end;
    }
    found
}

fn children(tree: &Tree<'_>, id: Id, out: &mut String, depth: usize) {
    for child in below(tree, id) {
        element(tree, child, out, depth + 1);
    }
}

/// One element as a group.
fn group(tree: &Tree<'_>, id: Option<&Id>, out: &mut String, depth: usize) {
    out.push('{');
    if let Some(&id) = id {
        element(tree, id, out, depth + 1);
    }
    out.push('}');
}

fn element(tree: &Tree<'_>, id: Id, out: &mut String, depth: usize) {
    if depth > MAX_DEPTH || out.len() > MAX_BYTES {
        return;
    }
    let parts = below(tree, id);
    let part = |i: usize| parts.get(i);
    let mut scripts = |marks: &[&str]| {
        group(tree, part(0), out, depth);
        for (i, mark) in marks.iter().enumerate() {
            out.push_str(mark);
            group(tree, part(i + 1), out, depth);
        }
    };
    match tree.node(id).tag {
        Tag::Mi | Tag::Mn | Tag::Mo => symbols(&text_of(tree, id), out),
        Tag::Mtext => {
            let text = text_of(tree, id);
            if !text.is_empty() {
                out.push_str(&format!("\\text{{{text}}}"));
            }
        }
        Tag::Mspace => out.push(' '),
        Tag::Msup | Tag::Mover => scripts(&["^"]),
        Tag::Msub | Tag::Munder => scripts(&["_"]),
        Tag::Msubsup | Tag::Munderover => scripts(&["_", "^"]),
        Tag::Mfrac => {
            out.push_str("\\frac");
            group(tree, part(0), out, depth);
            group(tree, part(1), out, depth);
        }
        Tag::Msqrt => {
            out.push_str("\\sqrt{");
            children(tree, id, out, depth);
            out.push('}');
        }
        Tag::Mroot => {
            out.push_str("\\sqrt[");
            if let Some(&index) = part(1) {
                element(tree, index, out, depth + 1);
            }
            out.push(']');
            group(tree, part(0), out, depth);
        }
        Tag::Mtable => {
            out.push_str("\\begin{matrix}");
            for (i, row) in parts.iter().enumerate() {
                if i > 0 {
                    out.push_str("\\\\");
                }
                for (j, cell) in below(tree, *row).into_iter().enumerate() {
                    if j > 0 {
                        out.push('&');
                    }
                    children(tree, cell, out, depth + 1);
                }
            }
            out.push_str("\\end{matrix}");
        }
        // other annotations are the same formula again
        Tag::Annotation => {}
        _ => children(tree, id, out, depth),
    }
}

/// Characters as TeX; a word of several letters upright.
fn symbols(text: &str, out: &mut String) {
    let is_word = text.chars().count() > 1 && text.chars().all(char::is_alphabetic);
    if is_word {
        out.push_str(&format!("\\mathrm{{{text}}}"));
        return;
    }
    for c in text.chars() {
        match SYMBOLS.iter().find(|(symbol, _)| *symbol == c) {
            Some((_, name)) => out.push_str(&format!("\\{name} ")),
            // invisible times, application and the like
            None if ('\u{2061}'..='\u{2064}').contains(&c) => {}
            None if matches!(c, '{' | '}' | '%' | '#' | '&' | '_' | '$') => {
                out.push('\\');
                out.push(c);
            }
            None => out.push(c),
        }
    }
}

/// Characters with names in TeX.
const SYMBOLS: [(char, &str); 62] = [
    ('\u{3b1}', "alpha"),
    ('\u{3b2}', "beta"),
    ('\u{3b3}', "gamma"),
    ('\u{3b4}', "delta"),
    ('\u{3b5}', "varepsilon"),
    ('\u{3b6}', "zeta"),
    ('\u{3b7}', "eta"),
    ('\u{3b8}', "theta"),
    ('\u{3b9}', "iota"),
    ('\u{3ba}', "kappa"),
    ('\u{3bb}', "lambda"),
    ('\u{3bc}', "mu"),
    ('\u{3bd}', "nu"),
    ('\u{3be}', "xi"),
    ('\u{3c0}', "pi"),
    ('\u{3c1}', "rho"),
    ('\u{3c3}', "sigma"),
    ('\u{3c4}', "tau"),
    ('\u{3c6}', "varphi"),
    ('\u{3c7}', "chi"),
    ('\u{3c8}', "psi"),
    ('\u{3c9}', "omega"),
    ('\u{393}', "Gamma"),
    ('\u{394}', "Delta"),
    ('\u{398}', "Theta"),
    ('\u{39b}', "Lambda"),
    ('\u{3a0}', "Pi"),
    ('\u{3a3}', "Sigma"),
    ('\u{3a6}', "Phi"),
    ('\u{3a8}', "Psi"),
    ('\u{3a9}', "Omega"),
    ('\u{221e}', "infty"),
    ('\u{2211}', "sum"),
    ('\u{220f}', "prod"),
    ('\u{222b}', "int"),
    ('\u{2202}', "partial"),
    ('\u{2207}', "nabla"),
    ('\u{221a}', "surd"),
    ('\u{d7}', "times"),
    ('\u{22c5}', "cdot"),
    ('\u{b7}', "cdot"),
    ('\u{b1}', "pm"),
    ('\u{2264}', "leq"),
    ('\u{2265}', "geq"),
    ('\u{2260}', "neq"),
    ('\u{2248}', "approx"),
    ('\u{2261}', "equiv"),
    ('\u{2208}', "in"),
    ('\u{2209}', "notin"),
    ('\u{2282}', "subset"),
    ('\u{2286}', "subseteq"),
    ('\u{222a}', "cup"),
    ('\u{2229}', "cap"),
    ('\u{2200}', "forall"),
    ('\u{2203}', "exists"),
    ('\u{2192}', "to"),
    ('\u{21d2}', "Rightarrow"),
    ('\u{21d4}', "Leftrightarrow"),
    ('\u{21a6}', "mapsto"),
    ('\u{2026}', "dots"),
    ('\u{22ef}', "cdots"),
    ('\u{2205}', "emptyset"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::html;

    fn tex(page: &str) -> Option<String> {
        let tree = html::parse(page);
        (0..tree.len()).find_map(|id| formula(&tree, id))
    }

    #[test]
    fn sources_are_taken_before_mathml_is_written() {
        for (page, want) in [
            (
                "<math><semantics><mrow><mi>x</mi></mrow><annotation encoding='application/x-tex'>x &lt; \\alpha</annotation></semantics></math>",
                "$x < \\alpha$",
            ),
            (
                "<math display=block alttext='{\\displaystyle e^{x}}'><mi>e</mi></math>",
                "$$e^{x}$$",
            ),
            ("<script type='math/tex'>a < b</script>", "$a < b$"),
            (
                "<script type='math/tex; mode=display'>a & b</script>",
                "$$a & b$$",
            ),
            (
                "<math><msup><mi>x</mi><mn>2</mn></msup><mo>+</mo><mi>sin</mi><mo>&#8289;</mo><mi>&alpha;</mi></math>",
                "${x}^{2}+\\mathrm{sin}\\alpha$",
            ),
            (
                "<math><mfrac><mn>1</mn><mrow><mn>2</mn><mi>n</mi></mrow></mfrac></math>",
                "$\\frac{1}{2n}$",
            ),
            (
                "<math><msqrt><mi>a</mi><mi>b</mi></msqrt><mroot><mi>c</mi><mn>3</mn></mroot></math>",
                "$\\sqrt{ab}\\sqrt[3]{c}$",
            ),
            (
                "<math><munderover><mo>&sum;</mo><mi>i</mi><mi>n</mi></munderover><mtext>if so</mtext></math>",
                "${\\sum }_{i}^{n}\\text{if so}$",
            ),
            (
                "<math><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr><mtr><mtd><mi>c</mi></mtd><mtd><mi>d</mi></mtd></mtr></mtable></math>",
                "$\\begin{matrix}a&b\\\\c&d\\end{matrix}$",
            ),
        ] {
            assert_eq!(tex(page).as_deref(), Some(want), "{page}");
        }
        assert_eq!(tex("<math></math>"), None);
        assert_eq!(tex("<script>a</script>"), None);
    }
}

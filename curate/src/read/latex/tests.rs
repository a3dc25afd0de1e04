//! Tests of the conversion on small sources.

use super::convert::convert;

fn html(text: &str) -> String {
    let converted = convert(text, None, 10_000).unwrap();
    converted.parts.concat().replace('\n', "")
}

#[test]
fn text_is_as_it_is_printed() {
    for (tex, want) in [
        (
            "``a'' --- b--c~d\\%",
            "<p>\u{201c}a\u{201d} \u{2014} b\u{2013}c d%</p>",
        ),
        (
            "M\\\"uller, \\'{e}t\\'e, \\c{c}a, \\v s, na\\\"{\\i}ve, \\ss{}",
            "<p>M\u{fc}ller, \u{e9}t\u{e9}, \u{e7}a, \u{161}, na\u{ef}ve, \u{df}</p>",
        ),
        ("a\nb\n\nc\\par d", "<p>a b</p><p>c</p><p>d</p>"),
        (
            "\\emph{a} \\textbf{b \\textit{c}} {\\bf d} \\foo[x]{e}",
            "<p><i>a</i> <b>b <i>c</i></b> d e</p>",
        ),
        ("x\\footnote{A note.} y\\label{z}", "<p>x (A note.) y</p>"),
        (
            "\\section*{One \\emph{two}}\nText \\verb|a_b<| \\url{http://x/_y}",
            "<h2>One two</h2><p>Text a_b&lt; http://x/_y</p>",
        ),
        (
            "as \\cite{a,b} and~\\citep[p.~3]{b} in Sec.~\\ref{s}",
            "<p>as [1, 2] and [2] in Sec. [ref]</p>",
        ),
        ("a $x unclosed\n\n$b$", "<p>a $x unclosed$</p><p>$b$</p>"),
        ("a \\iffalse x \\ifx y\\fi z \\else b\\fi c", "<p>a bc</p>"),
        (
            "\\begin{comment}x\\end{comment}a\\end{document} b",
            "<p>a</p>",
        ),
    ] {
        assert_eq!(html(tex), want, "{tex}");
    }
}

#[test]
fn formulas_stay_tex_with_macros_expanded() {
    let tex = "\\newcommand{\\R}{\\mathbb{R}}\\newcommand\\norm[2][2]{\\|#2\\|_{#1}}\\def\\pair#1#2{(#1,#2)}\
        \\DeclareMathOperator{\\tr}{tr}\
        For $x\\in\\R$ and \\(\\norm{x}\\) or $\\norm[1]{x_\\text{if $a$}}$, $\\pair{a}b$, $\\R a$\n\
        \\begin{align}\\label{e} a&<b\\\\ \\tr c\\nonumber\\end{align}\nend $$x^2$$ \\[y\\]";
    let want = "<p>For $x\\in\\mathbb{R}$ and $\\|x\\|_{2}$ or $\\|x_\\text{if $a$}\\|_{1}$, $(a,b)$, $\\mathbb{R}a$</p>\
        <p>\\begin{align} a&amp;&lt;b\\\\ \\operatorname{tr}c\\end{align}</p><p>end</p><p>$$x^2$$</p><p>\\[y\\]</p>";
    assert_eq!(html(tex), want);
}

#[test]
fn lists_tables_and_floats_keep_their_form() {
    let tex = "\\begin{itemize}\\item a\n\\item b\\begin{enumerate}\\item c\\end{enumerate}\\end{itemize}\
        \\begin{table}[h]\\centering\\caption[s]{A \\emph{caption}.}\\begin{tabular}{l|r}\\hline a & b\\\\[2pt]\\hline \
        \\multicolumn{2}{c}{d} & e \\& f \\\\ \\end{tabular}\\end{table}\
        \\begin{figure}\\includegraphics[width=1cm]{x.pdf}\\caption{Shown.}\\end{figure}\
        \\begin{verbatim}\nx <- 1 % y\n\\end{verbatim}";
    let want = "<ul><li>a</li><li>b</li><ol><li>c</li></ol></ul><p>A <i>caption</i>.</p>\
        <table><tr><td><p>a</p></td><td><p>b</p></td></tr><tr><td colspan=\"2\"><p>d</p></td><td><p>e &amp; f</p></td></tr></table>\
        <p>Shown.</p><pre>x &lt;- 1 % y</pre>";
    assert_eq!(html(tex), want);
}

#[test]
fn lists_behind_each_other_start_at_their_own_numbers() {
    let tex = "\\begin{enumerate}\\item a\\item b\\end{enumerate}\\begin{enumerate}\\item c\\item[x]d\\item e\\end{enumerate}\
        \\begin{enumerate}[resume, label=(a)]\\item f\\end{enumerate} g \\begin{enumerate}[start=7]\\item h\n\ni\\item j\\end{enumerate}";
    let want = "<ol><li>a</li><li>b</li></ol><ol><li>c</li><li>x d</li><li value=\"2\">e</li></ol>\
        <ol start=\"3\"><li>f</li></ol><p>g</p><ol start=\"7\"><li>h</li></ol><p>i</p><ol start=\"8\"><li>j</li></ol>";
    assert_eq!(html(tex), want);
}

#[test]
fn percent_signs_of_addresses_and_code_lose_no_text() {
    for (tex, want) in [
        ("\\url{http://a.b/x%20y} c", "<p>http://a.b/x%20y c</p>"),
        ("\\path|/a%b| and \\url|x%y| c", "<p>/a%b and x%y c</p>"),
        ("\\verb|a%b| \\verb*+%+ c", "<p>a%b % c</p>"),
        (
            "\\lstinline[language=C]!a%b! \\lstinline{a{%}b} c",
            "<p>a%b a{%}b c</p>",
        ),
        ("\\verb|a\n\nb", "<p>a</p><p>b</p>"),
    ] {
        assert_eq!(html(tex), want, "{tex}");
    }
}

#[test]
fn links_and_type_inside_of_paragraphs_are_marked() {
    for (tex, want) in [
        (
            "a \\href{http://x/\\%20\\_\"<}{the \\emph{page} }of",
            "<p>a <a href=\"http://x/%20_%22&lt;\">the <i>page</i> </a>of</p>",
        ),
        ("\\href{http://x}{} a \\textbf{} b", "<p>a  b</p>"),
        ("\\textbf{a\n\nb} c", "<p>a</p><p>b c</p>"),
        ("\\emph ab", "<p>ab</p>"),
        ("\\title{\\textbf{A}}\\maketitle", "<h1>A</h1>"),
        ("\\'{\\emph{e}}", "<p>\u{e9}</p>"),
        (
            "\\begin{tabular}{ll}\\textbf{a} & b\\\\c & d\\end{tabular}",
            "<table><tr><td><p><b>a</b></p></td><td><p>b</p></td></tr>\
             <tr><td><p>c</p></td><td><p>d</p></td></tr></table>",
        ),
    ] {
        assert_eq!(html(tex), want, "{tex}");
    }
    // deeper than texts are converted on their own
    let deep = format!("{}a{}", "\\emph{".repeat(60), "}".repeat(60));
    assert!(html(&deep).contains('a'));
}

#[test]
fn listings_name_their_language() {
    for (begin, end, want) in [
        (
            "lstlisting}[language=Python, caption=A]",
            "lstlisting",
            "language-python",
        ),
        (
            "lstlisting}[numbers=left,language={[ANSI]C++}]",
            "lstlisting",
            "language-c++",
        ),
        ("minted}[linenos]{rust}", "minted", "language-rust"),
    ] {
        let tex = format!("\\begin{{{begin}\nx\n\\end{{{end}}}");
        assert_eq!(html(&tex), format!("<pre class=\"{want}\">x</pre>"));
    }
    for begin in ["lstlisting}", "lstlisting}[language=]", "minted}{a\"b}"] {
        let end = begin.split('}').next().unwrap();
        let tex = format!("\\begin{{{begin}\nx\n\\end{{{end}}}");
        assert_eq!(html(&tex), "<pre>x</pre>", "{begin}");
    }
}

#[test]
fn titles_theorems_and_abstracts_are_named() {
    let tex = "\\documentclass{article}\\newtheorem{thm}{Theorem}[section]\\title{On \\LaTeX}\\author{A. B.\\thanks{x} \\and C. D.}\
        \\begin{document}\\maketitle\\begin{abstract}We.\\end{abstract}\\begin{thm}[Gauss]It is.\\end{thm}\\begin{proof}So.\\end{proof}";
    let converted = convert(tex, None, 1000).unwrap();
    let want = "<h1>On LaTeX</h1><h2>Abstract</h2><p>We.</p><p>Theorem (Gauss). It is.</p><p>Proof. So.</p>";
    assert_eq!(converted.parts.concat().replace('\n', ""), want);
    assert_eq!(converted.authors, ["A. B. ; C. D."]);
    assert_eq!(converted.title.as_deref(), Some("On LaTeX"));
}

#[test]
fn the_bibliography_numbers_citations_and_is_kept_if_wanted() {
    let tex = "\\cite{b}\\begin{thebibliography}{9}\\bibitem{a} First.\\bibitem[x]{b} Second.\\end{thebibliography}";
    assert_eq!(html(tex), "<p>[2]</p>");
    let kept = convert(tex, Some(String::new()), 1000)
        .unwrap()
        .parts
        .concat();
    assert!(
        kept.contains("<p>[1] First.</p>\n<p>[2] Second.</p>"),
        "{kept}"
    );
}

#[test]
fn macros_that_use_themselves_are_refused() {
    for tex in [
        "\\newcommand{\\a}{\\a}\\a",
        "\\newcommand{\\a}{\\b}\\newcommand{\\b}{x\\a y}\\a",
        "\\newcommand{\\a}[1]{#1#1#1#1#1#1#1#1#1#1}\\a{\\a{\\a{\\a{\\a{\\a{0123456789}}}}}}",
        "\\def\\a{$\\a$}\\a",
    ] {
        assert!(convert(tex, None, 10_000).is_err(), "{tex}");
    }
}

#[test]
fn open_groups_and_environments_end_with_the_text() {
    for tex in [
        "{\\bf a",
        "\\begin{tabular}{l}a & b",
        "$x",
        "\\begin{align}x",
        "\\footnote{a",
        "\\begin{itemize}\\item a",
        "\\",
        "\\begin",
        "\\verb",
        "\\cite",
        "\\newcommand",
    ] {
        drop(convert(tex, None, 1000).unwrap());
    }
}

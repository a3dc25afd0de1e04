//! Commands and environments of LaTeX, with the characters and forms that they stand for.

/// Commands that stand for characters.
pub(super) const CHARACTERS: [(&str, &str); 61] = [
    ("ss", "\u{df}"),
    ("ae", "\u{e6}"),
    ("AE", "\u{c6}"),
    ("oe", "\u{153}"),
    ("OE", "\u{152}"),
    ("o", "\u{f8}"),
    ("O", "\u{d8}"),
    ("aa", "\u{e5}"),
    ("AA", "\u{c5}"),
    ("l", "\u{142}"),
    ("L", "\u{141}"),
    ("i", "i"),
    ("j", "j"),
    ("dh", "\u{f0}"),
    ("DH", "\u{d0}"),
    ("th", "\u{fe}"),
    ("TH", "\u{de}"),
    ("S", "\u{a7}"),
    ("P", "\u{b6}"),
    ("dag", "\u{2020}"),
    ("ddag", "\u{2021}"),
    ("copyright", "\u{a9}"),
    ("textcopyright", "\u{a9}"),
    ("pounds", "\u{a3}"),
    ("textsterling", "\u{a3}"),
    ("euro", "\u{20ac}"),
    ("texteuro", "\u{20ac}"),
    ("textregistered", "\u{ae}"),
    ("texttrademark", "\u{2122}"),
    ("textdegree", "\u{b0}"),
    ("dots", "..."),
    ("ldots", "..."),
    ("textellipsis", "..."),
    ("textendash", "\u{2013}"),
    ("textemdash", "\u{2014}"),
    ("textbullet", "\u{2022}"),
    ("textquoteleft", "\u{2018}"),
    ("textquoteright", "\u{2019}"),
    ("textquotedblleft", "\u{201c}"),
    ("textquotedblright", "\u{201d}"),
    ("textbackslash", "\\"),
    ("textasciitilde", "~"),
    ("textasciicircum", "^"),
    ("textunderscore", "_"),
    ("textbar", "|"),
    ("textless", "<"),
    ("textgreater", ">"),
    ("textmu", "\u{b5}"),
    ("textperiodcentered", "\u{b7}"),
    ("lbrace", "{"),
    ("rbrace", "}"),
    ("LaTeX", "LaTeX"),
    ("LaTeXe", "LaTeX2e"),
    ("TeX", "TeX"),
    ("BibTeX", "BibTeX"),
    ("quad", " "),
    ("qquad", " "),
    ("newline", "\n"),
    ("linebreak", "\n"),
    ("space", " "),
    ("slash", "/"),
];

/// Accents as combining characters.
pub(super) const ACCENTS: [(&str, char); 15] = [
    ("`", '\u{300}'),
    ("'", '\u{301}'),
    ("^", '\u{302}'),
    ("~", '\u{303}'),
    ("=", '\u{304}'),
    ("u", '\u{306}'),
    (".", '\u{307}'),
    ("\"", '\u{308}'),
    ("r", '\u{30a}'),
    ("H", '\u{30b}'),
    ("v", '\u{30c}'),
    ("d", '\u{323}'),
    ("c", '\u{327}'),
    ("k", '\u{328}'),
    ("b", '\u{331}'),
];

/// Headings with their levels.
pub(super) const HEADINGS: [(&str, usize); 8] = [
    ("part", 1),
    ("chapter", 1),
    ("section", 2),
    ("subsection", 3),
    ("subsubsection", 4),
    ("paragraph", 5),
    ("subparagraph", 6),
    ("subsubsubsection", 5),
];

/// Commands that go with this many arguments.
pub(super) const DROPPED: [(&str, usize); 59] = [
    ("label", 1),
    ("vspace", 1),
    ("hspace", 1),
    ("vskip", 0),
    ("includegraphics", 1),
    ("includepdf", 1),
    ("epsfig", 1),
    ("epsfbox", 1),
    ("plotone", 1),
    ("plottwo", 2),
    ("index", 1),
    ("glossary", 1),
    ("pagestyle", 1),
    ("thispagestyle", 1),
    ("pagenumbering", 1),
    ("bibliographystyle", 1),
    ("setcounter", 2),
    ("addtocounter", 2),
    ("refstepcounter", 1),
    ("stepcounter", 1),
    ("setlength", 2),
    ("addtolength", 2),
    ("usepackage", 1),
    ("RequirePackage", 1),
    ("documentclass", 1),
    ("documentstyle", 1),
    ("newcounter", 1),
    ("newlength", 1),
    ("newif", 0),
    ("graphicspath", 1),
    ("hypersetup", 1),
    ("lstset", 1),
    ("tikzset", 1),
    ("definecolor", 3),
    ("color", 1),
    ("rowcolor", 1),
    ("cellcolor", 1),
    ("columncolor", 1),
    ("rule", 2),
    ("hypertarget", 1),
    ("addcontentsline", 3),
    ("markboth", 2),
    ("markright", 1),
    ("cline", 1),
    ("cmidrule", 1),
    ("fontsize", 2),
    ("selectfont", 0),
    ("input", 0),
    ("include", 1),
    ("email", 1),
    ("orcid", 1),
    ("orcidlink", 1),
    ("thanks", 1),
    ("nocite", 1),
    ("todo", 1),
    ("phantom", 1),
    ("hphantom", 1),
    ("vphantom", 1),
    ("noalign", 1),
];

/// Commands whose first arguments go, with their number; the next one is text.
pub(super) const STYLED: [(&str, usize); 8] = [
    ("textcolor", 1),
    ("colorbox", 1),
    ("hyperref", 0),
    ("parbox", 1),
    ("raisebox", 1),
    ("multirow", 2),
    ("resizebox", 2),
    ("scalebox", 1),
];

/// Commands that refer to a label.
pub(super) const REFERENCES: [&str; 12] = [
    "ref", "eqref", "autoref", "cref", "Cref", "pageref", "nameref", "vref", "Ref", "subref",
    "figref", "secref",
];

/// Environments of items.
pub(super) const LISTS: [&str; 5] = [
    "itemize",
    "enumerate",
    "description",
    "compactitem",
    "compactenum",
];

/// Environments of displayed formulas; with a star as well.
pub(super) const FORMULAS: [&str; 16] = [
    "equation",
    "align",
    "eqnarray",
    "gather",
    "multline",
    "displaymath",
    "math",
    "flalign",
    "alignat",
    "xalignat",
    "dmath",
    "IEEEeqnarray",
    "subequations",
    "empheq",
    "eqarray",
    "split",
];

/// Environments without text.
pub(super) const PICTURES: [&str; 16] = [
    "tikzpicture",
    "pgfpicture",
    "picture",
    "pspicture",
    "pspicture*",
    "asy",
    "comment",
    "filecontents",
    "filecontents*",
    "CCSXML",
    "axis",
    "tikzcd",
    "forest",
    "feynman",
    "xy",
    "overpic",
];

/// Environments of code.
pub(super) const CODES: [&str; 6] = [
    "verbatim",
    "verbatim*",
    "Verbatim",
    "lstlisting",
    "minted",
    "alltt",
];

/// Environments of rows and cells, with the number of arguments that describe the columns.
pub(super) const TABLES: [(&str, usize); 8] = [
    ("tabular", 1),
    ("tabular*", 2),
    ("tabularx", 2),
    ("tabulary", 2),
    ("longtable", 1),
    ("supertabular", 1),
    ("deluxetable", 1),
    ("tabbing", 0),
];

/// Environments that take arguments before their text, and how many.
pub(super) const BOXES: [(&str, usize); 8] = [
    ("minipage", 1),
    ("multicols", 1),
    ("wrapfigure", 2),
    ("wraptable", 2),
    ("adjustbox", 1),
    ("spacing", 1),
    ("adjustwidth", 2),
    ("subfigure", 1),
];

/// Value of a name in a list.
pub(super) fn find<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    let found = list.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

//! Hostile pages, built to cause long run times: short pieces repeated many times.

/// Pieces: each alone, over and over, is a text.
const PIECES: &[&str] = &[
    // letters, spaces, ends of lines
    "a",
    " ",
    "\n",
    "\r\n",
    "word ",
    "the same line\n",
    "\u{130}",
    // punctuation
    ".",
    "...",
    ",",
    "-",
    "- ",
    "_",
    "#",
    "= a =\n",
    "'",
    "'s",
    "\"",
    "\\\"",
    "/",
    "|",
    "%41",
    // brackets, never closed or nested
    "(",
    ")",
    "()",
    "[",
    "[[",
    "]]",
    "{",
    "}",
    "{{",
    "}}",
    "{|",
    "<",
    ">",
    "{\"a\":",
    "[[a|",
    "{{a|",
    "[http://",
    "[//",
    // tags
    "</",
    "<a",
    "<a>",
    "<p>",
    "<div>",
    "</div>",
    "<b></i>",
    "<table><tr><td>",
    "<ul><li>",
    "<h1>",
    "<br>",
    "<script>",
    "</script",
    "<title>",
    "<svg>",
    "<template>",
    "<select><option>",
    "<a href=\"",
    "<p a=1 b=2 ",
    "<p class=\"a b c d\">",
    "<meta name=robots content=noindex>",
    "<script type=\"application/ld+json\">{\"@type\":\"Article\",\"author\":[",
    "<p>by a b</p>",
    "<ref>",
    "</ref ",
    "<nowiki>",
    "<!--",
    "-->",
    "<![CDATA[",
    "<?",
    // references
    "&",
    "&amp",
    "&#",
    "&#99999999",
    "&lt;ref&gt;",
    "&lt;/ref ",
    // characters of more than one byte
    "e\u{301}\u{300}\u{302}",
    "\u{4e2d}",
    "\u{e01}\u{e33}",
    "\u{1f468}\u{200d}",
    "\u{a0}",
    "\u{2028}",
    "\u{c3}\u{a9}",
    "\u{e2}\u{20ac}\u{2122}",
    "\u{0}",
    "\u{1b}[31m",
    // addresses, numbers, personal data
    "a.",
    "a.b/",
    "a@",
    "@.",
    "http://",
    "http://a.",
    "www.",
    "?a=b&",
    "1",
    "1.",
    "1-",
    "1 ",
    "1:",
    "1.1.1.1.",
    "+1 (2",
    "4111 ",
    "DE89",
    "SSN 536-90-4399 ",
    "9km",
    "xn--",
    // keys
    "AKIA",
    "sk-",
    "eyJ",
    "-eyJ",
    "-----BEGIN ",
    "-----BEGIN PRIVATE KEY",
    "password = \"",
    "secret:",
    "pwd=a1",
    "sig=%41",
    "AC0",
    // headers, codings, records, JSON
    "gzip,",
    "X-Robots-Tag: a\r\n",
    "Content-Encoding: ,\r\n",
    "a: b\r\n",
    "4\r\nabcd\r\n",
    "WARC/1.0\r\n",
    "WARC/1.0\r\nContent-Length: 9\r\n\r\n",
    "WARC/1.0\r\nContent-Length: 99999\r\n\r\n",
    "\nhttp://a.b/ 1.2.3.4 20200101000000 text/html 9\n",
    "<page>",
    "</page>",
    "<text",
    "\n{\"text\":",
    "NaN,",
    "1e999,",
    "\\u",
    "\\",
    // text that filters look for
    "lorem ipsum ",
    "read more...\n",
    "a\n",
    "{\n",
    "a b c d e f. ",
];

/// Openings: each alone, then words up to the end.
const OPENINGS: &[&str] = &[
    "\"",
    "<",
    "<!--",
    "<![CDATA[",
    "<a href=\"",
    "<script>",
    "<textarea>",
    "<ref>",
    "{{",
    "[[",
    "&",
    "http://",
    "-----BEGIN PRIVATE KEY-----\n",
    "password = \"",
    "{\"text\":\"",
];

/// A text with its name.
pub(super) struct Pattern {
    pub(super) name: String,
    piece: &'static str,
    opening: &'static str,
}

impl Pattern {
    /// About `bytes` bytes of the pattern.
    pub(super) fn text(&self, bytes: usize) -> String {
        let times = bytes.saturating_sub(self.opening.len()) / self.piece.len();
        format!("{}{}", self.opening, self.piece.repeat(times))
    }
}

/// All of them.
pub(super) fn patterns() -> Vec<Pattern> {
    let pieces = PIECES.iter().map(|piece| Pattern {
        name: format!("{piece:?} again and again"),
        piece,
        opening: "",
    });
    let openings = OPENINGS.iter().map(|opening| Pattern {
        name: format!("{opening:?} and words"),
        piece: "a ",
        opening,
    });
    pieces.chain(openings).collect()
}

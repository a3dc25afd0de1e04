//! HTML of the report page: escaping, style, tables, text boxes, and the search, which is its only script. No network, one file.

use std::fmt::Write;

/// Text for element content and quoted attributes. Control characters, which XML and terminals choke on, become spaces.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A section with a heading and one sentence that says how to read it.
pub(super) fn section(id: &str, title: &str, lead: &str, body: &str) -> String {
    format!(
        "<section id=\"{id}\"><h2>{}</h2><p class=lead>{}</p>{body}</section>",
        escape(title),
        escape(lead)
    )
}

/// A section of which only the heading is seen until it is opened.
pub(super) fn folded(id: &str, title: &str, lead: &str, body: &str) -> String {
    format!(
        "<section id=\"{id}\"><details><summary><h2>{}</h2></summary><p class=lead>{}</p>{body}</details></section>",
        escape(title),
        escape(lead)
    )
}

/// A part of a section of which only one line is seen until it is opened.
pub(super) fn fold(line: &str, body: &str) -> String {
    format!(
        "<details><summary>{}</summary>{body}</details>",
        escape(line)
    )
}

/// Characters of a cell that keeps a readable width where its table scrolls.
const LONG: usize = 36;

fn is_number(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c))
}

/// A table; cells are escaped, numbers are on the right and do not wrap. One that is wider than the page scrolls, by the keyboard
/// as well.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut s = format!(
        "<div class=scroll tabindex=0 role=group aria-label=\"Table: {}\"><table><thead><tr>",
        escape(&head.join(", "))
    );
    for (column, h) in head.iter().enumerate() {
        let mut cells = rows.iter().filter_map(|row| row.get(column));
        let class = match !rows.is_empty() && cells.all(|cell| is_number(cell)) {
            true => " class=number",
            false => "",
        };
        let _ = match *h {
            "" => write!(s, "<td></td>"),
            h => write!(s, "<th scope=col{class}>{}</th>", escape(h)),
        };
    }
    s.push_str("</tr></thead><tbody>");
    for row in rows {
        s.push_str("<tr>");
        for cell in row {
            let class = match (is_number(cell), cell.chars().count() > LONG) {
                (_, true) => " class=long",
                (true, false) => " class=number",
                (false, false) => "",
            };
            let _ = write!(s, "<td{class}>{}</td>", escape(cell));
        }
        s.push_str("</tr>");
    }
    s + "</tbody></table></div>"
}

/// A headline figure.
pub(super) fn tile(value: &str, name: &str) -> String {
    format!(
        "<div class=tile><b>{}</b><span>{}</span></div>",
        escape(value),
        escape(name)
    )
}

/// A piece of text with a caption; `kind` is its CSS class (kept, dropped, made).
pub(super) fn excerpt(kind: &str, caption: &str, text: &str) -> String {
    excerpt_of(kind, caption, text, None)
}

/// The text that an excerpt is the start of.
pub(super) struct Whole<'a> {
    /// The line that opens it.
    pub name: String,
    /// It, or none.
    pub text: &'a str,
    /// A sentence under it, or none.
    pub note: String,
}

/// An excerpt with its whole text folded under it.
pub(super) fn excerpt_of(
    kind: &str,
    caption: &str,
    text: &str,
    whole: Option<Whole<'_>>,
) -> String {
    let whole = whole.map_or(String::new(), |whole| {
        let mut body = match whole.text {
            "" => String::new(),
            text => format!("<pre dir=auto>{}</pre>", escape(text)),
        };
        if !whole.note.is_empty() {
            body += &format!("<p class=quiet>{}</p>", escape(&whole.note));
        }
        fold(&whole.name, &body)
    });
    format!(
        "<figure class=\"{kind}\"><figcaption>{}</figcaption><pre dir=auto>{}</pre>{whole}</figure>",
        escape(caption),
        escape(text)
    )
}

/// An entry of the page's list of contents.
pub(super) struct Link<'a> {
    /// Of the section.
    pub id: &'a str,
    pub name: &'a str,
}

/// The field that finds rows and samples, which the script shows: without it nothing could be found.
const SEARCH: &str = "<div id=search role=search hidden><label for=find>Find rules, rows and samples</label>\
<input id=find type=search autocomplete=off spellcheck=false><output id=found for=find></output></div>";
const SCRIPT: &str = include_str!("search.js");

/// The whole page, with a search.
pub(super) fn searched_page(
    title: &str,
    subtitle: &str,
    contents: &[Link<'_>],
    body: &str,
) -> String {
    let page = page(title, subtitle, contents, &format!("{SEARCH}{body}"));
    let script = format!("<script>{SCRIPT}</script></body>");
    page.replacen("</body>", &script, 1)
}

/// The whole page.
pub(super) fn page(title: &str, subtitle: &str, contents: &[Link<'_>], body: &str) -> String {
    let mut nav = String::new();
    for Link { id, name } in contents {
        let _ = write!(nav, "<a href=\"#{id}\">{}</a>", escape(name));
    }
    let (title, subtitle) = (escape(title), escape(subtitle));
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
<title>{title}</title><style>{STYLE}</style></head><body><header><h1>{title}</h1><p>{subtitle}</p><nav>{nav}</nav></header>\
<main>{body}</main><footer>Written by millrace {}.</footer></body></html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fbfaf7;--card:#fff;--ink:#1d2126;--quiet:#69707a;--line:#e4e1da;--a:#1f6f8b;--b:#d1603d;--c:#5b8c5a;--d:#8a6fae;--e:#c9a227}\
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1c2024;--ink:#e8e6e1;--quiet:#98a0aa;--line:#2d3339;--a:#5fb3cf;--b:#e98b6b;--c:#8cc48a;--d:#b79fd8;--e:#e0c358}}\
*{box-sizing:border-box}\
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
header,main,footer{max-width:1040px;margin:0 auto;padding:0 20px}\
header{padding-top:36px}h1{font-size:2rem;margin:0;letter-spacing:-.02em}header p{margin:.2em 0 1em;color:var(--quiet)}\
nav{display:flex;flex-wrap:wrap;gap:6px}nav a{color:var(--ink);text-decoration:none;border:1px solid var(--line);border-radius:99px;padding:3px 12px;font-size:.875rem;background:var(--card)}\
nav a:hover{border-color:var(--a)}\
section{scroll-margin-top:56px;background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px 22px;margin:20px 0}\
h2{margin:0;font-size:1.2rem}h3{margin:1.4em 0 .5em;font-size:1rem}.lead{margin:.2em 0 1em;color:var(--quiet);font-size:.925rem}.quiet{color:var(--quiet)}\
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}\
.tile{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 16px}.tile b{display:block;font-size:1.5rem;letter-spacing:-.02em;font-variant-numeric:tabular-nums}.tile span{color:var(--quiet);font-size:.85rem}\
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:8px 32px}\
.bar{display:grid;grid-template-columns:minmax(90px,190px) 1fr 118px;gap:10px;align-items:center;padding:2px 0;font-size:.9rem}\
.bar .name{overflow-wrap:anywhere}.track{background:color-mix(in srgb,var(--line) 60%,transparent);border-radius:4px;height:14px;overflow:hidden}.track i{display:block;height:100%;border-radius:4px;min-width:1px}\
.stack{display:flex;position:relative}.stack i{border-radius:0}.stack u{position:absolute;top:0;bottom:0;width:2px;background:var(--ink)}\
.bar .value{text-align:right;font-variant-numeric:tabular-nums;color:var(--quiet);white-space:nowrap}\
svg{width:100%;height:auto;display:block}.grid{stroke:var(--line)}.level{stroke:var(--quiet);stroke-dasharray:5 4}.axis{fill:var(--quiet);font-size:12px}.label{fill:var(--quiet);font-size:12px}\
.two .axis,.two .label{font-size:22px}.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:.4em 0 0;font-size:.875rem;color:var(--quiet)}.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}\
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--quiet);font-weight:500;white-space:nowrap}tr>:last-child{padding-right:0}.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.long{min-width:15em}\
.map td{border-left:4px solid;padding:5px 10px;white-space:nowrap;color:var(--quiet)}.map .own{color:var(--ink);font-weight:600}\
.wide svg{min-width:680px}.wide .axis,.stage{font-size:12px}.stage{fill:var(--quiet);font-size:10px}.pass{stroke-width:8px}.copy{user-select:all;max-height:none}\
figure{margin:0 0 12px;border-left:4px solid var(--line);padding:2px 0 2px 14px}figure.kept{border-color:var(--c)}figure.dropped{border-color:var(--b)}figure.made{border-color:var(--a)}figure.duplicate{border-color:var(--e)}\
figcaption{font-size:.85rem;color:var(--quiet);overflow-wrap:anywhere}pre{margin:.3em 0 0;white-space:pre-wrap;overflow-wrap:anywhere;font:.875rem/1.5 ui-monospace,'SF Mono',Menlo,Consolas,monospace}\
details{border-bottom:1px solid var(--line);padding:6px 0}summary{cursor:pointer;overflow-wrap:anywhere}.bars+details{margin-top:8px}section>details,figure>details{border:0;padding:0}summary h2{display:inline}\
#search{position:sticky;top:0;z-index:1;display:flex;flex-wrap:wrap;align-items:center;gap:6px 12px;padding:8px 0;background:var(--bg)}#search[hidden],.out{display:none!important}\
#find{flex:1 1 240px;font:inherit;color:inherit;background:var(--card);border:1px solid var(--quiet);border-radius:8px;padding:6px 10px}#found{color:var(--quiet);font-size:.875rem;min-width:10em}\
footer{color:var(--quiet);font-size:.85rem;padding-bottom:40px}\
@media(max-width:520px){body{font-size:15px}section{padding:16px 14px}header,main,footer{padding-left:12px;padding-right:12px}.bar{grid-template-columns:34% 1fr 104px;gap:8px}.axis,.label{font-size:20px}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_the_web_cannot_leave_its_box() {
        let evil = "</pre><script>alert(1)</script>\u{1b}[31m";
        let out =
            excerpt("kept", evil, evil) + &table(&[evil], &[vec![evil.into()]]) + &tile(evil, evil);
        assert!(!out.contains("<script"));
        assert!(!out.contains('\u{1b}'));
    }

    #[test]
    fn numbers_and_the_heads_of_their_columns_are_on_the_right() {
        let row = |name: &str, n: &str| vec![name.to_string(), n.to_string()];
        let of_numbers = table(&["a", "b"], &[row("x", "1,234"), row("1y", "+2%")]);
        assert!(of_numbers.contains("<th scope=col>a</th><th scope=col class=number>b</th>"));
        assert!(of_numbers.contains("<td>x</td><td class=number>1,234</td>"));
        assert!(!table(&["a", "b"], &[row("x", "1"), row("y", "")]).contains("col class=number"));
        assert!(STYLE.contains(".number{text-align:right"));
    }

    #[test]
    fn only_the_searched_page_has_a_script_and_its_text_is_in_front_of_it() {
        let contents = [Link { id: "a", name: "A" }];
        let plain = page("t", "s", &contents, "</body>");
        assert!(!plain.contains("<script") && !plain.contains("<input"));
        let searched = searched_page("t", "s", &contents, "<p>&lt;/body></p>");
        assert_eq!(searched.matches("<script>").count(), 1);
        assert_eq!(searched.matches("</script>").count(), 1);
        assert!(searched.ends_with("</script></body></html>\n"));
        // it is there for everybody to see only where it works
        assert!(searched.contains("<div id=search role=search hidden>"));
        assert!(
            searched.contains("<label for=find>")
                && searched.contains("<output id=found for=find>")
        );
        for word in ["fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
    }

    #[test]
    fn the_page_asks_for_nothing_from_the_network() {
        let page = searched_page("t", "s", &[Link { id: "a", name: "A" }], "<p></p>");
        for word in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}

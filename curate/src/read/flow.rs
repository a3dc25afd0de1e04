//! A document's paragraphs as HTML, so that all formats are rendered alike: headings, lists, tables, notes.
//!
//! Texts are given as HTML already. Long documents become several parts, cut between paragraphs.

/// A part ends at the first paragraph outside of tables and lists behind this many bytes.
const PART: usize = 256 << 10;

/// Lists nest no deeper in HTML; deeper items are on this level.
const MAX_LEVEL: usize = 9;

/// End of an item.
const ITEM_END: &str = "</li>\n";

/// Bold and italic type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) is_bold: bool,
    pub(super) is_italic: bool,
}

/// An item's number, and the list that counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) number: u32,
    /// Differs between lists.
    pub(super) list: u32,
}

/// An open list.
#[derive(Clone, Copy)]
struct List {
    is_ordered: bool,
    /// The last item's; None before the first, and where nobody counts.
    last: Option<Number>,
}

/// Collects a document.
#[derive(Default)]
pub(super) struct Flow {
    parts: Vec<String>,
    now: String,
    /// Open lists, outermost first.
    lists: Vec<List>,
    /// Open tables, and where the current row of each starts in `now`.
    tables: Vec<usize>,
}

impl Flow {
    /// Code in a language, as it is; in tables a paragraph. A language whose name has other characters than such names
    /// have is not written.
    pub(super) fn code(&mut self, language: Option<&str>, html: &str) {
        if !self.tables.is_empty() {
            return self.paragraph(html);
        }
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"+#-._".contains(&b);
        let named = language.filter(|name| !name.is_empty() && name.bytes().all(is_plain));
        let open = named.map_or("<pre>".to_string(), |name| {
            format!("<pre class=\"language-{name}\">")
        });
        self.block(&open, html, "</pre>");
    }

    /// A heading of level 1 to 6; in tables a paragraph.
    pub(super) fn heading(&mut self, level: usize, html: &str) {
        if !self.tables.is_empty() {
            return self.paragraph(html);
        }
        let level = level.clamp(1, 6);
        self.block(&format!("<h{level}>"), html, &format!("</h{level}>"));
    }

    pub(super) fn paragraph(&mut self, html: &str) {
        self.block("<p>", html, "</p>");
    }

    /// A further paragraph of the item that was just written; a paragraph of its own where none was, or a list is behind it.
    pub(super) fn item_goes_on(&mut self, html: &str) {
        if !self.tables.is_empty() || !self.now.ends_with(ITEM_END) {
            return self.paragraph(html);
        }
        if html.trim().is_empty() {
            return;
        }
        self.now.truncate(self.now.len() - ITEM_END.len());
        self.now.push_str("<p>");
        self.now.push_str(html);
        self.now.push_str("</p>");
        self.now.push_str(ITEM_END);
    }

    /// An item of a list, on a level from 1; in tables a paragraph.
    pub(super) fn item(&mut self, level: usize, is_ordered: bool, html: &str) {
        if !self.tables.is_empty() {
            return self.paragraph(html);
        }
        self.any_item(level, is_ordered, None, html);
    }

    /// An item of an ordered list with its number. Items of different lists are in lists of their own, also one behind the other.
    pub(super) fn numbered_item(&mut self, level: usize, number: Number, html: &str) {
        if !self.tables.is_empty() {
            return self.paragraph(html);
        }
        self.any_item(level, true, Some(number), html);
    }

    fn any_item(&mut self, level: usize, is_ordered: bool, number: Option<Number>, html: &str) {
        if html.trim().is_empty() {
            return;
        }
        let level = level.clamp(1, MAX_LEVEL);
        while self.lists.len() > level {
            self.close_list();
        }
        let goes_on = |open: &List| {
            let is_other = |last: Number| number.is_some_and(|number| number.list != last.list);
            open.is_ordered == is_ordered && !open.last.is_some_and(is_other)
        };
        if self.lists.len() == level && !self.lists.last().is_some_and(goes_on) {
            self.close_list();
        }
        while self.lists.len() < level {
            let is_own = self.lists.len() + 1 == level;
            let first = number.filter(|number| is_own && number.number != 1);
            match first {
                Some(first) => self
                    .now
                    .push_str(&format!("<ol start=\"{}\">", first.number)),
                None => self.now.push_str(if is_ordered { "<ol>" } else { "<ul>" }),
            }
            self.lists.push(List {
                is_ordered,
                last: None,
            });
        }
        let last = self.lists.last_mut().and_then(|list| {
            let last = list.last;
            // an item without a number counts as well
            list.last = number.or(last.map(|last| Number {
                number: last.number.saturating_add(1),
                ..last
            }));
            last
        });
        match number.zip(last) {
            // numbers of paragraphs without text are left out
            Some((number, last)) if number.number != last.number.saturating_add(1) => {
                self.now
                    .push_str(&format!("<li value=\"{}\">", number.number));
            }
            Some(_) | None => self.now.push_str("<li>"),
        }
        self.now.push_str(html);
        self.now.push_str(ITEM_END);
    }

    fn block(&mut self, open: &str, html: &str, close: &str) {
        if html.trim().is_empty() {
            return;
        }
        if self.tables.is_empty() {
            self.close_lists();
            self.cut();
        }
        self.now.push_str(open);
        self.now.push_str(html);
        self.now.push_str(close);
        self.now.push('\n');
    }

    /// Ends a part that is long enough.
    fn cut(&mut self) {
        if self.now.len() >= PART {
            self.parts.push(std::mem::take(&mut self.now));
        }
    }

    fn close_list(&mut self) {
        if let Some(list) = self.lists.pop() {
            self.now
                .push_str(if list.is_ordered { "</ol>" } else { "</ul>" });
        }
    }

    fn close_lists(&mut self) {
        while !self.lists.is_empty() {
            self.close_list();
        }
    }

    pub(super) fn open_table(&mut self) {
        if self.tables.is_empty() {
            self.close_lists();
            self.cut();
        }
        self.now.push_str("<table>");
        self.tables.push(self.now.len());
    }

    pub(super) fn close_table(&mut self) {
        if self.tables.pop().is_some() {
            self.now.push_str("</table>\n");
        }
    }

    pub(super) fn open_row(&mut self) {
        if let Some(start) = self.tables.last_mut() {
            *start = self.now.len();
            self.now.push_str("<tr>");
        }
    }

    /// Ends a row; one that `is_deleted` is taken back.
    pub(super) fn close_row(&mut self, is_deleted: bool) {
        match self.tables.last() {
            Some(&start) if is_deleted => self.now.truncate(start),
            Some(_) => self.now.push_str("</tr>"),
            None => {}
        }
    }

    pub(super) fn open_cell(&mut self) {
        if !self.tables.is_empty() {
            self.now.push_str("<td>");
        }
    }

    /// The cell that was just opened spans so many columns and rows.
    pub(super) fn span(&mut self, columns: usize, rows: usize) {
        if (columns > 1 || rows > 1) && self.now.ends_with("<td>") {
            self.now.truncate(self.now.len() - ">".len());
            for (name, number) in [("colspan", columns), ("rowspan", rows)] {
                if number > 1 {
                    self.now.push_str(&format!(" {name}=\"{number}\""));
                }
            }
            self.now.push('>');
        }
    }

    pub(super) fn close_cell(&mut self) {
        if !self.tables.is_empty() {
            self.now.push_str("</td>");
        }
    }

    /// The parts, with the notes as paragraphs behind the text. In a document of one part the references to notes (`reference`) set
    /// them apart from other paragraphs; of several parts each is rendered by itself, and their notes are paragraphs.
    pub(super) fn end(mut self, notes: &[String]) -> Vec<String> {
        while !self.tables.is_empty() {
            self.close_table();
        }
        self.close_lists();
        let is_one = self.parts.is_empty();
        for (i, note) in notes.iter().enumerate() {
            let number = i + 1;
            if is_one {
                let open =
                    format!("<p id=\"note-{number}\"><a href=\"#mark-{number}\">[{number}]</a> ");
                self.now.push_str(&open);
                self.now.push_str(note);
                self.now.push_str("</p>\n");
            } else {
                self.paragraph(&format!("[{number}] {note}"));
            }
        }
        self.close_lists();
        self.parts.push(self.now);
        self.parts.retain(|part| !part.trim().is_empty());
        self.parts
    }
}

/// Appends the mark of a note.
pub(super) fn reference(into: &mut String, number: usize) {
    let mark = format!("<sup><a href=\"#note-{number}\">[{number}]</a></sup>");
    into.push_str(&mark);
}

/// Appends text in its type. Text of one type that goes on is one piece in Markdown, whatever it was cut into.
pub(super) fn typed(into: &mut String, text: &str, of: Type) {
    let tags = [(of.is_bold, "b"), (of.is_italic, "i")];
    for (_, tag) in tags.iter().filter(|(is_on, _)| *is_on) {
        into.push_str(&format!("<{tag}>"));
    }
    escape(into, text);
    for (_, tag) in tags.iter().rev().filter(|(is_on, _)| *is_on) {
        into.push_str(&format!("</{tag}>"));
    }
}

/// Appends the start tag of a link.
pub(super) fn open_link(into: &mut String, target: &str) {
    into.push_str("<a href=\"");
    let mut escaped = String::new();
    escape(&mut escaped, target);
    into.push_str(&escaped.replace('"', "&quot;"));
    into.push_str("\">");
}

/// Appends text to HTML.
pub(super) fn escape(into: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            c => into.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_nest_and_end_before_paragraphs() {
        let mut flow = Flow::default();
        flow.item(1, false, "a");
        flow.item(2, true, "b");
        flow.item(1, false, "c");
        flow.paragraph(" ");
        flow.paragraph("d");
        let want = "<ul><li>a</li>\n<ol><li>b</li>\n</ol><li>c</li>\n</ul><p>d</p>\n\
            <p id=\"note-1\"><a href=\"#mark-1\">[1]</a> n</p>\n";
        assert_eq!(flow.end(&["n".to_string()]), [want]);
    }

    #[test]
    fn items_go_on_where_nothing_is_between() {
        let mut flow = Flow::default();
        flow.item_goes_on("none");
        flow.item(1, true, "a");
        flow.item_goes_on("b");
        flow.item_goes_on(" ");
        flow.item(2, false, "c");
        flow.item(1, true, "d");
        let want = "<p>none</p>\n<ol><li>a<p>b</p></li>\n<ul><li>c</li>\n</ul><li>d</li>\n</ol>";
        assert_eq!(flow.end(&[]), [want]);
    }

    #[test]
    fn numbered_items_are_in_a_list_of_their_own_for_each_that_counts() {
        let mut flow = Flow::default();
        let of = |list: u32, number: u32| Number { number, list };
        flow.numbered_item(1, of(1, 1), "a");
        flow.numbered_item(1, of(1, 2), "b");
        flow.numbered_item(2, of(2, 4), "c");
        flow.numbered_item(1, of(1, 5), "d");
        flow.numbered_item(1, of(3, 1), "e");
        flow.paragraph("f");
        flow.numbered_item(1, of(3, 2), "g");
        let want = "<ol><li>a</li>\n<li>b</li>\n<ol start=\"4\"><li>c</li>\n</ol><li value=\"5\">d</li>\n</ol>\
            <ol><li>e</li>\n</ol><p>f</p>\n<ol start=\"2\"><li>g</li>\n</ol>";
        assert_eq!(flow.end(&[]), [want]);
    }

    #[test]
    fn targets_and_texts_are_escaped() {
        let mut html = String::new();
        open_link(&mut html, "https://example.org/?a=\"<1>\"&b");
        let of = Type {
            is_bold: true,
            is_italic: true,
        };
        typed(&mut html, "a<b", of);
        let want =
            "<a href=\"https://example.org/?a=&quot;&lt;1&gt;&quot;&amp;b\"><b><i>a&lt;b</i></b>";
        assert_eq!(html, want);
    }

    #[test]
    fn deleted_rows_are_taken_back() {
        let mut flow = Flow::default();
        flow.open_table();
        for (cell, is_deleted) in [("a", false), ("b", true), ("c", false)] {
            flow.open_row();
            flow.open_cell();
            flow.heading(1, cell);
            flow.close_cell();
            flow.close_row(is_deleted);
        }
        let parts = flow.end(&[]);
        let row = |cell: &str| format!("<tr><td><p>{cell}</p>\n</td></tr>");
        assert_eq!(
            parts,
            [format!("<table>{}{}</table>\n", row("a"), row("c"))]
        );
    }

    #[test]
    fn long_documents_are_cut_between_paragraphs() {
        let mut flow = Flow::default();
        let text = "a ".repeat(50_000);
        for _ in 0..7 {
            flow.paragraph(&text);
        }
        let parts = flow.end(&["n".to_string()]);
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.ends_with("</p>\n")));
        // no reference of another part leads to it
        assert!(parts[2].ends_with("<p>[1] n</p>\n"));
    }
}

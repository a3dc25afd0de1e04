//! OpenDocument texts (ODT): paragraphs, headings, lists, tables, text boxes, links, bold and italic type, footnotes and
//! endnotes.
//!
//! Facts: OpenDocument 1.3 part 3 (OASIS), sections 5 (text), 5.3 (lists and their numbers), 5.5 (change tracking), 6.1.7 (spans), 6.1.8 (links), 6.3
//! (notes), 9 (tables), 16.29 (properties of text). Type is that of spans and of the styles that a program makes for one
//! paragraph: a style with a name says how all such paragraphs look. Deleted
//! text is kept in a part of its own by the format, which is left out, as are annotations, tables of contents and
//! other indices, names and descriptions of pictures, headers and footers. Encrypted files are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde_json::{Map, Value};

use super::container::Container;
use super::meta::Described;
use super::word::{note_bad, optional};
use super::xml::{Element, Event, decode, walk};
use crate::read::composed::{Composed, Lack, Reading};
use crate::read::flow::{self, Flow, Number, Type};

const CONTENT: &str = "content.xml";
const STYLES: &str = "styles.xml";
const META: &str = "meta.xml";
const MANIFEST: &str = "META-INF/manifest.xml";

/// Elements whose content is no text of the document.
const SKIPPED: [&str; 14] = [
    "tracked-changes",
    "annotation",
    "table-of-content",
    "illustration-index",
    "table-index",
    "object-index",
    "user-index",
    "alphabetical-index",
    "note-citation",
    "ruby-text",
    "forms",
    "title",
    "desc",
    "binary-data",
];

/// Names that styles give to the title of a document.
const TITLE: &str = "Title";

/// Bold and italic type by a style; None where it leaves it open.
#[derive(Clone, Default)]
struct Look {
    parent: Option<String>,
    is_bold: Option<bool>,
    is_italic: Option<bool>,
}

/// Styles that inherit from each other are followed this far.
const MAX_BASES: usize = 16;

/// Styles by what they make of their text, paragraphs and lists.
#[derive(Default)]
struct Styles {
    titles: BTreeSet<String>,
    /// Styles of spans, by name.
    spans: BTreeMap<String, Look>,
    /// Automatic styles of paragraphs.
    paragraphs: BTreeMap<String, Look>,
    /// Levels that list styles define, with the first number of those that are numbered.
    levels: BTreeMap<(String, usize), Option<u32>>,
}

/// A paragraph or heading being read.
struct Paragraph {
    html: String,
    /// Level of a heading.
    heading: Option<usize>,
    /// Type of the paragraph, and of the spans that are open in it, the innermost last.
    of: Vec<Type>,
}

/// An open list.
struct List {
    style: String,
    /// `xml:id`.
    name: Option<String>,
    /// Whether the first paragraph of the item was read, and whether the item has a number.
    is_item_begun: bool,
    has_number: bool,
    /// Number of the last item; one less than that of the first before it.
    number: Number,
}

/// A pass over the content.
struct Pass<'s> {
    styles: &'s Styles,
    flow: Flow,
    open: Vec<Paragraph>,
    skipped: usize,
    in_text: bool,
    lists: Vec<List>,
    /// Lists so far.
    count: u32,
    /// The list of each level that ended last, with its style, and those with a name.
    ended: BTreeMap<usize, (String, Number)>,
    named: BTreeMap<String, Number>,
    /// Notes so far, and the numbers of those that are open.
    notes: Vec<String>,
    inside: Vec<usize>,
}

/// Reads a document.
///
/// # Errors
/// A read that was refused.
pub(super) fn read(archive: &mut Container) -> io::Result<Reading<'static>> {
    let mut reading = Reading::default();
    if let Some(xml) = optional(archive, MANIFEST, &mut reading)?
        && is_encrypted(&xml)
    {
        reading.document = Some(Composed {
            lacks: Some(Lack::Encrypted),
            ..Composed::default()
        });
        return Ok(reading);
    }
    let xml = match archive.entry(CONTENT)? {
        Ok(bytes) => decode(&bytes).into_owned(),
        Err(refused) => return Ok(Reading::bad(format!("{CONTENT}: {}", refused.told()))),
    };
    let mut styles = Styles::default();
    if let Some(xml) = optional(archive, STYLES, &mut reading)? {
        note_bad(STYLES, read_styles(&xml, &mut styles), &mut reading);
    }
    // broken XML is reported by the pass over the text
    drop(read_styles(&xml, &mut styles));
    let mut pass = Pass::new(&styles);
    if let Err(why) = pass.run(&xml) {
        return Ok(Reading::bad(format!("{CONTENT}: {why}")));
    }
    let (flow, notes) = (pass.flow, pass.notes);
    let mut described = Described::default();
    if let Some(xml) = optional(archive, META, &mut reading)? {
        let read = walk(&xml, |event| match event {
            Event::Open(name, element) => described.open(name, element),
            Event::Close(name) => described.close(name),
            Event::Text(text) => described.text(text),
        });
        note_bad(META, read, &mut reading);
    }
    let mut meta = described.into_meta();
    let mut own = Map::new();
    own.insert("notes".to_string(), Value::from(notes.len()));
    meta.insert("odt".to_string(), own.into());
    reading.document = Some(Composed {
        parts: flow.end(&notes),
        meta,
        ..Composed::default()
    });
    Ok(reading)
}

/// Whether a manifest says that its files are encrypted.
fn is_encrypted(xml: &str) -> bool {
    let mut found = false;
    // one that breaks off says what it says before
    drop(walk(xml, |event| {
        found |= matches!(event, Event::Open("encryption-data", _));
    }));
    found
}

impl Look {
    /// The type of text that has this one without it.
    fn over(&self, around: Type) -> Type {
        Type {
            is_bold: self.is_bold.unwrap_or(around.is_bold),
            is_italic: self.is_italic.unwrap_or(around.is_italic),
        }
    }
}

impl Styles {
    /// The type of a span inside of text of another.
    fn span(&self, name: Option<&str>, around: Type) -> Type {
        let mut look = Look::default();
        let mut next = name;
        for _ in 0..MAX_BASES {
            let Some(style) = next.and_then(|name| self.spans.get(name)) else {
                break;
            };
            look.is_bold = look.is_bold.or(style.is_bold);
            look.is_italic = look.is_italic.or(style.is_italic);
            next = style.parent.as_deref();
        }
        look.over(around)
    }
}

/// Whether a weight of type is bold: by name, or 600 and more.
fn is_bold(weight: &str) -> bool {
    weight == "bold" || weight.parse().is_ok_and(|weight: u32| weight >= 600)
}

fn read_styles(xml: &str, styles: &mut Styles) -> Result<(), String> {
    let mut list = String::new();
    let mut is_automatic = false;
    // the style that is read: its family and its name
    let mut now: Option<(String, String)> = None;
    walk(xml, |event| {
        let (name, element) = match event {
            Event::Open(name, element) => (name, element),
            Event::Close("automatic-styles") => return is_automatic = false,
            Event::Close("style") => return now = None,
            Event::Close(_) | Event::Text(_) => return,
        };
        match name {
            "automatic-styles" => is_automatic = true,
            "style" => {
                let parent = element.value("parent-style-name");
                let name = element.value("name").unwrap_or_default();
                let family = element.value("family").unwrap_or_default();
                if parent.as_deref() == Some(TITLE) {
                    styles.titles.insert(name.clone());
                }
                if family == "text" {
                    let look = Look {
                        parent,
                        ..Look::default()
                    };
                    styles.spans.insert(name.clone(), look);
                }
                now = Some((family, name));
            }
            "text-properties" => {
                let look = match &now {
                    Some((family, name)) if family == "text" => styles.spans.get_mut(name),
                    Some((family, name)) if family == "paragraph" && is_automatic => {
                        Some(styles.paragraphs.entry(name.clone()).or_default())
                    }
                    _ => None,
                };
                if let Some(look) = look {
                    look.is_bold = element.value("font-weight").map(|weight| is_bold(&weight));
                    let style = element.value("font-style");
                    look.is_italic = style.map(|style| style == "italic" || style == "oblique");
                }
            }
            "list-style" => list = element.value("name").unwrap_or_default(),
            "list-level-style-number" | "list-level-style-bullet" | "list-level-style-image" => {
                let format = element.value("num-format").unwrap_or_default();
                let is_ordered = name.ends_with("number") && !format.is_empty();
                let first = is_ordered.then(|| whole(element, "start-value").unwrap_or(1));
                let level = number(element, "level");
                styles.levels.insert((list.clone(), level), first);
            }
            _ => {}
        }
    })
}

fn whole(element: &Element<'_>, name: &str) -> Option<u32> {
    element.value(name)?.parse().ok()
}

/// A small number from 1; 1 if there is none.
fn number(element: &Element<'_>, name: &str) -> usize {
    let value = element.value(name).and_then(|v| v.parse().ok());
    value.unwrap_or(1).clamp(1, 10)
}

impl<'s> Pass<'s> {
    fn new(styles: &'s Styles) -> Pass<'s> {
        Pass {
            styles,
            flow: Flow::default(),
            open: Vec::new(),
            skipped: 0,
            in_text: false,
            lists: Vec::new(),
            count: 0,
            ended: BTreeMap::new(),
            named: BTreeMap::new(),
            notes: Vec::new(),
            inside: Vec::new(),
        }
    }

    fn run(&mut self, xml: &str) -> Result<(), String> {
        walk(xml, |event| match event {
            Event::Open(..) if self.skipped > 0 => self.skipped += 1,
            Event::Close(_) if self.skipped > 0 => self.skipped -= 1,
            Event::Text(text) => {
                if self.skipped == 0
                    && let Some(paragraph) = self.open.last_mut()
                {
                    let of = paragraph.of.last().copied().unwrap_or_default();
                    flow::typed(&mut paragraph.html, text, of);
                }
            }
            Event::Open(name, element) => self.open(name, element),
            Event::Close(name) => self.close(name),
        })
    }

    fn push(&mut self, add: impl FnOnce(&mut String)) {
        if let Some(paragraph) = self.open.last_mut() {
            add(&mut paragraph.html);
        }
    }

    fn open(&mut self, name: &str, element: &Element<'_>) {
        match name {
            // styles, fonts and settings come before it
            "body" => self.in_text = true,
            _ if !self.in_text => {}
            _ if SKIPPED.contains(&name) => self.skipped = 1,
            "h" => self.open.push(Paragraph {
                html: String::new(),
                heading: Some(number(element, "outline-level")),
                of: Vec::new(),
            }),
            "p" => {
                let style = element.value("style-name").unwrap_or_default();
                let is_title = style == TITLE || self.styles.titles.contains(&style);
                let look = self.styles.paragraphs.get(&style);
                self.open.push(Paragraph {
                    html: String::new(),
                    heading: is_title.then_some(1),
                    of: look
                        .map(|look| look.over(Type::default()))
                        .into_iter()
                        .collect(),
                });
            }
            "span" => {
                let styles = self.styles;
                if let Some(paragraph) = self.open.last_mut() {
                    let around = paragraph.of.last().copied().unwrap_or_default();
                    let style = element.value("style-name");
                    paragraph.of.push(styles.span(style.as_deref(), around));
                }
            }
            "a" => {
                let target = element.value("href").unwrap_or_default();
                self.push(|html| flow::open_link(html, &target));
            }
            "s" | "tab" => self.push(|html| html.push(' ')),
            "line-break" => self.push(|html| html.push_str("<br>")),
            "list" => self.open_list(element),
            "list-item" => {
                if let Some(list) = self.lists.last_mut() {
                    (list.is_item_begun, list.has_number) = (false, true);
                    let next = list.number.number.saturating_add(1);
                    list.number.number = whole(element, "start-value").unwrap_or(next);
                }
            }
            "list-header" => {
                if let Some(list) = self.lists.last_mut() {
                    (list.is_item_begun, list.has_number) = (false, false);
                }
            }
            "table" => self.flow.open_table(),
            "table-row" => self.flow.open_row(),
            "table-cell" => {
                self.flow.open_cell();
                let spanned = |name| element.value(name).and_then(|number| number.parse().ok());
                self.flow.span(
                    spanned("number-columns-spanned").unwrap_or(1),
                    spanned("number-rows-spanned").unwrap_or(1),
                );
            }
            "note" => {
                self.notes.push(String::new());
                self.inside.push(self.notes.len() - 1);
                let number = self.notes.len();
                self.push(|html| flow::reference(html, number));
            }
            _ => {}
        }
    }

    fn open_list(&mut self, element: &Element<'_>) {
        let outer = self.lists.last().map(|list| list.style.clone());
        let style = element.value("style-name").or(outer).unwrap_or_default();
        let level = self.lists.len() + 1;
        let continued = match element.value("continue-list") {
            Some(name) => self.named.get(&name).copied(),
            None if element.value("continue-numbering").as_deref() == Some("true") => {
                let last = self.ended.get(&level);
                last.filter(|last| last.0 == style).map(|last| last.1)
            }
            None => None,
        };
        self.count += 1;
        let first = self.first_number(&style, level).unwrap_or(1);
        let number = continued.unwrap_or(Number {
            number: first.saturating_sub(1),
            list: self.count,
        });
        self.lists.push(List {
            style,
            name: element.value("id"),
            is_item_begun: false,
            has_number: true,
            number,
        });
    }

    fn close_list(&mut self) {
        let level = self.lists.len();
        let Some(list) = self.lists.pop() else {
            return;
        };
        if let Some(name) = list.name {
            self.named.insert(name, list.number);
        }
        self.ended.insert(level, (list.style, list.number));
    }

    /// The first number of a level of a list style, if it is numbered; a style need not define every level.
    fn first_number(&self, style: &str, level: usize) -> Option<u32> {
        let levels = (style.to_string(), 0)..=(style.to_string(), level);
        let mut levels = self.styles.levels.range(levels);
        levels.next_back().and_then(|(_, first)| *first)
    }

    fn close(&mut self, name: &str) {
        match name {
            "body" => self.in_text = false,
            _ if !self.in_text => {}
            "h" | "p" => {
                if let Some(paragraph) = self.open.pop() {
                    self.end(&paragraph);
                }
            }
            "span" => {
                if let Some(paragraph) = self.open.last_mut() {
                    paragraph.of.pop();
                }
            }
            "a" => self.push(|html| html.push_str("</a>")),
            "list" => self.close_list(),
            "table" => self.flow.close_table(),
            "table-row" => self.flow.close_row(false),
            "table-cell" => self.flow.close_cell(),
            "note" => drop(self.inside.pop()),
            _ => {}
        }
    }

    fn end(&mut self, paragraph: &Paragraph) {
        if let Some(&note) = self.inside.last() {
            let text = &mut self.notes[note];
            if !text.is_empty() {
                text.push(' ');
            }
            return text.push_str(&paragraph.html);
        }
        if let Some(level) = paragraph.heading {
            return self.flow.heading(level, &paragraph.html);
        }
        let level = self.lists.len();
        let Some(list) = self.lists.last_mut() else {
            return self.flow.paragraph(&paragraph.html);
        };
        if std::mem::replace(&mut list.is_item_begun, true) {
            return self.flow.item_goes_on(&paragraph.html);
        }
        let number = list.has_number.then_some(list.number);
        let style = list.style.clone();
        let is_ordered = self.first_number(&style, level).is_some();
        match number.filter(|_| is_ordered) {
            Some(number) => self.flow.numbered_item(level, number, &paragraph.html),
            None => self.flow.item(level, is_ordered, &paragraph.html),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(body: &str) -> String {
        let xml = format!(
            "<office:document-content><office:styles>\
             <style:style style:name='Strong' style:family='text'><style:text-properties fo:font-weight='bold'/></style:style>\
             <style:style style:name='Fat' style:family='paragraph'><style:text-properties fo:font-weight='bold'/></style:style>\
             </office:styles><office:automatic-styles><style:style style:name='P1' style:parent-style-name='Title'/>\
             <style:style style:name='P2' style:family='paragraph' style:parent-style-name='Fat'>\
             <style:text-properties fo:font-style='oblique' style:font-weight-asian='bold'/></style:style>\
             <style:style style:name='T1' style:family='text' style:parent-style-name='Strong'>\
             <style:text-properties fo:font-style='italic'/></style:style>\
             <style:style style:name='T2' style:family='text'><style:text-properties fo:font-weight='400'/></style:style>\
             <style:style style:name='T3' style:family='text'><style:text-properties fo:font-weight='700'/></style:style>\
             <text:list-style style:name='L1'><text:list-level-style-bullet text:level='1'/>\
             <text:list-level-style-number text:level='2' style:num-format='1'/></text:list-style>\
             <text:list-style style:name='L2'><text:list-level-style-number text:level='1' style:num-format='a' text:start-value='4'/>\
             </text:list-style></office:automatic-styles>\
             <office:body><office:text>{body}</office:text></office:body></office:document-content>"
        );
        let mut styles = Styles::default();
        read_styles(&xml, &mut styles).unwrap();
        let mut pass = Pass::new(&styles);
        pass.run(&xml).unwrap();
        pass.flow.end(&pass.notes).concat().replace('\n', "")
    }

    #[test]
    fn headings_lists_and_tables_keep_their_form() {
        let body = "<text:p text:style-name='P1'>t</text:p><text:h text:outline-level='2'>a</text:h>\
            <text:list text:style-name='L1'><text:list-item><text:p>b</text:p><text:p>more</text:p>\
            <text:list><text:list-item><text:p>c</text:p></text:list-item></text:list></text:list-item></text:list>\
            <table:table><table:table-row><table:table-cell table:number-columns-spanned='2'><text:p>d<text:s text:c='9'/>&amp;<text:tab/>e<text:line-break/></text:p>\
            </table:table-cell><table:covered-table-cell/></table:table-row></table:table>";
        let want = "<h1>t</h1><h2>a</h2><ul><li>b<p>more</p></li><ol><li>c</li></ol></ul>\
            <table><tr><td colspan=\"2\"><p>d &amp; e<br></p></td></tr></table>";
        assert_eq!(html(body), want);
    }

    #[test]
    fn lists_behind_each_other_start_at_their_own_numbers() {
        let item = |start: &str, text: &str| {
            format!("<text:list-item{start}><text:p>{text}</text:p></text:list-item>")
        };
        let list = |attributes: &str, items: &[String]| {
            format!(
                "<text:list text:style-name='L2'{attributes}>{}</text:list>",
                items.concat()
            )
        };
        let body = [
            list(" xml:id='one'", &[item("", "a"), item("", "b")]),
            list(
                "",
                &[
                    item("", "c"),
                    item(" text:start-value='9'", "d"),
                    item("", "e"),
                ],
            ),
            "<text:p>f</text:p>".to_string(),
            list(" text:continue-numbering='true'", &[item("", "g")]),
            list(" text:continue-list='one'", &[item("", "h")]),
        ];
        let want = "<ol start=\"4\"><li>a</li><li>b</li></ol><ol start=\"4\"><li>c</li><li value=\"9\">d</li><li>e</li></ol><p>f</p>\
            <ol start=\"11\"><li>g</li></ol><ol start=\"6\"><li>h</li></ol>";
        assert_eq!(html(&body.concat()), want);
    }

    #[test]
    fn type_is_that_of_spans_and_of_styles_made_for_one_paragraph() {
        let span = |style: &str, text: &str| {
            format!("<text:span text:style-name='{style}'>{text}</text:span>")
        };
        let inner = span("T1", &format!("b{}c", span("T2", "d")));
        let body = [
            format!(
                "<text:p text:style-name='Fat'>a{inner}{}{}e</text:p>",
                span("T3", "f"),
                span("Strong", "g")
            ),
            format!("<text:p text:style-name='P2'>a{}</text:p>", span("T3", "b")),
        ];
        let want = "<p>a<b><i>b</i></b><i>d</i><b><i>c</i></b><b>f</b><b>g</b>e</p>\
            <p><i>a</i><b><i>b</i></b></p>";
        assert_eq!(html(&body.concat()), want);
    }

    #[test]
    fn links_and_cells_of_several_rows_are_html() {
        let body = "<text:p>a<text:a xlink:href='https://x.org/?a&amp;b'>b<text:span>c</text:span></text:a>d</text:p>\
            <table:table><table:table-row><table:table-cell table:number-columns-spanned='2' table:number-rows-spanned='3'>\
            <text:p>e</text:p></table:table-cell></table:table-row></table:table>";
        let want = "<p>a<a href=\"https://x.org/?a&amp;b\">bc</a>d</p>\
            <table><tr><td colspan=\"2\" rowspan=\"3\"><p>e</p></td></tr></table>";
        assert_eq!(html(body), want);
    }

    #[test]
    fn deleted_text_annotations_and_indices_are_left_out() {
        let body = "<text:tracked-changes><text:changed-region><text:deletion><text:p>x</text:p></text:deletion>\
            </text:changed-region></text:tracked-changes><text:table-of-content><text:index-body><text:p>x 1</text:p>\
            </text:index-body></text:table-of-content><text:p>a<text:change/><office:annotation><text:p>x</text:p>\
            </office:annotation>b<draw:frame><draw:text-box><text:p>box</text:p></draw:text-box><svg:desc>x</svg:desc></draw:frame></text:p>";
        assert_eq!(html(body), "<p>box</p><p>ab</p>");
    }

    #[test]
    fn notes_follow_the_text() {
        let body = "<text:p>a<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>n</text:p>\
            <text:p>m</text:p></text:note-body></text:note> b</text:p>";
        let want = "<p>a<sup><a href=\"#note-1\">[1]</a></sup> b</p>\
            <p id=\"note-1\"><a href=\"#mark-1\">[1]</a> n m</p>";
        assert_eq!(html(body), want);
    }

    #[test]
    fn encryption_is_told_by_the_manifest() {
        assert!(is_encrypted(
            "<manifest:manifest><manifest:file-entry><manifest:encryption-data/>"
        ));
        assert!(!is_encrypted("<manifest:manifest/>"));
    }
}

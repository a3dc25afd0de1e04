//! Word documents (DOCX): paragraphs, headings, lists, tables, text boxes, footnotes and endnotes.
//!
//! Facts: ECMA-376 part 1 (WordprocessingML), sections 17.3 (paragraphs), 17.4 (tables), 17.9 (numbering), 17.11
//! (notes), 17.13 (revisions). Of tracked changes the new state is read: inserted text stays, deleted and moved-away
//! text, deleted paragraph marks and rows go. Left out: headers and footers, comments, hidden text, tables of
//! contents, field codes, pictures. Formulas keep their characters, with `/`, `^` and `_` for fractions and scripts.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value};

use super::container::{Container, Refused};
use super::meta::Described;
use super::xml::{Element, Event, decode, walk};
use crate::read::composed::{BadPart, Composed, Reading};
use crate::read::flow::{Flow, escape};

const DOCUMENT: &str = "word/document.xml";
const STYLES: &str = "word/styles.xml";
const NUMBERING: &str = "word/numbering.xml";
const PROPERTIES: &str = "docProps/core.xml";
/// The notes' files, with the elements that hold one note.
const NOTES: [(&str, &str); 2] = [
    ("word/footnotes.xml", "footnote"),
    ("word/endnotes.xml", "endnote"),
];

/// Elements whose content is no text of the document.
const SKIPPED: [&str; 17] = [
    "del",
    "moveFrom",
    "delText",
    "delInstrText",
    "instrText",
    "Fallback",
    "sdtPr",
    "fldData",
    "rPrChange",
    "pPrChange",
    "tblPrChange",
    "trPrChange",
    "tcPrChange",
    "sectPrChange",
    "numberingChange",
    "tblGridChange",
    "tblPrExChange",
];

/// Styles that inherit from each other are followed this far.
const MAX_BASES: usize = 16;

/// A paragraph style.
#[derive(Clone, Default)]
struct Style {
    name: String,
    base: Option<String>,
    /// Level of a heading, from 1.
    outline: Option<usize>,
    list: Option<String>,
}

/// Styles and lists of a document.
#[derive(Default)]
struct Layout {
    styles: BTreeMap<String, Style>,
    /// Number format by abstract list and level.
    formats: BTreeMap<(String, usize), String>,
    /// Abstract list by list.
    lists: BTreeMap<String, String>,
}

/// The part that a paragraph plays.
enum Part {
    Heading(usize),
    Item(usize, bool),
    Text,
    /// Of a table of contents.
    Contents,
}

/// A paragraph being read.
#[derive(Default)]
struct Paragraph {
    html: String,
    style: Option<String>,
    outline: Option<usize>,
    list: Option<String>,
    level: usize,
    /// Its mark is deleted: the next one continues it.
    is_joined: bool,
    in_properties: bool,
}

/// A pass over a document or over its notes.
struct Pass<'l> {
    layout: &'l Layout,
    flow: Flow,
    /// Paragraphs, of which those in text boxes are inside others.
    open: Vec<Paragraph>,
    /// Text of paragraphs whose marks are deleted.
    joined: String,
    /// Depth below the element that is skipped.
    skipped: usize,
    in_run: bool,
    is_hidden: bool,
    in_text: bool,
    in_row_properties: bool,
    is_row_deleted: bool,
    /// Notes that are referred to: their kind and id.
    references: Vec<(&'static str, String)>,
    /// In a file of notes: the element of one, its id, and the texts.
    note: Option<&'static str>,
    id: Option<String>,
    notes: BTreeMap<String, String>,
}

/// Reads a document.
///
/// # Errors
/// A read that was refused.
pub(super) fn read(archive: &mut Container) -> io::Result<Reading<'static>> {
    let mut reading = Reading::default();
    let mut layout = Layout::default();
    if let Some(xml) = optional(archive, STYLES, &mut reading)? {
        note_bad(STYLES, read_styles(&xml, &mut layout), &mut reading);
    }
    if let Some(xml) = optional(archive, NUMBERING, &mut reading)? {
        note_bad(NUMBERING, read_numbering(&xml, &mut layout), &mut reading);
    }
    let xml = match archive.entry(DOCUMENT)? {
        Ok(bytes) => bytes,
        Err(refused) => {
            let why = format!("{DOCUMENT}: {}", refused.told());
            return Ok(Reading::bad(why));
        }
    };
    let mut pass = Pass::new(&layout, None);
    if let Err(why) = pass.run(&decode(&xml)) {
        return Ok(Reading::bad(format!("{DOCUMENT}: {why}")));
    }
    drop(xml);
    let (flow, references) = (pass.flow, pass.references);
    let mut texts = BTreeMap::new();
    for (path, element) in NOTES {
        if !references.iter().any(|(kind, _)| *kind == element) {
            continue;
        }
        if let Some(xml) = optional(archive, path, &mut reading)? {
            let mut pass = Pass::new(&layout, Some(element));
            note_bad(path, pass.run(&xml), &mut reading);
            let notes = pass.notes.into_iter();
            texts.extend(notes.map(|(id, text)| ((element, id), text)));
        }
    }
    let notes: Vec<String> = references
        .iter()
        .map(|reference| texts.remove(reference).unwrap_or_default())
        .collect();
    let mut described = Described::default();
    if let Some(xml) = optional(archive, PROPERTIES, &mut reading)? {
        let read = walk(&xml, |event| match event {
            Event::Open(name, element) => described.open(name, element),
            Event::Close(name) => described.close(name),
            Event::Text(text) => described.text(text),
        });
        note_bad(PROPERTIES, read, &mut reading);
    }
    let mut meta = described.into_meta();
    let mut own = Map::new();
    own.insert("notes".to_string(), Value::from(notes.len()));
    meta.insert("docx".to_string(), own.into());
    reading.document = Some(Composed {
        parts: flow.end(&notes),
        meta,
        ..Composed::default()
    });
    Ok(reading)
}

/// A part that a document need not have; one that cannot be read is a bad part.
pub(super) fn optional(
    archive: &mut Container,
    path: &str,
    reading: &mut Reading<'_>,
) -> io::Result<Option<String>> {
    Ok(match archive.entry(path)? {
        Ok(bytes) => Some(decode(&bytes).into_owned()),
        Err(Refused::Absent) => None,
        Err(refused) => {
            reading.bad.push(BadPart {
                offset: refused.offset(),
                why: format!("{path}: {}", refused.told()),
            });
            None
        }
    })
}

/// Notes a part that broke off.
pub(super) fn note_bad(path: &str, read: Result<(), String>, reading: &mut Reading<'_>) {
    if let Err(why) = read {
        reading.bad.push(BadPart {
            offset: 0,
            why: format!("{path}: {why}"),
        });
    }
}

fn read_styles(xml: &str, layout: &mut Layout) -> Result<(), String> {
    let mut now: Option<(String, Style)> = None;
    walk(xml, |event| match event {
        Event::Open("style", element) => {
            let id = element.value("styleId").unwrap_or_default();
            now = Some((id, Style::default()));
        }
        Event::Close("style") => layout.styles.extend(now.take()),
        Event::Open(name, element) => {
            let Some((_, style)) = &mut now else {
                return;
            };
            match name {
                "name" => style.name = element.value("val").unwrap_or_default().to_lowercase(),
                "basedOn" => style.base = element.value("val"),
                "outlineLvl" => style.outline = outline(element),
                "numId" => style.list = element.value("val"),
                _ => {}
            }
        }
        Event::Close(_) | Event::Text(_) => {}
    })
}

/// Level of a heading; 9 in the file says that it is none.
fn outline(element: &Element<'_>) -> Option<usize> {
    let level: usize = element.value("val")?.parse().ok()?;
    (level < 9).then_some(level + 1)
}

fn read_numbering(xml: &str, layout: &mut Layout) -> Result<(), String> {
    let (mut of, mut level, mut list) = (String::new(), 0, None);
    walk(xml, |event| match event {
        Event::Open("abstractNum", element) => {
            of = element.value("abstractNumId").unwrap_or_default();
        }
        Event::Open("lvl", element) => level = level_of(element.value("ilvl")),
        Event::Open("numFmt", element) => {
            let format = element.value("val").unwrap_or_default();
            layout.formats.insert((of.clone(), level), format);
        }
        Event::Open("num", element) => list = element.value("numId"),
        Event::Open("abstractNumId", element) => {
            if let (Some(list), Some(of)) = (list.take(), element.value("val")) {
                layout.lists.insert(list, of);
            }
        }
        Event::Open(..) | Event::Close(_) | Event::Text(_) => {}
    })
}

/// The level of an item, from 0.
fn level_of(value: Option<String>) -> usize {
    value
        .and_then(|v| v.parse::<usize>().ok())
        .unwrap_or(0)
        .min(8)
}

impl Layout {
    /// A style and those that it is based on.
    fn chain<'l>(&'l self, id: Option<&'l str>) -> impl Iterator<Item = &'l Style> {
        let mut next = id;
        let chain = std::iter::from_fn(move || {
            let style = self.styles.get(next?)?;
            next = style.base.as_deref();
            Some(style)
        });
        chain.take(MAX_BASES)
    }

    fn part(&self, paragraph: &Paragraph) -> Part {
        let style = paragraph.style.as_deref();
        let mut heading = paragraph.outline;
        for style in self.chain(style) {
            let name = style.name.as_str();
            if name.starts_with("toc ") || name == "table of figures" {
                return Part::Contents;
            }
            let by_name = match name.strip_prefix("heading ") {
                Some(level) => level.trim().parse().ok(),
                None => (name == "title").then_some(1),
            };
            heading = heading.or(by_name).or(style.outline);
        }
        if let Some(level) = heading {
            return Part::Heading(level);
        }
        let inherited = || self.chain(style).find_map(|style| style.list.as_ref());
        match paragraph.list.as_ref().or_else(inherited) {
            Some(list) if list != "0" => {
                let format = self.lists.get(list).and_then(|of| {
                    let key = (of.clone(), paragraph.level);
                    self.formats.get(&key)
                });
                let is_bullet = format.is_none_or(|f| f == "bullet" || f == "none");
                Part::Item(paragraph.level + 1, !is_bullet)
            }
            _ => Part::Text,
        }
    }
}

impl<'l> Pass<'l> {
    fn new(layout: &'l Layout, note: Option<&'static str>) -> Pass<'l> {
        Pass {
            layout,
            flow: Flow::default(),
            open: Vec::new(),
            joined: String::new(),
            skipped: 0,
            in_run: false,
            is_hidden: false,
            in_text: false,
            in_row_properties: false,
            is_row_deleted: false,
            references: Vec::new(),
            note,
            id: None,
            notes: BTreeMap::new(),
        }
    }

    fn run(&mut self, xml: &str) -> Result<(), String> {
        walk(xml, |event| match event {
            Event::Open(..) | Event::Close(_) if self.skipped > 0 => match event {
                Event::Open(..) => self.skipped += 1,
                _ => self.skipped -= 1,
            },
            Event::Text(text) => {
                if self.skipped == 0 && self.in_text && !self.is_hidden {
                    self.push(|html| escape(html, text));
                }
            }
            Event::Open(name, element) => self.open(name, element),
            Event::Close(name) => self.close(name),
        })?;
        self.end_joined();
        Ok(())
    }

    /// Adds to the innermost paragraph.
    fn push(&mut self, add: impl FnOnce(&mut String)) {
        if let Some(paragraph) = self.open.last_mut() {
            add(&mut paragraph.html);
        }
    }

    fn open(&mut self, name: &str, element: &Element<'_>) {
        if let Some(paragraph) = self.open.last_mut().filter(|p| p.in_properties) {
            match name {
                "pStyle" => paragraph.style = element.value("val"),
                "outlineLvl" => paragraph.outline = outline(element),
                "numId" => paragraph.list = element.value("val"),
                "ilvl" => paragraph.level = level_of(element.value("val")),
                "del" | "moveFrom" => paragraph.is_joined = true,
                _ if SKIPPED.contains(&name) => self.skipped = 1,
                _ => {}
            }
            return;
        }
        if self.in_row_properties && name == "del" {
            self.is_row_deleted = true;
            return;
        }
        if SKIPPED.contains(&name) {
            self.skipped = 1;
            return;
        }
        match name {
            "p" => self.open.push(Paragraph::default()),
            "pPr" => {
                if let Some(paragraph) = self.open.last_mut() {
                    paragraph.in_properties = true;
                }
            }
            "r" => (self.in_run, self.is_hidden) = (true, false),
            "vanish" if self.in_run => self.is_hidden = element.is_on(),
            "t" => self.in_text = true,
            "tab" | "ptab" | "sym" => self.push(|html| html.push(' ')),
            "br" | "cr" => self.push(|html| html.push_str("<br>")),
            "noBreakHyphen" => self.push(|html| html.push('-')),
            "den" => self.push(|html| html.push('/')),
            "sup" => self.push(|html| html.push('^')),
            "sub" => self.push(|html| html.push('_')),
            "footnoteReference" => self.refer("footnote", element),
            "endnoteReference" => self.refer("endnote", element),
            "tbl" => {
                self.end_joined();
                self.flow.open_table();
            }
            "tr" => {
                self.is_row_deleted = false;
                self.flow.open_row();
            }
            "trPr" => self.in_row_properties = true,
            "tc" => self.flow.open_cell(),
            "gridSpan" => {
                let columns = element
                    .value("val")
                    .and_then(|columns| columns.parse().ok());
                self.flow.span(columns.unwrap_or(1));
            }
            _ if self.note == Some(name) => {
                // separators are notes of a type
                let kind = element.value("type").unwrap_or_default();
                let is_text = kind.is_empty() || kind == "normal";
                self.id = element.value("id").filter(|_| is_text);
            }
            _ => {}
        }
    }

    fn refer(&mut self, kind: &'static str, element: &Element<'_>) {
        let Some(id) = element.value("id") else {
            return;
        };
        if self.is_hidden || self.open.is_empty() {
            return;
        }
        self.references.push((kind, id));
        let mark = format!("[{}]", self.references.len());
        self.push(|html| html.push_str(&mark));
    }

    fn close(&mut self, name: &str) {
        match name {
            "p" => {
                if let Some(paragraph) = self.open.pop() {
                    self.end(paragraph);
                }
            }
            "pPr" => {
                if let Some(paragraph) = self.open.last_mut() {
                    paragraph.in_properties = false;
                }
            }
            "r" => (self.in_run, self.is_hidden) = (false, false),
            "t" => self.in_text = false,
            "tbl" => {
                self.end_joined();
                self.flow.close_table();
            }
            "tr" => {
                self.flow.close_row(self.is_row_deleted);
                self.is_row_deleted = false;
            }
            "trPr" => self.in_row_properties = false,
            "tc" => {
                self.end_joined();
                self.flow.close_cell();
            }
            _ if self.note == Some(name) => self.id = None,
            _ => {}
        }
    }

    fn end(&mut self, mut paragraph: Paragraph) {
        if paragraph.is_joined || !self.joined.is_empty() {
            self.joined.push_str(&paragraph.html);
            if paragraph.is_joined {
                return;
            }
            paragraph.html = std::mem::take(&mut self.joined);
        }
        if self.note.is_some() {
            let Some(id) = &self.id else { return };
            let text = self.notes.entry(id.clone()).or_default();
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&paragraph.html);
            return;
        }
        match self.layout.part(&paragraph) {
            Part::Heading(level) => self.flow.heading(level, &paragraph.html),
            Part::Item(level, is_ordered) => self.flow.item(level, is_ordered, &paragraph.html),
            Part::Text => self.flow.paragraph(&paragraph.html),
            Part::Contents => {}
        }
    }

    /// A paragraph without a mark at the end of its cell or of the document.
    fn end_joined(&mut self) {
        if !self.joined.is_empty() {
            self.end(Paragraph::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Styles and lists as Word writes them.
    fn layout() -> Layout {
        let mut layout = Layout::default();
        read_styles(
            "<w:styles><w:style w:styleId='U1'><w:name w:val='Heading 1'/></w:style>\
             <w:style w:styleId='Own'><w:name w:val='own'/><w:basedOn w:val='U1'/></w:style>\
             <w:style w:styleId='V1'><w:name w:val='toc 1'/></w:style>\
             <w:style w:styleId='L'><w:name w:val='list'/><w:pPr><w:numPr><w:numId w:val='2'/></w:numPr></w:pPr></w:style>\
             <w:style w:styleId='Loop'><w:basedOn w:val='Loop'/></w:style></w:styles>",
            &mut layout,
        )
        .unwrap();
        read_numbering(
            "<w:numbering><w:abstractNum w:abstractNumId='7'><w:lvl w:ilvl='0'><w:numFmt w:val='bullet'/></w:lvl>\
             <w:lvl w:ilvl='1'><w:numFmt w:val='decimal'/></w:lvl></w:abstractNum>\
             <w:num w:numId='2'><w:abstractNumId w:val='7'/></w:num></w:numbering>",
            &mut layout,
        )
        .unwrap();
        layout
    }

    fn html(body: &str) -> String {
        let layout = layout();
        let mut pass = Pass::new(&layout, None);
        pass.run(&format!("<w:document>{body}</w:document>"))
            .unwrap();
        pass.flow.end(&[]).concat().replace('\n', "")
    }

    fn paragraph(properties: &str, text: &str) -> String {
        format!("<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
    }

    #[test]
    fn headings_and_lists_follow_styles_and_numbering() {
        let style = |id: &str| format!("<w:pStyle w:val='{id}'/>");
        let list = |level: usize| {
            format!("<w:numPr><w:ilvl w:val='{level}'/><w:numId w:val='2'/></w:numPr>")
        };
        let body = [
            paragraph(&style("U1"), "a"),
            paragraph(&style("Own"), "b"),
            paragraph(&style("V1"), "contents 3"),
            paragraph(&style("Loop"), "c"),
            paragraph(&list(0), "d"),
            paragraph(&list(1), "e"),
            paragraph(&style("L"), "f"),
            paragraph("<w:numPr><w:numId w:val='0'/></w:numPr>", "g"),
            paragraph("<w:outlineLvl w:val='2'/>", "h"),
        ];
        let want = "<h1>a</h1><h1>b</h1><p>c</p><ul><li>d</li><ol><li>e</li></ol><li>f</li></ul><p>g</p><h3>h</h3>";
        assert_eq!(html(&body.concat()), want);
    }

    #[test]
    fn deleted_text_marks_and_rows_are_gone_and_inserted_text_stays() {
        let run = |text: &str| format!("<w:r><w:t>{text}</w:t></w:r>");
        let body = format!(
            "<w:p>{}<w:del>{}<w:r><w:delText>x</w:delText></w:r></w:del><w:ins>{}</w:ins></w:p>\
             <w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr>{}</w:p><w:p>{}</w:p>\
             <w:p><w:moveFrom>{}</w:moveFrom></w:p><w:p><w:moveTo>{}</w:moveTo></w:p>\
             <w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc><w:p>{}</w:p></w:tc></w:tr>\
             <w:tr><w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr><w:p>{}</w:p></w:tc></w:tr></w:tbl>",
            run("a"),
            run("x"),
            run("b"),
            run("c"),
            run("d"),
            run("x"),
            run("e"),
            run("x"),
            run("f"),
        );
        let want =
            "<p>ab</p><p>cd</p><p>e</p><table><tr><td colspan=\"2\"><p>f</p></td></tr></table>";
        assert_eq!(html(&body), want);
    }

    #[test]
    fn hidden_text_field_codes_and_second_forms_are_left_out() {
        let body = "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>x</w:t></w:r><w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t>a</w:t></w:r>\
            <w:r><w:instrText>PAGEREF</w:instrText></w:r><w:r><w:t>&lt;b</w:t><w:tab/><w:t>c</w:t><w:br/></w:r>\
            <mc:AlternateContent><mc:Choice><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></mc:Choice>\
            <mc:Fallback><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></mc:Fallback></mc:AlternateContent>\
            <m:oMath><m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:oMath></w:p>";
        assert_eq!(html(body), "<p>box</p><p>a&lt;b c<br>1/2</p>");
    }

    #[test]
    fn notes_are_read_by_id_without_their_separators() {
        let layout = Layout::default();
        let mut pass = Pass::new(&layout, Some("footnote"));
        pass.run(
            "<w:footnotes><w:footnote w:type='separator' w:id='0'><w:p><w:r><w:t>-</w:t></w:r></w:p></w:footnote>\
             <w:footnote w:id='2'><w:p><w:r><w:t>a</w:t></w:r></w:p><w:p><w:r><w:t>b</w:t></w:r></w:p></w:footnote></w:footnotes>",
        )
        .unwrap();
        let want = BTreeMap::from([("2".to_string(), "a b".to_string())]);
        assert_eq!(pass.notes, want);
        let mut pass = Pass::new(&layout, None);
        pass.run("<d><p><r><t>x</t><footnoteReference w:id='2'/></r></p></d>")
            .unwrap();
        assert_eq!(pass.references, [("footnote", "2".to_string())]);
        assert_eq!(pass.flow.end(&[]), ["<p>x[1]</p>\n"]);
    }
}

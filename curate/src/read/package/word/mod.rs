//! Word documents (DOCX): paragraphs, headings, lists, tables, text boxes, links, bold and italic type, footnotes and endnotes.
//!
//! Facts: ECMA-376 part 1 (WordprocessingML), sections 17.3 (paragraphs and runs), 17.4 (tables), 17.7 (styles), 17.9
//! (numbering), 17.11 (notes), 17.13 (revisions), 17.16 (fields and links). Type is that of a run and of its own style: a
//! paragraph's style says how all of it looks. Of tracked changes the new state is read: inserted text stays, deleted and moved-away
//! text, deleted paragraph marks and rows go. Left out: headers and footers, comments, hidden text, tables of
//! contents, field codes, pictures. Formulas keep their characters, with `/`, `^` and `_` for fractions and scripts.

mod layout;
mod links;

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value};

use super::container::{Container, Refused};
use super::meta::Described;
use super::xml::{Element, Event, decode, walk};
use crate::read::composed::{BadPart, Composed, Reading};
use crate::read::flow::{self, Flow, Type};
use layout::{
    Counters, Layout, Paragraph, Part, Run, level_of, outline, read_numbering, read_styles,
};
use links::{Links, field_target, links_of};

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
const SKIPPED: [&str; 16] = [
    "del",
    "moveFrom",
    "delText",
    "delInstrText",
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

/// A field: an instruction and its result.
#[derive(Default)]
struct FieldCode {
    instruction: String,
    /// Its result is the text of a link.
    is_link: bool,
}

/// Bytes of an instruction that are read: longer ones are no links.
const MAX_INSTRUCTION: usize = 4096;

/// A pass over a document or over its notes.
struct Pass<'l> {
    layout: &'l Layout,
    links: &'l Links,
    flow: Flow,
    counters: Counters,
    /// Paragraphs, of which those in text boxes are inside others.
    open: Vec<Paragraph>,
    /// Text of paragraphs whose marks are deleted.
    joined: String,
    /// Depth below the element that is skipped.
    skipped: usize,
    /// The run that is read.
    run: Option<Run>,
    in_text: bool,
    in_instruction: bool,
    /// Open fields, of which one may be in the instruction of another.
    fields: Vec<FieldCode>,
    /// Formulas inside each other: their letters are italic by custom.
    formulas: usize,
    in_row_properties: bool,
    is_row_deleted: bool,
    /// Numbers of the notes that are referred to, by kind and id, in the order of their first references.
    references: BTreeMap<(&'static str, String), usize>,
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
    let links = read_links(archive, DOCUMENT, &mut reading)?;
    let mut pass = Pass::new(&layout, &links, None);
    if let Err(why) = pass.run(&decode(&xml)) {
        return Ok(Reading::bad(format!("{DOCUMENT}: {why}")));
    }
    drop(xml);
    let (flow, references) = (pass.flow, pass.references);
    let mut texts = BTreeMap::new();
    for (path, element) in NOTES {
        if !references.keys().any(|(kind, _)| *kind == element) {
            continue;
        }
        if let Some(xml) = optional(archive, path, &mut reading)? {
            let links = read_links(archive, path, &mut reading)?;
            let mut pass = Pass::new(&layout, &links, Some(element));
            note_bad(path, pass.run(&xml), &mut reading);
            let notes = pass.notes.into_iter();
            texts.extend(notes.map(|(id, text)| ((element, id), text)));
        }
    }
    let mut notes = vec![String::new(); references.len()];
    for (reference, number) in references {
        notes[number - 1] = texts.remove(&reference).unwrap_or_default();
    }
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

/// Targets of the links of a part.
fn read_links(archive: &mut Container, part: &str, reading: &mut Reading<'_>) -> io::Result<Links> {
    let path = part.replacen("word/", "word/_rels/", 1) + ".rels";
    let mut links = Links::default();
    if let Some(xml) = optional(archive, &path, reading)? {
        note_bad(&path, links_of(&xml, &mut links), reading);
    }
    Ok(links)
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

impl<'l> Pass<'l> {
    fn new(layout: &'l Layout, links: &'l Links, note: Option<&'static str>) -> Pass<'l> {
        Pass {
            layout,
            links,
            flow: Flow::default(),
            counters: Counters::default(),
            open: Vec::new(),
            joined: String::new(),
            skipped: 0,
            run: None,
            in_text: false,
            in_instruction: false,
            fields: Vec::new(),
            formulas: 0,
            in_row_properties: false,
            is_row_deleted: false,
            references: BTreeMap::new(),
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
                if self.skipped == 0 && self.in_text && !self.is_hidden() {
                    let of = self.run.as_ref().map_or(Type::default(), |run| run.of);
                    self.push(|html| flow::typed(html, text, of));
                } else if self.skipped == 0 && self.in_instruction {
                    self.instruct(text);
                }
            }
            Event::Open(name, element) => self.open(name, element),
            Event::Close(name) => self.close(name),
        })?;
        self.end_joined();
        Ok(())
    }

    fn is_hidden(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_hidden)
    }

    /// Adds to the instruction of the innermost field.
    fn instruct(&mut self, text: &str) {
        if let Some(field) = self.fields.last_mut()
            && field.instruction.len() + text.len() <= MAX_INSTRUCTION
        {
            field.instruction.push_str(text);
        }
    }

    /// Opens a link in the innermost paragraph; whether it leads anywhere.
    fn open_link(&mut self, target: Option<&str>) -> bool {
        let (Some(target), Some(paragraph)) = (target, self.open.last_mut()) else {
            return false;
        };
        flow::open_link(&mut paragraph.html, target);
        paragraph.links += 1;
        true
    }

    /// Closes the last link of the innermost paragraph.
    fn close_link(&mut self) {
        if let Some(paragraph) = self.open.last_mut().filter(|p| p.links > 0) {
            paragraph.links -= 1;
            paragraph.html.push_str("</a>");
        }
    }

    /// Begins a field, its result, or ends it.
    fn field(&mut self, kind: &str) {
        match kind {
            "begin" => self.fields.push(FieldCode::default()),
            "separate" => {
                let Some(mut field) = self.fields.pop() else {
                    return;
                };
                let target = field_target(&field.instruction);
                field.is_link = self.open_link(target.as_deref());
                self.fields.push(field);
            }
            "end" => {
                let ended = self.fields.pop();
                if ended.is_some_and(|field| field.is_link) {
                    self.close_link();
                }
            }
            _ => {}
        }
    }

    /// Reads a property of the run; false if it has none here.
    fn property(&mut self, name: &str, element: &Element<'_>) -> bool {
        let Some(run) = self.run.as_mut().filter(|run| run.in_properties) else {
            return false;
        };
        match name {
            "rStyle" => run.style = element.value("val"),
            "vanish" => run.is_hidden = element.is_on(),
            _ => run.look.read(name, element),
        }
        true
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
                "ilvl" => paragraph.level = Some(level_of(element.value("val"))),
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
        if self.property(name, element) {
            return;
        }
        match name {
            "p" => self.open.push(Paragraph::default()),
            "pPr" => {
                if let Some(paragraph) = self.open.last_mut() {
                    paragraph.in_properties = true;
                }
            }
            "r" => self.run = Some(Run::default()),
            "rPr" => {
                if let Some(run) = &mut self.run {
                    run.in_properties = true;
                }
            }
            "t" => self.in_text = true,
            "instrText" => self.in_instruction = true,
            "fldChar" => self.field(&element.value("fldCharType").unwrap_or_default()),
            "fldSimple" => {
                let target = element.value("instr").and_then(|code| field_target(&code));
                let is_link = self.open_link(target.as_deref());
                self.fields.push(FieldCode {
                    is_link,
                    ..FieldCode::default()
                });
            }
            "hyperlink" => {
                let target = self.links.target(element);
                let is_link = self.open_link(target.as_deref());
                self.fields.push(FieldCode {
                    is_link,
                    ..FieldCode::default()
                });
            }
            "oMath" => self.formulas += 1,
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
                self.flow.span(columns.unwrap_or(1), 1);
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
        if self.is_hidden() || self.open.is_empty() {
            return;
        }
        // a note may be referred to more than once
        let next = self.references.len() + 1;
        let number = *self.references.entry((kind, id)).or_insert(next);
        self.push(|html| flow::reference(html, number));
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
            "r" => self.run = None,
            "rPr" => {
                if let Some(run) = &mut self.run {
                    run.in_properties = false;
                    if self.formulas == 0 {
                        run.of = self.layout.type_of(run);
                    }
                }
            }
            "t" => self.in_text = false,
            "instrText" => self.in_instruction = false,
            "hyperlink" | "fldSimple" => self.field("end"),
            "oMath" => self.formulas = self.formulas.saturating_sub(1),
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
        // a field may go on in the next paragraph
        paragraph.html.push_str(&"</a>".repeat(paragraph.links));
        paragraph.links = 0;
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
        let numbering = self.layout.numbering(&paragraph);
        let number = numbering.map(|at| self.counters.next(self.layout, &at));
        match (self.layout.part(&paragraph), number) {
            (Part::Heading(level), _) => self.flow.heading(level, &paragraph.html),
            (Part::Item(level, true), Some(number)) => {
                self.flow.numbered_item(level, number, &paragraph.html);
            }
            (Part::Item(level, is_ordered), _) => {
                self.flow.item(level, is_ordered, &paragraph.html);
            }
            (Part::Text, _) => self.flow.paragraph(&paragraph.html),
            (Part::Contents, _) => {}
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
mod tests;

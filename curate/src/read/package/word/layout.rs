//! Styles and lists of a Word document, and what they make of paragraphs and runs.

use std::collections::BTreeMap;

use crate::read::flow::Type;
use crate::read::package::xml::{Element, Event, walk};

/// Styles that inherit from each other are followed this far.
const MAX_BASES: usize = 16;

/// A style of paragraphs, or of characters.
#[derive(Clone, Default)]
pub(super) struct Style {
    pub(super) name: String,
    pub(super) base: Option<String>,
    /// Level of a heading, from 1.
    pub(super) outline: Option<usize>,
    pub(super) list: Option<String>,
    /// Level of an item, from 0.
    pub(super) level: Option<usize>,
    pub(super) is_of_characters: bool,
    pub(super) look: Look,
}

/// Bold and italic type by some properties; None where they leave it open.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) is_bold: Option<bool>,
    pub(super) is_italic: Option<bool>,
}

impl Look {
    /// Reads a property.
    pub(super) fn read(&mut self, name: &str, element: &Element<'_>) {
        match name {
            "b" => self.is_bold = Some(element.is_on()),
            "i" => self.is_italic = Some(element.is_on()),
            _ => {}
        }
    }
}

/// Properties of a run.
#[derive(Default)]
pub(super) struct Run {
    pub(super) style: Option<String>,
    pub(super) look: Look,
    pub(super) in_properties: bool,
    pub(super) is_hidden: bool,
    /// The type that they make.
    pub(super) of: Type,
}

/// Styles and lists of a document.
#[derive(Default)]
pub(super) struct Layout {
    pub(super) styles: BTreeMap<String, Style>,
    /// Number format by abstract list and level.
    pub(super) formats: BTreeMap<(String, usize), String>,
    /// Abstract list by list.
    pub(super) lists: BTreeMap<String, String>,
}

/// The part that a paragraph plays.
pub(super) enum Part {
    Heading(usize),
    Item(usize, bool),
    Text,
    /// Of a table of contents.
    Contents,
}

/// A paragraph being read.
#[derive(Default)]
pub(super) struct Paragraph {
    pub(super) html: String,
    pub(super) style: Option<String>,
    pub(super) outline: Option<usize>,
    pub(super) list: Option<String>,
    pub(super) level: Option<usize>,
    /// Links that are open.
    pub(super) links: usize,
    /// Its mark is deleted: the next one continues it.
    pub(super) is_joined: bool,
    pub(super) in_properties: bool,
}

pub(super) fn read_styles(xml: &str, layout: &mut Layout) -> Result<(), String> {
    let mut now: Option<(String, Style)> = None;
    walk(xml, |event| match event {
        Event::Open("style", element) => {
            let id = element.value("styleId").unwrap_or_default();
            let is_of_characters = element.value("type").as_deref() == Some("character");
            let style = Style {
                is_of_characters,
                ..Style::default()
            };
            now = Some((id, style));
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
                "ilvl" => style.level = Some(level_of(element.value("val"))),
                name if style.is_of_characters => style.look.read(name, element),
                _ => {}
            }
        }
        Event::Close(_) | Event::Text(_) => {}
    })
}

/// Level of a heading; 9 in the file says that it is none.
pub(super) fn outline(element: &Element<'_>) -> Option<usize> {
    let level: usize = element.value("val")?.parse().ok()?;
    (level < 9).then_some(level + 1)
}

pub(super) fn read_numbering(xml: &str, layout: &mut Layout) -> Result<(), String> {
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
pub(super) fn level_of(value: Option<String>) -> usize {
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

    pub(super) fn part(&self, paragraph: &Paragraph) -> Part {
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
                let of_styles = || self.chain(style).find_map(|style| style.level);
                let level = paragraph.level.or_else(of_styles).unwrap_or(0);
                let format = self.lists.get(list).and_then(|of| {
                    let key = (of.clone(), level);
                    self.formats.get(&key)
                });
                let is_bullet = format.is_none_or(|f| f == "bullet" || f == "none");
                // each of these styles has a list of one level
                let named = self
                    .chain(style)
                    .find_map(|style| level_by_name(&style.name));
                let shown = level.max(named.unwrap_or(0));
                Part::Item(shown + 1, !is_bullet)
            }
            _ => Part::Text,
        }
    }

    /// The type of a run.
    pub(super) fn type_of(&self, run: &Run) -> Type {
        let style = run.style.as_deref();
        let of_styles = |one: fn(&Look) -> Option<bool>| {
            let own = one(&run.look);
            let found = own.or_else(|| self.chain(style).find_map(|style| one(&style.look)));
            found.unwrap_or(false)
        };
        Type {
            is_bold: of_styles(|look| look.is_bold),
            is_italic: of_styles(|look| look.is_italic),
        }
    }
}

/// Level of an item, from 0, by the name of one of Word's own styles, such as `list number 2`.
fn level_by_name(name: &str) -> Option<usize> {
    let number = name
        .strip_prefix("list number ")
        .or_else(|| name.strip_prefix("list bullet "))?;
    let level: usize = number.trim().parse().ok()?;
    (2..=5).contains(&level).then(|| level - 1)
}

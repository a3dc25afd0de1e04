//! Styles and lists of a Word document, and what they make of paragraphs and runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::read::flow::{Number, Type};
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
    /// First number by abstract list and level.
    pub(super) starts: BTreeMap<(String, usize), u32>,
    /// Abstract list by list.
    pub(super) lists: BTreeMap<String, String>,
    /// Number format by list and level, of lists that differ from their abstract list.
    pub(super) own_formats: BTreeMap<(String, usize), String>,
    /// First number by list and level, likewise.
    pub(super) own_starts: BTreeMap<(String, usize), u32>,
    /// Lists and levels that start anew, whatever was counted before.
    pub(super) restarts: BTreeSet<(String, usize)>,
    /// Levels of abstract lists that go on counting behind an item of a higher level.
    pub(super) unending: BTreeSet<(String, usize)>,
}

/// A paragraph's list, and its level there.
pub(super) struct Numbering<'l> {
    list: &'l str,
    level: usize,
}

/// The numbers of a document's lists so far.
#[derive(Default)]
pub(super) struct Counters {
    /// The last number by abstract list and level.
    last: BTreeMap<(String, usize), Number>,
    /// Lists and levels that have started anew.
    started: BTreeSet<(String, usize)>,
    lists: u32,
}

impl Counters {
    /// Counts a paragraph. Lists of one abstract list go on counting, unless one of them starts anew where it is used first; a level
    /// starts anew behind an item of a higher one.
    pub(super) fn next(&mut self, layout: &Layout, at: &Numbering<'_>) -> Number {
        let of = layout.lists.get(at.list).map_or(at.list, String::as_str);
        let own = (at.list.to_string(), at.level);
        let key = (of.to_string(), at.level);
        let is_new = layout.restarts.contains(&own) && self.started.insert(own.clone());
        let number = match self.last.get(&key).filter(|_| !is_new) {
            Some(last) => Number {
                number: last.number.saturating_add(1),
                ..*last
            },
            None => {
                self.lists += 1;
                let start = layout.own_starts.get(&own).or(layout.starts.get(&key));
                Number {
                    // Word writes the first number of every level
                    number: start.copied().unwrap_or(1),
                    list: self.lists,
                }
            }
        };
        let ends = |below: &(String, usize)| {
            below.0 == of && below.1 > at.level && !layout.unending.contains(below)
        };
        self.last.retain(|below, _| !ends(below));
        self.last.insert(key, number);
        number
    }
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
    // levels are those of abstract lists, or of a list that overrides some
    let (mut of, mut level, mut is_own) = (String::new(), 0, false);
    let number = |element: &Element<'_>| element.value("val")?.parse::<u32>().ok();
    walk(xml, |event| match event {
        Event::Open("abstractNum", element) => {
            of = element.value("abstractNumId").unwrap_or_default();
            is_own = false;
        }
        Event::Open("num", element) => {
            of = element.value("numId").unwrap_or_default();
            is_own = true;
        }
        Event::Open("abstractNumId", element) if is_own => {
            if let Some(abstract_list) = element.value("val") {
                layout.lists.insert(of.clone(), abstract_list);
            }
        }
        Event::Open("lvl" | "lvlOverride", element) => level = level_of(element.value("ilvl")),
        Event::Open("numFmt", element) => {
            let format = element.value("val").unwrap_or_default();
            let formats = match is_own {
                true => &mut layout.own_formats,
                false => &mut layout.formats,
            };
            formats.insert((of.clone(), level), format);
        }
        Event::Open("start", element) => {
            let starts = match is_own {
                true => &mut layout.own_starts,
                false => &mut layout.starts,
            };
            if let Some(start) = number(element) {
                // `startOverride` comes first in a list's own level, and counts
                starts.entry((of.clone(), level)).or_insert(start);
            }
        }
        Event::Open("startOverride", element) if is_own => {
            if let Some(start) = number(element) {
                layout.own_starts.insert((of.clone(), level), start);
                layout.restarts.insert((of.clone(), level));
            }
        }
        Event::Open("lvlRestart", element) if !is_own && number(element) == Some(0) => {
            layout.unending.insert((of.clone(), level));
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

    /// The list of a paragraph, by itself or by its style; headings have lists too.
    pub(super) fn numbering<'p>(&'p self, paragraph: &'p Paragraph) -> Option<Numbering<'p>> {
        let style = paragraph.style.as_deref();
        let inherited = || self.chain(style).find_map(|style| style.list.as_ref());
        let list = paragraph.list.as_ref().or_else(inherited);
        let list = list.filter(|list| *list != "0")?;
        let of_styles = || self.chain(style).find_map(|style| style.level);
        let level = paragraph.level.or_else(of_styles).unwrap_or(0);
        Some(Numbering { list, level })
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
        match self.numbering(paragraph) {
            Some(Numbering { list, level }) => {
                let own = self.own_formats.get(&(list.to_string(), level));
                let format = own.or_else(|| {
                    let of = self.lists.get(list)?;
                    self.formats.get(&(of.clone(), level))
                });
                let is_bullet = format.is_none_or(|f| f == "bullet" || f == "none");
                // each of these styles has a list of one level
                let named = self
                    .chain(style)
                    .find_map(|style| level_by_name(&style.name));
                let shown = level.max(named.unwrap_or(0));
                Part::Item(shown + 1, !is_bullet)
            }
            None => Part::Text,
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

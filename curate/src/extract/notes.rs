//! Footnotes of a page: short links to an element further down, and the text that they lead to.
//!
//! A reference is a link `#X` of at most four characters, in or around a `sup`, or with a class or role of its own (Pandoc,
//! GitHub, python-markdown, MediaWiki). Its note is the block around the element X behind it. Short links inside a note
//! lead back and are no text.

use rustc_hash::{FxHashMap, FxHashSet};

use super::html::{BLOCK, Id, Key, Tag, Tree};

/// The footnotes of a page, numbered in the order of their first references.
#[derive(Default)]
pub(super) struct Notes {
    /// Links, and the `sup` around them.
    references: FxHashMap<Id, u32>,
    /// Blocks with the text of a note.
    definitions: FxHashMap<Id, u32>,
    /// Links back from notes.
    backlinks: FxHashSet<Id>,
}

/// Characters of a reference: a number, a letter, a sign, in brackets or not.
const MOST_CHARS: usize = 4;
/// Elements between a link and the note that it is in.
const MOST_STEPS: usize = 8;

/// A short link inside the page.
struct Link<'a> {
    id: Id,
    target: &'a str,
    is_reference: bool,
}

impl Notes {
    /// The footnotes of a page.
    pub(super) fn find(tree: &Tree<'_>) -> Notes {
        let mut notes = Notes::default();
        let links: Vec<Link<'_>> = (1..tree.len()).filter_map(|id| link(tree, id)).collect();
        let targets: FxHashSet<&str> = links.iter().map(|link| link.target).collect();
        if targets.is_empty() {
            return notes;
        }
        let mut places: FxHashMap<&str, Id> = FxHashMap::default();
        for id in 1..tree.len() {
            let keys = [Key::Id, Key::Name];
            for name in keys.into_iter().filter_map(|key| tree.attribute(id, key)) {
                if targets.contains(name) {
                    places.entry(name).or_insert(id);
                }
            }
        }
        for link in links.iter().filter(|link| link.is_reference) {
            let Some(&place) = places.get(link.target) else {
                continue;
            };
            let Some(block) = block_around(tree, place) else {
                continue;
            };
            if block <= link.id {
                continue;
            }
            let next = u32::try_from(notes.definitions.len() + 1).unwrap_or(u32::MAX);
            let number = *notes.definitions.entry(block).or_insert(next);
            notes.references.insert(link.id, number);
            let parent = tree.node(link.id).parent;
            if tree.node(parent).tag == Tag::Sup {
                notes.references.insert(parent, number);
            }
        }
        for link in &links {
            let mut around = link.id;
            for _ in 0..MOST_STEPS {
                around = tree.node(around).parent;
                if around == 0 || around >= tree.len() {
                    break;
                }
                if notes.definitions.contains_key(&around) {
                    notes.backlinks.insert(link.id);
                    break;
                }
            }
        }
        notes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.definitions.is_empty()
    }

    /// Number of the note that an element refers to.
    pub(super) fn reference(&self, id: Id) -> Option<u32> {
        self.references.get(&id).copied()
    }

    /// Number of the note whose text an element has.
    pub(super) fn definition(&self, id: Id) -> Option<u32> {
        self.definitions.get(&id).copied()
    }

    /// Whether an element is a link back from a note.
    pub(super) fn is_backlink(&self, id: Id) -> bool {
        self.backlinks.contains(&id)
    }
}

/// A short link inside the page.
fn link<'a>(tree: &Tree<'a>, id: Id) -> Option<Link<'a>> {
    let node = tree.node(id);
    if node.tag != Tag::A {
        return None;
    }
    let target = tree.attribute(id, Key::Href)?.strip_prefix('#')?;
    let mut chars = 0;
    for text in tree.texts_below(id) {
        let visible = |c: &char| !c.is_whitespace() && !"[]()\u{fe0e}".contains(*c);
        chars += text.chars().take(64).filter(visible).count();
    }
    if target.is_empty() || chars == 0 || chars > MOST_CHARS {
        return None;
    }
    let in_sup = tree.node(node.parent).tag == Tag::Sup;
    let around_sup = id + 1 < node.end && tree.node(id + 1).tag == Tag::Sup;
    let is_named = |key, names: &[&str]| {
        let value = tree.attribute(id, key).unwrap_or_default();
        names.iter().any(|name| value.contains(name))
    };
    let is_reference = in_sup
        || around_sup
        || is_named(Key::Role, &["doc-noteref"])
        || is_named(Key::Class, &["footnote-ref", "noteref", "footnoteref"]);
    Some(Link {
        id,
        target,
        is_reference,
    })
}

/// The block around an element, or itself.
fn block_around(tree: &Tree<'_>, mut id: Id) -> Option<Id> {
    for _ in 0..MOST_STEPS {
        if id == 0 || id >= tree.len() {
            return None;
        }
        let tag = tree.node(id).tag;
        if tag.is(BLOCK) {
            let is_note = matches!(
                tag,
                Tag::Li | Tag::P | Tag::Div | Tag::Dd | Tag::Aside | Tag::Section | Tag::Td
            );
            return is_note.then_some(id);
        }
        id = tree.node(id).parent;
    }
    None
}

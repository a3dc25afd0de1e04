//! Marks: evidence from tags, roles, classes and short phrases about an element or a text.
//!
//! A mark is a number: the first are for tags and roles, the rest for categories of class and id vocabulary
//! (class_words.txt). Phrases (phrases.txt) and stop words (stopwords.txt) do the same for texts. The lists are our
//! own, gathered from the naming habits of site builders in many languages; the weight of each mark is learnt
//! (model.rs), not written here.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::forum;
use super::html::{Key, Node, Tag, Tree};
use super::patterns::{Pattern, Patterns};

/// Marks by tag or role.
pub(super) mod mark {
    pub(crate) const NAV: usize = 0;
    pub(crate) const HEADER: usize = 1;
    pub(crate) const FOOTER: usize = 2;
    pub(crate) const ASIDE: usize = 3;
    pub(crate) const ARTICLE: usize = 4;
    pub(crate) const MAIN: usize = 5;
    pub(crate) const FORM: usize = 6;
    pub(crate) const TABLE: usize = 7;
    pub(crate) const CELL: usize = 8;
    pub(crate) const ITEM: usize = 9;
    pub(crate) const QUOTE: usize = 10;
    pub(crate) const FIGURE: usize = 11;
    pub(crate) const CAPTION: usize = 12;
    pub(crate) const PRE: usize = 13;
    pub(crate) const TERMS: usize = 14;
    pub(crate) const DETAILS: usize = 15;
    pub(crate) const BUTTON: usize = 16;
    pub(crate) const HIDDEN: usize = 17;
    pub(crate) const SECTION: usize = 18;
    pub(crate) const LINK: usize = 19;
    pub(crate) const PARAGRAPH: usize = 20;
    pub(crate) const ADDRESS: usize = 21;
    pub(crate) const BODY_PROPERTY: usize = 22;
    pub(crate) const COMMENT_TYPE: usize = 23;
    pub(crate) const ARTICLE_TYPE: usize = 24;
    /// The first category of class_words.txt.
    pub(crate) const CLASSES: usize = 25;
}

/// Number of marks; categories past it would be an error of the list, see the tests.
pub(super) const MARKS: usize = 57;
/// Number of phrase categories.
pub(super) const PHRASES: usize = 19;

/// Marks of a tag itself.
fn tag_marks(tag: Tag) -> u64 {
    use mark::*;
    let one = match tag {
        Tag::Nav | Tag::Menu => NAV,
        Tag::Header => HEADER,
        Tag::Footer => FOOTER,
        Tag::Aside => ASIDE,
        Tag::Article => ARTICLE,
        Tag::Main => MAIN,
        Tag::Form | Tag::Fieldset => FORM,
        Tag::Table => TABLE,
        Tag::Td | Tag::Th => CELL,
        Tag::Li => ITEM,
        Tag::Blockquote => QUOTE,
        Tag::Figure => FIGURE,
        Tag::Figcaption | Tag::Caption => CAPTION,
        Tag::Pre => PRE,
        Tag::Dl => TERMS,
        Tag::Details | Tag::Dialog => DETAILS,
        Tag::Button | Tag::Label | Tag::Legend => BUTTON,
        Tag::Section => SECTION,
        Tag::A => LINK,
        Tag::P => PARAGRAPH,
        Tag::Address => ADDRESS,
        _ => return 0,
    };
    1 << one
}

fn role_marks(role: &str) -> u64 {
    use mark::*;
    let one = match role {
        "navigation" | "menu" | "menubar" | "toolbar" | "tablist" => NAV,
        "banner" => HEADER,
        "contentinfo" => FOOTER,
        "complementary" | "note" => ASIDE,
        "article" => ARTICLE,
        "main" => MAIN,
        "search" | "form" => FORM,
        "dialog" | "alertdialog" | "alert" | "tooltip" => DETAILS,
        "button" | "tab" | "menuitem" | "option" => BUTTON,
        _ => return 0,
    };
    1 << one
}

/// The lines `category: ...` of a list.
fn categories(list: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
}

static CLASS_WORDS: LazyLock<Patterns> = LazyLock::new(|| {
    let mut patterns = Vec::new();
    for (i, (_, words)) in categories(include_str!("class_words.txt")).enumerate() {
        for word in words.split_ascii_whitespace() {
            let plain = word.strip_prefix('=');
            patterns.push(Pattern {
                text: plain.unwrap_or(word),
                category: mark::CLASSES + i,
                is_whole: plain.is_some(),
            });
        }
    }
    Patterns::new(patterns)
});

static PHRASE_WORDS: LazyLock<Patterns> = LazyLock::new(|| {
    let mut patterns = Vec::new();
    for (i, (_, words)) in categories(include_str!("phrases.txt")).enumerate() {
        patterns.extend(words.split('|').map(|text| Pattern {
            text,
            category: i,
            is_whole: true,
        }));
    }
    Patterns::new(patterns)
});

/// Hashes of stop words.
static STOP_WORDS: LazyLock<FxHashSet<u32>> = LazyLock::new(|| {
    include_str!("stopwords.txt")
        .split_ascii_whitespace()
        .map(|word| word.chars().fold(WORD_SEED, word_hash))
        .collect()
});

/// Hash of the empty word.
pub(super) const WORD_SEED: u32 = 0x811c_9dc5;

/// FNV-1a over characters, ASCII letters in lower case.
#[inline]
pub(super) fn word_hash(hash: u32, c: char) -> u32 {
    (hash ^ u32::from(c.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
}

/// A stop word of one of the languages has this hash.
pub(super) fn is_stop_word(hash: u32) -> bool {
    STOP_WORDS.contains(&hash)
}

/// Categories of phrases in a text.
pub(super) fn phrases(text: &str) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "fewer than 32 categories")]
    let found = PHRASE_WORDS.find(text) as u32;
    found
}

/// Reads marks of elements; caches the classes of a page, which repeat.
#[derive(Default)]
pub(super) struct Marker {
    seen: FxHashMap<u64, (u64, u32)>,
}

/// Marks of an element.
pub(super) struct Marked {
    pub(super) marks: u64,
    /// Hash of its tag and class for telling repeated siblings.
    pub(super) look: u64,
    /// Words of forum engines in its class and id.
    pub(super) words: u32,
}

/// Class and id values are read up to this length.
const MAX_CLASS_BYTES: usize = 512;

impl Marker {
    /// Marks of an element.
    pub(super) fn marks(&mut self, tree: &Tree<'_>, node: &Node) -> Marked {
        let mut words = 0;
        let mut marks = tag_marks(node.tag);
        let mut look = node.tag as u64;
        for (key, value) in tree.attributes(node) {
            match key {
                Key::Class | Key::Id => {
                    let hash = xxh3_64(value.as_bytes());
                    if key == Key::Class {
                        look ^= hash;
                    }
                    let found = self.seen.entry(hash).or_insert_with(|| {
                        let end = value.floor_char_boundary(MAX_CLASS_BYTES);
                        let value = &value[..end];
                        (CLASS_WORDS.find(value), forum::words(value))
                    });
                    marks |= found.0;
                    words |= found.1;
                }
                Key::Role => marks |= role_marks(value),
                Key::Hidden => marks |= 1 << mark::HIDDEN,
                Key::AriaHidden if value == "true" => marks |= 1 << mark::HIDDEN,
                Key::Style if is_invisible(value) => marks |= 1 << mark::HIDDEN,
                Key::Itemprop if is_body_property(value) => marks |= 1 << mark::BODY_PROPERTY,
                Key::Itemtype => {
                    if value.ends_with("Comment") || value.ends_with("UserComments") {
                        marks |= 1 << mark::COMMENT_TYPE;
                    } else if value.ends_with("Article") || value.ends_with("Posting") {
                        marks |= 1 << mark::ARTICLE_TYPE;
                    }
                }
                _ => {}
            }
        }
        Marked { marks, look, words }
    }
}

fn is_body_property(value: &str) -> bool {
    value
        .split_ascii_whitespace()
        .any(|v| matches!(v, "articleBody" | "text" | "description" | "reviewBody"))
}

fn is_invisible(style: &str) -> bool {
    let plain: Vec<u8> = style
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .take(1024)
        .map(|b| b.to_ascii_lowercase())
        .collect();
    let has = |what: &[u8]| memchr::memmem::find(&plain, what).is_some();
    has(b"display:none") || has(b"visibility:hidden")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_words_respect_borders() {
        let class = |name: &str| {
            let at = categories(include_str!("class_words.txt")).position(|c| c.0 == name);
            1u64 << (mark::CLASSES + at.unwrap())
        };
        let has = |text: &str, name: &str| CLASS_WORDS.find(text) & class(name) != 0;
        assert!(has("site-footer", "footer") && has("siteFooter", "footer"));
        assert!(has("top-nav", "nav") && !has("carnavalet", "nav"));
        assert!(has("ad-728", "ads") && !has("breadcrumb", "ads"));
        assert!(has("userComments", "comment"));
        let most = mark::CLASSES + categories(include_str!("class_words.txt")).count();
        assert!(most <= MARKS, "{most}");
        assert_eq!(categories(include_str!("phrases.txt")).count(), PHRASES);
    }

    #[test]
    fn phrases_are_whole_words_in_any_case() {
        assert_ne!(phrases("SHARE THIS ARTICLE"), 0);
        assert_eq!(phrases("shareware"), 0);
        assert!(is_stop_word("The".chars().fold(WORD_SEED, word_hash)));
    }
}

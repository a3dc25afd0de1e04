//! Author and date of a page, where only its visible text states them.
//!
//! An author is in an element whose class or id says so (`author`, `byline` and similar), or after "by" near the
//! headline; a date is in an element that calls itself date, or alone in a short element near the headline. Near
//! means within a limited number of nodes of the first `h1`; comments are ignored. Anything but a short name, or a
//! complete date, is rejected: a wrong author is worse than none.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::super::html::{Id, Key, SKIPPED, Tag, Tree};
use super::super::patterns::{Pattern, Patterns};
use super::date;
use super::text::{Best, squeeze, text_of};

/// Nodes before and behind the headline that are near it.
const BEFORE: Id = 80;
const BEHIND: Id = 160;
/// Longest text (bytes) that may be a byline, and longest that may be a date with its label.
const MAX_BYLINE: usize = 160;
const MAX_DATE: usize = 64;
/// Maximum number of words of a name.
const MAX_WORDS: usize = 6;

/// Meanings of class names, and the words that have them, in some languages.
#[derive(Clone, Copy)]
enum Meaning {
    Author,
    Date,
    /// Another date, or none.
    OtherDate,
    Comment,
}

const AUTHOR: [&str; 7] = [
    "author",
    "byline",
    "autor",
    "auteur",
    "writer",
    "verfasser",
    "redakteur",
];
const DATE: [&str; 6] = ["date", "datum", "publish", "posted", "fecha", "time"];
const OTHER_DATE: [&str; 6] = ["update", "modif", "event", "sidebar", "widget", "countdown"];

static MEANINGS: LazyLock<Patterns> = LazyLock::new(|| {
    let lists = [
        (&AUTHOR[..], Meaning::Author),
        (&DATE[..], Meaning::Date),
        (&OTHER_DATE[..], Meaning::OtherDate),
        (&["comment"][..], Meaning::Comment),
    ];
    Patterns::new(lists.into_iter().flat_map(|(words, meaning)| {
        words.iter().map(move |text| Pattern {
            text,
            category: meaning as usize,
            is_whole: false,
        })
    }))
});

/// Words before a name.
const BY: [&str; 22] = [
    "view all posts by ",
    "written by ",
    "posted by ",
    "published by ",
    "story by ",
    "ver\u{f6}ffentlicht von ",
    "verfasst von ",
    "geschrieben von ",
    "publicado por ",
    "publi\u{e9} par ",
    "by ",
    "von ",
    "par ",
    "por ",
    "di ",
    "door ",
    "av ",
    "af ",
    "text: ",
    "autor: ",
    "author: ",
    "redaktion: ",
];
/// Words behind a name.
const AFTER: [&str; 9] = [
    " on ",
    " am ",
    " at ",
    " in ",
    " le ",
    " updated",
    " published",
    " posted",
    " wrote",
];
/// Words that labels have and names have not.
const NO_NAMES: [&str; 29] = [
    "about",
    "admin",
    "all",
    "article",
    "articles",
    "author",
    "authors",
    "autor",
    "autoren",
    "by",
    "date",
    "follow",
    "foto",
    "home",
    "image",
    "interview",
    "more",
    "photo",
    "posted",
    "posts",
    "published",
    "read",
    "share",
    "the",
    "updated",
    "ver\u{f6}ffentlicht",
    "view",
    "writer",
    "written",
];

/// Author and date from the visible text.
#[derive(Default)]
pub(super) struct Byline {
    pub(super) author: Option<String>,
    pub(super) published: Option<String>,
}

/// Reads author and day of publication, as far as wanted.
pub(super) fn read(tree: &Tree<'_>, wants_author: bool, wants_date: bool) -> Byline {
    let headline = (1..tree.len()).find(|&id| tree.node(id).tag == Tag::H1);
    let is_near = |id: Id| {
        headline.is_some_and(|h| (h.saturating_sub(BEFORE)..h.saturating_add(BEHIND)).contains(&id))
    };
    let (mut author, mut published) = (Best::default(), Best::default());
    let mut called = Called::default();
    let mut id = 1;
    while id < tree.len() {
        let node = tree.node(id);
        if node.tag == Tag::Text || node.tag == Tag::H1 {
            id += 1;
            continue;
        }
        let meanings = called.of(tree, id);
        let is = |meaning: Meaning| meanings >> (meaning as u64) & 1 == 1;
        if node.tag.is(SKIPPED) || is(Meaning::Comment) {
            id = node.end.max(id + 1);
            continue;
        }
        let near = is_near(id);
        let names = wants_author && is(Meaning::Author);
        let dates = wants_date && is(Meaning::Date) && !is(Meaning::OtherDate);
        if (names || dates || near)
            && let Some(text) = short_text(tree, id)
        {
            if names {
                author.offer(2 + u8::from(near), name(&text));
            } else if wants_author && near {
                author.offer(1, named(&text));
            }
            if wants_date && (dates || near) && text.len() <= MAX_DATE {
                let rank = 2 * u8::from(near) + u8::from(dates);
                published.offer(rank, first_day(&text));
            }
        }
        id += 1;
    }
    Byline {
        author: author.take(),
        published: published.take(),
    }
}

/// Meanings of the classes and ids of a page, which repeat.
#[derive(Default)]
struct Called<'t> {
    seen: FxHashMap<&'t str, u64>,
}

impl<'t> Called<'t> {
    /// Meanings of an element's class and id.
    fn of(&mut self, tree: &Tree<'t>, id: Id) -> u64 {
        let mut meanings = 0;
        for (key, value) in tree.attributes(tree.node(id)) {
            if key == Key::Class || key == Key::Id {
                let seen = self.seen.entry(value);
                meanings |= *seen.or_insert_with(|| MEANINGS.find(value));
            }
        }
        meanings
    }
}

/// The text of an element that may be a byline.
fn short_text(tree: &Tree<'_>, id: Id) -> Option<String> {
    // elements of the page's frame have thousands of nodes: they are not added up
    if tree.node(id).end.saturating_sub(id) > 40 {
        return None;
    }
    let text = squeeze(&text_of(tree, id)?);
    (!text.is_empty() && text.len() <= MAX_BYLINE).then_some(text)
}

/// A day that is not that of a change or of a copyright.
fn first_day(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let other = [
        "updat",
        "aktualis",
        "modif",
        "\u{a9}",
        "stand:",
        "mise \u{e0} jour",
    ];
    if other.iter().any(|word| lower.contains(word)) {
        return None;
    }
    date::day(text).or_else(|| {
        // behind a label or a name: "Posted by A. B. | 3 May 2020"
        let start = text.find(|c: char| c.is_ascii_digit())?;
        date::day(&text[start..])
    })
}

/// The name behind "by".
fn named(text: &str) -> Option<String> {
    let rest = without_by(text)?;
    let name = name(rest)?;
    let words = name.split(' ').count();
    let fits = |word: &str| {
        word.chars().next().is_some_and(char::is_uppercase)
            || matches!(
                word,
                "de" | "van" | "von" | "der" | "di" | "da" | "and" | "und" | "&"
            )
    };
    ((2..=MAX_WORDS).contains(&words) && name.split(' ').all(fits)).then_some(name)
}

/// The text after "by", if the text starts with it.
pub(super) fn without_by(text: &str) -> Option<&str> {
    BY.iter().find_map(|by| {
        let head = text.get(..by.len())?;
        head.eq_ignore_ascii_case(by)
            .then(|| text[by.len()..].trim_start())
    })
}

/// The name in a byline: without "by" and without the text after the name.
fn name(text: &str) -> Option<String> {
    let mut name = text;
    while let Some(rest) = without_by(name) {
        name = rest;
    }
    let ends = |c: char| {
        c.is_ascii_digit()
            || matches!(
                c,
                '|' | '\u{b7}' | '\u{2022}' | '(' | '\u{2014}' | '/' | ':' | '@'
            )
    };
    name = &name[..name.find(ends).unwrap_or(name.len())];
    let lower = name.to_ascii_lowercase();
    let after = AFTER.iter().filter_map(|word| lower.find(word)).min();
    name = &name[..after.unwrap_or(name.len())];
    let trimmed = name.trim_matches(|c: char| !c.is_alphanumeric() && c != '.' && c != ')');
    let words = trimmed
        .split(' ')
        .map(|w| w.trim_matches('.').to_lowercase());
    let words: Vec<String> = words.collect();
    let has_letters = trimmed.chars().filter(|c| c.is_alphabetic()).count() >= 3;
    let is_name = words.len() <= MAX_WORDS
        && has_letters
        && trimmed.chars().next().is_some_and(|c| !c.is_lowercase())
        && !words.iter().any(|word| NO_NAMES.contains(&word.as_str()))
        && date::day(text).is_none_or(|_| trimmed.len() < text.len())
        && !words.iter().any(|word| date::is_month(word));
    is_name.then(|| trimmed.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::html::parse;

    fn found(html: &str) -> (Option<String>, Option<String>) {
        let byline = read(&parse(html), true, true);
        (byline.author, byline.published)
    }

    #[test]
    fn bylines_and_dates_are_found_by_what_they_are_called_and_where_they_stand() {
        let some = |text: &str| Some(text.to_string());
        for (html, author, day) in [
            (
                "<h1>T</h1><div class='post-byline'>By <a>Jane Q. Doe</a> on May 3, 2020</div>",
                some("Jane Q. Doe"),
                some("2020-05-03"),
            ),
            (
                "<h1>T</h1><p>Von Max van Muster</p><span>3. M\u{e4}rz 2021, 14:05</span>",
                some("Max van Muster"),
                some("2021-03-03"),
            ),
            (
                "<h1>T</h1><p>By then all was lost.</p><p>It was 1999.</p>",
                None,
                None,
            ),
            (
                "<h1>T</h1><ol class=comments><li class=author>Troll<li class=date>1.2.2020</ol>",
                None,
                None,
            ),
            (
                "<h1>T</h1><div class=author>About the author</div><p>Updated 1 May 2020</p>",
                None,
                None,
            ),
        ] {
            assert_eq!(found(html), (author, day), "{html}");
        }
    }
}

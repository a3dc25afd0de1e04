//! Features of the extraction model: one byte per block and feature, one column per feature.
//!
//! After the literature on content extraction: text and link density (Kohlschuetter et al. 2010, boilerpipe), stop
//! words and neighbours (Pomikalek 2011, justext), text that speaks for its containers (readability), class
//! vocabulary, repeated siblings, and agreement with the page's own metadata (title, description, JSON-LD
//! `articleBody`). Lengths are on a logarithmic scale, shares in sixtieths; all arithmetic is on integers, so the
//! columns, and with them the model's verdicts, are the same on every machine.
//!
//! The columns are numbered in the order in which `first` and `second` push them; model.bin refers
//! to these numbers, so a change here needs a newly trained model (tests/oracles/extraction_train.py).

use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::areas::Areas;
use super::blocks::{Block, Page, Shape};
use super::columns::{Columns, distances, least, log, share, sums};
use super::counts::is_unspaced;
use super::html::Tag;
use super::marks::{MARKS, PHRASES, WORD_SEED, word_hash};
use super::meta::{Hints, PageMeta};
use super::{linear, model};

/// Everything the first look knows.
pub(super) fn first(page: &Page, areas: &Areas, meta: &PageMeta, hints: &Hints) -> Columns {
    let mut columns = Columns::new(page.blocks.len());
    own(&mut columns, page);
    places(&mut columns, page);
    surroundings(&mut columns, page, areas);
    neighbours(&mut columns, page);
    agreement(&mut columns, page, meta, hints);
    whole(&mut columns, page, areas, hints);
    let weights = model::weights();
    let text = linear::text_scores(page, weights);
    let class = linear::class_scores(page, weights);
    columns.push(|i| text[i]);
    columns.push(|i| class[i]);
    columns
}

/// Counts of the block's own text.
fn own(columns: &mut Columns, page: &Page) {
    let blocks = &page.blocks;
    columns.push(|i| log(blocks[i].counts.chars.into()));
    columns.push(|i| log(blocks[i].counts.words.into()));
    columns.push(|i| share(blocks[i].linked.into(), blocks[i].bytes().into()));
    columns.push(|i| log(blocks[i].links.into()));
    columns.push(|i| {
        let c = &blocks[i].counts;
        least(u64::from(c.chars) * 4 / u64::from(c.words.max(1)), 127)
    });
    columns.push(|i| log(blocks[i].counts.ends.into()));
    columns.push(|i| log(blocks[i].counts.commas.into()));
    columns.push(|i| blocks[i].counts.first);
    columns.push(|i| blocks[i].counts.last);
    columns.push(|i| {
        share(
            blocks[i].counts.upper.into(),
            blocks[i].counts.letters.into(),
        )
    });
    columns.push(|i| {
        share(
            blocks[i].counts.digits.into(),
            blocks[i].counts.chars.into(),
        )
    });
    columns.push(|i| {
        share(
            blocks[i].counts.stop_words.into(),
            blocks[i].counts.words.into(),
        )
    });
    columns.push(|i| {
        let c = &blocks[i].counts;
        log(u64::from(c.chars / (c.ends + 1)))
    });
    columns.push(|i| blocks[i].shape as u8);
    columns.push(|i| match blocks[i].shape {
        Shape::Heading => blocks[i].level,
        _ => 0,
    });
    columns.push(|i| match blocks[i].shape {
        Shape::Item => blocks[i].level.min(20),
        _ => 0,
    });
    columns.push(|i| match page.areas[blocks[i].area as usize].tag {
        Tag::P => 1,
        Tag::Div => 2,
        Tag::Li => 3,
        Tag::Td | Tag::Th => 4,
        Tag::Section | Tag::Article | Tag::Main => 5,
        Tag::Dd | Tag::Dt => 6,
        Tag::Button => 7,
        Tag::Figcaption | Tag::Caption => 8,
        Tag::Blockquote => 9,
        Tag::Ul | Tag::Ol => 10,
        Tag::Body | Tag::Html | Tag::Other => 11,
        _ => 0,
    });
    columns.push(|i| blocks[i].depth.min(63));
    for phrase in 0..PHRASES {
        columns.push(|i| u8::from(blocks[i].phrases >> phrase & 1 == 1));
    }
    columns.push(|i| least(blocks[i].phrases.count_ones().into(), 20));
    for mark in 0..MARKS {
        columns.push(|i| match blocks[i].near[mark] {
            0 => 31,
            depth => blocks[i].depth.saturating_sub(depth).min(30),
        });
    }
}

/// Phrase categories (phrases.txt) that announce the following text: share, related, comment, subscribe,
/// byline, tags, about.
const SIGNS: [usize; 7] = [1, 2, 3, 5, 7, 13, 15];

/// Position of the block in the page.
fn places(columns: &mut Columns, page: &Page) {
    let blocks = &page.blocks;
    let count = blocks.len() as u64;
    let bytes = sums(page, |b| b.bytes().into());
    let prose = sums(page, |b| if b.is_prose() { b.bytes().into() } else { 0 });
    let (all_bytes, all_prose) = (bytes[blocks.len()], prose[blocks.len()]);
    columns.push(|i| share(i as u64, count));
    columns.push(|i| log(i as u64));
    columns.push(|i| share(bytes[i], all_bytes));
    columns.push(|i| share(prose[i], all_prose));
    columns.push(|i| log(prose[i]));
    columns.push(|i| log(all_prose - prose[i]));
    // The main heading: the last h1 before the bulk of the prose, else the first.
    let is_h1 = |b: &Block| b.shape == Shape::Heading && b.level == 1;
    let h1 = blocks
        .iter()
        .enumerate()
        .filter(|(i, b)| is_h1(b) && prose[*i] * 3 <= all_prose)
        .map(|(i, _)| i)
        .next_back();
    columns.push(|i| match h1 {
        None => 0,
        Some(h) if i < h => 1,
        Some(h) if i == h => 2,
        Some(_) => 3,
    });
    columns.push(|i| h1.map_or(0, |h| log(i.abs_diff(h) as u64)));
    columns.push(|i| h1.map_or(0, |h| log(bytes[i].abs_diff(bytes[h]))));
    headings(columns, page);
    // Blocks after "comments", "read more" and the like, over a long distance.
    for phrase in SIGNS {
        let mut since = 0u64;
        let steps: Vec<u64> = blocks
            .iter()
            .map(|b| {
                since += u64::from(since > 0);
                if b.phrases >> phrase & 1 == 1 && b.counts.words <= 8 {
                    since = 1;
                }
                since
            })
            .collect();
        columns.push(|i| log(steps[i]));
    }
    let is_prose: Vec<bool> = blocks.iter().map(Block::is_prose).collect();
    distances(columns, &is_prose);
    for reach in [4usize, 12] {
        let around = |i: usize| (i.saturating_sub(reach), (i + reach + 1).min(blocks.len()));
        let linked = sums(page, |b| b.linked.into());
        columns.push(|i| {
            let (a, b) = around(i);
            share(linked[b] - linked[a], bytes[b] - bytes[a])
        });
        columns.push(|i| {
            let (a, b) = around(i);
            share(prose[b] - prose[a], bytes[b] - bytes[a])
        });
        columns.push(|i| {
            let (a, b) = around(i);
            log(bytes[b] - bytes[a])
        });
    }
}

/// Category of the nearest heading above, and its distance.
fn headings(columns: &mut Columns, page: &Page) {
    let blocks = &page.blocks;
    let mut last: Option<usize> = None;
    let above: Vec<Option<usize>> = blocks
        .iter()
        .enumerate()
        .map(|(i, b)| {
            let now = last;
            if b.shape == Shape::Heading {
                last = Some(i);
            }
            now
        })
        .collect();
    columns.push(|i| above[i].map_or(0, |h| log((i - h) as u64)));
    columns.push(|i| above[i].map_or(0, |h| blocks[h].level));
    columns.push(|i| {
        above[i].map_or(0, |h| {
            share(blocks[h].linked.into(), blocks[h].bytes().into())
        })
    });
    columns.push(|i| above[i].map_or(0, |h| blocks[i].depth.abs_diff(blocks[h].depth).min(30)));
    for phrase in 0..PHRASES {
        columns.push(|i| above[i].map_or(0, |h| u8::from(blocks[h].phrases >> phrase & 1 == 1)));
    }
}

/// The elements around the block.
fn surroundings(columns: &mut Columns, page: &Page, areas: &Areas) {
    let blocks = &page.blocks;
    let all = areas.totals(0);
    let mut at: Vec<u32> = blocks.iter().map(|b| b.area).collect();
    for _ in 0..6 {
        columns.push(|i| log(areas.totals(at[i]).bytes));
        columns.push(|i| {
            let t = areas.totals(at[i]);
            share(t.linked, t.bytes)
        });
        columns.push(|i| share(areas.totals(at[i]).prose, all.prose));
        columns.push(|i| {
            let t = areas.totals(at[i]);
            share(t.prose, t.bytes)
        });
        columns.push(|i| log(areas.totals(at[i]).blocks));
        columns.push(|i| log(areas.totals(at[i]).paragraphs));
        columns.push(|i| log(areas.alike(at[i]).into()));
        columns.push(|i| share(blocks[i].bytes().into(), areas.totals(at[i]).bytes));
        for area in &mut at {
            *area = page.areas[*area as usize].parent;
        }
    }
    for candidate in areas.candidates() {
        columns.push(|i| u8::from(candidate.holds(blocks[i].area)));
        columns.push(|i| candidate.depth.abs_diff(blocks[i].depth).min(60));
        columns.push(|_| share(areas.totals(candidate.area).prose, all.prose));
    }
}

/// The blocks before and behind.
fn neighbours(columns: &mut Columns, page: &Page) {
    let blocks = &page.blocks;
    for step in [-3isize, -2, -1, 1, 2, 3] {
        let other = |i: usize| i.checked_add_signed(step).and_then(|j| blocks.get(j));
        columns.push(|i| other(i).map_or(0, |b| log(b.counts.chars.into())));
        columns.push(|i| other(i).map_or(61, |b| share(b.linked.into(), b.bytes().into())));
        columns.push(|i| other(i).map_or(9, |b| b.shape as u8));
        columns.push(|i| {
            other(i).map_or(61, |b| {
                share(b.counts.stop_words.into(), b.counts.words.into())
            })
        });
        columns.push(|i| other(i).map_or(0, |b| b.counts.last));
        columns.push(|i| other(i).map_or(2, |b| u8::from(b.area == blocks[i].area)));
        columns.push(|i| {
            let parent = |b: &Block| page.areas[b.area as usize].parent;
            other(i).map_or(2, |b| u8::from(parent(b) == parent(&blocks[i])))
        });
    }
}

/// Calls `each` with the hash of every word.
fn words(text: &str, mut each: impl FnMut(u32)) {
    let mut hash = WORD_SEED;
    for c in text.chars() {
        // most characters are ASCII, which needs no tables
        if !c.is_ascii() && is_unspaced(c) {
            each(word_hash(WORD_SEED, c));
        } else if c.is_alphanumeric() {
            hash = word_hash(hash, c);
        } else if hash != WORD_SEED {
            each(hash);
            hash = WORD_SEED;
        }
    }
    if hash != WORD_SEED {
        each(hash);
    }
}

/// Hashes of three successive words.
pub(super) fn triples(text: &str, mut each: impl FnMut(u64)) {
    let (mut a, mut b) = (0u64, 0u64);
    let mut count = 0u32;
    words(text, |w| {
        let w = u64::from(w);
        count += 1;
        if count >= 3 {
            each((a << 32 | b) ^ w.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        (a, b) = (b, w);
    });
}

/// Share of the block's word triples that are in `set`, 61 if it has none.
fn overlap(text: &str, set: &FxHashSet<u64>) -> u8 {
    let (mut hits, mut all) = (0, 0);
    triples(text, |t| {
        all += 1;
        hits += u64::from(set.contains(&t));
    });
    if all == 0 { 61 } else { share(hits, all) }
}

/// Agreement with the page's own metadata, and repetition.
fn agreement(columns: &mut Columns, page: &Page, meta: &PageMeta, hints: &Hints) {
    let blocks = &page.blocks;
    let mut title = FxHashSet::default();
    words(meta.title.as_deref().unwrap_or_default(), |w| {
        title.insert(w);
    });
    columns.push(|i| {
        let b = &blocks[i];
        if title.is_empty() || b.counts.words > 40 {
            return 61;
        }
        let (mut hits, mut all) = (0, 0);
        words(page.text_of(b), |w| {
            all += 1;
            hits += u64::from(title.contains(&w));
        });
        share(hits, all.max(title.len() as u64))
    });
    for source in [meta.description.as_deref(), hints.article_body.as_deref()] {
        let mut set = FxHashSet::default();
        triples(source.unwrap_or_default(), |t| {
            set.insert(t);
        });
        if set.is_empty() {
            columns.push_constant(62);
        } else {
            columns.push(|i| overlap(page.text_of(&blocks[i]), &set));
        }
    }
    let mut seen: FxHashMap<u64, u32> = FxHashMap::default();
    let hashes: Vec<u64> = blocks
        .iter()
        .map(|b| xxh3_64(page.text_of(b).as_bytes()))
        .collect();
    let earlier: Vec<u32> = hashes
        .iter()
        .map(|&h| {
            let count = seen.entry(h).or_default();
            *count += 1;
            *count - 1
        })
        .collect();
    columns.push(|i| least(earlier[i].into(), 30));
    columns.push(|i| least(seen.get(&hashes[i]).copied().unwrap_or(1).into(), 60));
}

/// Features of the whole page.
pub(crate) fn whole(columns: &mut Columns, page: &Page, areas: &Areas, hints: &Hints) {
    let all = areas.totals(0);
    let articles = page.areas.iter().filter(|a| a.tag == Tag::Article).count();
    let headings = page
        .blocks
        .iter()
        .filter(|b| b.shape == Shape::Heading)
        .count();
    let rows = page.blocks.iter().filter(|b| b.shape == Shape::Row).count();
    columns.push_constant(log(all.bytes));
    columns.push_constant(log(all.prose));
    columns.push_constant(log(all.blocks));
    columns.push_constant(share(all.linked, all.bytes));
    columns.push_constant(share(all.prose, all.bytes));
    columns.push_constant(log(articles as u64));
    columns.push_constant(log(headings as u64));
    columns.push_constant(log(rows as u64));
    columns.push_constant(u8::from(page.areas.iter().any(|a| a.tag == Tag::Main)));
    columns.push_constant(u8::from(hints.is_article));
    columns.push_constant(u8::from(hints.article_body.is_some()));
    columns.push_constant(u8::from(hints.is_dated));
}

//! Structures of a page: blocks whose elements have the same tags and classes, up to the root.
//!
//! A template writes its paragraphs alike, so they are text together or not at all. The model judges block by block
//! and has seen few long pages: in a book of 20,000 words it misses short lines of dialogue, and single paragraphs
//! that it would accept on a page of their own. So where the model accepts most words of a structure, the rest of it
//! is accepted too, with the headings between: the error of a structure falls with its length, where that of single
//! blocks stays. Short structures are filled only between their accepted blocks, since bylines and invitations stand
//! at the ends of articles.

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::blocks::{Block, Page, Shape};
use super::features::triples;
use super::thread;
use crate::text::narrow;

/// A structure needs this many words; below, single blocks say as much.
const LEAST_WORDS: u64 = 300;
/// So many twentieths of its words must be accepted: of a structure that is most of the page, and of others.
const ACCEPTED: u64 = 12;
const ACCEPTED_BESIDE: u64 = 19;
/// From this many words on the ends of a structure are filled too.
const LONG: u64 = 3000;
/// Headings in a row that may lead to a paragraph.
const MAX_HEADINGS: usize = 8;

/// The structure of each area, as a hash.
pub(super) struct Structures {
    paths: Vec<u64>,
}

#[derive(Default)]
struct Fill {
    words: u64,
    accepted: u64,
    /// It is most of the page: all of it is text, not only its running text.
    is_most: bool,
    /// The first and the last accepted block.
    ends: Option<(usize, usize)>,
}

impl Structures {
    pub(super) fn new(page: &Page) -> Structures {
        let mut paths: Vec<u64> = Vec::with_capacity(page.areas.len());
        for (i, area) in page.areas.iter().enumerate() {
            // areas come after the one around them; the first is its own
            let around = if i == 0 {
                0
            } else {
                paths[area.parent as usize]
            };
            let mixed = (around ^ area.look).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            paths.push(mixed ^ mixed >> 29);
        }
        Structures { paths }
    }

    /// The structure of a block's own element.
    fn own(&self, block: &Block) -> u64 {
        self.paths[block.area as usize]
    }

    /// The structure of the element around the block's.
    fn around(&self, page: &Page, block: &Block) -> u64 {
        self.paths[page.areas[block.area as usize].parent as usize]
    }

    /// Accepts the rest of structures of which most is accepted.
    pub(super) fn fill(&self, page: &Page, accepted: &mut [bool]) {
        let words = |b: &Block| u64::from(b.counts.words);
        let all: u64 = page.blocks.iter().map(words).sum();
        let prose: u64 = page.blocks.iter().filter(|b| b.is_prose()).map(words).sum();
        let mut fills: FxHashMap<u64, Fill> = FxHashMap::default();
        for (i, block) in page.blocks.iter().enumerate() {
            if block.shape != Shape::Paragraph {
                continue;
            }
            let fill = fills.entry(self.own(block)).or_default();
            fill.words += u64::from(block.counts.words);
            if accepted[i] {
                fill.accepted += u64::from(block.counts.words);
                fill.ends = Some((fill.ends.map_or(i, |e| e.0), i));
            }
        }
        fills.retain(|_, f| {
            f.is_most = f.words * 20 >= prose * 19 && f.words * 10 >= all * 8;
            let least = if f.is_most { ACCEPTED } else { ACCEPTED_BESIDE };
            f.words >= LEAST_WORDS && f.accepted * 20 >= f.words * least
        });
        if fills.is_empty() {
            return;
        }
        // Backwards, so that a heading sees whether the block behind it is filled.
        let mut behind: Option<(u64, usize)> = None;
        for (i, block) in page.blocks.iter().enumerate().rev() {
            let around = self.around(page, block);
            if block.shape == Shape::Heading {
                let leads = behind.filter(|(a, n)| *a == around && *n < MAX_HEADINGS);
                accepted[i] |= leads.is_some();
                behind = leads.map(|(a, n)| (a, n + 1));
                continue;
            }
            behind = None;
            if block.shape != Shape::Paragraph {
                continue;
            }
            let Some(fill) = fills.get(&self.own(block)) else {
                continue;
            };
            let is_inside = fill.ends.is_some_and(|(a, b)| a < i && i < b);
            // a page that is nothing but the structure has no furniture at its ends
            let is_whole = fill.words >= LONG || fill.words * 20 >= all * 19;
            let is_alike = fill.is_most || block.is_prose();
            if is_alike && (is_inside || is_whole) && block.linked * 2 <= block.bytes() {
                accepted[i] = true;
            }
            if accepted[i] {
                behind = Some((around, 0));
            }
        }
    }

    /// The chosen blocks without second copies of the page's text, and the number of these.
    ///
    /// Pages repeat their text for small screens, for printing and in one piece for programs, and forums quote the
    /// post that is answered. A copy stands in another structure than the text, consists of it and has at least a
    /// tenth of it; or it is quoted, or a post shown twice, and stands on the page before. So the clauses of a
    /// contract, choruses and tables of near-equal lines are no copies, however often they repeat.
    pub(super) fn without_copies(&self, page: &Page, mut chosen: Vec<usize>) -> (Vec<usize>, u32) {
        // The structure that had a triple first.
        let mut first: FxHashMap<u64, u64> = FxHashMap::default();
        // Words of each structure, and those of its repeated paragraphs.
        let mut sums: FxHashMap<u64, (u64, u64)> = FxHashMap::default();
        let mut repeats: FxHashMap<usize, u64> = FxHashMap::default();
        let mut posts: FxHashMap<u64, u64> = FxHashMap::default();
        for &i in &chosen {
            let block = &page.blocks[i];
            let is_quoted = thread::is_quoted(block);
            let structure = if is_quoted {
                QUOTED
            } else {
                self.around(page, block)
            };
            let (mut count, mut repeated) = (0, 0);
            triples(page.text_of(block), |triple| {
                count += 1;
                repeated += u32::from(*first.entry(triple).or_insert(structure) != structure);
            });
            let words = u64::from(block.counts.words);
            let sum = sums.entry(structure).or_default();
            sum.0 += words;
            if words < REPEATED || block.shape != Shape::Paragraph {
                continue;
            }
            if repeated * 10 >= count * 8 {
                sum.1 += words;
                repeats.insert(i, structure);
            }
            if thread::is_post(block) {
                let hash = xxh3_64(page.text_of(block).as_bytes());
                if *posts.entry(hash).or_insert(structure) != structure {
                    repeats.insert(i, QUOTED);
                }
            }
        }
        let all: u64 = sums.values().map(|s| s.0).sum();
        let is_left_out = |structure: u64| {
            let (words, repeated) = sums.get(&structure).copied().unwrap_or_default();
            let rest = all - words;
            // text that is there twice comes once more, or twice, but not ten times
            let is_copy =
                repeated * 10 >= words * 8 && repeated * 10 >= rest && rest * 10 >= repeated * 3;
            structure == QUOTED || is_copy
        };
        repeats.retain(|_, structure| is_left_out(*structure));
        chosen.retain(|i| !repeats.contains_key(i));
        (chosen, narrow(repeats.len()))
    }
}

/// Words of a paragraph that can be told to be a repetition.
const REPEATED: u64 = 40;
/// The structure of all that is quoted.
const QUOTED: u64 = 0;

//! Sums over the elements of a page, to find the element around the main text.

use rustc_hash::FxHashMap;

use super::blocks::Page;
use super::html::Tag;

/// Sums over the blocks inside an area.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Totals {
    pub(super) bytes: u64,
    pub(super) linked: u64,
    /// Bytes of running text.
    pub(super) prose: u64,
    pub(super) blocks: u64,
    /// `p` elements.
    pub(super) paragraphs: u64,
}

/// An area that may hold the main text.
pub(super) struct Candidate {
    pub(super) area: u32,
    pub(super) depth: u8,
    inside: Vec<bool>,
}

impl Candidate {
    /// `area` is the candidate or inside it.
    pub(super) fn holds(&self, area: u32) -> bool {
        self.inside[area as usize]
    }
}

/// The areas of a page with their sums.
pub(super) struct Areas {
    totals: Vec<Totals>,
    /// Siblings with the same tag and class, itself among them.
    alike: Vec<u32>,
    candidates: [Candidate; 3],
}

impl Areas {
    /// Computes the sums; one pass down and one up, for any nesting.
    pub(super) fn new(page: &Page) -> Areas {
        let mut totals = vec![Totals::default(); page.areas.len()];
        // Prose of the blocks whose element is a child of the area: paragraphs speak for it.
        let mut direct = vec![0u64; page.areas.len()];
        for block in &page.blocks {
            let t = &mut totals[block.area as usize];
            t.bytes += u64::from(block.bytes());
            t.linked += u64::from(block.linked);
            t.blocks += 1;
            if block.is_prose() {
                let bytes = u64::from(block.bytes());
                t.prose += bytes;
                let parent = page.areas[block.area as usize].parent;
                direct[parent as usize] += bytes;
                direct[block.area as usize] += bytes / 2;
            }
        }
        let mut alike: FxHashMap<(u32, u64), u32> = FxHashMap::default();
        for (i, area) in page.areas.iter().enumerate().skip(1).rev() {
            totals[i].paragraphs += u64::from(area.tag == Tag::P);
            let inner = totals[i];
            let t = &mut totals[area.parent as usize];
            t.bytes += inner.bytes;
            t.linked += inner.linked;
            t.prose += inner.prose;
            t.blocks += inner.blocks;
            t.paragraphs += inner.paragraphs;
            *alike.entry((area.parent, area.look)).or_default() += 1;
        }
        let count = |a: &super::blocks::Area| alike.get(&(a.parent, a.look)).copied().unwrap_or(1);
        let alike = page.areas.iter().map(count).collect();
        let best = (0..direct.len())
            .rev()
            .max_by_key(|&i| direct[i])
            .unwrap_or(0);
        let candidates = [
            candidate(page, crate::text::narrow(best)),
            candidate(page, dominant(page, &totals, 5)),
            candidate(page, dominant(page, &totals, 8)),
        ];
        Areas {
            totals,
            alike,
            candidates,
        }
    }

    /// Sums inside an area.
    #[inline]
    pub(super) fn totals(&self, area: u32) -> Totals {
        self.totals[area as usize]
    }

    /// Number of siblings that look alike, including the area.
    pub(super) fn alike(&self, area: u32) -> u32 {
        self.alike[area as usize]
    }

    /// The area with most paragraphs right inside; the smallest areas that hold half and most of the
    /// running text.
    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }
}

/// The smallest area with at least `tenths` of the prose: areas come in document order, so the last
/// one that is heavy enough is the innermost on the one heavy path if `tenths` is above 5.
fn dominant(page: &Page, totals: &[Totals], tenths: u64) -> u32 {
    let all = totals[0].prose;
    let heavy = |i: &usize| totals[*i].prose * 10 > all * tenths;
    let last = (0..page.areas.len()).rev().find(heavy).unwrap_or(0);
    crate::text::narrow(last)
}

fn candidate(page: &Page, area: u32) -> Candidate {
    let mut inside = vec![false; page.areas.len()];
    let mut depths = vec![1u8; page.areas.len()];
    for (i, a) in page.areas.iter().enumerate() {
        let parent = a.parent as usize;
        inside[i] = i == area as usize || (i > 0 && inside[parent]);
        if i > 0 {
            depths[i] = depths[parent].saturating_add(1);
        }
    }
    Candidate {
        area,
        depth: depths[area as usize],
        inside,
    }
}

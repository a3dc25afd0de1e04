//! A double-array trie over bytes, for finding every piece that starts at a position in one pass.
//!
//! Node s has children s.base ^ byte, valid where their `check` is s. Paper: Aoe 1989, "An efficient digital search
//! algorithm by using a double-array structure". Four words per node, so that a step touches one cache line.

/// No value ends here / no such node.
pub(crate) const NONE: u32 = u32::MAX;

/// Positions tried in one search for a base before the array grows instead: bounds the building time.
const TRIES: usize = 512;

/// Maximum positions, 2 GiB of them: a million pieces need a tenth.
const MOST: usize = 1 << 27;

#[derive(Clone, Copy, Debug)]
struct Unit {
    base: u32,
    check: u32,
    value: u32,
    score: f32,
}

const FREE: Unit = Unit {
    base: 0,
    check: NONE,
    value: NONE,
    score: 0.0,
};

/// A key of a trie with its value and score.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'k> {
    pub bytes: &'k [u8],
    pub value: u32,
    pub score: f32,
}

/// Entries that a node's subtree holds: a range of the sorted keys, which share `depth` bytes.
struct Pending {
    node: u32,
    first: usize,
    last: usize,
    depth: usize,
}

/// A child of a node: its byte and its range of the sorted keys.
struct Child {
    byte: u8,
    first: usize,
    last: usize,
}

/// The trie: byte strings as keys, with a value and a score each.
#[derive(Debug)]
pub(crate) struct Trie {
    units: Vec<Unit>,
}

impl Trie {
    /// The root node, where every walk starts.
    pub(crate) const ROOT: u32 = 0;

    /// Builds from any order of keys; of equal keys the last counts. Empty keys are ignored. Fails when there are too
    /// many to index.
    pub(crate) fn new<'k>(entries: impl IntoIterator<Item = Key<'k>>) -> Result<Trie, String> {
        let mut entries: Vec<_> = entries
            .into_iter()
            .filter(|key| !key.bytes.is_empty())
            .collect();
        entries.sort_by(|a, b| a.bytes.cmp(b.bytes));
        let mut build = Build {
            units: vec![FREE; 256],
            cursor: 1,
            entries: &entries,
        };
        build.units[0].check = 0;
        // a stack instead of recursion: keys may be long
        let mut pending = vec![Pending {
            node: 0,
            first: 0,
            last: entries.len(),
            depth: 0,
        }];
        while let Some(next) = pending.pop() {
            build.expand(next, &mut pending);
            if build.units.len() > MOST {
                return Err(format!(
                    "{} pieces need a trie of more than {MOST} nodes",
                    entries.len()
                ));
            }
        }
        Ok(Trie { units: build.units })
    }

    /// The child of `node` by `byte`, with the value and score that end there.
    #[inline]
    pub(crate) fn step(&self, node: u32, byte: u8) -> Option<(u32, u32, f32)> {
        let from = self.units.get(node as usize)?;
        let to = from.base ^ u32::from(byte);
        let unit = self.units.get(to as usize)?;
        (unit.check == node && to != 0).then_some((to, unit.value, unit.score))
    }

    /// Length and value of the longest key that `text` starts with.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        let (mut node, mut found) = (Trie::ROOT, None);
        for (depth, byte) in text.iter().enumerate() {
            let Some((next, value, _)) = self.step(node, *byte) else {
                break;
            };
            if value != NONE {
                found = Some((depth + 1, value));
            }
            node = next;
        }
        found
    }
}

struct Build<'a, 'k> {
    units: Vec<Unit>,
    /// No place below is free.
    cursor: usize,
    entries: &'a [Key<'k>],
}

impl Build<'_, '_> {
    /// Places the children of a node.
    fn expand(&mut self, next: Pending, pending: &mut Vec<Pending>) {
        let Pending {
            node,
            first,
            last,
            depth,
        } = next;
        let mut children: Vec<Child> = Vec::new();
        for (i, key) in (first..last).zip(&self.entries[first..last]) {
            let Some(&byte) = key.bytes.get(depth) else {
                self.units[node as usize].value = key.value;
                self.units[node as usize].score = key.score;
                continue;
            };
            match children.last_mut() {
                Some(child) if child.byte == byte => child.last = i + 1,
                _ => children.push(Child {
                    byte,
                    first: i,
                    last: i + 1,
                }),
            }
        }
        if children.is_empty() {
            return;
        }
        let base = self.place(&children);
        self.units[node as usize].base = base;
        for Child { byte, first, last } in children {
            let child = base ^ u32::from(byte);
            self.units[child as usize].check = node;
            pending.push(Pending {
                node: child,
                first,
                last,
                depth: depth + 1,
            });
        }
    }

    /// A base under which every child's place is free.
    fn place(&mut self, children: &[Child]) -> u32 {
        while self.cursor < self.units.len() && self.units[self.cursor].check != NONE {
            self.cursor += 1;
        }
        let lead = usize::from(children[0].byte);
        let free = |units: &[Unit], i: usize| units.get(i).is_some_and(|u| u.check == NONE);
        let mut tried = 0;
        for place in self.cursor..self.units.len() {
            if self.units[place].check != NONE {
                continue;
            }
            let base = place ^ lead;
            if children
                .iter()
                .all(|child| free(&self.units, base ^ usize::from(child.byte)))
            {
                return index(base);
            }
            tried += 1;
            if tried >= TRIES {
                // skip the crowded part, or every later search would walk it again
                self.cursor = self.cursor.max(place.saturating_sub(TRIES));
                break;
            }
        }
        let base = self.units.len();
        self.units.resize(base + 256, FREE);
        index(base)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "Trie::new stops at MOST places"
)]
fn index(place: usize) -> u32 {
    place as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn finds_exactly_the_keys_that_a_map_finds(
            keys in prop::collection::btree_map(prop::collection::vec(0u8..5, 1..6), 0u32..1000, 0..200),
            text in prop::collection::vec(0u8..5, 0..8),
        ) {
            let trie = Trie::new(keys.iter().map(|(bytes, &value)| Key { bytes, value, score: 0.5 })).unwrap();
            let naive = (1..=text.len()).rev().find_map(|n| keys.get(&text[..n]).map(|v| (n, *v)));
            prop_assert_eq!(trie.longest(&text), naive);
        }
    }

    #[test]
    fn many_random_words_are_all_found_and_no_other() {
        let mut keys = BTreeMap::new();
        let mut state = 1u64;
        for i in 0..20_000u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let bytes = state.to_le_bytes();
            keys.insert(bytes[..3 + (i as usize % 5)].to_vec(), i);
        }
        let entries = keys.iter().map(|(bytes, &value)| Key {
            bytes,
            value,
            score: 0.0,
        });
        let trie = Trie::new(entries).unwrap();
        for (key, value) in &keys {
            let (mut node, mut found) = (Trie::ROOT, NONE);
            for byte in key {
                (node, found, _) = trie.step(node, *byte).unwrap();
            }
            assert_eq!(found, *value);
        }
    }
}

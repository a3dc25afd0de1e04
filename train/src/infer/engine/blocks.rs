//! Blocks of the key-value cache: who holds each, and which tokens it has the keys and values of (prefix caching).
//!
//! A full block is known by the block before it and its tokens, compared as they are, so no two texts are ever confused.
//! A block that nobody holds keeps its contents until its room is needed; the one that was let go first is reused first.

use std::collections::{BTreeSet, HashMap};

/// Tokens of a block, as in vLLM.
pub(super) const BLOCK: usize = 16;

/// A cached block's unique number; no later block has it again.
pub(super) type Serial = u64;

/// The number in front of a sequence's first block.
pub(super) const ROOT: Serial = 0;

/// Contents of a full block: the serial of the block before it and its tokens.
type Key = (Serial, [u32; BLOCK]);

#[derive(Default)]
struct Block {
    holders: u32,
    /// Serial and key of its contents, if they are known to be full.
    contents: Option<(Serial, Key)>,
    /// When it was let go.
    idle_since: u64,
}

/// All blocks of a cache.
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Blocks without holders: those without contents first, then by the time they were let go.
    idle: BTreeSet<(u64, u32)>,
    known: HashMap<Key, u32>,
    next_serial: Serial,
    clock: u64,
}

impl Blocks {
    pub(super) fn new(count: usize) -> Blocks {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Blocks {
            blocks: (0..count).map(|_| Block::default()).collect(),
            idle: (0..count).map(|block| (0, block)).collect(),
            known: HashMap::new(),
            next_serial: ROOT + 1,
            clock: 1,
        }
    }

    pub(super) fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that some sequence holds.
    pub(super) fn held(&self) -> usize {
        self.blocks.len() - self.idle.len()
    }

    /// Blocks that nobody holds.
    pub(super) fn free(&self) -> usize {
        self.idle.len()
    }

    /// A number to begin texts with whose keys and values differ from all others'.
    pub(super) fn new_root(&mut self) -> Serial {
        let root = self.next_serial;
        self.next_serial += 1;
        root
    }

    /// Takes a block for new contents.
    pub(super) fn take(&mut self) -> Option<u32> {
        let (_, number) = self.idle.pop_first()?;
        let block = &mut self.blocks[number as usize];
        if let Some((_, key)) = block.contents.take() {
            self.known.remove(&key);
        }
        block.holders = 1;
        Some(number)
    }

    /// Takes part in the block that continues `before` with `tokens`, if there is one.
    pub(super) fn share(&mut self, before: Serial, tokens: [u32; BLOCK]) -> Option<(u32, Serial)> {
        let number = *self.known.get(&(before, tokens))?;
        let block = &mut self.blocks[number as usize];
        if block.holders == 0 {
            self.idle.remove(&(block.idle_since, number));
        }
        block.holders += 1;
        let (serial, _) = block.contents?;
        Some((number, serial))
    }

    /// Makes a full block's contents known; returns the serial to continue from. If another block has the same contents,
    /// it stays the known one.
    pub(super) fn know(&mut self, number: u32, before: Serial, tokens: [u32; BLOCK]) -> Serial {
        let key = (before, tokens);
        if let Some(&other) = self.known.get(&key)
            && let Some((serial, _)) = self.blocks[other as usize].contents
        {
            return serial;
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.blocks[number as usize].contents = Some((serial, key));
        self.known.insert(key, number);
        serial
    }

    /// Lets a sequence's blocks go, given in the order of its tokens: the last ones are reused first.
    pub(super) fn release(&mut self, held: &[u32]) {
        for &number in held.iter().rev() {
            let block = &mut self.blocks[number as usize];
            block.holders -= 1;
            if block.holders == 0 {
                block.idle_since = if block.contents.is_some() {
                    self.clock
                } else {
                    0
                };
                self.clock += 1;
                self.idle.insert((block.idle_since, number));
            }
        }
    }

    /// Forgets the contents of all blocks that nobody holds.
    pub(super) fn forget(&mut self) {
        for (_, number) in std::mem::take(&mut self.idle) {
            let block = &mut self.blocks[number as usize];
            if let Some((_, key)) = block.contents.take() {
                self.known.remove(&key);
            }
            block.idle_since = 0;
            self.idle.insert((0, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_blocks_live_until_their_room_is_needed() {
        let mut blocks = Blocks::new(3);
        let (a, b) = ([1; BLOCK], [2; BLOCK]);
        let first = blocks.take().unwrap();
        let second = blocks.take().unwrap();
        let serial = blocks.know(first, ROOT, a);
        blocks.know(second, serial, b);
        assert_eq!(blocks.share(ROOT, b), None, "another text begins with b");
        assert_eq!(blocks.share(ROOT, a), Some((first, serial)));
        assert_eq!((blocks.held(), blocks.free()), (2, 1));
        blocks.release(&[first, second]);
        assert_eq!(blocks.held(), 1, "the other sequence still holds the first");
        blocks.release(&[first]);
        assert_eq!((blocks.held(), blocks.free()), (0, 3));
        assert!(
            blocks.share(serial, b).is_some(),
            "contents stay without holders"
        );
        blocks.release(&[second]);
        // room: the empty block, then the second, let go first, then the first
        let third = blocks.take().unwrap();
        assert!(third != first && third != second);
        assert_eq!(
            blocks.take(),
            Some(first),
            "let go before the second was held again"
        );
        assert_eq!(blocks.share(ROOT, a), None);
        assert_eq!(blocks.take(), Some(second));
        assert_eq!(blocks.take(), None);
    }

    #[test]
    fn texts_with_other_roots_share_nothing() {
        let mut blocks = Blocks::new(2);
        let (one, two) = (blocks.take().unwrap(), blocks.take().unwrap());
        let (of_one, of_two) = (blocks.new_root(), blocks.new_root());
        let serial = blocks.know(one, of_one, [7; BLOCK]);
        assert_eq!(blocks.share(ROOT, [7; BLOCK]), None);
        assert_eq!(blocks.share(of_two, [7; BLOCK]), None);
        assert_ne!(blocks.know(two, of_two, [7; BLOCK]), serial);
        assert_eq!(blocks.share(of_one, [7; BLOCK]), Some((one, serial)));
    }

    #[test]
    fn equal_contents_continue_from_one_serial() {
        let mut blocks = Blocks::new(2);
        let (one, two) = (blocks.take().unwrap(), blocks.take().unwrap());
        let serial = blocks.know(one, ROOT, [7; BLOCK]);
        assert_eq!(blocks.know(two, ROOT, [7; BLOCK]), serial);
        blocks.release(&[two]);
        assert_eq!(
            blocks.take(),
            Some(two),
            "its contents were never the known ones"
        );
        blocks.release(&[one]);
        blocks.forget();
        assert_eq!(blocks.share(ROOT, [7; BLOCK]), None);
    }
}

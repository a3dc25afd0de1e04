//! `.edits` files: byte ranges that are cut from a shard's texts. Clean documents are not rewritten; readers of
//! kept documents leave these ranges out. A range may split its text: the text after it is another document.
//!
//! All numbers little-endian. Ranges are of the text's UTF-8 bytes, start on a character and end before one; those
//! of a document are in order and do not touch. The top bit of a range's end says that it splits. A shard without
//! an `.edits` file has no cuts.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `MLREDIT1` |
//! | 8..16 | number of documents in the shard |
//! | 12 m bytes | document, start, end (u32 each), sorted |
//! | 8 bytes | number of ranges m |
//! | 16 bytes | XXH3-128 of all bytes before |

use std::io::Write;
use std::ops::Range;
use std::path::Path;

use crate::error::{At, Result, damaged};
use crate::write::{AtomicFile, OutputFile, check_digest, verify, word};

const MAGIC: &[u8; 8] = b"MLREDIT1";
const HEADER: u64 = 16;
const TRAILER: u64 = 24;
const RECORD: u64 = 12;

/// Bytes of a text: start and end.
pub(crate) type Span = (u32, u32);

/// Says that a range splits its text; texts are shorter than 2 GiB.
const SPLITS: u32 = 1 << 31;

/// The cuts of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditList {
    documents: u64,
    /// Documents with cuts, in order, and where their ranges start in `spans`.
    starts: Vec<(u32, usize)>,
    spans: Vec<Span>,
    /// Whether each of them splits its text.
    splits: Vec<bool>,
}

impl EditList {
    /// An empty list for a shard with this many documents.
    pub(crate) fn none(documents: u64) -> EditList {
        EditList {
            documents,
            ..EditList::default()
        }
    }

    /// Documents in the shard.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Documents that lose something.
    pub fn cut_documents(&self) -> usize {
        self.starts.len()
    }

    /// Number of ranges.
    pub fn cuts(&self) -> usize {
        self.spans.len()
    }

    /// Bytes that are cut.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|s| u64::from(s.1 - s.0)).sum()
    }

    /// Ranges that split their text.
    pub fn splits(&self) -> usize {
        self.splits.iter().filter(|s| **s).count()
    }

    /// Cut ranges of a document.
    pub fn of(&self, document: usize) -> &[Span] {
        &self.spans[self.range(document)]
    }

    /// For each range of a document, whether it splits it.
    pub(crate) fn splits_of(&self, document: usize) -> &[bool] {
        &self.splits[self.range(document)]
    }

    fn range(&self, document: usize) -> Range<usize> {
        let at = self
            .starts
            .partition_point(|(d, _)| (*d as usize) < document);
        match self.starts.get(at) {
            Some((d, start)) if *d as usize == document => {
                let end = self.starts.get(at + 1).map_or(self.spans.len(), |n| n.1);
                *start..end
            }
            _ => 0..0,
        }
    }

    /// Appends a document's ranges, and whether each splits it; documents come in order.
    pub(crate) fn add(&mut self, document: u32, spans: &[Span], splits: &[bool]) {
        if !spans.is_empty() {
            self.starts.push((document, self.spans.len()));
            self.spans.extend_from_slice(spans);
            self.splits.extend_from_slice(splits);
        }
    }

    /// Documents with cuts and their ranges, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[Span])> {
        let ends = self.starts.iter().skip(1).map(|s| s.1);
        let ends = ends.chain([self.spans.len()]);
        let pairs = self.starts.iter().zip(ends);
        pairs.map(|((document, start), end)| (*document, &self.spans[*start..end]))
    }

    pub(crate) fn write(&self, root: &Path, name: &str) -> Result<OutputFile> {
        let mut file = AtomicFile::create(root, name)?;
        let path = file.path();
        file.write_all(MAGIC).at(&path)?;
        file.write_all(&self.documents.to_le_bytes()).at(&path)?;
        for (document, spans) in self.iter() {
            let splits = self.splits_of(document as usize);
            for ((start, end), splits) in spans.iter().zip(splits) {
                let end = if *splits { *end | SPLITS } else { *end };
                for number in [document, *start, end] {
                    file.write_all(&number.to_le_bytes()).at(&path)?;
                }
            }
        }
        let count = self.spans.len() as u64;
        file.write_all(&count.to_le_bytes()).at(&path)?;
        let digest = file.digest();
        file.write_all(&digest.to_le_bytes()).at(&path)?;
        file.finish()
    }

    /// Reads and verifies an `.edits` file.
    ///
    /// # Errors
    /// `Io`, or `Damaged` with the offset of the first thing that is wrong.
    pub fn read(path: &Path) -> Result<EditList> {
        let (size, digest, tail) = verify(path, HEADER + TRAILER)?;
        let bytes = std::fs::read(path).at(path)?;
        if bytes.len() < 40 || &bytes[..8] != MAGIC {
            return Err(damaged(path, 0, "another magic", "the magic MLREDIT1"));
        }
        check_digest(path, size, digest, &tail)?;
        let count = u64::from_le_bytes(word(&tail, 0));
        if u128::from(count) * u128::from(RECORD) + u128::from(HEADER + TRAILER) != u128::from(size)
        {
            let found = format!("{count} ranges in {size} bytes");
            let wanted = "12 bytes per range and 40 more";
            return Err(damaged(path, size - TRAILER, found, wanted));
        }
        let mut list = EditList::none(u64::from_le_bytes(word(&bytes, 8)));
        let mut last: Option<(u32, Span)> = None;
        let body = &bytes[16..bytes.len() - 24];
        for (i, record) in body.as_chunks::<12>().0.iter().enumerate() {
            let number = |at: usize| u32::from_le_bytes(word(record, at));
            let (document, span) = (number(0), (number(4), number(8) & !SPLITS));
            let same = last.filter(|(d, _)| *d == document);
            let is_sorted = last.is_none_or(|(d, _)| d <= document)
                && same.is_none_or(|(_, before)| before.1 < span.0);
            if !is_sorted || span.0 >= span.1 || u64::from(document) >= list.documents {
                let at = HEADER + RECORD * i as u64;
                let found = format!("document {document}, bytes {} to {}", span.0, span.1);
                return Err(damaged(
                    path,
                    at,
                    found,
                    "ranges in order that are not empty",
                ));
            }
            if same.is_none() {
                list.starts.push((document, list.spans.len()));
            }
            list.spans.push(span);
            list.splits.push(number(8) & SPLITS != 0);
            last = Some((document, span));
        }
        Ok(list)
    }
}

/// Passes the text outside the ranges to `take`, in pieces where a range splits. `buffer` holds one piece.
///
/// # Errors
/// Describes a range that does not fit this text; nothing has been passed on then.
pub(crate) fn pieces(
    text: &str,
    spans: &[Span],
    splits: &[bool],
    buffer: &mut String,
    take: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mut from = 0;
    for (start, end) in spans {
        let (start, end) = (*start as usize, *end as usize);
        if text.get(from..start).is_none() || text.get(start..end).is_none() {
            let length = text.len();
            return Err(format!(
                "bytes {start} to {end} are no characters of its {length} bytes"
            ));
        }
        from = end;
    }
    buffer.clear();
    from = 0;
    for ((start, end), splits) in spans.iter().zip(splits) {
        buffer.push_str(&text[from..*start as usize]);
        from = *end as usize;
        if *splits && !buffer.is_empty() {
            take(buffer);
            buffer.clear();
        }
    }
    buffer.push_str(&text[from..]);
    if !buffer.is_empty() || !splits.contains(&true) {
        take(buffer);
    }
    Ok(())
}

/// For each range of `all`, composed of `old` and `new`, whether it splits: those that contain a splitting range of
/// `new` do.
pub(crate) fn composed_splits(
    all: &[Span],
    old: &[Span],
    new: &[Span],
    splits: &[bool],
) -> Vec<bool> {
    let mut found = vec![false; all.len()];
    let (mut gone, mut old) = (0, old.iter().peekable());
    for (span, _) in new.iter().zip(splits).filter(|(_, splits)| **splits) {
        // earlier cuts have shifted it
        while let Some(cut) = old.next_if(|cut| cut.0 - gone <= span.0) {
            gone += cut.1 - cut.0;
        }
        let start = span.0 + gone;
        let at = all.partition_point(|whole| whole.1 <= start);
        if let Some(split) = found.get_mut(at) {
            *split = true;
        }
    }
    found
}

/// Ranges of the whole text that apply the cuts `old` and then the cuts `new`, which are relative to the remaining
/// text.
pub(crate) fn compose(old: &[Span], new: &[Span]) -> Vec<Span> {
    let mut all = old.to_vec();
    // start of the piece in the whole text and in the remaining text
    let (mut whole, mut left) = (0u32, 0u32);
    let mut next = 0;
    for cut in old.iter().copied().chain([(u32::MAX, u32::MAX)]) {
        let piece = cut.0 - whole;
        let piece_end = left.saturating_add(piece);
        while let Some((start, end)) = new.get(next).copied().filter(|s| s.0 < piece_end) {
            let (start, stop) = (start.max(left), end.min(piece_end));
            if start < stop {
                all.push((whole + (start - left), whole + (stop - left)));
            }
            if end > piece_end {
                break;
            }
            next += 1;
        }
        left = piece_end;
        whole = cut.1;
    }
    all.sort_unstable();
    joined(&all)
}

/// Merges sorted ranges that touch.
pub(crate) fn joined(spans: &[Span]) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans.iter().filter(|s| s.0 < s.1) {
        match out.last_mut() {
            Some(last) if last.1 >= span.0 => last.1 = last.1.max(span.1),
            _ => out.push(*span),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text without the ranges.
    fn cut(text: &str, spans: &[Span], out: &mut String) -> Result<(), String> {
        let mut left = String::new();
        pieces(
            text,
            spans,
            &vec![false; spans.len()],
            &mut left,
            &mut |piece| *out = piece.to_string(),
        )
    }

    fn spans(of: usize) -> impl Strategy<Value = Vec<Span>> {
        let most = u32::try_from(of).unwrap();
        proptest::collection::vec((0..=most, 0..=most), 0..6).prop_map(|mut pairs| {
            for pair in &mut pairs {
                *pair = (pair.0.min(pair.1), pair.0.max(pair.1));
            }
            pairs.sort_unstable();
            joined(&pairs)
        })
    }

    proptest! {
        #[test]
        fn composed_cuts_are_one_cut_after_the_other(old in spans(40), new in spans(40)) {
            let text: String = (0..40u8).map(|i| char::from(b'0' + i)).collect();
            let (mut once, mut twice, mut both) = (String::new(), String::new(), String::new());
            cut(&text, &old, &mut once).unwrap();
            let most = u32::try_from(once.len()).unwrap();
            let new: Vec<Span> = new.iter().map(|s| (s.0.min(most), s.1.min(most))).collect();
            let new = joined(&new);
            cut(&once, &new, &mut twice).unwrap();
            let all = compose(&old, &new);
            cut(&text, &all, &mut both).unwrap();
            prop_assert_eq!(&both, &twice);
            prop_assert!(all.windows(2).all(|w| w[0].1 < w[1].0));
        }

        #[test]
        fn composed_splits_split_what_is_left_where_the_later_ones_did(
            old in spans(40), new in spans(40), bits in 0u32..64,
        ) {
            let text: String = (0..40u8).map(|i| char::from(b'0' + i)).collect();
            let mut once = String::new();
            cut(&text, &old, &mut once).unwrap();
            let most = u32::try_from(once.len()).unwrap();
            let new: Vec<Span> = new.iter().map(|s| (s.0.min(most), s.1.min(most))).collect();
            let new = joined(&new);
            let splits: Vec<bool> = (0..new.len()).map(|i| bits >> i & 1 == 1).collect();
            let all = compose(&old, &new);
            let whole = composed_splits(&all, &old, &new, &splits);
            let mut buffer = String::new();
            let mut found = [Vec::new(), Vec::new()];
            pieces(&once, &new, &splits, &mut buffer, &mut |p| found[0].push(p.to_string())).unwrap();
            pieces(&text, &all, &whole, &mut buffer, &mut |p| found[1].push(p.to_string())).unwrap();
            prop_assert_eq!(&found[0], &found[1]);
        }
    }

    #[test]
    fn a_range_that_splits_makes_two_documents_of_one() {
        let mut buffer = String::new();
        let mut left = |spans: &[Span], splits: &[bool]| {
            let mut found = Vec::new();
            let take = &mut |piece: &str| found.push(piece.to_string());
            pieces("0123456789", spans, splits, &mut buffer, take).unwrap();
            found
        };
        assert_eq!(left(&[(2, 3), (5, 6)], &[false, true]), ["0134", "6789"]);
        assert_eq!(left(&[(0, 3), (8, 10)], &[true, true]), ["34567"]);
        assert_eq!(left(&[(0, 10)], &[false]), [""]);
        assert!(left(&[(0, 10)], &[true]).is_empty());
    }

    #[test]
    fn lists_come_back_as_written_and_damage_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut list = EditList::none(9);
        list.add(0, &[(0, 3), (5, 9)], &[false, false]);
        list.add(7, &[(1, 2), (4, 6)], &[false, true]);
        assert_eq!(
            (list.cuts(), list.cut_documents(), list.bytes()),
            (4, 2, 10)
        );
        assert_eq!(list.of(0), [(0, 3), (5, 9)]);
        assert_eq!(list.of(7), [(1, 2), (4, 6)]);
        assert_eq!((list.splits_of(7), list.splits()), (&[false, true][..], 1));
        assert!(list.of(1).is_empty() && list.of(8).is_empty());
        let file = list.write(folder.path(), "keep/00000.edits").unwrap();
        let path = folder.path().join(&file.path);
        assert_eq!(EditList::read(&path).unwrap(), list);
        let sound = std::fs::read(&path).unwrap();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            assert!(EditList::read(&path).is_err(), "flip at {at}");
            std::fs::write(&path, &sound[..at]).unwrap();
            assert!(EditList::read(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_range_that_is_not_of_the_text_is_refused() {
        let mut out = String::new();
        assert!(cut("\u{e9}a", &[(0, 2)], &mut out).is_ok());
        assert_eq!(out, "a");
        for wrong in [(0, 1), (1, 3), (2, 4)] {
            assert!(cut("\u{e9}a", &[wrong], &mut out).is_err(), "{wrong:?}");
        }
        assert!(cut("abc", &[(1, 2), (0, 1)], &mut out).is_err());
    }
}

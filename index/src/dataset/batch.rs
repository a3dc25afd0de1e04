//! Batches of texts on their way to the encoder: several documents in one buffer, which is reused.

/// Text of one batch in bytes: large enough to divide among threads, small enough for a bounded memory.
const BATCH_BYTES: usize = 8 << 20;

/// Some documents. A document is a run of sequences: one, or one for each string or sentence of it.
#[derive(Default)]
pub struct TextBatch {
    text: String,
    /// End of each sequence in `text`.
    ends: Vec<usize>,
    documents: Vec<Document>,
}

/// A closed document.
#[derive(Clone, Copy)]
struct Document {
    /// Index in `ends` after its last sequence.
    end: usize,
    group: u16,
}

impl TextBatch {
    /// Adds a sequence to the open document.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    /// Closes the open document; it counts for `group` (a number that the source chooses).
    pub fn end_document(&mut self, group: u16) {
        let end = self.ends.len();
        self.documents.push(Document { end, group });
    }

    /// Whether the batch is large enough to hand over.
    pub fn is_full(&self) -> bool {
        self.text.len() >= BATCH_BYTES || self.documents.len() >= BATCH_BYTES / 64
    }

    /// Documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether it has no documents.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Bytes of text.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Every sequence, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).flat_map(|d| self.sequences(d))
    }

    /// Empties the batch, keeping its allocations.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.documents.clear();
    }

    /// Group of document `d`.
    pub(crate) fn group(&self, d: usize) -> u16 {
        self.documents[d].group
    }

    /// Sequences of document `d`.
    pub fn sequences(&self, d: usize) -> impl Iterator<Item = &str> {
        let first = d.checked_sub(1).map_or(0, |d| self.documents[d].end);
        (first..self.documents[d].end).map(|s| {
            let start = s.checked_sub(1).map_or(0, |s| self.ends[s]);
            &self.text[start..self.ends[s]]
        })
    }

    /// Cuts the documents into runs of about `bytes` of text: the work of one thread at a time.
    pub(crate) fn pieces(&self, bytes: usize) -> Vec<std::ops::Range<usize>> {
        let (mut pieces, mut first, mut start) = (Vec::new(), 0, 0);
        for (d, document) in self.documents.iter().enumerate() {
            let end = document.end.checked_sub(1).map_or(0, |s| self.ends[s]);
            if end - start >= bytes {
                pieces.push(first..d + 1);
                (first, start) = (d + 1, end);
            }
        }
        if first < self.documents.len() {
            pieces.push(first..self.documents.len());
        }
        pieces
    }
}

/// A source of texts.
pub trait TextSource: Send {
    /// Adds documents until the batch is full or there are no more; false at the end.
    ///
    /// # Errors
    /// Errors of the source; the build stops with them.
    fn fill(
        &mut self,
        batch: &mut TextBatch,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>>;
}

/// Documents of one sequence from an iterator, all of group 0.
pub struct Texts<I>(pub I);

impl<I, S, E> TextSource for Texts<I>
where
    I: Iterator<Item = Result<S, E>> + Send,
    S: AsRef<str>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn fill(
        &mut self,
        batch: &mut TextBatch,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        while !batch.is_full() {
            match self.0.next() {
                None => return Ok(false),
                Some(text) => batch.push(text.map_err(Into::into)?.as_ref()),
            }
            batch.end_document(0);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_all_documents_in_order_and_sequences_are_what_was_pushed() {
        let mut batch = TextBatch::default();
        let documents: [&[&str]; 5] = [&["ab", "c"], &[], &["", "d"], &["efgh"], &[]];
        for d in documents {
            d.iter().for_each(|s| batch.push(s));
            batch.end_document(u16::try_from(d.len()).unwrap());
        }
        for bytes in [1, 3, 100] {
            let got: Vec<usize> = batch.pieces(bytes).into_iter().flatten().collect();
            assert_eq!(got, [0, 1, 2, 3, 4], "pieces of {bytes} bytes");
        }
        assert_eq!(batch.pieces(1).len(), 4);
        for (d, want) in documents.iter().enumerate() {
            assert!(batch.sequences(d).eq(want.iter().copied()), "document {d}");
            assert_eq!(usize::from(batch.group(d)), want.len());
        }
    }
}

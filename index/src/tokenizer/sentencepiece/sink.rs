//! Output of the SentencePiece engines: pieces of a text written as ids.

/// Collects ids: unknown text becomes bytes where the model has them, else one id per run.
pub(super) struct Sink<'a> {
    pub(super) out: &'a mut Vec<u32>,
    pub(super) unknown: u32,
    pub(super) byte_ids: Option<&'a [u32; 256]>,
    pub(super) backwards: bool,
    pub(super) after_unknown: bool,
}

impl Sink<'_> {
    #[inline]
    pub(super) fn piece(&mut self, id: u32, text: &[u8]) {
        let is_unknown = id == self.unknown;
        match (is_unknown, self.byte_ids) {
            (true, Some(ids)) if self.backwards => {
                let bytes = text.iter().rev();
                self.out.extend(bytes.map(|b| ids[usize::from(*b)]));
            }
            (true, Some(ids)) => self.out.extend(text.iter().map(|b| ids[usize::from(*b)])),
            (true, None) if self.after_unknown => {}
            _ => self.out.push(id),
        }
        self.after_unknown = is_unknown;
    }
}

/// Bytes of the first character by its lead byte alone, never past the end. `text` is not empty.
pub(super) fn char_len(text: &[u8]) -> usize {
    let len = match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    len.min(text.len())
}

/// The byte that `<0x41>` names.
pub(super) fn byte_of(piece: &str) -> Option<u8> {
    let hex = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper = hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
    (hex.len() == 2 && upper).then(|| u8::from_str_radix(hex, 16).ok())?
}

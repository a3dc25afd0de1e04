//! GPT-2's printable alphabet of bytes (`bytes_to_unicode`).

/// GPT-2's printable stand-in for each byte: itself if printable, else the next free code point from 256 on.
pub(super) fn byte_alphabet() -> Vec<char> {
    let printable = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    (0..256u32)
        .map(|b| {
            let code = if printable(b) {
                b
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).unwrap_or('\u{fffd}')
        })
        .collect()
}

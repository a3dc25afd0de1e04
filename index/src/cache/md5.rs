//! MD5, which names Megatron's cache files. Not used for security.
//!
//! Source: Rivest 1992, RFC 1321; the constants are floor(2^32 |sin(i + 1)|).

/// Digest in hex.
pub(super) fn hex(message: &[u8]) -> String {
    const TURNS: [[u32; 4]; 4] = [
        [7, 12, 17, 22],
        [5, 9, 14, 20],
        [4, 11, 16, 23],
        [6, 10, 15, 21],
    ];
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut bytes = message.to_vec();
    bytes.push(0x80);
    bytes.resize((message.len() + 9).next_multiple_of(64) - 8, 0);
    bytes.extend_from_slice(&(message.len() as u64 * 8).to_le_bytes());
    for block in bytes.as_chunks::<64>().0 {
        let words = block.as_chunks::<4>().0;
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64usize {
            let (f, g) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "below 2^32 by construction"
            )]
            let k = (4_294_967_296.0 * ((i + 1) as f64).sin().abs()) as u32;
            let sum = a
                .wrapping_add(f)
                .wrapping_add(k)
                .wrapping_add(u32::from_le_bytes(words[g]));
            let turned = b.wrapping_add(sum.rotate_left(TURNS[i / 16][i % 4]));
            (a, d, c, b) = (d, c, b, turned);
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d]) {
            *s = s.wrapping_add(v);
        }
    }
    state
        .iter()
        .flat_map(|s| s.to_le_bytes())
        .map(|b| format!("{b:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn digests_are_those_of_rfc_1321() {
        let digits = "1234567890".repeat(8);
        for (text, want) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (&digits, "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            assert_eq!(super::hex(text.as_bytes()), want);
        }
    }
}

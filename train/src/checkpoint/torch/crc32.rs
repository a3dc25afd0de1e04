//! CRC-32 of zip archives: the remainder by the polynomial of IEEE 802.3, least bit first, eight bytes at a time
//! (slicing by 8; Kounavis and Berry 2005).

/// `TABLES[0]`: remainders of a byte; `TABLES[k]`: those of a byte that k zero bytes follow.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let (mut i, mut first) = (0, 0u32);
    while i < 256 {
        let mut c = first;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 {
                c >> 1 ^ 0xedb8_8320
            } else {
                c >> 1
            };
            bit += 1;
        }
        tables[0][i] = c;
        i += 1;
        first += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[k - 1][i];
            tables[k][i] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            i += 1;
        }
        k += 1;
    }
    tables
}

/// A sum to which bytes are added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc32(u32);

impl Crc32 {
    pub(super) fn new() -> Crc32 {
        Crc32(!0)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<8>();
        for &[a, b, c, d, e, f, g, h] in blocks {
            let [w, x, y, z] = self.0.to_le_bytes();
            let order = [a ^ w, b ^ x, c ^ y, d ^ z, e, f, g, h];
            let each = TABLES.iter().rev().zip(order);
            self.0 = each.fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)]);
        }
        for byte in rest {
            let [low, ..] = self.0.to_le_bytes();
            self.0 = TABLES[0][usize::from(low ^ byte)] ^ self.0 >> 8;
        }
    }

    pub(super) fn value(self) -> u32 {
        !self.0
    }
}

/// The CRC of all bytes.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = Crc32::new();
    sum.add(bytes);
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard's check value.
    #[test]
    fn crc_of_the_nine_digits() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// The definition: a bit at a time.
    #[test]
    fn blocks_of_eight_and_parts_give_the_sum_of_single_bits() {
        let bytes: Vec<u8> = (0..100u32)
            .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        for end in 0..bytes.len() {
            let mut want = !0u32;
            for byte in &bytes[..end] {
                want ^= u32::from(*byte);
                for _ in 0..8 {
                    want = (want >> 1) ^ ((want & 1) * 0xedb8_8320);
                }
            }
            let mut parts = Crc32::new();
            parts.add(&bytes[..end / 3]);
            parts.add(&bytes[end / 3..end]);
            assert_eq!((crc32(&bytes[..end]), parts.value()), (!want, !want));
        }
    }
}

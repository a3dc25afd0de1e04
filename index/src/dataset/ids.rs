//! Search for ids outside the vocabulary, at memory speed.

use crate::dataset::idx_format::TokenType;

/// Tokens checked at once before the first bad one is searched.
const BLOCK: usize = 4096;

/// Number and value of the first token of `bytes` that is negative or not below `vocab`.
/// Floating-point types have no ids: `None`.
pub(crate) fn first_beyond(
    token_type: TokenType,
    bytes: &[u8],
    vocab: u64,
) -> Option<(usize, i64)> {
    let limit = i64::try_from(vocab).unwrap_or(i64::MAX);
    match token_type {
        TokenType::U8 => scan(bytes, |b: [u8; 1]| i64::from(b[0]), limit),
        TokenType::I8 => scan(bytes, |b| i64::from(i8::from_le_bytes(b)), limit),
        TokenType::U16 => scan(bytes, |b| i64::from(u16::from_le_bytes(b)), limit),
        TokenType::I16 => scan(bytes, |b| i64::from(i16::from_le_bytes(b)), limit),
        TokenType::I32 => scan(bytes, |b| i64::from(i32::from_le_bytes(b)), limit),
        TokenType::I64 => scan(bytes, i64::from_le_bytes, limit),
        TokenType::F32 | TokenType::F64 => None,
    }
}

fn scan<const N: usize>(
    bytes: &[u8],
    value: impl Fn([u8; N]) -> i64,
    limit: i64,
) -> Option<(usize, i64)> {
    let (tokens, _) = bytes.as_chunks::<N>();
    let bad = |t: &[u8; N]| !(0..limit).contains(&value(*t));
    for (i, block) in tokens.chunks(BLOCK).enumerate() {
        // no early exit inside a block: the loop becomes vector instructions
        if block.iter().fold(false, |any, t| any | bad(t)) {
            let at = block.iter().position(bad)?;
            return Some((i * BLOCK + at, value(block[at])));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_id_beyond_the_vocabulary_is_found_in_every_type() {
        let mut ids = vec![5i64; 10_000];
        ids[9_000] = 90;
        ids[9_500] = 91;
        let as_bytes =
            |f: &dyn Fn(i64) -> Vec<u8>| ids.iter().flat_map(|i| f(*i)).collect::<Vec<_>>();
        let cut = |n: usize| as_bytes(&|i| i.to_le_bytes()[..n].to_vec());
        for (t, bytes) in [
            (TokenType::U8, cut(1)),
            (TokenType::I8, cut(1)),
            (TokenType::U16, cut(2)),
            (TokenType::I16, cut(2)),
            (TokenType::I32, cut(4)),
            (TokenType::I64, cut(8)),
        ] {
            assert_eq!(first_beyond(t, &bytes, 90), Some((9_000, 90)), "{t:?}");
            assert_eq!(first_beyond(t, &bytes, 91), Some((9_500, 91)), "{t:?}");
            assert_eq!(first_beyond(t, &bytes, 92), None, "{t:?}");
        }
        let negative = (-1i32).to_le_bytes();
        assert_eq!(first_beyond(TokenType::I32, &negative, 92), Some((0, -1)));
    }
}

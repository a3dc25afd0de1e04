//! Decoder for content codings of HTTP bodies (RFC 9110 section 8.4.1): gzip, deflate, br, zstd, also several.
//!
//! The caller bounds the output. Text decompressed before an error is kept, as in browsers.

use std::borrow::Cow;
use std::io::{self, Read};

/// Servers apply one coding, proxies perhaps another; each of them may cost `most` bytes of work.
const MAX_CODINGS: usize = 8;

/// Undoes the codings of a `Content-Encoding` value, last first, up to `most` bytes each. None for an unknown
/// coding, for more than [`MAX_CODINGS`], and for bytes that do not match the coding.
pub(crate) fn decode_body<'a>(
    encoding: &str,
    body: Cow<'a, [u8]>,
    most: u64,
) -> Option<Cow<'a, [u8]>> {
    let codings = encoding.split(',').map(str::trim);
    let mut codings = codings.filter(|c| !matches!(*c, "" | "identity")).rev();
    let mut decoded = body;
    for coding in codings.by_ref().take(MAX_CODINGS) {
        decoded = Cow::Owned(decode(coding, &decoded, most)?);
    }
    codings.next().is_none().then_some(decoded)
}

fn decode(coding: &str, body: &[u8], most: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let read = match coding {
        "gzip" | "x-gzip" => all(flate2::read::MultiGzDecoder::new(body), most, &mut out),
        "deflate" => {
            let zlib = all(flate2::read::ZlibDecoder::new(body), most, &mut out);
            zlib.or_else(|_| {
                out.clear();
                all(flate2::read::DeflateDecoder::new(body), most, &mut out)
            })
        }
        "br" => all(
            brotli_decompressor::Decompressor::new(body, 4096),
            most,
            &mut out,
        ),
        "zstd" => match zstd::stream::read::Decoder::with_buffer(body) {
            Ok(decoder) => all(decoder, most, &mut out),
            Err(e) => Err(e),
        },
        _ => return None,
    };
    let usable = read.is_ok() || !out.is_empty();
    (usable && out.len() as u64 <= most).then_some(out)
}

/// Everything, and one byte more than allowed if there is that much.
fn all(decoder: impl Read, most: u64, out: &mut Vec<u8>) -> io::Result<usize> {
    decoder.take(most + 1).read_to_end(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_undone_last_first_and_bombs_are_refused() {
        use std::io::Write;
        let text = b"words ".repeat(1000);
        let gzip = |bytes: &[u8]| {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            e.write_all(bytes).unwrap();
            e.finish().unwrap()
        };
        fn decode_body<'a>(coding: &str, body: &'a [u8], most: u64) -> Option<Cow<'a, [u8]>> {
            super::decode_body(coding, Cow::Borrowed(body), most)
        }
        let zstd = zstd::encode_all(&text[..], 1).unwrap();
        assert_eq!(decode_body("zstd", &zstd, 1 << 20).unwrap(), text);
        assert_eq!(
            decode_body(",identity,, zstd , ,", &zstd, 1 << 20).unwrap(),
            text
        );
        let many = (0..9).fold(text.clone(), |body, _| gzip(&body));
        assert_eq!(decode_body(&["gzip"; 9].join(","), &many, 1 << 20), None);
        let many = (0..8).fold(text.clone(), |body, _| gzip(&body));
        let found = decode_body(&["gzip"; 8].join(","), &many, 1 << 20);
        assert_eq!(found.unwrap(), text);
        let both = gzip(&zstd);
        assert_eq!(decode_body("zstd, gzip", &both, 1 << 20).unwrap(), text);
        assert_eq!(decode_body("zstd", &zstd, 100), None);
        assert_eq!(decode_body("compress", &text, 1 << 20), None);
        // as brotli 1.2.1 (PyPI) compresses nothing and "words "
        assert_eq!(decode_body("br", &[0x3b], 10), Some(Cow::Owned(Vec::new())));
        let stored = [&[0x8b, 0x02, 0x80][..], b"words ", &[0x03]].concat();
        assert_eq!(*decode_body("br", &stored, 10).unwrap(), *b"words ");
    }
}

//! Finds the starts of gzip members (RFC 1952), also after damage.

use std::io::{self, Read};

use flate2::bufread::GzDecoder;

use super::piece::{CHUNK, FIRST_WINDOW};
use crate::read::storage::Window;

/// Goes to the next member that looks sound; false at the end of the file.
pub(super) fn find_sound(window: &mut Window, records: bool) -> io::Result<bool> {
    loop {
        window.fill_to(CHUNK)?;
        let bytes = window.available();
        if bytes.len() < 18 {
            return Ok(false);
        }
        match memchr::memmem::find(bytes, &[0x1f, 0x8b, 0x08]) {
            Some(i) => {
                window.skip(i);
                window.fill_to(FIRST_WINDOW)?;
                if is_gzip(window.available()) && looks_sound(window.available(), records) {
                    return Ok(true);
                }
                window.skip(1);
            }
            None => {
                let n = bytes.len() - 2;
                window.skip(n);
            }
        }
    }
}

/// Whether the first bytes inflate and, in a WARC or ARC file, start a record.
fn looks_sound(bytes: &[u8], records: bool) -> bool {
    let mut head = [0u8; 16];
    let mut filled = 0;
    let mut decoder = GzDecoder::new(bytes);
    while filled < head.len() {
        match decoder.read(&mut head[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(_) => return false,
        }
    }
    let arc = memchr::memmem::find(&head, b"://").is_some() || head.starts_with(b"dns:");
    filled > 0 && (!records || head.starts_with(b"WARC/") || arc)
}

/// Magic, method deflate, no reserved flag.
pub(crate) fn is_gzip(bytes: &[u8]) -> bool {
    matches!(bytes, [0x1f, 0x8b, 0x08, flags, ..] if flags & 0xe0 == 0)
}

//! Decryption of files that open with the empty user password, before anything of them is expanded.
//!
//! `hayro-syntax` decrypts (RC4 of 40 to 128 bits, AES of 128 and 256 bits), but as it opens a file it also expands object
//! streams, without a limit. So the file is opened a first time with a table of our own behind it, which names its objects
//! and one empty page, and with no object stream in it. The library then decrypts each stream that is asked for; the bytes
//! replace the encrypted ones, which are as long or longer, and the trailers lose the key `Encrypt`. What results is
//! a plain file for the bounds of guard.rs. Strings outside of streams stay encrypted; those of the metadata come from the first
//! opening.

use std::collections::BTreeMap;
use std::ops::Range;

use hayro_syntax::metadata::Metadata;
use hayro_syntax::object::{
    Array, Dict, FromBytes, MaybeRef, Name, ObjectIdentifier, Stream, String as PdfString,
};
use hayro_syntax::{LoadPdfError, Pdf};
use memchr::memmem;

use super::guard::{MAX_PASSES, dictionary};

/// Objects of one number that are decrypted: those of the last revisions of a file.
const MAX_REVISIONS: usize = 4;
/// Greatest number of an object.
const MAX_NUMBER: u32 = 1 << 30;

/// Why a file is not decrypted.
#[derive(Debug, PartialEq)]
pub(super) enum Refused {
    /// It wants a password, or another way of decryption.
    Locked,
    /// It is no document.
    Bad(String),
}

/// An object where it is written.
#[derive(Clone, Debug)]
struct Place {
    at: usize,
    /// Bytes of its stream.
    stream: Option<Range<usize>>,
}

/// The objects of a file.
#[derive(Default)]
struct Objects {
    /// By number and generation, in the file's order.
    places: BTreeMap<(u32, i32), Vec<Place>>,
    /// Bytes that make a stream an object stream.
    kinds: Vec<usize>,
    trailer: Option<Trailer>,
}

/// The encryption as a trailer has it, in PDF's syntax.
struct Trailer {
    encrypt: String,
    id: String,
    info: Option<String>,
}

/// Decrypts a file in its place. Returns the metadata, unless they are in an object stream, of which the strings are plain.
pub(super) fn decrypt(data: &mut [u8]) -> Result<Option<Metadata>, Refused> {
    let objects = objects(data)?;
    let trailer = objects.trailer.as_ref().ok_or(Refused::Locked)?;
    let most = objects.places.values().map(Vec::len).max().unwrap_or(0);
    let mut plain: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
    let mut metadata = None;
    for revision in 0..most.min(MAX_REVISIONS) {
        let pdf = match Pdf::new(opened(data, &objects, trailer, revision)?) {
            Ok(pdf) => pdf,
            Err(LoadPdfError::Decryption(_) | LoadPdfError::Invalid) => {
                return Err(Refused::Locked);
            }
        };
        metadata.get_or_insert_with(|| pdf.metadata().clone());
        for (&(number, generation), places) in &objects.places {
            let Some(place) = nth_last(places, revision) else {
                continue;
            };
            let Some(range) = place.stream.clone() else {
                continue;
            };
            let id = ObjectIdentifier::new(number, generation);
            let found = pdf.xref().get::<Stream<'_>>(id);
            let bytes = found.map(|stream| stream.raw_data().into_owned());
            plain.push((range, bytes.unwrap_or_default()));
        }
    }
    for (range, bytes) in plain {
        let into = &mut data[range];
        if bytes.is_empty() && !into.is_empty() {
            // nothing decodes this
            into.fill(0xff);
            continue;
        }
        let length = bytes.len().min(into.len());
        into[..length].copy_from_slice(&bytes[..length]);
        into[length..].fill(b' ');
    }
    let keys: Vec<usize> = memmem::find_iter(data, b"/Encrypt").collect();
    for at in keys {
        // of another length the file's offsets would change
        data[at + 7] = b'x';
    }
    Ok(metadata.filter(|_| objects.has(trailer.info.as_deref())))
}

fn nth_last(places: &[Place], nth: usize) -> Option<&Place> {
    places.get(places.len().checked_sub(nth + 1)?)
}

/// All places that look like an object, as guard.rs finds them.
fn objects(data: &[u8]) -> Result<Objects, Refused> {
    let mut found = Objects::default();
    let mut parsed = 0usize;
    for at in memmem::find_iter(data, b"obj") {
        if data[..at].ends_with(b"end") {
            continue;
        }
        let Some((start, number, generation)) = head(&data[..at]) else {
            continue;
        };
        let mut place = Place {
            at: start,
            stream: None,
        };
        let tail = dictionary(data, at + 3).map(|start| &data[start..]);
        if let Some(tail) = tail {
            if let Some(stream) = Stream::from_bytes(tail) {
                let content = stream.raw_data();
                parsed += content.len();
                let from = content.as_ptr() as usize - data.as_ptr() as usize;
                let range = from..from + content.len();
                place.stream = found.kind(data, stream.dict())?.then_some(range);
            } else if memmem::find(&tail[..end_of(tail)], b"stream").is_some() {
                // the search for a missing end reads to the end of the file
                parsed += tail.len();
            }
        }
        if parsed > data.len().saturating_mul(MAX_PASSES) {
            let why = "objects inside each other, over and over";
            return Err(Refused::Bad(why.to_string()));
        }
        found
            .places
            .entry((number, generation))
            .or_default()
            .push(place);
    }
    for at in memmem::find_iter(data, b"trailer") {
        if let Some(start) = dictionary(data, at + 7)
            && let Some(dict) = Dict::from_bytes(&data[start..])
        {
            found.read_trailer(&dict);
        }
    }
    Ok(found)
}

fn end_of(tail: &[u8]) -> usize {
    memmem::find(tail, b"endobj").unwrap_or(tail.len())
}

impl Objects {
    /// Whether a stream is encrypted. Notes object streams, and the trailer that a table's stream has.
    fn kind(&mut self, data: &[u8], dict: &Dict<'_>) -> Result<bool, Refused> {
        if dict.get_ref("Type").is_some() {
            return Err(Refused::Locked);
        }
        let kind = dict.get::<Name<'_>>("Type");
        if kind.as_deref() == Some(b"XRef") {
            self.read_trailer(dict);
            return Ok(false);
        }
        if kind.as_deref() == Some(b"ObjStm") {
            let start = dict.data().as_ptr() as usize - data.as_ptr() as usize;
            let known = self.kinds.len();
            let names = memmem::find_iter(dict.data(), b"ObjStm");
            self.kinds.extend(names.map(|at| start + at));
            if self.kinds.len() == known {
                return Err(Refused::Locked);
            }
        }
        Ok(true)
    }

    /// Whether a reference leads to an object outside of object streams.
    fn has(&self, reference: Option<&str>) -> bool {
        let all = self.places.keys();
        let mut all = all.map(|(number, generation)| format!("{number} {generation} R"));
        reference.is_some_and(|reference| all.any(|one| one == reference))
    }

    fn read_trailer(&mut self, dict: &Dict<'_>) {
        let encrypt = match dict.get_raw::<Dict<'_>>("Encrypt") {
            None => return,
            Some(MaybeRef::Ref(to)) => format!("{} {} R", to.obj_number, to.gen_number),
            Some(MaybeRef::NotRef(own)) => {
                // bytes of its strings are any
                let bytes = own.data().iter();
                bytes.map(|byte| char::from(*byte)).collect()
            }
        };
        let first = dict.get::<Array<'_>>("ID").and_then(|ids| {
            let mut ids = ids.iter::<PdfString<'_>>();
            ids.next()
        });
        let id = first.map(|id| {
            id.as_bytes()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        });
        let info = dict.get_ref("Info");
        self.trailer = Some(Trailer {
            encrypt,
            id: id.unwrap_or_default(),
            info: info.map(|to| format!("{} {} R", to.obj_number, to.gen_number)),
        });
    }
}

/// Start, number and generation of the object whose word `obj` comes behind these bytes.
fn head(before: &[u8]) -> Option<(usize, u32, i32)> {
    fn digits(before: &[u8]) -> (&[u8], &[u8]) {
        let count = before
            .iter()
            .rev()
            .take_while(|b| b.is_ascii_digit())
            .count();
        before.split_at(before.len() - count)
    }
    fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
    let (before, generation) = digits(before.trim_ascii_end());
    let spaced = before.trim_ascii_end();
    if spaced.len() == before.len() {
        return None;
    }
    let (before, own) = digits(spaced);
    let own = number::<u32>(own).filter(|n| *n < MAX_NUMBER)?;
    let generation = number::<u16>(generation)?;
    Some((before.len(), own, i32::from(generation)))
}

/// The file for the first opening: nothing in it is expanded.
fn opened(
    data: &[u8],
    objects: &Objects,
    trailer: &Trailer,
    revision: usize,
) -> Result<Vec<u8>, Refused> {
    let mut file = data.to_vec();
    for at in &objects.kinds {
        file[at + 5] = b'x';
    }
    file.push(b'\n');
    let last = objects.places.keys().map(|(number, _)| *number).max();
    let own = last.unwrap_or(0) + 1;
    let (pages, page) = (own + 1, own + 2);
    let mut table = String::from("xref\n");
    for (number, object) in [
        (own, format!("<</Type/Catalog/Pages {pages} 0 R>>")),
        (pages, format!("<</Type/Pages/Count 1/Kids[{page} 0 R]>>")),
        (
            page,
            format!("<</Type/Page/Parent {pages} 0 R/MediaBox[0 0 9 9]>>"),
        ),
    ] {
        table += &format!("{number} 1\n{:010} 00000 n \n", file.len());
        file.extend(format!("{number} 0 obj\n{object}\nendobj\n").into_bytes());
    }
    if !trailer.encrypt.starts_with("<<") && !objects.has(Some(&trailer.encrypt)) {
        return Err(Refused::Locked);
    }
    for ((number, generation), places) in &objects.places {
        let place = nth_last(places, revision).or(places.last());
        let Some(place) = place else { continue };
        table += &format!("{number} 1\n{:010} {generation:05} n \n", place.at);
    }
    let start = file.len();
    file.extend(table.into_bytes());
    file.extend(
        format!(
            "trailer\n<</Size {}/Root {own} 0 R/ID[<{}>]",
            page + 1,
            trailer.id
        )
        .bytes(),
    );
    if let Some(info) = &trailer.info {
        file.extend(format!("/Info {info}").bytes());
    }
    file.extend(b"/Encrypt ");
    file.extend(
        trailer
            .encrypt
            .chars()
            .filter_map(|c| u8::try_from(u32::from(c)).ok()),
    );
    file.extend(format!(">>\nstartxref\n{start}\n%%EOF\n").bytes());
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_objects_are_read_backwards() {
        for (before, want) in [
            (&b"x\n12 0 "[..], Some((2, 12, 0))),
            (b"endobj 7\n65535 ", Some((7, 7, 65535))),
            (b"3 0", Some((0, 3, 0))),
            (b"0 ", None),
            (b"a 0 ", None),
            (b"", None),
            (b"99999999999 0 ", None),
        ] {
            assert_eq!(head(before), want, "{}", before.escape_ascii());
        }
    }

    #[test]
    fn files_without_the_encryption_that_they_name_are_locked() {
        for trailer in [
            "trailer <</Root 1 0 R/Encrypt 9 0 R>>",
            "trailer <</Root 1 0 R/Encrypt<</V 1>>>>",
            "trailer <</Root 1 0 R/Encrypt<</Filter/Other/V 4>>>>",
            "trailer <</Root 1 0 R>>",
        ] {
            let mut file =
                format!("%PDF-1.4\n1 0 obj <</Type/Catalog>> endobj\n{trailer}\n").into_bytes();
            assert_eq!(
                decrypt(&mut file).unwrap_err(),
                Refused::Locked,
                "{trailer}"
            );
        }
    }

    #[test]
    fn objects_without_an_end_are_refused_in_linear_time() {
        let mut file = b"1 0 obj <</Length 9 0 R>>\nstream\n".repeat(100_000);
        let start = std::time::Instant::now();
        assert!(matches!(decrypt(&mut file), Err(Refused::Bad(_))));
        assert!(start.elapsed().as_secs() < 20);
    }
}

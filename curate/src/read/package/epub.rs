//! EPUB 2 and 3: the chapters of the spine, in its order, and the metadata of the package document.
//!
//! Facts: EPUB 3.3 (W3C), sections 4 (container), 5 (package document), 8 (navigation). The navigation document and
//! chapters that are no XHTML (SVG, images) are left out. Fonts may be obfuscated; a book whose chapters are
//! encrypted is dropped. XHTML is read as HTML, after empty elements got an end tag, which HTML does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde_json::{Map, Value};

use super::container::{Container, Refused};
use super::meta::Described;
use super::xml::{Element, Event, decode, walk};
use crate::read::composed::{BadPart, Composed, Lack, Reading};

const CONTAINER: &str = "META-INF/container.xml";
const ENCRYPTION: &str = "META-INF/encryption.xml";

/// Chapters that are read at most.
const MAX_CHAPTERS: usize = 20_000;

/// Algorithms that only obfuscate fonts.
const OBFUSCATIONS: [&str; 2] = [
    "http://www.idpf.org/2008/embedding",
    "http://ns.adobe.com/pdf/enc#RC",
];

/// A file that the package document lists.
struct Item {
    path: String,
    is_chapter: bool,
}

/// The package document.
#[derive(Default)]
struct Package {
    items: BTreeMap<String, Item>,
    spine: Vec<String>,
    described: Described,
}

/// Reads a book: as one document, or `by_chapter` each chapter as one.
///
/// # Errors
/// A read that was refused.
pub(super) fn read(archive: &mut Container, by_chapter: bool) -> io::Result<Reading<'static>> {
    let path = match archive.entry(CONTAINER)? {
        Ok(bytes) => root_file(&decode(&bytes)),
        Err(refused) => Err(refused.told()),
    };
    let path = match path {
        Ok(path) => path,
        Err(why) => return Ok(Reading::bad(format!("{CONTAINER}: {why}"))),
    };
    let package = match archive.entry(&path)? {
        Ok(bytes) => package(&decode(&bytes), &path),
        Err(refused) => Err(refused.told()),
    };
    let package = match package {
        Ok(package) => package,
        Err(why) => return Ok(Reading::bad(format!("package document {path}: {why}"))),
    };
    let encrypted = match archive.entry(ENCRYPTION)? {
        Ok(bytes) => encrypted(&decode(&bytes)),
        Err(_) => BTreeSet::new(),
    };
    let mut reading = Reading::default();
    // number, name, and text that is not encrypted
    let mut chapters: Vec<(usize, &str, Option<String>)> = Vec::new();
    let mut number = 0;
    let mut seen = BTreeSet::new();
    for id in package.spine.iter().take(MAX_CHAPTERS) {
        let Some(item) = package.items.get(id) else {
            reading.bad.push(BadPart {
                offset: 0,
                why: format!("chapter {id:?}: not in the manifest"),
            });
            continue;
        };
        if !item.is_chapter || !seen.insert(&item.path) {
            continue;
        }
        number += 1;
        if encrypted.contains(&item.path) {
            chapters.push((number, &item.path, None));
            continue;
        }
        match archive.entry(&item.path)? {
            Ok(bytes) => {
                let text = as_html(&decode(&bytes));
                chapters.push((number, &item.path, Some(text)));
            }
            Err(Refused::Encrypted) => chapters.push((number, &item.path, None)),
            Err(refused) => {
                let why = format!("chapter {}: {}", item.path, refused.told());
                reading.bad.push(BadPart {
                    offset: refused.offset(),
                    why,
                });
            }
        }
    }
    if package.spine.is_empty() {
        return Ok(Reading::bad(format!("package document {path}: no spine")));
    }
    let readable = chapters.iter().filter(|(.., text)| text.is_some()).count();
    if readable == 0 && !reading.bad.is_empty() {
        return Ok(reading);
    }
    let meta = package.described.into_meta();
    let with = |own: Map<String, Value>| {
        let mut meta = meta.clone();
        meta.insert("epub".to_string(), own.into());
        meta
    };
    let mut own = Map::new();
    own.insert("chapters".to_string(), readable.into());
    if by_chapter && !chapters.is_empty() {
        for (number, path, text) in chapters {
            own.insert("chapter".to_string(), number.into());
            own.insert("path".to_string(), path.into());
            reading.parts.push(Composed {
                lacks: text.is_none().then_some(Lack::Encrypted),
                parts: text.into_iter().collect(),
                part: format!("chapter-{number}").into(),
                meta: with(own.clone()),
                ..Composed::default()
            });
        }
        return Ok(reading);
    }
    reading.document = Some(Composed {
        lacks: (readable == 0 && !chapters.is_empty()).then_some(Lack::Encrypted),
        parts: chapters.into_iter().filter_map(|(.., text)| text).collect(),
        meta: with(own),
        ..Composed::default()
    });
    Ok(reading)
}

/// The package document's path.
fn root_file(xml: &str) -> Result<String, String> {
    let mut found = None;
    walk(xml, |event| {
        if let Event::Open("rootfile", element) = event
            && found.is_none()
        {
            found = element.value("full-path");
        }
    })?;
    found.ok_or_else(|| "no rootfile".to_string())
}

fn package(xml: &str, path: &str) -> Result<Package, String> {
    let mut package = Package::default();
    let mut is_metadata = false;
    walk(xml, |event| match event {
        Event::Open("metadata", _) => is_metadata = true,
        Event::Close("metadata") => is_metadata = false,
        Event::Open("item", element) => item(&mut package, element, path),
        Event::Open("itemref", element) => package.spine.extend(element.value("idref")),
        Event::Open(name, element) if is_metadata => package.described.open(name, element),
        Event::Close(name) if is_metadata => package.described.close(name),
        Event::Text(text) if is_metadata => package.described.text(text),
        Event::Open(..) | Event::Close(_) | Event::Text(_) => {}
    })?;
    Ok(package)
}

fn item(package: &mut Package, element: &Element<'_>, path: &str) {
    let (Some(id), Some(href)) = (element.value("id"), element.value("href")) else {
        return;
    };
    let kind = element.value("media-type").unwrap_or_default();
    let properties = element.value("properties").unwrap_or_default();
    let is_page = matches!(
        kind.as_str(),
        "application/xhtml+xml" | "text/html" | "text/x-oeb1-document"
    );
    let is_chapter = is_page && !properties.split_whitespace().any(|p| p == "nav");
    let path = resolve(path, &href);
    package.items.insert(id, Item { path, is_chapter });
}

/// A reference of the package document as a name in the archive.
fn resolve(base: &str, href: &str) -> String {
    let href = href.split('#').next().unwrap_or_default();
    let decoded = percent_decoded(href);
    let mut folders: Vec<&str> = base.split('/').collect();
    folders.pop();
    for step in decoded.split('/') {
        match step {
            "." | "" => {}
            ".." => drop(folders.pop()),
            step => folders.push(step),
        }
    }
    folders.join("/")
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let value = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Names of the entries that are encrypted, other than obfuscated fonts.
fn encrypted(xml: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_obfuscated = false;
    // a list that breaks off names those before
    drop(walk(xml, |event| match event {
        Event::Open("EncryptedData", _) => is_obfuscated = false,
        Event::Open("EncryptionMethod", element) => {
            let algorithm = element.value("Algorithm").unwrap_or_default();
            is_obfuscated = OBFUSCATIONS.contains(&algorithm.as_str());
        }
        Event::Open("CipherReference", element) if !is_obfuscated => {
            let uri = element.value("URI").unwrap_or_default();
            names.insert(percent_decoded(&uri));
        }
        Event::Open(..) | Event::Close(_) | Event::Text(_) => {}
    }));
    names
}

/// Elements that HTML knows without an end tag.
const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
];

/// XHTML with end tags for empty elements: HTML takes `<title/>` for an open one.
pub(super) fn as_html(xhtml: &str) -> String {
    let bytes = xhtml.as_bytes();
    let mut out = String::with_capacity(xhtml.len());
    let (mut copied, mut at) = (0, 0);
    while let Some(open) = memchr::memchr(b'<', &bytes[at..]).map(|i| at + i) {
        at = open + 1;
        let name = &xhtml[at..];
        let length = name
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'-' | b'_'))
            .count();
        if length == 0 {
            if name.starts_with("!--") {
                at = memchr::memmem::find(&bytes[at..], b"-->").map_or(bytes.len(), |i| at + i);
            }
            continue;
        }
        let name = &name[..length];
        let Some(close) = tag_end(bytes, at + length) else {
            break;
        };
        at = close + 1;
        if bytes[close - 1] == b'/' && !VOID.contains(&name.to_ascii_lowercase().as_str()) {
            out.push_str(&xhtml[copied..close - 1]);
            out.push_str("></");
            out.push_str(name);
            out.push('>');
            copied = at;
        }
    }
    out.push_str(&xhtml[copied..]);
    out
}

/// The `>` of a tag, from behind its name.
fn tag_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr::memchr3(b'>', b'"', b'\'', &bytes[at..])?;
        if bytes[at] == b'>' {
            return Some(at);
        }
        at += 1 + memchr::memchr(bytes[at], &bytes[at + 1..])? + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_elements_get_an_end_tag() {
        for (xhtml, want) in [
            (
                "<title/><br/><p a='>/'/>x",
                "<title></title><br/><p a='>/'></p>x",
            ),
            ("<script src=\"a/>\" />b", "<script src=\"a/>\" ></script>b"),
            ("<!-- <a/> --><a/>", "<!-- <a/> --><a></a>"),
            ("1 < 2 </p> <a", "1 < 2 </p> <a"),
            ("<a \"", "<a \""),
            ("<!-- <a/>", "<!-- <a/>"),
        ] {
            assert_eq!(as_html(xhtml), want);
        }
    }

    #[test]
    fn references_are_resolved_against_the_package_document() {
        for (base, href, want) in [
            ("OEBPS/content.opf", "a%20b.xhtml#x", "OEBPS/a b.xhtml"),
            ("content.opf", "text/../c.xhtml", "c.xhtml"),
            ("a/b/c.opf", "../../../d", "d"),
            ("c.opf", "100%", "100%"),
            ("c.opf", "%+1", "%+1"),
        ] {
            assert_eq!(resolve(base, href), want);
        }
    }

    #[test]
    fn obfuscated_fonts_are_not_encrypted_text() {
        let data = |algorithm: &str, uri: &str| {
            format!(
                "<enc:EncryptedData><enc:EncryptionMethod Algorithm=\"{algorithm}\"/>\
                 <enc:CipherData><enc:CipherReference URI=\"{uri}\"/></enc:CipherData></enc:EncryptedData>"
            )
        };
        let xml = format!(
            "<encryption>{}{}</encryption>",
            data(OBFUSCATIONS[0], "font.otf"),
            data("http://www.w3.org/2001/04/xmlenc#aes128-cbc", "a%20b.xhtml")
        );
        assert_eq!(encrypted(&xml), BTreeSet::from(["a b.xhtml".to_string()]));
    }
}

//! XML of documents in packages, as a sequence of elements and texts (`quick-xml`).
//!
//! Names are without their prefixes: no two elements of one format that matter here differ only by namespace.
//! Entities of a document type are not expanded, so no text grows.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event as Raw};

/// Elements may be nested this deep.
const MAX_DEPTH: usize = 1000;

/// A start tag.
pub(super) struct Element<'a>(&'a BytesStart<'a>);

impl Element<'_> {
    /// Value of the first attribute of this name, whatever its prefix.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        let mut all = self.0.attributes();
        let found = all
            .with_checks(false)
            .flatten()
            .find(|a| a.key.local_name().as_ref() == name.as_bytes())?;
        let value = found.normalized_value(XmlVersion::Explicit1_0);
        Some(match value {
            Ok(value) => value.into_owned(),
            Err(_) => String::from_utf8_lossy(&found.value).into_owned(),
        })
    }

    /// Whether an attribute that is on or off is on, as Word writes them: present without a value counts.
    pub(super) fn is_on(&self) -> bool {
        let value = self.value("val");
        !matches!(value.as_deref(), Some("0" | "false" | "off" | "none"))
    }
}

/// An event of a document; an empty element is opened and closed.
pub(super) enum Event<'a> {
    Open(&'a str, &'a Element<'a>),
    Close(&'a str),
    Text(&'a str),
}

/// Calls `each` with every event.
///
/// # Errors
/// The document is not well-formed, ends early, or nests too deep; with the position in it.
pub(super) fn walk(xml: &str, mut each: impl FnMut(Event<'_>)) -> Result<(), String> {
    let mut reader = Reader::from_str(xml);
    let mut depth = 0usize;
    loop {
        let event = reader.read_event().map_err(|e| {
            let at = reader.error_position();
            format!("XML: {e} (at byte {at})")
        })?;
        match event {
            Raw::Start(start) => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!(
                        "XML: more than {MAX_DEPTH} elements inside each other"
                    ));
                }
                let name = start.local_name();
                each(Event::Open(&utf8(name.as_ref()), &Element(&start)));
            }
            Raw::Empty(start) => {
                let name = start.local_name();
                let name = utf8(name.as_ref());
                each(Event::Open(&name, &Element(&start)));
                each(Event::Close(&name));
            }
            Raw::End(end) => {
                depth = depth.saturating_sub(1);
                each(Event::Close(&utf8(end.local_name().as_ref())));
            }
            Raw::Text(text) => each(Event::Text(&utf8(&text))),
            Raw::CData(text) => each(Event::Text(&utf8(&text))),
            Raw::GeneralRef(reference) => {
                let numeric = reference.resolve_char_ref().ok().flatten();
                let c = numeric.or(match &*reference {
                    b"lt" => Some('<'),
                    b"gt" => Some('>'),
                    b"amp" => Some('&'),
                    b"quot" => Some('"'),
                    b"apos" => Some('\''),
                    _ => None,
                });
                match c {
                    Some(c) => each(Event::Text(c.encode_utf8(&mut [0; 4]))),
                    None => each(Event::Text(&format!("&{};", utf8(&reference)))),
                }
            }
            Raw::Eof if depth > 0 => return Err("XML: ends inside an element".to_string()),
            Raw::Eof => return Ok(()),
            Raw::Comment(_) | Raw::Decl(_) | Raw::PI(_) | Raw::DocType(_) => {}
        }
    }
}

fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A document's characters: by its byte order mark, its declaration, else UTF-8.
pub(super) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    let head = &bytes[..bytes.len().min(200)];
    let declared = declared(head).and_then(encoding_rs::Encoding::for_label);
    let encoding = declared.unwrap_or(encoding_rs::UTF_8);
    // a byte order mark overrules it
    let (text, _, _) = encoding.decode(bytes);
    text
}

/// The encoding that a declaration names.
fn declared(head: &[u8]) -> Option<&[u8]> {
    let head = head.trim_ascii_start().strip_prefix(b"<?xml")?;
    let end = memchr::memmem::find(head, b"?>")?;
    let at = memchr::memmem::find(&head[..end], b"encoding")? + 8;
    let rest = head[at..end].trim_ascii_start().strip_prefix(b"=")?;
    let rest = rest.trim_ascii_start();
    let quote = *rest.first().filter(|q| matches!(q, b'"' | b'\''))?;
    let value = &rest[1..];
    Some(&value[..memchr::memchr(quote, value)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(xml: &str) -> Result<String, String> {
        let mut out = String::new();
        walk(xml, |event| match event {
            Event::Open(name, element) => {
                out.push_str(&format!(
                    "<{name} {}>",
                    element.value("a").unwrap_or_default()
                ));
            }
            Event::Close(name) => out.push_str(&format!("</{name}>")),
            Event::Text(text) => out.push_str(text),
        })?;
        Ok(out)
    }

    #[test]
    fn prefixes_entities_and_empty_elements_are_resolved() {
        let xml = "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e 'no'>]><w:p x:a='1&amp;2'>a&lt;&#228;&e;<b/><![CDATA[<c>]]></w:p>";
        let want = "<p 1&2>a<\u{e4}&e;<b ></b><c></p>";
        assert_eq!(told(xml).as_deref(), Ok(want));
    }

    #[test]
    fn broken_cut_and_deep_documents_are_refused() {
        for (xml, why) in [
            ("<a><b></a>", "at byte"),
            ("<a>text", "ends inside an element"),
            ("<a", "at byte"),
            (&"<a>".repeat(2000), "more than 1000 elements"),
        ] {
            let found = told(xml).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn characters_follow_the_mark_or_the_declaration() {
        let latin = b"<?xml version=\"1.0\" encoding=\"iso-8859-1\"?><a>\xe4</a>";
        assert!(decode(latin).ends_with("<a>\u{e4}</a>"));
        assert_eq!(decode(b"\xff\xfe<\0a\0"), "<a");
        assert_eq!(decode("\u{feff}\u{e4}".as_bytes()), "\u{e4}");
    }
}

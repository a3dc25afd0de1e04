//! Parses raw records of the text formats (all but web pages) to the fields of a document.

use serde_json::{Map, Value};

use super::fields::{Fields, Unread};
use super::jsonl::{JsonScratch, id_of, parse_line, reason};
use super::{pages, wat};
use crate::read::{Format, Input};
use crate::text::json;
use crate::verdict::empty;

/// Reads a record of `input`.
pub(crate) fn read_fields(
    input: &Input,
    bytes: &[u8],
    scratch: &mut JsonScratch,
) -> Result<Fields, Unread> {
    let fields = match input.format {
        Format::Text => return whole_text(bytes),
        Format::Wikipedia => return pages::read_page(bytes, &input.namespaces),
        Format::Wat => return wat::read_wat(bytes),
        Format::Dolma => dolma(bytes)?,
        Format::Parquet => loose(bytes, &["text", "content"])?,
        // web pages do not come here; their records would be refused as JSON
        Format::Jsonl | Format::Warc | Format::Wet => json_line(bytes, scratch)?,
    };
    if fields.text.is_empty() {
        return Err(Unread::Drop(Box::new(fields), empty("read.empty")));
    }
    Ok(fields)
}

fn json_line(bytes: &[u8], scratch: &mut JsonScratch) -> Result<Fields, Unread> {
    let mut line = parse_line(bytes, scratch).map_err(Unread::Bad)?;
    Ok(Fields {
        text: line.text.take().unwrap_or_default(),
        id: line.own_id(),
        url: line.address().map(str::to_string),
        subset: line.subset().map(str::to_string),
        meta: None,
    })
}

fn whole_text(bytes: &[u8]) -> Result<Fields, Unread> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Fields {
            text: text.trim_start_matches('\u{feff}').to_string(),
            ..Fields::default()
        }),
        Err(e) => {
            let at = e.valid_up_to();
            Err(Unread::Bad(format!(
                "invalid UTF-8 at byte {at} of the text"
            )))
        }
    }
}

/// Takes the fields of a document out of an object; everything else becomes its metadata, that of
/// `metadata` and `meta` first.
fn loose(bytes: &[u8], text_keys: &[&str]) -> Result<Fields, Unread> {
    let object = json::from_slice(bytes).map_err(|e| Unread::Bad(reason(bytes, &e)))?;
    fields_of(object, text_keys).map_err(Unread::Bad)
}

fn fields_of(mut object: Map<String, Value>, text_keys: &[&str]) -> Result<Fields, String> {
    let key = text_keys.iter().find(|k| object.contains_key(**k));
    let text = match key.and_then(|k| object.remove(*k)) {
        Some(Value::String(text)) => text,
        Some(Value::Null) => String::new(),
        Some(_) => return Err(format!("{} is no string", key.unwrap_or(&"text"))),
        None => return Err(format!("no {} field", text_keys.join(" or "))),
    };
    let id = object.remove("id").as_ref().and_then(id_of);
    let mut url = object.remove("url").filter(|u| !u.is_null());
    let mut meta = Map::new();
    for key in ["metadata", "meta"] {
        match object.remove(key) {
            Some(Value::Object(inner)) => meta.extend(inner),
            Some(Value::Null) | None => {}
            Some(other) => {
                meta.insert(key.to_string(), other);
            }
        }
    }
    if url.is_none() {
        url = meta.get("url").cloned();
    }
    meta.extend(object.into_iter().filter(|(_, v)| !v.is_null()));
    Ok(Fields {
        text,
        id,
        url: url.and_then(|u| u.as_str().map(str::to_string)),
        subset: meta
            .get("pile_set_name")
            .and_then(|s| s.as_str().map(str::to_string)),
        meta: (!meta.is_empty()).then_some(Value::Object(meta)),
    })
}

/// A document in dolma's layout, followed by its lines of attributes.
fn dolma(bytes: &[u8]) -> Result<Fields, Unread> {
    let mut lines = bytes.split(|&b| b == b'\n');
    let mut fields = loose(lines.next().unwrap_or_default(), &["text"])?;
    let mut attributes = Map::new();
    for line in lines {
        let mut object: Map<String, Value> = json::from_slice(line)
            .map_err(|e| Unread::Bad(format!("attributes: {}", reason(line, &e))))?;
        let id = object.get("id").and_then(id_of);
        if id != fields.id {
            let (found, wanted) = (id.unwrap_or_default(), fields.id.unwrap_or_default());
            let why = format!("attributes of document {found:?} beside document {wanted:?}");
            return Err(Unread::Bad(why));
        }
        match object.remove("attributes") {
            Some(Value::Object(inner)) => attributes.extend(inner),
            _ => return Err(Unread::Bad("attributes: no attributes object".to_string())),
        }
    }
    if !attributes.is_empty() {
        let meta = fields.meta.get_or_insert_with(|| Map::new().into());
        if let Value::Object(meta) = meta {
            meta.insert("attributes".to_string(), attributes.into());
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(format: Format, bytes: &[u8]) -> Result<Fields, String> {
        let input = Input {
            format,
            ..Input::default()
        };
        read_fields(&input, bytes, &mut JsonScratch::default()).map_err(|e| match e {
            Unread::Bad(why) => why,
            Unread::Drop(_, reason) => reason.rule,
        })
    }

    #[test]
    fn dolma_documents_keep_their_metadata_and_attributes() {
        let document = br#"{"id":"a","text":"words","source":"cc","added":"2023","metadata":{"url":"http://x.y/","n":1}}"#;
        let attributes = br#"{"id":"a","attributes":{"len__len__chars":[[0,5,5.0]]}}"#;
        let both = [&document[..], b"\n", attributes].concat();
        let fields = read(Format::Dolma, &both).unwrap();
        assert_eq!(fields.url.as_deref(), Some("http://x.y/"));
        assert_eq!(
            fields.meta,
            Some(
                json!({"url": "http://x.y/", "n": 1, "source": "cc", "added": "2023",
                "attributes": {"len__len__chars": [[0, 5, 5.0]]}})
            )
        );
        let other = [&document[..], b"\n", br#"{"id":"b","attributes":{}}"#].concat();
        let why = read(Format::Dolma, &other).unwrap_err();
        assert_eq!(why, "attributes of document \"b\" beside document \"a\"");
    }

    #[test]
    fn what_has_no_text_is_named() {
        for (format, bytes, want) in [
            (Format::Dolma, &br#"{"id":"a"}"#[..], "no text field"),
            (
                Format::Parquet,
                br#"{"id":"a"}"#,
                "no text or content field",
            ),
            (
                Format::Parquet,
                br#"{"content":[1]}"#,
                "content is no string",
            ),
            (Format::Parquet, br#"{"text":null}"#, "read.empty"),
            (Format::Dolma, br#"{"text":""}"#, "read.empty"),
            (
                Format::Text,
                b"a\xffb",
                "invalid UTF-8 at byte 1 of the text",
            ),
        ] {
            assert_eq!(read(format, bytes).unwrap_err(), want);
        }
    }
}

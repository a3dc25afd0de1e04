//! Parses raw records of the text formats (all but web pages) to the fields of a document.

use serde_json::{Map, Value};

use super::fields::{Fields, Unread};
use super::jsonl::{JsonScratch, id_of, parse_object};
use super::keys::{find, only, take};
use super::rule::ReadRule;
use super::{pages, wat};
use crate::contract::Sought;
use crate::read::{Format, Input};
use crate::text::json;

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
        Format::Dolma => dolma(bytes, input, scratch)?,
        Format::Parquet | Format::Arrow | Format::Csv | Format::Tsv => {
            let object = parse_object(bytes, scratch).map_err(Unread::Bad)?;
            fields_of(object, input, &["text", "content"]).map_err(Unread::Bad)?
        }
        // pages, composed documents and unknown files do not come here
        Format::Jsonl
        | Format::Warc
        | Format::Wet
        | Format::Html
        | Format::Epub
        | Format::Docx
        | Format::Odt
        | Format::Pdf
        | Format::Latex
        | Format::Wacz
        | Format::Zim
        | Format::Auto => {
            let object = parse_object(bytes, scratch).map_err(Unread::Bad)?;
            fields_of(object, input, &["text"]).map_err(Unread::Bad)?
        }
    };
    if fields.text.is_empty() {
        return Err(Unread::Drop(Box::new(fields), ReadRule::empty()));
    }
    Ok(fields)
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
fn fields_of(
    mut object: Map<String, Value>,
    input: &Input,
    text_keys: &[&str],
) -> Result<Fields, String> {
    let mut named = Sought::default();
    let mut next = 0;
    let mut note = |value: Option<&Value>| {
        named.note(next, value.is_some_and(|value| !value.is_null()));
        next += 1;
    };
    let text = match input.text_key.names() {
        [] => {
            let key = text_keys.iter().find(|k| object.contains_key(**k));
            let key = key.ok_or_else(|| format!("no {} field", text_keys.join(" or ")))?;
            text_of(object.remove(*key), key)?
        }
        names => {
            let values = names.iter().map(|name| (name, take(&mut object, name)));
            let found: Vec<(&String, Option<Value>)> = values.collect();
            found.iter().for_each(|(_, value)| note(value.as_ref()));
            if found.iter().all(|(_, value)| value.is_none()) {
                return Err(format!("no {} field", names.join(" or ")));
            }
            let texts = found.into_iter().map(|(name, value)| match value {
                // events of an issue, files of a repository: steps make text of them
                Some(value @ (Value::Array(_) | Value::Object(_)))
                    if json::special_number(&value).is_none() =>
                {
                    Ok(json::to_string(&value))
                }
                value => text_of(value, name),
            });
            let mut texts = texts.collect::<Result<Vec<String>, String>>()?;
            texts.retain(|text| !text.is_empty());
            texts.join("\n\n")
        }
    };
    let id = match input.id_key.names() {
        [] => {
            let id = object.get("id").and_then(id_of);
            // an id of another kind stays among the metadata
            let is_empty = object.get("id").and_then(Value::as_str) == Some("");
            if id.is_some() || is_empty {
                object.remove("id");
            }
            id
        }
        names => {
            names.iter().for_each(|name| note(find(&object, name)));
            let parts = names.iter().map(|name| id_of(find(&object, name)?));
            let id = parts.collect::<Option<Vec<String>>>().map(|p| p.join("/"));
            if id.is_some() {
                names.iter().for_each(|name| drop(take(&mut object, name)));
            }
            id
        }
    };
    // an address of another kind stays among the metadata
    let mut url = match object.get("url") {
        Some(Value::String(_)) => object.remove("url"),
        _ => None,
    };
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
    let subset = meta.get("pile_set_name").and_then(Value::as_str);
    let subset = subset.map(str::to_string);
    if let Some(names) = &input.keep_fields {
        names.iter().for_each(|name| note(find(&meta, name)));
        meta = only(&meta, names);
    }
    Ok(Fields {
        text,
        id,
        url: url.and_then(|u| u.as_str().map(str::to_string)),
        subset,
        meta: (!meta.is_empty()).then_some(Value::Object(meta)),
        named,
    })
}

/// A field's text.
fn text_of(value: Option<Value>, name: &str) -> Result<String, String> {
    match value {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Null) | None => Ok(String::new()),
        Some(_) => Err(format!("{name} is no string")),
    }
}

/// A document in dolma's layout, followed by its lines of attributes.
fn dolma(bytes: &[u8], input: &Input, scratch: &mut JsonScratch) -> Result<Fields, Unread> {
    let mut lines = bytes.split(|&b| b == b'\n');
    let first = lines.next().unwrap_or_default();
    let object = parse_object(first, scratch).map_err(Unread::Bad)?;
    let mut fields = fields_of(object, input, &["text"]).map_err(Unread::Bad)?;
    let mut attributes = Map::new();
    for line in lines {
        let mut object =
            parse_object(line, scratch).map_err(|why| Unread::Bad(format!("attributes: {why}")))?;
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
            // as dolma's mixer does, attributes of files join those that the document has
            match meta.get_mut("attributes") {
                Some(Value::Object(own)) => own.extend(attributes),
                _ => drop(meta.insert("attributes".to_string(), attributes.into())),
            }
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Keys;
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
        let own = br#"{"id":"a","text":"words","attributes":{"a":1,"b":2}}"#;
        let both = [&own[..], b"\n", br#"{"id":"a","attributes":{"b":3,"c":4}}"#].concat();
        let fields = read(Format::Dolma, &both).unwrap();
        assert_eq!(
            fields.meta,
            Some(json!({"attributes": {"a": 1, "b": 3, "c": 4}}))
        );
        let other = [&document[..], b"\n", br#"{"id":"b","attributes":{}}"#].concat();
        let why = read(Format::Dolma, &other).unwrap_err();
        assert_eq!(why, "attributes of document \"b\" beside document \"a\"");
    }

    #[test]
    fn text_and_id_come_from_the_named_fields_and_the_rest_is_kept_or_chosen() {
        let line = br#"{"title":"A","body":{"text":"b c","lang":"en"},"no":7,"src":"x","tags":[1],"meta":{"k":1}}"#;
        let mut input = Input {
            text_key: Keys::Several(vec!["title".to_string(), "body.text".to_string()]),
            id_key: Keys::Several(vec!["src".to_string(), "no".to_string()]),
            ..Input::default()
        };
        let read = |input: &Input| read_fields(input, line, &mut JsonScratch::default()).unwrap();
        let fields = read(&input);
        assert_eq!(
            (fields.text.as_str(), fields.id.as_deref()),
            ("A\n\nb c", Some("x/7"))
        );
        let all = json!({"body": {"lang": "en"}, "tags": [1], "k": 1});
        assert_eq!(fields.meta, Some(all));
        input.keep_fields = Some(vec!["body.lang".to_string(), "k".to_string()]);
        let some = json!({"body": {"lang": "en"}, "k": 1});
        assert_eq!(read(&input).meta, Some(some));
        input.keep_fields = Some(Vec::new());
        assert_eq!(read(&input).meta, None);
        input.text_key = Keys::One("title".to_string());
        assert_eq!(read(&input).text, "A");
    }

    #[test]
    fn ids_and_addresses_of_another_kind_stay_among_the_metadata() {
        for (line, id, url, meta) in [
            (
                r#"{"text":"a","id":7,"url":"u"}"#,
                Some("7"),
                Some("u"),
                None,
            ),
            (
                r#"{"text":"a","id":{"n":1},"url":5}"#,
                None,
                None,
                Some(json!({"id": {"n": 1}, "url": 5})),
            ),
            (r#"{"text":"a","id":"","url":null}"#, None, None, None),
            (
                r#"{"text":"a","url":[1],"metadata":{"url":"v","z":null}}"#,
                None,
                Some("v"),
                Some(json!({"url": [1], "z": null})),
            ),
        ] {
            let fields = read(Format::Jsonl, line.as_bytes()).unwrap();
            assert_eq!(
                (fields.id.as_deref(), fields.url.as_deref()),
                (id, url),
                "{line}"
            );
            assert_eq!(fields.meta, meta, "{line}");
        }
        let input = Input {
            id_key: Keys::Several(vec!["ids.a".to_string(), "ids.b".to_string()]),
            ..Input::default()
        };
        let line = br#"{"text":"a","ids":{"a":1}}"#;
        let fields = read_fields(&input, line, &mut JsonScratch::default()).unwrap();
        assert_eq!(
            (fields.id, fields.meta),
            (None, Some(json!({"ids": {"a": 1}})))
        );
    }

    #[test]
    fn named_fields_are_noted_with_and_without_values() {
        let input = Input {
            text_key: Keys::Several(vec!["doc.body".to_string(), "nope".to_string()]),
            id_key: Keys::One("ids.b".to_string()),
            keep_fields: Some(vec![
                "scoer".to_string(),
                "none".to_string(),
                "k".to_string(),
            ]),
            ..Input::default()
        };
        let names: Vec<&str> = input.named_fields().iter().map(|(_, name)| *name).collect();
        assert_eq!(names, ["doc.body", "nope", "ids.b", "scoer", "none", "k"]);
        let line = br#"{"doc":{"body":"a"},"ids":{"b":1},"score":2,"none":null,"k":false}"#;
        let named = read_fields(&input, line, &mut JsonScratch::default())
            .unwrap()
            .named;
        assert_eq!((named.asked, named.found), (0b11_1111, 0b10_0101));
    }

    #[test]
    fn a_number_that_serde_has_not_is_no_text_and_stays_bare_inside_one() {
        let mut input = Input {
            text_key: Keys::One("body".to_string()),
            ..Input::default()
        };
        let read = |input: &Input, line: &str| {
            read_fields(input, line.as_bytes(), &mut JsonScratch::default())
        };
        for number in ["NaN", "123456789012345678901234567890"] {
            let line = format!(r#"{{"body":{number},"list":[{number}]}}"#);
            let bad = read(&input, &line);
            assert!(matches!(bad, Err(Unread::Bad(why)) if why == "body is no string"));
            input.text_key = Keys::One("list".to_string());
            assert_eq!(read(&input, &line).unwrap().text, format!("[{number}]"));
            input.text_key = Keys::One("body".to_string());
        }
    }

    #[test]
    fn numbers_of_tables_are_the_doubles_that_were_written() {
        // the tests of Rust's own parser hold that it gives the nearest double
        for i in 1..5000u32 {
            let number = f64::from(i).powi(9) / 7.0e-30 * f64::from(i % 97 + 1).sqrt();
            let line = format!(r#"{{"text":"a","n":{number:e}}}"#);
            let fields = read(Format::Parquet, line.as_bytes()).unwrap();
            assert_eq!(fields.meta.unwrap()["n"].as_f64(), Some(number), "{line}");
        }
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
            (Format::Jsonl, br#"{"body":"x"}"#, "no text field"),
            (Format::Jsonl, br#"{"text":3}"#, "text is no string"),
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

//! Reader for WAT records: Common Crawl's metadata of a response, as JSON.
//!
//! A page's text is its title and descriptions; links, status and headers of interest go to the
//! metadata. Facts: ia-web-commons' extractor as run by Common Crawl (CC-MAIN-2024-22).

use serde_json::{Map, Value, json};

use super::fields::{Fields, Unread};
use super::rule::ReadRule;
use super::warc::parse_record;

/// Names of `<meta>` that describe a page.
const DESCRIPTIONS: [&str; 3] = ["description", "og:description", "twitter:description"];

/// Reads a record.
pub(super) fn read_wat(bytes: &[u8]) -> Result<Fields, Unread> {
    let Some(record) = parse_record(bytes) else {
        return Err(Unread::Bad("WARC record with a broken header".to_string()));
    };
    let mut fields = Fields {
        url: record.url,
        ..Fields::default()
    };
    if record.kind != "metadata" {
        let reason = ReadRule::RecordType.broken(record.kind, "metadata");
        return Err(Unread::Drop(Box::new(fields), reason));
    }
    let value: Value = crate::text::json::from_slice(record.body)
        .map_err(|e| Unread::Bad(format!("broken WAT metadata: {e}")))?;
    let payload = &value["Envelope"]["Payload-Metadata"];
    let response = &payload["HTTP-Response-Metadata"];
    let Some(response) = response.as_object() else {
        let kind = payload["Actual-Content-Type"].as_str().unwrap_or_default();
        let reason = ReadRule::ContentType.broken(kind, "an HTTP response");
        return Err(Unread::Drop(Box::new(fields), reason));
    };
    let html = &response.get("HTML-Metadata").unwrap_or(&Value::Null);
    let mut meta = Map::new();
    if let Some(date) = record.date {
        meta.insert("date".to_string(), date.into());
    }
    let status = &response.get("Response-Message").unwrap_or(&Value::Null)["Status"];
    let headers = response.get("Headers").unwrap_or(&Value::Null);
    for (key, value) in [
        ("status", status),
        ("content_type", &headers["Content-Type"]),
    ] {
        if !value.is_null() {
            meta.insert(key.to_string(), value.clone());
        }
    }
    let links = html["Links"].as_array().map_or(&[][..], Vec::as_slice);
    let links: Vec<Value> = links
        .iter()
        .filter(|l| l["path"].as_str().is_some_and(|p| p.starts_with("A@")))
        .map(|l| json!({"url": l["url"], "text": l["text"]}))
        .collect();
    if !links.is_empty() {
        meta.insert("links".to_string(), links.into());
    }
    fields.text = described(&html["Head"]);
    fields.meta = Some(Value::Object(meta));
    if fields.text.is_empty() {
        return Err(Unread::Drop(Box::new(fields), ReadRule::empty()));
    }
    Ok(fields)
}

/// Title and descriptions, each once.
fn described(head: &Value) -> String {
    let mut lines: Vec<&str> = head["Title"].as_str().into_iter().collect();
    for meta in head["Metas"].as_array().map_or(&[][..], Vec::as_slice) {
        let name = meta["name"].as_str().or_else(|| meta["property"].as_str());
        if name.is_some_and(|n| DESCRIPTIONS.contains(&n.to_ascii_lowercase().as_str())) {
            lines.extend(meta["content"].as_str());
        }
    }
    let mut text = String::new();
    let mut seen: Vec<&str> = Vec::new();
    for line in lines.into_iter().map(str::trim) {
        if !line.is_empty() && !seen.contains(&line) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
            seen.push(line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_gives_title_description_and_links() {
        let body = r#"{"Envelope":{"Payload-Metadata":{"HTTP-Response-Metadata":{
            "Response-Message":{"Status":"200"},"Headers":{"Content-Type":"text/html"},
            "HTML-Metadata":{"Head":{"Title":" A title ","Metas":[
                {"name":"Description","content":"What it is"},{"property":"og:description","content":"What it is"},
                {"name":"viewport","content":"width"}]},
            "Links":[{"path":"A@/href","url":"/b","text":"B"},{"path":"IMG@/src","url":"/c"}]}}}}}"#;
        let record = format!(
            "WARC/1.0\r\nWARC-Type: metadata\r\nWARC-Target-URI: http://x.y/\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let fields = read_wat(record.as_bytes()).unwrap();
        assert_eq!(fields.text, "A title\nWhat it is");
        assert_eq!(fields.url.as_deref(), Some("http://x.y/"));
        assert_eq!(
            fields.meta,
            Some(json!({"status": "200", "content_type": "text/html",
                "links": [{"url": "/b", "text": "B"}]}))
        );
        let request = record.replace("HTTP-Response-Metadata", "HTTP-Request-Metadata");
        assert!(matches!(
            read_wat(request.as_bytes()),
            Err(Unread::Drop(_, reason)) if reason.rule == "read.content_type"
        ));
        let cut = &record.as_bytes()[..record.len() - 5];
        assert!(matches!(read_wat(cut), Err(Unread::Bad(_))));
    }
}

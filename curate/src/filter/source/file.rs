//! Name of the source file that a document holds.

use serde_json::Value;

use crate::contract::Draft;

/// Fields of `meta` that datasets of source code have for the path, in the order of precedence.
const PATHS: [&str; 5] = [
    "path",
    "file_path",
    "max_stars_repo_path",
    "filename",
    "file_name",
];
/// A value of `meta`; dots lead into objects.
pub(super) fn field<'a>(draft: &'a Draft, key: &str) -> Option<&'a Value> {
    let mut value = draft.meta.as_ref()?;
    if let Some(found) = value.get(key) {
        return Some(found);
    }
    for name in key.split('.') {
        value = value.get(name)?;
    }
    Some(value)
}

/// The path of the file: the field `key` of `meta`, or without a key the first known field, or the path of the address.
pub(super) fn path<'a>(draft: &'a Draft, key: &str) -> Option<&'a str> {
    let text = |key: &str| field(draft, key).and_then(Value::as_str);
    if !key.is_empty() {
        return text(key);
    }
    let known = PATHS.iter().find_map(|key| text(key));
    known.or_else(|| {
        let url = draft.url.as_deref()?;
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        rest.split_once('/').map(|(_, path)| path)
    })
}

/// The name behind the last slash.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// The part of a file's name behind the last dot, in lower case; empty without a dot.
pub(super) fn extension(path: &str) -> String {
    let parts = file_name(path).rsplit_once('.');
    parts.map_or(String::new(), |(_, e)| e.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_is_found_where_datasets_have_it() {
        let mut draft = Draft {
            url: Some("https://host/a/b.py?raw=1#L3".to_string()),
            ..Draft::default()
        };
        assert_eq!(path(&draft, ""), Some("a/b.py"));
        draft.meta = Some(json!({"max_stars_repo_path": "c.rs", "f": {"g": "d.go"}}));
        assert_eq!(path(&draft, ""), Some("c.rs"));
        assert_eq!(path(&draft, "f.g"), Some("d.go"));
        assert_eq!(path(&draft, "none"), None);
        assert_eq!(extension("x.y/Main.JAVA"), "java");
        assert_eq!(extension("x.y/Makefile"), "");
    }
}

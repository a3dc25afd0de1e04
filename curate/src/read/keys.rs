//! Fields of a record by name: nested ones with dots, several joined.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One or several names of fields. A dot leads into an object: `body.text`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Keys {
    /// One name.
    One(String),
    /// Several names; none: the format's own.
    Several(Vec<String>),
}

impl Default for Keys {
    fn default() -> Self {
        Keys::Several(Vec::new())
    }
}

impl Keys {
    /// The names.
    pub fn names(&self) -> &[String] {
        match self {
            Keys::One(name) => std::slice::from_ref(name),
            Keys::Several(names) => names,
        }
    }
}

/// A field, if it is there: one of this very name, or nested.
pub(super) fn find<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    if let Some(value) = object.get(name) {
        return Some(value);
    }
    let (outer, inner) = name.split_once('.')?;
    find(object.get(outer)?.as_object()?, inner)
}

/// Takes a field out; an object that it leaves empty goes too.
pub(crate) fn take(object: &mut Map<String, Value>, name: &str) -> Option<Value> {
    if let Some(value) = object.remove(name) {
        return Some(value);
    }
    let (outer, inner) = name.split_once('.')?;
    let nested = object.get_mut(outer)?.as_object_mut()?;
    let value = take(nested, inner)?;
    if nested.is_empty() {
        object.remove(outer);
    }
    Some(value)
}

/// Only the fields with these names, nested as they were.
pub(crate) fn only(object: &Map<String, Value>, names: &[String]) -> Map<String, Value> {
    let mut kept = Map::new();
    for name in names {
        if let Some(value) = find(object, name) {
            put(&mut kept, object, name, value.clone());
        }
    }
    kept
}

fn put(into: &mut Map<String, Value>, from: &Map<String, Value>, name: &str, value: Value) {
    let nested = name.split_once('.').filter(|_| !from.contains_key(name));
    let Some((outer, inner)) = nested else {
        into.insert(name.to_string(), value);
        return;
    };
    let below = into
        .entry(outer)
        .or_insert_with(|| Value::Object(Map::new()));
    if let (Value::Object(below), Some(Value::Object(from))) = (below, from.get(outer)) {
        put(below, from, inner, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn names_lead_into_objects_unless_a_field_is_so_named() {
        let mut object = map(json!({"a.b": 1, "a": {"b": 2, "c": {"d": 3}}, "e": 4}));
        assert_eq!(find(&object, "a.b"), Some(&json!(1)));
        assert_eq!(find(&object, "a.c.d"), Some(&json!(3)));
        assert_eq!(find(&object, "e.x"), None);
        let names = ["a.c.d", "e", "a.b", "z"].map(String::from);
        assert_eq!(
            Value::Object(only(&object, &names)),
            json!({"a.b": 1, "a": {"c": {"d": 3}}, "e": 4})
        );
        assert_eq!(take(&mut object, "a.c.d"), Some(json!(3)));
        assert_eq!(
            Value::Object(object),
            json!({"a.b": 1, "a": {"b": 2}, "e": 4})
        );
    }
}

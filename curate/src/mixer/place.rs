//! Places in a record of dolma's, written as paths of expressions.

/// A value of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// The record itself.
    Record,
    /// A field that a document has as a text of its own.
    Text(&'static str),
    /// A path.
    Path(String),
}

impl Place {
    /// The value below this one with this name.
    pub(super) fn name(&self, name: &str) -> Result<Place, String> {
        let base = match self {
            Place::Record => match name {
                "text" => return Ok(Place::Text("text")),
                "id" => return Ok(Place::Text("id")),
                "attributes" => return Ok(Place::Path("attributes".to_string())),
                "metadata" => return Ok(Place::Path("meta".to_string())),
                _ => "meta",
            },
            Place::Text(text) => return Err(format!("found {name:?} in {text}, wanted an object")),
            Place::Path(path) => path.as_str(),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(plain) {
            return Ok(Place::Path(format!("{base}.{name}")));
        }
        Ok(Place::Path(format!("{base}[{}]", quoted(name)?)))
    }

    /// The element of this list with this number; negative ones count from the end.
    pub(super) fn index(&self, index: i64) -> Result<Place, String> {
        match self {
            Place::Path(path) => Ok(Place::Path(format!("{path}[{index}]"))),
            Place::Record => Err("found an element of the record, wanted a field".to_string()),
            Place::Text(text) => Err(format!("found an element of {text}, wanted a list")),
        }
    }

    /// As an expression; None for the record.
    pub(super) fn expression(&self) -> Option<&str> {
        match self {
            Place::Record => None,
            Place::Text(text) => Some(text),
            Place::Path(path) => Some(path),
        }
    }
}

/// A text in quotes. Expressions have no escapes, so one with both kinds of quotes cannot be written.
pub(super) fn quoted(text: &str) -> Result<String, String> {
    let quote = ['"', '\''].into_iter().find(|q| !text.contains(*q));
    match quote {
        Some(quote) => Ok(format!("{quote}{text}{quote}")),
        None => Err(format!(
            "found {text:?}, wanted a text with one kind of quotes"
        )),
    }
}

/// Longest expression that a pattern becomes.
pub(super) const MOST_BYTES: usize = 12 << 10;

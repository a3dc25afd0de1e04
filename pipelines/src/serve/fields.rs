//! Fields of a JSON body. A field that is `null` counts as absent; one of another type is refused by name.

use super::error::ApiError;
use serde_json::{Map, Value};

/// The fields of a request.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

/// A type that a field may have.
pub(super) trait FieldValue: Sized {
    const WANTED: &'static str;
    const LISTED: &'static str = "a list";
    fn of(value: &Value) -> Option<Self>;
}

impl FieldValue for bool {
    const WANTED: &'static str = "true or false";
    fn of(value: &Value) -> Option<bool> {
        value.as_bool()
    }
}

impl FieldValue for f64 {
    const WANTED: &'static str = "a number";
    fn of(value: &Value) -> Option<f64> {
        value.as_f64()
    }
}

impl FieldValue for i64 {
    const WANTED: &'static str = "an integer";
    fn of(value: &Value) -> Option<i64> {
        // 16.0 is an integer as well, as in JSON Schema
        let whole = || {
            value
                .as_f64()
                .filter(|x| x.fract() == 0.0 && x.abs() < 9e15)
        };
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
        value.as_i64().or_else(|| Some(whole()? as i64))
    }
}

impl FieldValue for u64 {
    const WANTED: &'static str = "an integer, 0 or more";
    fn of(value: &Value) -> Option<u64> {
        value
            .as_u64()
            .or_else(|| u64::try_from(i64::of(value)?).ok())
    }
}

impl FieldValue for u32 {
    const WANTED: &'static str = "a token's id";
    const LISTED: &'static str = "a list of token ids";
    fn of(value: &Value) -> Option<u32> {
        u32::try_from(u64::of(value)?).ok()
    }
}

impl FieldValue for String {
    const WANTED: &'static str = "a string";
    const LISTED: &'static str = "a list of strings";
    fn of(value: &Value) -> Option<String> {
        value.as_str().map(str::to_owned)
    }
}

impl<T: FieldValue> FieldValue for Vec<T> {
    const WANTED: &'static str = T::LISTED;
    fn of(value: &Value) -> Option<Vec<T>> {
        value.as_array()?.iter().map(T::of).collect()
    }
}

impl Fields {
    /// The fields of a body.
    ///
    /// # Errors
    /// 400 if it is no JSON object in UTF-8.
    pub(super) fn parse(body: &[u8]) -> Result<Fields, ApiError> {
        if let Err(e) = std::str::from_utf8(body) {
            let at = e.valid_up_to();
            return Err(ApiError::bad(format!("the body is not UTF-8 at byte {at}")));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(other) => Err(ApiError::bad(format!(
                "the body: found {}, want an object",
                kind(&other)
            ))),
            Err(e) => Err(ApiError::bad(format!("the body is not valid JSON: {e}"))),
        }
    }

    /// A field's value, whatever its type.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Whether the field is there, be it `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A field's value, be it `null`.
    pub(super) fn raw(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A field of a type.
    ///
    /// # Errors
    /// 400 with the field, the type found and the type wanted.
    pub(super) fn get<T: FieldValue>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        match T::of(value) {
            Some(found) => Ok(Some(found)),
            None => Err(wrong(name, value, T::WANTED)),
        }
    }

    /// A field of a type, or its default.
    ///
    /// # Errors
    /// As `get`.
    pub(super) fn or<T: FieldValue>(&self, name: &str, default: T) -> Result<T, ApiError> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// A number within bounds, or its default.
    ///
    /// # Errors
    /// 400 with the field, the number and the bounds.
    pub(super) fn within(
        &self,
        name: &str,
        default: f64,
        is_right: impl Fn(f64) -> bool,
        wanted: &str,
    ) -> Result<f64, ApiError> {
        let found = self.or(name, default)?;
        match is_right(found) && found.is_finite() {
            true => Ok(found),
            false => Err(ApiError::field(
                name,
                format!("{name}: found {found}, want {wanted}"),
            )),
        }
    }

    /// The fields of an object in a field.
    ///
    /// # Errors
    /// 400 if it is another type.
    pub(super) fn object(&self, name: &str) -> Result<Option<Fields>, ApiError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Fields(fields.clone()))),
            Some(other) => Err(wrong(name, other, "an object")),
        }
    }

    /// Entries in the order of the body.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter()
    }
}

/// 400 for a field of the wrong type.
pub(super) fn wrong(name: &str, value: &Value, wanted: &str) -> ApiError {
    ApiError::field(
        name,
        format!("{name}: found {}, want {wanted}", kind(value)),
    )
}

/// A value's type.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => match number.as_f64().map(f64::fract) {
            Some(0.0) => "an integer out of range",
            Some(_) | None => "a fraction",
        },
        Value::Number(number) if number.is_i64() && !number.is_u64() => "a negative number",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_are_no_objects_are_refused() {
        for (body, part) in [
            (&b"{\"a\": \"\xff\"}"[..], "not UTF-8 at byte 7"),
            (b"{\"a\": 1", "not valid JSON"),
            (b"{\"a\": NaN}", "not valid JSON"),
            (b"{\"a\": 1e999}", "not valid JSON"),
            (b"[1]", "found a list, want an object"),
            (b"", "not valid JSON"),
        ] {
            let error = Fields::parse(body).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(error.message.contains(part), "{}", error.message);
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Fields::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn fields_have_types() {
        let body =
            br#"{"a": null, "b": 16.0, "c": 1.5, "d": -1, "e": [1, 2], "f": ["x", 1], "g": "t"}"#;
        let fields = Fields::parse(body).unwrap();
        assert_eq!(fields.get::<bool>("a"), Ok(None));
        assert!(fields.has("a") && !fields.has("z"));
        assert_eq!(fields.or::<i64>("b", 0), Ok(16));
        assert_eq!(fields.or::<u64>("b", 0), Ok(16));
        assert_eq!(fields.get::<Vec<u32>>("e"), Ok(Some(vec![1, 2])));
        let message = |error: Result<(), ApiError>| error.unwrap_err().message;
        let of = |error: ApiError| (error.param.clone(), error.message);
        let found = of(fields.get::<i64>("c").unwrap_err());
        assert_eq!(
            found,
            (
                Some("c".into()),
                "c: found a fraction, want an integer".into()
            )
        );
        let negative = fields.get::<u64>("d").map(|_| ());
        assert_eq!(
            message(negative),
            "d: found a negative number, want an integer, 0 or more"
        );
        let mixed = fields.get::<Vec<String>>("f").map(|_| ());
        assert_eq!(message(mixed), "f: found a list, want a list of strings");
        let huge = br#"{"seed": 99999999999999999999, "max_tokens": -99999999999999999999}"#;
        let huge = Fields::parse(huge).unwrap();
        assert_eq!(
            message(huge.get::<i64>("seed").map(|_| ())),
            "seed: found an integer out of range, want an integer"
        );
        assert_eq!(
            message(huge.get::<u64>("max_tokens").map(|_| ())),
            "max_tokens: found an integer out of range, want an integer, 0 or more"
        );
        let range = fields.within("c", 0.0, |x| x < 1.0, "below 1").map(|_| ());
        assert_eq!(message(range), "c: found 1.5, want below 1");
        assert!(fields.object("g").is_err());
    }
}

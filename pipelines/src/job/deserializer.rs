//! Serde's data model over the values of a job file, with the key path of a value that does not fit.
//!
//! A job has some thousand keys, and serde makes code for each type of setting and each type of deserializer. One
//! deserializer that notes the path itself, in place of one that wraps another, is a third of that code.

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected,
    IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use std::fmt;
use toml::{Table, Value};

/// A value that does not fit, in serde's words, and the steps to it from the root.
#[derive(Debug)]
pub(super) struct WrongValue {
    message: String,
    /// The steps, last one first.
    steps: Vec<String>,
}

impl WrongValue {
    /// Serde's message.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Keys, variants and numbers of array elements from the root to the value.
    pub(super) fn path(&self) -> Vec<String> {
        self.steps.iter().rev().cloned().collect()
    }

    fn below(mut self, step: impl ToString) -> WrongValue {
        self.steps.push(step.to_string());
        self
    }
}

impl fmt::Display for WrongValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WrongValue {}

impl serde::de::Error for WrongValue {
    fn custom<T: fmt::Display>(message: T) -> WrongValue {
        WrongValue {
            message: message.to_string(),
            steps: Vec::new(),
        }
    }
}

/// Reads a value of this type.
///
/// # Errors
/// The first part that does not fit.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, WrongValue> {
    T::deserialize(Setting(value))
}

struct Setting<'a>(&'a Value);

/// Methods of `Deserializer` that do as another one does.
macro_rules! forward {
    ($($($name:ident)* => $to:ident);*) => {
        $($(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongValue> {
            self.$to(visitor)
        })*)*
    };
}

impl<'de> Deserializer<'de> for Setting<'de> {
    type Error = WrongValue;

    /// Of types that take values of several kinds. Others take one kind, so that code is made for that alone.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongValue> {
        match self.0 {
            Value::Array(values) => elements(values, visitor),
            Value::Table(table) => entries(table, visitor),
            _ => self.deserialize_str(visitor),
        }
    }

    /// Of types of one value; visitors see to its kind.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongValue> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(is_true) => visitor.visit_bool(*is_true),
            Value::Datetime(_) | Value::Array(_) | Value::Table(_) => Err(self.unlike(&visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongValue> {
        match self.0 {
            Value::Array(values) => elements(values, visitor),
            _ => Err(self.unlike(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongValue> {
        match self.0 {
            Value::Table(table) => entries(table, visitor),
            _ => Err(self.unlike(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, WrongValue> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, WrongValue> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WrongValue> {
        self.deserialize_map(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongValue> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WrongValue> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, WrongValue> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WrongValue> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(Choice {
                name,
                content: None,
            }),
            Value::Table(table) if table.len() == 1 => {
                let (name, content) = table.iter().next().expect("a table of one entry has one");
                let content = Some(content);
                visitor.visit_enum(Choice { name, content })
            }
            Value::Table(table) => Err(WrongValue::invalid_length(
                table.len(),
                &"a table of one key",
            )),
            Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => Err(self.unlike(&"a string")),
        }
    }

    forward! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_string deserialize_unit deserialize_identifier => deserialize_str;
        deserialize_bytes deserialize_byte_buf => deserialize_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, WrongValue> {
        self.deserialize_str(visitor)
    }
}

impl Setting<'_> {
    /// The value is of no kind that the visitor takes.
    fn unlike(&self, visitor: &dyn Expected) -> WrongValue {
        WrongValue::invalid_type(unexpected(self.0), visitor)
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::String(text) => Unexpected::Str(text),
        Value::Integer(number) => Unexpected::Signed(*number),
        Value::Float(number) => Unexpected::Float(*number),
        Value::Boolean(is_true) => Unexpected::Bool(*is_true),
        Value::Datetime(_) => Unexpected::Other("date-time"),
        Value::Array(_) => Unexpected::Seq,
        Value::Table(_) => Unexpected::Map,
    }
}

fn elements<'a, V: Visitor<'a>>(values: &'a [Value], visitor: V) -> Result<V::Value, WrongValue> {
    let mut elements = Elements { values, next: 0 };
    let made = visitor.visit_seq(&mut elements)?;
    match elements.next == values.len() {
        true => Ok(made),
        false => Err(WrongValue::invalid_length(
            values.len(),
            &"fewer elements in array",
        )),
    }
}

fn entries<'a, V: Visitor<'a>>(table: &'a Table, visitor: V) -> Result<V::Value, WrongValue> {
    visitor.visit_map(Entries {
        entries: table.iter(),
        value: None,
    })
}

/// Elements of an array that have not been read.
struct Elements<'a> {
    values: &'a [Value],
    next: usize,
}

impl<'a> SeqAccess<'a> for &mut Elements<'a> {
    type Error = WrongValue;

    fn next_element_seed<S: DeserializeSeed<'a>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, WrongValue> {
        let at = self.next;
        let Some(value) = self.values.get(at) else {
            return Ok(None);
        };
        self.next += 1;
        let made = seed.deserialize(Setting(value));
        made.map(Some).map_err(|e| e.below(at))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len() - self.next)
    }
}

/// Entries of a table that have not been read, and the value of the key that has been read last.
struct Entries<'a> {
    entries: toml::map::Iter<'a, String, Value>,
    value: Option<(&'a str, &'a Value)>,
}

impl<'a> MapAccess<'a> for Entries<'a> {
    type Error = WrongValue;

    fn next_key_seed<S: DeserializeSeed<'a>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, WrongValue> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        let key: &'a str = key;
        self.value = Some((key, value));
        let made = seed.deserialize(key.into_deserializer());
        made.map(Some).map_err(|e: WrongValue| e.below(key))
    }

    fn next_value_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<S::Value, WrongValue> {
        let Some((key, value)) = self.value.take() else {
            return Err(WrongValue::custom("a value is asked for before its key"));
        };
        seed.deserialize(Setting(value)).map_err(|e| e.below(key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// A variant of an enum: a name alone, or a table whose one key is the name.
struct Choice<'a> {
    name: &'a str,
    content: Option<&'a Value>,
}

impl<'a> EnumAccess<'a> for Choice<'a> {
    type Error = WrongValue;
    type Variant = Choice<'a>;

    fn variant_seed<S: DeserializeSeed<'a>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Choice<'a>), WrongValue> {
        let made = seed.deserialize(self.name.into_deserializer());
        made.map(|name| (name, self))
    }
}

impl<'a> Choice<'a> {
    fn content(&self, wanted: &str) -> Result<Setting<'a>, WrongValue> {
        let found = Unexpected::UnitVariant;
        let wanted = || WrongValue::invalid_type(found, &wanted);
        self.content.map(Setting).ok_or_else(wanted)
    }
}

impl<'a> VariantAccess<'a> for Choice<'a> {
    type Error = WrongValue;

    fn unit_variant(self) -> Result<(), WrongValue> {
        match self.content {
            None => Ok(()),
            Some(Value::Table(table)) if table.is_empty() => Ok(()),
            Some(_) => {
                let found = Unexpected::NewtypeVariant;
                Err(WrongValue::invalid_type(found, &"a string").below(self.name))
            }
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'a>>(self, seed: S) -> Result<S::Value, WrongValue> {
        let content = self.content("a table of one key")?;
        seed.deserialize(content).map_err(|e| e.below(self.name))
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, WrongValue> {
        let content = self.content("a table of one key")?;
        let made = content.deserialize_seq(visitor);
        made.map_err(|e| e.below(self.name))
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WrongValue> {
        let content = self.content("a table of one key")?;
        let made = content.deserialize_map(visitor);
        made.map_err(|e| e.below(self.name))
    }
}

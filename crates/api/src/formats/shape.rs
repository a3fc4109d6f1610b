//! Reads JSON values as types, with errors that quote no value: a MachineConfig's fields hold secrets, and serde's own
//! errors quote what they could not read.
//!
//! What it is not: the parsing of text (see [`crate::formats::yaml`]).

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer as _, Unexpected, Visitor,
};
use serde_json::{Map, Value, map};
use std::fmt;

/// A value that does not fit its type: the path, and what is expected there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeError {
    /// A path such as `spec.kernelArguments`; empty: the value as a whole.
    pub path: String,
    /// What is wrong. Of the value only its kind is named.
    pub what: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for ShapeError {}

/// Reads a value.
///
/// # Errors
/// Its first field that does not fit the type.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, ShapeError> {
    // Read again for a better message only: serde_json decides what can be read.
    T::deserialize(value).map_err(|_| match T::deserialize(Reader(value)) {
        Err(error) => error,
        Ok(_) => de::Error::custom(""),
    })
}

/// Reads JSON text, such as a file of a host.
///
/// # Errors
/// Text that is not JSON, with line and column; then as [`read`].
pub fn read_bytes<T: DeserializeOwned>(text: &[u8]) -> Result<T, ShapeError> {
    let place =
        |e: serde_json::Error| ShapeError::new(format!("not JSON, line {}, column {}", e.line(), e.column()));
    // If it can be read, it is read without the detour.
    serde_json::from_slice(text).or_else(|_| read(&serde_json::from_slice(text).map_err(place)?))
}

impl ShapeError {
    fn new(what: String) -> Self {
        Self { path: String::new(), what }
    }

    fn below(mut self, step: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{dot}{}", self.path);
        self
    }
}

fn kind(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
        Unexpected::Float(_) => "a number",
        Unexpected::Char(_) | Unexpected::Str(_) => "a string",
        Unexpected::Bytes(_) => "bytes",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "a list",
        Unexpected::Map => "an object",
        _ => "something else",
    }
}

impl de::Error for ShapeError {
    /// The message may quote the value, so it is dropped.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::new("has the wrong type for this field".to_owned())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {}", kind(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found another value: {}", kind(found)))
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {length} entries"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("expected one of {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("has no field `{field}`"))
    }
}

/// A value that is read with our own errors.
struct Reader<'a>(&'a Value);

impl<'de> de::Deserializer<'de> for Reader<'de> {
    type Error = ShapeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::String(s) => visitor.visit_borrowed_str(s),
            Value::Array(list) => visitor.visit_seq(List(list.iter().enumerate())),
            Value::Object(fields) => visitor.visit_map(Fields::of(fields)),
            Value::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
                (Some(n), ..) => visitor.visit_u64(n),
                (_, Some(n), _) => visitor.visit_i64(n),
                (.., n) => visitor.visit_f64(n.unwrap_or_default()),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ShapeError> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ShapeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ShapeError> {
        match self.0 {
            Value::String(s) => {
                let text: StrDeserializer<'_, ShapeError> = s.as_str().into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            Value::Object(fields) => {
                MapAccessDeserializer::new(Fields::of(fields)).deserialize_enum(name, variants, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct List<'a>(std::iter::Enumerate<std::slice::Iter<'a, Value>>);

impl<'de> de::SeqAccess<'de> for List<'de> {
    type Error = ShapeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ShapeError> {
        let Some((i, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Reader(value)).map(Some).map_err(|e| e.below(&format!("[{i}]")))
    }
}

struct Fields<'a> {
    rest: map::Iter<'a>,
    now: Option<(&'a str, &'a Value)>,
}

impl<'a> Fields<'a> {
    fn of(fields: &'a Map<String, Value>) -> Self {
        Self { rest: fields.iter(), now: None }
    }
}

impl<'de> de::MapAccess<'de> for Fields<'de> {
    type Error = ShapeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ShapeError> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.now = Some((key, value));
        let key: de::value::BorrowedStrDeserializer<'_, ShapeError> =
            de::value::BorrowedStrDeserializer::new(key);
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ShapeError> {
        let Some((key, value)) = self.now.take() else { return Err(de::Error::custom("")) };
        seed.deserialize(Reader(value)).map_err(|e| e.below(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{MachineConfig, MachineConfigPool};
    use serde_json::json;

    #[test]
    fn a_file_that_cannot_be_read_is_not_quoted() {
        for (text, want) in [
            (
                "{\"spec\": {\"fips\": \"hunter2\"}, \"metadata\": {}}",
                "spec.fips: expected a boolean, found a string",
            ),
            ("{\"spec\": hunter2}", "not JSON, line 1, column 10"),
            ("hunter2", "not JSON, line 1, column 1"),
            ("\"hunter2\"", "expected "),
        ] {
            let error = read_bytes::<MachineConfig>(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(want) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_error_names_place_and_expected_type_and_never_the_value() {
        let config = |spec: Value| {
            let object = json!({"metadata": {"name": "x"}, "spec": spec});
            read::<MachineConfig>(&object).map(drop).map_err(|e| e.to_string())
        };
        assert_eq!(config(json!({"kernelArguments": ["quiet"], "fips": true})), Ok(()));
        let rows = [
            (
                json!({"kernelArguments": "p=hunter2"}),
                "spec.kernelArguments: expected a sequence, found a string",
            ),
            (
                json!({"kernelArguments": [{"hunter2": 1}]}),
                "spec.kernelArguments[0]: expected a string, found an object",
            ),
            (json!({"fips": "hunter2"}), "spec.fips: expected a boolean, found a string"),
            (json!({"osImageURL": 5}), "spec.osImageURL: expected a string, found a whole number"),
            (json!("hunter2"), "spec: expected struct MachineConfigSpec, found a string"),
        ];
        for (spec, want) in rows {
            assert_eq!(config(spec), Err(want.to_owned()));
        }
        let pool = json!({"metadata": {"creationTimestamp": "hunter2"}, "spec": {}});
        let error = read::<MachineConfigPool>(&pool).unwrap_err().to_string();
        assert!(error.starts_with("metadata.creationTimestamp: ") && !error.contains("hunter2"), "{error}");
    }
}

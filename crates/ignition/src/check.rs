//! Checks a JSON value against a table of known fields. Wrong types become errors with a path; unknown fields become
//! warnings and are removed, so that serde sees only what fits. Pure.

use crate::object::{Field, Shape};
use serde_json::{Map, Value};

/// Something in the config that has no effect, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The path, for example `storage.files[0].contets`.
    pub path: String,
    /// What.
    pub message: String,
    /// The kind of warning.
    pub kind: WarningKind,
}

/// The sort of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningKind {
    /// The field is unknown in the config's version, or misspelt.
    UnknownField,
    /// The field is known, but has no effect here, or a different one than it seems.
    Effect,
}

impl Warning {
    /// A warning about a field that has no effect, or a different one than it seems.
    pub(crate) fn effect(path: String, message: impl Into<String>) -> Self {
        Self { path, message: message.into(), kind: WarningKind::Effect }
    }

    /// A warning about an unknown field.
    pub(crate) fn unknown_field(path: String, message: impl Into<String>) -> Self {
        Self { path, message: message.into(), kind: WarningKind::UnknownField }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The path of a finding about the config as a whole.
pub(crate) const WHOLE: &str = "(the whole config)";

/// A value of the wrong type, with its path. The value itself may be a secret and is not quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: expected {expected}, found {found}")]
pub struct TypeMismatch {
    /// Where.
    pub path: String,
    /// The type that the spec requires there.
    pub expected: &'static str,
    /// The type that was found.
    pub found: &'static str,
}

/// Checks a value against the known fields of one minor version of spec 3.
pub(crate) struct Checker {
    /// The minor version; fields of later ones are unknown.
    pub(crate) minor: u8,
    /// The version as it is named in warnings.
    pub(crate) version: String,
    /// The warnings so far.
    pub(crate) warnings: Vec<Warning>,
}

/// Whether a value fits as it is, with nothing to correct, to leave out or to report. Most values do, and then need no
/// cleaned copy.
pub(crate) fn fits(value: &Value, shape: &Shape, minor: u8) -> bool {
    match (shape, value) {
        (Shape::Str, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => true,
        (Shape::Int, Value::Number(n)) => n.as_i64().is_some(),
        (Shape::List(inner), Value::Array(items)) => items.iter().all(|v| fits(v, inner, minor)),
        (Shape::Object(fields), Value::Object(map)) => map.iter().all(|(key, value)| {
            let field = fields.iter().find(|f| f.name == key);
            field.is_some_and(|f| f.since <= minor && fits(value, f.shape, minor))
        }),
        _ => false,
    }
}

impl Checker {
    /// The value without nulls and unknown fields.
    pub(crate) fn clean(&mut self, path: &str, value: Value, shape: &Shape) -> Result<Value, TypeMismatch> {
        let mismatch = |expected, value: &Value| TypeMismatch {
            path: if path.is_empty() { WHOLE.to_owned() } else { path.to_owned() },
            expected,
            found: kind(value),
        };
        match (shape, value) {
            (Shape::Str, v @ Value::String(_)) | (Shape::Bool, v @ Value::Bool(_)) => Ok(v),
            (Shape::Int, Value::Number(n)) if n.as_i64().is_some() => Ok(Value::Number(n)),
            (Shape::List(inner), Value::Array(items)) => items
                .into_iter()
                .enumerate()
                .map(|(i, v)| self.clean(&format!("{path}[{i}]"), v, inner))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::Array),
            (Shape::Object(fields), Value::Object(map)) => self.object(path, map, fields),
            (Shape::Str, v) => Err(mismatch("a string", &v)),
            (Shape::Int, v) => Err(mismatch("a whole number", &v)),
            (Shape::Bool, v) => Err(mismatch("true or false", &v)),
            (Shape::List(_), v) => Err(mismatch("a list", &v)),
            (Shape::Object(_), v) => Err(mismatch("an object", &v)),
        }
    }

    fn object(
        &mut self,
        path: &str,
        map: Map<String, Value>,
        fields: &[Field],
    ) -> Result<Value, TypeMismatch> {
        let mut out = Map::new();
        for (key, value) in map {
            let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            // Ignition is a Go program and reads field names case-insensitively.
            let exact = fields.iter().find(|f| f.name == key);
            let field = exact.or_else(|| fields.iter().find(|f| f.name.eq_ignore_ascii_case(&key)));
            match field {
                Some(f) if f.since <= self.minor => {
                    if !value.is_null() {
                        let clean = self.clean(&at, value, f.shape)?;
                        if exact.is_none() {
                            self.warn(at, format!("is read as {}; write it that way", f.name));
                        }
                        out.insert(f.name.to_owned(), clean);
                    }
                }
                Some(f) => self.warn(
                    at,
                    format!(
                        "spec {} does not know this field (3.{} does) and ignores it; raise ignition.version",
                        self.version, f.since
                    ),
                ),
                None => {
                    let hint =
                        closest(&key, fields).map(|n| format!("; is {n:?} meant?")).unwrap_or_default();
                    self.warn(
                        at,
                        format!("spec {} does not know this field and ignores it{hint}", self.version),
                    );
                }
            }
        }
        Ok(Value::Object(out))
    }

    fn warn(&mut self, path: String, message: String) {
        self.warnings.push(Warning::unknown_field(path, message));
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.is_f64() => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The known field that is most similar to a mistyped one, if it is similar enough to suggest.
fn closest(key: &str, fields: &[Field]) -> Option<&'static str> {
    fields
        .iter()
        .map(|f| (distance(&key.to_ascii_lowercase(), &f.name.to_ascii_lowercase()), f.name))
        .min()
        .filter(|(d, name)| *d <= 2 && *d < name.len())
        .map(|(_, name)| name)
}

/// Edit distance. Keys are short; longer ones are not compared, so that no input makes this expensive.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 40;
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    strsim::levenshtein(a, b)
}

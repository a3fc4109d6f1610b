//! Reads a config of any known version into the one model. Pure; takes bytes or a JSON value.
//!
//! What it is not: validation beyond types (see `validate`).
//!
//! Source: <https://coreos.github.io/ignition/specs/>.

use crate::check::{Checker, TypeMismatch, WHOLE, Warning, fits};
use crate::model::Config;
use crate::newer_values::{drop_compression, left_out, special_modes};
use crate::object::Shaped;
use crate::v2::{self, V2Error};
use crate::version::{VERSION, Version};
use serde::Deserialize as _;
use serde_json::Value;

/// A parsed config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The config, in the model's version.
    pub config: Config,
    /// The version in which it was written.
    pub version: Version,
    /// Unknown fields, and other things without effect.
    pub warnings: Vec<Warning>,
}

/// Why text is not JSON, with line and column. The text itself is not quoted, because it may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        use serde_json::error::Category;
        Self(match error.classify() {
            // The messages of these are fixed, and contain line and column.
            Category::Syntax | Category::Eof | Category::Io => error.to_string(),
            // The messages of these quote the value.
            Category::Data if error.line() == 0 => MISFIT.to_owned(),
            Category::Data => format!("{MISFIT} at line {} column {}", error.line(), error.column()),
        })
    }
}

/// The message for a value that does not fit its field.
const MISFIT: &str = "a value has the wrong type for its field";

/// A config that cannot be read. Its contents are not quoted, except for a version, because they may be secret.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// No bytes.
    #[error("the config is empty; write at least {{\"ignition\": {{\"version\": \"{VERSION}\"}}}}")]
    Empty,
    /// Not JSON.
    #[error("the config is not JSON: {0}")]
    Json(JsonError),
    /// No version.
    #[error("ignition.version: is required, for example \"{VERSION}\"")]
    NoVersion,
    /// Not of the form X.Y.Z.
    #[error("ignition.version: the value is not a version; supported: {SUPPORTED}")]
    InvalidVersion,
    /// An unknown version, as X.Y.Z.
    #[error("ignition.version: {0:?} is an unknown version; supported: {SUPPORTED}")]
    UnknownVersion(String),
    /// A value of the wrong type.
    #[error(transparent)]
    Type(#[from] TypeMismatch),
    /// A part of a spec 2 config that has no counterpart in spec 3.
    #[error("{0}")]
    V2(#[from] V2Error),
}

impl ParseError {
    /// The path in the config, for example `ignition.version` (empty for the config as a whole), and what is wrong
    /// there.
    pub fn place(&self) -> (&str, String) {
        match self {
            Self::Empty | Self::Json(_) => ("", self.to_string()),
            Self::NoVersion | Self::InvalidVersion | Self::UnknownVersion(_) => {
                const AT: &str = "ignition.version";
                let text = self.to_string();
                (AT, text.strip_prefix(AT).and_then(|t| t.strip_prefix(": ")).unwrap_or(&text).to_owned())
            }
            Self::Type(e) if e.path == WHOLE => ("", format!("expected {}, found {}", e.expected, e.found)),
            Self::Type(e) => (&e.path, format!("expected {}, found {}", e.expected, e.found)),
            Self::V2(e) => (&e.path, e.message.clone()),
        }
    }
}

fn not_json(error: serde_json::Error) -> ParseError {
    ParseError::Json(error.into())
}

/// The supported versions, as they are named in errors.
const SUPPORTED: &str = "2.2, 3.0, 3.1, 3.2, 3.3, 3.4, 3.5, 3.6";

/// Parses JSON text.
///
/// # Errors
/// Text that is not JSON, an unknown version, values of the wrong type, or a spec 2 config with parts that have no
/// counterpart.
pub fn parse(bytes: &[u8]) -> Result<Parsed, ParseError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ParseError::Empty);
    }
    parse_value(&serde_json::from_slice(bytes).map_err(not_json)?)
}

/// Parses a JSON value.
///
/// # Errors
/// As [`parse`].
pub fn parse_value(value: &Value) -> Result<Parsed, ParseError> {
    let version = version(value)?;
    let mut checker = Checker { minor: version.minor(), version: version.to_string(), warnings: Vec::new() };
    let mut config = if version == Version::V2_2 {
        let clean = checker.clean("", value.clone(), v2::Config::SHAPE)?;
        let config = serde_json::from_value(clean).map_err(not_json)?;
        checker.warnings.extend(v2::notes(&config));
        v2::to_v3(config)?
    } else {
        let mut config = if fits(value, Config::SHAPE, checker.minor) {
            Config::deserialize(value).map_err(not_json)?
        } else {
            let clean = checker.clean("", value.clone(), Config::SHAPE)?;
            serde_json::from_value(clean).map_err(not_json)?
        };
        VERSION.clone_into(&mut config.ignition.version);
        if version < Version::V3_6 {
            checker.warnings.extend(special_modes(&config).map(left_out));
        }
        config
    };
    if version < Version::V3_1 {
        let ignored = drop_compression(&mut config).into_iter().map(|at| {
            let message = format!(
                "spec {version} does not know this field (3.1 does) and ignores it; raise ignition.version"
            );
            Warning::unknown_field(format!("{at}.compression"), message)
        });
        checker.warnings.extend(ignored);
    }
    Ok(Parsed { config, version, warnings: checker.warnings })
}

fn version(value: &Value) -> Result<Version, ParseError> {
    let text = match value.get("ignition").and_then(|i| i.get("version")) {
        Some(Value::String(text)) if !text.is_empty() => text,
        Some(Value::String(_) | Value::Null) | None => return Err(ParseError::NoVersion),
        Some(_) => return Err(ParseError::InvalidVersion),
    };
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    let plain = numbers.len() == 3 && numbers.iter().all(|n| n.parse::<u64>().is_ok());
    if !plain {
        return Err(ParseError::InvalidVersion);
    }
    Version::read(text).ok_or_else(|| ParseError::UnknownVersion(core.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_error_quotes_what_stands_in_the_config() {
        let texts = [
            r#"{"ignition": {"version": "3.5.0"}, "passwd": hunter2}"#,
            r#"{"ignition": {"version": "3.5.0"}, "hunter2": "hunter2"#,
            r#""hunter2""#,
            r#"{"ignition": {"version": "hunter2"}}"#,
            r#"{"ignition": {"version": "3.9.0-hunter2"}}"#,
            r#"{"ignition": {"version": {"token": "hunter2"}}}"#,
            r#"{"ignition": {"version": "3.5.0"}, "storage": {"files": "hunter2"}}"#,
            r#"{"ignition": {"version": "3.5.0"}, "storage": {"files": ["hunter2"]}}"#,
            r#"{"ignition": {"version": "2.2.0"}, "passwd": {"users": [{"uid": "hunter2"}]}}"#,
        ];
        for text in texts {
            let error = parse(text.as_bytes()).unwrap_err();
            let place = error.place().1;
            assert!(!format!("{error} {error:?} {place}").contains("hunter2"), "{text}: {error:?}");
        }
        // A value that passes the table of fields but not serde.
        let value = serde_json::from_value::<Config>(json!({"storage": {"files": "hunter2"}})).unwrap_err();
        assert!(value.to_string().contains("hunter2"), "{value}");
        assert_eq!(not_json(value).to_string(), format!("the config is not JSON: {MISFIT}"));
        let text = serde_json::from_str::<Config>("{\n\"storage\": \"hunter2\"}").unwrap_err();
        assert!(not_json(text).to_string().ends_with("at line 2 column 20"));
    }

    #[test]
    fn a_mistake_in_json_is_told_with_its_line() {
        let error = parse(b"{\n  \"ignition\": {\"version\" \"3.5.0\"}\n}").unwrap_err().to_string();
        assert_eq!(error, "the config is not JSON: expected `:` at line 2 column 26");
    }
}

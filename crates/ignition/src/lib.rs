//! The Ignition config: model, parsing, validation, merging, translation and data URLs.
//!
//! What it is: pure functions on values. Every known version (2.2, 3.0 to 3.6) is read into one model, that of spec
//! 3.5. [`merge`] lays one config over another by the spec's rules; [`validate`] names every broken rule with its JSON
//! path; [`translate`] writes an older version if that can express the config.
//!
//! What it is not: Kubernetes, files or the network. A remote source is an error wherever its bytes are needed.
//!
//! ```
//! use ignition::{Version, merge, parse, translate, validate};
//!
//! let with = |text: &str| {
//!     let source = ignition::data_url::encode(text.as_bytes());
//!     let file = format!(r#"{{"path": "/etc/motd", "mode": 420, "contents": {{"source": "{source}"}}}}"#);
//!     format!(r#"{{"ignition": {{"version": "3.2.0"}}, "storage": {{"files": [{file}]}}}}"#)
//! };
//! // Whatever version a config is written in, it is read into one model.
//! let parent = parse(with("hello").as_bytes())?.config;
//! let child = parse(with("welcome").as_bytes())?.config;
//! assert_eq!(child.ignition.version, "3.5.0");
//!
//! // The child wins; a rule that is broken is named with its JSON path.
//! let config = merge(parent, child);
//! validate(&config)?;
//! let source = config.storage.files[0].contents.source.as_deref().unwrap_or_default();
//! assert_eq!(ignition::data_url::decode(source)?, b"welcome");
//!
//! // For a machine whose Ignition is older.
//! assert_eq!(translate(&config, Version::V3_2)?["ignition"]["version"], "3.2.0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: <https://coreos.github.io/ignition/specs/>.

mod check;
pub mod data_url;
mod model;
mod newer_values;
mod object;
mod parse;
pub mod pointer;
mod report;
mod resource;
mod translate;
pub mod unit;
mod v2;
mod validate;
mod version;

pub use check::{TypeMismatch, Warning, WarningKind};
pub use model::*;
pub use parse::{JsonError, ParseError, Parsed, parse, parse_value};
pub use report::{ValidationError, ValidationErrors};
pub use resource::{MAX_UNPACKED, ResourceError, gunzip};
pub use translate::{TranslateError, translate};
pub use v2::V2Error;
pub use validate::{lint, validate, validate_as};
pub use version::{VERSION, Version, empty};

/// Merges a child config over a parent by the spec's rules: scalars of the child win, and lists are merged by key, in
/// the parent's order with the child's new elements after it.
pub fn merge(parent: Config, child: Config) -> Config {
    object::Merge::merge(parent, child)
}

impl Config {
    /// The config as JSON, without absent fields.
    ///
    /// # Errors
    /// None that is known; the type allows it.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self)
    }
}

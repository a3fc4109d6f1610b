//! Reading and writing YAML; the one place that uses the YAML library. Other readers of these files are Go programs
//! with YAML 1.1 habits, so `0644` reads as octal, and strings like `yes` are written quoted.
//!
//! Sources: <https://yaml.org/spec/1.2.2/> and <https://yaml.org/type/> (the types of YAML 1.1).

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// YAML that cannot be read or written. The message gives line and column and quotes nothing, because the text may be
/// secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct YamlError(String);

impl YamlError {
    fn of(error: &serde_saphyr::Error) -> Self {
        use serde_saphyr::Error;
        let what = match error.without_snippet() {
            // The parser's own words. All other messages may quote the text.
            Error::ExternalMessage { msg, .. } => msg.as_str(),
            Error::Eof { .. } => "the text ends too early",
            Error::DuplicateMappingKey { .. } => "a key occurs twice in the same object",
            Error::UnknownAnchor { .. } => "an alias has no anchor",
            Error::MultipleDocuments { .. } => "one document is expected, but there are several",
            _ => "a value has the wrong type",
        };
        Self(format!("{what}, {}", place(error)))
    }
}

fn place(error: &serde_saphyr::Error) -> String {
    match error.location() {
        Some(at) => format!("line {}, column {}", at.line(), at.column()),
        None => "at an unknown position".to_owned(),
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { legacy_octal_numbers: true }
}

/// The limits for a stream of this many bytes: everything that fits into so many bytes can be read. The limits on
/// aliases, which expand small texts into large values, stay as they are.
fn options_for(bytes: usize) -> serde_saphyr::Options {
    let mut options = options();
    if let Some(budget) = &mut options.budget {
        let limits = [
            &mut budget.max_events,
            &mut budget.max_nodes,
            &mut budget.max_documents,
            &mut budget.max_total_scalar_bytes,
        ];
        limits.into_iter().for_each(|limit| *limit = bytes.max(*limit));
    }
    options
}

/// Reads one document.
///
/// # Errors
/// Text that is not YAML or does not have the shape of `T`, with line and column.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|e| YamlError::of(&e))
}

/// Reads every document of a stream as JSON values; empty documents are left out.
///
/// # Errors
/// As [`from_str`].
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    let all: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options_for(text.len()))
        .map_err(|e| YamlError::of(&e))?;
    Ok(all.into_iter().filter(|v| !v.is_null()).collect())
}

/// The position of a mistake in YAML text, as `line 3, column 5`, without quoting the text, which may be secret; `None`
/// if there is none.
pub fn mistake(text: &str) -> Option<String> {
    let read: Result<Vec<Value>, _> = serde_saphyr::from_multiple_with_options(text, options_for(text.len()));
    read.err().map(|error| place(&error))
}

/// Writes one document, without a leading `---`.
///
/// # Errors
/// A value that YAML cannot say (a map with non-string keys).
pub fn to_string<T: Serialize>(value: &T) -> Result<String, YamlError> {
    serde_saphyr::to_string(value).map_err(|e| YamlError(e.to_string()))
}

/// The objects of a document: the items of a List, as `kubectl get -o yaml` writes it, or the document itself.
pub fn objects(mut document: Value) -> Vec<Value> {
    let is_list = document.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"));
    match document.get_mut("items") {
        Some(Value::Array(items)) if is_list => std::mem::take(items),
        _ => vec![document],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn octal_modes_read_as_go_reads_them() {
        assert_eq!(from_str::<Value>("mode: 0644").unwrap(), json!({"mode": 420}));
    }

    #[test]
    fn strings_that_look_like_other_types_survive_a_round_trip() {
        for s in [
            "yes",
            "no",
            "on",
            "off",
            "y",
            "null",
            "~",
            "1_000",
            "1:30",
            "2001-01-01",
            "0644",
            "",
            " x ",
            "a: b",
        ] {
            let text = to_string(&json!({ "s": s })).unwrap();
            assert_eq!(from_str::<Value>(&text).unwrap(), json!({ "s": s }), "{text}");
        }
    }

    #[test]
    fn many_documents_in_one_stream() {
        let all = documents("a: 1\n---\n---\nb: 2\n").unwrap();
        assert_eq!(all, [json!({"a": 1}), json!({"b": 2})]);
    }

    #[test]
    fn a_parse_error_names_its_line() {
        let e = from_str::<Value>("a: 1\nb: [1, 2\nc: 3\n").unwrap_err().to_string();
        assert!(e.contains("line"), "{e}");
    }

    #[test]
    fn a_parse_error_does_not_quote_the_text_around_it() {
        let wrong = [
            "unit: |\n  Environment=PASS=hunter2\n bad\n",
            "a: hunter2\n b: hunter2\n",
            "a: [hunter2\n",
            "a: *hunter2\n",
            "hunter2: 1\nhunter2: 2\n",
            "a: 'hunter2\n",
            "a: !<hunter2 x\n",
            "hunter2",
        ];
        for text in wrong {
            let error = from_str::<std::collections::BTreeMap<String, u32>>(text).unwrap_err().to_string();
            assert!(error.contains("line ") && !error.contains("hunter2"), "{text}: {error}");
            let error = documents(text).map_err(|e| e.to_string());
            assert!(!format!("{error:?}").contains("hunter2") || error.is_ok(), "{text}: {error:?}");
        }
    }

    #[test]
    fn a_list_is_read_as_its_items_and_other_objects_as_themselves() {
        let rows = [
            (json!({"kind": "List", "items": [{"a": 1}, {"a": 2}]}), vec![json!({"a": 1}), json!({"a": 2})]),
            (json!({"kind": "NodeList", "items": []}), vec![]),
            (json!({"kind": "Box", "items": [1]}), vec![json!({"kind": "Box", "items": [1]})]),
            (json!({"kind": "List", "items": "x"}), vec![json!({"kind": "List", "items": "x"})]),
            (json!({"kind": "List"}), vec![json!({"kind": "List"})]),
            (json!(3), vec![json!(3)]),
        ];
        for (document, want) in rows {
            assert_eq!(objects(document), want);
        }
    }
}

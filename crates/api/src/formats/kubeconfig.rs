//! What is wrong with a kubeconfig, in words that quote none of its contents: they are credentials, and parsers' own
//! errors quote the lines around a mistake.
//!
//! The format: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>.
//!
//! What it is not: the reading of files, the merging of several, or a client.

use crate::formats::shape::ShapeError;
use crate::formats::yaml;
use serde_json::Value;

/// The lists of a kubeconfig, and the field that each entry has besides its name.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("contexts", "context"), ("users", "user")];

/// Fields that must be text, by the field that contains them.
const TEXTS: [(&str, &[&str]); 3] = [
    (
        "cluster",
        &["server", "certificate-authority", "certificate-authority-data", "tls-server-name", "proxy-url"],
    ),
    ("context", &["cluster", "user", "namespace"]),
    (
        "user",
        &[
            "client-certificate",
            "client-certificate-data",
            "client-key",
            "client-key-data",
            "token",
            "tokenFile",
            "username",
            "password",
            "as",
        ],
    ),
];

/// Checks the text of a kubeconfig. An empty one is valid.
///
/// # Errors
/// The first mistake.
pub fn check(text: &str) -> Result<(), ShapeError> {
    let whole = |what: String| ShapeError { path: String::new(), what };
    if let Some(place) = yaml::mistake(text) {
        return Err(whole(format!("is not YAML, {place}")));
    }
    let documents = yaml::documents(text).map_err(|_| whole("is not YAML".to_owned()))?;
    documents.iter().try_for_each(document)
}

fn document(document: &Value) -> Result<(), ShapeError> {
    let wrong = |path: &str, what: &str| ShapeError { path: path.to_owned(), what: what.to_owned() };
    let Some(fields) = document.as_object() else {
        return Err(wrong(
            "",
            "is not a kubeconfig: fields such as clusters, contexts and users are expected",
        ));
    };
    if fields.get("kind").is_some_and(|kind| kind != "Config") {
        return Err(wrong("kind", "must be Config: this file is not a kubeconfig"));
    }
    if fields.get("current-context").is_some_and(|c| !c.is_string() && !c.is_null()) {
        return Err(wrong("current-context", "must be a string: the name of a context"));
    }
    for (list, field) in LISTS {
        let entries = match fields.get(list) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(wrong(list, "must be a list")),
        };
        for (i, entry) in entries.iter().enumerate() {
            let at = format!("{list}[{i}]");
            if !entry.get("name").is_some_and(Value::is_string) {
                return Err(wrong(&format!("{at}.name"), "is required, and must be a string"));
            }
            match entry.get(field) {
                Some(Value::Object(_)) => {}
                // `kubectl config` writes users without credentials like this.
                None | Some(Value::Null) if field == "user" => continue,
                _ => return Err(wrong(&format!("{at}.{field}"), "is required, and must be a mapping")),
            }
            texts(&at, field, entry.get(field).unwrap_or(&Value::Null))?;
        }
    }
    Ok(())
}

fn texts(at: &str, field: &str, object: &Value) -> Result<(), ShapeError> {
    let names = TEXTS.iter().find(|(of, _)| *of == field).map_or(&[][..], |(_, names)| names);
    for name in names {
        let path = || format!("{at}.{field}.{name}");
        match object.get(*name) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if name.ends_with("-data") && !is_base64(text) => {
                return Err(ShapeError { path: path(), what: "is not base64".to_owned() });
            }
            Some(Value::String(_)) => {}
            Some(_) => {
                return Err(ShapeError {
                    path: path(),
                    what: "must be a string; write it in quotes".to_owned(),
                });
            }
        }
    }
    let needed = match field {
        "cluster" => "server",
        "context" => "cluster",
        _ => return Ok(()),
    };
    if object.get(needed).and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(ShapeError { path: format!("{at}.{field}.{needed}"), what: "is missing".to_owned() });
    }
    Ok(())
}

/// Judged by characters and length; with or without padding and line breaks.
fn is_base64(text: &str) -> bool {
    let characters: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let body = characters.iter().rev().skip_while(|b| **b == b'=').count();
    let padding = characters.len() - body;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    padding <= 2
        && characters.len().is_multiple_of(4)
        && characters.get(..body).is_some_and(|b| b.iter().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parse_error_names_the_place_and_not_the_value() {
        let user = |user: &str| {
            format!(
                "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'https://a'}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\nusers:\n- name: u\n  user: {user}\n"
            )
        };
        let rows = [
            (user("{token: hunter2}"), ""),
            (user("{}"), ""),
            (user("null"), ""),
            (String::new(), ""),
            (user("{token: [hunter2]}"), "users[0].user.token: must be a string"),
            (user("hunter2"), "users[0].user: is required"),
            (user("{client-key-data: 'hunter2?'}"), "users[0].user.client-key-data: is not base64"),
            (user("{token: 'hunter2\n"), "is not YAML, line "),
            ("hunter2".to_owned(), "is not a kubeconfig"),
            ("users: hunter2".to_owned(), "users: must be a list"),
            ("users: [{user: {token: hunter2}}]".to_owned(), "users[0].name: is required"),
            ("clusters: [{name: c}]".to_owned(), "clusters[0].cluster: is required"),
            ("clusters: [{name: c, cluster: {}}]".to_owned(), "clusters[0].cluster.server: is missing"),
            (
                "contexts: [{name: c, context: {user: u}}]".to_owned(),
                "contexts[0].context.cluster: is missing",
            ),
            ("kind: KubeletConfiguration\npassword: hunter2".to_owned(), "kind: must be Config"),
            ("current-context: [hunter2]".to_owned(), "current-context: must be a string"),
        ];
        for (text, want) in rows {
            let said = check(&text).err().map(|m| m.to_string()).unwrap_or_default();
            assert!(if want.is_empty() { said.is_empty() } else { said.starts_with(want) }, "{text}: {said}");
            assert!(!said.contains("hunter2"), "a secret is shown: {said}");
        }
    }
}

//! Pointer configs: the few lines of Ignition that a machine is provisioned with, and that send it to the config
//! server.
//!
//! What it is not: the server's address and CA, which are facts of the cluster.
//!
//! Source: <https://coreos.github.io/ignition/configuration-v3_5/> (`ignition.config`).

use crate::data_url;
use crate::model::{Config, HttpHeader, Resource};
use crate::translate::{TranslateError, translate};
use crate::{Version, empty};
use serde_json::Value;

/// What precedes the base64 text of a CA in a pointer config.
const CA_TYPE: &str = "text/plain;charset=utf-8";

/// Where a machine fetches its config from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer<'a> {
    /// The server's host, as written in a URL.
    pub host: &'a str,
    /// Its port.
    pub port: u16,
    /// The machine's pool.
    pub pool: &'a str,
    /// The CA that signs the server's certificate: PEM, one or several certificates.
    pub ca: &'a [u8],
    /// The boot token that the machine presents, if the server requires one. It is a secret.
    pub token: Option<&'a str>,
}

impl Pointer<'_> {
    /// Builds the config. An Ignition older than 3.5 needs it in its own version.
    ///
    /// # Errors
    /// A version that cannot express it: with a token, all of spec 2.
    pub fn config(&self, version: Version) -> Result<Value, TranslateError> {
        let Self { host, port, pool, ca, token } = self;
        let mut config: Config = empty();
        let source = |source: String| Resource { source: Some(source), ..Resource::default() };
        let mut merge = source(format!("https://{host}:{port}/config/{pool}"));
        merge.http_headers.extend(token.map(|token| HttpHeader {
            name: "Authorization".to_owned(),
            value: Some(format!("Bearer {token}")),
        }));
        config.ignition.config.merge.push(merge);
        config
            .ignition
            .security
            .tls
            .certificate_authorities
            .push(source(data_url::encode_base64(CA_TYPE, ca)));
        translate(&config, version)
    }
}

/// Replaces the CA in a pointer config that somebody else wrote, and changes nothing else. Returns `false` if it was
/// there already.
///
/// # Errors
/// Why it is not a pointer config with exactly one CA.
pub fn set_ca(config: &mut Value, ca: &[u8]) -> Result<bool, &'static str> {
    let known = config.get("ignition").ok_or("it has no `ignition`")?;
    let cas = known.pointer("/security/tls/certificateAuthorities").and_then(Value::as_array);
    match cas.map(Vec::len) {
        Some(1) => {}
        _ => return Err("ignition.security.tls.certificateAuthorities does not have exactly one entry"),
    }
    let source = config
        .pointer_mut("/ignition/security/tls/certificateAuthorities/0")
        .and_then(Value::as_object_mut)
        .ok_or("ignition.security.tls.certificateAuthorities[0] is not an object")?;
    let wanted = Value::String(data_url::encode_base64(CA_TYPE, ca));
    Ok(source.insert("source".to_owned(), wanted.clone()) != Some(wanted))
}

/// An entry of `ignition.config.merge` that fetches a pool's config: `https://SERVER/config/POOL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolEntry {
    /// Its place in the list.
    pub index: usize,
    /// Host and port of the server, as in a URL; port 443 if it names none.
    pub server: String,
    /// The pool.
    pub pool: String,
}

/// The first such entry; `None` if the config points to no config server.
pub fn pool(config: &Value) -> Option<PoolEntry> {
    let merge = config.pointer("/ignition/config/merge")?.as_array()?;
    let entry = |(index, entry): (usize, &Value)| {
        let url = url::Url::parse(entry.get("source")?.as_str()?).ok()?;
        let pool = url.path().strip_prefix("/config/").filter(|n| !n.is_empty() && !n.contains('/'))?;
        let server = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
        (url.scheme() == "https").then(|| PoolEntry { index, server, pool: pool.to_owned() })
    };
    merge.iter().enumerate().find_map(entry)
}

/// The `Authorization` header that an entry of a pointer config sends. It may be a secret.
pub fn authorization(config: &Value, entry: usize) -> Option<&str> {
    let headers = config.pointer(&format!("/ignition/config/merge/{entry}/httpHeaders"))?.as_array()?;
    let header = headers
        .iter()
        .find(|h| h["name"].as_str().is_some_and(|n| n.eq_ignore_ascii_case("authorization")))?;
    header["value"].as_str()
}

/// The pool that a spec 2 config points to. Spec 2 cannot carry a token.
pub fn old_pool(config: &Value) -> Option<String> {
    let config = config.pointer("/ignition/config")?;
    let appended = config.get("append").cloned().unwrap_or_else(|| Value::Array(vec![]));
    let as_merge = serde_json::json!({"ignition": {"config": {"merge": appended}}});
    pool(&as_merge).map(|entry| entry.pool)
}

/// Puts a boot token into an entry of a pointer config that somebody else wrote, and changes nothing else. Returns
/// `false` if it was there already.
///
/// # Errors
/// Why the config cannot carry a token.
pub fn set_token(config: &mut Value, entry: usize, token: &str) -> Result<bool, &'static str> {
    const HEADER: &str = "Authorization";
    let version = config.pointer("/ignition/version").and_then(Value::as_str).unwrap_or_default();
    if version.starts_with("2.") || version.starts_with("3.0.") {
        return Err("its Ignition version has no HTTP headers; write it in 3.1.0 or newer");
    }
    let wanted = Value::String(format!("Bearer {token}"));
    let entry = config.pointer_mut(&format!("/ignition/config/merge/{entry}")).and_then(Value::as_object_mut);
    let entry = entry.ok_or("ignition.config.merge has no such entry")?;
    let headers = entry.entry("httpHeaders").or_insert_with(|| Value::Array(vec![]));
    let headers = headers.as_array_mut().ok_or("ignition.config.merge[].httpHeaders is not a list")?;
    let is_it = |h: &&mut Value| h["name"].as_str().is_some_and(|n| n.eq_ignore_ascii_case(HEADER));
    match headers.iter_mut().find(is_it) {
        Some(header) if header["value"] == wanted => Ok(false),
        Some(header) => {
            let ours = header["value"].as_str().is_none_or(|v| v.starts_with("Bearer "));
            if !ours {
                return Err("it sends an Authorization header of its own; remove that");
            }
            header["value"] = wanted;
            Ok(true)
        }
        None => {
            headers.push(serde_json::json!({"name": HEADER, "value": wanted}));
            Ok(true)
        }
    }
}

/// The bearer token in a pointer config, if it has one.
pub fn token(config: &Value) -> Option<&str> {
    authorization(config, 0)?.strip_prefix("Bearer ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POINTER: Pointer<'_> =
        Pointer { host: "api-int.example.com", port: 22623, pool: "worker", ca: b"PEM", token: None };

    #[test]
    fn the_pointer_names_the_pool_and_the_ca() {
        let got = POINTER.config(Version::V3_5).unwrap();
        let want = json!({"ignition": {
            "version": "3.5.0",
            "config": {"merge": [{"source": "https://api-int.example.com:22623/config/worker"}]},
            "security": {"tls": {"certificateAuthorities": [
                {"source": "data:text/plain;charset=utf-8;base64,UEVN"},
            ]}},
        }});
        assert_eq!(got, want);
        let old = POINTER.config(Version::V3_3).unwrap();
        assert_eq!(old["ignition"]["version"], "3.3.0");
        assert_eq!(token(&got), None);
    }

    #[test]
    fn a_token_is_a_header_and_reads_back() {
        let with = Pointer { token: Some("a.b"), ..POINTER };
        for version in [Version::V3_1, Version::V3_5] {
            let got = with.config(version).unwrap();
            let headers = &got["ignition"]["config"]["merge"][0]["httpHeaders"];
            assert_eq!(*headers, json!([{"name": "Authorization", "value": "Bearer a.b"}]));
            assert_eq!(token(&got), Some("a.b"));
        }
        let refused = with.config(Version::V2_2).unwrap_err().to_string();
        assert!(!refused.contains("a.b"), "{refused}");
    }

    #[test]
    fn the_entry_that_names_a_pool_is_found_with_its_server() {
        let entry = |source: &str| json!({"ignition": {"config": {"merge": [{"source": "https://other/x"}, {"source": source}]}}});
        for (source, want) in [
            ("https://api-int.example.com:22623/config/worker", Some("api-int.example.com:22623")),
            ("https://api-int.example.com/config/worker", Some("api-int.example.com:443")),
            ("https://[fd00::1]:22623/config/worker", Some("[fd00::1]:22623")),
            // A token is sent only over TLS, and only this path belongs to the config server.
            ("http://api-int.example.com:22624/config/worker", None),
            ("https://api-int.example.com:22623/config/", None),
            ("https://api-int.example.com:22623/config/worker/x", None),
            ("https://api-int.example.com:22623/worker", None),
            ("not a URL", None),
        ] {
            let server = want.map(str::to_owned);
            let want = server.map(|server| PoolEntry { index: 1, server, pool: "worker".to_owned() });
            assert_eq!(pool(&entry(source)), want, "{source}");
        }
        assert_eq!(pool(&json!({})), None);
    }

    #[test]
    fn only_the_one_ca_of_a_foreign_pointer_is_changed() {
        let mut foreign = POINTER.config(Version::V3_1).unwrap();
        foreign["storage"] = json!({"files": [{"path": "/x"}]});
        let before = foreign.clone();
        assert_eq!(set_ca(&mut foreign, b"PEM"), Ok(false));
        assert_eq!(set_ca(&mut foreign, b"NEW"), Ok(true));
        assert_eq!(set_ca(&mut foreign, b"PEM"), Ok(true));
        assert_eq!(foreign, before);
        for wrong in [
            json!({"storage": {}}),
            json!({"ignition": {}}),
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": []}}}}),
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": [{}, {}]}}}}),
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": ["x"]}}}}),
        ] {
            set_ca(&mut wrong.clone(), b"PEM").unwrap_err();
        }
    }
}

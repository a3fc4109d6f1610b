//! Certificates as text (PEM, RFC 7468): found in a text, written from DER, and whether a text has nothing else. Pure.
//!
//! What it is not: a check of the certificates themselves. Who uses one parses it.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc7468>.

use std::fmt::Write as _;

/// The label of a certificate.
pub const CERTIFICATE: &str = "CERTIFICATE";
/// How a certificate begins.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// How a certificate ends.
pub const END: &str = "-----END CERTIFICATE-----";

/// The certificates in a text, in the order of the text: what stands between their marks, without white space. Whether it is
/// a certificate is for whoever uses it to find out.
pub fn certificates(text: &str) -> impl Iterator<Item = String> {
    let body = |part: &str| part.split("-----END").next().unwrap_or_default().split_whitespace().collect();
    text.split(BEGIN).skip(1).map(body)
}

/// The text in parts that end with a certificate each; the last one holds what follows the last certificate.
pub fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(END)
}

/// Whether a text holds certificates, blank lines and comments, and nothing else.
#[must_use]
pub fn is_only_certificates(text: &str) -> bool {
    let (mut inside, mut found) = (false, false);
    for line in text.lines().map(str::trim) {
        match line {
            BEGIN if !inside => (inside, found) = (true, true),
            END if inside => inside = false,
            line if inside || line.is_empty() || line.starts_with('#') => {}
            _ => return false,
        }
    }
    found && !inside
}

/// DER as PEM. `label`: what it is, such as [`CERTIFICATE`].
pub fn from_der(label: &str, der: &[u8]) -> String {
    let text = serde_json::to_value(crate::k8s::ByteString(der.to_vec())).unwrap_or_default();
    let text = text.as_str().unwrap_or_default().as_bytes();
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    let _ = writeln!(out, "-----END {label}-----");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_is_wrapped_and_found_again() {
        let (a, b) = (from_der(CERTIFICATE, &[1; 100]), from_der(CERTIFICATE, &[2; 100]));
        assert!(
            a.starts_with("-----BEGIN CERTIFICATE-----\nAQEB") && a.lines().all(|l| l.len() <= 64),
            "{a}"
        );
        let both = format!("# two\n{a}{b}rest");
        let found: Vec<String> = certificates(&both).collect();
        assert_eq!(found, certificates(&a).chain(certificates(&b)).collect::<Vec<_>>());
        assert!(found.len() == 2 && found.first() != found.last());
        let ends: Vec<bool> = parts(&both).map(|part| part.ends_with(END)).collect();
        assert_eq!(ends, [true, true, false]);
        assert_eq!(parts(&both).collect::<String>(), both);
    }

    #[test]
    fn a_text_of_certificates_has_nothing_else() {
        let one = from_der(CERTIFICATE, &[1; 100]);
        for (text, want) in [
            (one.clone(), true),
            (format!("# a comment\n\n{one}  \n{one}"), true),
            (String::new(), false),
            ("# a comment\n".to_owned(), false),
            (format!("{one}key"), false),
            (from_der("PRIVATE KEY", &[1; 100]), false),
            (one.replace(END, ""), false),
        ] {
            assert_eq!(is_only_certificates(&text), want, "{text}");
        }
    }
}

//! Data URLs (RFC 2397): the only sources whose contents can be read without a network. Pure.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc2397>.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Go's decoder, which other implementations use, ignores the unused bits of the last character.
const DECODER: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A data URL that cannot be decoded. The content may be a secret and is not quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataUrlError {
    /// It starts with something else.
    #[error("not a data URL")]
    NotData,
    /// There is no comma between the header and the data.
    #[error("a data URL needs a comma before the data: data:,TEXT or data:;base64,BYTES")]
    NoComma,
    /// A `%` without two hex digits after it.
    #[error("byte {at} of the data: % must be followed by two hex digits (a plain % is written %25)")]
    Escape {
        /// Offset in the data.
        at: usize,
    },
    /// Not base64. The offending characters are not quoted.
    #[error("the data is not base64 with padding")]
    Base64,
}

/// True for URLs that start with `data:`.
pub fn is_data_url(source: &str) -> bool {
    source.get(..5).is_some_and(|s| s.eq_ignore_ascii_case("data:"))
}

/// The bytes that a data URL holds.
///
/// # Errors
/// A URL of another scheme, without a comma, with a broken escape or with broken base64.
pub fn decode(source: &str) -> Result<Vec<u8>, DataUrlError> {
    let (base64, data) = parts(source)?;
    if !base64 {
        return unescape(data);
    }
    let plain = !data.iter().any(|b| matches!(b, b'%' | b'\r' | b'\n'));
    if plain {
        return DECODER.decode(data).map_err(|_| DataUrlError::Base64);
    }
    let text: Vec<u8> = unescape(data)?.into_iter().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    DECODER.decode(text).map_err(|_| DataUrlError::Base64)
}

/// Like [`decode`], but only checks whether it can be decoded.
///
/// # Errors
/// As [`decode`].
pub fn check(source: &str) -> Result<(), DataUrlError> {
    match parts(source)? {
        (false, data) if !data.contains(&b'%') => Ok(()),
        _ => decode(source).map(|_| ()),
    }
}

/// Whether the data is base64, and the data as written.
fn parts(source: &str) -> Result<(bool, &[u8]), DataUrlError> {
    if !is_data_url(source) {
        return Err(DataUrlError::NotData);
    }
    let (header, data) = source.get(5..).and_then(|s| s.split_once(',')).ok_or(DataUrlError::NoComma)?;
    let last = header.rsplit_once(';').map(|(_, last)| last);
    Ok((last.is_some_and(|last| last.eq_ignore_ascii_case("base64")), data.as_bytes()))
}

/// A data URL of the bytes, with the escapes that templates use: everything except `A-Z a-z 0-9 - _ . ! ~ * ' ( )`.
pub fn encode(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |n: u8| char::from(HEX.get(usize::from(n)).copied().unwrap_or(b'0'));
    let mut url = String::with_capacity(bytes.len() + bytes.len() / 2 + 6);
    url.push_str("data:,");
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&b) {
            url.push(char::from(b));
        } else {
            url.push('%');
            url.push(digit(b >> 4));
            url.push(digit(b & 15));
        }
    }
    url
}

/// A base64 data URL with a media type, as in generated files.
pub fn encode_base64(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn unescape(data: &[u8]) -> Result<Vec<u8>, DataUrlError> {
    let hex = |d: &u8| char::from(*d).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut out = Vec::with_capacity(data.len());
    let mut pieces = data.split(|b| *b == b'%');
    out.extend_from_slice(pieces.next().unwrap_or_default());
    let mut at = out.len();
    for piece in pieces {
        let [h, l, after @ ..] = piece else { return Err(DataUrlError::Escape { at }) };
        let (Some(h), Some(l)) = (hex(h), hex(l)) else { return Err(DataUrlError::Escape { at }) };
        out.push(h << 4 | l);
        out.extend_from_slice(after);
        at += piece.len() + 1;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_urls_decode_to_their_bytes() {
        let rows: [(&str, &[u8]); 9] = [
            ("data:,", b""),
            ("data:,hello%20world%0A", b"hello world\n"),
            ("data:,a+b", b"a+b"),
            ("DATA:,x", b"x"),
            ("data:text/plain;charset=utf-8,%C3%A9", "é".as_bytes()),
            ("data:;base64,aGk=", b"hi"),
            ("data:text/plain;charset=utf-8;base64,aGk%3D", b"hi"),
            ("data:base64,aGk=", b"aGk="),
            ("data:;base64,aG\nk=", b"hi"),
        ];
        for (url, want) in rows {
            assert_eq!(decode(url).as_deref(), Ok(want), "{url}");
            assert_eq!(check(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn broken_data_urls_say_what_is_broken() {
        assert_eq!(decode("https://x/,y"), Err(DataUrlError::NotData));
        assert_eq!(decode("data:text/plain"), Err(DataUrlError::NoComma));
        assert_eq!(decode("data:,ab%2"), Err(DataUrlError::Escape { at: 2 }));
        assert_eq!(decode("data:,%zz"), Err(DataUrlError::Escape { at: 0 }));
        assert_eq!(decode("data:,%20ab%41%4"), Err(DataUrlError::Escape { at: 8 }));
        assert_eq!(check("data:,%20ab%41%4"), Err(DataUrlError::Escape { at: 8 }));
        for bad in ["data:;base64,@@@", "data:;base64,aGk", "data:;base64,aGk=="] {
            assert!(matches!(decode(bad), Err(DataUrlError::Base64)), "{bad}");
            assert_eq!(check(bad), decode(bad).map(|_| ()), "{bad}");
        }
    }

    #[test]
    fn the_escaped_form_keeps_only_the_unreserved_characters() {
        assert_eq!(encode("aZ0-_.!~*'()".as_bytes()), "data:,aZ0-_.!~*'()");
        assert_eq!(encode("/ \né=".as_bytes()), "data:,%2F%20%0A%C3%A9%3D");
    }
}

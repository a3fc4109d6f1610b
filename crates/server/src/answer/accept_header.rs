//! From the `Accept` header to the Ignition version of the answer. Pure; takes any bytes.
//!
//! The rules are the reference's: only elements of the subtype `vnd.coreos.ignition+json` with a version count, the one
//! with the highest `q` decides, and without a usable element the version is 2.2.
//!
//! What it is not: whether the config can be written in that version (see `prepare`).
//!
//! Sources: <https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1>
//! and <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/server/api.go>.

use crate::refusal::Refusal;
use ignition::Version;

/// The subtype that Ignition names itself with.
const SUBTYPE: &str = "vnd.coreos.ignition+json";
/// The version without a usable header. Machines that are too old to send the header know no other.
pub const DEFAULT: Version = Version::V2_2;

/// The version to answer in.
///
/// # Errors
/// [`Refusal::Version`] where the deciding element asks for a version that does not exist here.
pub fn negotiate(header: Option<&[u8]>) -> Result<Version, Refusal> {
    let Some(bytes) = header else { return Ok(DEFAULT) };
    let text = String::from_utf8_lossy(bytes);
    let asked = text.split(',').filter_map(element);
    // Among equal qualities, the first one wins.
    let best = asked.reduce(|best, next| if next.quality > best.quality { next } else { best });
    best.map_or(Ok(DEFAULT), |e| served(e.version))
}

/// A version as the client asks for it.
type RequestedVersion = [u64; 3];

/// Three numbers, with or without a pre-release or build: semver as the reference reads it, which also accepts `3.04.0`
/// and `3.4.0-`.
fn version(text: &str) -> Option<RequestedVersion> {
    let (text, build) = text.split_once('+').unwrap_or((text, ""));
    let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    if !plain(build) || !plain(pre) {
        return None;
    }
    let mut parts = numbers.splitn(3, '.').map(|n| n.parse::<i64>().ok().and_then(|n| u64::try_from(n).ok()));
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// One element that names a version.
struct Element {
    version: RequestedVersion,
    quality: f64,
}

fn element(text: &str) -> Option<Element> {
    let mut parts = text.split(';').map(str::trim);
    let (_, subtype) = parts.next()?.split_once('/')?;
    if subtype != SUBTYPE {
        return None;
    }
    let (mut asked, mut quality) = (None, None);
    for part in parts {
        // The first of each counts, even if it cannot be read.
        if let Some(v) = part.strip_prefix("version=") {
            asked.get_or_insert_with(|| version(v));
        } else if let Some(q) = part.strip_prefix("q=") {
            quality.get_or_insert_with(|| q.parse::<f64>().ok().filter(|q| q.is_finite()));
        }
    }
    Some(Element { version: asked??, quality: quality.flatten().unwrap_or(1.0) })
}

fn served([major, minor, patch]: RequestedVersion) -> Result<Version, Refusal> {
    match (major, minor) {
        (2, 2..) => Ok(Version::V2_2),
        (3, 0) => Ok(Version::V3_0),
        (3, 1) => Ok(Version::V3_1),
        (3, 2) => Ok(Version::V3_2),
        (3, 3) => Ok(Version::V3_3),
        (3, 4) => Ok(Version::V3_4),
        (3, 5) => Ok(Version::V3_5),
        // Answered in 3.5 if the config can be written in it (see `prepared::cache`).
        (3, _) => Ok(Version::V3_6),
        _ => Err(Refusal::Version { asked: format!("{major}.{minor}.{patch}") }),
    }
}

/// Whether the `Accept-Encoding` header allows gzip.
pub fn takes_gzip(header: Option<&[u8]>) -> bool {
    let Some(text) = header.and_then(|h| std::str::from_utf8(h).ok()) else { return false };
    text.split(',').any(|element| {
        let mut parts = element.split(';').map(str::trim);
        let gzip = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
        let refused = parts
            .any(|p| p.strip_prefix("q=").is_some_and(|q| q.trim().parse::<f64>().is_ok_and(|q| q == 0.0)));
        gzip && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::SERVED;
    use proptest::prelude::*;

    /// What RHCOS' Ignition 0.x sends.
    const OLD_IGNITION: &str = "application/vnd.coreos.ignition+json; version=2.4.0, \
        application/vnd.coreos.ignition+json; version=1; q=0.5, */*; q=0.1";

    #[test]
    fn the_version_served_for_each_header() {
        let ign = |v: &str| format!("application/vnd.coreos.ignition+json;version={v}, */*;q=0.1");
        let rows = [
            (OLD_IGNITION.to_owned(), Version::V2_2),
            (ign("3.0.0"), Version::V3_0),
            (ign("3.1.0"), Version::V3_1),
            (ign("3.2.0"), Version::V3_2),
            (ign("3.3.0"), Version::V3_3),
            (ign("3.4.0"), Version::V3_4),
            (ign("3.5.0"), Version::V3_5),
            (ign("3.5.9"), Version::V3_5),
            (ign("3.6.0"), Version::V3_6),
            (ign("3.99.0"), Version::V3_6),
            (ign("3.4.0-experimental"), Version::V3_4),
            (ign("2.2.0"), Version::V2_2),
            (ign("2.9.0"), Version::V2_2),
            (ign("bogus"), DEFAULT),
            (ign("1"), DEFAULT),
            (ign("3.1"), DEFAULT),
            (ign("\"3.1.0\""), DEFAULT),
            (ign("99999999999999999999.0.0"), DEFAULT),
            (ign("3.99999999999999999999.0"), DEFAULT),
            (ign("3.04.0"), Version::V3_4),
            (ign("3.4.0-"), Version::V3_4),
            (ign("3.4.0-01+b.7"), Version::V3_4),
            (ign("3.4.0-a_b"), DEFAULT),
            (ign("3.4.0.1"), DEFAULT),
            (ign("3.4."), DEFAULT),
            (ign("v3.4.0"), DEFAULT),
            (ign(" 3.4.0"), DEFAULT),
            (ign("3. 4.0"), DEFAULT),
            (ign("-3.4.0"), DEFAULT),
            (ign("3.+4.0"), DEFAULT),
            ("application/vnd.coreos.ignition+json; Version=3.4.0".to_owned(), DEFAULT),
            ("application/vnd.coreos.ignition+json; charset=utf-8; version=3.4.0".to_owned(), Version::V3_4),
            ("  application/vnd.coreos.ignition+json ;  version=3.4.0 ; q=0".to_owned(), Version::V3_4),
            ("APPLICATION/VND.COREOS.IGNITION+JSON;version=3.4.0".to_owned(), DEFAULT),
            ("*/vnd.coreos.ignition+json;version=3.4.0".to_owned(), Version::V3_4),
            ("application/*;version=3.4.0".to_owned(), DEFAULT),
            ("*/*;version=3.4.0".to_owned(), DEFAULT),
            (",,application/vnd.coreos.ignition+json;;version=3.1.0,".to_owned(), Version::V3_1),
            (format!("{}{}", "text/html, ".repeat(900), ign("3.3.0")), Version::V3_3),
            ("application/vnd.coreos.ignition+json".to_owned(), DEFAULT),
            ("vnd.coreos.ignition+json;version=3.4.0".to_owned(), DEFAULT),
            ("text/plain".to_owned(), DEFAULT),
            ("text/html;q=x".to_owned(), DEFAULT),
            (";;;".to_owned(), DEFAULT),
            (String::new(), DEFAULT),
            ("*/*".to_owned(), DEFAULT),
        ];
        for (header, want) in rows {
            assert_eq!(negotiate(Some(header.as_bytes())), Ok(want), "{header:?}");
        }
        assert_eq!(negotiate(None), Ok(DEFAULT));
    }

    #[test]
    fn the_element_of_the_highest_quality_decides_and_the_first_of_equals() {
        let rows = [
            (
                "a/vnd.coreos.ignition+json;version=3.2.0;q=0.5, a/vnd.coreos.ignition+json;version=3.4.0;q=0.9",
                "3.4.0",
            ),
            ("a/vnd.coreos.ignition+json;version=2.9.0, a/vnd.coreos.ignition+json;version=3.1.0", "2.2.0"),
            (
                "a/vnd.coreos.ignition+json;version=3.1.0;q=0.1;q=1, a/vnd.coreos.ignition+json;version=3.3.0;q=0.2",
                "3.3.0",
            ),
            ("a/vnd.coreos.ignition+json;version=3.1.0;version=3.3.0", "3.1.0"),
            (
                "a/vnd.coreos.ignition+json;version=3.1.0;q=NaN, a/vnd.coreos.ignition+json;version=3.3.0;q=0.9",
                "3.1.0",
            ),
        ];
        for (header, want) in rows {
            let got = negotiate(Some(header.as_bytes())).map(Version::as_str);
            assert_eq!(got, Ok(want), "{header:?}");
        }
    }

    #[test]
    fn versions_that_do_not_exist_are_refused_by_name_and_lower_choices_are_not_tried() {
        for asked in ["4.0.0", "1.0.0", "2.0.0", "2.1.0", "0.1.0"] {
            let header = format!(
                "a/vnd.coreos.ignition+json;version={asked}, a/vnd.coreos.ignition+json;version=3.4.0;q=0.2"
            );
            let want = Err(Refusal::Version { asked: asked.to_owned() });
            assert_eq!(negotiate(Some(header.as_bytes())), want, "{asked}");
        }
    }

    #[test]
    fn gzip_is_taken_only_where_it_is_named_and_not_refused() {
        for yes in ["gzip", "br, gzip", "GZIP;q=0.5", "deflate,gzip ; q=1.0"] {
            assert!(takes_gzip(Some(yes.as_bytes())), "{yes}");
        }
        for no in ["identity", "", "gzip;q=0", "gzip; q=0.0", "xgzip", "*"] {
            assert!(!takes_gzip(Some(no.as_bytes())), "{no}");
        }
        assert!(!takes_gzip(None));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_version_or_a_refusal(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            match negotiate(Some(&bytes)) {
                Ok(v) => prop_assert!(v == Version::V3_0 || SERVED.contains(&v)),
                Err(e) => prop_assert_eq!(e.reason(), "UnknownVersion"),
            }
            takes_gzip(Some(&bytes));
        }

        /// Near misses of real headers reach further into the parser than noise does.
        #[test]
        fn mutated_headers_end_in_a_version_or_a_refusal(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("application/vnd.coreos.ignition+json"), Just(";"), Just(","), Just("version="), Just("q="),
                    Just("3.4.0"), Just("2"), Just("."), Just("-"), Just(" "), Just("/"), Just("="), Just("1e999"),
                    Just("NaN"), Just("\u{0}"), Just("ü"), Just("*/*"),
                ],
                0..60,
            )
        ) {
            let header = pieces.concat();
            let first = negotiate(Some(header.as_bytes()));
            prop_assert_eq!(&first, &negotiate(Some(header.as_bytes())));
            if let Ok(v) = first {
                prop_assert!(v == Version::V3_0 || SERVED.contains(&v));
            }
        }
    }
}

//! Any bytes as `Accept`, `Accept-Encoding`, path: the config server's readers never panic, and end in what is served or
//! in a refusal that names its cause. The first line is the path, the second `Accept-Encoding`, the rest `Accept`.
//!
//! The modules are taken by path: the crate `server` itself needs a TLS library and a Kubernetes client, which would make
//! each round of the fuzzer's build minutes longer and find nothing here.
#![no_main]

#[path = "../../crates/server/src/answer/accept_header.rs"]
#[allow(dead_code, reason = "the server uses all of it")]
mod accept_header;
#[path = "../../crates/server/src/refusal.rs"]
#[allow(dead_code, reason = "the server uses all of it")]
mod refusal;
#[path = "../../crates/server/src/answer/route.rs"]
#[allow(dead_code, reason = "the server uses all of it")]
mod route;

use ignition::Version;
use libfuzzer_sys::fuzz_target;

/// What no version may be served from: an element of lower quality than another, whatever comes after it.
const WORSE: &[u8] = b",a/vnd.coreos.ignition+json;version=3.2.0;q=-1";

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.splitn(3, |b| *b == b'\n');
    let path = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let encoding = lines.next().unwrap_or_default();
    let header = lines.next().unwrap_or_default();

    match route::route(&path) {
        Ok(route::Route::Config { pool }) => {
            assert!(!pool.is_empty() && pool.len() <= 253);
            assert!(pool.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.'));
            assert_eq!(route::route(&format!("/config/{pool}")), Ok(route::Route::Config { pool }));
        }
        Ok(_) => {}
        Err(e) => assert!(e.status().is_client_error() && !e.body().to_string().is_empty()),
    }

    let answer = accept_header::negotiate(Some(header));
    match &answer {
        Ok(version) => assert!(*version == Version::V3_0 || accept_header::SERVED.contains(version)),
        Err(e) => assert_eq!(e.status().as_u16(), 400),
    }
    // A version that was chosen stays chosen when something worse is added, as long as all of it is read.
    let decided = answer.is_err() || answer != Ok(accept_header::DEFAULT);
    if decided && header.len() + WORSE.len() < 4096 && !has_negative_quality(header) {
        assert_eq!(accept_header::negotiate(Some(&[header, WORSE].concat())), answer);
    }
    if accept_header::takes_gzip(Some(encoding)) {
        assert!(encoding.to_ascii_lowercase().windows(4).any(|w| w == b"gzip"));
        assert!(!accept_header::takes_gzip(Some(b"identity")));
    }
});

fn has_negative_quality(header: &[u8]) -> bool {
    header.windows(3).any(|w| w == b"q=-")
}

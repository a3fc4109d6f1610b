//! Tests of `tls`: cipher suites, versions, and a certificate that does not match its key.

use super::*;
use std::sync::atomic::{AtomicI64, Ordering};

fn names(profile: &TlsProfile) -> Vec<String> {
    let all = aws_lc_rs::default_provider().cipher_suites;
    let t = tls_settings(profile, &all);
    t.suites.iter().filter(|s| s.tls13().is_none()).map(|s| format!("{:?}", s.suite())).collect()
}

fn mk(suites: &[&str]) -> TlsProfile {
    let cipher_suites = suites.iter().map(|s| (*s).to_owned()).collect();
    TlsProfile { cipher_suites, ..TlsProfile::default() }
}

#[test]
fn cipher_suites_are_known_by_all_their_names_and_an_unknown_list_means_all() {
    let all = names(&mk(&[]));
    assert_eq!(all.len(), 6);
    let one = ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256".to_owned()];
    for name in [
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ] {
        assert_eq!(names(&mk(&[name, "unknown"])), one, "{name}");
    }
    assert_eq!(names(&mk(&["TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"])), all);
    assert!(names(&mk(&["TLS_AES_128_GCM_SHA256"])).is_empty(), "only TLS 1.3 was asked for");
}

#[test]
fn tls_versions_that_are_too_old_are_raised_with_a_warning() {
    let all = aws_lc_rs::default_provider().cipher_suites;
    for (version, count, notes) in
        [("VersionTLS10", 2, 1), ("VersionTLS12", 2, 0), ("VersionTLS13", 1, 0), ("", 2, 0), ("bogus", 2, 1)]
    {
        let t =
            tls_settings(&TlsProfile { min_version: version.to_owned(), cipher_suites: Vec::new() }, &all);
        assert_eq!((t.versions.len(), t.notes.len()), (count, notes), "{version}");
    }
}

#[derive(Debug, Default)]
struct Counts {
    not_after: AtomicI64,
    failures: AtomicI64,
}

impl CertificateUse for Counts {
    fn in_force(&self, not_after: i64) {
        self.not_after.store(not_after, Ordering::SeqCst);
    }
    fn unusable(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_certificate_that_does_not_match_its_key_is_refused_and_the_old_pair_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("c"), dir.path().join("k"));
    let mk_pair = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (a, b) = (mk_pair(), mk_pair());
    std::fs::write(&cert, a.cert.pem()).unwrap();
    std::fs::write(&key, a.signing_key.serialize_pem()).unwrap();
    let counts = Arc::new(Counts::default());
    let certificate = Certificate::load(&cert, &key, counts.clone()).unwrap();
    let in_force = || certificate.current.read().unwrap().cert.first().unwrap().to_vec();
    std::fs::write(&cert, b.cert.pem()).unwrap();
    certificate.reload(&cert, &key).unwrap_err();
    std::fs::write(&cert, "nonsense").unwrap();
    certificate.reload(&cert, &key).unwrap_err();
    std::fs::write(&cert, b.cert.pem()).unwrap();
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    let told = certificate.reload(&cert, &key).unwrap_err().to_string();
    assert!(!told.contains("AAAA"), "{told}");
    assert_eq!(in_force(), a.cert.der().to_vec());
    assert_eq!(counts.failures.load(Ordering::SeqCst), 3);
    std::fs::write(&key, b.signing_key.serialize_pem()).unwrap();
    certificate.reload(&cert, &key).unwrap();
    assert_eq!(in_force(), b.cert.der().to_vec());
    assert!(counts.not_after.load(Ordering::SeqCst) > 0);
}

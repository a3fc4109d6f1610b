//! Tables of what each token allows, and of Secrets that somebody wrote by hand.

use super::*;

fn mk_token(seed: u8) -> Token {
    Token::new(&[seed; ENTROPY])
}

fn at(minute: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 7));

#[test]
fn a_token_reads_back_and_shows_only_its_id() {
    let token = mk_token(0xab);
    assert_eq!(Token::parse(&token.reveal()), Some(token.clone()));
    assert_eq!(format!("{token:?}"), "Token(abababababab)");
    for bad in [
        "",
        ".",
        "abababababab",
        "abababababab.",
        "ABABABABABAB.00",
        "../etc.x",
        &format!("{}0", token.reveal()),
    ] {
        assert_eq!(Token::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_boot_token_is_judged_by_secret_pool_address_expiry_and_use() {
    let token = mk_token(1);
    let plain = Record::new(&token, "worker");
    let single = Record { single_use: true, ..plain.clone() };
    let used = Record { used: Some(TokenUse { at: at(10), by: HERE }), ..single.clone() };
    let limited = Record { expires: Some(at(20)), ..plain.clone() };
    let bound = Record { addresses: vec![network("10.0.0.0/24").unwrap()], ..plain.clone() };
    let mut other = mk_token(2);
    other.id.clone_from(&token.id);
    let refuse = Verdict::Refuse;
    let rows = [
        (&plain, &token, "worker", HERE, 10, Verdict::Accept),
        (&plain, &other, "worker", HERE, 10, refuse(TokenRefusal::Unknown)),
        (&plain, &mk_token(2), "worker", HERE, 10, refuse(TokenRefusal::Unknown)),
        (&plain, &token, "master", HERE, 10, refuse(TokenRefusal::Pool)),
        (&limited, &other, "master", HERE, 30, refuse(TokenRefusal::Unknown)),
        (&limited, &token, "worker", HERE, 19, Verdict::Accept),
        (&limited, &token, "worker", HERE, 20, refuse(TokenRefusal::Expired)),
        (&bound, &token, "worker", HERE, 10, Verdict::Accept),
        (&bound, &token, "worker", THERE, 10, refuse(TokenRefusal::Address)),
        (&single, &token, "worker", HERE, 10, Verdict::Claim(TokenUse { at: at(10), by: HERE })),
        (&used, &token, "worker", HERE, 25, Verdict::Accept),
        (&used, &token, "worker", HERE, 26, refuse(TokenRefusal::Used)),
        (&used, &token, "worker", THERE, 11, refuse(TokenRefusal::Used)),
    ];
    for (record, shown, pool, from, minute, want) in rows {
        assert_eq!(record.check(shown, pool, from, at(minute)), want, "{record:?} {pool} {from} {minute}");
    }
    assert!(used.is_spent(at(26)) && !used.is_spent(at(25)));
    assert!(limited.is_spent(at(20)) && !plain.is_spent(at(99_999)));
    let shared = Record { used: Some(TokenUse { at: at(10), by: HERE }), ..limited.clone() };
    let rows = [
        (&plain, 10, "good"),
        (&used, 25, "in use"),
        (&used, 26, "used"),
        (&shared, 19, "in use"),
        (&shared, 20, "expired"),
    ];
    for (record, minute, want) in rows {
        assert_eq!(record.state(at(minute)).as_str(), want, "{record:?} {minute}");
    }
}

#[test]
fn a_record_reads_back_from_its_secret_which_does_not_hold_the_token() {
    let token = mk_token(3);
    let plain = Record::new(&token, "infra");
    let full = Record {
        node: Some("worker-7".to_owned()),
        addresses: vec![network("10.0.0.0/24").unwrap(), network("fd00::5").unwrap()],
        expires: Some(at(60)),
        single_use: true,
        grace: SignedDuration::from_secs(30),
        used: Some(TokenUse { at: at(3), by: HERE }),
        ..plain.clone()
    };
    for record in [plain, full] {
        let secret = record.to_secret();
        assert_eq!(Record::from_secret(&secret), Ok(record));
        assert!(!serde_json::to_string(&secret).unwrap().contains(&token.secret));
        let told = secret.data.unwrap().values().any(|v| v.0 == token.secret.as_bytes());
        assert!(!told, "the Secret does not hold the token itself");
    }
}

#[test]
fn a_secret_that_is_wrong_is_refused_by_name_and_key_without_its_values() {
    let rows = [
        ("sha256", "hunter2"),
        ("pool", ""),
        ("expires", "hunter2"),
        ("addresses", "10.0.0.0/24,hunter2"),
        ("uses", "hunter2"),
        ("grace-seconds", "-1"),
        ("used-at", "hunter2"),
    ];
    for (key, value) in rows {
        let mut secret = Record::new(&mk_token(4), "worker").to_secret();
        secret.data.as_mut().unwrap().insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
        let told = Record::from_secret(&secret).unwrap_err();
        assert!(told.contains(key) && told.contains("boot-token-040404040404"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

/// Machines hold tokens for months, so a Secret of the version before has the same meaning and is written unchanged.
#[test]
fn a_token_of_the_version_before_is_read_and_written_unchanged() {
    let text = include_str!("../../../../../tests/compatibility/v0.1.0/boot-token.yaml");
    let secret: Secret = crate::formats::yaml::from_str(text).unwrap();
    let record = Record::from_secret(&secret).unwrap();
    let token = Token::new(&[7; ENTROPY]);
    assert!(text.contains(&token.reveal()) && record.has_token(&token));
    assert_eq!((record.pool.as_str(), record.node.as_deref()), ("worker", Some("new-1")));
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    assert_eq!(record.expires, Some(time("2030-01-31T12:00:00Z")));
    assert_eq!(record.used, Some(TokenUse { at: time("2026-11-22T12:00:00Z"), by: HERE }));
    let used = time("2026-11-22T12:10:00Z");
    assert_eq!(record.check(&token, "worker", HERE, used), Verdict::Accept);
    assert_eq!(record.check(&token, "worker", THERE, used), Verdict::Refuse(TokenRefusal::Used));
    // A server of the version before, which may still run, can read what is written now.
    let again = record.to_secret();
    assert_eq!((again.data, again.type_), (secret.data, secret.type_));
    assert_eq!(again.metadata.labels, secret.metadata.labels);
}

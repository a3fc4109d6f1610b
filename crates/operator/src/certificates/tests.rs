//! The life of a CA and its certificate: created, kept, renewed, owned by somebody else, unreadable.

use super::*;

fn day(n: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(24 * n)
}

/// The objects in the cluster.
#[derive(Default)]
struct Cluster {
    ca: Option<Secret>,
    bundle: Option<ConfigMap>,
    serving: Option<Secret>,
    hosts: Vec<String>,
}

impl Cluster {
    fn mk(hosts: &[&str]) -> Self {
        Self { hosts: hosts.iter().map(|h| (*h).to_owned()).collect(), ..Self::default() }
    }

    fn have(&self) -> StoredObjects<'_> {
        StoredObjects {
            names: SERVER,
            ca: self.ca.as_ref(),
            bundle: self.bundle.as_ref(),
            serving: self.serving.as_ref(),
            hosts: &self.hosts,
        }
    }

    /// One pass of the operator.
    fn pass(&mut self, now: Timestamp) -> Decision {
        let decision = decide(&self.have(), now);
        let Issued { ca, bundle, serving } = issue(&decision, &self.have(), now).unwrap();
        self.ca = ca.or(self.ca.take());
        self.bundle = bundle.or(self.bundle.take());
        self.serving = serving.or(self.serving.take());
        decision
    }

    fn trusted(&self) -> Vec<String> {
        server_tls::fingerprints(&self.bundle.as_ref().unwrap().data.as_ref().unwrap()[server_tls::BUNDLE])
    }

    fn signer(&self) -> String {
        self.serving.as_ref().unwrap().metadata.annotations.as_ref().unwrap()[server_tls::SIGNER].clone()
    }
}

fn is_new(decision: &Decision) -> (bool, bool) {
    (decision.ca.is_some(), decision.serving.is_some())
}

#[test]
fn what_is_made_is_kept_for_eight_years_and_machines_trust_a_new_ca_before_it_signs() {
    let mut cluster = Cluster::mk(&["api-int.example.com", "10.0.0.5", "fd00::5"]);
    assert_eq!(is_new(&cluster.pass(day(0))), (true, true));
    let first = cluster.trusted();
    assert_eq!((first.len(), vec![cluster.signer()]), (1, first.clone()));
    for quiet in [0, 1, 30, 365 * 8 - 10] {
        assert_eq!(cluster.pass(day(quiet)), Decision::default(), "{quiet}");
    }
    // After eight years, a new CA is added to the old one, and the certificate stays.
    assert_eq!(is_new(&cluster.pass(day(365 * 8))), (true, false));
    assert_eq!(cluster.trusted().len(), 2, "machines trust both");
    assert_eq!(vec![cluster.signer()], first);
    assert_eq!(is_new(&cluster.pass(day(365 * 8 + 3))), (false, false));
    // A week later the new CA signs.
    assert_eq!(is_new(&cluster.pass(day(365 * 8 + 10))), (false, true));
    assert_ne!(vec![cluster.signer()], first);
    assert!(cluster.trusted().contains(&cluster.signer()));
    // The old CA expires and leaves the bundle; nothing else is made.
    assert_eq!(is_new(&cluster.pass(day(365 * 10 + 10))), (false, false));
    assert_eq!(cluster.trusted(), [cluster.signer()]);
}

#[test]
fn the_certificate_is_for_the_names_and_signed_by_the_ca() {
    let mut cluster = Cluster::mk(&["api-int.example.com", "10.0.0.5"]);
    cluster.pass(day(0));
    let pem = |s: &Secret| field(s, server_tls::CERT).unwrap().to_owned();
    let (ca, serving) = (pem(cluster.ca.as_ref().unwrap()), pem(cluster.serving.as_ref().unwrap()));
    let der = |pem: &str| x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap().1.contents;
    let (ca, serving) = (der(&ca), der(&serving));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.into()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
    let at = |t: Timestamp| {
        let seconds = u64::try_from(t.as_second()).unwrap();
        rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    };
    use rustls::client::danger::ServerCertVerifier as _;
    let verified = |name: &str, when: Timestamp| {
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&serving.clone().into(), &[], &name, &[], at(when)).is_ok()
    };
    assert!(verified("api-int.example.com", day(0)) && verified("10.0.0.5", day(3000)));
    assert!(!verified("other.example.com", day(0)) && !verified("10.0.0.5", day(4000)));
}

#[test]
fn another_name_or_a_broken_or_missing_object_is_made_anew() {
    let mut cluster = Cluster::mk(&["a.example.com"]);
    cluster.pass(day(0));
    let ca = cluster.trusted();
    cluster.hosts.push("b.example.com".to_owned());
    let decision = cluster.pass(day(1));
    assert_eq!(decision.serving, Some("the server's names changed"));
    assert_eq!(decision.former, [""; 0], "all of them count still");
    assert_eq!(cluster.pass(day(1)), Decision::default());
    let broken = ByteString(b"nonsense".to_vec());
    cluster.serving.as_mut().unwrap().data.as_mut().unwrap().insert("tls.crt".to_owned(), broken.clone());
    assert_eq!(is_new(&cluster.pass(day(1))), (false, true));
    cluster.bundle = None;
    cluster.pass(day(1));
    assert_eq!(cluster.trusted(), ca);
    cluster.ca.as_mut().unwrap().data.as_mut().unwrap().insert("tls.crt".to_owned(), broken);
    assert_eq!(cluster.pass(day(2)).ca, Some("it cannot be read"));
    cluster.ca = None;
    cluster.bundle = None;
    cluster.pass(day(2));
    assert_eq!(cluster.trusted(), [cluster.signer()], "nobody trusts the lost CA");
}

#[test]
fn what_others_made_is_used_and_not_written() {
    let mut cluster = Cluster::mk(&["a.example.com"]);
    cluster.pass(day(0));
    for secret in [&mut cluster.ca, &mut cluster.serving] {
        secret.as_mut().unwrap().metadata.labels = None;
    }
    cluster.hosts.push("b.example.com".to_owned());
    let decision = cluster.pass(day(365 * 9));
    assert_eq!(is_new(&decision), (false, false));
    assert_eq!(decision.foreign.len(), 2, "{decision:?}");
    // Where somebody else's CA has its key, it signs our certificate.
    cluster.serving = None;
    assert_eq!(is_new(&cluster.pass(day(1))), (false, true));
    let key = cluster.ca.as_mut().unwrap().data.as_mut().unwrap().remove("tls.key");
    assert!(key.is_some());
    cluster.serving = None;
    let decision = decide(&cluster.have(), day(1));
    let told = issue(&decision, &cluster.have(), day(1)).unwrap_err().to_string();
    assert!(told.contains("machine-config-server-ca"), "{told}");
}

/// Machines that were provisioned before ask at the name that the server had then.
#[test]
fn a_certificate_keeps_the_last_names_that_the_server_had() {
    let names = |cluster: &Cluster| {
        read(field(cluster.serving.as_ref().unwrap(), server_tls::CERT).unwrap()).unwrap().hosts
    };
    let mut cluster = Cluster::mk(&["a.example.com", "10.0.0.1"]);
    cluster.pass(day(0));
    cluster.hosts = vec!["b.example.com".to_owned(), "10.0.0.1".to_owned()];
    assert_eq!(is_new(&cluster.pass(day(1))), (false, true));
    assert_eq!(names(&cluster), ["b.example.com", "10.0.0.1", "a.example.com"]);
    assert_eq!(cluster.pass(day(1)), Decision::default());
    // A name that it has already, and one that no longer counts, change nothing.
    cluster.hosts = vec!["a.example.com".to_owned()];
    assert_eq!(cluster.pass(day(2)), Decision::default());
    // Of many names the latest are kept.
    for n in 0..10 {
        cluster.hosts = vec![format!("n{n}.example.com")];
        assert_eq!(cluster.pass(day(3)).serving, Some("the server's names changed"), "{n}");
    }
    let want: Vec<String> = (0..=FORMER).map(|n| format!("n{}.example.com", 9 - n)).collect();
    assert_eq!(names(&cluster), want);
    // Years later nobody asks at them.
    assert_eq!(is_new(&cluster.pass(day(365 * 8))), (true, false));
    assert_eq!(cluster.pass(day(365 * 8 + 10)).serving, Some("it is eight years old"));
    assert_eq!(names(&cluster), ["n9.example.com"]);
}

/// A CA as an administrator puts it there, with its key, that ends on this day.
fn theirs(ends: i64, have: &StoredObjects<'_>) -> Secret {
    let mut secret = make_ca(day(ends) - VALID, have).unwrap();
    secret.metadata.labels = None;
    secret
}

/// The same for the config server, in a cluster without anything else.
pub(crate) fn theirs_until(end: Timestamp) -> Secret {
    let mut secret = make_ca(end - VALID, &Cluster::mk(&[]).have()).unwrap();
    secret.metadata.labels = None;
    secret
}

#[test]
fn a_ca_of_somebody_else_that_ends_is_told_in_time_and_what_it_has_signed_ends_with_it() {
    let mut cluster = Cluster::mk(&["a.example.com"]);
    cluster.ca = Some(theirs(100, &cluster.have()));
    let end = |secret: &Option<Secret>| {
        read(field(secret.as_ref().unwrap(), server_tls::CERT).unwrap()).unwrap().not_after
    };
    assert_eq!(is_new(&cluster.pass(day(0))), (false, true));
    assert_eq!((end(&cluster.serving), end(&cluster.ca)), (day(100), day(100)));
    let ca = cluster.trusted();
    // Columns: the day; whether it is told. No certificate is made anew that would not last longer.
    for (n, told) in [(60, false), (69, false), (71, true), (99, true), (101, true)] {
        let decision = cluster.pass(day(n));
        assert_eq!((is_new(&decision), decision.ending.is_some()), ((false, false), told), "{n}");
        assert_eq!(cluster.trusted(), ca, "{n}: machines keep what they have");
        let why = decision.ending.unwrap_or_default();
        assert_eq!(
            why.contains("machine-config-server-ca is not the operator's, and ended at"),
            n > 100,
            "{n}: {why}"
        );
    }
    // Where there is nothing to keep, nothing is written without a CA.
    let without = StoredObjects { bundle: None, ..cluster.have() };
    let issued = issue(&decide(&without, day(101)), &without, day(101)).unwrap();
    assert_eq!(issued.bundle, None);
    // It is renewed in time: machines trust both, and the new one signs.
    cluster.ca = Some(theirs(1000, &cluster.have()));
    let decision = cluster.pass(day(80));
    assert_eq!((decision.serving, decision.ending), (Some("it expires soon"), None));
    assert_eq!((end(&cluster.serving), cluster.trusted().len()), (day(1000), 2));
    assert!(cluster.trusted().contains(&cluster.signer()));
    assert_eq!(cluster.pass(day(80)).serving, None);
}

/// Earlier versions have signed for ten years, whatever the CA had left.
#[test]
fn a_certificate_that_outlives_its_signer_is_made_anew_before_that_ends() {
    let mut cluster = Cluster::mk(&["a.example.com"]);
    // Signed by a CA that ends on day 100, for longer than that.
    let short = theirs(100, &cluster.have());
    let long = make_ca(day(0), &cluster.have()).unwrap();
    cluster.ca = Some(long.clone());
    cluster.pass(day(0));
    let signer = server_tls::fingerprints(field(&short, server_tls::CERT).unwrap()).remove(0);
    let annotations = cluster.serving.as_mut().unwrap().metadata.annotations.as_mut().unwrap();
    annotations.insert(server_tls::SIGNER.to_owned(), signer);
    cluster.ca = Some(short);
    cluster.pass(day(1));
    cluster.ca = Some(long);
    assert_eq!(cluster.pass(day(60)).serving, None);
    assert_eq!(cluster.pass(day(80)).serving, Some("it expires soon"));
    assert_eq!(cluster.pass(day(80)).serving, None);
}

/// The operator's own: a CA of which five years are left signs for five years.
#[test]
fn a_certificate_that_is_made_late_is_made_anew_before_the_old_ca_ends() {
    let mut cluster = Cluster::mk(&["a.example.com"]);
    cluster.pass(day(0));
    cluster.hosts.push("b.example.com".to_owned());
    assert_eq!(is_new(&cluster.pass(day(365 * 5))), (false, true));
    assert_eq!(is_new(&cluster.pass(day(365 * 8))), (true, false));
    assert_eq!(is_new(&cluster.pass(day(365 * 8 + 10))), (false, false));
    let decision = cluster.pass(day(365 * 10 - 20));
    assert_eq!((is_new(&decision), decision.serving), ((false, true), Some("it expires soon")));
    assert!(decision.former.is_empty() && decision.ending.is_none(), "{decision:?}");
}

//! TLS: versions and cipher suites, and a certificate that is reloaded when its files change, which inotify(7) reports.
//!
//! Guarantees: a changed certificate is used for new handshakes; connections and tickets stay valid. If a certificate or
//! key cannot be used, the old pair stays in use; a log line and [`CertificateUse`] report it. TLS 1.0, 1.1 and CBC suites are
//! never offered, whatever the profile says.

use crate::ListenError;
use crate::file_changes::{Watch, changed};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use std::fmt::Debug;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The largest certificate or key file that is read.
const MAX_PEM: u64 = 1 << 20;

/// The versions and cipher suites to offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsProfile {
    /// `VersionTLS12` or `VersionTLS13`; others are raised to 1.2.
    pub min_version: String,
    /// IANA, Go or OpenSSL names of suites; empty: all safe ones.
    pub cipher_suites: Vec<String>,
}

impl Default for TlsProfile {
    fn default() -> Self {
        Self { min_version: "VersionTLS12".to_owned(), cipher_suites: Vec::new() }
    }
}

/// The TLS 1.2 suites by their other names: IANA (with Go's alias, if there is one) and OpenSSL.
const TLS12_NAMES: [(&str, &str); 6] = [
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
];

/// A profile in rustls' terms.
#[derive(Debug)]
struct TlsSettings {
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
    /// The parts of the profile that cannot be used.
    notes: Vec<String>,
}

/// TLS 1.3 suites cannot be chosen, as in Go: all of them are offered. If a list names no known suite, all safe ones are
/// offered, as by the reference.
fn tls_settings(profile: &TlsProfile, all: &[SupportedCipherSuite]) -> TlsSettings {
    let mut notes = Vec::new();
    let versions = match profile.min_version.as_str() {
        "VersionTLS13" => vec![&rustls::version::TLS13],
        other => {
            if !matches!(other, "" | "VersionTLS12") {
                notes.push(format!("minimum TLS version {other:?} is not supported; TLS 1.2 is used"));
            }
            vec![&rustls::version::TLS12, &rustls::version::TLS13]
        }
    };
    let iana = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
    let same = |suite: &SupportedCipherSuite, wanted: &str| {
        let name = iana(suite);
        let openssl = TLS12_NAMES.iter().find(|(n, _)| *n == name).map(|(_, o)| *o);
        name == wanted || name.strip_suffix("_SHA256") == Some(wanted) || openssl == Some(wanted)
    };
    for wanted in &profile.cipher_suites {
        if !all.iter().any(|s| same(s, wanted)) {
            notes.push(format!("cipher suite {wanted:?} is not supported"));
        }
    }
    let known = profile.cipher_suites.iter().any(|w| all.iter().any(|s| same(s, w)));
    let keep =
        |s: &&SupportedCipherSuite| s.tls13().is_some() || profile.cipher_suites.iter().any(|w| same(s, w));
    let suites = if known { all.iter().filter(keep).copied().collect() } else { all.to_vec() };
    TlsSettings { versions, suites, notes }
}

/// Is notified of changes of the certificate: a part's metrics.
pub trait CertificateUse: Debug + Send + Sync {
    /// A certificate is used from now on. It expires at this time, in seconds since 1970.
    fn in_force(&self, not_after: i64);
    /// Changed files cannot be used; the certificate before them stays in use.
    fn unusable(&self);
}

/// The certificate and key in use.
#[derive(Debug)]
struct Certificate {
    /// The files that they are read from, if there are any.
    files: Option<(PathBuf, PathBuf)>,
    /// Whether this process has made the first one itself.
    is_own: bool,
    provider: CryptoProvider,
    current: RwLock<Arc<CertifiedKey>>,
    told: Arc<dyn CertificateUse>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A file's identity and times: they change when the file is replaced.
type Stamp = (u64, u64, i64, i64, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let of = |m: Metadata| (m.dev(), m.ino(), m.mtime(), m.mtime_nsec(), m.len());
    std::fs::metadata(path).ok().map(of)
}

/// Reads a certificate and key, and checks that they belong together.
fn read(cert: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, ListenError> {
    let file = |path: &Path| -> Result<Vec<u8>, ListenError> {
        let unreadable = |source| ListenError::Read { path: path.to_owned(), source };
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > MAX_PEM {
            let why = format!("larger than {MAX_PEM} bytes");
            return Err(ListenError::Certificate { path: path.to_owned(), why });
        }
        std::fs::read(path).map_err(unreadable)
    };
    let bad = |path: &Path, why: String| ListenError::Certificate { path: path.to_owned(), why };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&file(cert)?)
        .collect::<Result<_, _>>()
        .map_err(|e| bad(cert, format!("not a PEM certificate: {e}")))?;
    if chain.is_empty() {
        return Err(bad(cert, "holds no PEM certificate".to_owned()));
    }
    // The parser's error could quote the key.
    let private = PrivateKeyDer::from_pem_slice(&file(key)?)
        .map_err(|_| bad(key, "not a PEM private key".to_owned()))?;
    CertifiedKey::from_der(chain, private, provider)
        .map_err(|e| bad(cert, format!("does not match the key {}: {e}", key.display())))
}

/// When the server's certificate expires, in seconds since 1970.
fn not_after(pair: &CertifiedKey) -> Option<i64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(pair.cert.first()?).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

impl Certificate {
    /// Reads the pair for the first time.
    fn load(cert: &Path, key: &Path, told: Arc<dyn CertificateUse>) -> Result<Self, ListenError> {
        let provider = aws_lc_rs::default_provider();
        let pair = read(cert, key, &provider)?;
        told.in_force(not_after(&pair).unwrap_or_default());
        let current = RwLock::new(Arc::new(pair));
        Ok(Self { files: Some((cert.to_owned(), key.to_owned())), is_own: false, provider, current, told })
    }

    /// Makes a self-signed pair. No client can verify it, but connections are encrypted.
    fn self_signed() -> Result<Self, ListenError> {
        let failed = |e: &dyn std::fmt::Display| ListenError::Tls(format!("a self-signed certificate: {e}"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(|e| failed(&e))?;
        let provider = aws_lc_rs::default_provider();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(|e| failed(&e))?;
        let pair =
            CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider).map_err(|e| failed(&e))?;
        let current = RwLock::new(Arc::new(pair));
        Ok(Self { files: None, is_own: true, provider, current, told: Arc::new(NotCounted) })
    }

    /// Reads the pair again. After an error, the old one stays in use.
    fn reload(&self, cert: &Path, key: &Path) -> Result<(), ListenError> {
        let pair = read(cert, key, &self.provider).inspect_err(|_| self.told.unusable())?;
        self.told.in_force(not_after(&pair).unwrap_or_default());
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
        Ok(())
    }

    /// Follows the files until `stop`.
    async fn follow(&self, stop: CancellationToken) {
        let Some((cert, key)) = &self.files else { return stop.cancelled().await };
        let stamps = || (stamp(cert), stamp(key));
        // A certificate that has come between the start and now was not read yet.
        let mut seen = if self.is_own { (None, None) } else { stamps() };
        loop {
            // The watch begins before the files are read, so that no change is missed.
            let watch = Watch::of(&[cert, key]);
            let now = stamps();
            if now == seen {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = changed(watch) => continue,
                }
            }
            seen = now;
            if now.0.is_none() || now.1.is_none() {
                tracing::warn!(path = %cert.display(), "the certificate or its key is gone; the last one that was read stays \
                    in use");
                continue;
            }
            match self.reload(cert, key) {
                Ok(()) => {
                    tracing::info!(path = %cert.display(), "the certificate changed; the new one is in force");
                }
                Err(error) => {
                    tracing::error!(
                        "the changed certificate cannot be used, the old one stays in force: {error}"
                    );
                }
            }
        }
    }
}

/// For a certificate that has no metrics.
#[derive(Debug)]
pub(crate) struct NotCounted;

impl CertificateUse for NotCounted {
    fn in_force(&self, _not_after: i64) {}
    fn unusable(&self) {}
}

/// The listener's TLS settings now. Certificate and profile may change; connections stay open.
#[derive(Debug)]
pub struct Tls {
    certificate: Arc<Certificate>,
    http2: bool,
    profile: RwLock<TlsProfile>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the certificate for the first time. `http2`: HTTP/2 is offered, too.
    ///
    /// # Errors
    /// A certificate, key or profile that cannot be used.
    pub fn load(
        cert: &Path,
        key: &Path,
        profile: &TlsProfile,
        http2: bool,
        told: Arc<dyn CertificateUse>,
    ) -> Result<Self, ListenError> {
        Self::with(Certificate::load(cert, key, told)?, profile, http2)
    }

    /// As [`Self::load`] without HTTP/2 and metrics of its own. While one of the files is not there, with a certificate that
    /// this process makes for itself: a Secret may come after the pod that mounts it.
    ///
    /// # Errors
    /// A certificate or key that is there and cannot be used, or a profile that cannot be used.
    pub fn load_when_there(cert: &Path, key: &Path, profile: &TlsProfile) -> Result<Self, ListenError> {
        if stamp(cert).is_some() && stamp(key).is_some() {
            return Self::load(cert, key, profile, false, Arc::new(NotCounted));
        }
        tracing::info!(path = %cert.display(), "there is no certificate yet; a self-signed one is used until there is one");
        let files = Some((cert.to_owned(), key.to_owned()));
        Self::with(Certificate { files, ..Certificate::self_signed()? }, profile, false)
    }

    /// With a self-signed certificate, which no client can verify.
    ///
    /// # Errors
    /// The certificate cannot be made, or the profile cannot be used.
    pub fn self_signed(profile: &TlsProfile) -> Result<Self, ListenError> {
        Self::with(Certificate::self_signed()?, profile, false)
    }

    fn with(certificate: Certificate, profile: &TlsProfile, http2: bool) -> Result<Self, ListenError> {
        let certificate = Arc::new(certificate);
        let config = server_config(profile, http2, Arc::clone(&certificate))?;
        let (profile, config) = (RwLock::new(profile.clone()), RwLock::new(config));
        Ok(Self { certificate, http2, profile, config })
    }

    /// The acceptor for one handshake.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Sets the profile for new handshakes. If it cannot be used, the old one stays in use.
    pub fn set_profile(&self, profile: TlsProfile) {
        if *self.profile.read().unwrap_or_else(PoisonError::into_inner) == profile {
            return;
        }
        match server_config(&profile, self.http2, Arc::clone(&self.certificate)) {
            Ok(config) => {
                tracing::info!(?profile, "the TLS profile changed; the new one is in force");
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                *self.profile.write().unwrap_or_else(PoisonError::into_inner) = profile;
            }
            Err(error) => {
                tracing::error!(
                    ?profile,
                    "the changed TLS profile cannot be used, the old one stays: {error}"
                );
            }
        }
    }

    /// Follows the certificate's files until `stop`.
    pub async fn follow_certificate(&self, stop: CancellationToken) {
        self.certificate.follow(stop).await;
    }
}

/// The configuration of the TLS listener.
fn server_config(
    profile: &TlsProfile,
    http2: bool,
    certificate: Arc<Certificate>,
) -> Result<Arc<ServerConfig>, ListenError> {
    let base = aws_lc_rs::default_provider();
    let TlsSettings { versions, suites, notes } = tls_settings(profile, &base.cipher_suites);
    for note in notes {
        tracing::warn!("TLS profile: {note}");
    }
    let provider = Arc::new(CryptoProvider { cipher_suites: suites, ..base });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|e| ListenError::Tls(e.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    // Stateless tickets: ten thousand machines that reconnect take no memory.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(|e| ListenError::Tls(e.to_string()))?;
    config.alpn_protocols =
        if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![b"http/1.1".to_vec()] };
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;

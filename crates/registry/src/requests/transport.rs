//! One HTTP request to a registry, to its token server, or to where they redirect: TLS, proxies, timeouts, redirects, and how much
//! of an answer is read.
//!
//! Credentials go to the server that they are for: a redirect to another one does not take them along, and none goes on from TLS
//! to plain text.
//!
//! What it is not: logins (see `request`), or mirrors (see `routes`).
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc9110>.

use crate::cache::Cache;
use crate::credentials::Credentials;
use crate::requests::error::RequestFailure;
use crate::requests::routes::Routes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Backoff, chain};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use kube::Client;
use kube::client::Body;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Redirects that are followed: a registry's to its store, and that store's to another.
const REDIRECTS: usize = 5;
/// Characters of a server's own words in an error.
const WORDS: usize = 200;

/// How long things may take, and how much is read.
#[derive(Debug, Clone)]
pub struct Limits {
    /// For a connection: it is made in milliseconds or not at all.
    pub connect: Duration,
    /// Within which the next bytes arrive.
    pub silence: Duration,
    /// For one document. They have some kilobytes.
    pub request: Duration,
    /// For one image with all attempts at all of its places.
    pub whole: Duration,
    /// Attempts of one request.
    pub attempts: u32,
    /// The waits between them.
    pub pause: Backoff,
    /// Bytes of a document. Container tools read no longer ones either.
    pub document: usize,
    /// Bytes of the layers that are read for one file, packed and unpacked.
    pub layers: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(20),
            request: Duration::from_secs(30),
            whole: Duration::from_secs(60),
            attempts: 3,
            pause: Backoff { first: Duration::from_millis(500), last: Duration::from_secs(5) },
            document: 4 << 20,
            layers: 2 << 30,
        }
    }
}

/// Which certificates are trusted: those that this computer trusts, and these.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    everywhere: Vec<Vec<u8>>,
    hosts: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Trust {
    /// Adds a bundle (PEM). `host`: for this registry only, as `HOST` or `HOST:PORT`. Returns how many certificates it has.
    pub fn add(&mut self, host: Option<&str>, pem: &[u8]) -> usize {
        let certificates: Vec<Vec<u8>> =
            CertificateDer::pem_slice_iter(pem).flatten().map(|c| c.as_ref().to_vec()).collect();
        let count = certificates.len();
        match host {
            Some(host) => self.hosts.entry(host.to_owned()).or_default().extend(certificates),
            None => self.everywhere.extend(certificates),
        }
        count
    }
}

/// Which proxies lead to registries.
#[derive(Debug, Clone, Default)]
pub struct Proxies(Option<Arc<Matcher>>);

impl Proxies {
    /// Those of the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`.
    #[must_use]
    pub fn of_environment() -> Self {
        Self(Some(Arc::new(Matcher::from_env())))
    }

    /// These, by the scheme of what is asked, and what is reached without them.
    #[must_use]
    pub fn new(http: &str, https: &str, no: &str) -> Self {
        Self(Some(Arc::new(Matcher::builder().http(http).https(https).no(no).build())))
    }

    fn of(&self, url: &Uri) -> Option<Uri> {
        self.0.as_ref()?.intercept(url).map(|proxy| with_login(&proxy))
    }
}

/// The proxy's URL together with name and password, which the client reads there.
fn with_login(proxy: &Intercept) -> Uri {
    let login = || {
        let basic = proxy.basic_auth()?.to_str().ok()?.strip_prefix("Basic ")?;
        let (name, password) = String::from_utf8(STANDARD.decode(basic).ok()?)
            .ok()?
            .split_once(':')
            .map(|(n, p)| (encoded(n), encoded(p)))?;
        let (scheme, authority) = (proxy.uri().scheme()?.clone(), proxy.uri().authority()?);
        Uri::builder()
            .scheme(scheme)
            .authority(format!("{name}:{password}@{authority}"))
            .path_and_query("/")
            .build()
            .ok()
    };
    login().unwrap_or_else(|| proxy.uri().clone())
}

/// Everything but letters, digits and `-._~` as `%XX` (RFC 3986, section 2.3).
#[must_use]
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// How registries are talked to.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// With which credentials.
    pub credentials: Credentials,
    /// By which mirrors.
    pub routes: Routes,
    /// Whose certificates are trusted.
    pub trust: Trust,
    /// Through which proxies.
    pub proxies: Proxies,
    /// Without TLS, or with certificates that nobody vouches for, whatever the registry.
    pub insecure: bool,
    /// How long, and how much.
    pub limits: Limits,
    /// What is known already.
    pub cache: Cache,
}

/// A request.
pub(crate) struct RegistryRequest<'a> {
    /// [`Method::GET`] is what it is everywhere but for a login with a form, and a deletion.
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) accept: &'a str,
    pub(crate) authorization: Option<HeaderValue>,
    /// The body of a POST.
    pub(crate) form: Option<String>,
    /// The registry may have any certificate.
    pub(crate) insecure: bool,
}

/// The connections of one [`crate::Registry`].
#[derive(Default)]
pub(crate) struct Transport {
    clients: Mutex<HashMap<String, Client>>,
    trusted_here: OnceLock<Vec<Vec<u8>>>,
}

impl Transport {
    /// Sends a request, and follows redirects. The answer's body is not read yet.
    pub(crate) async fn send(
        &self,
        settings: &Settings,
        ask: &RegistryRequest<'_>,
    ) -> Result<Response<Body>, RequestFailure> {
        let after = settings.limits.request;
        let answer = tokio::time::timeout(after, self.follow(settings, ask));
        answer.await.unwrap_or(Err(RequestFailure::Silent { after }))
    }

    async fn follow(
        &self,
        settings: &Settings,
        ask: &RegistryRequest<'_>,
    ) -> Result<Response<Body>, RequestFailure> {
        let (mut url, mut authorization, mut insecure) =
            (ask.url.clone(), ask.authorization.clone(), ask.insecure);
        for _ in 0..=REDIRECTS {
            let client = self.client(settings, &url, insecure)?;
            let path = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            let mut request = Request::builder().method(&ask.method).uri(path).header(ACCEPT, ask.accept);
            if let Some(value) = &authorization {
                request = request.header(AUTHORIZATION, value);
            }
            let body = match &ask.form {
                Some(form) => {
                    request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
                    Body::from(form.clone().into_bytes())
                }
                None => Body::empty(),
            };
            let request = request.body(body).map_err(|e| RequestFailure::Unreadable(e.to_string()))?;
            let answer = client.send(request).await.map_err(|e| RequestFailure::Unreachable(chain(&e)))?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            if ask.method != Method::GET {
                return Err(RequestFailure::Lies("it redirects a login or a deletion".to_owned()));
            }
            let next = target(&url, answer.headers().get(LOCATION))?;
            if url.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                return Err(RequestFailure::Lies("it redirects from https to plain text".to_owned()));
            }
            if next.authority() != url.authority() || next.scheme() != url.scheme() {
                (authorization, insecure) = (None, insecure && next.host() == url.host());
            }
            url = next;
        }
        Err(RequestFailure::Lies(format!("it redirects more than {REDIRECTS} times")))
    }

    fn client(&self, settings: &Settings, url: &Uri, insecure: bool) -> Result<Client, RequestFailure> {
        let (Some(scheme), Some(authority)) = (url.scheme().cloned(), url.authority().cloned()) else {
            return Err(RequestFailure::Lies("it redirects to a URL without a host".to_owned()));
        };
        let key = format!("{scheme}://{authority} {insecure}");
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let base = Uri::builder().scheme(scheme).authority(authority.clone()).path_and_query("/").build();
        let mut config = kube::Config::new(base.map_err(|e| RequestFailure::Unreadable(e.to_string()))?);
        config.default_retry = false;
        config.accept_invalid_certs = insecure;
        config.connect_timeout = Some(settings.limits.connect);
        config.read_timeout = Some(settings.limits.silence);
        config.write_timeout = Some(settings.limits.silence);
        config.reset_reader_on_write = true;
        config.proxy_url = settings.proxies.of(url);
        config.root_cert = Some(self.trusted(settings, authority.as_str()));
        let client = Client::try_from(config).map_err(|e| RequestFailure::Unreachable(chain(&e)))?;
        clients.insert(key, client.clone());
        Ok(client)
    }

    /// The certificates that vouch for this server.
    fn trusted(&self, settings: &Settings, server: &str) -> Vec<Vec<u8>> {
        let of_this_computer = self.trusted_here.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs();
            found.certs.into_iter().map(|c| c.as_ref().to_vec()).collect()
        });
        let Trust { everywhere, hosts } = &settings.trust;
        let own = hosts.get(server).into_iter().flatten();
        of_this_computer.iter().chain(everywhere).chain(own).cloned().collect()
    }
}

/// Where a redirect leads.
fn target(from: &Uri, location: Option<&HeaderValue>) -> Result<Uri, RequestFailure> {
    let bad = || RequestFailure::Lies("it redirects to something that is not a URL".to_owned());
    let text = location.and_then(|l| l.to_str().ok()).ok_or_else(bad)?;
    let whole = match text.strip_prefix('/') {
        Some(rest) if !rest.starts_with('/') => {
            let (scheme, authority) =
                (from.scheme_str().unwrap_or_default(), from.authority().map_or("", |a| a.as_str()));
            format!("{scheme}://{authority}{text}")
        }
        _ => text.to_owned(),
    };
    let url: Uri = whole.parse().map_err(|_| bad())?;
    let known = matches!(url.scheme_str(), Some("https" | "http"));
    // A name and a password in a URL would go into logs.
    let plain = url.authority().is_some_and(|a| !a.as_str().contains('@'));
    if known && plain { Ok(url) } else { Err(bad()) }
}

/// What a status means that is none of success. Reads the server's own words.
pub(crate) async fn refused(answer: Response<Body>, limits: &Limits, sent: bool) -> RequestFailure {
    let code = answer.status().as_u16();
    let again = answer.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
    match code {
        401 | 403 => RequestFailure::Denied { sent },
        404 => RequestFailure::NotFound,
        _ => {
            let read = Limits { document: 64 << 10, ..limits.clone() };
            let words = body(answer, &read).await.map(|b| words(&b)).unwrap_or_default();
            RequestFailure::Status { code, words, again: again.map(Duration::from_secs) }
        }
    }
}

/// The message of a registry's error, as `: words`.
fn words(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = json.pointer("/errors/0/message").and_then(serde_json::Value::as_str).unwrap_or_default();
    let clean: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.is_empty() { clean } else { format!(": {}", api::formats::text::cut(&clean, WORDS)) }
}

/// Reads an answer, up to the limit of a document.
pub(crate) async fn body(answer: Response<Body>, limits: &Limits) -> Result<Vec<u8>, RequestFailure> {
    let after = limits.request;
    let read = async {
        let (mut body, mut all) = (answer.into_body(), vec![]);
        while let Some(bytes) = next(&mut body, limits).await? {
            if all.len() + bytes.len() > limits.document {
                return Err(RequestFailure::TooLarge { most: limits.document });
            }
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    };
    tokio::time::timeout(after, read).await.unwrap_or(Err(RequestFailure::Silent { after }))
}

/// The next bytes of an answer.
pub(crate) async fn next(body: &mut Body, limits: &Limits) -> Result<Option<Vec<u8>>, RequestFailure> {
    let after = limits.silence;
    loop {
        let frame =
            tokio::time::timeout(after, body.frame()).await.map_err(|_| RequestFailure::Silent { after })?;
        match frame {
            None => return Ok(None),
            Some(Err(e)) => return Err(RequestFailure::Cut(chain(&e))),
            // Trailers hold nothing that is read.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data.to_vec()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_name_and_password_reach_the_client_and_no_proxy_is_kept() {
        let proxies = Proxies::new("", "http://me:p%40ss@proxy.example:3128", ".cluster.local");
        let of = |url: &str| proxies.of(&url.parse().unwrap()).map(|u| u.to_string());
        assert_eq!(of("https://q.io/v2/").as_deref(), Some("http://me:p%40ss@proxy.example:3128/"));
        assert_eq!((of("https://r.cluster.local/v2/"), of("http://q.io/v2/")), (None, None));
        assert!(!format!("{proxies:?}").contains("ss@"), "{proxies:?}");
    }

    #[test]
    fn a_redirect_leads_to_a_url_of_a_server() {
        let from: Uri = "https://q.io:5000/v2/x".parse().unwrap();
        let to =
            |text: &str| target(&from, Some(&HeaderValue::from_str(text).unwrap())).map(|u| u.to_string());
        assert_eq!(to("/b?c=1").unwrap(), "https://q.io:5000/b?c=1");
        assert_eq!(to("https://cdn.io/b").unwrap(), "https://cdn.io/b");
        for bad in ["//cdn.io/b", "b", "ftp://x/y", "https://a:b@c/", "", "file:///etc/passwd"] {
            assert!(to(bad).is_err(), "{bad}");
        }
        assert!(target(&from, None).is_err());
    }

    #[test]
    fn a_servers_words_are_cut_and_have_no_control_characters() {
        let long = serde_json::json!({"errors": [{"message": format!("a\u{1b}[31m{}", "x".repeat(500))}]});
        let text = words(long.to_string().as_bytes());
        assert!(text.starts_with(": a [31m") && text.chars().count() < 250, "{text}");
        assert_eq!(words(b"<html>"), "");
    }
}

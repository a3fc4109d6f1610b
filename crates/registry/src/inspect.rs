//! From a reference to what the image says of itself: each place of the image in turn, logins, retries, and digests that are
//! verified before a document is read.
//!
//! Guarantee: what is returned for a digest is what that digest names, whichever mirror sent it. A tag is what one registry says
//! at one moment; [`ImageFacts::image`] is the same image by its digest.

use crate::challenge::Challenge;
use crate::credentials::Login;
use crate::documents::{ACCEPTED, Document, ImageConfig, Listed, Part};
use crate::error::{RegistryError, Why};
use crate::facts::{ImageFacts, LayerFacts};
use crate::reference::{Digest, Reference};
use crate::routes::Place;
use crate::transport::{Ask, Limits, Settings, Transport, body, encoded, refused};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Response, Uri};
use kube::client::Body;
use serde::Deserialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// The header in which a registry says what it sends.
const SENT_DIGEST: &str = "docker-content-digest";
/// The architecture that is looked at where none is asked for and the image is for several.
const USUAL: &str = "amd64";
/// Whatever it is.
const ANYTHING: &str = "*/*";

/// Looks into images. It holds connections and tokens, so one of them is made for several images, and dropped after that.
pub struct Registry {
    pub(crate) settings: Settings,
    transport: Transport,
    /// What each place wants in `Authorization`.
    logins: Mutex<HashMap<String, HeaderValue>>,
    /// Insecure registries that do not speak TLS.
    plain: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What a reference leads to.
pub(crate) struct Found {
    pub(crate) digest: Digest,
    pub(crate) document: Document,
}

/// An image for one architecture.
pub(crate) struct Image {
    pub(crate) config: Part,
    pub(crate) layers: Vec<Part>,
    /// Of the index; empty where there is none.
    architectures: Vec<String>,
}

impl Registry {
    /// With these settings. Nothing is asked yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, transport: Transport::default(), logins: Mutex::default(), plain: Mutex::default() }
    }

    /// What the image says of itself. `architecture`: as Go calls it; without one, that of a single image, and of an image for
    /// several the usual one or the first.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn inspect(
        &self,
        image: &Reference,
        architecture: Option<&str>,
    ) -> Result<Arc<ImageFacts>, RegistryError> {
        let after = self.settings.limits.whole;
        let look = Box::pin(self.look(image, architecture));
        tokio::time::timeout(after, look)
            .await
            .unwrap_or_else(|_| Err(failed(image, image.server(), Why::Silent { after })))
    }

    async fn look(
        &self,
        image: &Reference,
        architecture: Option<&str>,
    ) -> Result<Arc<ImageFacts>, RegistryError> {
        let wanted = architecture.unwrap_or_default();
        let known = |digest: &Digest| self.settings.cache.get(digest, wanted);
        if let Some(facts) = image.digest().and_then(known) {
            return Ok(self.named(image, &facts));
        }
        let found = self.document(image).await?;
        let digest = found.digest.clone();
        if let Some(facts) = known(&digest) {
            return Ok(self.named(image, &facts));
        }
        let one = self.image(image, found, architecture).await?;
        let bytes = self.blob(image, &one.config).await?;
        let unreadable =
            |why| failed(image, image.server(), Why::Unreadable(format!("the image's config: {why}")));
        let config = ImageConfig::read(&bytes).map_err(unreadable)?;
        let architectures =
            if one.architectures.is_empty() { vec![config.architecture.clone()] } else { one.architectures };
        if architecture.is_some_and(|a| a != config.architecture) || config.os != "linux" {
            return Err(RegistryError::Architecture {
                image: image.to_string(),
                wanted: format!("linux/{}", architecture.unwrap_or(USUAL)),
                has: vec![format!("{}/{}", config.os, config.architecture)],
            });
        }
        let labels = config.labels();
        let layers = one.layers.iter().map(|l| LayerFacts { digest: l.digest.to_string(), size: l.size });
        let facts = ImageFacts {
            image: image.at(digest.clone()).to_string(),
            architecture: config.architecture,
            architectures,
            created: config.created,
            size: one.layers.iter().fold(0, |sum: u64, l| sum.saturating_add(l.size)),
            layers: layers.collect(),
            ..ImageFacts::default()
        };
        let facts = Arc::new(facts.with_labels(labels));
        self.settings.cache.put(digest, wanted.to_owned(), facts.clone());
        Ok(facts)
    }

    /// The facts under the name that was asked for: the same digest may be in several repositories.
    fn named(&self, image: &Reference, facts: &Arc<ImageFacts>) -> Arc<ImageFacts> {
        let digest = facts.image.rsplit_once('@').and_then(|(_, digest)| Digest::parse(digest));
        let name = digest.map(|digest| image.at(digest).to_string()).filter(|name| *name != facts.image);
        name.map_or_else(|| facts.clone(), |image| Arc::new(ImageFacts { image, ..ImageFacts::clone(facts) }))
    }

    /// The image for an architecture.
    pub(crate) async fn image(
        &self,
        image: &Reference,
        found: Found,
        architecture: Option<&str>,
    ) -> Result<Image, RegistryError> {
        let listed = match found.document {
            Document::Manifest { config, layers } => {
                return Ok(Image { config, layers, architectures: vec![] });
            }
            Document::Index(listed) => listed,
        };
        let has: Vec<String> = listed.iter().map(|l| l.architecture.clone()).collect();
        let find = |wanted: &str| listed.iter().find(|l| l.architecture == wanted);
        let one: Option<&Listed> = match architecture {
            Some(wanted) => find(wanted),
            None => find(USUAL).or_else(|| listed.first()),
        };
        let Some(one) = one else {
            return Err(RegistryError::Architecture {
                image: image.to_string(),
                wanted: format!("linux/{}", architecture.unwrap_or(USUAL)),
                has,
            });
        };
        match self.document(&image.at(one.digest.clone())).await?.document {
            Document::Manifest { config, layers } => Ok(Image { config, layers, architectures: has }),
            Document::Index(_) => Err(failed(
                image,
                image.server(),
                Why::Unreadable("an index of images in an index of images".to_owned()),
            )),
        }
    }

    /// The index or the manifest that a reference names.
    pub(crate) async fn document(&self, image: &Reference) -> Result<Found, RegistryError> {
        let mut tries = self.tries(image)?;
        loop {
            match self.document_at(&tries.place()?).await {
                Ok(found) => return Ok(found),
                Err(why) => tries.after(why).await,
            }
        }
    }

    async fn document_at(&self, place: &Place) -> Result<Found, Why> {
        let path = format!("manifests/{}", place.image.wanted());
        let answer = self.get(place, &path, ACCEPTED).await?;
        let said = answer.headers().get(SENT_DIGEST).and_then(|v| v.to_str().ok()).and_then(Digest::parse);
        let bytes = body(answer, &self.settings.limits).await?;
        let digest = Digest::of(&bytes);
        // By a digest, that one counts, and not what the registry says of its answer.
        let wanted = place.image.digest().cloned().or(said);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != digest) {
            return Err(Why::Lies(format!("the manifest has the digest {digest}, not {wanted}")));
        }
        let document = Document::read(&bytes).map_err(Why::Unreadable)?;
        Ok(Found { digest, document })
    }

    /// A small part of an image: its config.
    async fn blob(&self, image: &Reference, part: &Part) -> Result<Vec<u8>, RegistryError> {
        let mut tries = self.tries(&image.at(part.digest.clone()))?;
        loop {
            match self.blob_at(&tries.place()?, part).await {
                Ok(bytes) => return Ok(bytes),
                Err(why) => tries.after(why).await,
            }
        }
    }

    async fn blob_at(&self, place: &Place, part: &Part) -> Result<Vec<u8>, Why> {
        let limits = &self.settings.limits;
        if part.size > limits.document as u64 {
            return Err(Why::TooLarge { most: limits.document });
        }
        let answer = self.get(place, &format!("blobs/{}", part.digest), ANYTHING).await?;
        let bytes = body(answer, limits).await?;
        if bytes.len() as u64 != part.size || Digest::of(&bytes) != part.digest {
            return Err(Why::Lies(format!("blob {} has other bytes than its digest says", part.digest)));
        }
        Ok(bytes)
    }

    /// The places of an image, to be asked one after the other.
    pub(crate) fn tries(&self, image: &Reference) -> Result<Tries, RegistryError> {
        let blocked = |scope| RegistryError::Blocked { image: image.to_string(), scope };
        Ok(Tries {
            image: image.to_string(),
            places: self.settings.routes.places(image).map_err(blocked)?.into(),
            attempt: 0,
            tried: vec![],
            limits: self.settings.limits.clone(),
        })
    }

    /// One GET at a place, logged in as it demands. Only an answer with success is returned.
    pub(crate) async fn get(&self, place: &Place, path: &str, accept: &str) -> Result<Response<Body>, Why> {
        let (server, repository) = (place.image.server(), place.image.repository());
        let insecure = place.insecure || self.settings.insecure;
        let login_of = format!("{server}/{repository}");
        let known = || self.logins.lock().unwrap_or_else(PoisonError::into_inner).get(&login_of).cloned();
        let mut authorization = known();
        for challenged in [false, true] {
            let answer = self
                .by_some_scheme(server, &repository, path, accept, authorization.clone(), insecure)
                .await?;
            let (scheme, answer) = answer;
            if answer.status().is_success() {
                return Ok(answer);
            }
            let sent = authorization.is_some() && self.settings.credentials.of(&place.image).is_some();
            if answer.status() != http::StatusCode::UNAUTHORIZED || challenged {
                return Err(refused(answer, &self.settings.limits, sent).await);
            }
            let headers = answer.headers().get_all(WWW_AUTHENTICATE);
            let challenge = Challenge::read(headers.iter().filter_map(|v| v.to_str().ok()));
            let Some(challenge) = challenge else { return Err(Why::Denied { sent }) };
            let value = self.login(place, scheme, challenge, insecure).await?;
            self.logins
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(login_of.clone(), value.clone());
            authorization = Some(value);
        }
        Err(Why::Denied { sent: true })
    }

    /// By TLS; a registry that need not be secure is asked without where it does not speak it.
    async fn by_some_scheme(
        &self,
        server: &str,
        repository: &str,
        path: &str,
        accept: &str,
        authorization: Option<HeaderValue>,
        insecure: bool,
    ) -> Result<(&'static str, Response<Body>), Why> {
        let send = |scheme: &'static str| {
            let authorization = authorization.clone();
            async move {
                let url = format!("{scheme}://{server}/v2/{repository}/{path}");
                let url: Uri = url.parse().map_err(|_| Why::Unreadable(format!("{url} is no URL")))?;
                let ask = Ask { url, accept, authorization, form: None, insecure };
                Ok((scheme, self.transport.send(&self.settings, &ask).await?))
            }
        };
        let is_plain = || self.plain.lock().unwrap_or_else(PoisonError::into_inner).contains(server);
        if insecure && is_plain() {
            return send("http").await;
        }
        match send("https").await {
            Err(first @ Why::Unreachable(_)) if insecure => match send("http").await {
                Ok(answer) => {
                    self.plain.lock().unwrap_or_else(PoisonError::into_inner).insert(server.to_owned());
                    Ok(answer)
                }
                Err(Why::Unreachable(_)) => Err(first),
                other => other,
            },
            other => other,
        }
    }

    /// What goes into `Authorization` to meet a challenge.
    async fn login(
        &self,
        place: &Place,
        scheme: &str,
        challenge: Challenge,
        insecure: bool,
    ) -> Result<HeaderValue, Why> {
        let login = self.settings.credentials.of(&place.image);
        match (challenge, login) {
            (Challenge::Basic, Some(Login::Password(name, password))) => basic(name, password),
            (Challenge::Basic, _) => Err(Why::Denied { sent: false }),
            (Challenge::Bearer { realm, service, scope }, login) => {
                let scope = if scope.is_empty() {
                    format!("repository:{}:pull", place.image.repository())
                } else {
                    scope
                };
                let url: Uri = realm
                    .parse()
                    .map_err(|_| Why::Lies("it names a token server that is no URL".to_owned()))?;
                if url.scheme_str() != Some("https") && scheme == "https" {
                    return Err(Why::Lies("it sends logins to a token server without TLS".to_owned()));
                }
                let own = url.host()
                    == Uri::try_from(format!("{scheme}://{}", place.image.server()))
                        .ok()
                        .as_ref()
                        .and_then(Uri::host);
                let mut query = format!("service={}&scope={}", encoded(&service), encoded(&scope));
                let (mut form, mut authorization, sent) = (None, None, login.is_some());
                match login {
                    Some(Login::Password(name, password)) => authorization = Some(basic(name, password)?),
                    Some(Login::Identity(token)) => {
                        query.push_str(&format!(
                            "&grant_type=refresh_token&client_id=mco&refresh_token={}",
                            encoded(token)
                        ));
                        form = Some(query.clone());
                    }
                    None => {}
                }
                let asked = match &form {
                    Some(_) => url,
                    None => {
                        let with = if url.query().is_some() { '&' } else { '?' };
                        format!("{realm}{with}{query}")
                            .parse()
                            .map_err(|_| Why::Lies("it names a token server that is no URL".to_owned()))?
                    }
                };
                let ask = Ask {
                    url: asked,
                    accept: "application/json",
                    authorization,
                    form,
                    insecure: insecure && own,
                };
                let answer = self.transport.send(&self.settings, &ask).await?;
                if !answer.status().is_success() {
                    let why = refused(answer, &self.settings.limits, sent).await;
                    // 400 is how some token servers refuse a password.
                    return Err(if matches!(why, Why::Status { code: 400, .. }) {
                        Why::Denied { sent }
                    } else {
                        why
                    });
                }
                bearer(&body(answer, &self.settings.limits).await?)
            }
        }
    }
}

/// The places of an image: each is asked several times where that may help, then the next one.
pub(crate) struct Tries {
    image: String,
    places: VecDeque<Place>,
    attempt: u32,
    tried: Vec<(String, Why)>,
    limits: Limits,
}

impl Tries {
    /// The place to ask now; else why there is none.
    pub(crate) fn place(&mut self) -> Result<Place, RegistryError> {
        let tried = &mut self.tried;
        let none = || RegistryError::Failed { image: self.image.clone(), tried: std::mem::take(tried) };
        self.places.front().cloned().ok_or_else(none)
    }

    /// It has failed so. Returns when the next place may be asked.
    pub(crate) async fn after(&mut self, why: Why) {
        if why.should_retry() && self.attempt + 1 < self.limits.attempts {
            let asked = if let Why::Status { again, .. } = &why { *again } else { None };
            let pause = self.limits.pause.delay(self.attempt);
            tokio::time::sleep(asked.map_or(pause, |asked| asked.max(pause).min(self.limits.pause.last)))
                .await;
            self.attempt += 1;
            return;
        }
        if let Some(place) = self.places.pop_front() {
            self.tried.push((place.image.server().to_owned(), why));
        }
        self.attempt = 0;
    }
}

/// An error at one place.
pub(crate) fn failed(image: &Reference, place: &str, why: Why) -> RegistryError {
    RegistryError::Failed { image: image.to_string(), tried: vec![(place.to_owned(), why)] }
}

fn secret(text: &str) -> Result<HeaderValue, Why> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| Why::Unreadable("a token with odd characters".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic(name: &str, password: &str) -> Result<HeaderValue, Why> {
    secret(&format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
}

fn bearer(answer: &[u8]) -> Result<HeaderValue, Why> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        token: String,
        #[serde(default)]
        access_token: String,
    }
    // The parser's own message could quote the token.
    let answer: Answer = serde_json::from_slice(answer)
        .map_err(|_| Why::Unreadable("the token server's answer".to_owned()))?;
    let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
    if token.is_empty() {
        return Err(Why::Unreadable("the token server's answer has no token".to_owned()));
    }
    secret(&format!("Bearer {token}"))
}

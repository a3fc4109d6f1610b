//! One request at one place of an image, logged in as the registry demands.
//!
//! What it is not: retries (see `tries`), or the connection (see `transport`).
//!
//! Sources: <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#endpoints>
//! and <https://distribution.github.io/distribution/spec/auth/token/>.

use crate::credentials::Login;
use crate::requests::challenge::Challenge;
use crate::requests::error::RequestFailure;
use crate::requests::registry::Registry;
use crate::requests::routes::Endpoint;
use crate::requests::transport::{RegistryRequest, body, encoded, refused};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Response, Uri};
use kube::client::Body;
use serde::Deserialize;
use std::sync::PoisonError;

impl Registry {
    /// One GET at a place, logged in as it demands. Only an answer with success is returned.
    pub(crate) async fn get(
        &self,
        place: &Endpoint,
        path: &str,
        accept: &str,
    ) -> Result<Response<Body>, RequestFailure> {
        self.ask(Method::GET, place, path, accept).await
    }

    /// The same for any method.
    pub(crate) async fn ask(
        &self,
        method: Method,
        place: &Endpoint,
        path: &str,
        accept: &str,
    ) -> Result<Response<Body>, RequestFailure> {
        let (server, repository) = (place.image.server(), place.image.repository());
        let insecure = place.insecure || self.settings.insecure;
        let login_of = format!("{server}/{repository}");
        let known = || self.logins.lock().unwrap_or_else(PoisonError::into_inner).get(&login_of).cloned();
        let mut authorization = known();
        for challenged in [false, true] {
            let url = format!("{server}/v2/{repository}/{path}");
            let answer =
                self.by_some_scheme(&method, server, &url, accept, authorization.clone(), insecure).await?;
            let (scheme, answer) = answer;
            if answer.status().is_success() {
                return Ok(answer);
            }
            let sent = authorization.is_some()
                && self.settings.credentials.of(&place.image).is_ok_and(|login| login.is_some());
            if answer.status() != http::StatusCode::UNAUTHORIZED || challenged {
                return Err(refused(answer, &self.settings.limits, sent).await);
            }
            let headers = answer.headers().get_all(WWW_AUTHENTICATE);
            let challenge = Challenge::read(headers.iter().filter_map(|v| v.to_str().ok()));
            let Some(challenge) = challenge else { return Err(RequestFailure::Denied { sent }) };
            let value = self.login(&method, place, scheme, challenge, insecure).await?;
            self.logins
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(login_of.clone(), value.clone());
            authorization = Some(value);
        }
        Err(RequestFailure::Denied { sent: true })
    }

    /// By TLS; a registry that need not be secure is asked without where it does not speak it.
    async fn by_some_scheme(
        &self,
        method: &Method,
        server: &str,
        rest: &str,
        accept: &str,
        authorization: Option<HeaderValue>,
        insecure: bool,
    ) -> Result<(&'static str, Response<Body>), RequestFailure> {
        let send = |scheme: &'static str| {
            let authorization = authorization.clone();
            async move {
                let url = format!("{scheme}://{rest}");
                let url: Uri =
                    url.parse().map_err(|_| RequestFailure::Unreadable(format!("{url} is not a URL")))?;
                let ask = RegistryRequest {
                    method: method.clone(),
                    url,
                    accept,
                    authorization,
                    form: None,
                    insecure,
                };
                Ok((scheme, self.transport.send(&self.settings, &ask).await?))
            }
        };
        let is_plain = || self.plain.lock().unwrap_or_else(PoisonError::into_inner).contains(server);
        if insecure && is_plain() {
            return send("http").await;
        }
        match send("https").await {
            Err(first @ RequestFailure::Unreachable(_)) if insecure => match send("http").await {
                Ok(answer) => {
                    self.plain.lock().unwrap_or_else(PoisonError::into_inner).insert(server.to_owned());
                    Ok(answer)
                }
                Err(RequestFailure::Unreachable(_)) => Err(first),
                other => other,
            },
            other => other,
        }
    }

    /// What goes into `Authorization` to meet a challenge.
    async fn login(
        &self,
        method: &Method,
        place: &Endpoint,
        scheme: &str,
        challenge: Challenge,
        insecure: bool,
    ) -> Result<HeaderValue, RequestFailure> {
        let login = self.settings.credentials.of(&place.image)?;
        match (challenge, login) {
            (Challenge::Basic, Some(Login { user, password, identity_token }))
                if identity_token.is_empty() =>
            {
                basic(user, password)
            }
            (Challenge::Basic, _) => Err(RequestFailure::Denied { sent: false }),
            (Challenge::Bearer { realm, service, scope }, login) => {
                let scope = if scope.is_empty() {
                    let actions = if *method == Method::DELETE { "pull,push,delete" } else { "pull" };
                    format!("repository:{}:{actions}", place.image.repository())
                } else {
                    scope
                };
                let url: Uri = realm.parse().map_err(|_| {
                    RequestFailure::Lies(
                        "the address of the token server that it names is not a URL".to_owned(),
                    )
                })?;
                if url.scheme_str() != Some("https") && scheme == "https" {
                    return Err(RequestFailure::Lies(
                        "it sends logins to a token server without TLS".to_owned(),
                    ));
                }
                let own = url.host()
                    == Uri::try_from(format!("{scheme}://{}", place.image.server()))
                        .ok()
                        .as_ref()
                        .and_then(Uri::host);
                let mut query = format!("service={}&scope={}", encoded(&service), encoded(&scope));
                let (mut form, mut authorization, sent) = (None, None, login.is_some());
                match login {
                    Some(Login { user, password, identity_token }) if identity_token.is_empty() => {
                        authorization = Some(basic(user, password)?);
                    }
                    Some(Login { identity_token: token, .. }) => {
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
                        format!("{realm}{with}{query}").parse().map_err(|_| {
                            RequestFailure::Lies(
                                "the address of the token server that it names is not a URL".to_owned(),
                            )
                        })?
                    }
                };
                let ask = RegistryRequest {
                    method: if form.is_some() { Method::POST } else { Method::GET },
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
                    return Err(if matches!(why, RequestFailure::Status { code: 400, .. }) {
                        RequestFailure::Denied { sent }
                    } else {
                        why
                    });
                }
                bearer(&body(answer, &self.settings.limits).await?)
            }
        }
    }
}

fn secret(text: &str) -> Result<HeaderValue, RequestFailure> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        RequestFailure::Unreadable(
            "a token with characters that a header cannot \
            have"
                .to_owned(),
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic(name: &str, password: &str) -> Result<HeaderValue, RequestFailure> {
    secret(&format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
}

fn bearer(answer: &[u8]) -> Result<HeaderValue, RequestFailure> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        token: String,
        #[serde(default)]
        access_token: String,
    }
    // The parser's own message could quote the token.
    let answer: Answer = serde_json::from_slice(answer)
        .map_err(|_| RequestFailure::Unreadable("the token server's answer".to_owned()))?;
    let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
    if token.is_empty() {
        return Err(RequestFailure::Unreadable("the token server's answer has no token".to_owned()));
    }
    secret(&format!("Bearer {token}"))
}

//! Deletes images from the registry that they were pushed to (OCI distribution, "Content Management"), and lists tags for that.
//!
//! Guarantee: nothing is asked of a mirror, and a deletion is by digest, so it never hits what a tag names meanwhile.
//!
//! What it is not: the choice of what goes (see `build`). Registries free the space of layers when they collect their garbage.

use crate::documents::ACCEPTED;
use crate::error::{RegistryError, Why};
use crate::inspect::{Registry, failed};
use crate::reference::{Digest, Reference};
use crate::routes::Place;
use crate::transport::body;
use http::Method;
use http::header::LINK;
use serde::Deserialize;

/// Pages of a list of tags that are read. Registries have a hundred tags or more on a page.
const PAGES: usize = 50;
/// Characters of a list's next address.
const LONGEST: usize = 2000;

impl Registry {
    /// Deletes an image by its digest, with all tags of it. Returns whether it was there.
    ///
    /// # Errors
    /// No digest, or why the registry does not delete it. Registries may have deletion switched off (405), or ask for more than the
    /// right to push (401, 403).
    pub async fn delete(&self, image: &Reference) -> Result<bool, RegistryError> {
        let Some(digest) = image.digest() else {
            let why = Why::Unreadable("what is deleted is named by its digest".to_owned());
            return Err(failed(image, image.server(), why));
        };
        let path = format!("manifests/{digest}");
        let deletion = async {
            let mut tries = self.tries_at_source(image)?;
            loop {
                match self.ask(Method::DELETE, &tries.place()?, &path, "*/*").await {
                    Ok(_) => return Ok(true),
                    Err(Why::NotFound) => return Ok(false),
                    Err(why) => tries.after(why).await,
                }
            }
        };
        let after = self.settings.limits.whole;
        tokio::time::timeout(after, deletion)
            .await
            .unwrap_or_else(|_| Err(failed(image, image.server(), Why::Silent { after })))
    }

    /// The digest of a tag in the registry that it was pushed to. `None`: there is no such tag.
    ///
    /// # Errors
    /// The registry does not say.
    pub async fn digest_at_source(&self, image: &Reference) -> Result<Option<Digest>, RegistryError> {
        let path = format!("manifests/{}", image.wanted());
        let mut tries = self.tries_at_source(image)?;
        loop {
            let read = async |place: &Place| {
                let answer = self.get(place, &path, ACCEPTED).await?;
                Ok(Digest::of(&body(answer, &self.settings.limits).await?))
            };
            match read(&tries.place()?).await {
                Ok(digest) => return Ok(Some(digest)),
                Err(Why::NotFound) => return Ok(None),
                Err(why) => tries.after(why).await,
            }
        }
    }

    /// The tags of an image's repository, in the registry that it was pushed to.
    ///
    /// # Errors
    /// The registry does not list them.
    pub async fn tags(&self, image: &Reference) -> Result<Vec<String>, RegistryError> {
        let (mut all, mut path) = (vec![], "tags/list".to_owned());
        for _ in 0..PAGES {
            let mut tries = self.tries_at_source(image)?;
            let (tags, next) = loop {
                let page = async |place: &Place| {
                    let answer = self.get(place, &path, "application/json").await?;
                    let link = answer.headers().get(LINK).and_then(|v| v.to_str().ok()).and_then(next_page);
                    Ok((tags(&body(answer, &self.settings.limits).await?)?, link))
                };
                match page(&tries.place()?).await {
                    Ok(page) => break page,
                    Err(Why::NotFound) => break (vec![], None),
                    Err(why) => tries.after(why).await,
                }
            };
            all.extend(tags);
            let Some(next) = next else { break };
            path = next;
        }
        Ok(all)
    }
}

fn tags(answer: &[u8]) -> Result<Vec<String>, Why> {
    #[derive(Deserialize)]
    struct List {
        tags: Option<Vec<String>>,
    }
    let list: List = serde_json::from_slice(answer)
        .map_err(|e| Why::Unreadable(format!("the list of tags: {}", client::chain(&e))))?;
    // A tag becomes a part of an address.
    Ok(list.tags.into_iter().flatten().filter(|tag| crate::reference::is_tag(tag)).collect())
}

/// What follows a page, as `tags/list?…`: `</v2/NAME/tags/list?last=x&n=100>; rel="next"`. Only the question is taken over: the next
/// page is in the same repository.
fn next_page(link: &str) -> Option<String> {
    let (address, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
    let (_, question) = address.split_once('?')?;
    let plain = |b: u8| b.is_ascii_graphic() && b != b'#';
    let fits = question.len() <= LONGEST && question.bytes().all(plain);
    (fits && rest.contains("next")).then(|| format!("tags/list?{question}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in::{Says, StandIn, settings};
    use crate::{Registry, RegistryError};

    fn image(server: &str, rest: &str) -> Reference {
        Reference::parse(&format!("{server}/lab/os{rest}")).unwrap()
    }

    fn by_digest(server: &str) -> Reference {
        image(server, "").at(Digest::of(b"an image"))
    }

    #[tokio::test]
    async fn an_image_is_deleted_by_its_digest_with_the_login_that_is_asked_for() {
        let tokens = StandIn::start(|_| Says::ok("{\"token\": \"t\"}")).await;
        let realm = format!("Bearer realm=\"http://{}/token\",service=\"reg\"", tokens.server);
        let registry = StandIn::start(move |asked| match asked.authorization() {
            "Bearer t" => Says::status(202),
            _ => Says::status(401).with("WWW-Authenticate", &realm),
        })
        .await;
        let at = by_digest(&registry.server);
        assert!(Registry::new(settings()).delete(&at).await.unwrap());
        let line = format!("DELETE /v2/lab/os/manifests/{}", Digest::of(b"an image"));
        assert_eq!(registry.lines(), [line.clone(), line]);
        assert_eq!(
            tokens.lines(),
            ["GET /token?service=reg&scope=repository%3Alab%2Fos%3Apull%2Cpush%2Cdelete"]
        );
        let by_tag = Registry::new(settings()).delete(&image(&registry.server, ":1")).await;
        assert!(by_tag.is_err(), "a tag may name another image by now");
    }

    #[tokio::test]
    async fn a_refusal_is_told_from_what_may_pass() {
        for (status, gone, temporary) in [
            (200, Some(true), false),
            (202, Some(true), false),
            (404, Some(false), false),
            (400, None, false),
            (401, None, false),
            (403, None, false),
            (405, None, false),
            (307, None, false),
            (429, None, true),
            (503, None, true),
        ] {
            let registry = StandIn::start(move |_| {
                Says::status(status).with("Location", "http://127.0.0.1:1/elsewhere")
            })
            .await;
            let done = Registry::new(settings()).delete(&by_digest(&registry.server)).await;
            assert_eq!(done.as_ref().ok().copied(), gone, "{status}: {done:?}");
            let is_temporary = done.as_ref().err().is_some_and(RegistryError::is_temporary);
            assert_eq!(is_temporary, temporary, "{status}: {done:?}");
        }
    }

    #[tokio::test]
    async fn tags_are_listed_page_by_page_in_the_same_repository() {
        let registry = StandIn::start(|asked| match asked.line.as_str() {
            "GET /v2/lab/os/tags/list" => Says::ok("{\"name\": \"lab/os\", \"tags\": [\"a\", \"b/../c\"]}")
                .with("Link", "</v2/other/tags/list?last=a&n=1>; rel=\"next\""),
            "GET /v2/lab/os/tags/list?last=a&n=1" => Says::ok("{\"tags\": [\"d\"]}"),
            _ => Says::status(404),
        })
        .await;
        let at = image(&registry.server, "");
        assert_eq!(Registry::new(settings()).tags(&at).await.unwrap(), ["a", "d"]);
        let none = StandIn::start(|_| Says::ok("{\"tags\": null}")).await;
        assert_eq!(Registry::new(settings()).tags(&image(&none.server, "")).await.unwrap(), [""; 0]);
        let gone = StandIn::start(|_| Says::status(404)).await;
        assert_eq!(Registry::new(settings()).tags(&image(&gone.server, "")).await.unwrap(), [""; 0]);
        for (link, want) in [
            ("<https://q.io/v2/a/tags/list?n=1>; rel=next", Some("tags/list?n=1")),
            ("</v2/a/tags/list?n=1>; rel=\"prev\"", None),
            ("</v2/a/tags/list?n=1 x>; rel=next", None),
            ("next", None),
        ] {
            assert_eq!(next_page(link).as_deref(), want, "{link}");
        }
    }
}

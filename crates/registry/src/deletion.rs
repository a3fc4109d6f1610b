//! Deletes images from the registry that they were pushed to (OCI distribution, "Content Management"), and lists tags for that.
//!
//! Guarantee: nothing is asked of a mirror, and a deletion is by digest, so it never hits what a tag names meanwhile.
//!
//! What it is not: the choice of what goes (see `build`). Registries free the space of layers when they collect their garbage.
//!
//! Source: <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#content-management>.

use crate::documents::ACCEPTED;
use crate::inspect::failed;
use crate::reference::{Digest, Reference};
use crate::requests::error::{RegistryError, RequestFailure};
use crate::requests::registry::Registry;
use crate::requests::routes::Endpoint;
use crate::requests::transport::body;
use http::Method;
use http::header::LINK;
use serde::Deserialize;

/// Pages of a list of tags that are read. Registries have a hundred tags or more on a page.
const PAGES: usize = 1000;
/// Tags of one repository that are read.
const MOST_TAGS: usize = 100_000;
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
            let why = RequestFailure::Unreadable("an image is deleted by its digest only".to_owned());
            return Err(failed(image, image.server(), why));
        };
        let path = format!("manifests/{digest}");
        let deletion = async {
            let mut tries = self.tries_at_source(image)?;
            loop {
                match self.ask(Method::DELETE, &tries.place()?, &path, "*/*").await {
                    Ok(_) => return Ok(true),
                    Err(RequestFailure::NotFound) => return Ok(false),
                    Err(why) => tries.after(why).await,
                }
            }
        };
        let after = self.settings.limits.whole;
        tokio::time::timeout(after, deletion)
            .await
            .unwrap_or_else(|_| Err(failed(image, image.server(), RequestFailure::Silent { after })))
    }

    /// The digest of a tag in the registry that it was pushed to. `None`: there is no such tag.
    ///
    /// # Errors
    /// The registry does not say.
    pub async fn digest_at_source(&self, image: &Reference) -> Result<Option<Digest>, RegistryError> {
        Ok(self.manifest_at_source(image).await?.map(|bytes| Digest::of(&bytes)))
    }

    /// The digests that a tag stands for in the registry that it was pushed to: its own, and those of the images of an index. None, if
    /// there is no such tag.
    ///
    /// # Errors
    /// The registry does not say.
    pub async fn digests_at_source(&self, image: &Reference) -> Result<Vec<Digest>, RegistryError> {
        let Some(bytes) = self.manifest_at_source(image).await? else { return Ok(vec![]) };
        let mut all = vec![Digest::of(&bytes)];
        all.extend(listed(&bytes));
        Ok(all)
    }

    async fn manifest_at_source(&self, image: &Reference) -> Result<Option<Vec<u8>>, RegistryError> {
        let path = format!("manifests/{}", image.wanted());
        let mut tries = self.tries_at_source(image)?;
        loop {
            let read = async |place: &Endpoint| {
                let answer = self.get(place, &path, ACCEPTED).await?;
                body(answer, &self.settings.limits).await
            };
            match read(&tries.place()?).await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(RequestFailure::NotFound) => return Ok(None),
                Err(why) => tries.after(why).await,
            }
        }
    }

    /// All tags of an image's repository, in the registry that it was pushed to. None, if there is no such repository.
    ///
    /// # Errors
    /// The registry does not list them, or has more than are read: a part of the list is never taken for the whole.
    pub async fn tags(&self, image: &Reference) -> Result<Vec<String>, RegistryError> {
        let (mut all, mut path) = (vec![], "tags/list".to_owned());
        for number in 0..PAGES {
            let mut tries = self.tries_at_source(image)?;
            let (tags, next) = loop {
                let page = async |place: &Endpoint| {
                    let answer = self.get(place, &path, "application/json").await?;
                    let link = answer.headers().get(LINK).map(|v| v.to_str().unwrap_or_default().to_owned());
                    let next = link.as_deref().map_or(Ok(None), next_page)?;
                    Ok((tags(&body(answer, &self.settings.limits).await?)?, next))
                };
                match page(&tries.place()?).await {
                    Ok(page) => break page,
                    // In the middle of a list it is no answer.
                    Err(RequestFailure::NotFound) if number == 0 => break (vec![], None),
                    Err(why) => tries.after(why).await,
                }
            };
            all.extend(tags);
            match next {
                None => return Ok(all),
                // A registry that names the same page again would do so for ever.
                Some(next) if next == path || all.len() > MOST_TAGS => break,
                Some(next) => path = next,
            }
        }
        let why = format!("its list of tags has more than {} entries", all.len());
        Err(failed(image, image.server(), RequestFailure::Unreadable(why)))
    }
}

/// The digests that an index lists, for whatever platform. None: it is no index.
fn listed(manifest: &[u8]) -> Vec<Digest> {
    #[derive(Deserialize)]
    struct Index {
        #[serde(default)]
        manifests: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        digest: String,
    }
    let index = serde_json::from_slice::<Index>(manifest).ok();
    index.into_iter().flat_map(|index| index.manifests).filter_map(|m| Digest::parse(&m.digest)).collect()
}

fn tags(answer: &[u8]) -> Result<Vec<String>, RequestFailure> {
    #[derive(Deserialize)]
    struct List {
        tags: Option<Vec<String>>,
    }
    let list: List = serde_json::from_slice(answer)
        .map_err(|e| RequestFailure::Unreadable(format!("the list of tags: {}", client::chain(&e))))?;
    // A tag becomes a part of an address.
    Ok(list.tags.into_iter().flatten().filter(|tag| crate::reference::is_tag(tag)).collect())
}

/// What follows a page, as `tags/list?…`: `</v2/NAME/tags/list?last=x&n=100>; rel="next"`. Only the question is taken over: the next
/// page is in the same repository. A link that cannot be read is an error, because the list may go on there.
fn next_page(link: &str) -> Result<Option<String>, RequestFailure> {
    let read = || {
        let (address, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        let plain = |b: u8| b.is_ascii_graphic() && b != b'#';
        let question = address.split_once('?').map(|(_, question)| question);
        let fits = question.filter(|q| q.len() <= LONGEST && q.bytes().all(plain));
        match rest.contains("next") {
            true => Some(Some(format!("tags/list?{}", fits?))),
            false => Some(None),
        }
    };
    read().ok_or_else(|| RequestFailure::Unreadable("the link to the rest of the list of tags".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_registry::{CannedAnswer, FakeRegistry, settings};
    use crate::{Registry, RegistryError};

    fn image(server: &str, rest: &str) -> Reference {
        Reference::parse(&format!("{server}/lab/os{rest}")).unwrap()
    }

    fn by_digest(server: &str) -> Reference {
        image(server, "").at(Digest::of(b"an image"))
    }

    #[tokio::test]
    async fn an_image_is_deleted_by_its_digest_with_the_login_that_is_asked_for() {
        let tokens = FakeRegistry::start(|_| CannedAnswer::ok("{\"token\": \"t\"}")).await;
        let realm = format!("Bearer realm=\"http://{}/token\",service=\"reg\"", tokens.server);
        let registry = FakeRegistry::start(move |asked| match asked.authorization() {
            "Bearer t" => CannedAnswer::status(202),
            _ => CannedAnswer::status(401).with("WWW-Authenticate", &realm),
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
            let registry = FakeRegistry::start(move |_| {
                CannedAnswer::status(status).with("Location", "http://127.0.0.1:1/elsewhere")
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
        let registry = FakeRegistry::start(|asked| match asked.line.as_str() {
            "GET /v2/lab/os/tags/list" => {
                CannedAnswer::ok("{\"name\": \"lab/os\", \"tags\": [\"a\", \"b/../c\"]}")
                    .with("Link", "</v2/other/tags/list?last=a&n=1>; rel=\"next\"")
            }
            "GET /v2/lab/os/tags/list?last=a&n=1" => CannedAnswer::ok("{\"tags\": [\"d\"]}"),
            _ => CannedAnswer::status(404),
        })
        .await;
        let at = image(&registry.server, "");
        assert_eq!(Registry::new(settings()).tags(&at).await.unwrap(), ["a", "d"]);
        let none = FakeRegistry::start(|_| CannedAnswer::ok("{\"tags\": null}")).await;
        assert_eq!(Registry::new(settings()).tags(&image(&none.server, "")).await.unwrap(), [""; 0]);
        let gone = FakeRegistry::start(|_| CannedAnswer::status(404)).await;
        assert_eq!(Registry::new(settings()).tags(&image(&gone.server, "")).await.unwrap(), [""; 0]);
        for (link, want) in [
            ("<https://q.io/v2/a/tags/list?n=1>; rel=next", Some(Some("tags/list?n=1"))),
            ("</v2/a/tags/list?n=1>; rel=\"prev\"", Some(None)),
            ("</v2/a/tags/list?n=1 x>; rel=next", None),
            ("next", None),
        ] {
            let next = next_page(link).ok();
            assert_eq!(next.as_ref().map(Option::as_deref), want, "{link}");
        }
    }

    #[tokio::test]
    async fn a_tag_of_an_index_stands_for_its_images_too() {
        let mut images = crate::fake_registry::Images::default();
        let one = images.image("amd64", &serde_json::json!({}), &[]);
        let index = images.index(&[("s390x", &one)]);
        images.tag("one", &one);
        images.tag("all", &index);
        let registry = FakeRegistry::start(move |asked| images.says(asked)).await;
        let of = async |tag: &str| {
            let at = image(&registry.server, tag);
            Registry::new(settings()).digests_at_source(&at).await.unwrap()
        };
        assert_eq!(of(":one").await, std::slice::from_ref(&one));
        assert_eq!(of(":all").await, [index, one]);
        assert_eq!(of(":none").await, []);
    }

    #[tokio::test]
    async fn a_part_of_a_list_of_tags_is_not_taken_for_the_whole() {
        // More pages than are read, more tags than are read, the same page for ever, and a page that is missing.
        let asked_page = |line: &str| line.rsplit_once("last=").map_or(0, |(_, at)| at.parse().unwrap_or(0));
        let link = |page: usize| format!("</v2/lab/os/tags/list?last={page}>; rel=\"next\"");
        let pages = move |asked: &crate::fake_registry::ReceivedRequest| {
            CannedAnswer::ok("{\"tags\": [\"a\"]}").with("Link", &link(asked_page(&asked.line) + 1))
        };
        let many: Vec<String> = (0..20_000).map(|i| format!("t{i}")).collect();
        let many = serde_json::json!({ "tags": many }).to_string();
        let tags = move |asked: &crate::fake_registry::ReceivedRequest| {
            CannedAnswer::ok(many.clone()).with("Link", &link(asked_page(&asked.line) + 1))
        };
        let same = move |_: &crate::fake_registry::ReceivedRequest| {
            CannedAnswer::ok("{\"tags\": [\"a\"]}").with("Link", &link(1))
        };
        let missing = move |asked: &crate::fake_registry::ReceivedRequest| match asked_page(&asked.line) {
            0 => CannedAnswer::ok("{\"tags\": [\"a\"]}").with("Link", &link(1)),
            _ => CannedAnswer::status(404),
        };
        let unreadable = |_: &crate::fake_registry::ReceivedRequest| {
            CannedAnswer::ok("{\"tags\": [\"a\"]}").with("Link", "more; rel=\"next\"")
        };
        let all = [
            FakeRegistry::start(pages).await,
            FakeRegistry::start(tags).await,
            FakeRegistry::start(same).await,
            FakeRegistry::start(missing).await,
            FakeRegistry::start(unreadable).await,
        ];
        let mut counts = vec![];
        for registry in &all {
            let listed = Registry::new(settings()).tags(&image(&registry.server, "")).await;
            assert!(listed.is_err(), "{} tags", listed.unwrap().len());
            counts.push(registry.lines().len());
        }
        assert_eq!(counts, [PAGES, 6, 2, 2, 1]);
    }
}

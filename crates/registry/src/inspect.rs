//! From a reference to what the image says of itself, with digests that are verified before a document is read.
//!
//! Guarantee: what is returned for a digest is what that digest names, whichever mirror sent it. A tag is what one registry says
//! at one moment; [`ImageFacts::image`] is the same image by its digest.
//!
//! What it is not: the places of an image and retries (see `tries`), or a request with its login (see `request`).
//!
//! Source: <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pull>.

use crate::documents::{ACCEPTED, Descriptor, Document, ImageConfig, ListedImage};
use crate::facts::{ImageFacts, LayerFacts};
use crate::reference::{Digest, Reference};
use crate::requests::error::{RegistryError, RequestFailure};
use crate::requests::registry::Registry;
use crate::requests::routes::Endpoint;
use crate::requests::transport::body;
use std::sync::Arc;

/// The header in which a registry says what it sends.
const SENT_DIGEST: &str = "docker-content-digest";
/// The architecture that is looked at where none is asked for and the image is for several.
const USUAL: &str = "amd64";
/// Whatever it is.
const ANYTHING: &str = "*/*";

/// What a reference leads to.
pub(crate) struct ResolvedImage {
    pub(crate) digest: Digest,
    pub(crate) document: Document,
}

/// An image for one architecture.
pub(crate) struct Image {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    /// Of the index; empty where there is none.
    architectures: Vec<String>,
}

impl Registry {
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
        let look = Box::pin(self.inspect_image(image, architecture));
        tokio::time::timeout(after, look)
            .await
            .unwrap_or_else(|_| Err(failed(image, image.server(), RequestFailure::Silent { after })))
    }

    async fn inspect_image(
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
        let unreadable = |why| {
            failed(image, image.server(), RequestFailure::Unreadable(format!("the image's config: {why}")))
        };
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
        found: ResolvedImage,
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
        let one: Option<&ListedImage> = match architecture {
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
                RequestFailure::Unreadable("an image index within an image index".to_owned()),
            )),
        }
    }

    /// The index or the manifest that a reference names.
    pub(crate) async fn document(&self, image: &Reference) -> Result<ResolvedImage, RegistryError> {
        let mut tries = self.tries(image)?;
        loop {
            match self.document_at(&tries.place()?).await {
                Ok(found) => return Ok(found),
                Err(why) => tries.after(why).await,
            }
        }
    }

    async fn document_at(&self, place: &Endpoint) -> Result<ResolvedImage, RequestFailure> {
        let path = format!("manifests/{}", place.image.wanted());
        let answer = self.get(place, &path, ACCEPTED).await?;
        let said = answer.headers().get(SENT_DIGEST).and_then(|v| v.to_str().ok()).and_then(Digest::parse);
        let bytes = body(answer, &self.settings.limits).await?;
        let digest = Digest::of(&bytes);
        // By a digest, that one counts, and not what the registry says of its answer.
        let wanted = place.image.digest().cloned().or(said);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != digest) {
            return Err(RequestFailure::Lies(format!("the manifest has the digest {digest}, not {wanted}")));
        }
        let document = Document::read(&bytes).map_err(RequestFailure::Unreadable)?;
        Ok(ResolvedImage { digest, document })
    }

    /// A small part of an image: its config.
    async fn blob(&self, image: &Reference, part: &Descriptor) -> Result<Vec<u8>, RegistryError> {
        let mut tries = self.tries(&image.at(part.digest.clone()))?;
        loop {
            match self.blob_at(&tries.place()?, part).await {
                Ok(bytes) => return Ok(bytes),
                Err(why) => tries.after(why).await,
            }
        }
    }

    async fn blob_at(&self, place: &Endpoint, part: &Descriptor) -> Result<Vec<u8>, RequestFailure> {
        let limits = &self.settings.limits;
        if part.size > limits.document as u64 {
            return Err(RequestFailure::TooLarge { most: limits.document });
        }
        let answer = self.get(place, &format!("blobs/{}", part.digest), ANYTHING).await?;
        let bytes = body(answer, limits).await?;
        if bytes.len() as u64 != part.size || Digest::of(&bytes) != part.digest {
            return Err(RequestFailure::Lies(format!(
                "blob {} has other bytes than its digest says",
                part.digest
            )));
        }
        Ok(bytes)
    }
}

/// An error at one place.
pub(crate) fn failed(image: &Reference, place: &str, why: RequestFailure) -> RegistryError {
    RegistryError::Failed { image: image.to_string(), tried: vec![(place.to_owned(), why)] }
}

//! Streams of OS images, by the labels of images: an OS image and the image of extensions of the same stream are a pair. Images are
//! given by name, or as a release image, whose file `image-references` names them.
//!
//! What it is not: the choice among streams (see `render`).
//!
//! Source: <https://github.com/openshift/api/tree/HEAD/machineconfiguration/v1>.

use crate::facts::ImageFacts;
use crate::inspect::failed;
use crate::reference::Reference;
use crate::requests::error::{RegistryError, RequestFailure};
use crate::requests::registry::Registry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The label of a release image.
const RELEASE: &str = "io.openshift.release";
/// Where a release image lists its images.
const REFERENCES: &str = "/release-manifests/image-references";
/// The annotation of a tag with the sources of its image, and what sources of OS images have in it.
const SOURCES: (&str, &str) = ("io.openshift.build.source-location", "github.com/openshift/os");
/// The label of an OS image.
const OS: &str = "containers.bootc";

/// A stream, in the form of an OSImageStream's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Its OS image, by digest.
    pub os_image: String,
    /// Its image of extensions, by digest.
    pub os_extensions_image: String,
}

/// The streams of some images, by name. Of two images for one place the later counts; a stream that lacks one of its two images is
/// none.
#[must_use]
pub fn pair<'f>(images: impl IntoIterator<Item = &'f ImageFacts>) -> Vec<Stream> {
    let mut pairs: BTreeMap<&str, (Option<&str>, Option<&str>)> = BTreeMap::new();
    for facts in images {
        let Some(name) = facts.stream.as_deref() else { continue };
        let (os, extensions) = pairs.entry(name).or_default();
        if facts.is_extensions() {
            *extensions = Some(&facts.image);
        } else if facts.bootable_by.as_deref() == Some(OS) {
            *os = Some(&facts.image);
        }
    }
    let whole = pairs.into_iter().filter_map(|(name, (os, extensions))| Some((name, os?, extensions?)));
    whole
        .map(|(name, os, extensions)| Stream {
            name: name.to_owned(),
            os_image: os.to_owned(),
            os_extensions_image: extensions.to_owned(),
        })
        .collect()
}

/// The OS images and images of extensions that a release lists (an ImageStream), by their tags.
///
/// # Errors
/// Another form.
pub fn of_release(image_references: &[u8]) -> Result<Vec<String>, String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ImageStream {
        spec: Spec,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        tags: Vec<Tag>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Tag {
        name: String,
        annotations: Option<BTreeMap<String, String>>,
        from: Option<From>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct From {
        kind: String,
        name: String,
    }
    let stream: ImageStream = serde_json::from_slice(image_references).map_err(|e| client::chain(&e))?;
    let tags = stream.spec.tags.into_iter();
    let images = tags.filter_map(|tag| {
        let from = tag.from.filter(|from| from.kind == "DockerImage")?;
        let sources = tag.annotations.as_ref().and_then(|a| a.get(SOURCES.0));
        (sources.is_some_and(|s| s.contains(SOURCES.1)) || is_os_tag(&tag.name)).then_some(from.name)
    });
    Ok(images.collect())
}

/// `rhel-coreos`, `stream-coreos-10-extensions` and the like: `rhel` or `stream`, then `-coreos`, between and after them letters,
/// digits, dots and hyphens.
fn is_os_tag(name: &str) -> bool {
    let rest = ["rhel", "stream"].iter().find_map(|begin| name.strip_prefix(begin));
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'));
    plain && rest.is_some_and(|rest| rest.contains("-coreos"))
}

impl Registry {
    /// The streams of these images. A release image stands for the images that it lists.
    ///
    /// # Errors
    /// The first image that cannot be looked into: streams without it would lack what somebody counts on.
    pub async fn streams(&self, images: &[Reference]) -> Result<Vec<Stream>, RegistryError> {
        let mut all = vec![];
        for image in images {
            all.extend(Box::pin(self.one_or_release(image)).await?);
        }
        Ok(pair(all.iter().map(AsRef::as_ref)))
    }

    /// The streams of those of these images that can be looked into, and why the first of the others cannot be. A release image
    /// stands for the images that it lists.
    ///
    /// # Errors
    /// No stream can be made of them, and one of them could not be looked into.
    pub async fn streams_of_some(
        &self,
        images: &[Reference],
    ) -> Result<(Vec<Stream>, Option<RegistryError>), RegistryError> {
        let (mut all, mut first) = (vec![], None);
        for image in images {
            match Box::pin(self.one_or_release(image)).await {
                Ok(facts) => all.extend(facts),
                Err(error) => {
                    tracing::warn!(%image, %error, "an image of the release cannot be inspected");
                    first.get_or_insert(error);
                }
            }
        }
        match (pair(all.iter().map(AsRef::as_ref)), first) {
            (streams, Some(error)) if streams.is_empty() => Err(error),
            found => Ok(found),
        }
    }

    /// The image, or those that it lists.
    async fn one_or_release(&self, image: &Reference) -> Result<Vec<Arc<ImageFacts>>, RegistryError> {
        let facts = self.inspect(image, None).await?;
        if !facts.labels.contains_key(RELEASE) {
            return Ok(vec![facts]);
        }
        let by_digest = Reference::parse(&facts.image)?;
        let references = self.file(&by_digest, None, REFERENCES).await?;
        let unreadable =
            |why| failed(image, image.host(), RequestFailure::Unreadable(format!("{REFERENCES}: {why}")));
        let mut all = vec![];
        for name in of_release(&references).map_err(unreadable)? {
            all.push(self.inspect(&Reference::parse(&name)?, None).await?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(image: &str, labels: &[(&str, &str)]) -> ImageFacts {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ImageFacts { image: image.to_owned(), ..ImageFacts::default() }.with_labels(labels)
    }

    #[test]
    fn images_pair_up_by_stream_and_the_later_counts() {
        let class = "io.openshift.os.streamclass";
        let os = |image: &str, stream: &str| facts(image, &[(class, stream), (OS, "1")]);
        let extensions = |image: &str, stream: &str| {
            facts(image, &[(class, stream), ("io.openshift.os.extensions", "true")])
        };
        let images = [
            os("os10", "rhel-10"),
            os("old9", "rhel-9"),
            extensions("ext9", "rhel-9"),
            os("os9", "rhel-9"),
            extensions("ext10", "rhel-10"),
            os("alone", "centos-10"),
            facts("unlabelled", &[(OS, "true")]),
            facts("neither", &[(class, "rhel-9")]),
        ];
        let stream = |name: &str, os: &str, extensions: &str| Stream {
            name: name.to_owned(),
            os_image: os.to_owned(),
            os_extensions_image: extensions.to_owned(),
        };
        assert_eq!(pair(&images), [stream("rhel-10", "os10", "ext10"), stream("rhel-9", "os9", "ext9")]);
        assert_eq!(pair(&[]), []);
    }

    #[test]
    fn a_releases_os_images_are_found_by_their_tags_or_their_sources() {
        let tag = |name: &str, kind: &str, source: &str| json!({"name": name, "annotations": {SOURCES.0: source}, "from": {"kind": kind, "name": format!("q.io/{name}")}});
        let list = json!({"kind": "ImageStream", "spec": {"tags": [
            tag("rhel-coreos", "DockerImage", ""),
            tag("rhel-coreos-10-extensions", "DockerImage", ""),
            tag("stream-coreos", "ImageStreamTag", ""),
            tag("machine-os", "DockerImage", "https://github.com/openshift/os"),
            tag("etcd", "DockerImage", "https://github.com/openshift/etcd"),
            tag("fedora-coreos", "DockerImage", ""),
            {"name": "rhel-coreos"},
        ]}});
        let images = of_release(list.to_string().as_bytes()).unwrap();
        assert_eq!(images, ["q.io/rhel-coreos", "q.io/rhel-coreos-10-extensions", "q.io/machine-os"]);
        assert!(of_release(b"{\"spec\": {\"tags\": 1}}").is_err());
        for (name, is) in
            [("rhel-coreos", true), ("rhel9-coreos", true), ("rhel_x-coreos", false), ("rhelcoreos", false)]
        {
            assert_eq!(is_os_tag(name), is, "{name}");
        }
    }
}

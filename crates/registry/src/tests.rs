//! Looking into images, against fake registries.
//!
//! Not here: how registries are reached (see `access`).

mod access;

use crate::fake_registry::{CannedAnswer, FakeRegistry, Images, ReceivedRequest, settings};
use crate::requests::transport::{Limits, Proxies, Settings};
use crate::{Digest, ImageFacts, Reference, Registry, RegistryError, RequestFailure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

fn images() -> (Images, Digest) {
    let mut images = Images::default();
    let digest = images.image("amd64", &json!({"containers.bootc": "1", "version": "42"}), &[vec![1, 2, 3]]);
    images.tag("latest", &digest);
    (images, digest)
}

fn image(server: &str, rest: &str) -> Reference {
    Reference::parse(&format!("{server}/lab/os{rest}")).unwrap()
}

async fn inspect(settings: Settings, image: &Reference) -> Result<Arc<ImageFacts>, RegistryError> {
    Registry::new(settings).inspect(image, None).await
}

/// Why the one place that was asked is none.
fn why(result: Result<Arc<ImageFacts>, RegistryError>) -> RequestFailure {
    match result.unwrap_err() {
        RegistryError::Failed { mut tried, .. } if tried.len() == 1 => tried.remove(0).1,
        other => panic!("{other}"),
    }
}

fn with_login(server: &str, login: &str) -> Settings {
    let mut settings = settings();
    let file = json!({"auths": {server: {"auth": STANDARD.encode(login)}}});
    settings.credentials.add(file.to_string().as_bytes()).unwrap();
    settings
}

#[tokio::test]
async fn a_tag_becomes_a_digest_with_what_the_image_says() {
    let (images, digest) = images();
    let registry = FakeRegistry::start(move |asked| images.says(asked)).await;
    let facts = inspect(settings(), &image(&registry.server, ":latest")).await.unwrap();
    assert_eq!(facts.image, image(&registry.server, "").at(digest.clone()).to_string());
    assert_eq!(facts.architectures, ["amd64"]);
    assert_eq!(
        (facts.os_version.as_deref(), facts.bootable_by.as_deref()),
        (Some("42"), Some("containers.bootc"))
    );
    assert_eq!((facts.size, facts.layers.len()), (3, 1));
    // By digest it is known from then on, and a tag costs one request.
    let settings = settings();
    let by_digest = image(&registry.server, "").at(digest);
    inspect(settings.clone(), &by_digest).await.unwrap();
    let before = registry.lines().len();
    inspect(settings.clone(), &by_digest).await.unwrap();
    assert_eq!(registry.lines().len(), before);
    inspect(settings, &image(&registry.server, ":latest")).await.unwrap();
    assert_eq!(registry.lines().len(), before + 1);
}

#[tokio::test]
async fn of_an_index_the_image_for_the_architecture_counts_and_the_digest_is_the_indexs() {
    let mut images = Images::default();
    let arm = images.image("arm64", &json!({"version": "arm"}), &[]);
    let amd = images.image("amd64", &json!({"version": "amd"}), &[]);
    // An image that is listed for another architecture than it is for.
    let index = images.index(&[("arm64", &arm), ("amd64", &amd), ("s390x", &arm)]);
    images.tag("1", &index);
    let registry = FakeRegistry::start(move |asked| images.says(asked)).await;
    let at = image(&registry.server, ":1");
    let look = Registry::new(settings());
    for (architecture, version) in [(None, "amd"), (Some("arm64"), "arm"), (Some("amd64"), "amd")] {
        let facts = look.inspect(&at, architecture).await.unwrap();
        assert_eq!(facts.os_version.as_deref(), Some(version));
        assert_eq!(facts.image, at.at(index.clone()).to_string());
        assert_eq!(facts.architectures, ["arm64", "amd64", "s390x"]);
    }
    let missing = look.inspect(&at, Some("ppc64le")).await.unwrap_err();
    assert!(matches!(&missing, RegistryError::Architecture { .. }) && !missing.is_temporary());
    assert!(missing.to_string().contains("is for arm64, amd64, s390x, not for linux/ppc64le"), "{missing}");
    assert!(matches!(look.inspect(&at, Some("s390x")).await, Err(RegistryError::Architecture { .. })));
}

#[tokio::test]
async fn what_has_another_digest_is_no_answer() {
    let (images, digest) = images();
    let mut config = images.0.keys().filter(|k| k.starts_with("blobs/")).cloned();
    let blobs: Vec<String> = config.by_ref().collect();
    let other = b"{\"schemaVersion\": 2}".to_vec();
    for lie in ["by digest", "by tag", "config", "short config"] {
        let (mut images, other, blobs) = (images.clone(), other.clone(), blobs.clone());
        let manifest = format!("manifests/{digest}");
        match lie {
            "by digest" => drop(images.0.insert(manifest, other)),
            "by tag" => {}
            _ => blobs.iter().for_each(|b| {
                let bytes = images.0.get_mut(b).unwrap();
                if lie == "config" { bytes.reverse() } else { bytes.truncate(bytes.len() - 1) }
            }),
        }
        let named = Digest::of(b"what the registry says").to_string();
        let registry = FakeRegistry::start(move |asked| match lie {
            "by tag" => CannedAnswer {
                headers: vec![("Docker-Content-Digest".to_owned(), named.clone())],
                ..images.says(asked)
            },
            _ => images.says(asked),
        })
        .await;
        let at = image(&registry.server, ":latest");
        let at = if lie == "by tag" { at } else { at.at(digest.clone()) };
        let why = why(inspect(settings(), &at).await);
        assert!(matches!(why, RequestFailure::Lies(_)) && !why.should_retry(), "{lie}: {why}");
    }
}

#[tokio::test]
async fn what_is_cut_or_overloaded_is_asked_again_and_not_for_ever() {
    let (images, _) = images();
    let count = Arc::new(AtomicUsize::new(0));
    let (all, n) = (images.clone(), count.clone());
    let registry = FakeRegistry::start(move |asked| match n.fetch_add(1, Ordering::SeqCst) {
        0 => CannedAnswer { cut: Some(10), ..all.says(asked) },
        1 => CannedAnswer::status(429).with("Retry-After", "3600"),
        3 => CannedAnswer::status(503),
        _ => all.says(asked),
    })
    .await;
    inspect(settings(), &image(&registry.server, "")).await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 5);
    let always = FakeRegistry::start(move |asked| CannedAnswer { cut: Some(10), ..images.says(asked) }).await;
    let error = inspect(settings(), &image(&always.server, "")).await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("cut off"), "{error}");
    assert_eq!(always.lines().len(), 3);
    let words = FakeRegistry::start(|_| CannedAnswer {
        status: 500,
        ..CannedAnswer::ok("{\"errors\": [{\"message\": \"disk full\"}]}")
    })
    .await;
    let error = inspect(settings(), &image(&words.server, "")).await.unwrap_err().to_string();
    assert!(error.ends_with("it answers with status 500: disk full"), "{error}");
}

#[tokio::test]
async fn who_never_answers_or_never_ends_is_given_up() {
    let silent = FakeRegistry::start(|_| CannedAnswer { never: true, ..CannedAnswer::default() }).await;
    let short = |limits: Limits| Settings { limits: Limits { attempts: 1, ..limits }, ..settings() };
    let quick = Limits { request: Duration::from_millis(300), ..settings().limits };
    let why_silent = why(inspect(short(quick), &image(&silent.server, "")).await);
    assert!(matches!(why_silent, RequestFailure::Silent { .. }), "{why_silent}");
    let whole = Limits { whole: Duration::from_millis(300), ..settings().limits };
    assert!(matches!(
        why(inspect(short(whole), &image(&silent.server, "")).await),
        RequestFailure::Silent { .. }
    ));
    let endless = FakeRegistry::start(|_| CannedAnswer { endless: true, ..CannedAnswer::ok("{") }).await;
    let small = Limits { document: 100_000, ..settings().limits };
    assert_eq!(
        why(inspect(short(small), &image(&endless.server, "")).await),
        RequestFailure::TooLarge { most: 100_000 }
    );
}

#[tokio::test]
async fn mirrors_are_asked_first_and_what_is_blocked_is_not_asked() {
    let (images, digest) = images();
    let empty = FakeRegistry::start(|_| CannedAnswer::status(404)).await;
    let liar = FakeRegistry::start(|_| CannedAnswer::ok("{}")).await;
    let (first, second) = (images.clone(), images.clone());
    let mirror = FakeRegistry::start(move |asked| first.says(asked)).await;
    let own = FakeRegistry::start(move |asked| second.says(asked)).await;
    let conf = |blocked: bool| {
        let mirrors = [&empty.server, &liar.server, &mirror.server];
        let mirrors = mirrors.map(|m| {
            format!("[[registry.mirror]]\nlocation = \"{m}\"\npull-from-mirror = \"digest-only\"\n")
        });
        format!("[[registry]]\nlocation = \"{}\"\nblocked = {blocked}\n{}", own.server, mirrors.concat())
    };
    let mut settings = settings();
    settings.routes.add(&conf(false)).unwrap();
    let facts = inspect(settings.clone(), &image(&own.server, "").at(digest.clone())).await.unwrap();
    assert!(facts.image.starts_with(&own.server), "the image keeps its name: {}", facts.image);
    assert_eq!((own.lines().len(), mirror.lines().len()), (0, 2));
    assert!(!empty.lines().is_empty() && !liar.lines().is_empty());
    // A tag is not for these mirrors; what it leads to is.
    settings.cache = crate::Cache::default();
    inspect(settings.clone(), &image(&own.server, ":latest")).await.unwrap();
    assert_eq!((own.lines().len(), mirror.lines().len()), (1, 3));
    settings.routes.add(&conf(true)).unwrap();
    let asked = own.lines().len();
    let error = inspect(settings, &image(&own.server, ":latest")).await.unwrap_err();
    assert!(matches!(error, RegistryError::Blocked { .. }), "{error}");
    assert_eq!(own.lines().len(), asked);
}

#[tokio::test]
async fn a_file_is_read_from_the_highest_layer_that_has_it() {
    let layer = |files: &[(&str, &str)]| {
        let mut tar = tar::Builder::new(vec![]);
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    };
    let mut images = Images::default();
    let layers = [
        layer(&[("etc/a", "old"), ("etc/b", "b")]),
        layer(&[("etc/a", "new"), ("etc/.wh.b", "")]),
        layer(&[("x", "x")]),
    ];
    let digest = images.image("amd64", &json!({}), &layers);
    images.tag("latest", &digest);
    let honest = images.clone();
    let registry = FakeRegistry::start(move |asked| honest.says(asked)).await;
    let (look, at) = (Registry::new(settings()), image(&registry.server, ""));
    assert_eq!(look.file(&at, None, "/etc/a").await.unwrap(), b"new");
    for gone in ["/etc/b", "/etc/c"] {
        assert!(matches!(look.file(&at, None, gone).await, Err(RegistryError::NoFile { .. })), "{gone}");
    }
    let top = format!("blobs/{}", Digest::of(&layers[2]));
    images.0.insert(top, layer(&[("etc/a", "bad")]));
    let liar = FakeRegistry::start(move |asked| images.says(asked)).await;
    let error = Registry::new(settings()).file(&image(&liar.server, ""), None, "etc/a").await.unwrap_err();
    assert!(error.to_string().contains("is invalid"), "{error}");
}

#[tokio::test]
async fn a_release_image_stands_for_the_images_that_it_lists() {
    let mut images = Images::default();
    let class = "io.openshift.os.streamclass";
    let os = images.image("amd64", &json!({class: "rhel-9", "containers.bootc": "1"}), &[]);
    let extensions =
        images.image("amd64", &json!({class: "rhel-9", "io.openshift.os.extensions": "true"}), &[]);
    let registry = FakeRegistry::start(move |asked| Images::says(&images, asked)).await;
    let name = |digest: &Digest| image(&registry.server, "").at(digest.clone()).to_string();
    let tag = |tag: &str, digest: &Digest| json!({"name": tag, "from": {"kind": "DockerImage", "name": name(digest)}});
    let list =
        json!({"spec": {"tags": [tag("rhel-coreos", &os), tag("rhel-coreos-extensions", &extensions)]}})
            .to_string();
    let mut tar = tar::Builder::new(vec![]);
    let mut header = tar::Header::new_gnu();
    header.set_size(list.len() as u64);
    tar.append_data(&mut header, "release-manifests/image-references", list.as_bytes()).unwrap();
    let mut release = Images::default();
    let digest =
        release.image("amd64", &json!({"io.openshift.release": "5.0"}), &[tar.into_inner().unwrap()]);
    release.tag("latest", &digest);
    let payload = FakeRegistry::start(move |asked| release.says(asked)).await;
    let streams = Registry::new(settings()).streams(&[image(&payload.server, "")]).await.unwrap();
    assert_eq!(streams.len(), 1);
    assert_eq!(
        (&*streams[0].name, &streams[0].os_image, &streams[0].os_extensions_image),
        ("rhel-9", &name(&os), &name(&extensions))
    );
}

//! Tags: an image that another tag names too, and images of failed builds, which are found by their tag.

use super::*;

#[tokio::test]
async fn an_image_that_another_tag_names_stays() {
    const MANIFEST: &str = "{\"schemaVersion\": 2}";
    let digest = registry::Digest::of(MANIFEST.as_bytes()).to_string();
    let listed = |tags: &str| Some((200, format!("{{\"tags\": [{tags}]}}")));
    let manifest = || Some((200, MANIFEST.to_owned()));
    let other = || Some((200, "{}".to_owned()));
    type Says = Box<dyn Fn(&str) -> Option<(u16, String)> + Send>;
    let rows: [(&str, Says, Option<&str>, bool); 5] = [
        (
            "another tag has it",
            Box::new(move |path| match path {
                "tags/list" => listed("\"b1\", \"b2\", \"prod\""),
                "manifests/b1" | "manifests/prod" => manifest(),
                _ => other(),
            }),
            Some("/os:prod points to the same image"),
            true,
        ),
        (
            "other tags have other images",
            Box::new(move |path| match path {
                "tags/list" => listed("\"b1\", \"b2\""),
                "manifests/b1" => manifest(),
                _ => other(),
            }),
            None,
            false,
        ),
        (
            "the tags may not be listed",
            Box::new(move |path| (path == "tags/list").then(|| (403, String::new()))),
            Some("not known whether another tag points to it"),
            false,
        ),
        (
            "another tag cannot be read",
            Box::new(move |path| match path {
                "tags/list" => listed("\"b1\", \"b2\""),
                "manifests/b2" => Some((400, String::new())),
                _ => manifest(),
            }),
            Some("not known whether another tag points to it"),
            false,
        ),
        (
            "the registry lists no tags",
            Box::new(move |path| (path == "manifests/b1").then(|| (200, MANIFEST.to_owned()))),
            Some("does not list the tags"),
            false,
        ),
    ];
    for (about, says, why, for_good) in rows {
        let (registry, asked) = fake_registry_with(202, says).await;
        let [(list, _), _] = passes(World::of(vec![pushed_as(&registry, &digest)]), &registry).await;
        let asked = asked.lock().unwrap();
        let deleted = asked.iter().any(|line| *line == format!("DELETE /v2/os/manifests/{digest} HTTP/1.1"));
        match why {
            None => assert!(deleted && list.is_empty(), "{about}: {list:?} {asked:?}"),
            Some(why) => {
                let kept = list[0].kept.clone().unwrap();
                assert!(kept.why.contains(why) && kept.for_good == for_good, "{about}: {kept:?}");
                assert!(!asked.iter().any(|line| line.starts_with("DELETE")), "{about}: {asked:?}");
            }
        }
    }
}

/// The tag that a build pushed to which did not succeed.
fn tag(registry: &str) -> Pushed {
    Pushed { what: PushedContent::Tag { name: format!("{registry}/os:b1") }, ..pushed(registry) }
}

#[tokio::test]
async fn what_a_failed_build_has_pushed_is_found_by_its_tag_and_deleted() {
    const MANIFEST: &str = "{\"schemaVersion\": 2}";
    let digest = registry::Digest::of(MANIFEST.as_bytes()).to_string();
    // The registry lists the tags of a repository that it has.
    let listed = |path: &str| match path {
        "tags/list" => Some((200, "{\"tags\": [\"b1\"]}".to_owned())),
        "manifests/b1" => Some((200, MANIFEST.to_owned())),
        _ => None,
    };
    for pod in [None, Some("Failed"), Some("Succeeded")] {
        let (registry, asked) = fake_registry_with(202, listed).await;
        let world = World { pod, ..World::of(vec![tag(&registry)]) };
        let [(list, outcome), _] = passes(world, &registry).await;
        assert_eq!((list, outcome), (vec![], Outcome::Done), "{pod:?}");
        let want = format!("DELETE /v2/os/manifests/{digest} HTTP/1.1");
        assert_eq!(asked.lock().unwrap().last(), Some(&want), "{pod:?}");
    }
    // It may still push.
    for pod in [Some("Running"), Some("Pending"), Some("Unknown")] {
        let (registry, asked) = fake_registry_with(202, listed).await;
        let world = World { pod, ..World::of(vec![tag(&registry)]) };
        let [(list, outcome), _] = passes(world, &registry).await;
        assert_eq!(list, [tag(&registry)], "{pod:?}");
        assert!(matches!(outcome, Outcome::After(_)) && asked.lock().unwrap().is_empty(), "{pod:?}");
    }
    // It pushed nothing.
    let (registry, asked) = fake_registry(202).await;
    let [(list, outcome), _] = passes(World::of(vec![tag(&registry)]), &registry).await;
    assert_eq!((list, outcome), (vec![], Outcome::Done));
    assert_eq!(*asked.lock().unwrap(), ["GET /v2/os/manifests/b1 HTTP/1.1"]);
    // A node has this image, from wherever: it is on the list by its digest, and stays.
    let (registry, asked) = fake_registry_with(202, listed).await;
    let node = Some((annotation::CURRENT_IMAGE, format!("m.io/os@{digest}")));
    let [(list, _), (still, _)] = passes(World { node, ..World::of(vec![tag(&registry)]) }, &registry).await;
    let image = tag(&registry).found(&digest).unwrap();
    assert_eq!((&list, &still), (&vec![image.clone()], &vec![image.clone()]));
    assert!(!asked.lock().unwrap().iter().any(|line| line.starts_with("DELETE")));
    // What is known of it by its digest is not forgotten.
    let (registry, _) = fake_registry_with(405, listed).await;
    let image = tag(&registry).found(&digest).unwrap();
    let [(list, _), _] = passes(World::of(vec![tag(&registry), image]), &registry).await;
    assert!(list.len() == 1 && list[0].kept.as_ref().is_some_and(|k| k.for_good), "{list:?}");
}

#[tokio::test]
async fn a_tag_that_may_not_be_looked_up_is_asked_for_until_it_may() {
    for status in [403, 401] {
        let refusals = std::sync::atomic::AtomicUsize::new(1);
        let (registry, asked) = fake_registry_with(202, move |path| {
            let left = refusals.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
            (path == "manifests/b1" && left.is_ok()).then(|| (status, String::new()))
        })
        .await;
        let world = World { is_late: true, ..World::of(vec![tag(&registry)]) };
        let [(list, outcome), (later, again)] = passes(world, &registry).await;
        let kept = list[0].kept.clone().unwrap();
        assert!(kept.until_mended && !kept.for_good, "{status}: {kept:?}");
        assert!(matches!(outcome, Outcome::After(_)), "{status}: {outcome:?}");
        assert_eq!((later, again), (vec![], Outcome::Done), "{status}");
        assert_eq!(asked.lock().unwrap().len(), 2, "{status}");
    }
}

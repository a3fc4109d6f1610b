//! Tests of `streams`: what its status becomes, and which images it is made from.

use super::*;

#[test]
fn a_status_of_somebody_else_is_left_alone() {
    let object = |images: Option<&str>, from: Option<&str>, streams: Value| json!({"metadata": {"annotations": {own::STREAM_IMAGES: images, own::STREAMS_FROM: from}}, "status": {"availableStreams": streams}});
    for (about, object, want) in [
        ("no annotation", object(None, None, json!([{}])), None),
        ("an empty one", object(Some(" "), None, json!([])), None),
        ("new", object(Some("a b"), None, json!([])), Some("a b")),
        ("filled", object(Some("a b"), Some("a b"), json!([{}])), None),
        ("another list", object(Some("a c"), Some("a b"), json!([{}])), Some("a c")),
        ("emptied", object(Some("a b"), Some("a b"), json!([])), Some("a b")),
    ] {
        let want = want.map(|images: &str| WantedStreams::Listed(images.to_owned()));
        assert_eq!(wanted(&object, &[], false), want, "{about}");
    }
    assert_eq!(wanted(&json!({}), &[], true), None);
}

#[test]
fn a_release_fills_what_nobody_else_has() {
    let cluster: ControllerConfig = serde_json::from_value(json!({"metadata": {"name": "c"},
        "spec": {"baseOSContainerImage": "os", "baseOSExtensionsContainerImage": "ext"}}))
    .unwrap();
    let version = json!({"status": {"desired": {"image": "release"}}});
    assert_eq!(of_release(Some(&cluster), Some(&version)), ["os", "ext", "release"]);
    assert_eq!(of_release(None, Some(&version)), ["release"]);
    assert_eq!(of_release(Some(&cluster), None), Vec::<String>::new(), "a plain cluster has no release");
    let release = ["os".to_owned(), "release".to_owned()];
    let object = |listed: Option<&str>, from: Option<&str>, streams: Value| json!({"metadata": {"annotations": {own::STREAM_IMAGES: listed, own::STREAMS_FROM: from}}, "status": {"availableStreams": streams}});
    let ours = Some(WantedStreams::Release("os release".to_owned()));
    for (about, object, by_us, want) in [
        ("empty", object(None, None, json!([])), false, ours.clone()),
        ("filled from this release", object(None, Some("os release"), json!([{}])), false, None),
        ("filled from the last release", object(None, Some("os before"), json!([{}])), false, ours.clone()),
        ("filled by somebody else", object(None, None, json!([{}])), false, None),
        ("cut off before the annotation", object(None, None, json!([{}])), true, ours.clone()),
        (
            "cut off before the annotation of the next release",
            object(None, Some("os before"), json!([{}])),
            true,
            ours,
        ),
        (
            "a list counts more",
            object(Some("a"), Some("os release"), json!([{}])),
            false,
            Some(WantedStreams::Listed("a".to_owned())),
        ),
    ] {
        assert_eq!(wanted(&object, &release, by_us), want, "{about}");
    }
    // Only where nothing else says it the API server is asked who wrote the status.
    for (object, release, want) in [
        (object(None, None, json!([{}])), &release[..], true),
        (object(Some(" "), None, json!([{}])), &release[..], true),
        (object(Some("a"), None, json!([{}])), &release[..], false),
        (object(None, Some(""), json!([{}])), &release[..], false),
        (object(None, None, json!([])), &release[..], false),
        (object(None, None, json!([{}])), &[], false),
    ] {
        assert_eq!(is_unclaimed(&object, release), want, "{object}");
    }
}

#[test]
fn a_status_is_ours_if_nobody_else_wrote_its_streams() {
    let entry =
        |manager: &str, fields: Value| json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
    let streams = || json!({"f:status": {".": {}, "f:availableStreams": {}}});
    let default = || json!({"f:status": {"f:defaultStream": {}}});
    for (about, entries, want) in [
        ("ours", vec![entry(MANAGER, streams())], true),
        ("somebody else's", vec![entry("machine-config-operator", streams())], false),
        ("both", vec![entry(MANAGER, streams()), entry("kubectl", streams())], false),
        ("ours, and a default of others", vec![entry(MANAGER, streams()), entry("kubectl", default())], true),
        ("our default, their streams", vec![entry(MANAGER, default()), entry("kubectl", streams())], false),
        ("nobody's", vec![], false),
    ] {
        assert_eq!(is_written_by_us(&json!({"metadata": {"managedFields": entries}})), want, "{about}");
    }
    assert!(!is_written_by_us(&json!({"metadata": {}})));
}

#[test]
fn a_stream_whose_image_cannot_be_looked_into_stays_as_it_was() {
    let stream = |name: &str, os: &str| Stream {
        name: name.to_owned(),
        os_image: os.to_owned(),
        os_extensions_image: "e".to_owned(),
    };
    let before = json!({"spec": {"defaultStream": "rhel-9"}, "status": {"availableStreams": [
        {"name": "rhel-10", "osImage": "old", "osExtensionsImage": "e"},
        {"name": "rhel-9", "osImage": "old", "osExtensionsImage": "e"},
    ]}});
    let images = |lacking| {
        let status = status(&before, &[stream("rhel-9", "new")], lacking).unwrap();
        let all = status["availableStreams"].as_array().unwrap().clone();
        all.iter().map(|s| format!("{} {}", s["name"], s["osImage"]).replace('"', "")).collect::<Vec<_>>()
    };
    assert_eq!(images(true), ["rhel-10 old", "rhel-9 new"]);
    assert_eq!(images(false), ["rhel-9 new"]);
}

#[test]
fn the_default_is_one_of_the_streams() {
    let stream = |name: &str| Stream {
        name: name.to_owned(),
        os_image: "o".to_owned(),
        os_extensions_image: "e".to_owned(),
    };
    let both = [stream("rhel-10"), stream("rhel-9")];
    let object =
        |spec: &str, now: &str| json!({"spec": {"defaultStream": spec}, "status": {"defaultStream": now}});
    for (spec, now, streams, want) in [
        ("rhel-9", "", &both[..], Ok("rhel-9")),
        ("", "rhel-10", &both[..], Ok("rhel-10")),
        ("", "gone", &both[..1], Ok("rhel-10")),
        ("", "gone", &both[..], Err("\"\"; the images have the streams rhel-10, rhel-9")),
        ("rhel-8", "rhel-9", &both[..], Err("\"rhel-8\"")),
        ("rhel-9", "", &[][..], Err("no pair of OS image and extensions image")),
    ] {
        match (status(&object(spec, now), streams, false), want) {
            (Ok(status), Ok(want)) => {
                assert_eq!(status["defaultStream"], want);
                assert_eq!(status["availableStreams"][0]["osExtensionsImage"], "e");
            }
            (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
            (got, want) => panic!("{spec} {now}: {got:?}, and not {want:?}"),
        }
    }
}

#[test]
fn a_default_that_was_changed_after_the_fill_is_followed() {
    let stream = |name: &str| json!({"name": name, "osImage": "o", "osExtensionsImage": "e"});
    let object = |from: Option<&str>, spec: &str, streams: Value| {
        json!({
            "metadata": {"annotations": {own::STREAMS_FROM: from}}, "spec": {"defaultStream": spec},
            "status": {"availableStreams": streams, "defaultStream": "rhel-9"},
        })
    };
    let both = || json!([stream("rhel-10"), stream("rhel-9")]);
    for (about, object, want) in [
        ("another one", object(Some("a"), "rhel-10", both()), Ok(Some("rhel-10"))),
        ("the same", object(Some("a"), "rhel-9", both()), Ok(None)),
        ("none", object(Some("a"), "", both()), Ok(None)),
        (
            "not listed",
            object(Some("a"), "rhel-8", both()),
            Err("\"rhel-8\"; the images have the streams rhel-10, rhel-9"),
        ),
        ("somebody else's status", object(None, "rhel-10", both()), Ok(None)),
        ("not filled", object(Some("a"), "rhel-10", json!([])), Ok(None)),
    ] {
        match (changed_default(&object), want) {
            (Err(why), Err(want)) => assert!(why.contains(want), "{about}: {why}"),
            (got, want) => assert_eq!(got, want.map_err(str::to_owned), "{about}"),
        }
    }
}

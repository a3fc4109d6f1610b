//! What goes from registries, and what is named and stays.

mod retries;

use super::clean_up::{MOST_KEPT, MOST_TRIED};
use super::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const REPOSITORY: &str = "r.example.com:5000/team/os";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(seconds).unwrap())
}

fn digest(digit: u8) -> String {
    format!("sha256:{}", format!("{digit:x}a").repeat(32))
}

fn name(digit: u8) -> String {
    format!("{REPOSITORY}@{}", digest(digit))
}

fn build(name_of: &str, state: &str, image: Option<u8>) -> MachineOSBuild {
    read(json!({
        "metadata": {
            "name": name_of, "annotations": {names::PUSH_SECRET: "push"}, "labels": {names::POOL: "infra"},
            "ownerReferences": [{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
                "name": "infra", "uid": "u", "controller": true}],
        },
        "spec": {"machineConfig": {"name": "r"}, "machineOSConfig": {"name": "infra"},
            "renderedImagePushSpec": format!("{REPOSITORY}:{name_of}")},
        "status": {
            "conditions": [{"type": state, "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "digestedImagePushSpec": image.map(name),
        },
    }))
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
fn config(notes: Value, image: Option<u8>) -> MachineOSConfig {
    read(json!({
        "metadata": {"name": "infra", "annotations": notes},
        "spec": {
            "machineConfigPool": {"name": "infra"}, "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": format!("{REPOSITORY}:latest"),
        },
        "status": {"currentImagePullSpec": image.map(name)},
    }))
}

fn image(digit: u8) -> Pushed {
    let what = PushedContent::Image { name: name(digit), tag: format!("{REPOSITORY}:b{digit}") };
    let [secret, os_config, pool] = ["push", "infra", "infra"].map(str::to_owned);
    Pushed { what, secret, os_config, pool, kept: None }
}

fn layers(repository: &str) -> Pushed {
    Pushed { what: PushedContent::Layers { repository: repository.to_owned() }, ..image(0) }
}

/// The tag that the build with this name pushes to.
fn tag(build: &str) -> Pushed {
    Pushed { what: PushedContent::Tag { name: format!("{REPOSITORY}:{build}") }, ..image(0) }
}

fn list(all: &[Pushed]) -> BTreeMap<String, Pushed> {
    all.iter().map(|p| (p.key(), p.clone())).collect()
}

/// What is remembered, forgotten and deleted, in words.
fn done(
    list: &BTreeMap<String, Pushed>,
    configs: &[MachineOSConfig],
    builds: &[MachineOSBuild],
    named: &[String],
) -> Vec<String> {
    let (configs, builds): (Vec<_>, Vec<_>) = (configs.iter().collect(), builds.iter().collect());
    let (named, pushing) = (named.iter().cloned().collect(), BTreeSet::new());
    let plan = clean_up(CleanUpInputs {
        list,
        configs: &configs,
        builds: &builds,
        named: &named,
        pushing: &pushing,
    });
    let forgotten = plan.forget.iter().map(|key| format!("forget {}", list[key].what));
    let remembered = plan.remember.iter().map(|p| format!("remember {}", p.what));
    let deleted = plan.delete.iter().map(|p| format!("delete {}", p.what));
    let all: Vec<String> = remembered.chain(forgotten).chain(deleted).collect();
    all.into_iter().map(|text| text.replace(REPOSITORY, "R").replace(&"1a".repeat(32), "one")).collect()
}

#[test]
fn an_image_goes_when_nothing_names_it_and_not_before() {
    let one = list(&[image(1)]);
    let gone = ["delete image R@sha256:one"];
    let none: [&str; 0] = [];
    let plain = || config(json!({}), Some(2));
    let note = |key: &str, value: &str| config(json!({key: value}), Some(2));
    let mut reuses = build("b3", "Succeeded", None);
    reuses.metadata.annotations.as_mut().unwrap().insert(names::REUSES.to_owned(), name(1));
    let mut built_on = build("b3", "Failed", None);
    built_on.metadata.annotations.as_mut().unwrap().insert(names::BUILT_ON.to_owned(), name(1));
    let file = |content: &str| {
        let mut one = plain();
        one.spec.container_file = read(json!([{"containerfileArch": "ARM64", "content": content}]));
        one
    };
    for (about, configs, builds, named, want) in [
        ("nothing names it", vec![plain()], vec![], vec![], &gone[..]),
        ("its MachineOSConfig is gone, too", vec![], vec![], vec![], &gone),
        ("its build is there", vec![plain()], vec![build("b1", "Succeeded", Some(1))], vec![], &none),
        ("another build has it", vec![plain()], vec![build("b2", "Failed", Some(1))], vec![], &none),
        ("a build is to have it", vec![plain()], vec![reuses], vec![], &none),
        ("it is in force", vec![config(json!({}), Some(1))], vec![], vec![], &none),
        ("it is to be taken over", vec![note(names::PRE_BUILT, &name(1))], vec![], vec![], &none),
        ("a node names it", vec![plain()], vec![], vec![name(1)], &none),
        ("a node has it from a mirror", vec![plain()], vec![], vec![format!("m.io/x@{}", digest(1))], &none),
        ("a MachineConfig has its tag", vec![plain()], vec![], vec![format!("{REPOSITORY}:b1")], &none),
        ("a node has another one", vec![plain()], vec![], vec![name(2)], &gone),
        (
            "a build may push it in a moment",
            vec![plain()],
            vec![build("b2", "Building", None)],
            vec![],
            &none,
        ),
        (
            "a build with its tag has pushed another one",
            vec![plain()],
            vec![build("b1", "Failed", None)],
            vec![],
            &gone,
        ),
        (
            "images are to stay",
            vec![note(names::OLD_IMAGES, "keep")],
            vec![],
            vec![],
            &["forget image R@sha256:one"],
        ),
        (
            "a transport is before its tag",
            vec![plain()],
            vec![],
            vec![format!("docker://{REPOSITORY}:b1")],
            &none,
        ),
        (
            "OSTree's words are before its tag",
            vec![plain()],
            vec![],
            vec![format!("ostree-unverified-registry:{REPOSITORY}:b1")],
            &none,
        ),
        (
            "OSTree's words are before its digest",
            vec![plain()],
            vec![],
            vec![format!("ostree-image-signed:docker://{}", name(1))],
            &none,
        ),
        ("a tag that ends like its own", vec![plain()], vec![], vec![format!("x{REPOSITORY}:b1")], &gone),
        ("a tag that begins like its own", vec![plain()], vec![], vec![format!("{REPOSITORY}:b12")], &gone),
        ("a build builds on it", vec![plain()], vec![built_on], vec![], &none),
        (
            "a Containerfile has its tag",
            vec![file(&format!("FROM {REPOSITORY}:b1 AS x\n"))],
            vec![],
            vec![],
            &none,
        ),
        ("by digest", vec![file(&format!("COPY --from={} /a /a\n", name(1)))], vec![], vec![], &none),
        (
            "in a mount, in quotes",
            vec![file(&format!("RUN --mount=type=bind,from=\"{REPOSITORY}:b1\",target=/x true\n"))],
            vec![],
            vec![],
            &none,
        ),
        (
            "in a command",
            vec![file(&format!("RUN (skopeo copy docker://{REPOSITORY}:b1; true)\n"))],
            vec![],
            vec![],
            &none,
        ),
        ("with a variable", vec![file(&format!("FROM {REPOSITORY}:${{TAG}}\n"))], vec![], vec![], &none),
        (
            "without a tag",
            vec![file(&format!("ARG BASE={REPOSITORY}\nFROM $BASE:b1\n"))],
            vec![],
            vec![],
            &none,
        ),
        ("of another tag", vec![file(&format!("FROM {REPOSITORY}:b12\n"))], vec![], vec![], &gone),
        ("an odd value", vec![note(names::OLD_IMAGES, "x")], vec![], vec![], &gone),
    ] {
        assert_eq!(done(&one, &configs, &builds, &named), want, "{about}");
    }
}

#[test]
fn what_was_pushed_here_and_is_not_on_the_list_is_put_there() {
    let none = BTreeMap::new();
    let by = |change: &dyn Fn(&mut MachineOSBuild)| {
        let mut one = build("b1", "Succeeded", Some(1));
        change(&mut one);
        done(&none, &[config(json!({}), None)], &[one], &[])
    };
    assert_eq!(by(&|_| ()), ["remember image R@sha256:one"]);
    let own = |b: &mut MachineOSBuild| b.metadata.owner_references = None;
    let elsewhere = |b: &mut MachineOSBuild| {
        let labels = b.metadata.labels.get_or_insert_default();
        labels.insert(names::PRE_BUILT.to_owned(), "true".to_owned());
    };
    let reuses = |b: &mut MachineOSBuild| {
        let notes = b.metadata.annotations.get_or_insert_default();
        notes.insert(names::REUSES.to_owned(), name(1));
    };
    let by_tag = |b: &mut MachineOSBuild| {
        b.status.get_or_insert_default().digested_image_push_spec = Some(format!("{REPOSITORY}:1"));
    };
    let kept = |b: &mut MachineOSBuild| {
        let notes = b.metadata.annotations.get_or_insert_default();
        notes.insert(names::OLD_IMAGES.to_owned(), names::KEEP.to_owned());
    };
    let another_place = |b: &mut MachineOSBuild| {
        let status = b.status.get_or_insert_default();
        status.digested_image_push_spec = Some(format!("{REPOSITORY}-2@{}", digest(1)));
    };
    for (about, got) in [
        ("somebody's own", by(&own)),
        ("to stay, whatever becomes of its MachineOSConfig", by(&kept)),
        ("in another repository than that of the build", by(&another_place)),
        ("from elsewhere", by(&elsewhere)),
        ("another build's", by(&reuses)),
        ("no digest", by(&by_tag)),
    ] {
        assert_eq!(got, [""; 0], "{about}");
    }
    let built = [build("b1", "Succeeded", Some(1))];
    assert_eq!(done(&none, &[config(json!({names::OLD_IMAGES: "keep"}), None)], &built, &[]), [""; 0]);
    assert_eq!(done(&list(&[image(1)]), &[], &built, &[]), [""; 0]);
    let mut built = built;
    kept(&mut built[0]);
    assert_eq!(done(&list(&[image(1)]), &[], &built, &[]), ["forget image R@sha256:one"]);
    assert_eq!(Pushed::layers(&config(json!({names::OLD_IMAGES: "keep"}), None)), None);
}

#[test]
fn what_a_build_has_pushed_without_success_is_looked_for_once_it_cannot_push_any_more() {
    let one = list(&[tag("b1")]);
    let gone = ["delete an image that may have the tag R:b1"];
    let forget = ["forget an image that may have the tag R:b1"];
    let none = [""; 0];
    let plain = || config(json!({}), Some(2));
    let keeps = || config(json!({names::OLD_IMAGES: "keep"}), Some(2));
    let mut kept = build("b1", "Failed", None);
    kept.metadata.annotations.as_mut().unwrap().insert(names::OLD_IMAGES.to_owned(), names::KEEP.to_owned());
    for (about, configs, builds, want) in [
        ("it has failed", vec![plain()], vec![build("b1", "Failed", None)], &gone[..]),
        ("its Job was deleted", vec![plain()], vec![build("b1", "Interrupted", None)], &gone),
        ("somebody has deleted the build", vec![plain()], vec![], &gone),
        ("and its MachineOSConfig", vec![], vec![], &gone),
        ("another build goes on", vec![plain()], vec![build("b2", "Building", None)], &gone),
        ("it goes on", vec![plain()], vec![build("b1", "Building", None)], &none),
        ("it begins", vec![plain()], vec![build("b1", "Prepared", None)], &none),
        ("it was asked for again", vec![plain()], vec![build("b1", "none", None)], &none),
        ("images are to stay", vec![keeps()], vec![build("b1", "Failed", None)], &forget),
        ("its own image is to stay", vec![plain()], vec![kept], &forget),
    ] {
        assert_eq!(done(&one, &configs, &builds, &[]), want, "{about}");
    }
    // Its image is on the list by its digest.
    let both = list(&[tag("b1"), image(1)]);
    assert_eq!(done(&both, &[plain()], &[build("b1", "Succeeded", Some(1))], &[]), forget);

    // A pod may outlive its Job by a little, whatever has become of the build.
    let (configs, builds) = (plain(), build("b1", "Interrupted", None));
    let late = |pod: &str| {
        let (named, pushing) = (BTreeSet::new(), [pod.to_owned()].into());
        let known = CleanUpInputs {
            list: &one,
            configs: &[&configs],
            builds: &[&builds],
            named: &named,
            pushing: &pushing,
        };
        let plan = clean_up(known);
        (plan.delete.len(), plan.later.len())
    };
    assert_eq!((late("b1"), late("b2")), ((0, 1), (1, 0)));

    // What is found is an image like any other: nothing names it, or something does.
    let found = tag("b1").found(&digest(1)).unwrap();
    assert_eq!(found, image(1));
    let one = list(&[found]);
    assert_eq!(done(&one, &[plain()], &[build("b1", "Failed", None)], &[]), ["delete image R@sha256:one"]);
    assert_eq!(done(&one, &[plain()], &[build("b1", "Failed", None)], &[name(1)]), none);
    assert_eq!(image(1).found(&digest(1)), None);
}

#[test]
fn the_tag_of_a_build_under_way_is_on_the_list_whoever_started_it() {
    let by = |state: &str, change: &dyn Fn(&mut BTreeMap<String, String>)| {
        let mut one = build("b1", state, None);
        change(one.metadata.annotations.as_mut().unwrap());
        done(&BTreeMap::new(), &[config(json!({}), None)], &[one], &[])
    };
    let started =
        |notes: &mut BTreeMap<String, String>| drop(notes.insert(names::JOB_UID.to_owned(), "u".to_owned()));
    let kept = |notes: &mut BTreeMap<String, String>| {
        started(notes);
        notes.insert(names::OLD_IMAGES.to_owned(), names::KEEP.to_owned());
    };
    assert_eq!(by("Building", &started), ["remember an image that may have the tag R:b1"]);
    assert_eq!(by("Building", &|_| ()), [""; 0], "it has no Job yet");
    assert_eq!(by("Building", &kept), [""; 0]);
    assert_eq!(by("Failed", &started), [""; 0], "what it pushed was looked for");
    assert_eq!(Pushed::tag(&build("b1", "Building", None)), Some(tag("b1")));
    assert_ne!(tag("b1").key(), tag("b2").key());
    assert_eq!(Pushed::read(&tag("b1").text()), Some(tag("b1")));
    assert_eq!(
        api::images::pushed_images::secret_of(&tag("b1").text()).as_deref(),
        Some("push"),
        "the operator reads it"
    );
}

#[test]
fn layers_go_with_the_last_config_that_keeps_them_there() {
    let all = list(&[layers(REPOSITORY), layers("r.example.com/layers"), image(1)]);
    let elsewhere = config(json!({names::LAYER_CACHE: "r.example.com/layers"}), Some(1));
    let none = config(json!({names::LAYER_CACHE: "none"}), Some(1));
    assert_eq!(done(&all, &[elsewhere], &[], &[]), ["delete layers in R"]);
    assert_eq!(done(&all, &[none], &[], &[]).len(), 2);
    assert_eq!(
        done(&all, &[], &[build("b2", "Building", None)], &[]),
        ["delete layers in r.example.com/layers"]
    );
    let (configs, builds): (Vec<&MachineOSConfig>, Vec<&MachineOSBuild>) = (vec![], vec![]);
    let named = [name(2)].into();
    let pushing = BTreeSet::new();
    let plan = clean_up(CleanUpInputs {
        list: &all,
        configs: &configs,
        builds: &builds,
        named: &named,
        pushing: &pushing,
    });
    let last = plan.delete.last().unwrap();
    assert!(matches!(last.what, PushedContent::Layers { .. }), "images go first");
    assert_eq!(plan.spare, [digest(1), digest(2)].into(), "what a node has is no layer that goes");
    let hash = "0f".repeat(32);
    let tags = ["latest", "infra-0f", &hash, &hash.to_uppercase(), &format!("sha256-{hash}.sig")];
    let (layers, others) = layer_tags(tags.map(str::to_owned).to_vec());
    assert_eq!((layers, others.len()), (vec![hash], 4));
}

#[test]
fn tags_that_may_be_somebodys_are_all_but_layers_signatures_and_the_own_one() {
    let hash = "0f".repeat(32);
    let (signature, other) = (format!("sha256-{hash}.sig"), format!("sha256-{hash}.x"));
    let tags = ["latest", "b1", "b2", "v1.sig", &hash, &signature, &other].map(str::to_owned).to_vec();
    assert_eq!(other_tags(tags, "b1"), ["latest", "b2", "v1.sig", &other]);
}

#[test]
fn keys_fit_a_config_map_and_a_signature_has_a_tag_of_its_own() {
    let key = image(1).key();
    assert!(key.len() <= 253 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{key}");
    assert_ne!(key, image(2).key());
    assert_ne!(layers(REPOSITORY).key(), key);
    let want = format!("{REPOSITORY}:sha256-{}.sig", "1a".repeat(32));
    assert_eq!(signature_tag(&name(1)).as_deref(), Some(&*want));
    assert_eq!(signature_tag("r/x:1"), None);
}

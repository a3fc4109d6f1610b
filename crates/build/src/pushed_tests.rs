//! What goes from registries, and what is named and stays.

use super::*;
use serde_json::{Value, json};

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
    let what = What::Image { name: name(digit), tag: format!("{REPOSITORY}:b{digit}") };
    let [secret, os_config, pool] = ["push", "infra", "infra"].map(str::to_owned);
    Pushed { what, secret, os_config, pool, kept: None }
}

fn layers(repository: &str) -> Pushed {
    Pushed { what: What::Layers { repository: repository.to_owned() }, ..image(0) }
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
    let named = named.iter().cloned().collect();
    let plan = clean_up(Known { list, configs: &configs, builds: &builds, named: &named });
    let forgotten = plan.forget.iter().map(|key| format!("forget {}", list[key].what));
    let remembered = plan.remember.iter().map(|p| format!("remember {}", p.what));
    let deleted = plan.delete.iter().map(|d| format!("delete {}", d.pushed.what));
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
    let plan = clean_up(Known { list: &all, configs: &configs, builds: &builds, named: &named });
    let last = plan.delete.last().unwrap();
    assert!(matches!(last.pushed.what, What::Layers { .. }), "images go first");
    assert_eq!(last.spare, [digest(1), digest(2)].into(), "what a node has is no layer that goes");
    let hash = "0f".repeat(32);
    let tags = ["latest", "infra-0f", &hash, &hash.to_uppercase(), &format!("sha256-{hash}.sig")];
    let (layers, others) = layer_tags(tags.map(str::to_owned).to_vec());
    assert_eq!((layers, others.len()), (vec![hash], 4));
}

#[test]
fn a_refusal_is_told_once_and_ends_it_and_an_outage_is_tried_for_a_week() {
    let fails = |temporary| Err(Failure { why: "405".to_owned(), temporary });
    assert_eq!(after(&image(1), Ok(()), &time(0)), After::Gone);
    let After::Stays { entry: Some(refused), tell: Some(said) } = after(&image(1), fails(false), &time(0))
    else {
        panic!("it is told")
    };
    assert!(said.contains("stays") && said.contains("405") && said.contains(&name(1)), "{said}");
    assert_eq!(done(&list(&[*refused.clone()]), &[], &[], &[]), [""; 0], "it is not tried again");
    let After::Stays { entry: Some(away), tell: Some(said) } = after(&image(1), fails(true), &time(0)) else {
        panic!("it is told")
    };
    assert!(said.contains("tried again"), "{said}");
    assert_eq!(done(&list(&[*away.clone()]), &[], &[], &[]), ["delete image R@sha256:one"]);
    let still = After::Stays { entry: None, tell: None };
    assert_eq!(after(&away, fails(true), &time(6 * 86_400)), still, "nothing is written or told again");
    let After::Stays { entry: Some(entry), tell: Some(_) } = after(&away, fails(true), &time(8 * 86_400))
    else {
        panic!("it ends")
    };
    assert!(entry.kept.as_ref().unwrap().for_good && entry.kept.unwrap().since == time(0));
    // An entry comes back as it was, and the list of what stays has an end.
    assert_eq!(Pushed::read(&refused.text()).as_ref(), Some(&*refused));
    assert_eq!(Pushed::read("{}"), None);
    let many: Vec<Pushed> = (0..MOST_KEPT + 2)
        .map(|i| Pushed {
            what: What::Layers { repository: format!("r.example.com/{i}") },
            kept: Some(Kept { why: String::new(), since: time(i as i64), for_good: true }),
            ..image(0)
        })
        .collect();
    let gone = done(&list(&many), &[], &[], &[]);
    assert_eq!(gone.len(), 2);
    assert!(gone.contains(&"forget layers in r.example.com/0".to_owned()), "the oldest: {gone:?}");
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

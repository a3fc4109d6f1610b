//! Edits by somebody else, and what is said of them; writes that a policy changes; finalizers that hold what is to go.

use super::*;
use crate::fake_server::machine_config as mc;
use api::names::VERSION_HASH;

#[test]
fn an_edit_is_told_by_the_object_alone_and_never_taken_from_a_new_template_or_another_build() {
    let ours = |mut mc: MachineConfig| {
        mc.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), VERSION_HASH.to_owned());
        with_digest(&mc)
    };
    // As the API server returns it: with the fields that it adds, and keys in another order.
    let stored = |mc: &MachineConfig| -> MachineConfig {
        let mut value = json!(mc);
        value["metadata"]["resourceVersion"] = json!("7");
        value["metadata"]["annotations"]["theirs"] = json!("x");
        serde_json::from_str(&value.to_string()).unwrap()
    };
    let mut made = mc("00-worker", None);
    made.spec.config = Some(json!({"ignition": {"version": "3.5.0"}, "b": 1, "a": 2}));
    let have = stored(&ours(made));
    assert!(!edited(&have, VERSION_HASH), "recognised as written, whatever the templates contain now");
    let mut config = have.clone();
    config.spec.config = Some(json!({"ignition": {"version": "3.5.0"}}));
    assert!(edited(&config, VERSION_HASH), "another config");
    let mut kargs = have.clone();
    kargs.spec.kernel_arguments = Some(vec!["quiet".to_owned()]);
    assert!(edited(&kargs, VERSION_HASH), "a kernel argument");
    let mut role = have;
    role.labels_mut().insert(label::ROLE.to_owned(), "infra".to_owned());
    assert!(edited(&role, VERSION_HASH), "another role");
    for key in [annotation::WRITTEN, annotation::GENERATED_BY_CONTROLLER] {
        let mut unknown = config.clone();
        unknown.annotations_mut().remove(key);
        assert!(!edited(&unknown, VERSION_HASH), "without {key} it is unknown");
    }
    let mut other = config;
    other.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), "another".to_owned());
    assert!(!edited(&other, VERSION_HASH), "another build may write the same in other words");
}

#[test]
fn a_patch_is_told_by_its_fields_and_never_by_what_they_hold() {
    let patch = json!({"metadata": {"resourceVersion": "1", "labels": {"a": null}}, "spec": {"config": {"x": "secret"}}});
    assert_eq!(fields(&patch), "metadata.labels, spec.config");
}

#[test]
fn every_kind_says_where_its_change_belongs() {
    for (mc, want) in [
        (mc("00-worker", Some(("ControllerConfig", "c"))), "for example 50-worker-mine"),
        (
            mc("99-worker-generated-kubelet", Some(("KubeletConfig", "k"))),
            "KubeletConfig k; make the change there",
        ),
        (mc("99-worker-generated-registries", Some(("Image", "cluster"))), "ImageDigestMirrorSet"),
        (mc("99-worker-generated-registries", None), "ImageDigestMirrorSet"),
        (mc("98-worker-generated-kubelet", None), "a KubeletConfig for pool worker"),
    ] {
        let (_, message) = instead(&mc);
        assert!(message.contains(want), "{}: {message}", mc.name_any());
    }
}

#[tokio::test]
async fn what_a_policy_changes_on_its_way_is_an_error_that_names_the_field() {
    use crate::fake_server::{answer, shared};
    use crate::flight::refusals::Failure as _;
    let wanted = mc("00-worker", None);
    for (stood, changed) in [(false, false), (false, true), (true, true)] {
        let mut stored = json!(with_digest(&wanted));
        stored["metadata"]["resourceVersion"] = json!("7");
        if changed {
            stored["spec"]["kernelArguments"] = json!(["audit=1"]);
        }
        let there: MachineConfig = serde_json::from_value(stored.clone()).unwrap();
        let shared = shared(move |_| answer(200, &stored));
        if stood {
            // The cache holds the result of an earlier write.
            shared.config_answer(there);
        }
        let done = create_or_restore(&shared, &wanted).await;
        let text = done.as_ref().err().map(|e| (e.is_refused(), e.chain()));
        assert_eq!(text.is_some(), changed, "{text:?}");
        if let Some((refused, text)) = text {
            assert!(refused && text.contains("00-worker") && text.contains("spec.kernelArguments"), "{text}");
            assert!(!text.contains("audit=1"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_somebody_elses_on_one_that_is_to_go_is_told_when_it_lasts() {
    use crate::fake_server::{answer, shared};
    use crate::flight::refusals::{CurrentFailures, WriteOutcomes};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let object = |version: &str, deleted: Option<&str>| {
        json!({"metadata": {"name": "02-worker", "uid": "u", "resourceVersion": version,
            "finalizers": ["example.com/backup"], "deletionTimestamp": deleted}, "spec": {}})
    };
    let shared = shared(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        answer(200, &object("2", Some("2026-01-01T00:00:00Z")))
    });
    shared.config_answer(serde_json::from_value(object("1", None)).unwrap());
    let troubles = CurrentFailures::default();
    let words = async || {
        let done = delete(&shared, "02-worker", "no template makes it").await;
        let mut writes = WriteOutcomes::default();
        let words = writes.record(&troubles, "02-worker", done);
        assert!(writes.are_over() == words.is_some(), "retried until it is reported");
        words
    };
    assert_eq!(words().await, None, "its owner may still be writing");
    tokio::time::advance(Duration::from_secs(6)).await;
    let told = words().await.expect("it has lasted");
    assert!(told.contains("02-worker") && told.contains("example.com/backup"), "{told}");
    assert_eq!(asked.load(Ordering::Relaxed), 1, "what is being deleted is not deleted again");
}

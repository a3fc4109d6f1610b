//! Tests of `templates`.

use super::*;
use crate::fake_server::{answer, item, put_pool, shared, template};
use crate::render_prerequisites::Prerequisite;
use api::names::annotation;

#[tokio::test]
async fn a_status_that_cannot_be_written_delays_no_rendering() {
    for (code, outcome) in [
        (None, Outcome::After(AGAIN)),
        (Some(500), Outcome::After(AGAIN)),
        (Some(429), Outcome::After(AGAIN)),
        (Some(403), Outcome::After(AGAIN)),
        // It was decided on an old version of the object.
        (Some(409), Outcome::Stale),
        (Some(404), Outcome::Stale),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut shared = shared(move |request| {
            let code = if request.method() == http::Method::PATCH { code } else { Some(404) };
            code.and_then(|code| answer(code, &json!({"kind": "Status", "code": code, "message": "no"})))
        });
        shared.templates = folder.path().to_owned();
        put_pool(&shared);
        let mut config = ControllerConfig::new(CONTROLLER_CONFIG, api::v1::ControllerConfigSpec::default());
        config.metadata.generation = Some(2);
        let newer = crate::cache::store::Item { version: 2, ..item(config.clone()) };
        shared.stores.controller_configs.apply(CONTROLLER_CONFIG.to_owned(), newer);
        let shared = Arc::new(shared);
        assert_eq!(pass(shared.clone(), CONTROLLER_CONFIG.to_owned()).await, outcome, "{code:?}");
        let pool = shared.stores.pools.get("worker").unwrap();
        let rendered = shared.prerequisites.templates.check(&config, &pool, &[]) == Prerequisite::Met;
        assert_eq!(rendered, outcome != Outcome::Stale, "{code:?}");
    }
}

#[test]
fn a_generation_that_fails_is_said_to_run_once_and_not_with_every_try() {
    let config = |observed: i64, failing: bool| {
        let mut config = ControllerConfig::new("c", api::v1::ControllerConfigSpec::default());
        config.metadata.generation = Some(2);
        config.status = Some(ControllerConfigStatus {
            observed_generation: observed,
            conditions: Some(vec![Condition::new(FAILING, failing, "", "")]),
            controller_certificates: None,
        });
        config
    };
    for (observed, failing, want) in [(1, false, true), (1, true, false), (2, false, false)] {
        assert_eq!(begins(&config(observed, failing)), want, "observed {observed}, failing {failing}");
    }
}

#[test]
fn only_what_the_templates_have_made_and_make_no_more_is_to_go() {
    let wanted = [template("00-worker", "worker")];
    let mut own = template("50-own", "worker");
    own.metadata.owner_references = None;
    let mut taken = template("51-taken", "worker");
    taken.annotations_mut().clear();
    let mut kubelet = template("99-worker-generated-kubelet", "worker");
    kubelet.metadata.owner_references.iter_mut().flatten().for_each(|o| o.kind = "KubeletConfig".to_owned());
    let mut old = template("01-worker-old", "worker");
    old.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), "v0".to_owned());
    let standing = [&wanted[0], &own, &taken, &kubelet, &old];
    let going = no_longer_produced(&wanted, &standing);
    let names: Vec<_> = going.iter().map(|c| c.name_any()).collect();
    assert_eq!(names, ["01-worker-old"]);
    // One of several may be deleted. The last ones of a role stay until somebody confirms that.
    assert!(emptied(&wanted, &going).is_empty());
    let masters = [template("00-master", "master"), template("01-master-kubelet", "master")];
    let all = [&wanted[0], &masters[0], &masters[1]];
    assert_eq!(emptied(&wanted, &all), ["00-master", "01-master-kubelet"]);
    assert_eq!(emptied(&[], &all).len(), 3);
}

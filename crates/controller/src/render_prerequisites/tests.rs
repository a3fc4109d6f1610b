//! When a pool may be rendered: the answer of each prerequisite as passes report to it.

use super::*;
use crate::fake_server::template;
use api::names::{CONTROLLER_CONFIG, label};
use serde_json::json;

fn config(generation: i64) -> ControllerConfig {
    let mut config = ControllerConfig::new(CONTROLLER_CONFIG, api::v1::ControllerConfigSpec::default());
    config.metadata.generation = Some(generation);
    config
}

fn pool(name: &str, roles: &[&str]) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"machineConfigSelector": {"matchExpressions": [
            {"key": label::ROLE, "operator": "In", "values": roles},
        ]}},
    }))
    .unwrap()
}

#[test]
fn a_pool_is_rendered_only_from_templates_machine_configs_that_are_as_the_templates_say() {
    let wanted = vec![template("00-master", "master"), template("00-worker", "worker")];
    let (workers, infra) = (pool("worker", &["worker"]), pool("infra", &["worker", "infra"]));
    let masters = pool("master", &["master"]);
    let mut theirs = template("00-worker", "worker");
    theirs.labels_mut().insert("theirs".to_owned(), "x".to_owned());
    theirs.annotations_mut().insert("theirs".to_owned(), "x".to_owned());
    theirs.metadata.resource_version = Some("7".to_owned());
    let edit = |change: fn(&mut MachineConfig)| {
        let mut config = template("00-worker", "worker");
        change(&mut config);
        vec![template("00-master", "master"), config]
    };
    let gone = vec![template("00-master", "master")];
    let mut own = template("50-own", "worker");
    own.metadata.owner_references = None;
    let rows: [(&str, Vec<MachineConfig>, bool); 11] = [
        ("as they say", wanted.clone(), true),
        ("labels and annotations of others", vec![template("00-master", "master"), theirs], true),
        ("one of somebody's own", [wanted.clone(), vec![own]].concat(), true),
        ("deleted", gone, false),
        ("another config", edit(|c| c.spec.config = Some(json!({"ignition": {"version": "3.4.0"}}))), false),
        ("a kernel argument", edit(|c| c.spec.kernel_arguments = Some(vec!["quiet".to_owned()])), false),
        ("an image", edit(|c| c.spec.os_image_url = "i".to_owned()), false),
        (
            "another role",
            edit(|c| drop(c.labels_mut().insert(label::ROLE.to_owned(), "x".to_owned()))),
            false,
        ),
        ("without its mark", edit(|c| c.annotations_mut().clear()), false),
        ("without its owner", edit(|c| c.metadata.owner_references = None), false),
        ("of a folder that is gone", [wanted.clone(), vec![template("02-worker", "worker")]].concat(), false),
    ];
    for (about, standing, fine) in rows {
        let standing: Vec<&MachineConfig> = standing.iter().collect();
        let all = TemplatesPrerequisite::default();
        assert_eq!(
            all.check(&config(1), &workers, &standing),
            WAIT_FOR_TEMPLATES,
            "{about}: nothing is known"
        );
        assert!(all.record_produced(&config(1), &wanted) && !all.record_produced(&config(1), &wanted));
        for pool in [&workers, &infra] {
            let want = if fine { Prerequisite::Met } else { WAIT_FOR_TEMPLATES };
            assert_eq!(all.check(&config(1), pool, &standing), want, "{about}");
        }
        assert_eq!(all.check(&config(1), &masters, &standing), Prerequisite::Met, "{about}: another pool");
        assert_eq!(
            all.check(&config(2), &masters, &standing),
            WAIT_FOR_TEMPLATES,
            "{about}: another ControllerConfig"
        );
        let names = ["00-worker", "02-worker"].map(|n| (n.to_owned(), "no".to_owned()));
        assert!(all.refused(names.clone().into()) && !all.refused(names.into()));
        let want = if fine {
            Prerequisite::Met
        } else {
            Prerequisite::Refuse { reason: RenderReason::Refused, message: "no".to_owned() }
        };
        assert_eq!(all.check(&config(1), &workers, &standing), want, "{about}");
        assert_eq!(all.check(&config(1), &masters, &standing), Prerequisite::Met, "{about}: another pool");
        assert!(all.failing("why") && !all.failing("why"));
        assert_eq!(
            all.check(&config(1), &masters, &standing),
            Prerequisite::Refuse {
                reason: RenderReason::TemplatesFailing,
                message: "templates: why".to_owned()
            }
        );
        all.forget();
        assert_eq!(all.check(&config(1), &masters, &standing), WAIT_FOR_TEMPLATES);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_waits_while_settings_change_and_is_told_what_is_refused() {
    let settings = SettingsPrerequisite::default();
    let not = Prerequisite::Refuse { reason: RenderReason::SettingsRefused, message: "why".to_owned() };
    assert_eq!(settings.check("a"), WAIT_FOR_SETTINGS, "before the first pass");
    let count = settings.count();
    settings.settle(count, BTreeMap::from([("b".to_owned(), "why".to_owned())]));
    assert_eq!((settings.check("a"), settings.check("b")), (Prerequisite::Met, not.clone()));
    let count = settings.count();
    settings.mark_outdated();
    settings.settle(count, BTreeMap::new());
    assert_eq!(settings.check("a"), WAIT_FOR_SETTINGS, "it changed while the pass was under way");
    // Somebody keeps changing something: the wait is bounded.
    tokio::time::advance(PATIENCE).await;
    settings.mark_outdated();
    assert_eq!(settings.check("a"), Prerequisite::Met);
    settings.settle(settings.count(), BTreeMap::new());
    settings.mark_outdated();
    assert_eq!(settings.check("a"), WAIT_FOR_SETTINGS, "the pass caught up in between");
    // The settings of an earlier term say nothing about what another leader wrote.
    settings.settle(settings.count(), BTreeMap::from([("b".to_owned(), "why".to_owned())]));
    settings.mark_outdated();
    tokio::time::advance(PATIENCE).await;
    assert_eq!((settings.check("a"), settings.check("b")), (Prerequisite::Met, not.clone()));
    settings.begin();
    settings.mark_outdated();
    assert_eq!(
        (settings.check("a"), settings.check("b"), settings.age()),
        (WAIT_FOR_SETTINGS, WAIT_FOR_SETTINGS, Duration::ZERO)
    );
    tokio::time::advance(PATIENCE).await;
    assert_eq!(settings.check("a"), WAIT_FOR_SETTINGS, "until the first pass of this term");
    settings.settle(settings.count(), BTreeMap::new());
    assert_eq!((settings.check("a"), settings.check("b")), (Prerequisite::Met, Prerequisite::Met));
    let never = SettingsPrerequisite::default();
    never.mark_outdated();
    tokio::time::advance(PATIENCE).await;
    assert_eq!(never.check("a"), WAIT_FOR_SETTINGS, "before the first pass the objects are unknown");
}

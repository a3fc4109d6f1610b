//! Which Secrets the controller may read to delete old images: those that MachineOSConfigs push with. Pure.
//!
//! A MachineOSConfig that goes, or takes another Secret, leaves images that can be deleted only with the one before. So a right
//! that was given stays while something on the list of pushed images needs that Secret. The list alone gives none: the controller
//! writes it, and would choose its own rights by it.
//!
//! What it is not: the Role (see `manifests::rights`), and the policy that refuses MachineOSConfigs with the installation's own
//! Secrets (see `manifests::admission`); what was written before there was one gets no right here.

use crate::manifests::own_secrets::is_own;
use crate::manifests::rights::PUSH_SECRETS;
use api::images::pushed_images::secret_of;
use api::k8s::ConfigMap;
use api::names::NAMESPACE;
use api::v1::MachineOSConfig;
use serde_json::Value;
use std::collections::BTreeSet;

/// The Secrets that images are pushed with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PushSecrets {
    /// Those that MachineOSConfigs name.
    named: BTreeSet<String>,
    /// Those that something on the list of pushed images needs.
    needed: BTreeSet<String>,
}

impl PushSecrets {
    /// From all MachineOSConfigs, and the list.
    pub(super) fn of(configs: &[MachineOSConfig], list: Option<&ConfigMap>) -> Self {
        let named = configs.iter().map(|c| c.spec.rendered_image_push_secret.name.clone());
        let entries = list.and_then(|map| map.data.as_ref()).into_iter().flatten();
        Self { named: named.collect(), needed: entries.filter_map(|(_, text)| secret_of(text)).collect() }
    }

    /// Those that the controller may read. `there`: the objects that the operator keeps, the Role of before among them.
    pub(super) fn readable(&self, there: &[Value]) -> BTreeSet<String> {
        let role = there.iter().find(|o| {
            let metadata = &o["metadata"];
            o["kind"] == "Role" && metadata["name"] == PUSH_SECRETS && metadata["namespace"] == NAMESPACE
        });
        let rules = role.and_then(|r| r["rules"].as_array()).into_iter().flatten();
        let given = rules.filter_map(|rule| rule["resourceNames"].as_array()).flatten();
        let kept = given.filter_map(Value::as_str).filter(|name| self.needed.contains(*name));
        let all = self.named.iter().map(String::as_str).chain(kept);
        all.filter(|name| !name.is_empty() && !is_own(name)).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::rights::push_secrets;
    use serde_json::json;

    fn config(secret: &str) -> MachineOSConfig {
        serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": {"renderedImagePushSecret": {"name": secret}}}),
        )
        .unwrap()
    }

    fn list(secrets: &[&str]) -> ConfigMap {
        let entry = |secret: &str| json!({"secret": secret, "pool": "p"}).to_string();
        let data: serde_json::Map<String, Value> = secrets
            .iter()
            .map(|s| (format!("image-{s}"), json!(entry(s))))
            .chain([("x".to_owned(), json!("x"))])
            .collect();
        serde_json::from_value(json!({"data": data})).unwrap()
    }

    #[test]
    fn the_right_follows_the_configs_and_stays_while_images_wait_for_it() {
        for (about, configs, listed, given, want) in [
            ("nothing", &[][..], &[][..], &[][..], &[][..]),
            ("what a config names", &["push", "other"], &[], &[], &["other", "push"]),
            ("twice", &["push", "push"], &["push"], &["push"], &["push"]),
            ("its config is gone and its images are not", &[], &["push"], &["push"], &["push"]),
            ("the config has another one by now", &["new"], &["push"], &["push"], &["new", "push"]),
            ("the last image is gone, too", &["new"], &["new"], &["push"], &["new"]),
            ("the list alone gives none", &[], &["signing-key"], &["push"], &[]),
            ("the installation's own", &["machine-config-server-ca", "push"], &[], &[], &["push"]),
            ("also if somebody gave it", &[], &["boot-token-1"], &["boot-token-1"], &[]),
            ("no name", &[""], &[""], &[""], &[]),
        ] {
            let configs: Vec<MachineOSConfig> = configs.iter().map(|name| config(name)).collect();
            let before = given.iter().map(|name| (*name).to_owned()).collect();
            let there = push_secrets(&before);
            let found = PushSecrets::of(&configs, Some(&list(listed))).readable(&there);
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), want, "{about}");
        }
        let secrets = PushSecrets::of(&[config("push")], None);
        assert_eq!(secrets.readable(&[]).len(), 1, "there is no Role and no list yet");
        // A Role of this name elsewhere is not the controller's.
        let mut elsewhere = push_secrets(&["old".to_owned()].into());
        elsewhere[0]["metadata"]["namespace"] = json!("default");
        let secrets = PushSecrets::of(&[], Some(&list(&["old"])));
        assert!(secrets.readable(&elsewhere).is_empty());
    }

    #[test]
    fn the_role_has_these_secrets_or_no_rule() {
        let [role, binding] = push_secrets(&BTreeSet::new());
        assert_eq!(role["rules"], json!([]), "a rule without names would be one for all Secrets");
        assert_eq!(binding["subjects"][0]["name"], "machine-config-controller");
        let [role, _] = push_secrets(&["push".to_owned(), "a".to_owned()].into());
        let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "push"], "verbs": ["get"]});
        assert_eq!(role["rules"], json!([rule]));
    }
}

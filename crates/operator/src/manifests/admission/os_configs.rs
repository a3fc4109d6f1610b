//! What the API server refuses of MachineOSConfigs.
//!
//! What it is not: the operator's own choice of the Secrets that the controller may read (see `sync::push_secrets`).

use super::{NAMES, On, Rule, not_by_the_controller, policy};
use crate::manifests::own_secrets::is_own_in_cel;
use api::names::{GROUP, own};
use serde_json::Value;

/// A MachineOSConfig names the Secrets that its builds get, and the controller may read the one that it pushes with. Those of the
/// installation itself are for neither, and the controller does not choose what it may read.
///
/// What is older than this policy can still be changed elsewhere, and deleted: the end of a deletion in the foreground is an update.
pub(super) fn secrets() -> Value {
    let on = On { group: GROUP, resources: &["machineosconfigs"], operations: &["CREATE", "UPDATE"] };
    let signing = own::SIGNING_SECRET;
    let fields = [
        (
            "push",
            "spec.renderedImagePushSecret.name".to_owned(),
            "spec.?renderedImagePushSecret.?name.orValue('')".to_owned(),
        ),
        (
            "pull",
            "spec.baseImagePullSecret.name".to_owned(),
            "spec.?baseImagePullSecret.?name.orValue('')".to_owned(),
        ),
        // Trimmed, as the builder reads it.
        (
            "signing",
            format!("the annotation {signing}"),
            format!("metadata.?annotations[?'{signing}'].orValue('').trim()"),
        ),
    ];
    let variables = fields.each_ref().map(|(name, _, path)| (*name, format!("object.{path}")));
    let variables = variables.each_ref().map(|(name, expression)| (*name, expression.as_str()));
    let mut rules: Vec<Rule> = fields
        .iter()
        .map(|(variable, field, path)| {
            let name = format!("variables.{variable}");
            let is_own = is_own_in_cel(&name);
            Rule {
                expression: format!(
                    "!{is_own} || has(object.metadata.deletionTimestamp) || (request.operation == 'UPDATE' && oldObject.{path} == {name})"
                ),
                message: "a MachineOSConfig names a Secret of the installation itself; name one of your own",
                words: Some(format!(
                    "'MachineOSConfig ' + object.metadata.name + ': {field} is ' + {name} + ', a Secret of the installation itself; name one of your own'"
                )),
            }
        })
        .collect();
    rules.push(Rule {
        expression: format!(
            "{} || (request.operation == 'UPDATE' && object.?spec == oldObject.?spec)",
            not_by_the_controller()
        ),
        message: "the controller must not write the spec of a MachineOSConfig, because it may read the Secret that is \
            named there",
        words: Some(
            "'MachineOSConfig ' + object.metadata.name + ': the controller may not create it or change its spec, because it may read the Secret that is named there'"
                .to_owned(),
        ),
    });
    policy(NAMES[10], &on, &variables, rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expressions run in a real API server only, see the lab's test of admission policies.
    #[test]
    fn each_field_passes_as_it_was_or_at_the_end_and_the_controller_writes_no_spec() {
        let policy = secrets();
        let rules: Vec<&str> = policy["spec"]["validations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["expression"].as_str().unwrap())
            .collect();
        let [fields @ .., controller] = &rules[..] else { panic!("{rules:?}") };
        let names = ["renderedImagePushSecret", "baseImagePullSecret", own::SIGNING_SECRET];
        assert_eq!(fields.len(), names.len());
        for (rule, name) in fields.iter().zip(names) {
            let old = rule.split("request.operation == 'UPDATE' && oldObject.").nth(1).unwrap();
            assert!(
                old.contains(name) && rule.contains("|| has(object.metadata.deletionTimestamp) ||"),
                "{rule}"
            );
        }
        assert!(fields[2].contains(".trim()"), "{}", fields[2]);
        let signing = policy["spec"]["variables"][2]["expression"].as_str().unwrap();
        assert!(signing.ends_with(".trim()"), "{signing}");
        assert!(controller.starts_with(&not_by_the_controller()), "{controller}");
        assert!(controller.ends_with("object.?spec == oldObject.?spec)"), "{controller}");
    }
}

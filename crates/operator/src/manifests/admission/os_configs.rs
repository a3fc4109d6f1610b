//! What the API server refuses of MachineOSConfigs.

use super::{NAMES, On, Rule, policy};
use crate::manifests::own_secrets::is_own_in_cel;
use api::names::{GROUP, own};
use serde_json::Value;

/// A MachineOSConfig names the Secrets that its builds get, and the controller may read the one that it pushes with. Those of the
/// installation itself are for neither.
pub(super) fn secrets() -> Value {
    let on = On { group: GROUP, resources: &["machineosconfigs"], operations: &["CREATE", "UPDATE"] };
    let signing = own::SIGNING_SECRET;
    let fields = [
        ("push", "object.spec.?renderedImagePushSecret.?name.orValue('')".to_owned()),
        ("pull", "object.spec.?baseImagePullSecret.?name.orValue('')".to_owned()),
        ("signing", format!("object.metadata.?annotations[?'{signing}'].orValue('')")),
    ];
    let variables = fields.each_ref().map(|(name, expression)| (*name, expression.as_str()));
    let rules = [
        ("push", "spec.renderedImagePushSecret.name".to_owned()),
        ("pull", "spec.baseImagePullSecret.name".to_owned()),
        ("signing", format!("the annotation {signing}")),
    ]
    .map(|(variable, field)| {
        let name = format!("variables.{variable}");
        Rule {
            expression: format!("!{}", is_own_in_cel(&name)),
            message: "a MachineOSConfig names a Secret of the installation itself; name one of your own",
            words: Some(format!(
                "'MachineOSConfig ' + object.metadata.name + ': {field} is ' + {name} + ', a Secret of the installation itself; name one of your own'"
            )),
        }
    });
    policy(NAMES[10], &on, &variables, rules.into())
}

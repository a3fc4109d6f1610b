//! What the API server refuses of MachineConfigs: contents that can never work, and writes to those that the controller makes.

use super::{NAMES, On, Rule, also, not_by_the_controller, policy};
use api::names::GROUP;
use api::names::annotation::GENERATED_BY_CONTROLLER;
use desired::rules::MODE_MAX;
use ignition::Version;
use serde_json::Value;

/// What can never work on a host, in MachineConfigs that people write. Lists are looked at once each, by tests that cost
/// little for each entry: the API server gives up on a policy that costs too much, and would refuse a large config.
pub(super) fn contents() -> Value {
    let on = On { group: GROUP, resources: &["machineconfigs"], operations: &["CREATE", "UPDATE"] };
    let variables = [
        ("config", "has(object.spec) && has(object.spec.config) ? object.spec.config : {}"),
        (
            "version",
            "has(variables.config.ignition) && has(variables.config.ignition.version) ? string(variables.config.ignition.version) : ''",
        ),
        (
            "files",
            "has(variables.config.storage) && has(variables.config.storage.files) && type(variables.config.storage.files) == list ? variables.config.storage.files : []",
        ),
        (
            "units",
            "has(variables.config.systemd) && has(variables.config.systemd.units) && type(variables.config.systemd.units) == list ? variables.config.systemd.units : []",
        ),
        ("badPaths", &format!("variables.files.filter(f, !({PATH}))")),
        (
            "badModes",
            &format!(
                "variables.files.filter(f, has(f.mode) && type(f.mode) == int && !(f.mode >= 0 && f.mode <= {MODE_MAX}))"
            ),
        ),
        ("badUnits", &format!("variables.units.filter(u, !({UNIT}))")),
    ];
    let at = "'MachineConfig ' + object.metadata.name + ': spec.config.";
    // As `ignition::Version` reads them, up to the newest that hosts read.
    let newest = Version::MODEL;
    let older = Version::ALL.into_iter().filter(|version| *version <= newest && *version != Version::V2_2);
    let older: Vec<String> = older.map(|version| version.as_str().replace('.', "[.]")).collect();
    let versions = format!("^(2[.][0-2][.]0|{})$", older.join("|"));
    let rules = vec![
        Rule {
            expression: format!("variables.config == {{}} || variables.version.matches('{versions}')"),
            message: "spec.config.ignition.version is not one that agents read; write 3.5.0",
            words: Some(format!(
                "{at}ignition.version \"' + variables.version + '\" is not one that agents read; write {newest}, or another of 2.2 and 3.0 to {newest}'"
            )),
        },
        Rule {
            expression: "size(variables.badPaths) == 0".to_owned(),
            message: "a file's path is absolute and in its simplest form: no //, /./, /../ and no / at the end",
            words: Some(format!(
                "{at}storage.files has the path \"' + (has(variables.badPaths[0].path) ? string(variables.badPaths[0].path) : '') + '\", which no host can have; a path is absolute and in its simplest form: no //, /./, /../ and no / at the end'"
            )),
        },
        Rule {
            expression: "size(variables.badModes) == 0".to_owned(),
            message: "a file's mode is between 0 and 0777 (decimal 511); JSON has no octal numbers",
            words: Some(format!(
                "{at}storage.files ' + string(variables.badModes[0].path) + ' has the mode ' + string(variables.badModes[0].mode) + '; it must be between 0 and 0777 (decimal {MODE_MAX}), and JSON has no octal numbers: write 420 for 0644'"
            )),
        },
        Rule {
            expression: "size(variables.badUnits) == 0".to_owned(),
            message: "a unit's name is one that systemd loads, such as foo.service",
            words: Some(format!(
                "{at}systemd.units has the name \"' + (has(variables.badUnits[0].name) ? string(variables.badUnits[0].name) : '') + '\", which systemd does not load; a name is made of letters, digits and :-_.\\\\@, and ends in its type, such as .service'"
            )),
        },
    ];
    let mut policy = policy(NAMES[6], &on, &variables, rules);
    // What is older than a rule can still be changed elsewhere, and deleted: the end of a deletion in the foreground is an update.
    also(
        &mut policy,
        "changes-the-contents",
        "!(request.operation == 'UPDATE' && (has(object.metadata.deletionTimestamp) || object.?spec == oldObject.?spec))",
    );
    // The controller's own are checked when they are rendered, and what it writes must never be held up here.
    also(&mut policy, "not-by-the-controller", &not_by_the_controller());
    also(
        &mut policy,
        "not-refused-as-generated",
        &format!("!(({}) && {})", is_generated(), bound_by_generated()),
    );
    policy
}

/// As `ignition::check_path`: at most one of each test for each path.
const PATH: &str = "has(f.path) && type(f.path) == string && f.path.startsWith('/') && !f.path.contains('//') && \
                    !(f.path + '/').contains('/./') && !(f.path + '/').contains('/../') && (f.path == '/' || !f.path.endsWith('/'))";
/// As `ignition::unit::check_name`.
const UNIT: &str = "has(u.name) && type(u.name) == string && size(u.name) <= 255 && \
    u.name.matches('^[A-Za-z0-9:_\\\\\\\\-][A-Za-z0-9:_.\\\\\\\\@-]*[.](service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$')";

/// A MachineConfig that the controller makes, or that it made before this change.
pub(super) fn is_generated() -> String {
    let made = |object: &str| {
        format!(
            "({object}.metadata.name.startsWith('rendered-') || (has({object}.metadata.annotations) && \
             '{GENERATED_BY_CONTROLLER}' in {object}.metadata.annotations))"
        )
    };
    format!("{} || (request.operation == 'UPDATE' && {})", made("object"), made("oldObject"))
}

/// Who may not write those. Kubernetes' own controllers take owners and finalizers away when owners go. Members of
/// system:masters are bound by no permission either: they break the glass.
fn bound_by_generated() -> String {
    format!(
        "{} && !request.userInfo.username.startsWith('system:serviceaccount:kube-system:') && \
         request.userInfo.username != 'system:kube-controller-manager' && \
         !(has(request.userInfo.groups) && 'system:masters' in request.userInfo.groups)",
        not_by_the_controller()
    )
}

/// Nobody else writes what the controller makes: the next pass would undo it, and a node that was faster would have it.
/// Deletion is allowed: the controller makes what is still needed again.
pub(super) fn generated() -> Value {
    let on = On { group: GROUP, resources: &["machineconfigs"], operations: &["CREATE", "UPDATE"] };
    let rule = Rule {
        expression: format!("!({})", is_generated()),
        message: "the controller makes this MachineConfig; change what it is made from",
        words: Some(
            "'MachineConfig ' + object.metadata.name + ': the controller makes it and would undo this; write a MachineConfig of your own, or change the KubeletConfig, ContainerRuntimeConfig or template that it is made from (mco explain says which)'"
                .to_owned(),
        ),
    };
    let mut policy = policy(NAMES[7], &on, &[], vec![rule]);
    also(&mut policy, "not-by-the-controller", &bound_by_generated());
    policy
}

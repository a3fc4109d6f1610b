//! The rights of the dashboard, and of the people who look at it.

use super::controller::read_by_controller;
use super::objects::{READ, account, cluster_binding, cluster_role, named, role, rule};
use super::{AGENT, CONTROLLER, DASHBOARD, OPERATOR, SERVER, SETTINGS_GROUP, VIEWER, who_reads_metrics};
use api::definition::Defined as _;
use api::first_boot::boot_token;
use api::names::GROUP;
use api::v1alpha1::RolloutPolicy;
use serde_json::Value;

/// The dashboard's account and rights, and the ClusterRole of people who look at it, in the order in which they must be written.
pub(crate) fn dashboard() -> Vec<Value> {
    let mut all = account(DASHBOARD).to_vec();
    all.push(cluster_role(DASHBOARD, &dashboard_rules()));
    all.push(cluster_binding(DASHBOARD));
    all.extend(role(DASHBOARD, boot_token::NAMESPACE, &[rule("", &["secrets"], &["list"])]));
    all.push(cluster_role(VIEWER, &viewer()));
    all
}

/// What the page shows. Of kinds that can have secrets in them it shows a part: no API server serves their
/// subresource `masked`, so this is a right to the page alone. With `secrets/masked` people see boot tokens there, and the dashboard itself may list Secrets
/// in the namespace of those alone.
pub(super) fn viewer() -> Vec<Value> {
    let config = "config.openshift.io";
    // The settings that rendering reads, to show what a change would do.
    let mut of_openshift = [read_by_controller(config), vec!["clusteroperators"]].concat();
    of_openshift.sort_unstable();
    vec![
        rule(GROUP, &["controllerconfigs/masked", "machineconfigs/masked"], &READ),
        rule("", &["events/masked", "pods/masked"], &READ),
        rule("", &["secrets/masked"], &["list"]),
        rule(
            GROUP,
            &[
                "containerruntimeconfigs",
                "kubeletconfigs",
                "machineconfignodes",
                "machineconfigpools",
                "machineosbuilds",
                "machineosconfigs",
                "osimagestreams",
                "pinnedimagesets",
            ],
            &READ,
        ),
        rule(SETTINGS_GROUP, &[RolloutPolicy::DEFINITION.plural, crate::settings::PLURAL], &READ),
        rule("", &["nodes"], &READ),
        rule("policy", &["poddisruptionbudgets"], &["list"]),
        // Whether the parts run, and who leads.
        named("apps", "deployments", &[CONTROLLER, OPERATOR, DASHBOARD], &["get"]),
        named("apps", "daemonsets", &[SERVER, AGENT], &["get"]),
        named("coordination.k8s.io", "leases", &[CONTROLLER, OPERATOR], &["get"]),
        rule(config, &of_openshift, &READ),
        rule("operator.openshift.io", &["imagecontentsourcepolicies", "machineconfigurations"], &["list"]),
    ]
}

/// What people see and do on the page, and the access reviews: nothing is done for anybody without one.
pub(super) fn dashboard_rules() -> Vec<Value> {
    let mut all = viewer();
    all.push(rule(GROUP, &["controllerconfigs", "machineconfigs"], &READ));
    all.push(rule("", &["pods"], &READ));
    all.push(rule("", &["events"], &["list"]));
    all.push(rule(GROUP, &["machineconfigpools"], &["patch"]));
    all.push(rule("", &["nodes"], &["patch"]));
    all.extend(who_reads_metrics());
    all
}

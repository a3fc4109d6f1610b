//! The controller against a real API server and controller manager: one controller for all tests of this process,
//! reached through a proxy that can cut it off; every test has pools and nodes of its own. Only the node daemon is a
//! fake.

mod harness;
mod steps;

use anyhow::{Context as _, Result, ensure};
use api::k8s::{Node, PodDisruptionBudget, ResourceExt};
use api::names::{annotation, label};
use api::v1::{MachineConfig, MachineConfigNode, MachineConfigPool};
use harness::{FakeDaemon, Harness, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use lab::Fault;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_machine_config_reaches_the_nodes_one_after_another() -> Result<()> {
    let harness = Harness::new("rollout").await?;
    // Events that cannot be written are lost, so the connection must not be cut in the meantime.
    let _held = harness.alone().await;
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    let first = harness.rendered_not("").await?;
    for i in 0..3 {
        harness.node(i, &first).await?;
    }
    harness.pool_is("Updated", 3).await?;
    let daemon = FakeDaemon::start(&harness);
    harness.machine_config("a", "two").await?;
    let second = harness.rendered_not(&first).await?;
    harness.pool_is("Updated", 3).await?;
    for i in 0..3 {
        let node = harness.get_node(i).await?;
        ensure!(
            node.annotations().get(annotation::CURRENT_CONFIG) == Some(&second),
            "{:?}",
            node.annotations()
        );
        ensure!(node.spec.and_then(|s| s.unschedulable) != Some(true), "node {i} is left cordoned");
    }
    ensure!(daemon.most_at_once() == 1, "{} nodes moved at once", daemon.most_at_once());
    let events = Api::<api::k8s::Event>::namespaced(harness.client.clone(), api::names::NAMESPACE);
    let told = || async {
        let list = events.list(&ListParams::default()).await.ok()?;
        let reasons = list.items.iter().filter(|e| e.involved_object.name.as_deref() == Some(&harness.name));
        let reasons: Vec<&str> = reasons.filter_map(|e| e.reason.as_deref()).collect();
        let count = |reason: &str| reasons.iter().filter(|r| **r == reason).count();
        (count("RenderedConfigGenerated") == 2 && count("SetDesiredConfig") == 3 && count("Completed") >= 1)
            .then_some(())
    };
    eventually("the pool's events", told).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_changes_makes_a_handful_of_rendered_configs() -> Result<()> {
    let harness = Harness::new("burst").await?;
    harness.pool(json!({})).await?;
    let names: Vec<String> = (0..60).map(|i| format!("m{i:02}")).collect();
    let all = futures::future::join_all(names.iter().map(|n| harness.machine_config(n, "x"))).await;
    all.into_iter().collect::<Result<Vec<()>>>()?;
    let sources = || async {
        let pool = harness.get_pool().await.ok()?;
        (pool.spec.configuration.source?.len() == names.len()).then_some(())
    };
    eventually("a config made of all", sources).await?;
    let made = harness.rendered().await?.len();
    ensure!(made <= 12, "{made} rendered configs of {} changes", names.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_a_disruption_budget_and_ends_when_it_allows() -> Result<()> {
    let harness = Harness::new("drain").await?;
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    let config = harness.rendered_not("").await?;
    harness.node(0, &config).await?;
    harness.guarded_pods(0, 2).await?;
    harness.annotate(0, annotation::DESIRED_DRAIN, &format!("drain-{config}")).await?;
    harness.step_is(0, "Drained", "Unknown").await?;
    let pods = Api::<Pod>::default_namespaced(harness.client.clone());
    let mine = ListParams::default().labels(&format!("app={}", harness.name));
    ensure!(pods.list(&mine).await?.items.len() == 2, "evicted against the budget");
    let node = harness.get_node(0).await?;
    ensure!(node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true), "not cordoned");
    ensure!(!node.annotations().contains_key(annotation::LAST_APPLIED_DRAIN), "called drained too early");

    let budgets = Api::<PodDisruptionBudget>::default_namespaced(harness.client.clone());
    let allow = json!({"spec": {"minAvailable": 0}});
    budgets.patch(&harness.name, &PatchParams::default(), &Patch::Merge(allow)).await?;
    harness.drained(0, &format!("drain-{config}")).await?;
    ensure!(pods.list(&mine).await?.items.is_empty(), "called drained with pods left");
    harness.annotate(0, annotation::DESIRED_DRAIN, &format!("uncordon-{config}")).await?;
    harness.drained(0, &format!("uncordon-{config}")).await?;
    let node = harness.get_node(0).await?;
    ensure!(node.spec.and_then(|s| s.unschedulable) != Some(true), "still cordoned");
    harness.step_is(0, "Uncordoned", "True").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_deleted_during_its_drain_loses_its_objects_and_may_register_again() -> Result<()> {
    let harness = Harness::new("gone").await?;
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    let config = harness.rendered_not("").await?;
    harness.node(0, &config).await?;
    harness.guarded_pods(0, 1).await?;
    harness.annotate(0, annotation::DESIRED_DRAIN, &format!("drain-{config}")).await?;
    harness.step_is(0, "Drained", "Unknown").await?;
    let nodes = Api::<Node>::all(harness.client.clone());
    nodes.delete(&harness.node_name(0), &DeleteParams::default()).await?;
    harness.pool_is("Updated", 0).await?;
    let steps = Api::<MachineConfigNode>::all(harness.client.clone());
    let away = || async { steps.get_opt(&harness.node_name(0)).await.ok()?.is_none().then_some(()) };
    eventually("the MachineConfigNode to go", away).await?;
    harness.node(0, &config).await?;
    harness.pool_is("Updated", 1).await?;
    let node = harness.get_node(0).await?;
    ensure!(node.spec.and_then(|s| s.unschedulable) != Some(true), "the new node is cordoned");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_decoded_is_skipped_and_works_once_it_is_corrected() -> Result<()> {
    let harness = Harness::new("bad").await?;
    harness.machine_config("a", "one").await?;
    // The CRD accepts any integer here; the Rust type has 32 bits.
    harness.pool(json!({"maxUnavailable": 5_000_000_000_i64})).await?;
    let other = Harness::new("good").await?;
    other.machine_config("a", "one").await?;
    other.pool(json!({})).await?;
    other.rendered_not("").await?;
    ensure!(harness.raw_pool().await?.pointer("/spec/configuration/name").is_none(), "rendered all the same");
    harness.patch_pool(json!({"spec": {"maxUnavailable": 1}})).await?;
    harness.rendered_not("").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_machine_config_is_reported_on_the_pool_and_moves_no_node() -> Result<()> {
    let harness = Harness::new("refused").await?;
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    let config = harness.rendered_not("").await?;
    harness.node(0, &config).await?;
    harness.raw_config("b", json!({"ignition": {"version": "9.9.9"}})).await?;
    let message = harness.pool_condition("RenderDegraded", "True").await?;
    ensure!(message.contains(&format!("{}-b", harness.name)) && message.contains("9.9.9"), "{message}");
    harness.pool_condition("Degraded", "True").await?;
    let node = harness.get_node(0).await?;
    ensure!(node.annotations().get(annotation::DESIRED_CONFIG) == Some(&config), "the node was moved");
    harness.machine_configs().delete(&format!("{}-b", harness.name), &DeleteParams::default()).await?;
    harness.pool_condition("RenderDegraded", "False").await?;
    harness.pool_condition("Degraded", "False").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_an_outage_of_the_api_server_are_caught_up_with() -> Result<()> {
    let harness = Harness::new("away").await?;
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    let first = harness.rendered_not("").await?;
    let second = {
        let _held = harness.alone().await;
        harness.fault(Fault::Cut);
        harness.machine_config("a", "two").await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        ensure!(harness.get_pool().await?.spec.configuration.name == first, "the cut does not cut");
        harness.fault(Fault::None);
        harness.rendered_not(&first).await?
    };
    ensure!(second.starts_with(&format!("rendered-{}-", harness.name)), "{second}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_generated_machine_config_is_restored() -> Result<()> {
    let harness = Harness::new("back").await?;
    // Another test edits the same 00-worker.
    let _held = harness.alone().await;
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    let rendered = harness.rendered_not("").await?;
    let configs = harness.machine_configs();
    for name in ["00-worker", rendered.as_str()] {
        let there = || async { configs.get_opt(name).await.ok()? };
        let before = eventually(name, there).await?;
        let spoil = json!({"spec": {"kernelArguments": ["spoilt"]}});
        configs.patch(name, &PatchParams::default(), &Patch::Merge(spoil)).await?;
        let back = || async {
            let now = configs.get(name).await.ok()?;
            (now.spec.config == before.spec.config
                && now.spec.kernel_arguments == before.spec.kernel_arguments)
                .then_some(())
        };
        eventually(&format!("{name} to be put back"), back).await?;
    }
    configs.delete(&rendered, &DeleteParams::default()).await?;
    let again = || async { configs.get_opt(&rendered).await.ok()? };
    eventually("the rendered config to be made again", again).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_or_deleted_template_machine_config_is_never_rendered() -> Result<()> {
    let harness = Harness::new("edited").await?;
    // Another test edits the same 00-worker.
    let _held = harness.alone().await;
    let roles = json!({"key": label::ROLE, "operator": "In", "values": ["worker", harness.name]});
    harness.machine_config("a", "one").await?;
    harness.pool(json!({"machineConfigSelector": {"matchExpressions": [roles]}})).await?;
    let configs = harness.machine_configs();
    let made = || async { configs.get_opt("00-worker").await.ok()? };
    let before = eventually("00-worker", made).await?;
    let taken = || async {
        let pool = harness.get_pool().await.ok()?;
        let source = pool.spec.configuration.source?;
        source.iter().any(|s| s.name.as_deref() == Some("00-worker")).then_some(pool.spec.configuration.name)
    };
    let rendered = eventually("a config with the template's", taken).await?;
    // Every rendered config that the pool ever named still exists: garbage collection keeps ten.
    let known: BTreeSet<String> = harness.rendered().await?.into_iter().collect();
    let back = || async { (configs.get("00-worker").await.ok()?.spec == before.spec).then_some(()) };
    for i in 0..4 {
        let edit = json!({"spec": {"kernelArguments": [format!("edit={i}")]}});
        configs.patch("00-worker", &PatchParams::default(), &Patch::Merge(edit)).await?;
        eventually("00-worker to be put back", back).await?;
        configs.delete("00-worker", &DeleteParams::default()).await?;
        eventually("00-worker to be made again", back).await?;
        let relabel = json!({"metadata": {"labels": {label::ROLE: "nobody"}}});
        configs.patch("00-worker", &PatchParams::default(), &Patch::Merge(relabel)).await?;
        let role = || async {
            (configs.get("00-worker").await.ok()?.labels().get(label::ROLE)? == "worker").then_some(())
        };
        eventually("00-worker to have its role again", role).await?;
    }
    // This change must be rendered after all of them.
    harness.machine_config("a", "two").await?;
    let last = harness.rendered_not(&rendered).await?;
    let mut now: BTreeSet<String> = harness.rendered().await?.into_iter().collect();
    now.remove(&last);
    ensure!(now == known, "rendered with an edit, or without the template: {now:?}, was {known:?}");
    harness.pool_condition("RenderDegraded", "False").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_rendered_configs_are_deleted_except_the_newest_ten_and_those_of_nodes() -> Result<()> {
    let harness = Harness::new("old").await?;
    harness.machine_config("a", "first").await?;
    harness.pool(json!({"paused": true})).await?;
    let first = harness.rendered_not("").await?;
    harness.node(0, &first).await?;
    let mut made = vec![first.clone()];
    for i in 0..13 {
        harness.machine_config("a", &format!("content {i}")).await?;
        made.push(harness.rendered_not(&made[i]).await?);
    }
    // The configs in use: that of the node, and the one in the pool's status, which is the first one or was set before
    // the node appeared.
    let wanted = || async {
        let status = harness.get_pool().await?.status.unwrap_or_default().configuration.name;
        let named = [first.clone(), status].into_iter().filter(|name| !name.is_empty());
        anyhow::Ok(made.iter().rev().take(10).cloned().chain(named).collect::<BTreeSet<String>>())
    };
    let settled = || async {
        let names: BTreeSet<String> = harness.rendered().await.ok()?.into_iter().collect();
        (names == wanted().await.ok()?).then_some(())
    };
    let in_vain = eventually("the newest ten rendered configs and those that are named", settled).await;
    if in_vain.is_err() {
        let (are, wanted) = (harness.rendered().await?, wanted().await?);
        anyhow::bail!("of {made:#?} there are {are:#?}, wanted {wanted:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_loses_its_lease_stands_by_and_can_lead_again() -> Result<()> {
    let harness = Harness::new("lead").await?;
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
        harness.client.clone(),
        api::names::NAMESPACE,
    );
    let holder = || async {
        let lease = leases.get_opt("machine-config-controller").await.ok()??;
        lease.spec?.holder_identity.filter(|h| !h.is_empty())
    };
    let first = eventually("a leader", holder).await?;
    let held = harness.alone().await;
    // The lease is taken away from the first controller, as in a long partition. It must stand by, and recover by
    // itself.
    let take = json!({"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 1}});
    leases.patch("machine-config-controller", &PatchParams::default(), &Patch::Merge(take)).await?;
    let back = || async { holder().await.filter(|h| *h == first) };
    eventually("the controller to lead again", back).await?;
    drop(held);
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    harness.rendered_not("").await.context("it leads but does nothing")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_waits_with_a_condition_while_it_selects_no_machine_config() -> Result<()> {
    let harness = Harness::new("none").await?;
    harness.pool(json!({})).await?;
    let message = harness.pool_condition("RenderDegraded", "True").await?;
    ensure!(message.contains("machineConfigSelector"), "{message}");
    let mut config =
        MachineConfig::new(&format!("{}-late", harness.name), api::v1::MachineConfigSpec::default());
    config.labels_mut().insert(label::ROLE.to_owned(), harness.name.clone());
    harness.machine_configs().create(&PostParams::default(), &config).await?;
    harness.pool_condition("RenderDegraded", "False").await?;
    let pool: MachineConfigPool = harness.get_pool().await?;
    ensure!(!pool.spec.configuration.name.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_pool_adopts_its_rendered_config() -> Result<()> {
    let harness = Harness::new("again").await?;
    harness.machine_config("a", "one").await?;
    harness.pool(json!({})).await?;
    let rendered = harness.rendered_not("").await?;
    let pools = Api::<MachineConfigPool>::all(harness.client.clone());
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    pools.delete(&harness.name, &orphan).await?;
    let away = || async { pools.get_opt(&harness.name).await.ok()?.is_none().then_some(()) };
    eventually("the pool to go", away).await?;
    harness.pool(json!({})).await?;
    ensure!(harness.rendered_not("").await? == rendered);
    let uid = harness.get_pool().await?.metadata.uid;
    let owner = harness.machine_configs().get(&rendered).await?.metadata.owner_references;
    ensure!(owner.iter().flatten().any(|o| Some(&o.uid) == uid.as_ref()), "{owner:?}");
    Ok(())
}

//! The controller against a real API server and controller manager: one controller for all tests of this process,
//! reached through a proxy that can cut it off; every test has pools and nodes of its own. Only the node daemon is a
//! fake.

mod house;
mod steps;

use anyhow::{Context as _, Result, ensure};
use api::k8s::{Node, Pod, PodDisruptionBudget, ResourceExt};
use api::names::{annotation, label};
use api::v1::{MachineConfig, MachineConfigNode, MachineConfigPool};
use house::{FakeDaemon, House, eventually};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use lab::Fault;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_machine_config_reaches_the_nodes_one_after_another() -> Result<()> {
    let house = House::new("rollout").await?;
    // Events that cannot be written are lost, so the connection must not be cut meanwhile.
    let _held = house.alone().await;
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    let first = house.rendered_not("").await?;
    for i in 0..3 {
        house.node(i, &first).await?;
    }
    house.pool_is("Updated", 3).await?;
    let daemon = FakeDaemon::start(&house);
    house.machine_config("a", "two").await?;
    let second = house.rendered_not(&first).await?;
    house.pool_is("Updated", 3).await?;
    for i in 0..3 {
        let node = house.get_node(i).await?;
        ensure!(
            node.annotations().get(annotation::CURRENT_CONFIG) == Some(&second),
            "{:?}",
            node.annotations()
        );
        ensure!(node.spec.and_then(|s| s.unschedulable) != Some(true), "node {i} is left cordoned");
    }
    ensure!(daemon.most_at_once() == 1, "{} nodes moved at once", daemon.most_at_once());
    let events = Api::<api::k8s::Event>::namespaced(house.client.clone(), api::names::NAMESPACE);
    let told = || async {
        let list = events.list(&ListParams::default()).await.ok()?;
        let reasons = list.items.iter().filter(|e| e.involved_object.name.as_deref() == Some(&house.name));
        let reasons: Vec<&str> = reasons.filter_map(|e| e.reason.as_deref()).collect();
        let count = |reason: &str| reasons.iter().filter(|r| **r == reason).count();
        (count("RenderedConfigGenerated") == 2 && count("SetDesiredConfig") == 3 && count("Completed") >= 1)
            .then_some(())
    };
    eventually("the pool's events", told).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_changes_makes_a_handful_of_rendered_configs() -> Result<()> {
    let house = House::new("burst").await?;
    house.pool(json!({})).await?;
    let names: Vec<String> = (0..60).map(|i| format!("m{i:02}")).collect();
    let all = futures::future::join_all(names.iter().map(|n| house.machine_config(n, "x"))).await;
    all.into_iter().collect::<Result<Vec<()>>>()?;
    let sources = || async {
        let pool = house.get_pool().await.ok()?;
        (pool.spec.configuration.source?.len() == names.len()).then_some(())
    };
    eventually("a config made of all", sources).await?;
    let made = house.rendered().await?.len();
    ensure!(made <= 12, "{made} rendered configs of {} changes", names.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_a_disruption_budget_and_ends_when_it_allows() -> Result<()> {
    let house = House::new("drain").await?;
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    let config = house.rendered_not("").await?;
    house.node(0, &config).await?;
    house.guarded_pods(0, 2).await?;
    house.annotate(0, annotation::DESIRED_DRAIN, &format!("drain-{config}")).await?;
    house.step_is(0, "Drained", "Unknown").await?;
    let pods = Api::<Pod>::default_namespaced(house.client.clone());
    let mine = ListParams::default().labels(&format!("app={}", house.name));
    ensure!(pods.list(&mine).await?.items.len() == 2, "evicted against the budget");
    let node = house.get_node(0).await?;
    ensure!(node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true), "not cordoned");
    ensure!(!node.annotations().contains_key(annotation::LAST_APPLIED_DRAIN), "called drained too early");

    let budgets = Api::<PodDisruptionBudget>::default_namespaced(house.client.clone());
    let allow = json!({"spec": {"minAvailable": 0}});
    budgets.patch(&house.name, &PatchParams::default(), &Patch::Merge(allow)).await?;
    house.drained(0, &format!("drain-{config}")).await?;
    ensure!(pods.list(&mine).await?.items.is_empty(), "called drained with pods left");
    house.annotate(0, annotation::DESIRED_DRAIN, &format!("uncordon-{config}")).await?;
    house.drained(0, &format!("uncordon-{config}")).await?;
    let node = house.get_node(0).await?;
    ensure!(node.spec.and_then(|s| s.unschedulable) != Some(true), "still cordoned");
    house.step_is(0, "Uncordoned", "True").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_deleted_in_the_middle_of_its_drain_takes_its_objects_along_and_can_come_back() -> Result<()> {
    let house = House::new("gone").await?;
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    let config = house.rendered_not("").await?;
    house.node(0, &config).await?;
    house.guarded_pods(0, 1).await?;
    house.annotate(0, annotation::DESIRED_DRAIN, &format!("drain-{config}")).await?;
    house.step_is(0, "Drained", "Unknown").await?;
    let nodes = Api::<Node>::all(house.client.clone());
    nodes.delete(&house.node_name(0), &DeleteParams::default()).await?;
    house.pool_is("Updated", 0).await?;
    let steps = Api::<MachineConfigNode>::all(house.client.clone());
    let away = || async { steps.get_opt(&house.node_name(0)).await.ok()?.is_none().then_some(()) };
    eventually("the MachineConfigNode to go", away).await?;
    house.node(0, &config).await?;
    house.pool_is("Updated", 1).await?;
    let node = house.get_node(0).await?;
    ensure!(node.spec.and_then(|s| s.unschedulable) != Some(true), "the new node is cordoned");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_decoded_is_skipped_and_works_once_it_is_corrected() -> Result<()> {
    let house = House::new("bad").await?;
    house.machine_config("a", "one").await?;
    // The definition accepts any integer here; the Rust type has 32 bits.
    house.pool(json!({"maxUnavailable": 5_000_000_000_i64})).await?;
    let other = House::new("good").await?;
    other.machine_config("a", "one").await?;
    other.pool(json!({})).await?;
    other.rendered_not("").await?;
    ensure!(house.raw_pool().await?.pointer("/spec/configuration/name").is_none(), "rendered all the same");
    house.patch_pool(json!({"spec": {"maxUnavailable": 1}})).await?;
    house.rendered_not("").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_config_that_breaks_a_rule_is_told_on_the_pool_and_moves_no_node() -> Result<()> {
    let house = House::new("refused").await?;
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    let config = house.rendered_not("").await?;
    house.node(0, &config).await?;
    house.raw_config("b", json!({"ignition": {"version": "9.9.9"}})).await?;
    let message = house.pool_condition("RenderDegraded", "True").await?;
    ensure!(message.contains(&format!("{}-b", house.name)) && message.contains("9.9.9"), "{message}");
    house.pool_condition("Degraded", "True").await?;
    let node = house.get_node(0).await?;
    ensure!(node.annotations().get(annotation::DESIRED_CONFIG) == Some(&config), "the node was moved");
    house.machine_configs().delete(&format!("{}-b", house.name), &DeleteParams::default()).await?;
    house.pool_condition("RenderDegraded", "False").await?;
    house.pool_condition("Degraded", "False").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_is_waited_for_and_changes_meanwhile_are_caught_up_with() -> Result<()> {
    let house = House::new("away").await?;
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    let first = house.rendered_not("").await?;
    let second = {
        let _held = house.alone().await;
        house.fault(Fault::Cut);
        house.machine_config("a", "two").await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        ensure!(house.get_pool().await?.spec.configuration.name == first, "the cut does not cut");
        house.fault(Fault::None);
        house.rendered_not(&first).await?
    };
    ensure!(second.starts_with(&format!("rendered-{}-", house.name)), "{second}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_generated_is_put_back_when_somebody_changes_it() -> Result<()> {
    let house = House::new("back").await?;
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    let rendered = house.rendered_not("").await?;
    let configs = house.machine_configs();
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
async fn an_edit_of_a_templates_machine_config_is_never_rendered_and_nor_is_its_absence() -> Result<()> {
    let house = House::new("edited").await?;
    let roles = json!({"key": label::ROLE, "operator": "In", "values": ["worker", house.name]});
    house.machine_config("a", "one").await?;
    house.pool(json!({"machineConfigSelector": {"matchExpressions": [roles]}})).await?;
    let configs = house.machine_configs();
    let made = || async { configs.get_opt("00-worker").await.ok()? };
    let before = eventually("00-worker", made).await?;
    let taken = || async {
        let pool = house.get_pool().await.ok()?;
        let source = pool.spec.configuration.source?;
        source.iter().any(|s| s.name.as_deref() == Some("00-worker")).then_some(pool.spec.configuration.name)
    };
    let rendered = eventually("a config with the template's", taken).await?;
    // Everything that the pool ever named still exists: nothing is deleted before there are eleven.
    let known: BTreeSet<String> = house.rendered().await?.into_iter().collect();
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
    house.machine_config("a", "two").await?;
    let last = house.rendered_not(&rendered).await?;
    let mut now: BTreeSet<String> = house.rendered().await?.into_iter().collect();
    now.remove(&last);
    ensure!(now == known, "rendered with an edit, or without the template: {now:?}, was {known:?}");
    house.pool_condition("RenderDegraded", "False").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_configs_that_nobody_names_go_but_the_newest_ten_and_those_of_nodes_stay() -> Result<()> {
    let house = House::new("old").await?;
    house.machine_config("a", "first").await?;
    house.pool(json!({"paused": true})).await?;
    let first = house.rendered_not("").await?;
    house.node(0, &first).await?;
    let mut made = vec![first.clone()];
    for i in 0..13 {
        house.machine_config("a", &format!("content {i}")).await?;
        made.push(house.rendered_not(&made[i]).await?);
    }
    // The node's config, and the one in the pool's status: the first one, or one that was seen before the node was.
    let wanted = || async {
        let status = house.get_pool().await?.status.unwrap_or_default().configuration.name;
        let named = [first.clone(), status].into_iter().filter(|name| !name.is_empty());
        anyhow::Ok(made.iter().rev().take(10).cloned().chain(named).collect::<BTreeSet<String>>())
    };
    let settled = || async {
        let names: BTreeSet<String> = house.rendered().await.ok()?.into_iter().collect();
        (names == wanted().await.ok()?).then_some(())
    };
    let in_vain = eventually("the newest ten rendered configs and those that are named", settled).await;
    if in_vain.is_err() {
        let (are, wanted) = (house.rendered().await?, wanted().await?);
        anyhow::bail!("of {made:#?} there are {are:#?}, wanted {wanted:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_is_taken_away_stands_by_and_comes_back_by_itself() -> Result<()> {
    let house = House::new("lead").await?;
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
        house.client.clone(),
        api::names::NAMESPACE,
    );
    let holder = || async {
        let lease = leases.get_opt("machine-config-controller").await.ok()??;
        lease.spec?.holder_identity.filter(|h| !h.is_empty())
    };
    let first = eventually("a leader", holder).await?;
    let held = house.alone().await;
    // The lease is taken away from the first controller, as in a long partition. It must stand by, and recover by
    // itself.
    let take = json!({"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 1}});
    leases.patch("machine-config-controller", &PatchParams::default(), &Patch::Merge(take)).await?;
    let back = || async { holder().await.filter(|h| *h == first) };
    eventually("the controller to lead again", back).await?;
    drop(held);
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    house.rendered_not("").await.context("it leads but does nothing")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_waits_with_a_condition_while_it_selects_no_machine_config() -> Result<()> {
    let house = House::new("none").await?;
    house.pool(json!({})).await?;
    let message = house.pool_condition("RenderDegraded", "True").await?;
    ensure!(message.contains("machineConfigSelector"), "{message}");
    let mut config =
        MachineConfig::new(&format!("{}-late", house.name), api::v1::MachineConfigSpec::default());
    config.labels_mut().insert(label::ROLE.to_owned(), house.name.clone());
    house.machine_configs().create(&PostParams::default(), &config).await?;
    house.pool_condition("RenderDegraded", "False").await?;
    let pool: MachineConfigPool = house.get_pool().await?;
    ensure!(!pool.spec.configuration.name.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_deleted_and_made_again_takes_its_rendered_config_over() -> Result<()> {
    let house = House::new("again").await?;
    house.machine_config("a", "one").await?;
    house.pool(json!({})).await?;
    let rendered = house.rendered_not("").await?;
    let pools = Api::<MachineConfigPool>::all(house.client.clone());
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    pools.delete(&house.name, &orphan).await?;
    let away = || async { pools.get_opt(&house.name).await.ok()?.is_none().then_some(()) };
    eventually("the pool to go", away).await?;
    house.pool(json!({})).await?;
    ensure!(house.rendered_not("").await? == rendered);
    let uid = house.get_pool().await?.metadata.uid;
    let owner = house.machine_configs().get(&rendered).await?.metadata.owner_references;
    ensure!(owner.iter().flatten().any(|o| Some(&o.uid) == uid.as_ref()), "{owner:?}");
    Ok(())
}

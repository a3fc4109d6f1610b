//! `mco token`: creates, lists and revokes boot tokens.

use crate::args::boot::{Token as Command, TokenCreate, TokenList, TokenRevoke};
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::boot_token::{ENTROPY, LABEL, MOVED, NAME_PREFIX, NAMESPACE, OLD_NAMESPACE, Record, Token};
use api::first_boot_nodes;
use api::names::annotation::{CUSTOM_POOL_LABELS_APPLIED, FIRST_BOOT_NODES};
use api::names::{MASTER, WORKER};
use api::v1::MachineConfigPool;
use client::call;
use comfy_table::{Table, presets};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

/// A pool's status, and with it its resourceVersion, changes with every node that moves.
const TRIES: usize = 10;

pub(crate) async fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Create(a) => create(a).await,
        Command::List(a) => list(a).await,
        Command::Revoke(a) => revoke(a).await,
    }
}

async fn create(a: TokenCreate) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let what = || format!("get MachineConfigPool {}", a.pool);
    if call(what, pools.get_opt(&a.pool)).await?.is_none() {
        bail!("there is no MachineConfigPool {:?}: `mco status` lists the pools", a.pool);
    }
    let mut entropy = [0; ENTROPY];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut entropy);
    random.map_err(|_| anyhow::anyhow!("the system's random number generator failed"))?;
    let token = Token::new(&entropy);
    let record = Record {
        node: a.node,
        addresses: a.addresses,
        expires: a.ttl.map(|ttl| Timestamp::now() + ttl),
        single_use: a.single_use,
        grace: a.grace,
        ..Record::new(&token, &a.pool)
    };
    operator::boot_tokens::keep_namespace(&client).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let expected = record.node.clone();
    let (secret, params) = (record.to_secret(), PostParams::default());
    let what = || format!("create Secret {NAMESPACE}/{}", record.secret_name());
    call(what, secrets.create(&params, &secret)).await?;
    output::write(&format!("{}\n", token.reveal()))?;
    if let Some(node) = expected.filter(|_| ![MASTER, WORKER].contains(&a.pool.as_str())) {
        expect(&pools, &a.pool, &node).await.with_context(|| {
            format!(
                "the token is valid, but node {node} will not be given the labels of pool {}: name the node \
                 in the pool's annotation {FIRST_BOOT_NODES}, or label the node",
                a.pool
            )
        })?;
        // A user who may not read Nodes does not get this warning.
        if let Ok(Some(old)) = call(|| format!("get Node {node}"), nodes.get_opt(&node)).await
            && let Some(warning) = left_over(&old, &a.pool)
        {
            eprintln!("warning: {warning}");
        }
    }
    Ok(exit::OK)
}

/// What to do about a Node that an earlier installation of the machine left. The controller takes the name off the pool's
/// list as soon as it sees that this Node has its labels, and the new machine would never get them.
fn left_over(node: &Node, pool: &str) -> Option<String> {
    node.annotations().get(CUSTOM_POOL_LABELS_APPLIED)?;
    let name = node.name_any();
    Some(format!(
        "Node {name} of an earlier installation still exists, so the new node would not be given the labels \
         of pool {pool}: delete it (`kubectl delete node {name}`) before the machine boots, then create the token again"
    ))
}

/// Notes on the pool that it expects this node: it gets the pool's labels when it has booted into the pool's config.
async fn expect(pools: &Api<MachineConfigPool>, pool: &str, node: &str) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let object = call(|| format!("get MachineConfigPool {pool}"), pools.get(pool)).await?;
        let Some(list) = first_boot_nodes::with(object.metadata.annotations.as_ref(), node) else {
            return Ok(());
        };
        let version = object.metadata.resource_version;
        let metadata = json!({"resourceVersion": version, "annotations": {FIRST_BOOT_NODES: list}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "metadata": metadata })));
        let what = || format!("change MachineConfigPool {pool}");
        match call(what, pools.patch(pool, &params, &patch)).await {
            Ok(_) => return Ok(()),
            // The pool has changed meanwhile: read it again and add the node to what it says now.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("MachineConfigPool {pool} keeps being changed by others; try again")
}

/// A token as it is listed. Nothing in it is secret.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    pool: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    single_use: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_by: Option<String>,
}

fn row(record: Record, now: Timestamp) -> Row {
    let second = |t: Timestamp| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Row {
        state: record.state(now).as_str(),
        id: record.id,
        pool: record.pool,
        node: record.node,
        addresses: record.addresses.iter().map(ToString::to_string).collect(),
        single_use: record.single_use,
        expires: record.expires.map(second),
        used_at: record.used.as_ref().map(|u| second(u.at)),
        used_by: record.used.map(|u| u.by.to_string()),
    }
}

fn text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no boot tokens\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["ID", "POOL", "STATE", "USES", "EXPIRES", "FOR", "USED"]);
    for r in rows {
        let for_whom: Vec<&str> = r.node.iter().chain(&r.addresses).map(String::as_str).collect();
        let used = r.used_at.iter().chain(&r.used_by).map(String::as_str).collect::<Vec<_>>().join(" by ");
        table.add_row([
            r.id.clone(),
            r.pool.clone(),
            r.state.to_owned(),
            if r.single_use { "one" } else { "any" }.to_owned(),
            r.expires.clone().unwrap_or_else(|| "never".to_owned()),
            for_whom.join(" "),
            used,
        ]);
    }
    table.lines().map(|l| format!("{}\n", l.trim_end())).collect()
}

/// All tokens, with those that are still in the namespace of older releases.
async fn records(client: &Client) -> anyhow::Result<Vec<Record>> {
    let labelled = ListParams::default().labels(LABEL);
    let mut records: Vec<Record> = vec![];
    for namespace in [NAMESPACE, OLD_NAMESPACE] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let listed = match call(|| format!("list Secrets in {namespace}"), secrets.list(&labelled)).await {
            // A user who may see tokens need not have rights in the old namespace.
            Err(error) if error.is_forbidden() && namespace == OLD_NAMESPACE => continue,
            listed => listed?,
        };
        let waits = |s: &&Secret| namespace == NAMESPACE || !s.annotations().contains_key(MOVED);
        for secret in listed.items.iter().filter(waits) {
            match Record::from_secret(secret) {
                Ok(record) if records.iter().any(|r| r.id == record.id) => {}
                Ok(record) => records.push(record),
                Err(why) => eprintln!("mco: not a boot token: {why}"),
            }
        }
    }
    Ok(records)
}

async fn list(a: TokenList) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let now = Timestamp::now();
    let mut records = records(&client).await?;
    records.retain(|r| a.pool.as_ref().is_none_or(|p| *p == r.pool));
    records.sort_by(|x, y| (&x.pool, &x.id).cmp(&(&y.pool, &y.id)));
    let rows: Vec<Row> = records.into_iter().map(|r| row(r, now)).collect();
    output::print_list(a.output, Kind::TokenList, &rows, || text(&rows))?;
    Ok(exit::OK)
}

async fn revoke(a: TokenRevoke) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let mut ids = a.ids;
    if a.spent {
        let now = Timestamp::now();
        ids.extend(records(&client).await?.into_iter().filter(|r| r.is_spent(now)).map(|r| r.id));
    }
    let mut missing = 0;
    for id in ids {
        // The whole token may be given; messages repeat its ID only.
        let id = id.split('.').next().unwrap_or_default();
        let name = format!("{NAME_PREFIX}{id}");
        let mut found = false;
        // The old namespace first: a Secret that stays there would be moved again.
        for namespace in [OLD_NAMESPACE, NAMESPACE] {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
            let params = DeleteParams::default();
            match call(|| format!("delete Secret {namespace}/{name}"), secrets.delete(&name, &params)).await {
                Ok(_) => found = true,
                Err(error) if error.is_not_found() => {}
                Err(error) if error.is_forbidden() && namespace == OLD_NAMESPACE => {}
                Err(error) => return Err(error.into()),
            }
        }
        if found {
            output::write(&format!("revoked {id}\n"))?;
        } else {
            eprintln!("mco: there is no boot token {id:?}; `mco token list` lists them");
            missing += 1;
        }
    }
    Ok(if missing == 0 { exit::OK } else { exit::FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_an_earlier_installation_is_warned_of() {
        let node = |annotations| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n1", "annotations": annotations}})).unwrap()
        };
        assert_eq!(left_over(&node(json!({})), "infra"), None);
        let warning = left_over(&node(json!({CUSTOM_POOL_LABELS_APPLIED: ""})), "infra").unwrap();
        assert!(warning.contains("kubectl delete node n1") && warning.contains("pool infra"), "{warning}");
    }
    use api::boot_token::{Use, net};
    use k8s_openapi::jiff::SignedDuration;

    #[test]
    fn the_table_tells_for_whom_until_when_and_who_used_it() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let record = |seed: u8| Record::new(&Token::new(&[seed; ENTROPY]), "worker");
        let by = std::net::IpAddr::from([10, 0, 0, 17]);
        let used = |hours| Some(Use { at: now - SignedDuration::from_hours(hours), by });
        let rows: Vec<Row> = [
            record(1),
            Record { expires: Some(now - SignedDuration::from_hours(1)), ..record(2) },
            Record {
                single_use: true,
                expires: Some(now + SignedDuration::from_hours(1)),
                node: Some("worker-7".to_owned()),
                addresses: vec![net("10.0.0.17").unwrap()],
                ..record(3)
            },
            Record { single_use: true, used: used(0), ..record(4) },
            Record { single_use: true, used: used(2), ..record(5) },
        ]
        .into_iter()
        .map(|r| row(r, now))
        .collect();
        let told = text(&rows);
        let words: Vec<String> =
            told.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let want = [
            "ID POOL STATE USES EXPIRES FOR USED",
            "010101010101 worker good any never",
            "020202020202 worker expired any 2027-01-15T07:00:00Z",
            "030303030303 worker good one 2027-01-15T09:00:00Z worker-7 10.0.0.17/32",
            "040404040404 worker in use one never 2027-01-15T08:00:00Z by 10.0.0.17",
            "050505050505 worker used one never 2027-01-15T06:00:00Z by 10.0.0.17",
        ];
        assert_eq!(words, want, "{told}");
        let keys = serde_json::to_value(&rows).unwrap();
        let keys: std::collections::BTreeSet<&String> =
            keys.as_array().unwrap().iter().flat_map(|r| r.as_object().unwrap().keys()).collect();
        let want = ["addresses", "expires", "id", "node", "pool", "singleUse", "state", "usedAt", "usedBy"];
        assert!(keys.iter().map(|k| k.as_str()).eq(want), "{keys:?}");
        assert_eq!(text(&[]), "no boot tokens\n");
    }
}

//! `mco token`: creates, lists and revokes boot tokens.

use crate::args::boot::token::{Token as Command, TokenCreate, TokenList, TokenRevoke};
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::Context;
use api::first_boot::boot_token::Record;
use api::names::annotation::FIRST_BOOT_NODES;
use comfy_table::{Table, presets};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use operator::boot_tokens::{self, NewToken};
use serde::Serialize;

pub(crate) async fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Create(a) => create(a).await,
        Command::List(a) => list(a).await,
        Command::Revoke(a) => revoke(a).await,
    }
}

async fn create(a: TokenCreate) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let new = NewToken {
        pool: a.pool.clone(),
        node: a.node.clone(),
        addresses: a.addresses,
        expires: a.ttl.map(|ttl| Timestamp::now() + ttl),
        single_use: a.single_use,
        grace: a.grace,
    };
    let token = boot_tokens::create(&client, new).await?;
    output::write(&format!("{}\n", token.reveal()))?;
    if let Some(node) = a.node {
        let warning = boot_tokens::expect_node(&client, &a.pool, &node).await.with_context(|| {
            format!(
                "the token is valid, but node {node} will not be given the labels of pool {}: name the node \
                 in the pool's annotation {FIRST_BOOT_NODES}, or label the node",
                a.pool
            )
        })?;
        if let Some(warning) = warning {
            eprintln!("warning: {warning}");
        }
    }
    Ok(exit::OK)
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

/// All tokens. Secrets that are none are reported.
async fn records(client: &Client) -> anyhow::Result<Vec<Record>> {
    let found = boot_tokens::list(client).await?;
    for why in found.unreadable {
        eprintln!("mco: not a boot token: {why}");
    }
    Ok(found.records)
}

async fn list(a: TokenList) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let now = Timestamp::now();
    let mut records = records(&client).await?;
    records.retain(|r| a.pool.as_ref().is_none_or(|p| *p == r.pool));
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
        if boot_tokens::revoke(&client, id).await? {
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
    use api::first_boot::boot_token::{ENTROPY, Token, TokenUse};
    use api::formats::network::network;
    use k8s_openapi::jiff::SignedDuration;

    #[test]
    fn the_table_tells_for_whom_until_when_and_who_used_it() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let record = |seed: u8| Record::new(&Token::new(&[seed; ENTROPY]), "worker");
        let by = std::net::IpAddr::from([10, 0, 0, 17]);
        let used = |hours| Some(TokenUse { at: now - SignedDuration::from_hours(hours), by });
        let rows: Vec<Row> = [
            record(1),
            Record { expires: Some(now - SignedDuration::from_hours(1)), ..record(2) },
            Record {
                single_use: true,
                expires: Some(now + SignedDuration::from_hours(1)),
                node: Some("worker-7".to_owned()),
                addresses: vec![network("10.0.0.17").unwrap()],
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

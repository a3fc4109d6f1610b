//! `mco pointer`: the few lines that a machine is provisioned with.
//!
//! Not here: how they are looked up (see `operator::pointer_facts`).

use crate::args::boot::pointer::Pointer as Arguments;
use crate::{connect, exit, output};
use anyhow::Context;
use ignition::Version;
use operator::pointer_facts::PointerFacts;

pub(crate) async fn run(a: Arguments) -> anyhow::Result<u8> {
    let version = Version::ALL
        .into_iter()
        .find(|v| {
            v.as_str() == a.ignition_version || v.as_str().strip_suffix(".0") == Some(&a.ignition_version)
        })
        .with_context(|| {
            let known: Vec<&str> = Version::ALL.iter().map(|v| v.as_str()).collect();
            format!("--ignition-version {:?}: write one of {}", a.ignition_version, known.join(", "))
        })?;
    let client = connect::connect(&a.cluster).await?;
    let read = |path: std::path::PathBuf| {
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let given = PointerFacts { host: a.host, ca: a.ca.map(read).transpose()?, token: a.token };
    let facts = given.look_up(&client, &a.pool).await?;
    let pointer = facts.pointer(&a.pool, a.port);
    output::write(&(serde_json::to_string_pretty(&pointer.config(version)?)? + "\n"))?;
    Ok(exit::OK)
}

//! Who sends how many requests to the API server: by verb from its metrics, by sender from its audit log.
//!
//! Leases and watches are left out: their number depends on time, not on work. Not here: what the requests cost.

use anyhow::Context;
use futures::AsyncReadExt;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How many requests the API server has answered, by verb.
pub(super) async fn by_verb(client: &kube::Client) -> anyhow::Result<BTreeMap<String, f64>> {
    let request = http::Request::get("/metrics").body(vec![])?;
    let text = client.request_text(request).await?;
    let mut sums = BTreeMap::new();
    for line in text.lines().filter_map(|l| l.strip_prefix("apiserver_request_total{")) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            labels
                .split(',')
                .find_map(|l| l.strip_prefix(name))
                .map(|v| v.trim_matches(['=', '"']).to_owned())
        };
        let (Some(verb), resource) = (label("verb"), label("resource").unwrap_or_default()) else { continue };
        if verb != "WATCH" && resource != "leases" {
            *sums.entry(verb).or_insert(0.0) += value.parse::<f64>().unwrap_or(0.0);
        }
    }
    Ok(sums)
}

/// Takes a CPU profile of the API server for this many seconds, for `go tool pprof`.
pub(super) async fn profile(client: &kube::Client, seconds: u64) -> anyhow::Result<String> {
    let request = http::Request::get(format!("/debug/pprof/profile?seconds={seconds}")).body(vec![])?;
    let mut stream = std::pin::pin!(client.request_stream(request).await?);
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).await?;
    let file = "target/bench/api-server.pprof";
    std::fs::write(file, bytes)?;
    Ok(file.to_owned())
}

/// The API server's audit log: `target/bench/audit.log`, which is kept for a closer look.
pub(super) struct Audit {
    folder: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    object_ref: Option<Object>,
    response_status: Option<Answer>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    resource: Option<String>,
    subresource: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    code: Option<u16>,
}

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
- {level: None, verbs: [watch]}
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- {level: Metadata}
";

impl Audit {
    pub(super) fn begin(root: &Path) -> anyhow::Result<Self> {
        let folder = root.join("target/bench");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("audit.log"), "")?;
        std::fs::write(folder.join("audit-policy.yaml"), POLICY)?;
        Ok(Self { folder })
    }

    pub(super) fn flags(&self) -> Vec<String> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.folder.join(name).display());
        vec![file("audit-policy-file", "audit-policy.yaml"), file("audit-log-path", "audit.log")]
    }

    /// The log's current end, as a position for [`Self::since`].
    pub(super) fn mark(&self) -> anyhow::Result<u64> {
        Ok(std::fs::metadata(self.folder.join("audit.log"))
            .context("the API server writes no audit log")?
            .len())
    }

    /// What was sent since then, by sender, verb and resource; refused requests are counted separately.
    pub(super) fn since(&self, mark: u64) -> anyhow::Result<BTreeMap<String, f64>> {
        let mut file = std::fs::File::open(self.folder.join("audit.log"))?;
        file.seek(SeekFrom::Start(mark))?;
        let mut sums = BTreeMap::new();
        for line in BufReader::new(file).lines() {
            let Ok(line) = serde_json::from_str::<Line>(&line?) else { continue };
            let resource = line.object_ref.map(|o| match (o.resource, o.subresource) {
                (Some(resource), Some(sub)) => format!("{resource}/{sub}"),
                (resource, _) => resource.unwrap_or_default(),
            });
            let code = line.response_status.and_then(|s| s.code).unwrap_or_default();
            let refused = if code >= 400 { format!(" ({code})") } else { String::new() };
            let what = format!(
                "{}: {} {}{refused}",
                line.user.username,
                line.verb,
                resource.as_deref().unwrap_or("-")
            );
            *sums.entry(what).or_insert(0.0) += 1.0;
            let writes = ["create", "update", "patch", "delete"].contains(&line.verb.as_str()) && code < 400;
            *sums.entry(format!("{}: all writes", line.user.username)).or_insert(0.0) +=
                f64::from(u8::from(writes));
        }
        Ok(sums)
    }
}

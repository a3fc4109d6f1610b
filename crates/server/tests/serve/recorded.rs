//! The reference's recorded answers, request by request, over real TLS. Where it served a config, ours is equal (files
//! to the byte). Where it refused, ours refuses, with a 4xx if the request is at fault.

use crate::common::Running;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn cases() -> Vec<Value> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/serve");
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "json"));
    paths.sort();
    paths.iter().map(|p| serde_json::from_slice(&std::fs::read(p).unwrap()).unwrap()).collect()
}

/// Removes fields that are null or empty.
fn lean(value: &Value) -> Value {
    let gone = |v: &Value| match v {
        Value::Null => true,
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::String(s) => s.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(k, v)| (k.clone(), lean(v))).filter(|(_, v)| !gone(v));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(lean).collect()),
        other => other.clone(),
    }
}

/// A config with the contents of its files decoded, so that only what a machine sees is compared.
fn seen(config: &Value) -> Value {
    let mut config = lean(config);
    if let Some(files) = config.pointer_mut("/storage/files").and_then(Value::as_array_mut) {
        for file in files {
            let Some(contents) = file.get_mut("contents") else { continue };
            let resource: ignition::Resource = serde_json::from_value(contents.clone()).unwrap();
            if let Ok(bytes) = resource.decode() {
                *contents = Value::String(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    config
}

/// The difference between the answer to one request and the recorded one. `None` if there is none.
async fn check(server: &Running, case: &Value, request: &Value) -> Option<String> {
    let text = |name: &str| request[name].as_str().unwrap_or_default();
    let (method, path, want) = (text("method"), text("path"), request["status"].as_u64().unwrap());
    if (300..400).contains(&want) {
        return None; // Go's router cleans paths; see docs/differences.md.
    }
    let mut headers: Vec<(&str, &str)> =
        request["accept"].as_str().map(|a| ("Accept", a)).into_iter().collect();
    if method != "GET" && method != "HEAD" {
        headers.push(("Content-Length", "0"));
    }
    let got = server.ask(method, path, &headers).await.unwrap();
    let tag = format!("{method} {path} {:?}", request["accept"]);
    if (want < 400) != (got.status < 400) {
        return Some(format!("{tag}: want {want}, got {}", got.status));
    }
    if want >= 400 {
        let broken_store = case["id"] == "serve-append";
        let fault = if got.status >= 500 { broken_store } else { true };
        return (!fault).then(|| format!("{tag}: a client's fault was answered {}", got.status));
    }
    if !path.starts_with("/config/") {
        return None;
    }
    if got.header("content-type") != Some("application/json") {
        return Some(format!("{tag}: content type {:?}", got.header("content-type")));
    }
    if method == "HEAD" {
        let length: usize = got.header("content-length").unwrap().parse().unwrap();
        return (length == 0 || !got.body.is_empty()).then(|| format!("{tag}: a body, or no length"));
    }
    let index = usize::try_from(request["body"].as_u64().unwrap()).unwrap();
    let config: Value = serde_json::from_slice(&got.body).unwrap();
    let (want, got) = (seen(&case["bodies"][index]), seen(&config));
    (want != got).then(|| format!("{tag}: bodies differ:\n  want {want}\n  got  {got}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_request_is_answered_as_the_reference_does() {
    let (mut requests, mut wrong) = (0, BTreeMap::new());
    let cases = cases();
    assert!(cases.len() >= 21, "{} cases", cases.len());
    for case in &cases {
        let files = case["served"].as_object().unwrap();
        let files = files.iter().map(|(path, text)| (path.as_str(), text.as_str().unwrap()));
        let server = Running::start(files, case["kubeconfig"].as_str().unwrap(), |_| {}).await.unwrap();
        for request in case["requests"].as_array().unwrap() {
            requests += 1;
            if let Some(why) = check(&server, case, request).await {
                wrong.entry(case["id"].as_str().unwrap()).or_insert_with(Vec::new).push(why);
            }
        }
        server.finish().await.unwrap();
    }
    assert!(requests > 500, "{requests} requests");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

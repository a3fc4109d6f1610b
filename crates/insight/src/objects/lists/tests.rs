//! Tests of `lists`.

use super::*;
use kube::client::Body;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// An API server that answers each request with this code; 0: it breaks the connection, 1: it never answers.
fn answering(code: u16) -> kube::Client {
    let serve = tower::service_fn(move |_: http::Request<Body>| async move {
        match code {
            0 => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
            1 => std::future::pending().await,
            _ => {}
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "R", "message": "no"});
        let body = Body::from(status.to_string().into_bytes());
        Ok(http::Response::builder().status(code).body(body).unwrap())
    });
    kube::Client::new(serve, "default")
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_list_names_its_kind_and_what_kind_of_failure_it_is() {
    let list = "cannot list MachineConfigPool objects";
    for (code, says, forbidden, outage) in [
        (403, format!("{list}: no (403 R)"), true, false),
        (503, format!("{list}: no (503 R)"), false, true),
        (0, format!("{list}: "), false, true),
        (1, format!("{list}: no answer within 60 s"), false, true),
        (404, "the cluster has no MachineConfigPools and MachineConfigs".to_owned(), false, false),
    ] {
        let begin = Instant::now();
        let error = for_rendering(&answering(code)).await.unwrap_err();
        assert!(client::chain(&error).starts_with(&says), "{}", client::chain(&error));
        let is_outage = matches!(&error, ListError::Call(error) if error.is_outage());
        assert_eq!((error.is_forbidden(), is_outage), (forbidden, outage), "{code}: {error:?}");
        assert!(begin.elapsed() <= PAGE_TIMEOUT * 2, "{code}: {:?}", begin.elapsed());
    }
}

/// An API server that sends each page after this time. Its MachineConfigs are two pages.
fn slow(takes: Duration, asked: Arc<Mutex<Vec<String>>>) -> kube::Client {
    let serve = tower::service_fn(move |request: http::Request<Body>| {
        let asked = asked.clone();
        async move {
            let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let query = request.uri().query().unwrap_or_default().to_owned();
            tokio::time::sleep(takes).await;
            asked.lock().unwrap().push(format!("{kind}?{query}"));
            let known =
                ["machineconfigpools", "controllerconfigs", "machineconfigs"].contains(&kind.as_str());
            let (code, body) = match known {
                true if kind == "machineconfigs" && !query.contains("continue") => (
                    200,
                    json!({"metadata": {"continue": "next"}, "items": [{"metadata": {"name": "a"}, "spec": {}}]}),
                ),
                true => (200, json!({"metadata": {}, "items": [{"metadata": {"name": "b"}, "spec": {}}]})),
                false => (404, json!({"kind": "Status", "code": 404, "message": "no", "reason": "NotFound"})),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    kube::Client::new(serve, "default")
}

#[tokio::test(start_paused = true)]
async fn large_lists_over_a_slow_line_are_waited_for_and_come_in_small_pages() {
    let asked = Arc::new(Mutex::new(vec![]));
    let listed = for_rendering(&slow(Duration::from_secs(40), asked.clone())).await.unwrap();
    let names = listed.objects.iter().map(|(_, v)| v["metadata"]["name"].as_str().unwrap().to_owned());
    assert_eq!(names.collect::<Vec<_>>(), ["b", "b", "a", "b"]);
    let asked = asked.lock().unwrap();
    let configs: Vec<&String> = asked.iter().filter(|of| of.starts_with("machineconfigs?")).collect();
    assert!(configs.len() == 2 && configs.iter().all(|of| of.contains("limit=20")), "{asked:?}");
}

/// An API server whose list of MachineConfigs, which has two pages, cannot be continued this many times.
fn forgetful(times: usize) -> kube::Client {
    let left = Arc::new(Mutex::new(times));
    let serve = tower::service_fn(move |request: http::Request<Body>| {
        let continues = request.uri().query().unwrap_or_default().contains("continue");
        let failure = |code: u16| {
            (code, json!({"kind": "Status", "code": code, "message": "too old", "reason": "Expired"}))
        };
        let item = |name: &str| json!([{"metadata": {"name": name}, "spec": {}}]);
        let (code, body) = match request.uri().path().rsplit('/').next().unwrap_or_default() {
            "machineconfigs" if !continues => {
                (200, json!({"metadata": {"continue": "next"}, "items": item("a")}))
            }
            "machineconfigs" => {
                let mut left = left.lock().unwrap();
                let is_too_old = *left > 0;
                *left = left.saturating_sub(1);
                match is_too_old {
                    true => failure(410),
                    false => (200, json!({"metadata": {}, "items": item("b")})),
                }
            }
            "machineconfigpools" | "controllerconfigs" => (200, json!({"metadata": {}, "items": []})),
            _ => failure(404),
        };
        let body = Body::from(body.to_string().into_bytes());
        async move { Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap()) }
    });
    kube::Client::new(serve, "default")
}

#[tokio::test]
async fn a_list_whose_token_is_too_old_is_begun_anew_but_not_for_ever() {
    for times in [0, 1, 2] {
        let listed = for_rendering(&forgetful(times)).await.unwrap();
        let names = listed.objects.iter().map(|(_, v)| v["metadata"]["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b"], "{times}");
    }
    let error = for_rendering(&forgetful(3)).await.unwrap_err();
    assert!(matches!(&error, ListError::Call(error) if error.code() == Some(410)), "{error:?}");
}

/// An API server whose list of MachineConfigs has these pages of one object, each of which takes this long. As with a real one, a
/// list shows the version of its first page, cannot be continued when that is older than five minutes, and goes on with the token
/// of that answer in the version of that time.
fn compacting(pages: u64, takes: Duration) -> kube::Client {
    let start = Instant::now();
    let serve = tower::service_fn(move |request: http::Request<Body>| {
        let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        async move {
            let now = start.elapsed().as_secs();
            // The version, which is the second at which it was the present one, and the page.
            let token = query.split('&').find_map(|field| field.strip_prefix("continue="));
            let place = token.unwrap_or("now-0").split_once('-').unwrap();
            let (version, page) = (place.0.parse().unwrap_or(now), place.1.parse::<u64>().unwrap());
            let expired = || {
                json!({"kind": "Status", "code": 410, "message": "too old", "reason": "Expired",
                    "metadata": {"continue": format!("now-{page}")}})
            };
            let (code, body) = match kind.as_str() {
                "machineconfigs" if now - version > 300 => (410, expired()),
                "machineconfigs" => {
                    tokio::time::sleep(takes).await;
                    let is_last = page + 1 == pages;
                    let next = if is_last { String::new() } else { format!("{version}-{}", page + 1) };
                    let item = json!({"metadata": {"name": format!("config-{page:02}")}, "spec": {}});
                    (200, json!({"metadata": {"continue": next}, "items": [item]}))
                }
                "machineconfigpools" | "controllerconfigs" => (200, json!({"metadata": {}, "items": []})),
                _ => (404, json!({"kind": "Status", "code": 404, "message": "no", "reason": "NotFound"})),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    kube::Client::new(serve, "default")
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_longer_than_it_can_be_continued_is_read_to_its_end() {
    let begin = Instant::now();
    let listed = for_rendering(&compacting(20, Duration::from_secs(20))).await.unwrap();
    let names: Vec<&str> =
        listed.objects.iter().map(|(_, v)| v["metadata"]["name"].as_str().unwrap()).collect();
    let want: Vec<String> = (0..20).map(|page| format!("config-{page:02}")).collect();
    assert_eq!(names, want);
    assert_eq!(begin.elapsed().as_secs(), 400, "nothing is read twice");
}

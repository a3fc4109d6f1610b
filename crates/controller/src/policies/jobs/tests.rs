//! Tests of `jobs`: one Job for each node, attempts, and the end of each.

use super::*;
use api::k8s::Time;
use std::collections::HashMap;
use std::sync::Mutex;

fn about(uid: &str, generation: i64, since: &str) -> CheckSubject {
    CheckSubject {
        config: "new".into(),
        since: Some(Time(since.parse().unwrap())),
        away: 0,
        policy: PolicyReference { name: "p".to_owned(), uid: uid.to_owned(), generation: Some(generation) },
        baseline: None,
        workloads: vec![],
        nodes: vec!["n".into()],
    }
}

fn smoke() -> Gate {
    Gate {
        name: "smoke".into(),
        before_wave: true,
        soak: true,
        always: false,
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        failure_limit: 1,
        no_answer_fails: false,
        check: Check::Job { namespace: "default".to_owned(), cron_job: "smoke".to_owned() },
    }
}

#[test]
fn a_job_belongs_to_one_attempt_and_goes_with_its_policy() {
    let gate = smoke();
    let first = about("u", 1, "2026-07-01T12:00:00Z");
    let name = job_name(&gate, &first, "n");
    assert_eq!(job_name(&gate, &about("u", 1, "2026-07-01T12:00:00Z"), "n"), name);
    for other in [
        about("v", 1, "2026-07-01T12:00:00Z"),
        about("u", 2, "2026-07-01T12:00:00Z"),
        about("u", 1, "2026-07-02T12:00:00Z"),
    ] {
        assert_ne!(job_name(&gate, &other, "n"), name, "{other:?}");
    }
    let made = job(&json!({"spec": {"template": {"spec": {}}}}), &first, "n", &name, attempt(&gate, &first));
    assert_eq!(made["metadata"]["labels"][ATTEMPT], attempt(&gate, &first));
    assert_eq!(made["spec"]["ttlSecondsAfterFinished"], 86400);
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!(made["spec"]["template"]["spec"]["nodeName"], "n");
    let keeps = json!({"spec": {"ttlSecondsAfterFinished": 60, "template": {"spec": {}}}});
    assert_eq!(job(&keeps, &first, "n", &name, String::new())["spec"]["ttlSecondsAfterFinished"], 60);
}

/// Jobs of hundreds of nodes: made once each, and the watch tells of their ends. Where no watch is allowed, each is asked for.
#[tokio::test(start_paused = true)]
async fn one_watch_tells_of_the_ends_of_all_jobs_and_without_it_each_is_asked_for() {
    use crate::fake_server::shared_with;
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    for (may_watch, failing) in [(true, false), (true, true), (false, false)] {
        /// Requests by their kind, and the Jobs that were made.
        type Seen = Arc<Mutex<(HashMap<&'static str, usize>, Vec<Value>)>>;
        let seen = Seen::default();
        let of_server = seen.clone();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let seen = of_server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
                let what = match (parts.method.as_str(), path.contains("cronjobs")) {
                    (_, true) => "cronjob",
                    ("POST", _) => "create",
                    _ if query.contains("watch=") => "watch",
                    _ => "get",
                };
                *seen.lock().unwrap().0.entry(what).or_default() += 1;
                let with_end = move |job: &Value| {
                    let mut job = job.clone();
                    let is_bad = failing && job["spec"]["template"]["spec"]["nodeName"] == "n7";
                    let type_ = if is_bad { "Failed" } else { "Complete" };
                    job["status"]["conditions"] = json!([{"type": type_, "status": "True", "message": "no"}]);
                    job
                };
                let (code, text) = match what {
                    "cronjob" => {
                        let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
                        let cron_job = json!({
                            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "smoke"},
                            "spec": {"jobTemplate": template},
                        });
                        (200, cron_job.to_string())
                    }
                    "create" => {
                        let body = body.collect_bytes().await.unwrap();
                        let job: Value = serde_json::from_slice(&body).unwrap();
                        seen.lock().unwrap().1.push(job.clone());
                        (201, job.to_string())
                    }
                    "watch" if !may_watch => (403, json!({"kind": "Status", "code": 403}).to_string()),
                    "watch" => {
                        // They end after a while.
                        let events = async move {
                            tokio::time::sleep(Duration::from_secs(3)).await;
                            let jobs = seen.lock().unwrap().1.clone();
                            let line = |job: &Value| {
                                json!({"type": "MODIFIED", "object": with_end(job)}).to_string() + "\n"
                            };
                            let text: String = jobs.iter().map(line).collect();
                            Ok::<_, std::convert::Infallible>(http_body::Frame::data(text.into()))
                        };
                        let body = http_body_util::StreamBody::new(futures::stream::once(events));
                        return Ok(Response::new(body.boxed_unsync()));
                    }
                    _ => {
                        let name = path.rsplit('/').next().unwrap_or_default();
                        let seen = seen.lock().unwrap();
                        let job = seen.1.iter().find(|j| j["metadata"]["name"] == name).unwrap();
                        (200, with_end(job).to_string())
                    }
                };
                let body = http_body_util::Full::from(text).boxed_unsync();
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = kube::Client::new(serve, "default");
        let shared = shared_with(client, &mut prometheus_client::registry::Registry::default());
        let about = CheckSubject {
            nodes: (0..300).map(|i| format!("n{i}").into()).collect(),
            ..about("u", 1, "2026-07-01T12:00:00Z")
        };
        let (_sender, mut wanted) = watch::channel(about);
        let mut jobs = Jobs::default();
        let gate = Gate { timeout: Duration::from_secs(60), ..smoke() };
        let reading = jobs.check(&shared, &gate, &mut wanted).await;
        let requests = seen.lock().unwrap().0.clone();
        let count = |what: &str| requests.get(what).copied().unwrap_or_default();
        assert_eq!((count("cronjob"), count("create")), (1, 300), "{requests:?}");
        if failing {
            let Reading::Broken(broken) = reading else { panic!("{reading:?}") };
            assert!(broken[0].contains("on n7 (no)"), "{broken:?}");
            continue;
        }
        assert_eq!((reading, jobs.ended().len()), (Reading::Broken(vec![]), 300));
        // Those whose Job was made before the watch was there look once for themselves.
        let looks = if may_watch { 0..=REQUESTS_OF_JOBS } else { 300..=300 };
        assert!(looks.contains(&count("get")), "{requests:?}");
        // The template counts for a moment.
        assert_eq!(jobs.check(&shared, &gate, &mut wanted).await, Reading::Broken(vec![]));
        assert_eq!(seen.lock().unwrap().0["cronjob"], 1);
    }
}

/// While a wave is under way, the Jobs of the nodes that are done so far end again and again, and more are wanted. Each watch would
/// begin with all Jobs that are there.
#[tokio::test(start_paused = true)]
async fn the_watch_of_jobs_outlives_checks_and_ends_with_the_gate() {
    use crate::fake_server::shared_with;
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    let (events, told) =
        futures::channel::mpsc::unbounded::<Result<http_body::Frame<_>, std::convert::Infallible>>();
    let told = Arc::new(Mutex::new(Some(told)));
    let (watches, accepts) = (Arc::<Mutex<usize>>::default(), Arc::<Mutex<Vec<String>>>::default());
    let (of_server, accepted, ends) = (watches.clone(), accepts.clone(), events.clone());
    let serve = tower::service_fn(move |request: Request<Body>| {
        let (watches, accepts, events, told) =
            (of_server.clone(), accepted.clone(), ends.clone(), told.clone());
        async move {
            let (parts, body) = request.into_parts();
            let text = match (parts.method.as_str(), parts.uri.query().unwrap_or_default()) {
                ("POST", _) => {
                    let accept = parts.headers.get("accept").map(|a| a.to_str().unwrap().to_owned());
                    accepts.lock().unwrap().extend(accept);
                    let sent: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                    let metadata = sent["metadata"].clone();
                    let status = json!({"conditions": [{"type": "Complete", "status": "True"}]});
                    let line = json!({"type": "MODIFIED", "object": {"metadata": metadata, "status": status}});
                    let _ = events.unbounded_send(Ok(http_body::Frame::data(format!("{line}\n").into())));
                    json!({"metadata": metadata}).to_string()
                }
                (_, query) if query.contains("watch=") => {
                    *watches.lock().unwrap() += 1;
                    let told = told.lock().unwrap().take().expect("one watch");
                    let body = http_body_util::StreamBody::new(told);
                    return Ok(Response::new(body.boxed_unsync()));
                }
                _ => json!({"metadata": {"name": "smoke"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": {}}}}}})
                    .to_string(),
            };
            let body = http_body_util::Full::from(text).boxed_unsync();
            Ok::<_, std::io::Error>(Response::builder().status(200).body(body).unwrap())
        }
    });
    let client = kube::Client::new(serve, "default");
    let shared = shared_with(client, &mut prometheus_client::registry::Registry::default());
    let of = |count: usize| CheckSubject {
        nodes: (0..count).map(|i| format!("n{i}").into()).collect(),
        ..about("u", 1, "2026-07-01T12:00:00Z")
    };
    let (sender, mut wanted) = watch::channel(of(3));
    let mut jobs = Jobs::default();
    for count in [3, 6, 9] {
        sender.send_replace(of(count));
        assert_eq!(jobs.check(&shared, &smoke(), &mut wanted).await, Reading::Broken(vec![]));
        assert_eq!((jobs.ended().len(), *watches.lock().unwrap()), (count, 1));
    }
    // Of what was sent, nothing is sent back.
    let accepts = accepts.lock().unwrap().clone();
    assert!(
        accepts.len() == 9 && accepts.iter().all(|a| a.contains("as=PartialObjectMetadata")),
        "{accepts:?}"
    );
    assert!(!events.is_closed());
    drop(jobs);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(events.is_closed(), "nobody reads the watch any more");
}

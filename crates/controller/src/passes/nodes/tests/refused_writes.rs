//! Writes that the API server refuses, or never answers: what a pass goes on with, and what the pool reports.

use super::*;

/// The requests to a server that never answers patches of node `a1`, as behind an admission webhook that hangs.
#[derive(Default)]
struct Asked {
    a1: AtomicUsize,
    version: AtomicUsize,
    sent: Mutex<BTreeSet<String>>,
    status: Mutex<String>,
}

impl Asked {
    async fn answer(&self, request: Request<Body>) -> serde_json::Value {
        let (parts, body) = request.into_parts();
        let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
        let path = parts.uri.path();
        let name = path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default();
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 2;
        if path.ends_with("/status") {
            if name == "a" {
                *self.status.lock().unwrap() = body;
            }
            return a_pool(name, version);
        }
        if name == "a1" {
            if parts.method == "PATCH" {
                self.a1.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
            return a_node(name, 1, "old");
        }
        let moves = body.contains(api::names::annotation::DESIRED_CONFIG);
        if moves {
            self.sent.lock().unwrap().insert(name.to_owned());
        }
        a_node(name, version, if moves { "new" } else { "old" })
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_never_answered_for_holds_up_nobody_but_itself() {
    let asked = Arc::new(Asked::default());
    let server = asked.clone();
    let serve = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let object = server.answer(request).await;
            Ok::<_, std::io::Error>(Response::new(Body::from(object.to_string().into_bytes())))
        }
    });
    let client = kube::Client::new(serve, "default");
    let shared = Arc::new(shared_with(client, &mut Registry::default()));
    for name in ["a", "b"] {
        let pool = serde_json::from_value(a_pool(name, 1)).unwrap();
        let item = Item { version: 1, uid: name.to_owned(), value: Arc::new(pool) };
        shared.stores.pools.apply(name.to_owned(), item);
        for node in [format!("{name}1"), format!("{name}2")] {
            let view = shared.view(&serde_json::from_value(a_node(&node, 1, "old")).unwrap());
            let item = Item { version: 1, uid: node.clone(), value: Arc::new(view) };
            shared.stores.nodes.apply(node, item);
        }
    }
    let config = json!({"metadata": {"name": "new", "resourceVersion": "1"}, "spec": {}});
    shared.config_answer(serde_json::from_value(config).unwrap());
    let nodes = Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared));
    let pass = async || {
        let outcome = tokio::time::timeout(Duration::from_secs(10), nodes.pass()).await;
        outcome.expect("a pass ends although one node does not answer")
    };
    for _ in 0..4 {
        pass().await;
    }
    let said = asked.status.lock().unwrap().clone();
    assert!(said.contains("does not answer changes of Node a1"), "{said}");
    let went = asked.sent.lock().unwrap().clone();
    assert_eq!(went, ["b1".to_owned()].into(), "the other pool continues, and this one keeps the slot");
    let drain =
        tokio::time::timeout(Duration::from_secs(1), shared.permits.take(PatchOf::Drain, &shared.terms))
            .await;
    assert!(drain.is_ok(), "drains have permits of their own");
    // The patch is tried for some minutes, until it can no longer arrive. Then the node is read, and patched again.
    tokio::time::sleep(client::lease::STRAY * 4).await;
    let tries = asked.a1.load(Ordering::Relaxed);
    assert!((5..30).contains(&tries), "{tries} tries");
    tokio::time::sleep(client::lease::STRAY * 4).await;
    assert_eq!(asked.a1.load(Ordering::Relaxed), tries, "they end");
    let failed = pass().await;
    assert!(matches!(failed, Outcome::Failed(_)), "{failed:?}");
    pass().await;
    assert!(asked.a1.load(Ordering::Relaxed) > tries, "and begin anew");
}

/// The requests to a server that answers patches of node `a1` with a given code, and accepts writes to pools.
struct Refusing {
    code: u16,
    /// Whether it leaves changes of pools' annotations unanswered too.
    mute: bool,
    written: Mutex<String>,
    annotated: AtomicUsize,
    /// How often a Node was patched.
    patched: AtomicUsize,
}

impl Refusing {
    fn new(code: u16, mute: bool) -> Arc<Self> {
        Arc::new(Self {
            code,
            mute,
            written: Mutex::default(),
            annotated: AtomicUsize::new(0),
            patched: AtomicUsize::new(0),
        })
    }

    /// The node pass over pool `a` with node `a1`, whose update taint should be removed.
    fn nodes(self: &Arc<Self>, pool: serde_json::Value) -> (Nodes, Arc<Shared>) {
        let server = self.clone();
        let stored = pool.clone();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let (server, stored) = (server.clone(), stored.clone());
            async move {
                let (parts, body) = request.into_parts();
                let path = parts.uri.path();
                let (mut code, mut object) = (200, stored);
                if path.ends_with("/status") {
                    let body = body.collect_bytes().await.unwrap();
                    *server.written.lock().unwrap() = String::from_utf8(body.to_vec()).unwrap();
                } else if path.ends_with("/machineconfigpools/a") {
                    server.annotated.fetch_add(1, Ordering::Relaxed);
                    if server.mute {
                        std::future::pending::<()>().await;
                    }
                } else {
                    server.patched.fetch_add(1, Ordering::Relaxed);
                    (code, object) = (
                        server.code,
                        json!({"kind": "Status", "code": server.code, "message": "no, says a1"}),
                    );
                }
                let body = Body::from(object.to_string().into_bytes());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = kube::Client::new(serve, "default");
        let shared = Arc::new(shared_with(client, &mut Registry::default()));
        let pool = serde_json::from_value(pool).unwrap();
        let item = Item { version: 1, uid: "a".to_owned(), value: Arc::new(pool) };
        shared.stores.pools.apply("a".to_owned(), item);
        let mut node = a_node("a1", 1, "new");
        node["metadata"]["annotations"][api::names::annotation::CURRENT_CONFIG] = json!("new");
        if self.code != 200 {
            node["spec"]["taints"] = json!([{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}]);
        }
        let view = shared.view(&serde_json::from_value(node).unwrap());
        let item = Item { version: 1, uid: "a1".to_owned(), value: Arc::new(view) };
        shared.stores.nodes.apply("a1".to_owned(), item);
        let config = json!({"metadata": {"name": "new", "resourceVersion": "1"}, "spec": {}});
        shared.config_answer(serde_json::from_value(config).unwrap());
        (Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared)), shared)
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_lasts_is_told_on_a_pool_whose_nodes_are_all_updated_and_freezes_no_status() {
    for (code, at_once) in [(409, false), (404, false), (422, true)] {
        let server = Refusing::new(code, false);
        let (nodes, shared) = server.nodes(a_pool("a", 1));
        let first = nodes.pass().await;
        let written = server.written.lock().unwrap().clone();
        assert!(written.contains("\"machineCount\":1"), "{code}: the counts are written: {written}");
        assert_eq!(written.contains("no, says a1"), at_once, "{code}: {written}");
        assert_eq!(matches!(first, Outcome::Failed(_)), at_once, "{code}: {first:?}");
        tokio::time::advance(Duration::from_secs(6)).await;
        let later = nodes.pass().await;
        assert!(matches!(later, Outcome::Failed(_)), "{code}: {later:?}");
        let written = server.written.lock().unwrap().clone();
        assert!(written.contains("no, says a1") && written.contains("Updating"), "{code}: {written}");
        // A write that was abandoned is not yet a failure when it is tried again later.
        assert!(shared.node_troubles.knows("a1"));
        shared.stores.nodes.remove("a1");
        nodes.pass().await;
        assert!(!shared.node_troubles.knows("a1"), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_taint_of_a_node_that_no_pool_owns_is_removed_and_a_refusal_is_tried_again() {
    for code in [200, 422] {
        let server = Refusing::new(code, false);
        let (nodes, shared) = server.nodes(a_pool("a", 1));
        let mut node = a_node("a1", 2, "new");
        node["metadata"]["labels"] = json!({"node-role.kubernetes.io/storage": ""});
        node["spec"]["taints"] = json!([{"key": "machineconfig.dev/joining", "effect": "NoSchedule"}]);
        let view = Arc::new(shared.view(&serde_json::from_value(node).unwrap()));
        shared.stores.nodes.apply("a1".to_owned(), Item { version: 2, uid: "a1".to_owned(), value: view });
        for _ in 0..2 {
            let done = nodes.pass().await;
            let refused = matches!(&done, Outcome::Failed(why) if why.contains("no, says a1"));
            assert_eq!(refused, code != 200, "{done:?}");
        }
        assert!(server.patched.load(Ordering::Relaxed) >= 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_first_boots_that_is_never_answered_for_slows_no_pass_and_is_told() {
    let server = Refusing::new(200, true);
    let mut pool = a_pool("a", 1);
    pool["metadata"]["annotations"] = json!({api::names::annotation::FIRST_BOOT_NODES: "a1,a2"});
    let (nodes, _context) = server.nodes(pool);
    nodes.pass().await;
    let begin = tokio::time::Instant::now();
    for _ in 0..3 {
        nodes.pass().await;
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(server.annotated.load(Ordering::Relaxed), 1, "one write is in flight");
    let written = server.written.lock().unwrap().clone();
    assert!(written.contains("\"machineCount\":1"), "the status is still written: {written}");
    assert!(
        written.contains("does not answer") && written.contains(api::names::annotation::FIRST_BOOT_NODES),
        "{written}"
    );
}

//! Tests of `cluster_access`: which names it answers to, and what other sites may open.

use super::*;
use http::Request;

fn access() -> ClusterAccess {
    let hosts = vec!["mco.example.com".to_owned(), "other.example.com:8443".to_owned()];
    ClusterAccess::new(&crate::fake_cluster::no_cluster(), hosts, vec![])
}

fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[tokio::test]
async fn only_names_that_are_ours_are_answered_to() {
    let access = access();
    for (host, ours) in [
        ("machine-config-dashboard", true),
        ("Machine-Config-Dashboard.openshift-machine-config-operator.svc", true),
        ("machine-config-dashboard.openshift-machine-config-operator.svc.cluster.local:9001", true),
        ("machine-config-dashboard.attacker.example", false),
        ("machine-config-dashboard.svc", false),
        ("localhost:8443", true),
        ("127.0.0.1", true),
        ("[::1]:8443", true),
        ("mco.example.com", true),
        ("mco.example.com:443", true),
        ("other.example.com:8443", true),
        ("other.example.com", false),
        ("attacker.example", false),
        ("mco.example.com.attacker.example", false),
        ("mco.example.com:x", false),
        ("10.0.0.1", false),
        ("", false),
    ] {
        let asked = access.is_for_us(&head("GET", "/api/snapshot", &[("host", host)]));
        assert_eq!(asked.err(), (!ours).then_some(OTHER_HOST), "{host}");
    }
    assert_eq!(access.is_for_us(&head("GET", "/", &[])).err(), Some(OTHER_HOST));
    let two = [("host", "localhost"), ("host", "attacker.example")];
    assert_eq!(access.is_for_us(&head("GET", "/", &two)).err(), Some(OTHER_HOST));
    let absolute = head("GET", "http://attacker.example/", &[("host", "localhost")]);
    assert_eq!(access.is_for_us(&absolute).err(), Some(OTHER_HOST));
}

#[tokio::test]
async fn other_sites_open_the_page_and_nothing_else() {
    let access = access();
    let host = ("host", "mco.example.com");
    let (origin, header) = (("origin", "https://mco.example.com"), (ACTION_HEADER, "1"));
    let cross = ("sec-fetch-site", "cross-site");
    let document = ("sec-fetch-dest", "document");
    type Row<'a> = (&'a str, &'a str, &'a str, Vec<(&'a str, &'a str)>, bool);
    let rows: Vec<Row<'_>> = vec![
        ("after a sign-in elsewhere", "GET", "/", vec![host, cross, document], true),
        ("in a frame", "GET", "/", vec![host, cross, ("sec-fetch-dest", "iframe")], false),
        ("an answer as a document", "GET", "/api/snapshot", vec![host, cross, document], false),
        ("by a script", "GET", "/api/snapshot", vec![host, cross], false),
        (
            "the page's own script",
            "GET",
            "/api/snapshot",
            vec![host, ("sec-fetch-site", "same-origin")],
            true,
        ),
        ("an action", "POST", "/api/actions", vec![host, origin, header], true),
        (
            "behind a proxy that changes the host",
            "POST",
            "/api/actions",
            vec![("host", "machine-config-dashboard"), origin, header],
            true,
        ),
        ("without the header", "POST", "/api/actions", vec![host, origin], false),
        ("without an origin", "POST", "/api/actions", vec![host, header], false),
        ("by a form", "POST", "/", vec![host, cross, document], false),
        (
            "of another origin",
            "POST",
            "/api/actions",
            vec![host, header, ("origin", "https://attacker.example")],
            false,
        ),
        (
            "of another port",
            "POST",
            "/api/actions",
            vec![host, header, ("origin", "https://mco.example.com:1")],
            false,
        ),
        (
            "in plain text",
            "POST",
            "/api/actions",
            vec![host, header, ("origin", "http://mco.example.com")],
            false,
        ),
        ("a sign-in from elsewhere", "POST", "/api/session", vec![host, header, ("origin", "null")], false),
    ];
    for (what, method, path, headers, may) in rows {
        let asked = access.is_for_us(&head(method, path, &headers));
        assert_eq!(asked.err(), (!may).then_some(OTHER_SITE), "{what}");
    }
}

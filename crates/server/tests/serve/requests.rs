//! Requests as real clients write them, and malformed ones: methods, targets, HTTP versions, irrelevant headers and
//! manipulated headers. Each is sent as bytes over TLS.

use crate::common::{Answer, PATIENCE, Running};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CONFIG: &str = "metadata: {name: rendered-1}\nspec: {config: {ignition: {version: 3.5.0}, \
    storage: {files: [{path: /etc/a, contents: {source: 'data:,x'}}]}}}\n";

async fn start() -> Running {
    start_with(CONFIG).await
}

async fn start_with(config: &str) -> Running {
    let files = [
        (
            "machine-pools/master.yaml",
            "metadata: {name: master}\nstatus: {configuration: {name: rendered-1}}\n",
        ),
        ("machine-configs/rendered-1.yaml", config),
        (
            "controller-config/machine-config-controller.yaml",
            "metadata: {name: machine-config-controller}\nspec: {}\n",
        ),
    ];
    Running::start(files, "kind: Config\n", |_| {}).await.unwrap()
}

/// The answer to these bytes on a new connection. `None` if the server closed it without an answer.
async fn say(server: &Running, bytes: &[u8]) -> Option<Answer> {
    let mut stream = server.connect(|_| {}).await.unwrap();
    // The server may close before all is written.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let mut all = vec![];
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the server closes");
    (!all.is_empty()).then(|| Answer::read(&all).unwrap())
}

#[tokio::test]
async fn every_form_of_a_request_has_its_answer() {
    let server = start().await;
    let rows: [(&str, &str, u16); 47] = [
        ("GET", "/config/master", 200),
        ("HEAD", "/config/master", 200),
        ("POST", "/config/master", 405),
        ("PUT", "/config/master", 405),
        ("PATCH", "/config/master", 405),
        ("DELETE", "/config/master", 405),
        ("OPTIONS", "/config/master", 405),
        ("OPTIONS", "*", 405),
        ("TRACE", "/config/master", 405),
        ("CONNECT", "localhost:443", 405),
        ("PROPFIND", "/config/master", 405),
        ("get", "/config/master", 405),
        ("GETX", "/healthz", 405),
        ("GET", "/config/master?", 200),
        ("GET", "/config/master?version=4.0.0", 200),
        ("GET", "/config/master?/config/nosuch", 200),
        ("GET", "/config/nosuch?/config/master", 404),
        ("GET", "/config/master/?x=%", 200),
        ("GET", "https://localhost/config/master", 200),
        ("GET", "http://evil.example/config/master", 200),
        ("GET", "//config/master", 200),
        ("GET", "//evil.example/config/master", 404),
        ("GET", "/config//master", 200),
        ("GET", "/config/./master", 200),
        ("GET", "/./config/master", 200),
        ("GET", "/config/x/../master", 200),
        ("GET", "/config/../../../../etc/passwd", 404),
        ("GET", "/config/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/config/%2e%2e/%2e%2e/etc/shadow", 404),
        ("GET", "/config/%2fetc%2fmaster", 200),
        ("GET", "/config/master%2f", 200),
        ("GET", "/config/master%00", 400),
        ("GET", "/config/master%0d%0aX:y", 400),
        ("GET", "/config/%6d%61%73%74%65%72", 200),
        ("GET", "/config/%256d", 400),
        ("GET", "/config/MASTER", 400),
        ("GET", "/config/master.yaml", 404),
        ("GET", "/config/rendered-1", 404),
        ("GET", "/config/machine-pools/master", 200),
        ("GET", "/Config/master", 404),
        ("GET", "/config\\master", 404),
        ("GET", "/machine-pools/master.yaml", 404),
        ("GET", "/healthz", 200),
        ("GET", "/healthz?full=1", 200),
        ("HEAD", "/readyz", 200),
        ("GET", "/metrics", 404),
        ("GET", "/favicon.ico", 404),
    ];
    for (method, target, status) in rows {
        let accept = "Accept: application/vnd.coreos.ignition+json;version=3.4.0\r\n";
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n{accept}Connection: close\r\n\r\n");
        let answer =
            say(&server, bytes.as_bytes()).await.unwrap_or_else(|| panic!("{method} {target}: no answer"));
        assert_eq!(answer.status, status, "{method} {target}");
        let length: usize = answer.header("content-length").map_or(0, |l| l.parse().unwrap());
        let body = answer.body.len();
        assert!(body == length || (method == "HEAD" && body == 0), "{method} {target}: {body} of {length}");
        if status >= 400 && method != "HEAD" {
            let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(told["error"]["status"], status, "{method} {target}");
        }
    }
    server.finish().await.unwrap();
}

#[tokio::test]
async fn irrelevant_headers_change_nothing_and_smuggling_headers_are_refused() {
    let server = start().await;
    let plain = server.ask("GET", "/config/master", &[]).await.unwrap();
    for (name, value) in [
        ("Range", "bytes=0-10"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-Original-URL", "/config/nosuch"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Host", "evil.example"),
        ("Authorization", "Bearer whatever"),
        ("Authorization", "Basic eDp5"),
        ("Cookie", "a=b"),
        ("Upgrade", "h2c"),
        ("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"),
        ("If-None-Match", "\"other\""),
        ("If-Range", "\"other\""),
        ("Accept-Encoding", "br, deflate;q=1, gzip;q=0"),
        ("Content-Length", "0"),
        ("Expect", "100-continue"),
    ] {
        let head =
            format!("GET /config/master HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}: {value}\r\n\r\n");
        let answer = say(&server, head.as_bytes()).await.unwrap_or_else(|| panic!("{name}: no answer"));
        assert_eq!((answer.status, &answer.body), (200, &plain.body), "{name}: {value}");
    }
    let get = "GET /config/master HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    for (more, name) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths"),
        ("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "two other lengths"),
        ("Content-Length: -1\r\n\r\n", "a negative length"),
        ("Transfer-Encoding: xchunked\r\n\r\n", "an unknown coding"),
        ("Accept : x\r\n\r\n", "a space before the colon"),
        ("Bad\u{0}Name: x\r\n\r\n", "a name with a zero"),
        ("X: a\r\n folded\r\n\r\n", "a folded line"),
    ] {
        let answer = say(&server, format!("{get}{more}").as_bytes()).await;
        let status = answer.map_or(400, |a| a.status);
        assert!((400..500).contains(&status), "{name}: {status}");
    }
    // An HTTP/1.0 client.
    let old = say(&server, b"GET /config/master HTTP/1.0\r\n\r\n").await.unwrap();
    assert_eq!((old.status, &old.body), (200, &plain.body));
    // Two requests in one packet: two answers, and no third one from a smuggled body.
    let piped = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 46\r\n\r\n\
        GET /config/master HTTP/1.1\r\nHost: smuggled\r\n\r\n";
    let mut stream = server.connect(|_| {}).await.unwrap();
    stream.write_all(piped).await.unwrap();
    stream.flush().await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = vec![];
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap();
    let text = String::from_utf8_lossy(&all);
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    server.finish().await.unwrap();
}

#[tokio::test]
async fn each_requested_version_is_answered_in_one_that_its_ignition_reads() {
    let server = start().await;
    let rows = [
        ("1.0.0", 400, ""),
        ("2.0.0", 400, ""),
        ("2.1.0", 400, ""),
        ("2.2.0", 200, "2.2.0"),
        ("2.3.0", 200, "2.2.0"),
        ("2.4.0", 200, "2.2.0"),
        ("2.5.0-experimental", 200, "2.2.0"),
        ("3.0.0", 406, ""),
        ("3.1.0", 200, "3.1.0"),
        ("3.1.99", 200, "3.1.0"),
        ("3.2.0", 200, "3.2.0"),
        ("3.3.0", 200, "3.3.0"),
        ("3.4.0", 200, "3.4.0"),
        ("3.5.0", 200, "3.5.0"),
        ("3.6.0", 200, "3.5.0"),
        ("3.6.0-experimental", 200, "3.5.0"),
        ("3.7.1", 200, "3.5.0"),
        ("4.0.0", 400, ""),
        ("0.0.0", 400, ""),
        ("3", 200, "2.2.0"),
        ("v3.4.0", 200, "2.2.0"),
        ("", 200, "2.2.0"),
    ];
    for (asked, status, got) in rows {
        for accept in [
            format!("application/vnd.coreos.ignition+json;version={asked}, */*;q=0.1"),
            format!("text/html;q=1.0,  application/vnd.coreos.ignition+json ; version={asked} ;q=0.3"),
        ] {
            let answer = server.ask("GET", "/config/master", &[("Accept", &accept)]).await.unwrap();
            assert_eq!(answer.status, status, "{accept}");
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            let version = body["ignition"]["version"].as_str().unwrap_or_default();
            assert_eq!(version, got, "{accept}");
        }
    }
    server.finish().await.unwrap();
}

#[tokio::test]
async fn a_directory_with_a_sticky_bit_is_served_only_to_ignitions_that_set_it() {
    let sticky = "metadata: {name: rendered-1}\nspec: {config: {ignition: {version: 3.5.0}, \
        storage: {directories: [{path: /srv/tmp, mode: 1023}]}}}\n";
    let server = start_with(sticky).await;
    for (asked, status) in [("2.2.0", 406), ("3.3.0", 406), ("3.4.0", 406), ("3.5.0", 406), ("3.6.0", 200)] {
        let accept = format!("application/vnd.coreos.ignition+json;version={asked}, */*;q=0.1");
        let answer = server.ask("GET", "/config/master", &[("Accept", &accept)]).await.unwrap();
        assert_eq!(answer.status, status, "{asked}");
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        if status == 200 {
            assert_eq!(body["ignition"]["version"], "3.6.0");
            assert_eq!(body["storage"]["directories"][0]["mode"], 0o1777);
        } else {
            assert_eq!(body["error"]["places"][0]["path"], "storage.directories[0].mode", "{asked}: {body}");
        }
    }
    server.finish().await.unwrap();
}

//! A headless Chromium, driven by its DevTools protocol over two pipes: <https://chromedevtools.github.io/devtools-protocol/>.
//! With pipes it needs no port and no WebSocket: messages are JSON, each ended by a zero byte.
//!
//! Not here: what a test does with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time limit for an answer of the browser, which shares two processors with a control plane.
const LIMIT: Duration = Duration::from_secs(120);

/// Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
const START: &str = "read=$1; write=$2; shift 2; exec chromium \"$@\" 3<\"$read\" 4>\"$write\"";

/// A browser with one page.
#[derive(Debug)]
pub(crate) struct Chromium {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    /// Events that were seen while an answer was awaited.
    pub(crate) events: VecDeque<Value>,
    last: u64,
    session: String,
    _folder: TempDir,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Chromium {
    /// Starts one; its page is empty.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = folder.path().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        let (read, write) = (pipe("commands"), pipe("answers"));
        // For reading and writing, so that opening waits for nobody.
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (commands, mut answers) = (open(&read), open(&write));
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "sh", "-c", START, "sh"])
            .args([&read, &write])
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let (send, messages) = channel();
        std::thread::spawn(move || {
            let (mut rest, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
            while let Ok(count) = answers.read(&mut buffer) {
                rest.extend_from_slice(&buffer[..count]);
                while let Some(end) = rest.iter().position(|b| *b == 0) {
                    let message: Vec<u8> = rest.drain(..=end).collect();
                    let Ok(message) = serde_json::from_slice(&message[..end]) else { continue };
                    if send.send(message).is_err() {
                        return;
                    }
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            messages,
            events: VecDeque::new(),
            last: 0,
            session: String::new(),
            _folder: folder,
        };
        browser.new_page(None);
        browser
    }

    /// A page of its own; with a context it shares no cookie with the others.
    fn new_page(&mut self, context: Option<&str>) {
        self.session.clear();
        let mut target = json!({"url": "about:blank"});
        if let Some(context) = context {
            target["browserContextId"] = json!(context);
        }
        let target = self.ask("Target.createTarget", target)["targetId"].clone();
        let attached = self.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        self.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.ask(&format!("{domain}.enable"), json!({}));
        }
    }

    /// As another browser: nothing of what this one knows.
    pub(crate) fn as_a_stranger(&mut self) {
        self.session.clear();
        let context = self.ask("Target.createBrowserContext", json!({}))["browserContextId"].clone();
        self.new_page(context.as_str());
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.try_to(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// The same; the browser may answer with an error.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it in the call")]
    fn try_to(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).unwrap();
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(mut message) = self.messages.recv_timeout(left) else {
                panic!("the browser did not answer {method} within {LIMIT:?}");
            };
            if message["id"] == self.last {
                let error = message["error"].take();
                return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
            }
            self.events.push_back(message);
        }
    }

    /// Goes to an address.
    pub(crate) fn open(&mut self, address: &str) {
        let answer = self.ask("Page.navigate", json!({"url": address}));
        assert!(answer["errorText"].is_null(), "{answer}");
    }

    /// The value of an expression, awaited if it is a promise.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}\n{answer}");
        answer["result"]["value"].clone()
    }

    /// Writes a picture of what is seen.
    pub(crate) fn picture(&mut self, file: &Path) {
        let shown = self.ask("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false}));
        let bytes = STANDARD.decode(shown["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// Waits until an expression is true. One that fails is false: the page may not be there yet.
    pub(crate) async fn wait(&mut self, expression: &str) -> Duration {
        let start = Instant::now();
        let tried =
            format!("Promise.resolve().then(() => {expression}).then((x) => Boolean(x), () => false)");
        loop {
            let params = json!({"expression": tried, "awaitPromise": true, "returnByValue": true});
            // A page that is being left answers with an error.
            let answer = self.try_to("Runtime.evaluate", params).unwrap_or_default();
            if answer["result"]["value"] == true {
                return start.elapsed();
            }
            if start.elapsed() > LIMIT {
                let text = self.value("document.body.innerText");
                panic!("{expression}\n{}", text.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Errors on the console, exceptions, and requests to anything but `origin`.
    pub(crate) fn complaints(&mut self, origin: &str) -> Vec<String> {
        // What was sent before this answer has been seen then.
        self.ask("Runtime.evaluate", json!({"expression": "1"}));
        let own = |url: &str| url.starts_with(origin) || url == "about:blank";
        let complaint = |event: &Value| {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
                "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap_or_default();
                    (!own(url)).then(|| format!("a request to {url}"))
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(complaint).collect()
    }

    /// How many requests the page has sent.
    pub(crate) fn requests(&self) -> usize {
        self.events.iter().filter(|e| e["method"] == "Network.requestWillBeSent").count()
    }
}

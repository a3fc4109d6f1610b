//! A headless Chromium, driven by its DevTools protocol over two pipes: <https://chromedevtools.github.io/devtools-protocol/>.
//! With pipes it needs no port and no WebSocket: messages are JSON, each ended by a zero byte.
//!
//! Not here: what a test or a benchmark does with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::system::command::run_blocking;
use crate::system::folder::Folder;
use crate::system::paths::Environment;

/// The time limit for an answer of the browser, which shares two processors with a control plane.
const LIMIT: Duration = Duration::from_secs(120);

/// Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
const START: &str = "read=$1; write=$2; shift 2; exec chromium \"$@\" 3<\"$read\" 4>\"$write\"";

/// A browser with one page.
#[derive(Debug)]
pub struct Chromium {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    /// Events that arrived while an answer was awaited.
    events: VecDeque<Value>,
    last: u64,
    session: String,
    _folder: Folder,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Chromium {
    /// Starts a browser with an empty page. It must be installed, see [`crate::ensure_browser`].
    ///
    /// # Errors
    /// Its folder cannot be created, it cannot be started, or it does not answer.
    pub fn start() -> Result<Self> {
        let folder = Folder::create(&Environment::read())?;
        let pipe = |name: &str| -> Result<PathBuf> {
            let path = folder.path().join(name);
            match run_blocking("mkfifo", &[&path.display().to_string()]) {
                Some(_) => Ok(path),
                None => Err(Error::Browser(format!("cannot make the pipe {}", path.display()))),
            }
        };
        let (read, write) = (pipe("commands")?, pipe("answers")?);
        // Opened for reading and writing: opening a pipe in one direction only waits for the other end.
        let open = |path: &Path| {
            OpenOptions::new().read(true).write(true).open(path).map_err(Error::io("open", path))
        };
        let (commands, mut answers) = (open(&read)?, open(&write)?);
        let log = folder.path().join("log");
        let log = File::create(&log).map_err(Error::io("create", &log))?;
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
            .map_err(|source| Error::Spawn { program: "chromium".to_owned(), source })?;
        let (send, messages) = channel();
        std::thread::spawn(move || {
            let (mut rest, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
            while let Ok(count) = answers.read(&mut buffer) {
                rest.extend_from_slice(buffer.get(..count).unwrap_or_default());
                while let Some(end) = rest.iter().position(|b| *b == 0) {
                    let message: Vec<u8> = rest.drain(..=end).collect();
                    let Ok(message) = serde_json::from_slice(message.get(..end).unwrap_or_default()) else {
                        continue;
                    };
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
        browser.new_page(None)?;
        Ok(browser)
    }

    /// Opens a page. Pages of different browser contexts share no cookies.
    fn new_page(&mut self, context: Option<&str>) -> Result<()> {
        self.session.clear();
        let mut target = json!({"url": "about:blank"});
        if let Some(context) = context {
            target["browserContextId"] = json!(context);
        }
        let target = self.ask("Target.createTarget", target)?["targetId"].clone();
        let attached = self.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true}))?;
        attached["sessionId"].as_str().unwrap_or_default().clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.ask(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(())
    }

    /// Continues in a new browser context, which has no cookies and no cache of this one.
    ///
    /// # Errors
    /// As [`Chromium::ask`].
    pub fn as_a_stranger(&mut self) -> Result<()> {
        self.session.clear();
        let context = self.ask("Target.createBrowserContext", json!({}))?["browserContextId"].clone();
        self.new_page(context.as_str())
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The browser refuses it, has ended, or does not answer in time.
    pub fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.try_to(method, params)?.map_err(|error| Error::Browser(format!("{method}: {error}")))
    }

    /// The same; the browser may answer with an error.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it in the call")]
    fn try_to(&mut self, method: &str, params: Value) -> Result<Result<Value, Value>> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let lost = |error| Error::Browser(format!("it accepts no commands: {error}"));
        self.commands.write_all(&bytes).map_err(lost)?;
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(mut message) = self.messages.recv_timeout(left) else {
                let why = format!("it did not answer {method} within {} s", LIMIT.as_secs());
                return Err(Error::Browser(why));
            };
            if message["id"] == self.last {
                let error = message["error"].take();
                return Ok(if error.is_null() { Ok(message["result"].take()) } else { Err(error) });
            }
            self.events.push_back(message);
        }
    }

    /// Goes to an address.
    ///
    /// # Errors
    /// Nothing answers there; otherwise as [`Chromium::ask`].
    pub fn open(&mut self, address: &str) -> Result<()> {
        let answer = self.ask("Page.navigate", json!({"url": address}))?;
        match answer["errorText"].as_str() {
            Some(why) => Err(Error::Browser(format!("{address}: {why}"))),
            None => Ok(()),
        }
    }

    /// Evaluates an expression; a promise is awaited.
    ///
    /// # Errors
    /// It throws; otherwise as [`Chromium::ask`].
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.ask("Runtime.evaluate", params)?;
        match answer["exceptionDetails"].is_null() {
            true => Ok(answer["result"]["value"].take()),
            false => Err(Error::Browser(format!("{expression}\n{answer}"))),
        }
    }

    /// Writes a screenshot.
    ///
    /// # Errors
    /// The file cannot be written; otherwise as [`Chromium::ask`].
    pub fn picture(&mut self, file: &Path) -> Result<()> {
        let shown =
            self.ask("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false}))?;
        let bytes = STANDARD.decode(shown["data"].as_str().unwrap_or_default());
        let bytes = bytes.map_err(|error| Error::Browser(format!("a screenshot: {error}")))?;
        std::fs::write(file, bytes).map_err(Error::io("write", file))
    }

    /// Waits until an expression is true. An expression that fails counts as false: the page may not be loaded yet.
    ///
    /// # Errors
    /// It does not become true within two minutes; otherwise as [`Chromium::ask`].
    pub async fn wait(&mut self, expression: &str) -> Result<Duration> {
        let start = Instant::now();
        let tried =
            format!("Promise.resolve().then(() => {expression}).then((x) => Boolean(x), () => false)");
        loop {
            let params = json!({"expression": tried, "awaitPromise": true, "returnByValue": true});
            // While the browser leaves a page, it answers with an error.
            let answer = self.try_to("Runtime.evaluate", params)?.unwrap_or_default();
            if answer["result"]["value"] == true {
                return Ok(start.elapsed());
            }
            if start.elapsed() > LIMIT {
                let text = self.value("document.body.innerText")?;
                let text = text.as_str().unwrap_or_default();
                return Err(Error::Browser(format!("this did not become true: {expression}\n{text}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Errors on the console, exceptions, and requests to anything but `origin`.
    ///
    /// # Errors
    /// As [`Chromium::ask`].
    pub fn complaints(&mut self, origin: &str) -> Result<Vec<String>> {
        // Messages are in order: once this is answered, all earlier events have been read.
        self.ask("Runtime.evaluate", json!({"expression": "1"}))?;
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
        Ok(self.events.iter().filter_map(complaint).collect())
    }

    /// How many requests the page has sent.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.events.iter().filter(|e| e["method"] == "Network.requestWillBeSent").count()
    }
}

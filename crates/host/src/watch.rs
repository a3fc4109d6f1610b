//! Tells when a managed path is touched: inotify on the folders of exactly these paths, no polling.
//!
//! What it is: [`Watch::wait`], which blocks until something happens to a path that the config manages (or to the
//! links that enable its units) and then names these paths; the caller compares with [`crate::Host::validate`]. What
//! it is not: that comparison. A folder that is missing is waited for from the nearest folder above it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::v1::MachineConfigSpec;
use desired::{Want, Wanted};
use ignition::Unit;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::found::FsError;
use crate::paths::{self, NOT_VALIDATED, UNITS_DIR};
use crate::root::{Root, split};
use crate::unit_file::{Install, instance, is_template};

/// How long it must be quiet before paths are told: editors and package tools write a file in several steps.
const QUIET: Duration = Duration::from_millis(50);
/// How long they are collected at most; drift is to be found within a second.
const COLLECT: Duration = Duration::from_millis(400);
/// Masks and links that last until the next boot.
const RUNTIME_UNITS_DIR: &str = "/run/systemd/system";
/// Room for a few hundred events.
const BUFFER: usize = 16 * 1024;

/// What [`Watch::wait`] woke up for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// Something happened to these managed paths. It may have been undone since, or changed nothing.
    Paths(BTreeSet<String>),
    /// The time is over.
    TimedOut,
    /// [`Stop::stop`] was called.
    Stopped,
}

/// Ends a [`Watch::wait`] from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Lets the current call of [`Watch::wait`], and every later one, return at once.
    pub fn stop(&self) {
        // Fails only when the counter is full: then it is set already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The watch of one config.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    inotify: OwnedFd,
    stop: Stop,
    managed: BTreeSet<String>,
    /// By watch: names in that folder, and the managed paths that each of them can change.
    names: BTreeMap<i32, BTreeMap<String, BTreeSet<String>>>,
}

impl Watch {
    /// Watches what a config manages.
    ///
    /// # Errors
    /// The config cannot be read, or inotify cannot be used (its limits: `fs.inotify.max_user_instances`).
    pub fn new(root: &Root, config: &MachineConfigSpec) -> Result<Self, Error> {
        let wanted = Wanted::parse(config).map(Wanted::as_applied).map_err(|bad| Error::Config {
            name: "the config".to_owned(),
            why: bad.first().map(ToString::to_string).unwrap_or_default(),
        })?;
        let fail = |op, e: Errno| FsError::new(op, UNITS_DIR, e);
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|e| fail("watch (see fs.inotify.max_user_instances)", e))?;
        let stop =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| fail("watch", e))?;
        let mut managed: BTreeSet<String> = wanted
            .paths
            .iter()
            .filter(|(p, w)| *w != Want::Nothing && !NOT_VALIDATED.contains(&p.as_str()))
            .map(|(p, _)| p.clone())
            .collect();
        for u in wanted.config.systemd.units.iter().filter(|u| u.enabled.is_some()) {
            managed.extend(enablement(root, u)?);
        }
        let root = root.clone();
        let stop = Stop(Arc::new(stop));
        let mut watch = Self { root, inotify, stop, managed, names: BTreeMap::new() };
        watch.arm()?;
        Ok(watch)
    }

    /// Ends waits from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Puts a watch on the folder of every managed path, or on the nearest folder that there is. Watches that are there
    /// already stay.
    fn arm(&mut self) -> Result<(), FsError> {
        let mut names: BTreeMap<i32, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        let mut folders: BTreeMap<String, Option<i32>> = BTreeMap::new();
        for path in &self.managed {
            let mut at = path.as_str();
            while let Ok((dir, name)) = split(at) {
                let watch = match folders.get(dir) {
                    Some(w) => *w,
                    None => {
                        let w = self.watch(dir)?;
                        folders.insert(dir.to_owned(), w);
                        w
                    }
                };
                if let Some(w) = watch {
                    names.entry(w).or_default().entry(name.to_owned()).or_default().insert(path.clone());
                    break;
                }
                at = dir;
            }
        }
        for gone in self.names.keys().filter(|w| !names.contains_key(w)) {
            // It may have gone with its folder.
            let _ = inotify::remove_watch(&self.inotify, *gone);
        }
        self.names = names;
        Ok(())
    }

    /// A watch on a folder; `None` when there is no such folder.
    fn watch(&self, dir: &str) -> Result<Option<i32>, FsError> {
        let handle = match self.root.handle(dir, OFlags::PATH | OFlags::DIRECTORY, 0) {
            Ok(h) => h,
            Err(e) => match e.source.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => return Ok(None),
                _ => return Err(e),
            },
        };
        let what = WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        inotify::add_watch(&self.inotify, path, what)
            .map(Some)
            .map_err(|e| FsError::new("watch (see fs.inotify.max_user_watches)", dir, e))
    }

    /// Waits until something happens to a managed path, or the time is over (`None`: for ever).
    ///
    /// # Errors
    /// inotify fails, which ends the watch.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<Touched, Error> {
        let start = Instant::now();
        let mut touched = BTreeSet::new();
        let mut first = None;
        loop {
            let left = match first {
                None => limit.map(|l| l.saturating_sub(start.elapsed())),
                Some(at) => Some(QUIET.min(COLLECT.saturating_sub(Instant::now().duration_since(at)))),
            };
            match self.ready(left)? {
                Ready::Stop => return Ok(Touched::Stopped),
                Ready::Nothing if first.is_some() => return Ok(Touched::Paths(touched)),
                Ready::Nothing => return Ok(Touched::TimedOut),
                Ready::Events => {
                    if self.read(&mut touched)? {
                        // A folder came or went: what is watched changes with it, and what it holds may too.
                        self.arm()?;
                    }
                    if !touched.is_empty() && first.is_none() {
                        first = Some(Instant::now());
                    }
                }
            }
        }
    }

    fn ready(&self, left: Option<Duration>) -> Result<Ready, FsError> {
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&*self.stop.0, PollFlags::IN)];
        let left = left.map(|d| Timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => Ok(Ready::Nothing),
            Ok(_) if fds.get(1).is_some_and(|f| !f.revents().is_empty()) => Ok(Ready::Stop),
            Ok(_) => Ok(Ready::Events),
            Err(Errno::INTR) => Ok(Ready::Events),
            Err(e) => Err(FsError::new("wait for changes of", UNITS_DIR, e)),
        }
    }

    /// Takes all events that are there. True when folders came or went.
    fn read(&self, touched: &mut BTreeSet<String>) -> Result<bool, FsError> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut folders = false;
        loop {
            let event = match reader.next() {
                Ok(e) => e,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(folders),
                Err(e) => return Err(FsError::new("wait for changes of", UNITS_DIR, e)),
            };
            let what = event.events();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                touched.extend(self.managed.iter().cloned());
                folders = true;
                continue;
            }
            let Some(names) = self.names.get(&event.wd()) else { continue };
            if what.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED) {
                touched.extend(names.values().flatten().cloned());
                folders = true;
            } else if let Some(paths) =
                event.file_name().and_then(|n| n.to_str().ok()).and_then(|n| names.get(n))
            {
                folders |= what.contains(ReadFlags::ISDIR);
                touched.extend(paths.iter().cloned());
            }
        }
    }
}

/// Where links show whether a unit is enabled or masked: those that its `[Install]` section asks for, those of its name
/// that anybody made, and the places of a mask.
fn enablement(root: &Root, unit: &Unit) -> Result<BTreeSet<String>, FsError> {
    let name = &unit.name;
    let mut out = BTreeSet::from([paths::unit(name), format!("{RUNTIME_UNITS_DIR}/{name}")]);
    let mut text = unit.contents.clone().filter(|c| !c.is_empty());
    for dir in paths::UNIT_DIRS {
        if text.is_none() {
            text = root.text(&format!("{dir}/{name}"))?;
        }
    }
    let install = Install::parse(&text.unwrap_or_default());
    let link = match &install.default_instance {
        Some(i) if is_template(name) => instance(name, i),
        _ => name.clone(),
    };
    out.extend(install.links.iter().map(|(target, kind)| format!("{UNITS_DIR}/{target}.{kind}/{link}")));
    out.extend(install.alias.iter().map(|alias| paths::unit(alias)));
    for dir in root.list(UNITS_DIR)? {
        if [".wants", ".requires", ".upholds"].iter().any(|s| dir.ends_with(s)) {
            out.insert(format!("{UNITS_DIR}/{dir}/{link}"));
        }
    }
    Ok(out)
}

enum Ready {
    Nothing,
    Events,
    Stop,
}

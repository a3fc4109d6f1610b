//! Reports when a managed path is touched. inotify(7) watches every folder on the way to each path, with links
//! followed. In addition, every 15 seconds, the file system's metadata of each path is checked for what inotify does
//! not report: a mount over a file or folder, and writes through another hard link of the same file.
//!
//! [`Watch::wait`] blocks until something happens to a path that the config manages, or to the links that enable its
//! units, and then names these paths. For a folder that does not exist, the nearest existing folder above it is
//! watched.
//!
//! Not here: the comparison with the config. The caller makes it with [`crate::Host::drifts_from`].

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{self, AtFlags, FileType, OFlags};
use rustix::io::Errno;

use crate::baseline::{Baseline, ExpectedUnit};
use crate::disk::fs_error::FsError;
use crate::disk::lookups::{PathPart, lookups};
use crate::disk::root::{Root, split};
use crate::disk::stat::fingerprint;
use crate::error::Error;
use crate::paths::{self, NOT_VALIDATED, UNITS_DIR};
use crate::system::unit_file::{Install, instance, is_template};

/// How long no event may come before paths are reported: editors and package tools write a file in several steps.
const QUIET: Duration = Duration::from_millis(50);
/// How long events are collected at most: drift should be found within a second.
const COLLECT: Duration = Duration::from_millis(400);
/// How often the paths' metadata is polled in addition to the watch. A few hundred paths cost well under a
/// millisecond, because no contents are read.
const POLL: Duration = Duration::from_secs(15);
/// The folder of masks and links that last until the next boot.
const RUNTIME_UNITS_DIR: &str = "/run/systemd/system";
/// The size of the event buffer: a few hundred events.
const BUFFER: usize = 16 * 1024;

/// Why [`Watch::wait`] returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// Something happened to these managed paths. It may have been undone since, or changed nothing.
    Paths(BTreeSet<String>),
    /// The time limit was reached.
    TimedOut,
    /// [`Stop::stop`] was called.
    Stopped,
}

/// Ends a [`Watch::wait`] from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Makes the current call of [`Watch::wait`], and every later one, return at once.
    pub fn stop(&self) {
        // Fails only when the counter is full, and then it is set already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The watch of one config.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    inotify: OwnedFd,
    stop: Stop,
    /// The paths that the config manages, without enablement links.
    paths: BTreeSet<String>,
    /// The units whose enablement links are managed.
    units: Vec<ExpectedUnit>,
    /// All managed paths, sorted: `paths`, and the links that enable or mask the units.
    managed: Vec<Managed>,
    /// For each inotify watch: the names in its folder, and the managed paths that each name affects.
    names: BTreeMap<i32, BTreeMap<String, Named>>,
    /// How often the paths are polled.
    period: Duration,
    /// When the paths were last polled.
    polled: Instant,
}

/// A managed path.
#[derive(Debug)]
struct Managed {
    path: String,
    /// The fingerprint of its metadata when it was last polled.
    print: u64,
}

/// What an event for a name in a folder affects.
#[derive(Debug, Default)]
struct Named {
    /// Indexes of managed paths.
    paths: Vec<u32>,
    /// The name is a folder or link on the way to a managed path, so the path must be resolved again.
    on_the_way: bool,
}

/// The watches that are being set, by the path of the folder: the watch (`None`: there is no such folder), and whether
/// it reports changes of files' contents too.
type Folders = BTreeMap<String, (Option<i32>, bool)>;

impl Watch {
    /// Watches what a config manages.
    ///
    /// # Errors
    /// Inotify cannot be used (its limits: `fs.inotify.max_user_instances`).
    pub fn new(root: &Root, config: &Baseline) -> Result<Self, Error> {
        let fail = |op, e: Errno| FsError::new(op, UNITS_DIR, e);
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|e| fail("watch (see fs.inotify.max_user_instances)", e))?;
        let stop =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| fail("watch", e))?;
        let paths = config.paths.iter().map(|(p, _)| p.clone());
        let paths = paths.filter(|p| !NOT_VALIDATED.contains(&p.as_str())).collect();
        let units = config.units.iter().filter(|u| u.enabled.is_some()).cloned().collect();
        let (root, stop) = (root.clone(), Stop(Arc::new(stop)));
        let (names, polled) = (BTreeMap::new(), Instant::now());
        let managed = Vec::new();
        let mut watch = Self { root, inotify, stop, paths, units, managed, names, period: POLL, polled };
        watch.list_managed()?;
        watch.set_watches()?;
        watch.poll();
        Ok(watch)
    }

    /// Watches more paths than the config manages.
    ///
    /// # Errors
    /// As [`Watch::new`].
    pub fn with_more(mut self, paths: Vec<String>) -> Result<Self, Error> {
        if !paths.is_empty() {
            self.paths.extend(paths);
            self.follow()?;
        }
        Ok(self)
    }

    /// Polls the paths at another interval than every 15 seconds.
    #[must_use]
    pub fn with_period(self, period: Duration) -> Self {
        Self { period, ..self }
    }

    /// A handle that ends [`Watch::wait`] from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Lists the managed paths again: the links in a folder of links that was made since are managed too. Returns the
    /// new paths. The indexes of the others may change, so the watches must be set again.
    fn list_managed(&mut self) -> Result<BTreeSet<String>, FsError> {
        let mut all = self.paths.clone();
        for unit in &self.units {
            all.extend(enablement(&self.root, unit)?);
        }
        let known: BTreeMap<String, u64> = self.managed.drain(..).map(|m| (m.path, m.print)).collect();
        let managed = |path: String| Managed { print: known.get(&path).copied().unwrap_or_default(), path };
        self.managed = all.into_iter().map(managed).collect();
        let new = self.managed.iter().map(|m| &m.path).filter(|path| !known.contains_key(*path));
        Ok(new.cloned().collect())
    }

    /// Watches what exists now, and returns the paths that changed before they were watched.
    fn follow(&mut self) -> Result<BTreeSet<String>, FsError> {
        let new = self.list_managed()?;
        self.set_watches()?;
        Ok(self.look_at(|path| new.contains(path)))
    }

    /// Sets a watch on every existing folder on the way to a managed path. Existing watches stay.
    fn set_watches(&mut self) -> Result<(), FsError> {
        let mut names: BTreeMap<i32, BTreeMap<String, Named>> = BTreeMap::new();
        let mut folders = Folders::new();
        let mut parts: BTreeMap<String, PathPart> = BTreeMap::new();
        for (i, managed) in self.managed.iter().enumerate() {
            let place = u32::try_from(i).unwrap_or(u32::MAX);
            let look =
                |path: &str| parts.entry(path.to_owned()).or_insert_with(|| self.path_part(path)).clone();
            for lookup in lookups(&managed.path, look) {
                let Some(watch) = self.watch_folder(&mut folders, &lookup.folder, lookup.last)? else {
                    break;
                };
                let named = names.entry(watch).or_default().entry(lookup.name).or_default();
                named.on_the_way |= !lookup.last;
                if named.paths.last() != Some(&place) {
                    named.paths.push(place);
                }
            }
        }
        for gone in self.names.keys().filter(|w| !names.contains_key(w)) {
            // Fails if the watch has ended with its folder.
            let _ = inotify::remove_watch(&self.inotify, *gone);
        }
        self.names = names;
        Ok(())
    }

    /// What exists at one point on the way to a managed path.
    fn path_part(&self, path: &str) -> PathPart {
        let found = || -> std::io::Result<PathPart> {
            let (dir, name) = self.root.parent(path)?;
            let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => PathPart::Folder,
                FileType::Symlink => {
                    let target = fs::readlinkat(&dir, name, Vec::new())?;
                    target.into_string().map_or(PathPart::End, PathPart::Link)
                }
                _ => PathPart::End,
            })
        };
        found().unwrap_or(PathPart::End)
    }

    /// Watches a folder once. `direct`: changes of files in it are reported too.
    fn watch_folder(&self, folders: &mut Folders, dir: &str, direct: bool) -> Result<Option<i32>, FsError> {
        if let Some((watch, tells)) = folders.get(dir)
            && (watch.is_none() || *tells || !direct)
        {
            return Ok(*watch);
        }
        let watch = self.watch(dir, direct)?;
        folders.insert(dir.to_owned(), (watch, direct));
        Ok(watch)
    }

    /// Sets a watch on a folder. `None`: there is no such folder.
    fn watch(&self, dir: &str, direct: bool) -> Result<Option<i32>, FsError> {
        let handle = match self.root.handle(dir, OFlags::PATH | OFlags::DIRECTORY, 0) {
            Ok(h) => h,
            Err(e) => match e.source.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => return Ok(None),
                _ => return Err(e),
            },
        };
        // Two paths may lead to one folder: what its watch reports already is kept.
        let mut what = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::MASK_ADD
            | WatchFlags::ONLYDIR;
        if direct {
            what |= WatchFlags::ATTRIB | WatchFlags::CLOSE_WRITE | WatchFlags::MODIFY;
        }
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        inotify::add_watch(&self.inotify, path, what)
            .map(Some)
            .map_err(|e| FsError::new("watch (see fs.inotify.max_user_watches)", dir, e))
    }

    /// Polls every path, and returns those that changed since the last time.
    fn poll(&mut self) -> BTreeSet<String> {
        self.polled = Instant::now();
        self.look_at(|_| true)
    }

    /// As [`Self::poll`], for some of the paths.
    fn look_at(&mut self, which: impl Fn(&String) -> bool) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        // Paths in one folder are mostly neighbours in the list, so one open folder serves several.
        let mut at: Option<(&str, Option<OwnedFd>)> = None;
        for Managed { path, print: last } in self.managed.iter_mut().filter(|m| which(&m.path)) {
            let Ok((dir, name)) = split(path) else { continue };
            if at.as_ref().is_none_or(|(d, _)| *d != dir) {
                at = Some((dir, self.root.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0).ok()));
            }
            let folder = at.as_ref().and_then(|(_, folder)| folder.as_ref());
            let now = folder.map_or(0, |f| fingerprint(f, name));
            if now != *last {
                *last = now;
                touched.insert(path.clone());
            }
        }
        touched
    }

    /// Waits until something happens to a managed path, or until the time limit (`None`: no limit).
    ///
    /// # Errors
    /// inotify fails, which ends the watch.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<DiskEvent, Error> {
        let start = Instant::now();
        let mut touched = BTreeSet::new();
        let mut first = None;
        loop {
            let left = match first {
                None => {
                    let poll = self.period.saturating_sub(self.polled.elapsed());
                    Some(limit.map_or(poll, |l| l.saturating_sub(start.elapsed()).min(poll)))
                }
                Some(at) => Some(QUIET.min(COLLECT.saturating_sub(Instant::now().duration_since(at)))),
            };
            match self.ready(left)? {
                Ready::Stop => return Ok(DiskEvent::Stopped),
                Ready::Nothing if first.is_some() => {
                    // These paths are reported now. The next poll must not report them again.
                    self.look_at(|path| touched.contains(path));
                    return Ok(DiskEvent::Paths(touched));
                }
                Ready::Nothing if self.polled.elapsed() >= self.period => {
                    touched = self.poll();
                    if !touched.is_empty() {
                        // The watch has missed this change, so a path may lead elsewhere now.
                        touched.extend(self.follow()?);
                        return Ok(DiskEvent::Paths(touched));
                    }
                }
                Ready::Nothing if limit.is_some_and(|l| start.elapsed() >= l) => {
                    return Ok(DiskEvent::TimedOut);
                }
                Ready::Nothing => {}
                Ready::Events => {
                    if self.read(&mut touched)? {
                        // A folder was made or removed: the set of watches changes, and maybe the managed paths in it.
                        touched.extend(self.follow()?);
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

    /// Reads all pending events. True if folders were made or removed.
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
                touched.extend(self.managed.iter().map(|m| m.path.clone()));
                folders = true;
                continue;
            }
            let name = event.file_name().and_then(|n| n.to_str().ok());
            // A new folder of enablement links may hold links already.
            folders |= what.contains(ReadFlags::ISDIR) && name.is_some_and(holds_links);
            let Some(names) = self.names.get(&event.wd()) else { continue };
            let paths = |named: &Named| {
                let all = named.paths.iter().filter_map(|i| self.managed.get(usize::try_from(*i).ok()?));
                all.map(|m| m.path.clone()).collect::<Vec<_>>()
            };
            if what.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED) {
                touched.extend(names.values().flat_map(paths));
                folders = true;
            } else if let Some(named) = name.and_then(|n| names.get(n)) {
                folders |= named.on_the_way || what.contains(ReadFlags::ISDIR);
                touched.extend(paths(named));
            }
        }
    }
}

/// The paths of the links that show whether a unit is enabled or masked: those that its `[Install]` section asks for,
/// existing links of its name, and the two places of a mask.
fn enablement(root: &Root, unit: &ExpectedUnit) -> Result<BTreeSet<String>, FsError> {
    let name = &unit.name;
    let mut out = BTreeSet::from([paths::unit(name), format!("{RUNTIME_UNITS_DIR}/{name}")]);
    let mut install = unit.install.clone();
    for dir in paths::UNIT_DIRS {
        if install.is_none() {
            install = root.text(&format!("{dir}/{name}"))?.map(|text| Install::parse(&text));
        }
    }
    let install = install.unwrap_or_default();
    let link = match &install.default_instance {
        Some(i) if is_template(name) => instance(name, i),
        _ => name.clone(),
    };
    out.extend(install.links.iter().map(|(target, kind)| format!("{UNITS_DIR}/{target}.{kind}/{link}")));
    out.extend(install.alias.iter().map(|alias| paths::unit(alias)));
    for dir in root.list(UNITS_DIR)? {
        if holds_links(&dir) {
            out.insert(format!("{UNITS_DIR}/{dir}/{link}"));
        }
    }
    Ok(out)
}

/// Whether systemd reads enablement links from a folder of this name.
fn holds_links(folder: &str) -> bool {
    [".wants", ".requires", ".upholds"].iter().any(|s| folder.ends_with(s))
}

enum Ready {
    Nothing,
    Events,
    Stop,
}

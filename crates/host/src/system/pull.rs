//! A fetch under way, as its caller and the program that fetches share it: the caller may end it, and reads how far it is.
//!
//! ```text
//! output of the program ─► PullMeter ─► Pulled ─► (the caller tells people)
//! caller ─► Pull::cancel ─► the runner kills the program (see `programs`)
//! ```
//!
//! Not here: which programs fetch (see the back ends in `os`), nor who cancels.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::formats::text::size;

/// The longest part of a line that is kept until its end arrives.
const LONGEST_LINE: usize = 4096;

/// A fetch. Clones share its state.
#[derive(Clone, Debug, Default)]
pub struct Pull(Arc<Shared>, Option<KubernetesVersion>);

/// The version of a part of Kubernetes, as far as the rules of what may talk to what need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubernetesVersion {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl KubernetesVersion {
    /// Reads `v1.36.3`, with or without the `v` and what follows the minor version. `None`: it is of another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches('v').split('.');
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?);
        // Some servers say `36+`.
        let minor = minor.trim_end_matches('+').parse().ok()?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[derive(Debug)]
struct Shared {
    cancelled: AtomicBool,
    /// How many bytes fit.
    room: AtomicU64,
    meter: Mutex<PullMeter>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { cancelled: AtomicBool::default(), room: AtomicU64::new(u64::MAX), meter: Mutex::default() }
    }
}

impl Pull {
    /// A fetch for a node of a cluster whose API server has this version, if it is known: an image whose kubelet may not talk
    /// to it is refused.
    #[must_use]
    pub fn for_cluster(server: Option<KubernetesVersion>) -> Self {
        Self(Arc::default(), server)
    }

    pub(crate) fn cluster(&self) -> Option<KubernetesVersion> {
        self.1
    }

    /// Ends it: its program is killed within a second, and what it has fetched stays for the next one.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
    }

    /// Whether the fetch has to stop: it was cancelled, or the image does not fit.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire) || self.too_large().is_some()
    }

    /// Whether it was told to end.
    pub(crate) fn is_called_off(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Sets how many bytes fit. A fetch that turns out to be larger ends at once, and not when the disk is full.
    pub(crate) fn set_room(&self, bytes: u64) {
        self.0.room.store(bytes, Ordering::Release);
    }

    /// The bytes that are to be fetched, and those that fit, if they do not.
    pub(crate) fn too_large(&self) -> Option<(u64, u64)> {
        let (total, room) = (self.meter().total, self.0.room.load(Ordering::Acquire));
        (total > room).then_some((total, room))
    }

    /// Restarts the count for a program that is started a second time: it then reports the size of the missing layers only.
    pub(crate) fn begin_again(&self) {
        *self.meter() = PullMeter::default();
    }

    /// How far it is. `None`: nothing is known yet, or nothing had to be fetched.
    #[must_use]
    pub fn progress(&self) -> Option<Pulled> {
        self.meter().progress(Instant::now())
    }

    /// Whether the program has named a size and says no more.
    pub(crate) fn wants_count(&self) -> bool {
        let meter = self.meter();
        meter.total > 0 && !meter.names_layers
    }

    /// Records how many bytes the fetchers of the program have passed on so far.
    pub(crate) fn count(&self, bytes: u64) {
        let mut meter = self.meter();
        let first = *meter.counted_first.get_or_insert(bytes);
        meter.counted = Some(bytes.saturating_sub(first));
    }

    /// Takes in what a program printed.
    pub(crate) fn take_output(&self, bytes: &[u8]) {
        self.meter().take_output(Instant::now(), bytes);
    }

    fn meter(&self) -> MutexGuard<'_, PullMeter> {
        self.0.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a fetch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Bytes of the layers that have arrived. `None`: the program does not say.
    pub done: Option<u64>,
    /// Bytes of all layers that were missing at the start.
    pub total: u64,
    /// How long it has been fetching layers.
    pub elapsed: Duration,
}

impl Pulled {
    /// Bytes in a second. `None`: not known.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        let seconds = u64::try_from(self.elapsed.as_millis()).ok().filter(|ms| *ms >= 1000)?;
        self.done.filter(|done| *done > 0).map(|done| done.saturating_mul(1000) / seconds)
    }

    /// How long the rest takes at this rate. `None`: not known.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let rest = self.total.saturating_sub(self.done?);
        self.rate().filter(|rate| *rate > 0).map(|rate| Duration::from_secs(rest.div_ceil(rate)))
    }
}

impl fmt::Display for Pulled {
    /// `1.2 GB of 4.7 GB, 25.3 MB/s, 2 min left`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.done {
            Some(done) => write!(f, "{} of {}", size(done), size(self.total))?,
            None => f.write_str(&size(self.total))?,
        }
        if let Some(rate) = self.rate() {
            write!(f, ", {}/s", size(rate))?;
        }
        match self.time_left().map(|left| left.as_secs()) {
            None | Some(0) => Ok(()),
            Some(seconds @ ..120) => write!(f, ", {seconds} s left"),
            Some(seconds @ ..7200) => write!(f, ", {} min left", seconds.div_ceil(60)),
            Some(seconds) => write!(f, ", {} h left", seconds.div_ceil(3600)),
        }
    }
}

/// Reads what programs say of a fetch.
#[derive(Debug, Default)]
struct PullMeter {
    /// The line that has not ended.
    line: Vec<u8>,
    total: u64,
    done: u64,
    /// The layer that is being fetched, and its size.
    layer: Option<(String, u64)>,
    /// The program names each layer as it begins and ends.
    names_layers: bool,
    /// What was passed on when the size became known: manifests.
    counted_first: Option<u64>,
    /// What was passed on since, if the program does not name its layers.
    counted: Option<u64>,
    begun: Option<Instant>,
}

impl PullMeter {
    fn take_output(&mut self, now: Instant, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    self.take(now, &String::from_utf8_lossy(&line));
                }
                byte if self.line.len() < LONGEST_LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn take(&mut self, now: Instant, line: &str) {
        match PullLine::of(line) {
            Some(PullLine::Needed(bytes)) => {
                self.total = self.total.saturating_add(bytes);
                self.begun.get_or_insert(now);
            }
            Some(PullLine::Begins { layer, bytes, ended }) => {
                self.names_layers = true;
                match ended {
                    true => self.done = self.done.saturating_add(bytes),
                    false => self.layer = Some((layer, bytes)),
                }
            }
            Some(PullLine::Ended(layer)) => {
                if let Some((_, bytes)) = self.layer.take_if(|(name, _)| *name == layer) {
                    self.done = self.done.saturating_add(bytes);
                }
            }
            None => {}
        }
    }

    fn progress(&self, now: Instant) -> Option<Pulled> {
        let elapsed = now.saturating_duration_since(self.begun?);
        let done = if self.names_layers { Some(self.done) } else { self.counted };
        let done = done.map(|done| done.min(self.total));
        (self.total > 0).then_some(Pulled { done, total: self.total, elapsed })
    }
}

/// A line about a fetch.
#[derive(Debug, PartialEq, Eq)]
enum PullLine {
    /// So many bytes are to be fetched. rpm-ostree says it for chunks and for custom layers.
    Needed(u64),
    /// A layer of this size is fetched now; old versions say so in a line of its own, new ones when it has `ended`.
    Begins { layer: String, bytes: u64, ended: bool },
    /// It has arrived.
    Ended(String),
}

impl PullLine {
    /// The forms of ostree-ext (`ostree container`, bootc) and of rpm-ostree, old and new. `None`: another line.
    fn of(line: &str) -> Option<Self> {
        if let Some((_, rest)) = line.split_once("needed: ") {
            let (_, rest) = rest.split_once('(')?;
            return Some(Self::Needed(bytes_of(rest.split_once(')')?.0)?));
        }
        let layer = |rest: &str| rest.split(' ').find(|w| w.starts_with("sha256:")).map(str::to_owned);
        if let Some(rest) = line.strip_prefix("Fetched ") {
            return layer(rest).map(Self::Ended);
        }
        let rest = line.split_once("Fetching ")?.1;
        let (what, after) = rest.split_once('(')?;
        let (bytes, after) = after.split_once(')')?;
        Some(Self::Begins { layer: layer(what)?, bytes: bytes_of(bytes)?, ended: after.ends_with("done") })
    }
}

/// GLib's form of a size: `271.5 MB`, with a space that does not break, or `414 bytes`.
fn bytes_of(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let (number, unit) = (words.next()?, words.next()?);
    let scale: u64 = match unit {
        "byte" | "bytes" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenths: u64 = tenths.parse().ok().filter(|t| *t < 10)?;
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(tenths * scale / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Pulling manifest: ostree-unverified-image:docker://registry.name:5000/my-custom-image:latest\n\
        Importing: ostree-unverified-image:docker://registry.name:5000/my-custom-image:latest (digest: sha256:601989a5dae0)\n\
        ostree chunk layers stored: 0 needed: 1 (1.3\u{a0}GB)\n\
        custom layers stored: 0 needed: 2 (17.8\u{a0}MB)\n\
        Fetching ostree chunk sha256:f960a937b629 (1.3\u{a0}GB)\n\
        Fetched ostree chunk sha256:f960a937b629\n\
        Fetching layer sha256:5f250121caf9 (414\u{a0}bytes)\n\
        Fetched layer sha256:5f250121caf9\n\
        Fetching layer sha256:add4dfd423a2 (17.8\u{a0}MB)\n";
    const NEW: &str = "ostree chunk layers already present: 3\n\
        ostree chunk layers needed: 3 (400.0 MB)\n\
        Fetching ostree chunk sha256:d123e54628bf (271.5 MB)... done\n\
        Fetching ostree chunk sha256:39e8d9f8a449 (16.8 MB)... done\n\
        Fetching ostree chunk sha256:974f0e836793 (86.6 MB)...";
    const CONTAINER: &str = "layers already present: 2; layers needed: 1 (139.3\u{a0}MB)\n";

    fn said(text: &str, seconds: u64) -> String {
        let begun = Instant::now();
        let mut meter = PullMeter::default();
        // In pieces, as they arrive.
        text.as_bytes().chunks(7).for_each(|piece| meter.take_output(begun, piece));
        let pulled = meter.progress(begun + Duration::from_secs(seconds));
        pulled.map_or_else(String::new, |p| p.to_string())
    }

    #[test]
    fn what_programs_print_becomes_bytes_rate_and_time_left() {
        for (text, seconds, want) in [
            (OLD, 100, "1.3 GB of 1.3 GB, 13.0 MB/s, 2 s left"),
            (NEW, 0, "288.3 MB of 400.0 MB"),
            (NEW, 10, "288.3 MB of 400.0 MB, 28.8 MB/s, 4 s left"),
            (NEW, 600, "288.3 MB of 400.0 MB, 480.5 kB/s, 4 min left"),
            (NEW, 100_000, "288.3 MB of 400.0 MB, 2.8 kB/s, 11 h left"),
            // It does not say which layers have arrived.
            (CONTAINER, 20, "139.3 MB"),
            ("ostree chunk layers stored: 1 needed: 0 (0 bytes)\n", 5, ""),
            ("No changes in ostree-unverified-registry:q.io/a => 1a2b\n", 5, ""),
            ("layers needed: many (a lot)\nFetching metadata...done\n", 5, ""),
            // Of a program that was not started with LC_ALL=C.UTF-8.
            ("ostree chunk layers needed: 70 (4,7 Go)\n", 5, ""),
            ("layers needed: 1 (99999999999999999999.9 TB)\n", 5, ""),
        ] {
            assert_eq!(said(text, seconds), want, "{text}");
        }
        assert_eq!(said(&format!("{CONTAINER}{}", "x".repeat(1 << 20)), 0), "139.3 MB");
    }

    #[test]
    fn a_pull_that_does_not_fit_ends_as_soon_as_its_size_is_known() {
        let pull = Pull::default();
        pull.set_room(139_299_999);
        assert!(!pull.is_cancelled());
        pull.take_output(CONTAINER.as_bytes());
        assert!(pull.is_cancelled());
        assert_eq!(pull.too_large(), Some((139_300_000, 139_299_999)));
        pull.set_room(139_300_000);
        assert!(!pull.is_cancelled() && pull.too_large().is_none());
    }

    #[test]
    fn one_who_has_the_pull_can_end_it() {
        let pull = Pull::default();
        let other = pull.clone();
        assert!(!pull.is_cancelled());
        other.cancel();
        assert!(pull.is_cancelled());
        assert_eq!(pull.progress(), None);
    }
}

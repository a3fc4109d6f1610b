//! Waits until files may have been replaced, by inotify(7): nothing is done while nothing happens.
//!
//! The folders of the files are watched, and those that links lead to. A kubelet replaces a Secret by renaming the link
//! `..data` beside the files, which is a change of their folder.
//!
//! What it is not: whether a file differs. A change may be of another file in the same folder.

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// The events that a replaced file causes, or a changed link on the path to it.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
/// A file is replaced in several steps: wait until they are probably over.
const SETTLE: Duration = Duration::from_millis(100);
/// How often the files are looked at where they cannot be watched: a folder is missing, or the system has no inotify instance
/// left (`fs.inotify.max_user_instances`).
const UNWATCHED: Duration = Duration::from_secs(10);

/// A watch of the folders of some files.
#[derive(Debug)]
pub(crate) struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    /// Begins to watch. What changes from now on ends [`Self::changed`].
    ///
    /// # Errors
    /// A folder is not there, or the system's limits are reached.
    pub(crate) fn of(paths: &[&Path]) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        for folder in folders(paths) {
            inotify::add_watch(&watch, &folder, CHANGES)?;
        }
        #[expect(deprecated, reason = "`register` is unsafe; an OwnedFd is what it asks for")]
        let watch = AsyncFd::new(watch)?;
        Ok(Self(watch))
    }

    /// Returns when something in the folders has changed.
    pub(crate) async fn changed(self) {
        let Ok(mut ready) = self.0.readable().await else { return tokio::time::sleep(UNWATCHED).await };
        tokio::time::sleep(SETTLE).await;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(self.0.get_ref(), &mut buffer);
        while events.next().is_ok() {}
        ready.clear_ready();
    }
}

/// Returns when the files may have changed since the watch began; without a watch after a while.
pub(crate) async fn changed(watch: io::Result<Watch>) {
    match watch {
        Ok(watch) => watch.changed().await,
        Err(error) => {
            tracing::debug!("the folder of a certificate is not watched: {error}");
            tokio::time::sleep(UNWATCHED).await;
        }
    }
}

fn folders(paths: &[&Path]) -> BTreeSet<PathBuf> {
    let parent = |path: &Path| path.parent().filter(|p| !p.as_os_str().is_empty()).map(Path::to_owned);
    let mut folders: BTreeSet<PathBuf> = paths.iter().filter_map(|path| parent(path)).collect();
    // A link to elsewhere. What cannot be resolved is not there, or outside of this root.
    let behind = paths.iter().filter_map(|path| parent(&path.canonicalize().ok()?));
    folders.extend(behind.filter(|folder| folder.is_dir()).collect::<Vec<_>>());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ends(wait: impl Future<Output = ()>) -> bool {
        tokio::time::timeout(Duration::from_secs(5), wait).await.is_ok()
    }

    #[tokio::test]
    async fn a_secret_that_a_kubelet_replaces_ends_the_wait_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        for version in ["..1", "..2"] {
            std::fs::create_dir(dir.path().join(version)).unwrap();
            std::fs::write(dir.path().join(version).join("tls.crt"), version).unwrap();
        }
        link("..1", "..data");
        link("..data/tls.crt", "tls.crt");
        let file = dir.path().join("tls.crt");
        let watch = Watch::of(&[&file]).unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(300), watch.changed()).await;
        assert!(waits.is_err(), "nothing has changed");
        let watch = Watch::of(&[&file]).unwrap();
        link("..2", "..data_tmp");
        std::fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        assert!(ends(watch.changed()).await);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "..2");
    }

    #[tokio::test]
    async fn a_file_behind_a_link_elsewhere_is_watched_there_and_a_missing_folder_is_an_error() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, target) = (here.path().join("c"), there.path().join("c"));
        std::fs::write(&target, "1").unwrap();
        std::os::unix::fs::symlink(&target, &file).unwrap();
        let watch = Watch::of(&[&file]).unwrap();
        std::fs::write(&target, "2").unwrap();
        assert!(ends(watch.changed()).await);
        assert!(Watch::of(&[Path::new("/nonexistent/folder/c")]).is_err());
    }
}

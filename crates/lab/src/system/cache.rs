//! Cached build steps: the result of each is a folder in the lab's cache, named after the step and a hash of its recipe.
//!
//! Guarantees: a folder in the cache is complete (made under another name, then renamed) and was made by this recipe. Two runs
//! never make the same folder at the same time. Not here: what the steps make.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::file_lock::lock_file;

/// A step: what it makes, and from what.
#[derive(Debug)]
pub(crate) struct CacheStep<'a> {
    /// The folder that holds everything of virtual machines.
    pub(crate) cache: &'a Path,
    /// The step's name, with which the folder's name begins.
    pub(crate) name: &'a str,
    /// Everything that the result depends on: scripts, packages, keys of earlier steps.
    pub(crate) recipe: &'a [&'a str],
    /// The message to the user while it is made.
    pub(crate) telling: &'a str,
}

impl CacheStep<'_> {
    /// Returns the folder of the result. If it does not exist, `make` fills it.
    ///
    /// # Errors
    /// The cache cannot be written, or `make` failed: [`Error::Step`], with a log beside the folder.
    pub(crate) async fn get(
        &self,
        progress: &Reporter,
        make: impl AsyncFnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let key = format!("{}-{}", self.name, key(self.recipe));
        let done = self.cache.join(&key);
        if done.is_dir() {
            return Ok(done);
        }
        fs::create_dir_all(self.cache).map_err(Error::io("create the cache folder", self.cache))?;
        let lock = self.cache.join(format!("{}.lock", self.name));
        let _lock = lock_file(&lock, self.telling, progress).await?;
        if done.is_dir() {
            return Ok(done);
        }
        let part = self.cache.join(format!("{key}.part"));
        remove(&part)?;
        let step = progress.begin(self.telling);
        if let Err(error) = make(&part).await {
            remove(&part)?;
            return Err(self.failed(error)?);
        }
        fs::rename(&part, &done).map_err(Error::io("move into the cache", &done))?;
        step.done();
        Ok(done)
    }

    /// The step's error, with the log of the command that failed.
    fn failed(&self, error: Error) -> Result<Error> {
        let log = self.cache.join(format!("{}-failed.log", self.name));
        let text = match &error {
            Error::Command { whole, .. } => whole.0.clone(),
            other => client::chain(other),
        };
        fs::write(&log, text).map_err(Error::io("write", &log))?;
        Ok(Error::Step { step: self.telling.to_owned(), log, source: Box::new(error) })
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Each part is hashed with its length, so that different lists never give the same input.
fn key(recipe: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in recipe {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::command::run;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_step_is_made_once_for_a_recipe_and_a_failed_one_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let step = |recipe: &'static [&'static str]| CacheStep {
            cache: dir.path(),
            name: "thing",
            recipe,
            telling: "making the thing",
        };
        let silent = Reporter::silent();
        let make = async |text: &'static str, recipe: &'static [&'static str]| {
            let write = async |part: &Path| {
                fs::create_dir(part).map_err(Error::io("create", part))?;
                fs::write(part.join("it"), text).map_err(Error::io("write", part))
            };
            fs::read_to_string(step(recipe).get(&silent, write).await.unwrap().join("it")).unwrap()
        };
        assert_eq!(make("first", &["a", "b"]).await, "first");
        assert_eq!(make("again", &["a", "b"]).await, "first");
        assert_eq!(make("other", &["ab"]).await, "other");

        let fails = async |part: &Path| {
            fs::create_dir(part).map_err(Error::io("create", part))?;
            run("sh", ["-c", "seq 99; echo no mirror"], LIMIT).await?;
            run("sh", ["-c", "seq 99; echo no mirror; exit 1"], LIMIT).await.map(drop)
        };
        let failed: &[&str] = &["c"];
        let error = step(failed).get(&silent, fails).await.unwrap_err();
        let log = dir.path().join("thing-failed.log");
        assert!(error.to_string().starts_with("making the thing failed;"), "{error}");
        assert!(error.to_string().contains(&log.display().to_string()), "{error}");
        assert!(client::chain(&error).contains("no mirror"), "{error}");
        assert!(fs::read_to_string(&log).unwrap().contains("\n1\n2\n"));
        assert_eq!(make("then", failed).await, "then");
        assert!(
            !fs::read_dir(dir.path())
                .unwrap()
                .flatten()
                .any(|e| e.path().extension() == Some("part".as_ref()))
        );
    }
}

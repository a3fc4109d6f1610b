//! What a change of keys or passwords needs to know: who can log in to the host and how, as its home folders and its SSH
//! server say.
//!
//! Not here: what is decided from it (see `plan::keys`, `plan::sshd`).

use std::collections::BTreeMap;
use std::time::Duration;

use desired::{CORE, DesiredHost, DesiredPath};

use super::path_facts;
use crate::disk::fs_error::FsError;
use crate::disk::obstacle::Obstacle;
use crate::disk::path_state::PathState;
use crate::disk::root::{Root, split};
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::facts::{Facts, PathFacts};
use crate::plan::keys::{folders_of_keys, login, sshd_texts_after};
use crate::plan::secret::Secret;
use crate::plan::sshd::{self, Answer, Sshd, SshdAnswers};
use crate::system::users::hash_of;

/// The largest key file that is read, in bytes.
const MOST_KEYS: u64 = 1024 * 1024;
/// The home folder of root.
const ROOT_HOME: &str = "/root";
/// How long the home folders of core and root may take to answer. They can be on a file server: one that is gone never
/// answers, one that is only slow answers within this time.
const HOME_LIMIT: Duration = Duration::from_secs(5);
/// How long the SSH server may take to print its configuration. It looks up users and groups, possibly on another
/// server.
const SSHD_LIMIT: Duration = Duration::from_secs(5);

/// The parts of the home folders that logins depend on.
struct Homes {
    /// The folders above core's keys and the key files, with any obstacle to changing them.
    paths: Vec<(String, PathFacts)>,
    core_own_keys: Option<String>,
    root_has_key: bool,
}

impl Host {
    /// How people log in. If something in the folders of the SSH server and of users cannot be read, the change is not
    /// refused: it counts as absent, or as an obstacle.
    pub(super) fn logins(
        &mut self,
        old: &DesiredHost,
        new: &DesiredHost,
        facts: &mut Facts,
    ) -> Result<(), Error> {
        let root = self.root().clone();
        let dropin = tolerant(&root, sshd::DROPIN);
        facts.paths.insert(sshd::DROPIN.to_owned(), dropin);
        facts.sshd = self.sshd_texts(&[old, new]);
        let shadow = root.text(paths::SHADOW)?.unwrap_or_default();
        let mut others = facts.users.users.keys().filter(|name| *name != CORE);
        let has_password =
            others.any(|name| hash_of(&shadow, name).is_some_and(|hash| hash.starts_with('$')));
        // Other users' home folders are not read: they may be on file servers as well, and there may be thousands.
        match self.bounded.run(HOME_LIMIT, move || homes(&root)) {
            Some(homes) => {
                let Homes { paths, core_own_keys, root_has_key } = homes?;
                facts.paths.extend(paths);
                facts.core_own_keys = core_own_keys.map(Secret);
                facts.others_log_in = has_password || root_has_key;
            }
            None => {
                tracing::warn!(
                    "{} or {ROOT_HOME} is on a file system that does not answer: the keys there are left as they are",
                    paths::CORE_HOME
                );
                facts.others_log_in = has_password;
                let obstacle =
                    Obstacle::NoAnswer { folder: paths::CORE_HOME.to_owned(), seconds: HOME_LIMIT.as_secs() };
                facts
                    .paths
                    .insert(paths::CORE_HOME.to_owned(), PathFacts::of(PathState::Absent, Some(obstacle)));
                let parent = paths::CORE_HOME.to_owned();
                facts.paths.insert(
                    paths::CORE_OWN_KEYS.to_owned(),
                    PathFacts::of(PathState::NoParentFolder { parent }, None),
                );
            }
        }
        facts.sshd_answers = self.ask_sshd(old, new, facts);
        Ok(())
    }

    /// What the host's own `sshd -T` reports for a copy of its configuration as the change leaves it. `None`: there is
    /// no such program, or it fails. An sshd that was never started may lack its folder in `/run`, for example.
    fn ask_sshd(&mut self, old: &DesiredHost, new: &DesiredHost, facts: &Facts) -> Option<SshdAnswers> {
        let user = login(facts)?;
        let texts = sshd_texts_after(old, new, facts);
        // It is asked only if the answer matters: if the config has keys for core.
        if new.config.passwd.users.iter().all(|u| u.ssh_authorized_keys.is_empty()) {
            return None;
        }
        let there = |path: &&str| !self.root.found(path).unwrap_or(PathState::Absent).is_absent();
        let program = sshd::PROGRAMS.into_iter().find(there)?;
        let without = self.run_sshd(program, &texts, user.name)?;
        let sshd = Sshd::read(&texts, &user, Some(&without))?;
        let with = match sshd.dropin_text(&user) {
            Some(text) if !sshd.reads_ours(&user) => {
                let mut texts = texts;
                texts.insert(sshd::DROPIN.to_owned(), text);
                Some(self.run_sshd(program, &texts, user.name)?)
            }
            _ => None,
        };
        Some(SshdAnswers { without, with })
    }

    fn run_sshd(&mut self, program: &str, texts: &BTreeMap<String, String>, user: &str) -> Option<Answer> {
        let programs = self.programs.as_mut()?;
        let dir = format!("{}-{}", paths::SSHD_COPY, std::process::id());
        let copy = sshd::copy(texts, &dir)?;
        let root = self.root.without_faults().lazy();
        let written = || -> Result<(), FsError> {
            root.remove_tree(&dir)?;
            root.make_parents(&dir)?;
            root.make_dir(&dir, sshd::COPY_FOLDER)?;
            copy.iter().try_for_each(|(path, text)| root.write_bytes(path, text.as_bytes(), sshd::COPY_FILE))
        };
        let main = copy.first().map(|(path, _)| path.clone()).unwrap_or_default();
        let who = format!(
            "user={user},host={addr},addr={addr},laddr={addr},lport=22",
            addr = sshd::NOBODYS_ADDRESS
        );
        let said = written().map_err(|e| e.to_string()).and_then(|()| {
            programs.run(program, &["-T", "-f", &main, "-C", &who], SSHD_LIMIT).map_err(|e| e.to_string())
        });
        if let Err(error) = root.remove_tree(&dir) {
            tracing::warn!(%error, "a temporary copy of the SSH server's configuration could not be removed");
        }
        match said {
            Ok(said) => Answer::parse(&said.text),
            Err(why) => {
                tracing::info!(%why, "the SSH server does not report which key files it reads, so its \
                    configuration is parsed instead");
                None
            }
        }
    }

    /// The texts of the SSH server's configuration and of all that it includes; of the host's saved originals that
    /// would be restored there; and of all that files of the configs would include.
    fn sshd_texts(&self, configs: &[&DesiredHost]) -> BTreeMap<String, String> {
        let root = self.root();
        let mut texts = BTreeMap::new();
        let mut patterns: Vec<String> = sshd::CONFIGS.map(str::to_owned).to_vec();
        let mut next = 0;
        while let Some(pattern) = patterns.get(next).cloned() {
            next += 1;
            // sshd allows patterns in any component. Those in use are in the last one.
            let Ok((dir, _)) = split(&pattern) else { continue };
            let names = root.list(dir).unwrap_or_default();
            let names = names.into_iter().map(|name| format!("{dir}/{name}"));
            let mut paths: Vec<String> = names.filter(|path| sshd::glob(&pattern, path)).collect();
            let mut included = Vec::new();
            for (path, want) in configs.iter().flat_map(|c| &c.paths) {
                if !sshd::glob(&pattern, path) {
                    continue;
                }
                match want {
                    DesiredPath::File { content, .. } => {
                        included.extend(sshd::includes(&String::from_utf8_lossy(content.bytes())));
                    }
                    DesiredPath::Link { target, .. } => paths.push(sshd::target(path, target)),
                    DesiredPath::Dir { .. } | DesiredPath::Mask | DesiredPath::Nothing => {}
                }
                paths.push(paths::original(path));
            }
            paths.retain(|path| split(path).is_ok() && !texts.contains_key(path));
            for path in paths {
                if let Some(text) = root.text(&path).ok().flatten() {
                    included.extend(sshd::includes(&text));
                    texts.insert(path, text);
                }
            }
            included.retain(|pattern| !patterns.contains(pattern));
            patterns.extend(included);
        }
        texts
    }
}

/// As [`path_facts`], for a path in a folder that another user controls: an error counts as an obstacle.
fn tolerant(root: &Root, path: &str) -> PathFacts {
    path_facts(root, path, &mut BTreeMap::new()).unwrap_or_else(|e| {
        tracing::warn!(error = %e, "cannot read it, so it is left as it is");
        let parent = split(path).map(|(dir, _)| dir).unwrap_or_default().to_owned();
        PathFacts::of(PathState::NoParentFolder { parent }, None)
    })
}

/// Inspects the home folders of core and root, as far as logins depend on them.
fn homes(root: &Root) -> Result<Homes, FsError> {
    let mut folders = BTreeMap::new();
    let mut paths = Vec::new();
    for path in folders_of_keys().into_iter().chain([paths::CORE_KEYS.to_owned()]) {
        let at = path_facts(root, &path, &mut folders)?;
        paths.push((path, at));
    }
    paths.push((paths::CORE_OWN_KEYS.to_owned(), tolerant(root, paths::CORE_OWN_KEYS)));
    let of_root = own_keys(root, &format!("{ROOT_HOME}/{}", sshd::STOCK_FILE));
    Ok(Homes {
        paths,
        core_own_keys: own_keys(root, paths::CORE_OWN_KEYS),
        root_has_key: of_root.is_some_and(|keys| sshd::has_key(&keys)),
    })
}

/// A user's own key file. The user can replace it with anything, such as a link, a pipe or a very long file. In these
/// cases it counts as absent.
fn own_keys(root: &Root, path: &str) -> Option<String> {
    let short = root.read_short(path, MOST_KEYS).ok()?;
    String::from_utf8(short.bytes?).ok()
}

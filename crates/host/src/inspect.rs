//! Inspects the host before a change is planned, or before its disk is compared with a config. The result is
//! [`Facts`]: everything that the pure parts of this crate need to know. It changes none of the host's own files.
//!
//! Not here: what is decided from the facts (see `plan`, `drift`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use desired::{CORE, DEV_NULL, Want, Wanted};

use crate::disk::found::{Found, FsError};
use crate::disk::obstacle::{InFolder, Obstacle};
use crate::disk::root::{Root, split};
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::Change;
use crate::plan::facts::{Facts, PathFacts};
use crate::plan::keys::{folders_of_keys, login, sshd_texts_after};
use crate::plan::sshd::{self, Answer, Sshd, SshdAnswers};
use crate::plan::step::Secret;
use crate::plan::steps::LEAKED;
use crate::plan::trust::TrustTool;
use crate::system::unit_file::{Install, is_template, is_unit_name, template_of};
use crate::system::users::{Users, hash_of};

/// The largest key file that is read, in bytes.
const MOST_KEYS: u64 = 1024 * 1024;
/// The home folder of root.
const ROOT_HOME: &str = "/root";
/// Seconds in a day.
const DAY: u64 = 86_400;
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
    /// Gathers all that the plan of a change needs to know. Changes nothing.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn inspect(&mut self, change: &Change) -> Result<Facts, Error> {
        if !change.old.refused.is_empty() {
            let findings = change.old.refused.len();
            tracing::warn!(findings, "the current config has entries that would be refused today");
        }
        self.look_for(&change.old, &change.new)
    }

    /// All that a change needs to know. Who can log in, and how, is examined only if the change could affect logins.
    fn look_for(&mut self, old: &Wanted, new: &Wanted) -> Result<Facts, Error> {
        let configs = [old, new];
        let mut facts = self.facts(&configs)?;
        if configs.iter().any(|c| !c.config.passwd.users.is_empty()) {
            self.logins(old, new, &mut facts)?;
        }
        Ok(facts)
    }

    pub(crate) fn facts(&mut self, configs: &[&Wanted]) -> Result<Facts, Error> {
        let root = self.root();
        let text = |path: &str| root.text(path);
        let mut facts = Facts {
            owners: root.options().owners,
            users: Users::parse(
                &text(paths::PASSWD)?.unwrap_or_default(),
                &text(paths::GROUP)?.unwrap_or_default(),
            ),
            core_hash: text(paths::SHADOW)?.and_then(|t| hash_of(&t, CORE)).map(Secret),
            force: !root.found(paths::FORCE_FILE)?.is_absent(),
            fips: match text(paths::FIPS_ENABLED)?.as_deref().map(str::trim) {
                Some("1") => Some(true),
                Some("0") => Some(false),
                _ => None,
            },
            day: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY,
            ..Facts::default()
        };
        for path in ["/etc/os-release", "/usr/lib/os-release"] {
            if let Some(release) = text(path)?
                && facts.os_name.is_empty()
            {
                let name = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
                facts.os_name = name.unwrap_or_default().trim_matches(['"', '\'']).to_owned();
            }
        }
        facts.trust_tool = TrustTool::find(|path| root.found(path))?;
        managed_paths(root, configs, &mut facts)?;
        for name in configs.iter().flat_map(|c| &c.config.systemd.units).map(|u| &u.name) {
            for dir in paths::UNIT_DIRS {
                let path = format!("{dir}/{name}");
                if split(&path).is_err() || root.found(&path)?.is_absent() {
                    continue;
                }
                if dir != paths::UNITS_DIR {
                    facts.vendor_units.insert(name.clone());
                }
                if is_template(name)
                    && let Some(text) = root.text(&path)?
                    && let Some(default) = Install::parse(&text).default_instance
                {
                    facts.default_instances.entry(name.clone()).or_insert(default);
                }
            }
        }
        for dir in paths::UNIT_DIRS.into_iter().chain(paths::GENERATED_UNIT_DIRS) {
            facts.unit_files.extend(root.list(dir)?.into_iter().filter(|n| is_unit_name(n)));
        }
        for name in
            root.list(paths::UNITS_DIR)?.into_iter().filter(|n| template_of(n).is_some_and(|t| t != *n))
        {
            let path = paths::unit(&name);
            if matches!(root.found(&path)?, Found::Link { target, .. } if target == DEV_NULL) {
                facts.masked_instances.insert(name);
            }
        }
        for name in configs.iter().flat_map(|c| &c.config.systemd.units).map(|u| &u.name) {
            if let Some(state) = self.systemd.state(name)? {
                facts.unit_states.insert(name.clone(), state);
            }
        }
        facts.boot = self.boot()?;
        match self.os.detect() {
            Ok(_) => facts.os = Some(self.os.status()?),
            Err(why) => facts.os_unsupported = Some(why),
        }
        facts.os_failure = self.os_failure()?;
        Ok(facts)
    }

    /// How people log in. If something in the folders of the SSH server and of users cannot be read, the change is not
    /// refused: it counts as absent, or as an obstacle.
    fn logins(&mut self, old: &Wanted, new: &Wanted, facts: &mut Facts) -> Result<(), Error> {
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
                facts.paths.insert(paths::CORE_HOME.to_owned(), PathFacts::of(Found::Absent, Some(obstacle)));
                let parent = paths::CORE_HOME.to_owned();
                facts.paths.insert(
                    paths::CORE_OWN_KEYS.to_owned(),
                    PathFacts::of(Found::NoParentFolder { parent }, None),
                );
            }
        }
        facts.sshd_answers = self.ask_sshd(old, new, facts);
        Ok(())
    }

    /// What the host's own `sshd -T` reports for a copy of its configuration as the change leaves it. `None`: there is
    /// no such program, or it fails. An sshd that was never started may lack its folder in `/run`, for example.
    fn ask_sshd(&mut self, old: &Wanted, new: &Wanted, facts: &Facts) -> Option<SshdAnswers> {
        let user = login(facts)?;
        let texts = sshd_texts_after(old, new, facts);
        // It is asked only if the answer matters: if the config has keys for core.
        if new.config.passwd.users.iter().all(|u| u.ssh_authorized_keys.is_empty()) {
            return None;
        }
        let there = |path: &&str| !self.root.found(path).unwrap_or(Found::Absent).is_absent();
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
    fn sshd_texts(&self, configs: &[&Wanted]) -> BTreeMap<String, String> {
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
                    Want::File { content, .. } => {
                        included.extend(sshd::includes(&String::from_utf8_lossy(content.bytes())));
                    }
                    Want::Link { target, .. } => paths.push(sshd::target(path, target)),
                    Want::Dir { .. } | Want::Mask | Want::Nothing => {}
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

/// Every path that a plan between the configs may touch: what exists there, and any obstacle.
fn managed_paths(root: &Root, configs: &[&Wanted], facts: &mut Facts) -> Result<(), Error> {
    let mut folders: BTreeMap<String, InFolder> = BTreeMap::new();
    let (owner_paths, closed, trust_tool) = (&mut facts.paths, &mut facts.closed, &facts.trust_tool);
    let mut look = |path: String| -> Result<(), FsError> {
        let Entry::Vacant(entry) = owner_paths.entry(path) else { return Ok(()) };
        let at = look_at(root, entry.key(), &mut folders)?;
        entry.insert(at);
        Ok(())
    };
    for (path, _) in configs.iter().flat_map(|c| &c.paths) {
        if !root.is_open_to_all(path) {
            closed.insert(path.clone());
        }
        look(paths::original(path))?;
        look(paths::no_original(path))?;
        look(path.clone())?;
        if let Some(link) = trust_tool.as_ref().and_then(|tool| tool.link(path)) {
            look(link)?;
        }
    }
    for (path, want) in configs.iter().flat_map(|c| &c.paths) {
        match want {
            Want::Link { target, hard: true, .. } if split(target).is_ok() => look(target.clone())?,
            Want::Dir { .. } => look(paths::original_dir(path))?,
            _ => {}
        }
    }
    let fixed = [
        paths::CURRENT_CONFIG,
        paths::REBOOT_PENDING,
        paths::PASSWD,
        paths::PASSWD_BACKUP,
        paths::SHADOW,
        paths::ORIGINALS,
        paths::UNITS_PROBE,
        paths::SSHD_DROPIN_RECORD,
        paths::OS_FAILURE,
    ];
    for path in fixed.into_iter().chain(LEAKED) {
        look(path.to_owned())?;
    }
    for (path, want) in configs.iter().flat_map(|c| &c.paths) {
        match want {
            Want::Link { target, hard: true, .. }
                if split(target).is_ok() && root.same_file(path, target) =>
            {
                facts.same_files.insert(path.clone());
            }
            Want::Dir { .. } => {
                let kept = paths::original_dir(path);
                if let Some(bytes) = root.read_if_there(&kept)? {
                    let attributes = api::shape::read_bytes(&bytes).map_err(|e| Error::Config {
                        name: kept,
                        why: format!("{e}; remove it; {path} then stays as it is when its config is removed"),
                    })?;
                    facts.original_dirs.insert(path.clone(), attributes);
                }
                // The first config is the one in effect.
                if let Some(old) = configs.first()
                    && !facts.found(&paths::original(path)).is_absent()
                    && let Some(other) = not_ours(root, old, path)?
                {
                    facts.not_ours.insert(path.clone(), other);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// What exists at a path, and any obstacle to changing it. Each folder is inspected only once.
fn look_at(root: &Root, path: &str, folders: &mut BTreeMap<String, InFolder>) -> Result<PathFacts, FsError> {
    let (found, is_mount_point) = root.inspect(path)?;
    let own_obstacle = match &found {
        Found::Dir { .. } => root.own_obstacle(path)?,
        _ => None,
    };
    // A path that cannot be split is refused elsewhere.
    let Ok((dir, _)) = split(path) else { return Ok(PathFacts { found, obstacle: None, own_obstacle }) };
    let in_folder = match folders.entry(dir.to_owned()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(root.folder_obstacle(path)?),
    };
    let obstacle = in_folder.clone().or_else(|| is_mount_point.then_some(Obstacle::MountPoint));
    Ok(PathFacts { found, obstacle, own_obstacle })
}

/// As [`look_at`], for a path in a folder that another user controls: an error counts as an obstacle.
fn tolerant(root: &Root, path: &str) -> PathFacts {
    look_at(root, path, &mut BTreeMap::new()).unwrap_or_else(|e| {
        tracing::warn!(error = %e, "cannot read it, so it is left as it is");
        let parent = split(path).map(|(dir, _)| dir).unwrap_or_default().to_owned();
        PathFacts::of(Found::NoParentFolder { parent }, None)
    })
}

/// Inspects the home folders of core and root, as far as logins depend on them.
fn homes(root: &Root) -> Result<Homes, FsError> {
    let mut folders = BTreeMap::new();
    let mut paths = Vec::new();
    for path in folders_of_keys().into_iter().chain([paths::CORE_KEYS.to_owned()]) {
        let at = look_at(root, &path, &mut folders)?;
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

/// A path in a folder that the config did not put there.
fn not_ours(root: &Root, config: &Wanted, folder: &str) -> Result<Option<String>, FsError> {
    if !matches!(root.found(folder)?, Found::Dir { .. }) {
        return Ok(None);
    }
    for name in root.list(folder)? {
        let path = format!("{folder}/{name}");
        let other = match config.at(&path) {
            None | Some(Want::Nothing) => Some(path),
            Some(Want::Dir { .. }) => not_ours(root, config, &path)?,
            Some(_) => None,
        };
        if other.is_some() {
            return Ok(other);
        }
    }
    Ok(None)
}

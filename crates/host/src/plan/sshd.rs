//! Where the host's SSH server looks for a user's keys, and what makes it look at ours. Pure. Input: the texts of its
//! configuration and the server's own report of them (`sshd -T`). Output: a decision.
//!
//! Keys are written where the reference implementation puts them, in `~/.ssh/authorized_keys.d/ignition`. A stock sshd
//! does not look there. What the server reports has precedence, for a connection from an address that nobody has
//! ([`NOBODYS_ADDRESS`]). Where it cannot be asked, the configuration is read here as sshd(8) and sshd_config(5) say:
//! the first value of a keyword counts; a value in a `Match` block that applies has precedence over it; an `Include`
//! is read where it is written, and a `Match` in an included file ends with that file.
//!
//! Not all of sshd_config is supported. Of the criteria of `Match`, only users, the user's main group and `all` are
//! evaluated. Other groups may be in another database, which only the server can ask. Whether a block for an address
//! applies depends on who connects, which the server cannot know either. Such a block may or may not apply, so all
//! values that could take effect are candidates.

mod key_file;
mod language;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::disk::attributes::Attributes;
pub(crate) use key_file::{has_key, with_block};
use language::{Applies, absolute, expanded, matches, words};
pub(crate) use language::{glob, includes, target};

/// Where the SSH server's program may be. The first one that exists is used.
pub(crate) const PROGRAMS: [&str; 4] =
    ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd", "/run/current-system/sw/bin/sshd"];
/// An address that is reserved for documentation (RFC 5737). The server is asked about a connection from there. A
/// `Match` block for an address counts as one that may or may not apply.
pub(crate) const NOBODYS_ADDRESS: &str = "192.0.2.1";
/// Mode and owner of the folder with the copy of the configuration: parts of it may be readable for root only.
pub(crate) const COPY_FOLDER: Attributes = Attributes { mode: 0o700, uid: 0, gid: 0 };
/// The same for its files.
pub(crate) const COPY_FILE: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
/// Where the server's configuration may be. The first one that exists is used. The second one is that of distributions
/// which leave `/etc` to the administrator.
pub(crate) const CONFIGS: [&str; 2] = ["/etc/ssh/sshd_config", "/usr/etc/ssh/sshd_config"];
/// The drop-in that makes sshd read our keys. Its name sorts first in its folder, because the first value takes
/// effect.
pub(crate) const DROPIN: &str = "/etc/ssh/sshd_config.d/00-machine-config-keys.conf";
/// The key file that a stock sshd reads.
pub(crate) const STOCK_FILE: &str = ".ssh/authorized_keys";
/// Our key file, relative to the home folder.
const OUR_FILE: &str = ".ssh/authorized_keys.d/ignition";
/// The default of `AuthorizedKeysFile` (sshd_config(5)).
const DEFAULT: [&str; 2] = [STOCK_FILE, ".ssh/authorized_keys2"];
/// A helper of some distributions that reads every file in `~/.ssh/authorized_keys.d`.
const KEY_DIR_HELPER: &str = "ssh-key-dir";
/// sshd's own limit on nested includes.
const DEPTH: u32 = 16;
/// The user whose keys are examined.
pub(crate) struct Login<'a> {
    pub(crate) name: &'a str,
    /// The home folder, from the user database.
    pub(crate) home: &'a str,
    /// The main group, from the group database.
    pub(crate) group: Option<&'a str>,
}

/// What the server itself reports about a user's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The key files that it reads, as patterns.
    pub files: Vec<String>,
    /// The program that it runs to get keys, with its arguments.
    pub command: Option<String>,
}

impl Answer {
    /// Parses the output of `sshd -T`: a keyword in lower case and its values in each line. `None`: the output has
    /// another form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let value = |keyword: &str| {
            let mut lines = text.lines().map(words);
            lines
                .find(|words| words.first().is_some_and(|w| w == keyword))
                .map(|words| words.into_iter().skip(1))
        };
        let files: Vec<String> = value("authorizedkeysfile")?.collect();
        let command = value("authorizedkeyscommand").map(|words| words.collect::<Vec<_>>().join(" "));
        let command = command.filter(|c| !matches!(c.as_str(), "" | "none"));
        (!files.is_empty()).then_some(Self { files, command })
    }
}

/// What the server reports for its configuration as a change leaves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SshdAnswers {
    /// Without our own additions.
    pub without: Answer,
    /// With our drop-in. `None`: it is not needed, or cannot be used.
    pub with: Option<Answer>,
}

/// What the configuration says about a user's keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sshd {
    /// The key files as they are written in the configuration: all values that may take effect.
    files: Vec<Vec<String>>,
    /// The program that is run to get keys: all values that may take effect.
    commands: Vec<Option<String>>,
    /// Files in the drop-in folder are read for every login.
    dropins: bool,
    /// A file with a `Match` block that sets the key files and may or may not apply.
    pub(crate) perhaps: Option<String>,
    /// The main configuration file.
    pub(crate) main: &'static str,
}

/// The values of one keyword.
struct Values<T> {
    /// From blocks that may apply, before the first one that does.
    perhaps: Vec<T>,
    /// From the first block that applies.
    of_match: Option<T>,
    /// Outside of blocks.
    global: Option<T>,
}

impl<T: PartialEq> Values<T> {
    const NONE: Self = Self { perhaps: Vec::new(), of_match: None, global: None };

    fn add(&mut self, value: T, applies: Applies, in_match: bool) {
        match applies {
            Applies::No => {}
            Applies::Perhaps if self.of_match.is_none() => self.perhaps.push(value),
            Applies::Perhaps => {}
            Applies::Yes if in_match => {
                self.of_match.get_or_insert(value);
            }
            Applies::Yes => {
                self.global.get_or_insert(value);
            }
        }
    }

    /// All values that may take effect. The last one takes effect if none of the uncertain blocks applies. The server
    /// may have reported it.
    fn candidates(self, default: T, said: Option<T>) -> Vec<T> {
        let mut all = self.perhaps;
        if all.is_empty()
            && let Some(said) = said
        {
            return vec![said];
        }
        all.push(self.of_match.or(self.global).unwrap_or(default));
        all.extend(said);
        all.dedup();
        all
    }
}

struct Reading {
    files: Values<Vec<String>>,
    commands: Values<Option<String>>,
    dropins: bool,
    perhaps: Option<String>,
    /// The server was asked: its report covers everything that does not depend on who connects.
    asked: bool,
}

impl Sshd {
    /// Evaluates the configuration: the texts of its files by path, and the server's own report. `None`: there is no
    /// SSH server here.
    pub(crate) fn read(
        texts: &BTreeMap<String, String>,
        user: &Login<'_>,
        said: Option<&Answer>,
    ) -> Option<Self> {
        let main = CONFIGS.into_iter().find(|path| texts.contains_key(*path))?;
        let (files, commands) = (Values::NONE, Values::NONE);
        let mut reading = Reading { files, commands, dropins: false, perhaps: None, asked: said.is_some() };
        reading.file((main, texts.get(main)?), texts, user, (Applies::Yes, false), 0);
        Some(Self {
            files: reading
                .files
                .candidates(DEFAULT.map(str::to_owned).to_vec(), said.map(|s| s.files.clone())),
            commands: reading.commands.candidates(None, said.map(|s| s.command.clone())),
            dropins: reading.dropins,
            perhaps: reading.perhaps,
            main,
        })
    }

    /// Whether the server reads our keys for every login.
    pub(crate) fn reads_ours(&self, user: &Login<'_>) -> bool {
        let is_helper = |command: &Option<String>| {
            let program = command.as_deref().and_then(|c| c.split_whitespace().next());
            program.is_some_and(|c| c.rsplit('/').next() == Some(KEY_DIR_HELPER))
        };
        self.commands.iter().all(is_helper) || self.reads(OUR_FILE, user)
    }

    /// Whether the server reads a file below the user's home folder for every login.
    pub(crate) fn reads(&self, file: &str, user: &Login<'_>) -> bool {
        let want = format!("{}/{file}", user.home);
        let reads = |files: &Vec<String>| files.iter().any(|pattern| expanded(pattern, user) == want);
        self.files.iter().all(reads)
    }

    /// The key files that are read, as text for people.
    pub(crate) fn files(&self) -> String {
        self.files.iter().map(|files| files.join(" ")).collect::<Vec<_>>().join(" or ")
    }

    /// The contents of [`DROPIN`]: all key files that are read now, and ours. `None`: the drop-in would not be read,
    /// or would override a block of the administrator's that may or may not apply.
    pub(crate) fn dropin_text(&self, user: &Login<'_>) -> Option<String> {
        if !self.dropins || self.perhaps.is_some() {
            return None;
        }
        let files = self.files.iter().flatten().map(String::as_str).filter(|f| *f != "none");
        let files: Vec<&str> = files.chain([OUR_FILE]).collect();
        Some(format!(
            "# Written by the machine-config-daemon: the keys of the MachineConfig count for {name}.\nMatch User {name}\n    AuthorizedKeysFile {files}\n",
            name = user.name,
            files = files.join(" ")
        ))
    }

    /// As [`Sshd::dropin_text`], but only if it makes our keys effective. If the server was asked, its report about
    /// the configuration with the drop-in decides.
    pub(crate) fn dropin(
        &self,
        texts: &BTreeMap<String, String>,
        user: &Login<'_>,
        said: Option<&SshdAnswers>,
    ) -> Option<String> {
        let text = self.dropin_text(user)?;
        let mut with = texts.clone();
        with.insert(DROPIN.to_owned(), text.clone());
        let said = match said {
            Some(said) => Some(said.with.as_ref()?),
            None => None,
        };
        Self::read(&with, user, said).is_some_and(|after| after.reads_ours(user)).then_some(text)
    }
}

/// A copy of the configuration for another folder, as paths and texts, the main file first. Each `Include` in it names
/// the copies instead of the original files. `None`: there is no SSH server here.
pub(crate) fn copy(texts: &BTreeMap<String, String>, folder: &str) -> Option<Vec<(String, String)>> {
    let main = CONFIGS.into_iter().find(|path| texts.contains_key(*path))?;
    let mut order: Vec<&String> = texts.keys().collect();
    order.sort_by_key(|path| *path != main);
    let number = |path: &String| order.iter().position(|p| *p == path);
    let of = |path: &String| number(path).map(|n| format!("{folder}/{n}.conf"));
    let line = |line: &str| -> String {
        let words = words(line);
        match words.split_first() {
            Some((keyword, patterns)) if keyword.eq_ignore_ascii_case("include") => {
                let files = patterns.iter().map(|p| absolute(p)).flat_map(|pattern| {
                    texts.keys().filter(move |path| glob(&pattern, path)).filter_map(of).collect::<Vec<_>>()
                });
                let files: Vec<String> = files.collect();
                if files.is_empty() { String::new() } else { format!("Include {}", files.join(" ")) }
            }
            _ => line.to_owned(),
        }
    };
    let text = |text: &String| text.lines().map(|l| line(l) + "\n").collect::<String>();
    order.iter().map(|path| Some((of(path)?, text(texts.get(*path)?)))).collect()
}

impl Reading {
    /// Evaluates one file. `around`: whether the block that includes it applies, and whether that is a `Match` block.
    fn file(
        &mut self,
        (path, text): (&str, &str),
        texts: &BTreeMap<String, String>,
        user: &Login<'_>,
        around: (Applies, bool),
        depth: u32,
    ) {
        let (outer, mut in_match) = around;
        let mut applies = outer;
        for line in text.lines() {
            let words = words(line);
            let Some((keyword, values)) = words.split_first() else { continue };
            match keyword.to_ascii_lowercase().as_str() {
                "match" => {
                    in_match = true;
                    applies = outer.and(matches(values, user, self.asked));
                }
                _ if applies == Applies::No => {}
                "include" if depth < DEPTH => {
                    for pattern in values {
                        let pattern = absolute(pattern);
                        self.dropins |= !in_match && glob(&pattern, DROPIN);
                        for (path, text) in texts.iter().filter(|(path, _)| glob(&pattern, path)) {
                            self.file((path, text), texts, user, (applies, in_match), depth + 1);
                        }
                    }
                }
                "authorizedkeysfile" => {
                    if applies == Applies::Perhaps && self.files.of_match.is_none() {
                        self.perhaps.get_or_insert_with(|| path.to_owned());
                    }
                    self.files.add(values.to_vec(), applies, in_match);
                }
                "authorizedkeyscommand" => self.commands.add(Some(values.join(" ")), applies, in_match),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

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

use std::collections::BTreeMap;

use serde::Serialize;

use crate::disk::found::Attributes;

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
/// Our lines in the user's own key file are between these two.
const BEGIN: &str = "# BEGIN keys of the MachineConfig: do not edit";
const END: &str = "# END keys of the MachineConfig";

/// The user whose keys are examined.
pub(crate) struct Login<'a> {
    pub(crate) name: &'a str,
    /// The home folder, from the user database.
    pub(crate) home: &'a str,
    /// The main group, from the group database.
    pub(crate) group: Option<&'a str>,
}

/// Whether a `Match` block applies to a login as the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applies {
    Yes,
    No,
    /// To some logins: it depends on the client's address, or on something that is not known here.
    Perhaps,
}

impl Applies {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            (Self::Perhaps, _) | (_, Self::Perhaps) => Self::Perhaps,
        }
    }
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

/// The patterns of the files that a text includes, in any block.
pub(crate) fn includes(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in text.lines() {
        let words = words(line);
        if let Some((keyword, values)) = words.split_first()
            && keyword.eq_ignore_ascii_case("include")
        {
            out.extend(values.iter().map(|v| absolute(v)));
        }
    }
    out
}

/// The absolute target of a config's link.
pub(crate) fn target(path: &str, target: &str) -> String {
    match path.rsplit_once('/') {
        Some((dir, _)) if !target.starts_with('/') => format!("{dir}/{target}"),
        _ => target.to_owned(),
    }
}

fn absolute(pattern: &str) -> String {
    if pattern.starts_with('/') { pattern.to_owned() } else { format!("/etc/ssh/{pattern}") }
}

/// The words of a line. `=` may separate the first from the rest, any word may be quoted, and `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.trim().chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_with(String::new);
            }
            '#' if !quoted && word.is_none() => break,
            '=' if !quoted && (out.is_empty() || out.len() == 1 && word.is_none()) => out.extend(word.take()),
            c if c.is_whitespace() && !quoted => out.extend(word.take()),
            c => word.get_or_insert_with(String::new).push(c),
        }
    }
    out.extend(word);
    out
}

/// Whether a `Match` block applies: all of its criteria must match. If the server was `asked`, its answer covers a
/// block that depends only on the user's groups.
fn matches(criteria: &[String], user: &Login<'_>, asked: bool) -> Applies {
    if criteria.is_empty() {
        return Applies::No;
    }
    let known = |is: bool| if is { Applies::Yes } else { Applies::No };
    let mut all = Applies::Yes;
    let mut depends_on_who_comes = false;
    let mut rest = criteria.iter();
    while let Some(criterion) = rest.next() {
        let (key, value) = match criterion.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (criterion.as_str(), None),
        };
        let key = key.to_ascii_lowercase();
        let one = match key.as_str() {
            "all" => Applies::Yes,
            // The user exists.
            "invalid-user" => Applies::No,
            _ => match (key.as_str(), value.or_else(|| rest.next().map(String::as_str))) {
                (_, None) => Applies::No,
                (_, Some("*")) => Applies::Yes,
                ("user", Some(patterns)) => known(listed(patterns, user.name)),
                ("group", Some(patterns)) => in_groups(patterns, user),
                (_, Some(_)) => {
                    depends_on_who_comes = true;
                    Applies::Perhaps
                }
            },
        };
        all = all.and(one);
    }
    if asked && all == Applies::Perhaps && !depends_on_who_comes { Applies::No } else { all }
}

/// Whether one of the user's groups matches a list of patterns and none is excluded. Only the main group is known.
fn in_groups(patterns: &str, user: &Login<'_>) -> Applies {
    let Some(group) = user.group else { return Applies::Perhaps };
    let out = |p: &str| p.strip_prefix('!').map(|not| wild(not, group));
    if patterns.split(',').any(|p| out(p) == Some(true)) {
        Applies::No
    } else if listed(patterns, group) && patterns.split(',').all(|p| out(p).is_none()) {
        Applies::Yes
    } else {
        Applies::Perhaps
    }
}

/// Whether a name matches a list of patterns. A pattern with `!` excludes it.
fn listed(patterns: &str, name: &str) -> bool {
    let mut found = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            Some(not) if wild(not, name) => return false,
            Some(_) => {}
            None => found |= wild(pattern, name),
        }
    }
    found
}

/// Whether a path matches a pattern. `*` and `?` do not match a `/`.
pub(crate) fn glob(pattern: &str, path: &str) -> bool {
    let (mut a, mut b) = (pattern.split('/'), path.split('/'));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(p), Some(name)) if wild(p, name) && (!name.starts_with('.') || p.starts_with('.')) => {}
            _ => return false,
        }
    }
}

fn wild(pattern: &str, name: &str) -> bool {
    match pattern.chars().next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = pattern.get(1..).unwrap_or_default();
            wild(rest, name)
                || name
                    .char_indices()
                    .any(|(i, c)| wild(rest, name.get(i + c.len_utf8()..).unwrap_or_default()))
        }
        Some(p) => {
            let rest = pattern.get(p.len_utf8()..).unwrap_or_default();
            let mut chars = name.chars();
            chars.next().is_some_and(|c| p == '?' || p == c) && wild(rest, chars.as_str())
        }
    }
}

/// The path that results from a pattern of `AuthorizedKeysFile` for a user.
fn expanded(pattern: &str, user: &Login<'_>) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, c == '%') {
            (_, true) => match chars.next() {
                Some('h') => out.push_str(user.home),
                Some('u') => out.push_str(user.name),
                Some(c) => out.push(c),
                None => {}
            },
            (c, false) => out.push(c),
        }
    }
    if out.starts_with('/') { out } else { format!("{}/{out}", user.home) }
}

/// Whether a key file contains a key.
pub(crate) fn has_key(text: &str) -> bool {
    text.lines().any(|line| !matches!(line.trim().chars().next(), None | Some('#')))
}

/// The user's own key file with these keys as our block in it. Without keys the block is removed. All other lines
/// stay. If somebody has removed the block's last line, only its first line and the keys of ours that directly follow
/// it are replaced.
pub(crate) fn with_block(text: &str, written: &str, keys: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut out = String::new();
    let mut rest = lines.as_slice();
    while let Some((line, after)) = rest.split_first() {
        rest = after;
        if line.trim_end() != BEGIN {
            out.push_str(line);
            continue;
        }
        let marker = after.iter().position(|l| matches!(l.trim_end(), BEGIN | END));
        let end = marker.filter(|at| after.get(*at).is_some_and(|l| l.trim_end() == END));
        let is_ours = |l: &&&str| written.lines().any(|key| key == l.trim_end());
        let ours = end.map_or_else(|| after.iter().take_while(is_ours).count(), |at| at + 1);
        rest = after.get(ours..).unwrap_or_default();
    }
    if keys.is_empty() {
        return out;
    }
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    format!("{out}{BEGIN}\n{keys}{END}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: Login<'_> = Login { name: "core", home: "/home/core", group: Some("core") };
    const CONFIG: &str = CONFIGS[0];
    const DEBIAN: &str = "# stock\nInclude /etc/ssh/sshd_config.d/*.conf\n#AuthorizedKeysFile\t.ssh/authorized_keys\nUsePAM yes\n";

    fn texts(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect()
    }

    #[test]
    fn whether_our_keys_count_is_read_as_sshd_reads_it() {
        let dropin = |name: &str| format!("/etc/ssh/sshd_config.d/{name}");
        let ours = "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/ignition";
        let (ten, twenty) = (dropin("10.conf"), dropin("20.conf"));
        for (about, files, reads, dropins) in [
            ("stock Debian", vec![(CONFIG, DEBIAN)], false, true),
            ("nothing said", vec![(CONFIG, "")], false, false),
            ("said", vec![(CONFIG, ours)], true, false),
            ("said in a drop-in", vec![(CONFIG, DEBIAN), (&ten, ours)], true, true),
            (
                "the first counts",
                vec![(CONFIG, DEBIAN), (&ten, "AuthorizedKeysFile none"), (&twenty, ours)],
                false,
                true,
            ),
            (
                "with =, quotes and tokens",
                vec![(CONFIG, "authorizedkeysfile=\"%h/.ssh/authorized_keys.d/ignition\"")],
                true,
                false,
            ),
            (
                "absolute",
                vec![(CONFIG, "AuthorizedKeysFile /home/%u/.ssh/authorized_keys.d/ignition")],
                true,
                false,
            ),
            ("somewhere else", vec![(CONFIG, "AuthorizedKeysFile /etc/ssh/keys/%u")], false, false),
            (
                "a block for the user wins",
                vec![(CONFIG, &format!("AuthorizedKeysFile none\nMatch User core\n{ours}"))],
                true,
                false,
            ),
            ("a block for another", vec![(CONFIG, &format!("Match User bob,!core\n{ours}"))], false, false),
            (
                "a block for an address",
                vec![(CONFIG, &format!("Match User core Address 10.0.0.0/8\n{ours}"))],
                false,
                false,
            ),
            ("a block for all", vec![(CONFIG, &format!("Match all\n{ours}"))], true, false),
            (
                "a block ends with its file",
                vec![(CONFIG, &format!("{DEBIAN}{ours}")), (&ten, "Match User bob\nX11Forwarding no")],
                true,
                true,
            ),
            (
                "an include that does not apply",
                vec![(CONFIG, "Match User bob\nInclude sshd_config.d/*.conf"), (&ten, ours)],
                false,
                false,
            ),
            ("a relative include", vec![(CONFIG, "Include sshd_config.d/*.conf"), (&ten, ours)], true, true),
            ("no file of drop-ins", vec![(CONFIG, DEBIAN), (&dropin("10.conf.bak"), ours)], false, true),
            (
                "the helper of some distributions",
                vec![(
                    CONFIG,
                    "AuthorizedKeysCommand /usr/libexec/ssh-key-dir %u\nAuthorizedKeysFile .ssh/authorized_keys",
                )],
                true,
                false,
            ),
        ] {
            let sshd = Sshd::read(&texts(&files), &CORE, None).unwrap();
            assert_eq!((sshd.reads_ours(&CORE), sshd.dropins), (reads, dropins), "{about}: {sshd:?}");
            if sshd.dropins && !reads {
                // What we write makes it so, and leaves the rest as it was.
                let mut with: Vec<(&str, &str)> = files.clone();
                let text = sshd.dropin(&texts(&files), &CORE, None).unwrap();
                with.push((DROPIN, &text));
                let after = Sshd::read(&texts(&with), &CORE, None).unwrap();
                assert!(after.reads_ours(&CORE), "{about}: {after:?}");
                assert_eq!(after.reads(STOCK_FILE, &CORE), sshd.reads(STOCK_FILE, &CORE), "{about}");
                let bob = Login { name: "bob", home: "/home/bob", group: Some("bob") };
                assert_eq!(
                    Sshd::read(&texts(&with), &bob, None),
                    Sshd::read(&texts(&files), &bob, None),
                    "{about}: others notice"
                );
            }
        }
        assert_eq!(Sshd::read(&texts(&[(&ten, ours)]), &CORE, None), None, "no server");
        let round = texts(&[(CONFIG, "Include /etc/ssh/sshd_config\n")]);
        assert!(Sshd::read(&round, &CORE, None).is_some(), "files that include each other");
    }

    #[test]
    fn our_block_in_somebodys_file_leaves_the_rest_alone() {
        let theirs = "# mine\nssh-ed25519 AAAA me\n";
        let with = with_block(theirs, "", "ssh-ed25519 BBBB ours\n");
        assert_eq!(with, format!("{theirs}{BEGIN}\nssh-ed25519 BBBB ours\n{END}\n"));
        let other = with_block(&with, "", "ssh-ed25519 CCCC other\n");
        assert!(other.contains("CCCC") && !other.contains("BBBB") && other.starts_with(theirs), "{other}");
        assert_eq!(with_block(&other, "", ""), theirs);
        assert_eq!(with_block("no newline", "", "k\n"), format!("no newline\n{BEGIN}\nk\n{END}\n"));
        assert_eq!(with_block("", "", ""), "");
    }

    #[test]
    fn a_block_of_the_administrators_that_may_apply_is_not_overridden() {
        for (about, block, stock) in [
            ("an address", "Match User core Address *,!10.0.0.0/8\nAuthorizedKeysFile none", false),
            ("a group", "Match Group admins\nAuthorizedKeysFile /etc/ssh/keys/%u", false),
            ("a group but for another", "Match Group *,!admins\nAuthorizedKeysFile none", false),
            (
                "the stock file in any case",
                "Match Address 10.0.0.0/8\nAuthorizedKeysFile %h/.ssh/authorized_keys",
                true,
            ),
        ] {
            let all = texts(&[(CONFIG, &format!("{DEBIAN}{block}\n"))]);
            let sshd = Sshd::read(&all, &CORE, None).unwrap();
            assert_eq!(sshd.dropin(&all, &CORE, None), None, "{about}: {sshd:?}");
            assert_eq!(sshd.perhaps.as_deref(), Some(CONFIG), "{about}");
            assert_eq!((sshd.reads_ours(&CORE), sshd.reads(STOCK_FILE, &CORE)), (false, stock), "{about}");
        }
        for (about, block) in [
            ("another user's", "Match Address 10.0.0.0/8 User bob\nAuthorizedKeysFile none"),
            ("one that says nothing of keys", "Match Address 10.0.0.0/8\nX11Forwarding no"),
            ("no user at all", "Match invalid-user\nAuthorizedKeysFile none"),
            ("all but its own group", "Match Group *,!core\nAuthorizedKeysFile none"),
            (
                "after one that applies",
                "Match all\nAuthorizedKeysFile a\nMatch Group x\nAuthorizedKeysFile b",
            ),
        ] {
            let all = texts(&[(CONFIG, &format!("{DEBIAN}{block}\n"))]);
            let sshd = Sshd::read(&all, &CORE, None).unwrap();
            assert!(sshd.dropin(&all, &CORE, None).is_some(), "{about}: {sshd:?}");
        }
        // A block that stands in front of our drop-in.
        let first = "Include first.conf\nInclude sshd_config.d/*.conf\n";
        let block = "Match User core\nAuthorizedKeysFile none\n";
        let all = texts(&[(CONFIG, first), ("/etc/ssh/first.conf", block)]);
        assert_eq!(Sshd::read(&all, &CORE, None).unwrap().dropin(&all, &CORE, None), None);
    }

    #[test]
    fn the_distributions_configuration_counts_where_the_administrator_has_none() {
        let [etc, usr] = CONFIGS;
        let sshd = Sshd::read(&texts(&[(usr, DEBIAN)]), &CORE, None).unwrap();
        assert!(sshd.dropins && sshd.main == usr, "{sshd:?}");
        let sshd = Sshd::read(&texts(&[(etc, ""), (usr, DEBIAN)]), &CORE, None).unwrap();
        assert!(!sshd.dropins && sshd.main == etc, "{sshd:?}");
    }

    #[test]
    fn a_block_without_its_end_takes_nobodys_keys_along() {
        for (about, text, left) in [
            ("no end", format!("a\n{BEGIN}\nk1\nk2\ntheirs\nk1\n"), "a\ntheirs\nk1\n"),
            ("no end, no newline", format!("{BEGIN}\nk1"), ""),
            ("another block follows", format!("{BEGIN}\nk1\nb\n{BEGIN}\nk2\n{END}\nc\n"), "b\nc\n"),
            ("an end alone", format!("a\n{END}\nb\n"), "a\n# END keys of the MachineConfig\nb\n"),
        ] {
            assert_eq!(with_block(&text, "k1\nk2\n", ""), left, "{about}");
        }
    }
}

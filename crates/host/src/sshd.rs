//! Where the host's SSH server looks for a user's keys, read from its own configuration, and what makes it look at ours.
//! Pure: texts in, a decision out.
//!
//! Keys stand where the reference puts them, in `~/.ssh/authorized_keys.d/ignition`. A stock sshd does not look there.
//! sshd(8) and sshd_config(5) are the source of the rules: the first value of a keyword counts; one in a `Match` block
//! that applies wins over it; an `Include` is read where it stands, and a `Match` in an included file ends with it.
//!
//! What it is not: all of sshd_config. Of the criteria of `Match` only users, groups and `all` are known: whether a rule
//! for an address applies depends on who comes.

use std::collections::BTreeMap;

/// The server's configuration.
pub(crate) const CONFIG: &str = "/etc/ssh/sshd_config";
/// Makes sshd look at our keys. Its name is the first of its folder: the first block for a user wins.
pub(crate) const DROPIN: &str = "/etc/ssh/sshd_config.d/00-machine-config-keys.conf";
/// Where a stock sshd looks.
pub(crate) const STOCK_FILE: &str = ".ssh/authorized_keys";
/// Where our keys are, below the home folder.
const OUR_FILE: &str = ".ssh/authorized_keys.d/ignition";
/// What sshd looks at if nobody says anything.
const DEFAULT: [&str; 2] = [STOCK_FILE, ".ssh/authorized_keys2"];
/// A helper of some distributions, which reads all of `~/.ssh/authorized_keys.d`.
const KEY_DIR_HELPER: &str = "ssh-key-dir";
/// sshd's own limit of files that include each other.
const DEPTH: u32 = 16;
/// The lines of a file of the user's own that are ours stand between these.
const BEGIN: &str = "# BEGIN keys of the MachineConfig: do not edit";
const END: &str = "# END keys of the MachineConfig";

/// The user whose keys it is about.
pub(crate) struct Login<'a> {
    pub(crate) name: &'a str,
    /// Its home, by the user database.
    pub(crate) home: &'a str,
}

/// What the configuration says of a user's keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sshd {
    /// The files that are looked at, as they are written in the configuration.
    files: Vec<String>,
    /// The program that is asked for keys.
    command: Option<String>,
    /// Files of the folder of drop-ins are read, whoever logs in.
    pub(crate) dropins: bool,
}

#[derive(Default)]
struct Reading {
    files: Option<Vec<String>>,
    files_of_match: Option<Vec<String>>,
    command: Option<String>,
    command_of_match: Option<String>,
    dropins: bool,
}

impl Sshd {
    /// Reads the configuration: the texts of its files by path. `None`: there is no SSH server here.
    pub(crate) fn read(texts: &BTreeMap<String, String>, user: &Login<'_>) -> Option<Self> {
        let text = texts.get(CONFIG)?;
        let mut reading = Reading::default();
        reading.file(text, texts, user, true, false, 0);
        let files = reading.files_of_match.or(reading.files);
        Some(Self {
            files: files.unwrap_or_else(|| DEFAULT.map(str::to_owned).to_vec()),
            command: reading.command_of_match.or(reading.command),
            dropins: reading.dropins,
        })
    }

    /// Whether it looks at our keys.
    pub(crate) fn reads_ours(&self, user: &Login<'_>) -> bool {
        let helper = self.command.as_deref().and_then(|c| c.split_whitespace().next());
        helper.is_some_and(|c| c.rsplit('/').next() == Some(KEY_DIR_HELPER)) || self.reads(OUR_FILE, user)
    }

    /// Whether it looks at a file below the user's home.
    pub(crate) fn reads(&self, file: &str, user: &Login<'_>) -> bool {
        let want = format!("{}/{file}", user.home);
        self.files.iter().any(|pattern| expanded(pattern, user) == want)
    }

    /// What is looked at, for people.
    pub(crate) fn files(&self) -> String {
        self.files.join(" ")
    }

    /// The contents of [`DROPIN`]: all that is looked at now, and our keys.
    pub(crate) fn dropin(&self, user: &Login<'_>) -> String {
        let files: Vec<&str> =
            self.files.iter().map(String::as_str).filter(|f| *f != "none").chain([OUR_FILE]).collect();
        format!(
            "# Written by the machine-config-daemon: the keys of the MachineConfig count for {name}.\nMatch User {name}\n    AuthorizedKeysFile {files}\n",
            name = user.name,
            files = files.join(" ")
        )
    }
}

impl Reading {
    /// Reads one file. `applies`: what surrounds the `Include` of it does; `in_match`: that is a `Match`.
    fn file(
        &mut self,
        text: &str,
        texts: &BTreeMap<String, String>,
        user: &Login<'_>,
        applies: bool,
        in_match: bool,
        depth: u32,
    ) {
        let (mut applies, mut in_match) = (applies, in_match);
        let outer = applies;
        for line in text.lines() {
            let words = words(line);
            let Some((keyword, values)) = words.split_first() else { continue };
            match keyword.to_ascii_lowercase().as_str() {
                "match" => {
                    in_match = true;
                    applies = outer && matches(values, user);
                }
                _ if !applies => {}
                "include" if depth < DEPTH => {
                    for pattern in values {
                        let pattern = absolute(pattern);
                        self.dropins |= !in_match && glob(&pattern, DROPIN);
                        for (_, text) in texts.iter().filter(|(path, _)| glob(&pattern, path)) {
                            self.file(text, texts, user, applies, in_match, depth + 1);
                        }
                    }
                }
                "authorizedkeysfile" => {
                    let slot = if in_match { &mut self.files_of_match } else { &mut self.files };
                    slot.get_or_insert_with(|| values.to_vec());
                }
                "authorizedkeyscommand" => {
                    let slot = if in_match { &mut self.command_of_match } else { &mut self.command };
                    slot.get_or_insert_with(|| values.join(" "));
                }
                _ => {}
            }
        }
    }
}

/// The patterns of the files that a text includes, whatever block they stand in.
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

fn absolute(pattern: &str) -> String {
    if pattern.starts_with('/') { pattern.to_owned() } else { format!("/etc/ssh/{pattern}") }
}

/// The words of a line: the first may be divided by `=` from the rest, any may be quoted, `#` begins a comment.
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

/// Whether a `Match` applies to everybody who logs in as this user.
fn matches(criteria: &[String], user: &Login<'_>) -> bool {
    if criteria.is_empty() {
        return false;
    }
    let mut rest = criteria.iter();
    while let Some(criterion) = rest.next() {
        let (key, value) = match criterion.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (criterion.as_str(), None),
        };
        let known = match key.to_ascii_lowercase().as_str() {
            "all" => true,
            "user" => {
                value.or_else(|| rest.next().cloned()).is_some_and(|patterns| listed(&patterns, user.name))
            }
            // Its own group has the user's name; who else is in which is not known here.
            "group" => {
                value.or_else(|| rest.next().cloned()).is_some_and(|patterns| listed(&patterns, user.name))
            }
            _ => false,
        };
        if !known {
            return false;
        }
    }
    true
}

/// Whether a name is in a list of patterns; one with `!` takes it out.
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

/// Whether a path matches a pattern: `*` and `?` do not go over a `/`.
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

/// The path that sshd makes of a pattern.
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

/// Whether a file of keys has one.
pub(crate) fn has_key(text: &str) -> bool {
    text.lines().any(|line| !matches!(line.trim().chars().next(), None | Some('#')))
}

/// A file of the user's own with these keys as our block in it; without keys the block goes. All other lines stay.
pub(crate) fn with_block(text: &str, keys: &str) -> String {
    let mut out = String::new();
    let mut ours = false;
    for line in text.split_inclusive('\n') {
        match line.trim_end() {
            BEGIN => ours = true,
            END if ours => ours = false,
            _ if !ours => out.push_str(line),
            _ => {}
        }
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

    const CORE: Login<'_> = Login { name: "core", home: "/home/core" };
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
            let sshd = Sshd::read(&texts(&files), &CORE).unwrap();
            assert_eq!((sshd.reads_ours(&CORE), sshd.dropins), (reads, dropins), "{about}: {sshd:?}");
            if sshd.dropins && !reads {
                // What we write makes it so, and leaves the rest as it was.
                let mut with: Vec<(&str, &str)> = files.clone();
                let text = sshd.dropin(&CORE);
                with.push((DROPIN, &text));
                let after = Sshd::read(&texts(&with), &CORE).unwrap();
                assert!(after.reads_ours(&CORE), "{about}: {after:?}");
                assert_eq!(after.reads(STOCK_FILE, &CORE), sshd.reads(STOCK_FILE, &CORE), "{about}");
                let bob = Login { name: "bob", home: "/home/bob" };
                assert_eq!(
                    Sshd::read(&texts(&with), &bob),
                    Sshd::read(&texts(&files), &bob),
                    "{about}: others notice"
                );
            }
        }
        assert_eq!(Sshd::read(&texts(&[(&ten, ours)]), &CORE), None, "no server");
        let round = texts(&[(CONFIG, "Include /etc/ssh/sshd_config\n")]);
        assert!(Sshd::read(&round, &CORE).is_some(), "files that include each other");
    }

    #[test]
    fn our_block_in_somebodys_file_leaves_the_rest_alone() {
        let theirs = "# mine\nssh-ed25519 AAAA me\n";
        let with = with_block(theirs, "ssh-ed25519 BBBB ours\n");
        assert_eq!(with, format!("{theirs}{BEGIN}\nssh-ed25519 BBBB ours\n{END}\n"));
        let other = with_block(&with, "ssh-ed25519 CCCC other\n");
        assert!(other.contains("CCCC") && !other.contains("BBBB") && other.starts_with(theirs), "{other}");
        assert_eq!(with_block(&other, ""), theirs);
        assert_eq!(with_block("no newline", "k\n"), format!("no newline\n{BEGIN}\nk\n{END}\n"));
        assert_eq!(with_block("", ""), "");
    }
}

//! The language of sshd_config(5): its lines and words, patterns of paths and names, and the criteria of `Match`. Pure.
//!
//! Not here: what the keywords mean for a user's keys (see `sshd`).

use super::Login;

/// Whether a `Match` block applies to a login as the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applies {
    Yes,
    No,
    /// To some logins: it depends on the client's address, or on something that is not known here.
    Perhaps,
}

impl Applies {
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            (Self::Perhaps, _) | (_, Self::Perhaps) => Self::Perhaps,
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

/// A pattern of `Include`, which is relative to sshd's own folder.
pub(super) fn absolute(pattern: &str) -> String {
    if pattern.starts_with('/') { pattern.to_owned() } else { format!("/etc/ssh/{pattern}") }
}

/// The words of a line. `=` may separate the first from the rest, any word may be quoted, and `#` begins a comment.
pub(super) fn words(line: &str) -> Vec<String> {
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
pub(super) fn matches(criteria: &[String], user: &Login<'_>, asked: bool) -> Applies {
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
pub(super) fn expanded(pattern: &str, user: &Login<'_>) -> String {
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

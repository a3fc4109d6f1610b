//! The language of sysctl.d(5): what the lines of a file set, which of several files counts, and when two values are the same.
//! Pure.
//!
//! Not here: what a change of such a file costs (see `sysctl`).

use std::collections::BTreeMap;

use crate::disk::root::split;

/// The folders, highest precedence first (sysctl.d(5)).
pub(crate) const FOLDERS: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];

/// One line of such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The path below `/proc/sys`.
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) tolerated: bool,
}

/// The path of a key below `/proc/sys`: the first separator of a key, `.` or `/`, is its separator; the other one is
/// part of a name.
pub(crate) fn path_of(key: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    match key.find(['.', '/']).and_then(|i| key.get(i..=i)) {
        Some(".") => key.chars().map(swap).collect(),
        _ => key.to_owned(),
    }
}

/// The settings of a file.
///
/// # Errors
/// A line that cannot be followed here: patterns, and exceptions from them.
pub(crate) fn parse(text: &str) -> Result<Vec<Setting>, String> {
    lines(text).map(setting).collect()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';']))
}

fn setting(line: &str) -> Result<Setting, String> {
    let Some((key, value)) = line.split_once('=') else {
        return Err(format!("the line {line:?} sets no value"));
    };
    let (key, tolerated) = match key.trim().strip_prefix('-') {
        Some(key) => (key.trim(), true),
        None => (key.trim(), false),
    };
    if key.is_empty() || key.contains(WILD) {
        return Err(format!("{key:?} is a pattern"));
    }
    let key = path_of(key);
    if key.split('/').any(|part| part.is_empty() || part == "..") {
        return Err(format!("{key:?} is not the name of a parameter"));
    }
    Ok(Setting { key, value: value.trim().to_owned(), tolerated })
}

/// What makes a key a pattern (glob(7)).
const WILD: [char; 4] = ['*', '?', '[', ']'];

/// Whether a line that cannot be followed, a pattern or an exception from one, may be about a parameter: what is before
/// and after its wildcards fits.
pub(super) fn may_match(line: &str, key: &str) -> bool {
    let pattern = line.split_once('=').map_or(line, |(key, _)| key).trim();
    let pattern = path_of(pattern.strip_prefix('-').unwrap_or(pattern).trim());
    match (pattern.find(WILD), pattern.rfind(WILD)) {
        (Some(first), Some(last)) => {
            let start = pattern.get(..first).unwrap_or_default();
            let end = pattern.get(last + 1..).unwrap_or_default();
            key.starts_with(start) && key.ends_with(end)
        }
        _ => pattern == key,
    }
}

/// What a boot sets by some files.
#[derive(Default)]
pub(super) struct InForce<'f> {
    pub(super) settings: BTreeMap<String, Setting>,
    /// Lines that cannot be followed here.
    pub(super) others: Vec<&'f str>,
}

/// What a boot sets by these files: of files with one name that of the highest folder, then in the order of names, the
/// last setting of a parameter counts.
pub(super) fn in_force<'f>(files: impl Iterator<Item = (&'f str, &'f str)>) -> InForce<'f> {
    let mut named: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (path, text) in files {
        let Ok((dir, name)) = split(path) else { continue };
        let Some(rank) = FOLDERS.iter().position(|f| *f == dir) else { continue };
        if named.get(name).is_none_or(|(other, _)| rank < *other) {
            named.insert(name, (rank, text));
        }
    }
    let mut out = InForce::default();
    for line in named.values().flat_map(|(_, text)| lines(text)) {
        match setting(line) {
            Ok(s) => drop(out.settings.insert(s.key.clone(), s)),
            Err(_) => out.others.push(line),
        }
    }
    out
}

/// Two texts of one value: the kernel separates words by tabs, and prints numbers in its own form.
pub(crate) fn same_value(a: &str, b: &str) -> bool {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => word.parse::<i128>().ok(),
    };
    let same = |(a, b): (&str, &str)| a == b || number(a).is_some_and(|a| number(b) == Some(a));
    let words = |text| str::split_whitespace(text);
    words(a).count() == words(b).count() && words(a).zip(words(b)).all(same)
}

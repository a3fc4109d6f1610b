//! Which lines look like a secret: a value beside a word that names one, a name and password in a URL, keys as runs of
//! letters and digits, PEM blocks and YAML blocks.
//!
//! It prefers to hide a harmless line over showing a secret: every word that may name a secret counts, and so does
//! every value beside one, unless it is plainly something else.
//!
//! What it is not: a parser of any format.

use std::borrow::Cow;

/// A word that contains one of these, written together, names a secret.
const HELD: [&str; 13] = [
    "passw",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "credential",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "connectionstring",
    "mnemonic",
    "community",
];
/// Parts of words that name a secret.
const PARTS: [&str; 24] = [
    "pass",
    "passes",
    "pwd",
    "pw",
    "pin",
    "pins",
    "puk",
    "key",
    "keys",
    "auth",
    "authorization",
    "bearer",
    "psk",
    "cred",
    "creds",
    "otp",
    "totp",
    "jwt",
    "dsn",
    "sasl",
    "hmac",
    "salt",
    "signature",
    "sig",
];
/// Endings of such words when they are written as one word.
const ENDS: [&str; 7] = ["pass", "pwd", "pw", "key", "keys", "auth", "psk"];
/// Words with such an ending that mean something else.
const OTHERS: [&str; 5] = ["bypass", "compass", "monkey", "hotkey", "turkey"];
/// Values that are never secret, whatever they belong to.
const HARMLESS: [&str; 12] = [
    "yes", "no", "true", "false", "on", "off", "none", "null", "required", "optional", "enabled", "disabled",
];
/// Last parts of words whose value is a number.
const COUNTS: [&str; 20] = [
    "count",
    "counts",
    "size",
    "length",
    "len",
    "max",
    "min",
    "timeout",
    "ttl",
    "seconds",
    "days",
    "age",
    "limit",
    "bits",
    "retries",
    "lifetime",
    "interval",
    "period",
    "duration",
    "expiration",
];
/// Last parts of words whose value is a path.
const PLACES: [&str; 6] = ["file", "files", "path", "dir", "directory", "folder"];
/// Prefixes of the names of Secrets that an installation or a cluster has, and that messages mention.
const OWN_SECRETS: [&str; 6] = [
    "machine-config-",
    "node-bootstrapper-token",
    "pull-secret",
    "boot-token-",
    "worker-user-data",
    "master-user-data",
];
/// Folders that a path begins with. A secret rarely does.
const ROOTS: [&str; 15] = [
    "/etc/", "/usr/", "/var/", "/run/", "/opt/", "/proc/", "/sys/", "/dev/", "/lib/", "/bin/", "/sbin/",
    "/boot/", "/srv/", "/tmp/", "/home/",
];
/// From this length on, a run of letters with some digits looks like a key.
const LONG: usize = 20;
/// From this length on, one digit is enough: it may be a hash.
const LONGER: usize = 32;
/// From this length on, hexadecimal digits look like a key.
const HEX: usize = 16;
/// From this length on, padded base64 looks like a key.
const PADDED: usize = 8;
/// Shown in place of a value.
const MASK: &str = "***";

/// Whether any line of a text looks like a secret.
#[must_use]
pub fn looks_secret(text: &str) -> bool {
    let plain: Cow<'_, str> =
        if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) };
    let mut lines = plain.lines().filter(|l| !l.trim().is_empty()).peekable();
    while let Some(line) = lines.next() {
        if is_secret(line, lines.peek().is_some_and(|next| continues_value(line, next))) {
            return true;
        }
    }
    false
}

/// Whether a line looks like a secret. `follows`: the next line continues this one.
pub(super) fn is_secret(line: &str, follows: bool) -> bool {
    is_marked(line) || has_userinfo(line) || has_key(line) || names_value(line, follows)
}

/// An argument of a command or of the kernel, without its value if that looks like a secret.
#[must_use]
pub fn argument(argument: &str) -> Cow<'_, str> {
    if !looks_secret(argument) {
        return Cow::Borrowed(argument);
    }
    match argument.split_once('=') {
        Some((name, _)) if !looks_secret(name) => Cow::Owned(format!("{name}={MASK}")),
        _ => Cow::Borrowed(MASK),
    }
}

/// Whether the next line continues the value that a line began: it is indented further, or is an entry of a list.
pub(super) fn continues_value(line: &str, next: &str) -> bool {
    let indent = |l: &str| l.len() - l.trim_start().len();
    indent(next) > indent(line) || next.trim_start().starts_with('-') || line.trim_end().ends_with('>')
}

/// PEM blocks, and password hashes in the forms of crypt(5).
fn is_marked(line: &str) -> bool {
    let hash = || {
        line.match_indices('$').any(|(at, _)| {
            let rest = line.get(at + 1..).unwrap_or_default();
            let id = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'-').count();
            (1..=12).contains(&id) && rest.as_bytes().get(id) == Some(&b'$')
        })
    };
    line.contains("-----BEGIN") || hash()
}

/// `scheme://user:password@host`, `user:password@host`, and curl's `-u user:password`.
fn has_userinfo(line: &str) -> bool {
    let words =
        || line.split(|c: char| c.is_whitespace() || "\"'`<>,;".contains(c)).filter(|w| !w.is_empty());
    let with_name = |word: &str| {
        let at = word.match_indices('@').find(|(at, _)| {
            let after = word.get(at + 1..).unwrap_or_default();
            !after.starts_with("sha256:") && !after.starts_with("sha512:") && !after.is_empty()
        });
        let Some((at, _)) = at else { return false };
        let before = word.get(..at).unwrap_or_default();
        before.contains("://")
            || before.split_once(':').is_some_and(|(user, pass)| !user.is_empty() && !pass.is_empty())
    };
    if words().any(with_name) {
        return true;
    }
    let mut words = words().map(|w| w.rsplit_once('=').map_or(w, |(_, last)| last)).peekable();
    while let Some(word) = words.next() {
        if matches!(word, "-u" | "--user" | "--proxy-user" | "-U")
            && words.peek().is_some_and(|v| v.contains(':'))
        {
            return true;
        }
    }
    false
}

/// Runs of letters and digits as in keys, tokens and hashes. Digests of images are public.
fn has_key(line: &str) -> bool {
    let in_run = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '=';
    let mut rest = line;
    let mut before = String::new();
    while let Some(start) = rest.find(in_run) {
        before.push_str(rest.get(..start).unwrap_or_default());
        let run = rest.get(start..).unwrap_or_default();
        let end = run.find(|c| !in_run(c)).unwrap_or(run.len());
        let (run, after) = run.split_at(end);
        let digest = before.ends_with("sha256:") || before.ends_with("sha512:");
        // A name and its value are checked separately; the padding of base64 stays.
        let value = run.trim_end_matches('=');
        let padding = run.len() - value.len();
        if !digest {
            let parts: Vec<&str> = value.split('=').collect();
            let last = parts.len().saturating_sub(1);
            for (i, part) in parts.into_iter().enumerate() {
                let padding = if i == last && after.trim_start().is_empty() { padding } else { 0 };
                if is_key(part, padding) {
                    return true;
                }
            }
        }
        before.push_str(run);
        rest = after;
    }
    false
}

fn is_key(run: &str, padding: usize) -> bool {
    let count = |f: fn(&u8) -> bool| run.bytes().filter(f).count();
    let (digits, letters) = (count(u8::is_ascii_digit), count(u8::is_ascii_alphabetic));
    let hex = run.len() >= HEX && count(u8::is_ascii_hexdigit) == run.len();
    let long = run.len() >= LONG && digits >= 3 && letters > 0 || run.len() >= LONGER && digits > 0;
    let padded = (1..=2).contains(&padding)
        && run.len() + padding >= PADDED
        && (run.len() + padding).is_multiple_of(4);
    long || padded || hex && digits >= 4 && letters > 0
}

/// Whether a word that names a secret has a value. `follows`: the next line continues this one.
fn names_value(line: &str, follows: bool) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    // A section header of an INI or TOML file: the lines after it belong to it.
    let header = line.trim();
    if header.starts_with('[') && header.ends_with(']') && !header.contains('=') {
        return follows_header(header);
    }
    let mut at = 0;
    while let Some(start) = line.get(at..).and_then(|rest| rest.find(in_word)).map(|s| at + s) {
        let rest = line.get(start..).unwrap_or_default();
        let len = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        at = start + len;
        // `Secret NAMESPACE/NAME`, as messages name such an object: the word is its kind, and its name may hold such words, too.
        if word == "Secret"
            && let Some(name) = after.strip_prefix(' ').map(object_name).filter(|name| !name.is_empty())
        {
            at += 1 + name.len();
            continue;
        }
        let in_path = line.get(..start).is_some_and(|b| b.ends_with('/')) || after.starts_with('/');
        if !in_path && names_secret(word) && has_value(word, after, follows) {
            return true;
        }
    }
    false
}

/// The name of a Kubernetes object that a text begins with: with its namespace, or one of our own Secrets. Any other word may be
/// a value.
fn object_name(text: &str) -> &str {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '/');
    let name = text.split(|c| !fits(c)).next().unwrap_or_default().trim_end_matches(['.', '-', '/']);
    let rest = text.get(name.len()..).unwrap_or_default();
    let ends = rest.is_empty() || rest.starts_with([' ', ',', ';', ')', '"']) || rest.starts_with(": ");
    let sound = |part: &str| part.starts_with(|c: char| c.is_ascii_lowercase()) && part.contains('-');
    let known = match name.split_once('/') {
        Some((namespace, name)) => {
            !namespace.is_empty() && !name.contains('/') && (sound(namespace) || sound(name))
        }
        None => OWN_SECRETS.iter().any(|own| name.starts_with(own)),
    };
    if known && ends && !has_key(name) { name } else { "" }
}

fn follows_header(header: &str) -> bool {
    header.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-')).any(names_secret)
}

/// Splits `DB_PASSWORD` and `dbPassword` into `db`, `password`.
fn parts(word: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut lower = false;
    for c in word.chars() {
        let new = !c.is_alphanumeric() || lower && c.is_uppercase();
        if new {
            all.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(part) = all.last_mut()
        {
            part.extend(c.to_lowercase());
        }
        lower = c.is_lowercase();
    }
    all.retain(|p| !p.is_empty());
    all
}

fn names_secret(word: &str) -> bool {
    let parts = parts(word);
    let joined = parts.concat();
    HELD.iter().any(|h| joined.contains(h))
        || parts.iter().any(|p| {
            let p = p.trim_end_matches(|c: char| c.is_ascii_digit());
            PARTS.contains(&p) || ENDS.iter().any(|e| p.ends_with(e)) && !OTHERS.contains(&p)
        })
}

/// Whether the text after a word is a value that may be secret.
fn has_value(word: &str, after: &str, follows: bool) -> bool {
    let between = |c: char| c.is_whitespace() || "\"'`=:>,|([{".contains(c);
    let rest = after.trim_start_matches(between);
    let skipped = after.get(..after.len() - rest.len()).unwrap_or_default();
    if rest.is_empty() {
        let opened = skipped.contains(['|', '[', '{', '(']);
        return opened || follows && skipped.contains(['=', ':', '>', '"']);
    }
    if skipped.is_empty() {
        return false;
    }
    let end = rest.find(|c: char| c.is_whitespace() || "\"'`,;})]<&".contains(c)).unwrap_or(rest.len());
    let value = rest.get(..end).unwrap_or_default();
    !is_harmless(word, value) || !skipped.contains(['=', ':']) && goes_on(rest.get(end..).unwrap_or_default())
}

/// Whether a harmless word after the name of a secret is only the first of several, as in `password is hunter2`.
fn goes_on(rest: &str) -> bool {
    rest.trim_start().starts_with(|c: char| c.is_alphanumeric())
}

fn is_harmless(word: &str, value: &str) -> bool {
    let parts = parts(word);
    let last = parts.last().map(String::as_str).unwrap_or_default();
    let lower = value.to_ascii_lowercase();
    let is_path = |v: &str| v.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-%@".contains(&b));
    let rooted = value.strip_prefix("file://").unwrap_or(value);
    let number = || {
        let digits = value.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < value.len() && matches!(digits, "" | "s" | "m" | "h" | "d" | "ms" | "min")
    };
    value.is_empty()
        || HARMLESS.contains(&lower.as_str())
        || value.bytes().all(|b| b == b'*')
        || ROOTS.iter().any(|r| rooted.starts_with(r)) && is_path(rooted)
        || PLACES.contains(&last) && value.contains(['/', '.']) && is_path(value)
        || COUNTS.contains(&last) && number()
}

#[cfg(test)]
mod tests;

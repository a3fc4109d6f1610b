//! Whether a config lets anybody log in as the user core, and whether a change removes the last way to do so. Pure.
//!
//! What it is not: whether anybody else can log in to a host, which only that host knows (see `host`).
//!
//! Sources: crypt(5), shadow(5).

use crate::rules::CORE;
use ignition::Config;

/// Whether a config lets somebody log in as core, with a key or a password. A password whose hash is empty or locked
/// (it begins with `!` or `*`, see shadow(5)) allows no login. Neither does a line of keys that is a comment (see
/// sshd(8)).
#[must_use]
pub fn has_core_login(config: &Config) -> bool {
    let is_key = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let is_open = |hash: &str| !hash.is_empty() && !hash.starts_with(['!', '*']);
    let mut core = config.passwd.users.iter().filter(|u| u.name == CORE);
    core.any(|u| {
        u.ssh_authorized_keys.iter().any(|key| is_key(key)) || u.password_hash.as_deref().is_some_and(is_open)
    })
}

/// Whether a change removes the last key and password of core.
#[must_use]
pub fn removes_last_login(old: &Config, new: &Config) -> bool {
    has_core_login(old) && !has_core_login(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_the_removal_of_the_last_login_is_warned_of() {
        let read = |users: Value| {
            let config = json!({"ignition": {"version": "3.5.0"}, "passwd": {"users": users}});
            ignition::parse_value(&config).unwrap().config
        };
        let none = json!([]);
        let key = json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A"]}]);
        let password = json!([{"name": "core", "passwordHash": "$6$a$b"}]);
        let empty = json!([{"name": "core", "passwordHash": ""}]);
        let locked = json!([{"name": "core", "passwordHash": "!$6$a$b"}]);
        let starred = json!([{"name": "core", "passwordHash": "*", "sshAuthorizedKeys": ["# was: ssh-ed25519 A", " "]}]);
        for (old, new, shut) in [
            (&key, &locked, true),
            (&password, &starred, true),
            (&locked, &none, false),
            (&key, &none, true),
            (&password, &none, true),
            (&key, &empty, true),
            (&key, &password, false),
            (&key, &key, false),
            (&none, &none, false),
            (&none, &key, false),
        ] {
            assert_eq!(removes_last_login(&read(old.clone()), &read(new.clone())), shut, "{old} -> {new}");
        }
    }
}

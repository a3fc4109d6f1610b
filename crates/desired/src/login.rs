//! Whether a change of the config takes away how people log in as the user core. Pure.
//!
//! What it is not: whether somebody else can log in to a host, which only that host says (see `host`).

use crate::rules::CORE;
use crate::wanted::Wanted;

/// Whether a config lets somebody log in as core: with a key or a password.
fn lets_in(config: &Wanted) -> bool {
    let mut core = config.config.passwd.users.iter().filter(|u| u.name == CORE);
    core.any(|u| {
        !u.ssh_authorized_keys.is_empty() || u.password_hash.as_ref().is_some_and(|hash| !hash.is_empty())
    })
}

/// Whether a change takes away the last key and password of core.
#[must_use]
pub fn shuts_core_out(old: &Wanted, new: &Wanted) -> bool {
    lets_in(old) && !lets_in(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1::MachineConfigSpec;
    use serde_json::{Value, json};

    #[test]
    fn only_the_last_way_in_counts() {
        let read = |users: Value| {
            let config = json!({"ignition": {"version": "3.5.0"}, "passwd": {"users": users}});
            let spec = MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() };
            Wanted::parse(&spec).unwrap()
        };
        let none = json!([]);
        let key = json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A"]}]);
        let password = json!([{"name": "core", "passwordHash": "$6$a$b"}]);
        let empty = json!([{"name": "core", "passwordHash": ""}]);
        for (old, new, shut) in [
            (&key, &none, true),
            (&password, &none, true),
            (&key, &empty, true),
            (&key, &password, false),
            (&key, &key, false),
            (&none, &none, false),
            (&none, &key, false),
        ] {
            assert_eq!(shuts_core_out(&read(old.clone()), &read(new.clone())), shut, "{old} -> {new}");
        }
    }
}
